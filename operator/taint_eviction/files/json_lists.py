"""Lists of Kubernetes objects as JSON, item by item as they arrive: memory is needed for one item, not for the answer.

A hundred pods may have 130 MB of JSON, and need five times as much when decoded at once. The API server writes a list
without spaces and its items alike: each ends before ``},{"metadata":``. That place is searched and the text before it
decoded, which succeeds only where an item really ends there. A list that is written in another way is decoded as a
whole, within the bound of one item.
"""

import asyncio
import re
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Any

import orjson

from taint_eviction.core.text import JsonObject

# An object that the API server can store has at most 1.5 MB there, and six times that where all is escaped.
MOST_ITEM_BYTES = 1 << 24
# How much of a list is decoded before others have their turn.
CHUNK_BYTES = 1 << 18

_ITEMS = b'"items":['
_OPENING = re.compile(rb'\{"[A-Za-z]{1,32}":')
# The most characters that begin or separate values in JSON; those in strings count as well. An object that the API
# server can store has about one of them per byte at most. Decoding 16 MB of nothing else takes 500 MB, and seconds.
_MOST_VALUES = 1_750_000
_SEPARATORS = (b",", b":", b"[", b"{")
# The fields before the items.
_MOST_HEAD_BYTES = 1 << 16
# How often the end of one item is searched for before the rest of the list is decoded as a whole.
_MOST_ENDS = 8


# In managedFields anybody who may create a pod may nest objects 10,000 times; decoders of JSON end at a thousand. Only
# there has an object that is read any JSON. Objects and texts stand in it, but no list: so "]" ends it.
_MANAGED_FIELDS = b'"managedFields":['
_TO_THEIR_END = re.compile(rb'(?:[^"\]]++|"(?:[^"\\]++|\\.)*+")*+\]', re.DOTALL)


class TooLong(ValueError):
    """An answer, or an object in it, with more bytes than its bound."""


def decode(text: bytes | bytearray | memoryview) -> Any:
    """Decode JSON as the API server writes it. Raise ``orjson.JSONDecodeError`` if it is not JSON, and ``TooLong`` if
    it has more values than an object that can be stored.

    If it cannot be decoded otherwise, ``managedFields`` are left out: nobody must be able to hide all pods of a node by
    one of them.
    """
    if len(text) > _MOST_VALUES and sum(map(bytes(text).count, _SEPARATORS)) > _MOST_VALUES:
        raise TooLong(f"it has more than {_MOST_VALUES} values")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        left = _without_managed_fields(bytes(text))
        if left is None:
            raise
        return orjson.loads(left)


def _without_managed_fields(text: bytes) -> bytes | None:
    """Return JSON without the entries of managedFields, None if there are none that end."""
    left, kept_to = bytearray(), 0
    while (begin := text.find(_MANAGED_FIELDS, kept_to)) >= 0:
        inside = begin + len(_MANAGED_FIELDS)
        found = _TO_THEIR_END.match(text, inside)
        if found is None:
            return None
        left += text[kept_to:inside]
        kept_to = found.end() - 1
    return bytes(left + text[kept_to:]) if kept_to else None


async def read_bytes(chunks: AsyncIterable[bytes], most_bytes: int) -> bytes:
    """Return a body that contains one object at most; raise ``TooLong`` if it has more bytes than ``most_bytes``."""
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > most_bytes:
            raise TooLong(f"it has more than {most_bytes >> 20} MB")
    return bytes(content)


async def read_items(chunks: AsyncIterable[bytes], take: Callable[[Any], None], most_bytes: int) -> Any:
    """Call ``take`` with each item of a list, and return the list without them; another JSON value is returned whole.

    ``chunks``: the body in pieces of at most ``CHUNK_BYTES``. Raises ``ValueError`` for what is not JSON, and
    ``TooLong`` after ``most_bytes``, or for an item of more than ``MOST_ITEM_BYTES``; the items before were taken.
    """
    items, received = _Items(), 0
    async for chunk in chunks:
        received += len(chunk)
        if received > most_bytes:
            raise TooLong(f"it has more than {most_bytes >> 20} MB")
        for item in items.feed(chunk):
            take(item)
        # What is buffered already arrives without a turn for others.
        await asyncio.sleep(0)
    body = items.end()
    if isinstance(body, dict) and isinstance(body.get("items"), list):
        for item in body["items"]:
            take(item)
        body["items"] = []
    return body


class _Items:
    """The text of a list as far as it is not decoded."""

    def __init__(self) -> None:
        self._text = bytearray()
        # The text before the first item, None until it has arrived.
        self._head: bytes | None = None
        # Whether the rest is decoded at the end only.
        self._whole = False
        # What stands between two items, b"" until the first one has begun.
        self._between = b""
        # Up to where no item can end, and how many places were tried in vain.
        self._searched_to = 0
        self._tried = 0

    def feed(self, chunk: bytes) -> Iterator[JsonObject]:
        """Add text, and yield the items that are complete now."""
        self._text += chunk
        if self._head is None and not self._whole:
            self._find_head()
        begin = 0
        while not self._whole and (end := self._find_end(begin)) is not None:
            try:
                item = decode(memoryview(self._text)[begin:end])
            except ValueError:
                self._tried += 1
                self._searched_to = end
                self._whole = self._tried >= _MOST_ENDS
                continue
            yield item
            begin = self._searched_to = end + 1
            self._tried = 0
        del self._text[:begin]
        self._searched_to -= begin
        if len(self._text) > MOST_ITEM_BYTES:
            raise TooLong(f"an object in it has more than {MOST_ITEM_BYTES >> 20} MB")

    def end(self) -> Any:
        """Decode the rest: the fields of the list with its last items, or the whole value."""
        return decode(self._text if self._head is None else self._head + self._text)

    def _find_head(self) -> None:
        at = self._text.find(_ITEMS, 0, _MOST_HEAD_BYTES)
        if at < 0:
            self._whole = len(self._text) > _MOST_HEAD_BYTES
            return
        end = at + len(_ITEMS)
        try:
            orjson.loads(self._text[:end] + b"]}")
        except ValueError:
            self._whole = True  # These are the items of something else.
            return
        self._head = bytes(self._text[:end])
        del self._text[:end]

    def _find_end(self, begin: int) -> int | None:
        """Return where the item that begins at ``begin`` may end, None if that has not arrived."""
        if self._head is None:
            return None
        if not self._between:
            opening = _OPENING.match(self._text, begin)
            if opening is None:
                # An empty list, or one that is written otherwise, unless the first bytes have not arrived.
                self._whole = len(self._text) > _MOST_HEAD_BYTES
                return None
            self._between = b"}," + opening[0]
        found = self._text.find(self._between, max(begin, self._searched_to))
        if found < 0:
            self._searched_to = max(begin, len(self._text) - len(self._between) + 1)
            return None
        return found + 1
