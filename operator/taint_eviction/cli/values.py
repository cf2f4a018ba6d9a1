"""The types of flags."""

import math
import re
from typing import Any

import click

from taint_eviction.core.breaker_policy import NodeThreshold
from taint_eviction.files.durations import parse_seconds

_SHARE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


class Seconds(click.ParamType[float]):
    """A duration in seconds, written as in Kubernetes' own flags (``1m30s``, ``500ms``) or as a number."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the duration; fail with a valid example."""
        try:
            return parse_seconds(value)
        except ValueError as expected:
            self.fail(f"{value!r} is not a duration; write {expected}", param, ctx)


class HostPort(click.ParamType[tuple[str, int]]):
    """Where to listen: ``HOST:PORT``, or ``:PORT`` for every address; IPv6 hosts in brackets."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Split into host ("" for every address) and port."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, as in 127.0.0.1:8080 or :8080", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


class HoldSpan(Seconds):
    """A duration, or ``forever``: infinite seconds."""

    name = "duration|forever"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the duration."""
        return math.inf if value in ("forever", math.inf) else super().convert(value, param, ctx)


class Threshold(click.ParamType[NodeThreshold | None]):
    """A threshold of nodes: ``25%``, ``40``, or ``25%,40`` for whichever is exceeded first.
    ``exempt`` is the word for no threshold (None); "": no word is accepted.
    """

    name = "nodes"

    def __init__(self, exempt: str = "") -> None:
        self._exempt = exempt

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NodeThreshold | None:
        """Read number and share."""
        if isinstance(value, NodeThreshold):
            return value
        text = str(value).strip()
        if self._exempt and text == self._exempt:
            return None
        number, percent = None, None
        for part in text.split(","):
            share = _SHARE.fullmatch(part.strip())
            if share and percent is None:
                percent = float(share[1])
            elif _NUMBER.fullmatch(part.strip()) and number is None:
                number = int(part)
            else:
                words = f", or {self._exempt}" if self._exempt else ""
                self.fail(f"{text!r} is not a number of nodes; write 25%, 40, or 25%,40{words}", param, ctx)
        return NodeThreshold(number, percent)
