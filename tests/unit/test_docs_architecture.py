"""Pages name what is there: files, functions, links, layers."""

import ast
import re
import sys
import tomllib
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import pytest

import taint_eviction
from taint_eviction_lab import replay

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "operator"
PAGES = sorted((ROOT / "docs").glob("**/*.md"))
LINKING = [*sorted(ROOT.glob("*.md")), *PAGES, *sorted((ROOT / "tests").glob("*/*.md"))]
JOURNEY = ROOT / "docs/architecture/journey.md"

_STEP = re.compile(r"^### \d+\. `([\w./]+\.py)`$", re.MULTILINE)
_FUNCTION = re.compile(r"`([\w.]+)\(\)`")
_CLASS = re.compile(r"`([A-Z][a-z]\w*)`")
_FILE = re.compile(r"`([\w./-]+\.py)`")
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def steps() -> dict[str, list[str]]:
    """Return the functions that the journey names, by the file under whose heading they are."""
    _, *parts = _STEP.split(JOURNEY.read_text())
    return {path: _FUNCTION.findall(text) for path, text in zip(parts[::2], parts[1::2], strict=True)}


@cache
def functions(path: str) -> frozenset[str]:
    """Return the functions of a source file, methods as ``Class.method``."""
    tree = ast.parse((SOURCES / path).read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            methods = (node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{owner.name}.{method.name}" for method in methods}
    return frozenset(found)


@cache
def classes() -> frozenset[str]:
    """Return the names of all classes of the source tree."""
    trees = (ast.parse(path.read_text()) for path in SOURCES.glob("**/*.py"))
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


@pytest.mark.parametrize("path", steps())
def test_each_step_of_the_journey_names_functions_of_its_file(path: str) -> None:
    """A step names at least one function, and each is in the file of its heading."""
    assert steps()[path]
    assert set(steps()[path]) <= functions(path)


def test_every_function_of_the_journey_belongs_to_a_step() -> None:
    """None is named before the first heading, where nobody could tell its file."""
    named = [name for names in steps().values() for name in names]
    assert sorted(_FUNCTION.findall(JOURNEY.read_text())) == sorted(named)


def test_classes_that_the_journey_names_exist() -> None:
    """Every capitalized name is that of a class."""
    named = set(_CLASS.findall(JOURNEY.read_text()))
    assert named
    assert named <= classes()


def test_the_journey_visits_each_file_once() -> None:
    """No file has two headings."""
    assert steps()
    assert len(_STEP.findall(JOURNEY.read_text())) == len(steps())


_STORY = """
about: The pod of the journey.
given:
  nodes: [node-1]
timeline:
  - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 20, create: {name: db-0, namespace: shop, nodeName: node-1, tolerations: [maintenance for 30]}}
expect:
  shop/db-0: {evicted: 50}
"""
_ROOMS = ("core", "runtime", "kube")
# What else a replay visits: what builds the controller, learns the time at its start, counts for a metric, cuts texts.
_BESIDE = {
    *("runtime/assembly.py", "runtime/time_votes.py", "runtime/lasting_failure.py"),
    *("core/status.py", "core/text.py"),
}


def test_the_journey_names_every_file_that_a_pod_visits(tmp_path: Path) -> None:
    """A trace of a replay shows no other, apart from what builds and starts the controller."""
    story = tmp_path / "story.yaml"
    story.write_text(_STORY)
    package, visited = Path(taint_eviction.__file__).parent, set[str]()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        if frame.f_code.co_flags & CO_OPTIMIZED:  # A function: what is imported is no visit.
            visited.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = replay(story)
    finally:
        sys.setprofile(before)
    assert result.broken == ()
    files = {str(path.relative_to(package)) for path in map(Path, visited) if path.is_relative_to(package)}
    visits = {path for path in files if path.startswith(_ROOMS)}
    named = {path.removeprefix("taint_eviction/") for path in _FILE.findall(JOURNEY.read_text())}
    assert visits - named <= _BESIDE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_pages_name_exist(page: Path) -> None:
    """Every source file is there, by its path below the source root."""
    assert [path for path in _FILE.findall(page.read_text()) if not (SOURCES / path).is_file()] == []


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    """Every link that stays in the repository leads to a file or a directory."""
    links = [link for link in _LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_layers_are_those_that_are_checked() -> None:
    """The list of layers is the contract of import-linter."""
    page = (ROOT / "docs/architecture/README.md").read_text()
    shown = re.findall(r"<!-- layers -->\n```\n(.*?)```", page, re.DOTALL)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [floors] = [contract for contract in contracts if "taint_eviction.core" in contract.get("layers", ())]
    assert [line.replace("taint_eviction.", "") for line in floors["layers"]] == shown[0].splitlines()


def test_every_room_is_described() -> None:
    """The table of rooms has a line for each room of the layers."""
    page = (ROOT / "docs/architecture/README.md").read_text()
    [shown] = re.findall(r"<!-- layers -->\n```\n(.*?)```", page, re.DOTALL)
    described = re.findall(r"^\| `(\w+)` \|", page.split("\n## Layers of ")[1], re.MULTILINE)
    assert described == re.findall(r"\w+", shown)
