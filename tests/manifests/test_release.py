"""Releases: what the script refuses, the bill of materials, and Krew's manifest."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from taint_eviction import __version__

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci"


DIGEST = "sha256:" + "a" * 64
BASE = f"python:3.11-slim@{DIGEST}"


def run(*command: str, path: str = os.environ["PATH"], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's directory, with these variables."""
    env = {**os.environ, "PATH": path, **variables}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)


def bill(*packages: Path) -> Any:
    """Return the bill of materials."""
    done = run(sys.executable, str(CI / "sbom.py"), "requirements.lock", "1.2.3", "0", BASE, *map(str, packages))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stand_in(directory: Path, command: str, text: str) -> str:
    """Write a command, and return a PATH on which it comes first."""
    directory.mkdir(exist_ok=True)
    (directory / command).write_text(f"#!/bin/sh\n{text}\n")
    (directory / command).chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def without(command: str, directory: Path) -> str:
    """Return a PATH with the tools that scripts need, and without this command."""
    directory.mkdir()
    for tool in ("bash", "env", "mktemp", "rm", "tail", "sed", "cat"):
        found = shutil.which(tool)
        assert found
        (directory / tool).symlink_to(found)
    assert shutil.which(command, path=str(directory)) is None
    return str(directory)


def test_the_bill_lists_what_is_locked() -> None:
    """Each locked version is there once, with its hashes; the package that only builds is excluded."""
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    components = [each for each in bill()["components"] if each["purl"].startswith("pkg:pypi/")]
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


def test_the_bill_covers_the_base_image(tmp_path: Path) -> None:
    """It has the base image by its digest, and the packages that dpkg-query lists in it."""
    listed = tmp_path / "packages"
    listed.write_text("libc6 2.36-9 amd64\nzlib1g 1:1.2 amd64\n")
    document = bill(listed)
    [image] = [each for each in document["components"] if each["type"] == "container"]
    assert (image["name"], image["version"]) == ("python", "3.11-slim")
    assert image["hashes"] == [{"alg": "SHA-256", "content": DIGEST.removeprefix("sha256:")}]
    needs = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    assert needs[image["bom-ref"]] == [
        "pkg:deb/debian/libc6@2.36-9?arch=amd64",
        "pkg:deb/debian/zlib1g@1:1.2?arch=amd64",
    ]
    assert image["bom-ref"] in needs[document["metadata"]["component"]["bom-ref"]]


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
    done = run(str(CI / "release"), *arguments, PYTHON_DIGEST=DIGEST)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("digest", ["", "3.11-slim", "sha256:abc"])
def test_a_release_needs_the_digest_of_its_base_image(digest: str) -> None:
    """A tag names another image every week; a dry run needs the digest, too."""
    done = run(str(CI / "release"), "99.0.0", "--dry-run", PYTHON_DIGEST=digest)
    assert done.returncode == 2
    assert "PYTHON_DIGEST must be the digest of the base image" in done.stderr


@pytest.mark.parametrize("name", ["REGISTRY", "SITE", "RELEASE_URL"])
def test_a_release_needs_to_know_where_everything_will_be(name: str) -> None:
    """A release with a name that nobody can own is of no use."""
    known = {
        "REGISTRY": "registry.example.com",
        "SITE": "https://s.example.com",
        "RELEASE_URL": "https://r.example.com",
    }
    done = run(str(CI / "release"), "99.0.0", PYTHON_DIGEST=DIGEST, **{**known, name: ""})
    assert done.returncode == 2
    assert f"{name} is not set" in done.stderr


def test_a_release_fills_in_registry_and_pages(tmp_path: Path) -> None:
    """Image, links to the runbook and the chart's home name them; no name that nobody can own is left."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    files = [path for path in (tmp_path / "manifests").rglob("*.yaml") if not path.is_symlink()]
    done = run(str(CI / "names"), "registry.example.com/team", "https://s.example.com/t", *map(str, files))
    assert done.returncode == 0, done.stderr
    filled = {path.relative_to(tmp_path / "manifests").as_posix(): path.read_text() for path in files}
    assert not [name for name, text in filled.items() if re.search(r"registry\.invalid|https://site\.invalid/", text)]
    assert f"image: registry.example.com/team/taint-eviction:{__version__}" in filled["base/deployment.yaml"]
    assert "repository: registry.example.com/team/taint-eviction" in filled["chart/values.yaml"]
    assert yaml.safe_load(filled["chart/Chart.yaml"])["home"] == "https://s.example.com/t"
    rules = filled["components/monitoring/prometheus-rule.yaml"]
    assert "runbook_url: https://s.example.com/t/runbook.html#taintevictionnoleader" in rules


@pytest.mark.parametrize(("registry", "site"), [("", "https://s.example.com"), ("r.example.com", "s.example.com")])
def test_names_that_make_no_sense_are_refused(registry: str, site: str, tmp_path: Path) -> None:
    """Nothing is changed then."""
    (tmp_path / "file").write_text("registry.invalid")
    assert run(str(CI / "names"), registry, site, str(tmp_path / "file")).returncode != 0
    assert (tmp_path / "file").read_text() == "registry.invalid"


def test_names_of_others_are_nowhere() -> None:
    """In the repository, image and pages have names that nobody can own (RFC 2606)."""
    for path in (ROOT / "manifests").rglob("*.yaml"):
        for image in re.findall(r"(?:image|repository): (\S*taint-eviction\S*)", path.read_text()):
            assert image.startswith("registry.invalid/"), path


def test_known_vulnerabilities_stop_a_release(tmp_path: Path) -> None:
    """pip-audit finds one, and prints it."""
    path = stand_in(tmp_path / "bin", "pip-audit", """echo '{"dependencies": []}'; exit 1""")
    assert run(str(CI / "audit"), path=path).returncode == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 0", "no known vulnerability"),
        ("echo 'no route to pypi.org' >&2; exit 1", "NOT AUDITED: no route"),
        ("""echo '{"dependencies": [{"name": "kopf", "skip_reason": "not found"}]}'""", "NOT AUDITED: 1 of the"),
    ],
)
def test_an_audit_says_what_it_did(tmp_path: Path, text: str, said: str) -> None:
    """What was not looked at stops no release, and is not called free of vulnerabilities."""
    done = run(str(CI / "audit"), path=stand_in(tmp_path / "bin", "pip-audit", text))
    assert done.returncode == 0
    assert said in done.stdout
    assert ("no known" in done.stdout) == ("NOT AUDITED" not in done.stdout)


@pytest.mark.parametrize(("answer", "builds"), [("exit 1", False), ("exit 0", True)], ids=["without buildx", "with it"])
def test_docker_builds_the_image_only_with_buildx(tmp_path: Path, answer: str, builds: bool) -> None:
    """The builder of old knows neither an archive nor the time of files: a release would end there, half built."""
    [choice] = re.findall("^builder=.*$", (CI / "release").read_text(), re.MULTILINE)
    bash = shutil.which("bash")
    assert bash
    stand_in(tmp_path / "bin", "docker", f'[ "$1" = buildx ] && {answer}')
    done = run(bash, "-euo", "pipefail", "-c", f'{choice}; echo "$builder"', path=str(tmp_path / "bin"))
    assert done.stdout.strip() == (str(tmp_path / "bin" / "docker") if builds else ""), done.stderr


def test_without_its_tools_audit_and_signatures_say_so(tmp_path: Path) -> None:
    """Neither passes in silence."""
    path = without("cosign", tmp_path / "bin")
    assert "NOT AUDITED, there is no pip-audit" in run(str(CI / "audit"), path=path).stdout
    assert "NOT SIGNED, there is no cosign" in run(str(CI / "sign"), str(tmp_path), "1.2.3", path=path).stdout


def test_checksums_are_signed_and_the_image_is_attested(tmp_path: Path) -> None:
    """The signature covers every file by its checksum; the image has its bill of materials and its provenance."""
    path = stand_in(tmp_path / "bin", "cosign", f'echo "$@" >>{tmp_path}/calls')
    (tmp_path / "taint-eviction-1.2.3-image.tar").touch()
    assert run(str(CI / "sign"), str(tmp_path), "1.2.3", path=path, COSIGN_KEY="").returncode == 0
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert [(call[0], call[-1]) for call in calls] == [
        ("sign-blob", "SHA256SUMS"),
        ("attest-blob", "taint-eviction-1.2.3-image.tar"),
        ("attest-blob", "taint-eviction-1.2.3-image.tar"),
    ]
    assert [call[call.index("--type") + 1] for call in calls[1:]] == ["cyclonedx", "slsaprovenance1"]


def test_the_provenance_names_source_and_base_image() -> None:
    """Commit and digest say what the release was made of."""
    arguments = ("1.2.3", "c" * 40, BASE, "0", "registry=r", "site=s")
    predicate = json.loads(run(sys.executable, str(CI / "provenance.py"), *arguments).stdout)["buildDefinition"]
    assert predicate["externalParameters"] == {"version": "1.2.3", "registry": "r", "site": "s"}
    source, base = predicate["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "c" * 40}
    assert base == {"name": "python:3.11-slim", "digest": {"sha256": "a" * 64}}


def test_every_place_of_the_version_is_one_that_a_release_changes() -> None:
    """Outside of the changelog and the lock, this version stands only where the script looks for it."""
    places = r"(/taint-eviction:|, controller |, version |version: |appVersion: |VERSION=|__version__ = \")"
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


def test_the_package_installs_what_kubectl_looks_for() -> None:
    """The plugin and the executable that completes it, by their names on PATH."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name in ("kubectl-taint_eviction", "kubectl_complete-taint_eviction"):
        module, _, function = scripts[name].partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_the_plugin_pins_the_package_by_version_and_hash() -> None:
    """A name alone may be somebody else's package; pip compares the hash in the address."""
    pinned = "pipx install 'URL/taint_eviction-VERSION-py3-none-any.whl#sha256=WHEEL'"
    assert pinned in yaml.safe_load((CI / "krew.yaml").read_text())["spec"]["caveats"]
    assert pinned in (CI / "kubectl-taint_eviction").read_text()


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
    assert "pipx install 'URL/taint_eviction-" in done.stderr


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
