"""Files and stdin → the inventory: what ``kubectl get nodes,pods,pdb -A -o yaml|json`` printed, or written by hand."""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from taint_eviction.planning.inventory import Inventory
from taint_eviction.planning.json_stream import BadText, stream_json
from taint_eviction.planning.reading import InventoryReader
from taint_eviction.planning.yaml_stream import stream_yaml

STDIN = "-"

# After so many objects progress is told of.
_STEP = 500


def read_files(names: Iterable[str], stdin: BinaryIO, progress: Callable[[int], None]) -> Inventory:
    """Read all files; ``progress`` is given the number of objects so far now and then.

    Whatever cannot be read is a problem of the inventory, and the rest is read all the same.
    """
    inventory = Inventory()
    reader = InventoryReader(inventory)
    for name in names:
        try:
            if name == STDIN:
                _read(reader, "stdin", stdin, progress)
            else:
                with Path(name).open("rb") as source:
                    _read(reader, name, source, progress)
        except OSError as error:
            reader.problem(name, f"cannot be read: {error.strerror or error}")
    return inventory


def _read(reader: InventoryReader, name: str, source: BinaryIO, progress: Callable[[int], None]) -> None:
    buffered = io.BufferedReader(source, 1 << 16) if isinstance(source, io.RawIOBase) else source
    head, replayed = _peeked(buffered)
    if not head:
        reader.problem(name, "it is empty")
        return
    stream = stream_json if head in (b"{", b"[") else stream_yaml
    try:
        for count, (body, line) in enumerate(stream(replayed), 1):
            if isinstance(body, BadText):
                reader.problem(f"{name}:{body.line}", body.what)
            else:
                reader.put(body, f"{name}:{line}")
            if count % _STEP == 0:
                progress(len(reader.inventory))
    except BadText as bad:
        reader.problem(f"{name}:{bad.line}", bad.what)


class _Replayed(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._first:
            taken, self._first = self._first[: len(buffer)], self._first[len(buffer) :]
        else:
            taken = self._rest.read(len(buffer)) or b""
        buffer[: len(taken)] = taken
        return len(taken)


def _peeked(source: BinaryIO) -> tuple[bytes, BinaryIO]:
    """Return the first byte that is no space ("" where there is none), and a stream that still has all of it."""
    first = b""
    while not first.strip().removeprefix(b"\xef\xbb\xbf").strip():
        read = source.read(4096)
        if not read:
            return b"", source
        first += read
    head = first.strip().removeprefix(b"\xef\xbb\xbf").strip()[:1]
    return head, io.BufferedReader(_Replayed(first, source), 1 << 20)
