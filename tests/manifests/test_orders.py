"""What is applied after something else takes nothing away from it: in the orders in which the pages apply manifests.

``kubectl apply`` replaces objects of the same name, and of a Deployment all arguments of the container. So an overlay
that is applied over another one switches off what that one had switched on, without a word.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.manifests.test_kinds import BUILDS, MANIFESTS, needs_kubectl, render

pytestmark = needs_kubectl

ROOT = MANIFESTS.parent
# The overlays of which a page says that they are applied beside another one.
BESIDE = {"overlays/monitoring", "overlays/dry-run"}
INSTALLING = [build for build in BUILDS if build not in BESIDE and build != "overlays/static-pod/node"]

Cluster = dict[tuple[str, str, str], Any]


def applied(builds: Iterable[str]) -> Cluster:
    """Return the objects of a cluster in which these builds were applied one after the other."""
    cluster: Cluster = {}
    for build in builds:
        for document in render(build):
            metadata = document["metadata"]
            cluster[document["kind"], metadata.get("namespace", ""), metadata["name"]] = document
    return cluster


def flags(cluster: Cluster) -> dict[tuple[str, str, str], list[str]]:
    """Return the arguments of the controllers that evict, by their Deployment or DaemonSet."""
    return {
        name: document["spec"]["template"]["spec"]["containers"][0]["args"]
        for name, document in cluster.items()
        if name[0] in {"Deployment", "DaemonSet"} and not name[2].endswith("-dry-run")
    }


def commands(page: Path) -> list[str]:
    """Return the builds that a page applies, in its order."""
    return re.findall(r"kubectl apply [^\n|]*--kustomize manifests/([\w/-]+)", page.read_text())


PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if commands(page)]
# These install the controller, the others add something to it.
INSTALL = [page for page in PAGES if "install" in page.parts or page.stem in {"README", "quick-start", "switch-over"}]
ADD = [page for page in PAGES if page not in INSTALL]


@pytest.mark.parametrize("page", ADD, ids=lambda page: str(page.stem))
@pytest.mark.parametrize("installed", INSTALLING)
def test_a_page_that_adds_something_takes_nothing_away(installed: str, page: Path) -> None:
    """The controller keeps its flags, and every object of its overlay is as it was."""
    before, after = applied([installed]), applied([installed, *commands(page)])
    assert flags(after) == flags(before)
    assert {name: document for name, document in after.items() if name in before} == before


@pytest.mark.parametrize("page", INSTALL, ids=lambda page: str(page.stem))
def test_a_page_that_installs_ends_with_what_it_applies_last(page: Path) -> None:
    """Steps before, such as a dry run, are beside the controller that evicts."""
    builds = commands(page)
    assert flags(applied(builds)) == flags(applied(builds[-1:]))


@pytest.mark.parametrize("added", sorted(BESIDE))
@pytest.mark.parametrize("installed", INSTALLING)
def test_what_is_applied_beside_an_overlay_shares_no_object_with_it(installed: str, added: str) -> None:
    """So the order does not matter either."""
    assert not applied([installed]).keys() & applied([added]).keys()


def test_pages_of_both_kinds_are_found() -> None:
    """The page on alerts adds, and the start page installs."""
    assert "alerts" in {page.stem for page in ADD}
    assert "README" in {page.stem for page in INSTALL}
    assert {build for page in ADD for build in commands(page)} <= BESIDE


def test_an_upgrade_of_the_chart_keeps_the_values() -> None:
    """After `helm upgrade` with some values alone, Helm knows none of those that were set before."""
    text = "\n".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")))
    found = re.findall(r"helm upgrade[^`\n]*(?:`\]\([^)]*chart\.md#upgrade\))?", text)
    assert found
    assert [each for each in found if not re.search(r"--values |--reset-then-reuse-values|#upgrade\)", each)] == []
