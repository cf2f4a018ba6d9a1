"""Mutation testing of the brain: ``python -m tests.simulation.mutate_core [--sample N] [FILE…]``.

Changes one comparison, operator, constant, or condition of ``core`` at a time, in a copy of the tree, and runs the
tests of the brain; a mutant that no test notices survives, and is printed with its place. Only what decides is mutated,
no docstrings, annotations or dataclass fields.
"""

import ast
import copy
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent.parent
CORE = Path("operator/taint_eviction/core")
TESTS = ["tests/unit", "-k", "core", "tests/property", "tests/simulation/test_simulation_catalogue.py"]
_LONGEST_SECONDS = 180
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}


def changes(node: ast.AST) -> Iterator[str]:
    """Change ``node`` in place in each way that there is, one after the other; yield what was done."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in _COMPARISONS:
            other = _COMPARISONS[type(op)]
            node.ops[0] = other()
            yield f"{type(op).__name__} → {other.__name__}"
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{type(op).__name__} → {type(node.op).__name__}"
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            node.op = _OPERATORS[type(op)]()
            yield f"{type(op).__name__} → {type(node.op).__name__}"
        case ast.Constant(value=bool(value)):
            node.value = not value
            yield f"{value} → {not value}"
        case ast.Constant(value=int(value) | float(value)):
            node.value = value + 1
            yield f"{value} → {value + 1}"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), operand)
            yield "without not"
        case ast.If(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
            yield "if → if not"
        case ast.Expr(value=ast.Call() as call):
            node.value = ast.Constant(None)
            yield f"without {ast.unparse(call)[:60]}"


def mutants(file: Path) -> Iterator[tuple[str, str]]:
    """Go through the mutants of a file: where and what, and the whole source."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    bodies = [function for function in ast.walk(tree) if isinstance(function, ast.FunctionDef)]
    places = {id(node) for function in bodies for statement in function.body for node in ast.walk(statement)}
    numbers = [number for number, node in enumerate(ast.walk(tree)) if id(node) in places]
    for number in numbers:
        mutant = copy.deepcopy(tree)
        node = next(node for at, node in enumerate(ast.walk(mutant)) if at == number)
        for what in changes(node):
            yield f"{file.name}:{getattr(node, 'lineno', 0)} {what}", ast.unparse(ast.fix_missing_locations(mutant))


def survives(file: Path, source: str, tree: Path) -> bool:
    """Run the tests on a mutant in a copy of the project; tell whether none of them fails."""
    place = tree / CORE / file.name
    before = place.read_text(encoding="utf-8")
    place.write_text(source, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tree / "operator"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=_LONGEST_SECONDS, check=False
        )
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        place.write_text(before, encoding="utf-8")


@click.command()
@click.argument("files", nargs=-1)
@click.option("--sample", type=int, help="So many mutants, spread by chance, the same each time.")
@click.option("--jobs", type=int, default=multiprocessing.cpu_count(), show_default=True)
def main(files: tuple[str, ...], sample: int | None, jobs: int) -> None:
    """Mutate the brain, and say what survives."""
    paths = [ROOT / CORE / name for name in files] or sorted((ROOT / CORE).glob("*.py"))
    work = [(file, where, source) for file in paths for where, source in mutants(file)]
    if sample is not None:
        work = random.Random(0).sample(work, min(sample, len(work)))
    trees = [Path(tempfile.mkdtemp()) / "tree" for _ in range(jobs)]
    for tree in trees:
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"))
    survivors: list[str] = []

    def one_after_the_other(share: int) -> None:
        for file, where, source in work[share::jobs]:
            if survives(file, source, trees[share]):
                survivors.append(where)
                click.echo(f"survived: {where}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one_after_the_other, range(jobs)))
    click.echo(f"{len(work)} mutants, {len(work) - len(survivors)} killed")


if __name__ == "__main__":
    main()
