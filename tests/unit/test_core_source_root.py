"""The source root ``operator/`` must never shadow the standard library's module of that name."""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Imports from the current directory, as ``python -m`` does, and ignores what the start-up has imported.
WHICH_OPERATOR = (
    "import sys; sys.path.insert(0, ''); sys.modules.pop('operator', None);"
    "import operator; print(operator.__file__); operator.itemgetter"
)


def which_operator(directory: Path) -> subprocess.CompletedProcess[str]:
    """Start Python in a directory, and return which module it imports as ``operator``."""
    return subprocess.run(
        [sys.executable, "-c", WHICH_OPERATOR], cwd=directory, capture_output=True, text=True, check=False
    )


def test_the_source_root_is_no_package() -> None:
    """``operator/`` has no ``__init__.py`` and no other module of its own."""
    assert (ROOT / "operator").is_dir()
    assert list((ROOT / "operator").glob("*.py")) == []


def test_the_standard_librarys_operator_is_found_from_the_project_root() -> None:
    """Python started in the project root imports its own ``operator``."""
    answer = which_operator(ROOT)
    assert answer.returncode == 0, answer.stderr
    assert Path(answer.stdout.strip()).parent == Path(sysconfig.get_path("stdlib"))


def test_a_package_named_operator_shadows_the_standard_library(tmp_path: Path) -> None:
    """Therefore the test above can fail."""
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "__init__.py").touch()
    answer = which_operator(tmp_path)
    assert answer.returncode != 0
