"""Which labels of pods a plan keeps in memory: the user who creates a pod decides how many it has."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stage.client import ClientStage, client_stage
from tests.stage.objects import add_pod

from taint_eviction.core.objects import NamespacedName
from taint_eviction_ctl.planning import budgets
from taint_eviction_ctl.planning.cluster import read_cluster, read_namespaces


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """Yield a cluster that has a pod with three labels, and a budget that selects it by one of them."""
    async with client_stage(tmp_path) as made:
        add_pod(made.server, "web", "n1", labels={"app": "web", "tier": "front", "other": "x"})
        budget = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}}
        made.server.create("poddisruptionbudgets", budget)
        yield made


async def test_only_labels_that_a_budget_a_rule_or_a_change_names_are_kept(at: ClientStage) -> None:
    """The other labels of a pod, of which there may be thousands, take no memory."""
    read = await read_cluster(at.calls, lambda count: None, label_keys={"tier"})
    assert read.pods[NamespacedName("default", "web")].pod.labels == {"app": "web", "tier": "front"}


async def test_of_a_namespace_only_labels_that_its_budgets_name_are_kept(at: ClientStage) -> None:
    """These labels suffice to find the budgets that a release violates."""
    read = await read_namespaces(at.calls, ["default"])
    assert read.pods[NamespacedName("default", "web")].pod.labels == {"app": "web"}


async def test_budgets_that_would_take_hours_to_compare_are_left_out(
    at: ClientStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever creates pods and budgets in one namespace leaves plans and releases of all others as they are."""
    monkeypatch.setattr(budgets, "_MOST_COMPARISONS", 100)
    add_pod(at.server, "pod", "n1", namespace="evil")
    terms = [{"key": f"k{each}", "operator": "DoesNotExist"} for each in range(100)]
    metadata = {"name": "long", "namespace": "evil"}
    at.server.create("poddisruptionbudgets", {"metadata": metadata, "spec": {"selector": {"matchExpressions": terms}}})
    for read in (
        await read_cluster(at.calls, lambda count: None),
        await read_namespaces(at.calls, ["default", "evil"]),
    ):
        assert list(read.budgets) == [NamespacedName("default", "web")]
        (note,) = read.notes
        assert note.startswith("the budgets of namespace evil are left out")
