"""Reads objects from JSON of any size, one after the other, in bounded memory: lists, arrays, or a series of objects.

The standard decoder finds where each item ends and decodes it in one go. orjson needs the whole text, and 30,000 pods
as one value take 2 GB. ijson does not report the line of an item or a mistake, turns surrogates into question
marks, and does not bound the memory of a single value.
"""

import codecs
import json
import re
from collections.abc import Iterator
from json.decoder import WHITESPACE  # type: ignore[attr-defined]  # A compiled pattern of JSON's own white space.
from typing import Any, NoReturn, Protocol

_CHUNK = 1 << 20
# One value: an object of Kubernetes has at most 1.5 MB in etcd, printed at most some times that.
_LONGEST_VALUE = 1 << 26
_DECODER = json.JSONDecoder()
_SPACE: re.Pattern[str] = WHITESPACE


class Readable(Protocol):
    """A source to read from: a file, or the rest of one."""

    def read(self, size: int = ..., /) -> bytes:
        """Return some bytes, at the end none."""
        ...


class BadText(Exception):
    """Text that is not JSON or YAML; ``line`` is where, counted from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


def stream_json(source: Readable) -> Iterator[tuple[Any, int]]:
    """Yield each object with the line where it begins; raise ``BadText`` after those before the first mistake."""
    text = _Text(source)
    while text.peek():
        yield from _top(text)


def _top(text: "_Text") -> Iterator[tuple[Any, int]]:
    """Yield the contents of one value on the top level: a list's items, an array's elements, or the object itself."""
    line = text.line()
    if text.peek() == "[":
        text.take("[")
        yield from _items(text, "")
        return
    if text.peek() != "{":
        raise BadText(line, "a JSON object or a List was expected")
    text.take("{")
    fields: dict[str, Any] = {}
    is_list = False
    while text.peek() != "}":
        key = text.value()
        text.take(":")
        if key == "items" and text.peek() == "[":
            is_list = True
            text.take("[")
            yield from _items(text, str(fields.get("kind", "")).removesuffix("List"))
        else:
            fields[key] = text.value()
        if text.peek() != "}":
            text.take(",")
    text.take("}")
    if not is_list:
        yield fields, line


def _items(text: "_Text", kind: str) -> Iterator[tuple[Any, int]]:
    """Yield the items of a list that has been opened; items of a list of one kind do not name the kind themselves."""
    while text.peek() != "]":
        line = text.line()
        item = text.value()
        if kind and isinstance(item, dict):
            item.setdefault("kind", kind)
        yield item, line
        if text.peek() != "]":
            text.take(",")
    text.take("]")


class _Text:
    """A window on the text that advances as it is read."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._window = ""
        self._at = 0
        self._ended = False
        # Lines before ``_counted_to``, which is a place in the window.
        self._lines = 1
        self._counted_to = 0

    def line(self) -> int:
        """Return the line of the next character, counted from 1."""
        self._lines += self._window.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._lines

    def peek(self) -> str:
        """Return the next character that is not white space, "" at the end."""
        while True:
            found = _SPACE.match(self._window, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._window):
                return self._window[self._at]
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Skip the expected character; raise ``BadText`` if it is another."""
        found = self.peek()
        if found != expected:
            raise self._bad(f"{expected!r} was expected, not {found!r}" if found else "the text ends in the middle")
        self._at += 1

    def value(self) -> Any:
        """Read a complete value; raise ``BadText`` if there is none."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:
                if self._ended or not self._may_go_on(error):
                    self._fail(error)
                self._more()
                continue
            except RecursionError:
                raise self._bad("it is nested too deeply") from None
            # A number at the end of the window may continue after it.
            if end == len(self._window) and not self._ended:
                self._more()
                continue
            if "\\u" in self._window[self._at : end] and not _is_unicode(value):
                raise self._bad("it has half of a character, written as an escape")
            self._at = end
            return value

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Return whether the only mistake may be that the window ends."""
        return error.msg.startswith("Unterminated string") or error.pos >= len(self._window) - 16

    def _fail(self, error: json.JSONDecodeError) -> NoReturn:
        # Words are cut at most four letters from their beginning, escapes five.
        cut = error.msg.startswith("Unterminated string") or error.pos >= len(self._window.rstrip()) - 5
        if self._ended and cut:
            raise self._bad("the text ends in the middle: this object and everything after it are missing") from None
        self._at = max(self._at, min(error.pos, len(self._window)))
        raise self._bad(f"not valid JSON: {error.msg}") from None

    def _bad(self, what: str) -> BadText:
        return BadText(self.line(), what)

    def _more(self) -> bool:
        """Read more, drop the text that was used, and return whether anything was added; longer values read more at
        once.
        """
        if self._ended:
            return False
        self.line()
        kept = self._window[self._at :]
        if len(kept) > _LONGEST_VALUE:
            raise self._bad("a single value is longer than 64 MB")
        raw = self._source.read(max(_CHUNK, len(kept)))
        try:
            added = self._decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            raise self._bad(f"this is no UTF-8 text ({error.reason})") from None
        self._ended = not raw
        self._window, self._at, self._counted_to = kept + added, 0, 0
        return not self._ended


def _is_unicode(value: Any) -> bool:
    """Return whether a value could be encoded again: escapes may contain lone surrogates, which no text has."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
