"""Text and JSON in the one form that all packages use. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

# A JSON object as decoded. The core reads none; the packages above it do.
JsonObject = dict[str, Any]

_MAX_CHARACTERS = 300


def one_line(text: str | BaseException, max_characters: int = _MAX_CHARACTERS) -> str:
    """Return text that others wrote as one line that can be logged and stored: bounded, without control characters.

    An exception without a message is named by its type.
    """
    if isinstance(text, BaseException):
        text = str(text) or type(text).__name__
    text = text[: 4 * max_characters]
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(text.split())
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar known word, after a semicolon; "" if none is similar."""
    close = nearest(word, known)
    return f"; did you mean {close!r}?" if close else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar known word; None if none is similar."""
    return next(iter(get_close_matches(word, known, n=1, cutoff=0.7)), None)


def many(count: int, what: str) -> str:
    """Return a number with its noun: ``1 pod``, ``2 pods``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
