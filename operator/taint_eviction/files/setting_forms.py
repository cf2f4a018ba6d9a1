"""How the values of settings are written: in flags, environment variables and scenario files, and in the journal.

A form reads a value, and writes one. It knows neither a setting nor who reads: readers name the flag or the key in
front of what a form expects.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taint_eviction.core.breaker_policy import NodeThreshold
from taint_eviction.files.durations import duration_text, parse_seconds

_SHARE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


class Form:
    """How a value is written: ``parse`` reads it as people, YAML or JSON have it, ``plain`` returns it as JSON has it,
    and ``text`` as people type it.
    """

    def parse(self, value: object) -> Any:
        """Read a value; raise ``ValueError`` with the valid forms, for people."""
        raise NotImplementedError

    def plain(self, value: Any) -> Any:
        """Return the value as JSON has it."""
        return value

    def text(self, value: Any) -> str | None:
        """Return the value as people type it, None if nothing means it."""
        return None if value is None else str(self.plain(value))


class Switch(Form):
    """True or false. As a flag it has no value: the flag sets it, or unsets it if the flag is an ``Unset``."""

    def parse(self, value: object) -> bool:
        """Read a boolean."""
        if isinstance(value, bool):
            return value
        raise ValueError("true or false")


class Unset(Switch):
    """True or false; the flag makes it false."""


class Whole(Form):
    """A whole number."""

    def parse(self, value: object) -> int:
        """Read a number that YAML or JSON has read."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise ValueError("a whole number")


class Rate(Form):
    """A number of more than 0."""

    def parse(self, value: object) -> float:
        """Read a number that YAML or JSON has read."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        raise ValueError("a number of more than 0")


@dataclass(frozen=True, slots=True)
class Span(Form):
    """A duration in seconds, written as in Kubernetes' own flags (``1m30s``, ``500ms``) or as a number.
    ``forever``: infinite seconds are written as that word.
    """

    forever: bool = False

    def parse(self, value: object) -> float:
        """Read a number of seconds."""
        return math.inf if self.forever and value in ("forever", math.inf) else parse_seconds(value)

    def plain(self, value: Any) -> Any:
        """Return the number of seconds, or the word."""
        return "forever" if value == math.inf else value

    def text(self, value: Any) -> str:
        """Return the duration with a unit, or the word."""
        return "forever" if value == math.inf else duration_text(value)


@dataclass(frozen=True, slots=True)
class Words(Form):
    """One of some words, each with the value that it stands for."""

    words: Mapping[str, Any]

    def parse(self, value: object) -> Any:
        """Read a word."""
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        raise ValueError(f"one of {', '.join(sorted(self.words))}")

    def plain(self, value: Any) -> str:
        """Return the word for a value."""
        return next(word for word, own in self.words.items() if own == value)


@dataclass(frozen=True, slots=True)
class Nodes(Form):
    """A threshold of nodes: ``25%``, ``40``, or ``25%,40`` for whichever is exceeded first.
    ``unlimited`` is the word for no threshold (None); "": no word is accepted.
    """

    unlimited: str = ""

    def parse(self, value: object) -> NodeThreshold | None:
        """Read number and share."""
        if isinstance(value, NodeThreshold):
            return value
        text = "off" if value is False else str(value).strip()  # YAML reads off as false.
        if self.unlimited and text == self.unlimited:
            return None
        number, percent = None, None
        for part in text.split(","):
            share = _SHARE.fullmatch(part.strip())
            if share and percent is None:
                percent = float(share[1])
            elif _NUMBER.fullmatch(part.strip()) and number is None:
                number = int(part)
            else:
                raise ValueError("25%, 40, or 25%,40" + (f", or {self.unlimited}" if self.unlimited else ""))
        return NodeThreshold(number, percent)

    def plain(self, value: Any) -> str:
        """Return share and number, or the word."""
        if value is None:
            return self.unlimited
        share = [] if value.percent is None else [f"{value.percent:g}%"]
        return ",".join([*share, *([] if value.number is None else [f"{value.number}"])])

    def text(self, value: Any) -> str:
        """Return the same."""
        return self.plain(value)
