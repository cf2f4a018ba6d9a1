"""Plans for nodes that are out of service: by which call their pods go, and what the plan notes."""

import json
from pathlib import Path
from typing import Any

from tests.planning.shop import NOON_TEXT, budget, inventory_of, node, planned, pod, run

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.policy import EvictionMode, PolicyRule
from taint_eviction.core.sentences import BY_DELETE_OUT_OF_SERVICE, STARTS_NO_EVICTION
from taint_eviction_ctl.planning.document import plan_document

OFF = "node.kubernetes.io/out-of-service"


def off(ready: str, effect: str = "NoExecute") -> dict[str, Any]:
    """Write a node with the taint out-of-service."""
    return {
        **node("node-1", f"{OFF}=:{effect}"),
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_pods_of_a_node_out_of_service_go_by_a_delete_past_their_budget() -> None:
    """The budget blocks no pod, but may be violated; a rule for all taints changes nothing."""
    inventory = inventory_of(off("Unknown"), pod("web-0"), budget("web", minAvailable=1))
    plan = planned(inventory, None, PolicyRule("all", mode=EvictionMode.EVICT), mode=EvictionMode.EVICT)
    [web] = plan.leaving
    assert (web.out_of_service, web.blocked, web.ref.key) == (True, False, NamespacedName("shop", "web-0"))
    assert plan.broken_budgets[0].violation is not None
    [told] = [each for each in plan_document(plan)["pods"] if each["name"] == "web-0"]
    assert (told["mode"], told["outOfService"]) == ("delete", True)


def test_pods_of_a_ready_node_ask_their_budget() -> None:
    """The taint is like any other then, and a note says that somebody has to remove it."""
    plan = planned(inventory_of(off("True"), pod("web-0"), budget("web", minAvailable=1)), mode=EvictionMode.EVICT)
    [web] = plan.leaving
    assert (web.out_of_service, web.blocked) == (False, True)
    assert plan.notes == [
        f"node node-1: it is ready, but has the taint {OFF}, which keeps pods away until somebody removes it"
    ]


def test_no_schedule_starts_no_eviction() -> None:
    """The plan says what the pod garbage collector does instead."""
    plan = planned(inventory_of(off("Unknown", "NoSchedule"), pod("web-0")))
    assert plan.leaving == []
    assert plan.notes == [f"node node-1: {STARTS_NO_EVICTION}"]


def test_the_table_says_why_budgets_do_not_count(tmp_path: Path) -> None:
    """The taint need not be there yet: the plan adds it."""
    told = {**off("Unknown"), "spec": {}}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [told, pod("web-0")]}))
    result = run(str(file), "--taint", f"node-1={OFF}:NoExecute", "--now", NOON_TEXT)
    assert result.exit_code == 0, result.output
    assert BY_DELETE_OUT_OF_SERVICE in result.output


def test_pods_that_are_terminating_are_freed(tmp_path: Path) -> None:
    """They are what the taint is for: their kubelet is away. A ready node ends its pods by itself."""
    going, owned = (
        pod(name, owner=owner, deletionTimestamp=NOON_TEXT) for name, owner in (("db-0", ""), ("w", "Job/w"))
    )
    elsewhere = pod("elsewhere", "node-2", deletionTimestamp=NOON_TEXT)
    file = tmp_path / "cluster.json"
    for ready, effect, outcome, bare in (
        ("Unknown", "NoExecute", "freed", 1),
        ("Unknown", "NoSchedule", "freed", 1),
        ("True", "NoExecute", "stays", 0),
    ):
        nodes = [{**off(ready), "spec": {}}, node("node-2")]
        items = [*nodes, going, owned, elsewhere]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        words = (str(file), "--taint", f"node-1={OFF}:{effect}", "--now", NOON_TEXT)
        document = json.loads(run(*words, "-o", "json").stdout)
        told = {each["name"]: each["outcome"] for each in document["pods"]}
        assert told == {"db-0": outcome, "w": outcome, "elsewhere": "stays"}
        assert document["counts"]["bare"] == bare
        sentence = "2 Terminating pods would be force-deleted by PodGC; 1 bare pod gone for good"
        assert (sentence in document["summary"]) is (outcome == "freed")
        rows = [line for line in run(*words).stdout.splitlines() if "PodGC force-deletes it" in line]
        assert [row.split()[:2] for row in rows] == (
            [["freed", "shop/db-0"], ["freed", "shop/w"]] if outcome == "freed" else []
        )
