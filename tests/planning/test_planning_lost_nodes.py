"""Plans for pods of lost nodes: what budgets keep there, and what is deleted in spite of them."""

import json
from pathlib import Path

from tests.planning.shop import NOON, NOON_TEXT, JsonObject, budget, inventory_of, node, planned, pod, run, tolerates

from taint_eviction.core.objects import UNREACHABLE
from taint_eviction.core.policy import EvictionMode
from taint_eviction_ctl.planning.document import plan_document
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.wording import notes

LABELS = {"app": "web"}
PODS = tuple(
    pod(f"web-{number}", "node-1", tolerates(60, UNREACHABLE), owner="ReplicaSet/web", labels=LABELS, ready=False)
    for number in range(2)
)
BUDGET = budget("web", {"matchLabels": LABELS}, minAvailable=2)
KEEPS = "a budget that has too few healthy pods keeps 2 pods of lost nodes indefinitely"
ASKS = "budgets are asked for 2 pods of nodes that do not count as lost now"


def lost(status: str, since: str = "2026-03-01T11:00:00Z") -> JsonObject:
    """Write a node that the node lifecycle controller has tainted, with a condition Ready."""
    written = node("node-1", f"{UNREACHABLE}=:NoExecute")
    written["status"] = {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]}
    return written


def plan(node_of_pods: JsonObject, *, respects: bool, mode: EvictionMode = EvictionMode.EVICT) -> Plan:
    """Plan for two pods of one node, whose budget wants both."""
    return planned(inventory_of(node_of_pods, *PODS, BUDGET), mode=mode, on_lost_nodes=respects)


def about_lost_nodes(made: Plan) -> list[str]:
    """Return the notes about lost nodes, as far as their first halves."""
    found = [note.partition(";")[0].partition(": once")[0] for note in notes(made)]
    return [note for note in found if note in (KEEPS, ASKS)]


def test_a_plan_warns_of_budgets_that_keep_the_pods_of_a_dead_node() -> None:
    """Only with the mode that asks them without an end."""
    made = plan(lost("Unknown"), respects=True)
    assert [(each.blocked, each.deleted_at) for each in made.leaving] == [(True, None)] * 2
    assert about_lost_nodes(made) == [KEEPS]
    for mode in (EvictionMode.DELETE, EvictionMode.EVICT_THEN_DELETE):
        assert KEEPS not in about_lost_nodes(plan(lost("Unknown"), respects=True, mode=mode))


def test_where_budgets_are_ignored_the_pods_of_a_lost_node_are_deleted() -> None:
    """The plan says by which call, and that the budget is violated."""
    made = plan(lost("Unknown"), respects=False)
    assert [each.blocked for each in made.leaving] == [False, False]
    assert about_lost_nodes(made) == []
    document = plan_document(made)
    assert [(each["mode"], each["nodeLost"]) for each in document["pods"]] == [("delete", True)] * 2
    assert document["budgets"][0]["blocked"] == []


def test_a_plan_says_when_a_node_that_is_not_ready_becomes_lost() -> None:
    """The pods are due in a minute, and the node counts as lost after five."""
    made = plan(lost("False", NOON_TEXT), respects=False)
    assert [each.leaves_at for each in made.leaving] == [NOON + 60.0] * 2
    assert [each.deleted_at for each in made.leaving] == [NOON + 300.0] * 2
    assert about_lost_nodes(made) == [ASKS]


def test_a_ready_node_may_be_lost_later() -> None:
    """A plan takes conditions as they are."""
    made = plan(lost("True"), respects=False)
    assert [each.deleted_at for each in made.leaving] == [None, None]
    assert about_lost_nodes(made) == [ASKS]


def test_the_command_has_the_flag(tmp_path: Path) -> None:
    """As the controller has it."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [lost("Unknown"), *PODS, BUDGET]}))
    flags = (str(file), "--now", NOON_TEXT, "--mode", "evict")
    assert KEEPS in run(*flags).stdout
    shown = run(*flags, "--budgets-on-lost-nodes", "ignore").stdout
    assert "by a DELETE: its node is lost, and PodDisruptionBudgets on lost nodes are ignored" in shown
