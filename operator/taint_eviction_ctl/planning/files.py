"""Files and stdin → the inventory: output of ``kubectl get nodes,pods,pdb -A -o json``, or written by hand."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from taint_eviction_ctl.planning.inventory import Inventory
from taint_eviction_ctl.planning.json_stream import BadText, stream_json
from taint_eviction_ctl.planning.reading import InventoryReader
from taint_eviction_ctl.planning.yaml_stream import stream_yaml

STDIN = "-"

# Progress is reported each time this many objects have been read.
_STEP = 500


def read_files(names: Iterable[str], stdin: BinaryIO, progress: Callable[[int], None]) -> Inventory:
    """Read all files; ``progress`` is called with the number of objects so far.

    What cannot be read becomes a problem of the inventory; the rest is still read.
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
    head = _head(source)
    text = head.strip().removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        reader.problem(name, "it is empty")
        return
    stream = stream_json if text[:1] in (b"{", b"[") else stream_yaml
    try:
        for count, (body, line) in enumerate(stream(_Rejoined(head, source)), 1):
            reader.put(body, f"{name}:{line}")
            if count % _STEP == 0:
                progress(len(reader.inventory))
    except BadText as bad:
        reader.problem(f"{name}:{bad.line}", bad.what)


def _head(source: BinaryIO) -> bytes:
    """Read until there is more than white space, or until the end of the source."""
    head = b""
    while not head.strip().removeprefix(b"\xef\xbb\xbf").strip() and (more := source.read(4096)):
        head += more
    return head


class _Rejoined:
    """A stream whose first bytes, ``head``, have already been read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int = -1, /) -> bytes:
        head, self._head = self._head, b""
        return head or self._rest.read(size)
