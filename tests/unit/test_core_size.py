"""No class of the core is larger than a reader can remember."""

import ast
from pathlib import Path

CORE = Path(__file__).parents[2] / "operator" / "taint_eviction" / "core"
MAX_METHODS, MAX_LINES = 20, 300


def test_no_class_of_the_core_has_more_than_20_methods_or_300_lines() -> None:
    """A larger class has more than one job."""
    classes = [
        (f"{file.name}:{found.name}", found)
        for file in sorted(CORE.rglob("*.py"))
        for found in ast.walk(ast.parse(file.read_text()))
        if isinstance(found, ast.ClassDef)
    ]
    assert classes
    sizes = {
        name: (
            sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in found.body),
            (found.end_lineno or 0) - found.lineno + 1,
        )
        for name, found in classes
    }
    assert {
        name: (methods, lines) for name, (methods, lines) in sizes.items() if methods > MAX_METHODS or lines > MAX_LINES
    } == {}
