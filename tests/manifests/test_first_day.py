"""The commands that install the controller work in the order of the pages, from a shell that has just run the demo."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.manifests.test_kinds import MANIFESTS, needs_kubectl

pytestmark = needs_kubectl

ROOT = MANIFESTS.parent
IMAGE = "registry.example.com/taint-eviction:0.2.0"

# What runs elsewhere is written down, and what `kubectl apply` would send is built by kubectl itself.
_ELSEWHERE = '#!/bin/sh\necho "${0##*/} $*" >>"$DONE"\n'
_KUBECTL = (
    _ELSEWHERE + 'for last; do :; done\n[ "$1" != apply ] || "$KUBECTL" kustomize "$last" >>"$DONE.yaml" 2>/dev/null\n'
)


def blocks(page: str, heading: str) -> list[str]:
    """Return the shell commands under a heading of a page, a string a block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = re.split(r"^#+ ", text.split(f" {heading}\n")[1], flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def perform(commands: list[str], clone: Path) -> list[str]:
    """Run commands in a clone that has the manifests and the demo's environment; return those that went elsewhere."""
    shutil.copytree(MANIFESTS, clone / "manifests")
    for program, script in {
        "tools/docker": _ELSEWHERE,
        "tools/kubectl": _KUBECTL,
        ".venv/bin/taint-eviction": _ELSEWHERE,
    }.items():
        path = clone / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
    environment = {
        "PATH": f"{clone / 'tools'}:{os.environ['PATH']}",
        "DONE": str(clone / "done"),
        "KUBECTL": str(shutil.which("kubectl")),
    }
    subprocess.run(["bash", "-euc", "".join(commands)], cwd=clone, env=environment, check=True)
    return (clone / "done").read_text().splitlines()


def images(clone: Path) -> set[str]:
    """Return the images of the containers that were applied."""
    applied = yaml.safe_load_all((clone / "done.yaml").read_text())
    pods = [one["spec"]["template"]["spec"] for one in applied if one and one["kind"] == "Deployment"]
    return {container["image"] for pod in pods for container in pod["containers"]}


def test_the_front_page_installs_from_the_shell_of_the_demo(tmp_path: Path) -> None:
    """Both overlays name the image that was built, and the demo's command is on the PATH."""
    assert perform(blocks("README.md", "Install it"), tmp_path) == [
        f"docker build --tag {IMAGE} .",
        f"docker push {IMAGE}",
        "kubectl apply --server-side --kustomize manifests/overlays/dry-run",
        "kubectl -n kube-system rollout status deployment/taint-eviction-controller-dry-run",
        "taint-eviction compare",
        "kubectl apply --server-side --kustomize manifests/overlays/guarded",
        "kubectl -n kube-system rollout status deployment/taint-eviction-controller",
        "taint-eviction doctor",
    ]
    assert images(tmp_path) == {IMAGE}


@pytest.mark.parametrize("file", ["base/deployment.yaml", "overlays/static-pod/node/pod.yaml"])
def test_the_install_page_names_the_image_wherever_a_manifest_has_one(file: str, tmp_path: Path) -> None:
    """The static pod has a file of its own."""
    perform(
        [
            *blocks("docs/install/index.md", "Build the image"),
            *blocks("docs/install/index.md", "Name it in the manifests"),
        ],
        tmp_path,
    )
    assert f"image: {IMAGE}\n" in (tmp_path / "manifests" / file).read_text()


def test_no_manifest_with_an_image_is_forgotten() -> None:
    """Each file that names an image is named by the page that says how to set it."""
    [command] = blocks("docs/install/index.md", "Name it in the manifests")
    named = {
        str(path.relative_to(ROOT)) for path in MANIFESTS.glob("[bco]*/**/*.yaml") if " image: " in path.read_text()
    }
    assert {file for file in named if "/chart/" not in file} == set(re.findall(r"manifests/\S+\.yaml", command))
