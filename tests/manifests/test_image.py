"""The image, without a container engine: the Dockerfile's steps are followed to the letter in a directory of its own.

The tests follow the stage that builds. Of the stage that runs they only read the instructions.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from taint_eviction import __version__

ROOT = Path(__file__).parents[2]
PREFIX = "/opt/taint-eviction"

# Bounds a step that hangs.
STEP_SECONDS = 600


@dataclass(frozen=True)
class BuildStep:
    """An instruction of a Dockerfile with the rest of its line."""

    instruction: str
    rest: str


def stages() -> list[list[BuildStep]]:
    """Read the Dockerfile: what stands before the first FROM, then each stage."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[BuildStep]] = [[]]
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            found.append([])
        found[-1].append(BuildStep(instruction, rest.strip()))
    return found


def steps(stage: int, instruction: str) -> list[str]:
    """Return what a stage says with one instruction."""
    return [step.rest for step in stages()[stage] if step.instruction == instruction]


def locked() -> dict[str, str]:
    """Return the versions in requirements.lock by the normalized names of the distributions."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [re.fullmatch(r"([a-z0-9-]+)==(\S+) \\", line) for line in lines if re.match(r"[^ #]", line)]
    assert all(pins)
    return {pin[1]: pin[2] for pin in pins if pin}


def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


# ---- what is written


def test_the_lock_pins_every_dependency_by_hash_and_names_no_place() -> None:
    """Each version has hashes; the lock does not say where packages come from."""
    text = (ROOT / "requirements.lock").read_text()
    for block in re.split(r"\n(?=[a-z])", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted", re.sub(r"^#.*$", "", text, flags=re.MULTILINE))
    assert "://" not in text


def test_the_lock_fits_the_project() -> None:
    """The lock has what pyproject.toml asks for, in a version that it allows; if not, make a new lock.

    The command is in the lock's head.
    """
    wanted = map(Requirement, [*project()["project"]["dependencies"], *project()["build-system"]["requires"]])
    for requirement in wanted:
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert name in locked()
        assert requirement.specifier.contains(locked()[name]), requirement


def test_both_stages_have_the_same_base_by_tag_or_by_digest() -> None:
    """One build argument pins both, and no registry is named."""
    bases = [
        step.rest.removesuffix(" AS build") for stage in stages()[1:] for step in stage if step.instruction == "FROM"
    ]
    assert set(bases) == {"python:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}"}
    assert steps(0, "ARG") == ["PYTHON_TAG=3.11-slim", "PYTHON_DIGEST="]


def test_the_image_runs_as_the_user_that_the_manifests_name() -> None:
    """The user is a number that the node does not use: the kubelet can tell that it is not root."""
    [user] = steps(2, "USER")
    deployment = yaml.safe_load((ROOT / "manifests/base/deployment.yaml").read_text())
    security = deployment["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert security["runAsUser"] >= 10000


def test_no_shell_stands_between_the_kubelet_and_the_process() -> None:
    """The entry point is a command of the project in exec form, so that SIGTERM reaches the process."""
    [entrypoint] = steps(2, "ENTRYPOINT")
    [command] = json.loads(entrypoint)
    assert command in project()["project"]["scripts"]
    [arguments] = steps(2, "CMD")
    assert json.loads(arguments) == ["run"]
    assert [value for value in " ".join(steps(2, "ENV")).split() if value.startswith("PATH=" + PREFIX)]


def test_the_label_says_the_version() -> None:
    """The default version of the image is the version of the package."""
    assert f"VERSION={__version__}" in steps(2, "ARG")


def test_the_build_context_is_what_is_copied() -> None:
    """.dockerignore excludes everything but what the Dockerfile copies."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert patterns[0] == "*"
    let_in = {pattern[1:] for pattern in patterns if pattern.startswith("!")}
    assert let_in == {source for line in steps(1, "COPY") for source in line.split()[:-1]}


def test_a_build_pulls_nothing_but_its_base() -> None:
    """A line ``# syntax=`` makes Docker ask Docker Hub for a frontend, even if the base is there or in a mirror."""
    assert re.search(r"^# *(syntax|escape|check) *=", (ROOT / "Dockerfile").read_text(), re.MULTILINE) is None


# ---- what it does


def run(command: str, directory: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell, as a RUN step does, in an environment that has nothing of ours."""
    environment = {"PATH": path, "HOME": str(Path.home()), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # The host decides how packages are reached: by its mirrors, certificates and proxies.
    environment |= {
        name: value for name, value in os.environ.items() if re.match(r"pip_|https?_proxy|no_proxy|ssl_", name, re.I)
    }
    return subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=STEP_SECONDS,
    )


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Follow the build stage, once for all processes that run tests; return what stands for / in it.

    Skips where no package index can be reached.
    """
    in_one_process = os.environ.get("PYTEST_XDIST_WORKER") is None
    root = tmp_path_factory.getbasetemp() / ("image" if in_one_process else "../image")
    root.mkdir(exist_ok=True)
    root, done = root.resolve(), root / "done"
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            done.write_text(build(root))
    if reason := done.read_text():
        pytest.skip(f"no package index can be reached: {reason}")
    return root


def build(root: Path) -> str:
    """Follow the build stage with ``root`` for /; return "", or what says that no package index can be reached."""
    source = root / "src"
    source.mkdir()
    # The base image: a Python with pip, first in PATH.
    subprocess.run([sys.executable, "-m", "venv", root / "base"], check=True, timeout=STEP_SECONDS)
    path = f"{root / 'base' / 'bin'}:{os.defpath}"
    for step in stages()[1]:
        if step.instruction == "COPY":
            copy(step.rest.split(), source)
        elif step.instruction == "RUN":
            done = run(step.rest.replace(PREFIX, str(root) + PREFIX), source, path)
            if done.returncode and not index_can_be_reached(root, path):
                return done.stderr.strip().splitlines()[-1]
            assert done.returncode == 0, f"{step.rest}\n{done.stdout}{done.stderr}"
        else:
            assert step.instruction in {"FROM", "ENV", "WORKDIR"}, step
    return ""


def index_can_be_reached(root: Path, path: str) -> bool:
    """Tell whether a single package can be downloaded; asked only after a step has failed."""
    name, version = next(iter(locked().items()))
    reach = run(f"pip download --no-cache-dir --no-deps --dest {root / 'reach'} {name}=={version}", root, path)
    return reach.returncode == 0


def copy(names: list[str], source: Path) -> None:
    """Copy from the project as COPY does, without what .dockerignore shuts out."""
    *wanted, target = names
    for name in wanted:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, source / target)


def packages(image: Path) -> Path:
    """Return where the packages are."""
    [found] = (image / PREFIX.strip("/") / "lib").glob("python3.*/site-packages")
    return found


def test_the_installed_command_works(image: Path) -> None:
    """The command prints its version and its help with nothing else of ours in PATH."""
    command = image / PREFIX.strip("/") / "bin" / "taint-eviction"
    done = run("taint-eviction version && taint-eviction run --help", image, f"{command.parent}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"taint-eviction {__version__}\n")


def test_what_is_installed_is_what_is_locked(image: Path) -> None:
    """Every locked version and the project itself are installed; pip and what built the project are gone."""
    names = [path.name.removesuffix(".dist-info").rpartition("-") for path in packages(image).glob("*.dist-info")]
    found = {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in names}
    assert found == {name: version for name, version in locked().items() if name != "setuptools"} | {
        "taint-eviction": __version__
    }
    assert not [path for path in packages(image).iterdir() if path.name in {"pip", "setuptools", "wheel"}]


def test_everything_is_compiled_and_never_compared_with_its_source(image: Path) -> None:
    """The bytecode is marked unchecked, since nothing can write it later on a read-only root."""
    for module in packages(image).rglob("*.py"):
        [compiled] = (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc")
        assert compiled.read_bytes()[4:8] == (0b01).to_bytes(4, "little"), module


def test_the_image_holds_the_controller_and_the_verbs(image: Path) -> None:
    """Neither the laboratory nor the fake API server is in it."""
    ours = {path.name for path in packages(image).iterdir()} & {path.name for path in (ROOT / "operator").iterdir()}
    assert ours == {"taint_eviction", "taint_eviction_ctl"}


@pytest.mark.parametrize("verb", ["demo", "replay"])
def test_a_verb_of_the_laboratory_says_how_to_get_it(image: Path, verb: str) -> None:
    """In the image the verb exits with 2 and says how to install it from the repository; `--help` omits it."""
    command = image / PREFIX.strip("/") / "bin" / "taint-eviction"
    done = run(f"{command} {verb} story.yaml --html page.html", image, "/usr/bin:/bin")
    assert done.returncode == 2
    assert "`pip install .`" in done.stderr
    listed = run(f"{command} --help", image, "/usr/bin:/bin")
    assert listed.returncode == 0, listed.stderr
    assert f"\n  {verb} " not in listed.stdout


def test_plan_needs_nothing_of_the_laboratory(image: Path) -> None:
    """The image alone can plan from a file."""
    command = image / PREFIX.strip("/") / "bin" / "taint-eviction"
    shop = ROOT / "tests" / "planning" / "data" / "shop.json"
    done = run(f"{command} plan {shop} --taint '*=x:NoExecute'", image, "/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert "shop/" in done.stdout
