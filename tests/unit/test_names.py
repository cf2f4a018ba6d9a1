"""A class name stands for one thing, in the whole project."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bearers(*roots: str) -> dict[str, list[str]]:
    """Return where the classes of each name are defined at the top of a module."""
    found: dict[str, list[str]] = defaultdict(list)
    for root in roots:
        for file in sorted((ROOT / root).rglob("*.py")):
            for statement in ast.parse(file.read_text()).body:
                if isinstance(statement, ast.ClassDef):
                    found[statement.name].append(f"{file.relative_to(ROOT)}:{statement.lineno}")
    return found


@pytest.mark.parametrize("roots", [("tests",), ("operator", "tests")], ids="+".join)
def test_no_class_name_stands_twice(roots: tuple[str, ...]) -> None:
    """Whoever searches for a name finds one class."""
    assert {name: places for name, places in bearers(*roots).items() if len(places) > 1} == {}
