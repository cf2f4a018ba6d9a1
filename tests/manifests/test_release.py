"""Releases: what the script refuses, the bill of materials, and Krew's manifest."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from taint_eviction import __version__

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def bill() -> Any:
    """Return the bill of materials."""
    done = run(sys.executable, str(CI / "sbom.py"), "requirements.lock", "1.2.3", "0")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_bill_lists_what_is_locked() -> None:
    """Each locked version is there once, with its hashes; the package that only builds is excluded."""
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    components = bill()["components"]
    assert {each["name"]: each["version"] for each in components} == pins
    assert [each["name"] for each in components if each["scope"] == "excluded"] == ["setuptools"]
    for each in components:
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["externalReferences"][0]["hashes"]


def test_the_bill_says_which_component_needs_which() -> None:
    """Every reference is to a component; the controller needs Kopf, and Kopf needs aiohttp."""
    document = bill()
    own = document["metadata"]["component"]["bom-ref"]
    needs = {each["ref"]: {ref.partition("@")[0] for ref in each["dependsOn"]} for each in document["dependencies"]}
    assert needs.keys() == {own, *(each["bom-ref"] for each in document["components"])}
    assert {"pkg:pypi/kopf", "pkg:pypi/kubernetes", "pkg:pypi/rich"} <= needs[own]
    [kopf] = [wanted for ref, wanted in needs.items() if ref.startswith("pkg:pypi/kopf@")]
    assert "pkg:pypi/aiohttp" in kopf


def test_equal_locks_make_equal_bills() -> None:
    """Neither chance nor the clock changes the bill."""
    assert bill() == bill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "usage"),
        (["v9.0.0", "--dry-run"], "usage"),
        (["9.0.0", "--dry"], "unknown flag"),
        ([__version__, "--dry-run"], "does not come after"),
        (["0.0.1", "--dry-run"], "does not come after"),
    ],
)
def test_a_release_that_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    """The script refuses it before it builds or changes anything."""
    done = run(str(CI / "release"), *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_every_place_of_the_version_is_one_that_a_release_changes() -> None:
    """Outside of the changelog and the lock, this version stands only where the script looks for it."""
    places = r"(taint-eviction:|, controller |version: |appVersion: |VERSION=|__version__ = \")"
    changed = places + re.escape(__version__)
    suspects = [ROOT / name for name in ("Dockerfile", "README.md", "pyproject.toml")]
    suspects += [path for path in (ROOT / "manifests").rglob("*") if path.suffix in {".yaml", ".md"}]
    suspects += (ROOT / "docs" / "install").glob("*.md")
    for path in suspects:
        for line in path.read_text().splitlines():
            if re.search(rf"(?<![\d.]){re.escape(__version__)}(?![\d.])", line):
                assert re.search(changed, line), f"{path}: {line}"


def test_what_the_doctor_prints_is_shown_with_this_version() -> None:
    """The example is what a reader sees after the installation."""
    assert f", controller {__version__}\n" in (ROOT / "docs/install/doctor.md").read_text()


def test_krew_installs_the_command_that_kubectl_finds() -> None:
    """The template is a manifest, once it is filled in, and names the file that is released."""
    [platform] = yaml.safe_load((CI / "krew.yaml").read_text())["spec"]["platforms"]
    assert platform["uri"] == "URL/kubectl-taint_eviction-VERSION.tar.gz"
    assert platform["bin"] == "kubectl-taint_eviction"
    assert os.access(CI / platform["bin"], os.X_OK)


def test_the_plugin_says_how_to_get_the_package() -> None:
    """The plugin does not find the command."""
    done = subprocess.run(
        ["/bin/sh", str(CI / "kubectl-taint_eviction")],
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "pipx install taint-eviction" in done.stderr


def upstream(directory: Path, e2e_test: str, doctor: str) -> subprocess.CompletedProcess[str]:
    """Run the script for Kubernetes' own specs, with stand-ins for both commands."""
    here = directory / "tests" / "e2e"
    for command, text in ((directory / ".venv/bin/taint-eviction", doctor), (directory / "bin/e2e.test", e2e_test)):
        command.parent.mkdir(parents=True)
        command.write_text(f"#!/bin/sh\n{text}\n")
        command.chmod(0o755)
    here.mkdir(parents=True)
    shutil.copy(ROOT / "tests/e2e/upstream", here)
    return subprocess.run(
        [str(here / "upstream")],
        env={"PATH": f"{directory / 'bin'}:{os.defpath}", "HOME": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


EXAMINED = "echo 'ok        versions             Kubernetes v1.36.2, controller 0.1.0'; echo 'ok        leader   one'; "
SWITCHED_OFF = EXAMINED + "echo 'ok        built-in controller  switched off'"
ACTIVE = EXAMINED + "echo 'wrong     built-in controller  active in a'; exit 1"


def test_kubernetes_own_specs_leave_a_log_with_the_version(tmp_path: Path) -> None:
    """The specs of the taint manager are chosen, and the log begins with the output of doctor."""
    done = upstream(tmp_path, 'echo "$@"; echo "Ran 7 of 7000 Specs"', SWITCHED_OFF)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "tests/e2e/results/kubernetes-v1.36.2.log").read_text()
    assert log.startswith("ok ")
    assert "--ginkgo.focus NoExecuteTaintManager" in log


@pytest.mark.parametrize(
    ("e2e_test", "doctor", "said"),
    [
        ('echo "Ran 7 of 7000 Specs"', ACTIVE, "built-in controller"),
        ('echo "Ran 0 of 7000 Specs"', SWITCHED_OFF, "no spec ran"),
        ('echo "Ran 7 of 7000 Specs"; exit 1', SWITCHED_OFF, ""),
    ],
    ids=["the built-in controller is on", "no spec fits", "a spec fails"],
)
def test_specs_that_prove_nothing_do_not_pass(tmp_path: Path, e2e_test: str, doctor: str, said: str) -> None:
    """The script exits with 1 if the built-in controller is on, if no spec ran, or if a spec failed."""
    done = upstream(tmp_path, e2e_test, doctor)
    assert done.returncode == 1
    assert said in done.stderr
