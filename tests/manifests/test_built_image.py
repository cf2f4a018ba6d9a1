"""The image, built by its Dockerfile if a builder and a base image are present; nothing is pulled.

The tests use Buildah and Podman, which need no daemon. Docker builds the same Dockerfile.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taint_eviction import __version__

ROOT = Path(__file__).parents[2]
USER = "65532:65532"
MEGABYTE = 10**6
BUILD_SECONDS = 900
# The name has the ID of this process, because other builds use the same store.
IMAGE = f"localhost/taint-eviction:test-{os.getpid()}"
BASE_TAGS = [f"3.{minor}-slim" for minor in (11, 12, 13, 14)]


def buildah(*arguments: str, program: str = "buildah") -> str:
    """Run Buildah, or Podman, without the rights of a container runtime, and return what it prints."""
    done = subprocess.run(
        [program, *arguments],
        cwd=ROOT,
        env={**os.environ, "BUILDAH_ISOLATION": "chroot"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def present(image: str) -> bool:
    """Tell whether Buildah has an image already."""
    return not subprocess.run(
        ["buildah", "inspect", "--type", "image", image], capture_output=True, check=False, timeout=60
    ).returncode


@contextmanager
def built(base: str, image: str, program: str = "buildah") -> Iterator[None]:
    """Build the image as a release does, without what an earlier build has left, and remove it afterwards."""
    flags = ["--pull=false", "--no-cache", "--timestamp=0", f"--build-arg=PYTHON_TAG={base}", f"--tag={image}"]
    buildah("build", *flags, ".", program=program)
    try:
        yield
    finally:
        buildah("rmi", image)


def oci(image: str) -> dict[str, Any]:
    """Return what the image says of itself."""
    said: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", image))
    return said


@dataclass(frozen=True)
class Container:
    """A container's root and what the image says of how it is started."""

    root: Path
    environment: list[str]
    entrypoint: list[str]
    user: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start the image's command as its user, on a root that nobody can write."""
        read_only = (
            'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec chroot --userspec="$1" "$0" "${@:2}"'
        )
        started = ["env", "-i", *self.environment, *self.entrypoint, *arguments]
        return subprocess.run(
            ["unshare", "--mount", "bash", "-c", read_only, str(self.root), self.user, *started],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """Mount a container of an image, and yield its root."""
    name = buildah("from", "--pull-never", image)
    try:
        yield Path(buildah("mount", name))
    finally:
        buildah("rm", name)


def contents(root: Path) -> dict[str, tuple[int, str]]:
    """Return mode and digest, or target, of each file below a directory."""
    found = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            said = str(path.readlink())
        else:
            said = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, said)
    return found


def size(root: Path) -> int:
    """Add up what the files below a directory hold."""
    files = (path.lstat() for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return sum({(file.st_dev, file.st_ino): file.st_size for file in files}.values())


@pytest.fixture(scope="module", params=BASE_TAGS)
def base(request: pytest.FixtureRequest) -> str:
    """Return each base image that is present; skip if it is absent, or if there is no builder."""
    if shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("no builder: Buildah is not installed, or not run by root")
    tag: str = request.param
    if not present(f"docker.io/library/python:{tag}"):
        pytest.skip(f"no base image: buildah pull docker.io/library/python:{tag}")
    return tag


@pytest.fixture(scope="module")
def container(base: str) -> Iterator[Container]:
    """Build the image by its Dockerfile, as a release does, and mount it."""
    with built(base, IMAGE), mounted(IMAGE) as root:
        config = oci(IMAGE)["OCIv1"]["config"]
        yield Container(root, config["Env"], config["Entrypoint"], config["User"])


def test_the_image_prints_its_version_on_a_read_only_root(container: Container) -> None:
    """The command runs as user 65532, with the image's own environment and entry point."""
    assert container.user == USER
    done = container.run("version")
    assert (done.returncode, done.stdout) == (0, f"taint-eviction {__version__}\n"), done.stderr


@pytest.mark.parametrize("verb", [[], ["run"], ["doctor"], ["plan"], ["status"], ["explain"], ["pause"], ["breaker"]])
def test_every_verb_gives_its_help(container: Container, verb: list[str]) -> None:
    """Each verb is imported from what the image holds."""
    done = container.run(*verb, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: taint-eviction" in done.stdout


def test_run_outside_a_cluster_exits_2(container: Container) -> None:
    """The controller says that no API server is known."""
    done = container.run("run")
    assert done.returncode == 2
    assert "no API server is known" in done.stderr


def test_everything_that_is_imported_is_there(container: Container) -> None:
    """Each module of controller, verbs and Kopf can be imported, and so can the models of metadata that Kopf knows."""
    script = (
        "import importlib, pkgutil, taint_eviction, taint_eviction_ctl, kopf\n"
        "import kubernetes.aio.client, kubernetes.aio.config\n"
        "for package in (taint_eviction, taint_eviction_ctl):\n"
        "    for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):\n"
        "        module.name.endswith('__main__') or importlib.import_module(module.name)\n"
        "from kopf._cogs.helpers.thirdparty import V1ObjectMetaSync\n"
        "assert V1ObjectMetaSync.__module__ == 'kubernetes.client.models.v1_object_meta'\n"
    )
    python = Container(container.root, container.environment, ["python"], container.user)
    done = python.run("-c", script)
    assert done.returncode == 0, done.stderr


def test_nothing_is_compiled_at_a_start(container: Container) -> None:
    """The standard library that is imported has bytecode in the image, too."""
    script = (
        "import sys, taint_eviction.cli.run, taint_eviction.wiring\n"
        "from pathlib import Path\n"
        "loaded = {name: getattr(module, '__cached__', None) for name, module in sys.modules.items()}\n"
        "print(*(name for name, path in loaded.items() if path and not Path(path).exists()))\n"
    )
    done = Container(container.root, container.environment, ["python"], container.user).run("-c", script)
    assert done.stdout.split() == [], done.stderr


def test_the_image_is_at_most_100_megabytes_above_its_base(container: Container, base: str) -> None:
    """The image adds the controller and what it imports to the base."""
    with mounted(f"docker.io/library/python:{base}") as root:
        added = size(container.root) - size(root)
    assert added < 100 * MEGABYTE, f"{added / MEGABYTE:.0f} MB above {base}"


@pytest.mark.usefixtures("container")
def test_two_builds_have_one_digest(base: str) -> None:
    """With one time for all files, layers and image are the same bytes."""
    again = f"{IMAGE}-again"
    with built(base, again):
        first, second = oci(IMAGE), oci(again)
    assert first["OCIv1"]["rootfs"] == second["OCIv1"]["rootfs"]
    assert first["FromImageDigest"] == second["FromImageDigest"]


@pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed")
def test_podman_builds_the_same_files(container: Container, base: str) -> None:
    """Podman writes more layers, so that the digest is another; the files and the settings are those of Buildah."""
    image = f"{IMAGE}-podman"
    with built(base, image, program="podman"), mounted(image) as root:
        assert contents(root) == contents(container.root)
        assert oci(image)["OCIv1"]["config"] == oci(IMAGE)["OCIv1"]["config"]
