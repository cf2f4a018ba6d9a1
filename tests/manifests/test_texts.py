"""Every command and flag of ours in the pages, and in the manifests' comments, exists."""

import re
from functools import cache
from pathlib import Path

import click
import pytest
import yaml
from tests.manifests.test_kinds import MANIFESTS, kubernetes_problems

from taint_eviction.cli import cli

README = MANIFESTS.parent / "README.md"
DOCS = sorted((MANIFESTS.parent / "docs").glob("**/*.md"))
TEXTS = sorted([README, *DOCS, *MANIFESTS.glob("**/*.md"), *MANIFESTS.glob("**/*.yaml")])

# Flags of other programs that are named outside their command lines.
FOREIGN = {
    "--controllers": "kube-controller-manager",
    "--disable-eviction": "kubectl drain",
    "--event-ttl": "kube-apiserver",
    "--force-conflicts": "kubectl apply",
    "--kube-api-burst": "kube-controller-manager",
    "--kube-api-qps": "kube-controller-manager",
    "--no-cache": "buildah build",
    "--previous": "kubectl logs",
    "--reuse-values": "helm",
    "--set": "helm",
    "--timestamp": "buildah build",
    "--validity-period": "kubeadm kubeconfig",
    "--yes": "kops update cluster",
}

_OTHERS = re.compile(
    r"(?<![\w./-])(?:kubectl|docker|helm|kubeadm|cosign|sha256sum|python3|aws|az|KUBECONFIG=|PYTHONPATH=)[^`]*"
)
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# Not the namespace of that name. Of several commands in a sentence, each ends where ", then" begins.
_INVOKED = re.compile(r"(?<!-n )(?<!namespace/)\btaint-eviction((?: [a-z]+(?:-[a-z]+)*)+)((?:(?!, then )[^`|\n#])*)")


@cache
def command(words: str) -> click.Command | None:
    """Return our command that a line begins with ("breaker reset"); None if there is none."""
    found: click.Command | None = cli
    for word in words.split():
        if isinstance(found, click.Group):
            found = found.get_command(click.Context(found), word)
    return found


def flags_of(found: click.Command) -> set[str]:
    """Return the flags that a command has."""
    parameters = found.get_params(click.Context(found))
    return {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}


@cache
def all_flags() -> frozenset[str]:
    """Return the flags of all our commands."""
    names = cli.list_commands(click.Context(cli))
    commands = [found for name in names if (found := command(name)) is not None]
    commands += [under for group in commands if isinstance(group, click.Group) for under in group.commands.values()]
    return frozenset(flag for found in commands for flag in flags_of(found))


def lines(path: Path) -> list[str]:
    """Return a text's lines; continued lines are joined, and comments lose their mark."""
    text = re.sub(r"\\\n\s*", "", path.read_text())
    return [re.sub(r"^\s*#\s*", "", line) if path.suffix == ".yaml" else line for line in text.splitlines()]


def invocations(path: Path) -> list[tuple[str, str]]:
    """Return every command line of ours in a text: its words, and what follows them."""
    return [(words.strip(), rest) for line in lines(path) for words, rest in _INVOKED.findall(line)]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(README.parent)))
def test_commands_that_are_written_about_exist(path: Path) -> None:
    """Each is a command of ours, and has all flags that the text gives it."""
    for words, rest in invocations(path):
        found = command(words)
        assert found is not None, words
        assert set(_FLAG.findall(rest)) <= flags_of(found), f"{words}{rest}"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(README.parent)))
def test_flags_that_are_written_about_exist(path: Path) -> None:
    """Each flag outside other programs' command lines is one of ours, or known to be somebody else's."""
    named = {flag for line in lines(path) for flag in _FLAG.findall(_OTHERS.sub("", line))}
    assert named <= all_flags() | FOREIGN.keys() | {"--help"}


def test_the_role_to_copy_fits_its_kind() -> None:
    """No field of the Role for people is misspelt, and none is absent."""
    [role] = re.findall(
        r"^```yaml\n(apiVersion: rbac.*?)^```$", (README.parent / "docs/security.md").read_text(), re.M | re.S
    )
    assert kubernetes_problems(yaml.safe_load(role)) == []
