"""Reads objects from YAML of any size, one after the other: documents, and the items of lists, by PyYAML.

The items of a List are composed one by one, so that memory is bounded by the largest of them. Kubernetes' YAML has no
timestamps, and no key twice. Slow beside JSON: 5,000 pods as kubectl prints them take 5.6 s as YAML, 0.4 s as JSON.
"""

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError

from taint_eviction.files.marked_yaml import without_timestamps
from taint_eviction_ctl.planning.json_stream import BadText, Readable

_MAPPING = "tag:yaml.org,2002:map"

_TOO_DEEP = "it is nested too deeply"


class _ItemLoader(Composer, yaml.CSafeLoader):
    """libyaml's parser with PyYAML's own composer: libyaml's composes whole documents only."""

    yaml_implicit_resolvers = without_timestamps(yaml.CSafeLoader.yaml_implicit_resolvers)

    def __init__(self, source: Readable) -> None:
        yaml.CSafeLoader.__init__(self, source)
        Composer.__init__(self)
        # The line of the last composed node, counted from 1.
        self.line = 1

    def compose(self) -> Any:
        """Compose the next node."""
        event: Any = self.peek_event()
        self.line = event.start_mark.line + 1
        return self.compose_node(None, None)  # type: ignore[arg-type]  # None: it has no parent.

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise ConstructorError(None, None, f"the key {key.value!r} appears twice", key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def stream_yaml(source: Readable) -> Iterator[tuple[Any, int]]:
    """Yield each object with the line where it begins; raise ``BadText`` after those before the first mistake."""
    loader = _ItemLoader(source)
    try:
        loader.get_event()
        while loader.check_event(yaml.DocumentStartEvent):
            loader.get_event()
            yield from _document(loader)
            loader.get_event()
            loader.anchors = {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "unreadable"
        # PyYAML has a limit of its own since 6.0.4.
        said = _TOO_DEEP if "nesting depth" in what else f"not valid YAML: {what}"
        raise BadText(mark.line + 1 if mark else loader.line, said) from None
    except RecursionError:
        raise BadText(loader.line, _TOO_DEEP) from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadText(loader.line, f"not valid YAML: {' '.join(str(error).split())}") from None


def _document(loader: _ItemLoader) -> Iterator[tuple[Any, int]]:
    """Yield the contents of a document: a list's items, a sequence's elements, or the object; nothing if empty."""
    if loader.check_event(yaml.SequenceStartEvent):
        yield from _items(loader, "")
    elif loader.check_event(yaml.MappingStartEvent):
        yield from _mapping(loader)
    elif (value := loader.construct_document(loader.compose())) is not None:
        yield value, loader.line


def _mapping(loader: _ItemLoader) -> Iterator[tuple[Any, int]]:
    start: Any = loader.get_event()
    line = start.start_mark.line + 1
    pairs: list[tuple[Any, Any]] = []
    is_list = False
    while not loader.check_event(yaml.MappingEndEvent):
        key = loader.compose()
        if key.value == "items" and loader.check_event(yaml.SequenceStartEvent):
            is_list = True
            kinds = [str(value.value) for name, value in pairs if name.value == "kind"]
            yield from _items(loader, kinds[0].removesuffix("List") if kinds else "")
        else:
            pairs.append((key, loader.compose()))
    end: Any = loader.get_event()
    fields = loader.construct_document(yaml.MappingNode(_MAPPING, pairs, start.start_mark, end.end_mark))
    if not is_list:
        yield fields, line
    elif "kind" not in fields:
        # kubectl writes it after the items.
        raise BadText(line, "this list does not end with its kind: has the text been cut?")


def _items(loader: _ItemLoader, kind: str) -> Iterator[tuple[Any, int]]:
    """Yield the items of a sequence; those of a list of one kind do not name it themselves."""
    loader.get_event()
    while not loader.check_event(yaml.SequenceEndEvent):
        item = loader.construct_document(loader.compose())
        if kind and isinstance(item, dict):
            item.setdefault("kind", kind)
        yield item, loader.line
    loader.get_event()
