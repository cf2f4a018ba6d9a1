"""Plans for nodes that are out of service: by which call their pods go, and what the plan notes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.planning.shop import NOON, NOON_TEXT, budget, inventory_of, node, planned, pod, run

from taint_eviction.core.control_state import ControlState, Latch
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, PolicyRule
from taint_eviction.core.sentences import BY_DELETE_OUT_OF_SERVICE, STARTS_NO_EVICTION
from taint_eviction_ctl.planning.changes import Changes, read_taint, read_untaint
from taint_eviction_ctl.planning.document import plan_document
from taint_eviction_ctl.planning.holding import add_holders
from taint_eviction_ctl.planning.rehearsal import Conditions
from taint_eviction_ctl.planning.wording import headlines

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
        sentence = "the change frees shop/db-0 and shop/w and evicts no pod; 1 bare pod gone for good"
        sentence += "; only if the machine of node-1 is off"
        assert (document["summary"] == sentence) is (outcome == "freed")
        rows = [line for line in run(*words).stdout.splitlines() if "PodGC force-deletes it" in line]
        assert [row.split()[:2] for row in rows] == (
            [["freed", "shop/db-0"], ["freed", "shop/w"]] if outcome == "freed" else []
        )


def cluster_of(tmp_path: Path, *objects: dict[str, Any]) -> str:
    """Write objects to a file, and return its path."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(file)


def lost_node(*more: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Make a lost node with a pod that is Terminating, and another node whose pods have to leave."""
    stuck = pod("ledger-0", owner="StatefulSet/ledger", deletionTimestamp=NOON_TEXT)
    pending = [pod("bare", "node-2"), pod("web-0", "node-2", owner="ReplicaSet/web")]
    return {**off("Unknown"), "spec": {}}, node("node-2", "old=x:NoExecute"), stuck, *pending, *more


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (("--taint", f"node-1={OFF}:NoExecute"), "PodGC force-deletes it: its node is out of service"),
        (("--delete-node", "node-1"), "PodGC force-deletes it: its node is deleted"),
    ],
)
def test_what_a_change_does_comes_before_what_is_pending(tmp_path: Path, change: tuple[str, str], because: str) -> None:
    """Budgets and bare pods of pods that leave without it are no results of the change."""
    cluster = cluster_of(tmp_path, *lost_node(), budget("all", minAvailable=3))
    said = run(cluster, *change, "--now", NOON_TEXT).stdout.splitlines()
    assert said[:2] == [
        "the change frees shop/ledger-0 and evicts nothing more; only if the machine of node-1 is off",
        "with or without the change, 2 pods would leave: 2 at once (-o wide shows them)",
    ]
    tables = "\n".join(said[2:]).split("\n\n")
    assert [table.splitlines()[0] for table in tables[1:-1]] == ["pods that leave, or are freed", "nodes"]
    [row] = tables[1].splitlines()[2:]
    assert row.split()[:3] == ["freed", "shop/ledger-0", "node-1"]
    assert row.endswith(because)
    assert [line.split()[:7] for line in tables[2].splitlines()[2:]] == [["node-1", "-", "0", "of", "1,", "1", "freed"]]
    wide = run(cluster, *change, "--now", NOON_TEXT, "-o", "wide").stdout
    assert ["node-2", "-", "2", "of", "2", "old=x:NoExecute"] in [line.split() for line in wide.splitlines()]
    assert "would be violated, down to 0 healthy" in wide


def test_pods_that_stay_on_a_deleted_node_are_orphaned(tmp_path: Path) -> None:
    """They have a row, too, and the node counts both."""
    said = run(cluster_of(tmp_path, *lost_node(pod("api-0"))), "--delete-node", "node-1", "--now", NOON_TEXT).stdout
    assert said.startswith(
        "the change frees shop/ledger-0, orphans shop/api-0 and evicts nothing more; 1 bare pod gone"
        " for good; only if the machine of node-1 is off"
    )
    rows = [line.split()[:2] for line in said.splitlines() if "PodGC force-deletes it: its node is deleted" in line]
    assert sorted(rows) == [["freed", "shop/ledger-0"], ["orphaned", "shop/api-0"]]
    assert "0 of 2, 1 freed, 1 orphaned" in said


def test_pods_that_an_open_breaker_holds_leave_because_of_the_taint() -> None:
    """They were due before, but out of service they pass the breaker."""
    due = {**off("Unknown"), "spec": {"taints": [{"key": "old", "effect": "NoExecute"}]}}
    changes = Changes((read_taint(f"node-1={OFF}:NoExecute"),))
    plan = planned(inventory_of(due, node("node-2", "old=x:NoExecute"), pod("web-0"), pod("b", "node-2")), changes)
    conditions = Conditions(DecisionPolicy(), EvictionPolicy(), control_state=ControlState(latch=Latch(NOON, "many")))
    add_holders(plan, conditions)
    assert headlines(plan) == [
        "because of the change 1 of 2 pods on 2 nodes would leave: 1 at once; 1 bare pod gone for good"
        "; only if the machine of node-1 is off",
        "with or without the change, 1 is blocked by the circuit breaker, and would leave when it is reset",
    ]


def test_the_condition_names_how_many_machines_have_to_be_off() -> None:
    """It concerns only nodes whose pods end by the change, and no node that had the taint before."""
    two = inventory_of(node("node-1"), node("node-2"), node("node-3"), pod("a"), pod("b", "node-2"))
    [said] = headlines(planned(two, Changes(deleted_nodes=("node-?",))))
    assert said.endswith("; only if the machines of 2 nodes are off")
    tainted = inventory_of(off("Unknown"), node("node-2"), pod("a"), pod("b", "node-2"))
    again = Changes((read_taint(f"node-1={OFF}:NoExecute"), read_taint("node-2=k:NoExecute")))
    assert "off" not in "".join(headlines(planned(tainted, again)))


def test_pods_that_are_freed_already_are_no_result_of_a_change() -> None:
    """Their node has the taint; a change of another node does not concern them."""
    going = pod("db-0", owner="StatefulSet/db", deletionTimestamp=NOON_TEXT)
    inventory = inventory_of(off("Unknown"), node("node-2"), going, pod("web-0", "node-2", owner="ReplicaSet/web"))
    assert headlines(planned(inventory)) == [
        "0 of 1 pod on 1 node will leave; 1 Terminating pod will be force-deleted by PodGC"
    ]
    assert headlines(planned(inventory, Changes((read_taint("node-2=k:NoExecute"),)))) == [
        "because of the change 1 of 2 pods on 2 nodes would leave: 1 at once",
        "with or without the change, 1 Terminating pod would be force-deleted by PodGC",
    ]


def test_pods_that_a_change_keeps_are_named() -> None:
    """They would leave without it, as others do with it, too."""
    inventory = inventory_of(
        node("node-1", "old=x:NoExecute"), node("node-2", "old=x:NoExecute"), pod("a"), pod("b", "node-2")
    )
    assert headlines(planned(inventory, Changes(untaints=(read_untaint("node-1=old"),)))) == [
        "the change keeps shop/a and evicts nothing more",
        "with or without the change, 1 pod would leave: 1 at once",
    ]
