"""The records of pods have one writer."""

import ast
from collections.abc import Iterator
from pathlib import Path

from taint_eviction.core import pods
from taint_eviction.core.pods import PodRecord

# But for ``ref``, which never changes, and which other values have, too.
FIELDS = frozenset(PodRecord.__slots__) - {"ref"}
CONTROLLER = Path(pods.__file__).parents[1]


def written(source: str) -> Iterator[str]:
    """Yield what a module assigns that has the name of a field of a record, except on ``self``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node.attr in FIELDS:
            on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            yield from [] if on_self else [ast.unparse(node)]


def test_no_other_module_of_core_and_runtime_writes_records() -> None:
    """Every transition is in ``core/pods.py``."""
    files = [*CONTROLLER.glob("core/*.py"), *CONTROLLER.glob("runtime/*.py")]
    found = {file.name: list(written(file.read_text())) for file in files}
    assert found.pop("pods.py")
    assert {name: names for name, names in found.items() if names} == {}


def test_assignments_of_every_kind_are_found() -> None:
    """Alone, in a tuple, with an operator, with a type, in a loop, and deletions."""
    source = """
a.state = 1
a.turn, b = 1, 2
self.pods[0].turn += 1
a.pod: int = 1
for a.b, a.bound in x:
    del a.seen_at
"""
    assert sorted(written(source)) == ["a.bound", "a.pod", "a.seen_at", "a.state", "a.turn", "self.pods[0].turn"]
    assert list(written("self.state = a.state\nstate = a.turn\n")) == []
