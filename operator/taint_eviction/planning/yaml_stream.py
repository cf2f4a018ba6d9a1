"""Objects out of YAML of any size, one after the other: documents, and the items of lists, each parsed by itself.

A List as kubectl prints it is cut at its items' first lines, so that memory is bounded by one item and a mistake in one
does not cost the others. Times stay text, as in JSON.
"""

import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import yaml

from taint_eviction.planning.json_stream import BadText
from taint_eviction.planning.kubectl_yaml import read_item

_ITEMS = re.compile(r"items:\s*(#.*)?")
_ITEM = re.compile(r"( *)- ")
_DEEPEST = 500
_DOCUMENT = re.compile(r"---(\s|$)")


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: no timestamps, and no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                what = f"the key {key.value!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def stream_yaml(source: BinaryIO) -> Iterator[tuple[Any, int]]:
    """Yield each object with the line where it begins, and a ``BadText`` in the place of each that cannot be read."""
    try:
        for part in _cut(source):
            yield from _objects(part)
    except UnicodeDecodeError as error:
        raise BadText(1, f"this is no UTF-8 text ({error.reason})") from None


class _Part:
    """Lines that are parsed together: an item of a list, or a document without its items."""

    def __init__(self, line: int, is_item: bool, kind: str = "") -> None:
        self.line = line
        self.is_item = is_item
        self.kind = kind
        self.lines: list[str] = []


def _cut(source: BinaryIO) -> Iterator[_Part]:
    cutting = _Cutting()
    for number, line in enumerate(io.TextIOWrapper(source, "utf-8-sig", newline=None), 1):
        if not cutting.goes_on(line):
            yield from cutting.feed(number, line)
    yield from cutting.end()


class _Cutting:
    """Cuts lines into parts. Items follow a line ``items:`` on the top level, and all begin in the same column."""

    def __init__(self) -> None:
        self._document = _Part(1, False)
        self._item: _Part | None = None
        # How items begin: None outside of a list, "" before its first one.
        self._begin: str | None = None
        self._kind = ""

    def goes_on(self, line: str) -> bool:
        """Take in a line that belongs to the item that has begun; tell whether it did. Most lines do."""
        item = self._item
        if item is None or line[0] not in " \n#" or line.startswith(self._begin or " "):
            return False
        item.lines.append(line)
        return True

    def feed(self, number: int, line: str) -> Iterator[_Part]:
        """Take in any other line and yield the parts that it ends."""
        if self._begin and line.startswith(self._begin):
            yield from self._end_item()
            self._item = _Part(number, True, self._kind)
            self._item.lines.append(line)
        elif line.startswith("---") and _DOCUMENT.match(line):
            yield from self.end()
            self._document = _Part(number, False)
            # The line itself, but for the marker: something may stand behind it.
            self._document.lines.append("   " + line[3:])
        elif self._begin == "" and (found := _ITEM.match(line)) is not None:
            self._begin = found[0]
            yield from self.feed(number, line)
        else:
            yield from self._end_item()
            self._add_to_document(line)

    def _add_to_document(self, line: str) -> None:
        self._document.lines.append(line)
        if line.startswith("items:") and _ITEMS.fullmatch(line.rstrip()):
            self._begin, self._kind = "", _kind_of(self._document)
        elif line.strip() and not line.lstrip().startswith("#"):
            self._begin = None

    def _end_item(self) -> Iterator[_Part]:
        if self._item is not None:
            yield self._item
        self._item = None

    def end(self) -> Iterator[_Part]:
        """Yield what is left."""
        yield from self._end_item()
        yield self._document
        self._document, self._begin = _Part(1, False), None


def _kind_of(document: _Part) -> str:
    kinds = [line.partition(":")[2].strip() for line in document.lines if line.startswith("kind:")]
    return kinds[0].removesuffix("List") if kinds else ""


def _objects(part: _Part) -> Iterator[tuple[Any, int]]:
    text = "".join(part.lines)
    if part.is_item:
        item = read_item(text)
        if item is None:
            loaded = _load(text, part.line)
            item = loaded[0] if isinstance(loaded, list) and loaded else loaded
        if part.kind and isinstance(item, dict):
            item.setdefault("kind", part.kind)
        yield item, part.line
        return
    loaded = _load(text, part.line)
    if isinstance(loaded, dict) and "items" in loaded and loaded["items"] is None:
        # They were parts of their own; kubectl writes the kind behind them.
        if "kind" not in loaded:
            yield BadText(part.line, "this list does not end with its kind: has the text been cut?"), part.line
    elif loaded is not None:
        yield from ((each, part.line) for each in (loaded if isinstance(loaded, list) else [loaded]))


def _load(text: str, line: int) -> Any:
    """Parse a text; return a ``BadText`` in the place of what cannot be."""
    if _is_too_deep(text):
        return BadText(line, "it is nested too deeply")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(error.problem or error.context or "unreadable").split())
        return BadText(line + (mark.line if mark else 0), f"no YAML: {what}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return BadText(line, f"no YAML: {' '.join(str(error).split())}")


def _is_too_deep(text: str) -> bool:
    """Tell whether the parser would run out of stack, which ends the process."""
    if sum(map(text.count, "[{-?:")) <= _DEEPEST:
        return False
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                return True
    except yaml.YAMLError:
        # What is wrong is told by the parser itself.
        pass
    return False
