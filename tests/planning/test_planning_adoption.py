"""Plans beside a built-in controller: whose countdowns are taken over, and which pods the built-in one evicts."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.planning.shop import JsonObject, inventory_of, node, planned, pod, run, tolerates

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.policy import EvictionPolicy, PolicyRule
from taint_eviction_ctl.planning.adoption import add_adoption
from taint_eviction_ctl.planning.changes import Changes, read_taint
from taint_eviction_ctl.planning.holding import add_holders
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.rehearsal import Conditions

OLD = "2026-02-01T00:00:00Z"
TAINT = "node-1=maintenance:NoExecute"


def taken_over(*pods: JsonObject, taint: str = TAINT) -> Plan:
    """Plan for pods of a node that is tainted at noon, with adoption of countdowns of ten seconds or more."""
    plan = planned(inventory_of(node("node-1"), *pods), Changes((read_taint(taint),)))
    add_adoption(plan, 10.0)
    return plan


def adopted(plan: Plan) -> dict[str, bool | None]:
    """Say of each pod whether it is adopted."""
    return {each.ref.key.name: each.adopted for each in plan.pods}


@pytest.mark.parametrize(
    ("seconds", "expected"), [(300, True), (10, True), (9, False), (0, False), (-1, False), (None, None)]
)
def test_a_countdown_is_taken_over_if_it_is_long_enough(seconds: int | None, expected: bool | None) -> None:
    """Neither controller evicts a pod that tolerates the taint indefinitely."""
    assert adopted(taken_over(pod("web", "node-1", tolerates(seconds)))) == {"web": expected}


def test_a_ceiling_makes_no_countdown_too_short_to_be_taken_over() -> None:
    """The built-in controller counts by the pod's own seconds."""
    rule = PolicyRule("leave", taint_keys=("maintenance",), max_toleration_seconds=5)
    inventory = inventory_of(node("node-1"), pod("web", "node-1", tolerates(300)))
    plan = planned(inventory, Changes((read_taint(TAINT),)), rule)
    add_adoption(plan, 10.0)
    assert [each.leaves_at for each in plan.leaving] == [plan.now.at + 5.0]
    assert adopted(plan) == {"web": True}


def test_the_built_in_controller_evicts_pods_that_do_not_tolerate_the_taint() -> None:
    """The eviction comes at once, and there are no seconds to take."""
    plan = taken_over(pod("web", "node-1"), pod("db", "node-1", tolerates(300)))
    assert adopted(plan) == {"web": False, "db": True}
    assert plan.notes == [
        "the built-in controller evicts 1 of 2 pods, past breaker, budgets, limits and pauses: pods that tolerate"
        " a taint for less than 10 s, or not at all (1)"
    ]


def test_after_hand_back_was_ordered_nothing_is_taken_over() -> None:
    """The order is in the state ConfigMap, and outlasts the flags."""
    plan = planned(inventory_of(node("node-1"), pod("web", "node-1", tolerates(300))), Changes((read_taint(TAINT),)))
    add_adoption(plan, 10.0, stopped=True)
    assert adopted(plan) == {"web": False}
    assert plan.notes == [
        "the built-in controller evicts 1 of 1 pod, past breaker, budgets, limits and pauses: hand-back was ordered"
    ]


def test_a_pause_does_not_hold_the_pods_that_the_built_in_controller_evicts() -> None:
    """Otherwise the plan would say that no pod leaves now."""
    paused = ControlState(cluster=Pause())
    plan = taken_over(pod("web", "node-1"), pod("db", "node-1", tolerates(300)))
    add_holders(plan, Conditions(DecisionPolicy(), EvictionPolicy(), control_state=paused))
    assert {pod.ref.key.name: bool(pod.holders) for pod in plan.leaving} == {"web": False, "db": True}


def test_a_running_countdown_is_taken_over_whatever_is_left_of_it() -> None:
    """The node was tainted 55 s ago: a minute is nearly over for one pod, ten minutes are not for the other."""
    tainted = node("node-1")
    added = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-03-01T11:59:05Z"}
    tainted["spec"]["taints"] = [added]
    pods = [pod(str(seconds), "node-1", tolerates(seconds), creationTimestamp=OLD) for seconds in (60, 600)]
    plan = planned(inventory_of(tainted, *pods))
    add_adoption(plan, 10.0)
    assert adopted(plan) == {"60": True, "600": True}


def test_a_marked_pod_counts_by_its_note() -> None:
    """For a taint that it does not tolerate, the built-in controller evicts it."""
    note = [tolerates() | {"seconds": 60}]
    running = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-03-01T11:59:05Z"}
    other = {"key": "other", "effect": "NoExecute", "timeAdded": "2026-03-01T11:59:05Z"}
    for taints, expected in (([running], True), ([running, other], False)):
        tainted = node("node-1")
        tainted["spec"]["taints"] = taints
        adopted_one = pod(
            "web",
            "node-1",
            tolerates(2**63 - 1),
            creationTimestamp=OLD,
            annotations={"taint-eviction/seconds": json.dumps(note)},
        )
        plan = planned(inventory_of(tainted, adopted_one))
        add_adoption(plan, 10.0)
        assert adopted(plan) == {"web": expected}


def test_finished_mirror_terminating_and_own_pods_are_never_taken_over() -> None:
    """The built-in controller deletes finished pods and this controller's own, and neither evicts the others. The note
    says which kinds of pods the built-in controller evicts, and how many of each.
    """
    own = pod("own", "node-1", tolerates(300), labels={"app.kubernetes.io/name": "taint-eviction-controller"})
    finished = pod("finished", "node-1", tolerates(300))
    finished["status"]["phase"] = "Failed"
    mirror = pod("mirror", "node-1", tolerates(300), annotations={"kubernetes.io/config.mirror": "x"})
    going = pod("going", "node-1", tolerates(300), deletionTimestamp="2026-03-01T11:59:00Z")
    many = [tolerates(300, f"key-{number}") for number in range(64)]
    plan = taken_over(
        own,
        finished,
        mirror,
        going,
        pod("many", "node-1", *many, tolerates(300)),
        pod("bare-1", "node-1"),
        pod("bare-2", "node-1"),
    )
    assert adopted(plan) == {
        "own": False,
        "finished": False,
        "mirror": None,
        "going": None,
        "many": False,
        "bare-1": False,
        "bare-2": False,
    }
    assert plan.notes == [
        "the built-in controller evicts 5 of 5 pods, past breaker, budgets, limits and pauses: pods that"
        " tolerate a taint for less than 10 s, or not at all (2), replicas of this controller (1), pods that have"
        " finished (1), pods with too many tolerations (1)"
    ]


def test_the_command_says_which_controller_evicts_each_pod(tmp_path: Path) -> None:
    """Table and document say so; without the flag the document says nothing about adoption."""
    file = tmp_path / "cluster.json"
    items: list[Any] = [node("node-1"), pod("web", "node-1"), pod("db", "node-1", tolerates(300))]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    shown = " ".join(run(str(file), "--taint", TAINT, "--adopt").stdout.split())
    assert "its countdown is taken over" in shown
    assert "the built-in controller's: nothing holds it" in shown
    assert "note: the built-in controller evicts 1 of 2 pods" in shown
    document = json.loads(run(str(file), "--taint", TAINT, "--adopt", "-o", "json").stdout)
    assert {each["name"]: each["adopted"] for each in document["pods"]} == {"web": False, "db": True}
    assert '"adopted"' not in run(str(file), "--taint", TAINT, "-o", "json").stdout
    later = json.loads(run(str(file), "--taint", TAINT, "--adopt", "--adopt-from", "10m", "-o", "json").stdout)
    assert not any(each["adopted"] for each in later["pods"])
