"""The explanation of one pod: the document for machines, and the sentences for people."""

import asyncio
from dataclasses import replace
from typing import Any

import click
import orjson
import pytest
from tests.unit.builders import EPOCH, Stage, epoch, moment, no_schedule, node, pod, taint, tolerates
from tests.unit.test_reporting_status_document import LEADER, STANDBY, Ticking, stage

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.decision import DecisionPolicy, StayReason
from taint_eviction.core.events import Block, BlockReason, Done, Failed
from taint_eviction.core.objects import PREFER_NO_SCHEDULE, Pod, Readiness, Taint, Toleration
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, PolicyRule
from taint_eviction.core.tiers import Order
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.reporting.status_document import ProcessState
from taint_eviction.reporting.status_endpoints import StatusEndpoints
from taint_eviction_ctl.cli.explain import explanation_lines
from taint_eviction_ctl.planning.wording import utc

NOT_READY = "node.kubernetes.io/not-ready"
SINCE, LATER = format_rfc3339(EPOCH), format_rfc3339(EPOCH + 300)
DELETED = "  how       by a DELETE: PodDisruptionBudgets do not apply"
BARE = "  owner     none: nothing recreates it"
ABSENT = "  again     a new pod like it could not be scheduled there: it does not tolerate k1:NoExecute"


def explained(on: Stage, process: ProcessState = LEADER, name: str = "shop/web-0") -> dict[str, Any]:
    """The explanation as a client gets it."""
    code, document = asyncio.run(
        StatusEndpoints(on.brain.status, Ticking(on.now), lambda: process).explain({"pod": name})
    )
    assert code == 200
    told: dict[str, Any] = orjson.loads(orjson.dumps(document))
    return told


def lines(on: Stage, process: ProcessState = LEADER) -> list[str]:
    """The explanation as people read it."""
    return [click.unstyle(line) for line in explanation_lines(explained(on, process))]


def one(*tolerations: Toleration, taints: tuple[Taint, ...] = (taint(),), **settings: Any) -> Stage:
    """A stage on which shop/web-0 has these tolerations."""
    on = stage(**settings)
    on.sees(node(*taints), pod(*tolerations))
    return on


def held(seconds: float, told: Pod) -> Pod:
    """The pod with its owner's annotation."""
    return replace(told, hold_seconds=seconds)


def test_a_pod_that_waits_names_the_toleration_that_counts_and_the_one_that_does_not() -> None:
    """People expect the longest toleration to count, but the first one that matches counts."""
    assert lines(one(tolerates(300), tolerates(3600))) == [
        f"shop/web-0 leaves node n1 in 5 m, at {utc(LATER)}",
        "  because   k1:NoExecute is tolerated by [k1 for 300 s]",
        "  but       [k1 for 3600 s] comes later in the pod's list: only the first toleration that matches counts",
        f"  since     {utc(SINCE)} (first seen then)",
        f"  until     {utc(LATER)}",
        DELETED,
        "  again     a new pod like it could be scheduled there",
        BARE,
    ]


def test_a_pod_that_is_not_due_yet_names_the_pause_that_would_hold_it() -> None:
    """Otherwise it would seem to leave at its deadline under an endless pause."""
    on = one(tolerates(300))
    assert explained(on)["heldLater"] is None
    on.brain.order(ControlState(nodes={"n1": Pause()}), moment(0))
    assert explained(on)["heldLater"] == {"reason": "node_paused", "text": "evictions from its node are paused"}
    told = "evictions from its node are paused: while that lasts, it does not leave at its deadline"
    assert f"  held      {told}" in lines(on)


def test_a_default_tolerance_is_shown_as_a_default() -> None:
    """The pod itself has no such toleration, so nobody would find it there."""
    on = one(taints=(taint(NOT_READY),), policy=DecisionPolicy(default_not_ready_seconds=300))
    text = f"  because   {NOT_READY}:NoExecute is tolerated by default by [{NOT_READY}:NoExecute for 300 s]: "
    assert lines(on)[1] == text + "the pod has no such toleration of its own"


def test_a_pod_that_is_due_and_paused_says_since_when_and_why() -> None:
    """The lines say when the pod was due, and which pause keeps it there."""
    on = one()
    on.brain.order(ControlState(nodes={"n1": Pause(EPOCH, "disk swap")}), moment(0))
    on.at(40)
    assert lines(on) == [
        f"shop/web-0 was due to leave node n1 at {utc(SINCE)}, 40 s ago",
        "  because   k1:NoExecute is not tolerated",
        f"  since     {utc(SINCE)} (first seen then)",
        f"  held      evictions from its node are paused (since {utc(SINCE)}: disk swap)",
        DELETED,
        ABSENT,
        BARE,
    ]


def test_a_pod_that_a_budget_blocks_names_the_budget() -> None:
    """The line also has the number of tries, the time of the next one, and the server's words."""
    on = one(eviction_policy=EvictionPolicy(EvictionMode.EVICT))
    on.finish(on.take_eviction(), Failed("Cannot evict pod (HTTP 429)", 10.0, Block(BlockReason.BUDGET, "web")))
    on.at(4)
    assert lines(on)[3:5] == [
        f"  blocked   its PodDisruptionBudget allows no disruption now (web); tried 1 time since {utc(SINCE)}, again in"
        " 6 s: Cannot evict pod (HTTP 429)",
        "  how       by the eviction API: PodDisruptionBudgets may refuse it indefinitely",
    ]


def test_a_rule_and_its_timeout_are_named() -> None:
    """In mode evict-then-delete budgets may refuse only for a time, whose end is known after the first refusal."""
    rule = PolicyRule("db", mode=EvictionMode.EVICT_THEN_DELETE, evict_timeout_seconds=300.0)
    text = "by the eviction API: PodDisruptionBudgets may refuse it"
    on = one(eviction_policy=EvictionPolicy(rules=(rule,)))
    assert lines(on)[-3] == f"  how       {text} for a bounded time, then by a DELETE (rule db of the policy)"
    on.finish(on.take_eviction(), Failed("Cannot evict pod (HTTP 429)", 10.0, Block(BlockReason.BUDGET, "web")))
    assert lines(on)[-3] == f"  how       {text} until {utc(LATER)}, then by a DELETE (rule db of the policy)"


def test_the_deadline_is_that_of_the_taint_that_decides() -> None:
    """A rule has paused for another taint for five minutes."""
    rule = PolicyRule("not yet", taint_keys=("k1",), pause=True)
    on = one(eviction_policy=EvictionPolicy(rules=(rule,)))
    on.at(300).sees(node(taint(), taint("k2"), version=2))
    assert lines(on.at(302))[:2] == [
        f"shop/web-0 was due to leave node n1 at {utc(LATER)}, 2 s ago",
        "  because   k2:NoExecute is not tolerated",
    ]


def test_a_lost_node_is_named_where_its_budgets_are_ignored() -> None:
    """Before that, people see until when budgets hold the pod."""
    policy = EvictionPolicy(EvictionMode.EVICT, ignores_budgets_on_lost_nodes=True)
    on = stage(eviction_policy=policy)
    told = node(taint(NOT_READY))
    on.sees(replace(told, ready=Readiness("False", EPOCH)), pod(tolerates(60, NOT_READY)))
    soon = format_rfc3339(EPOCH + 300).replace("T", " ").replace("Z", " UTC")
    asked = "  how       by the eviction API: PodDisruptionBudgets may refuse it"
    assert f"{asked} until {soon}, then by a DELETE" in lines(on)
    assert explained(on)["eviction"]["nodeLost"] is False
    on.sees(replace(told, ready=Readiness("Unknown", EPOCH + 10)))
    assert "  how       by a DELETE: its node is lost, and PodDisruptionBudgets on lost nodes are ignored" in lines(on)
    assert explained(on)["eviction"]["nodeLost"] is True


def test_a_pod_that_stays_says_why_and_whether_it_could_come_back() -> None:
    """A NoSchedule taint does not evict the pod, but a new pod like it could not be scheduled there again."""
    on = one(tolerates(), taints=(taint(added_at=0.0), no_schedule("k2")))
    assert lines(on.at(100)) == [
        "shop/web-0 stays on node n1: it tolerates every NoExecute taint of its node indefinitely",
        "  because   k1:NoExecute is tolerated by [k1 indefinitely]",
        f"  since     {utc(SINCE)} (first seen then)",
        "  again     a new pod like it could not be scheduled there: it does not tolerate k2:NoSchedule",
    ]


def test_a_pod_that_is_being_deleted_does_not_stay() -> None:
    """Somebody has deleted it, so it leaves."""
    on = stage()
    on.sees(node(taint()), pod(terminating=True))
    assert lines(on)[0] == "shop/web-0 leaves node n1: it is being deleted already"


def test_taints_that_do_not_decide_come_after_the_one_that_does() -> None:
    """Each taint has its own toleration and deadline."""
    on = one(tolerates(600), tolerates(300, "k2"), taints=(taint(), taint("k2")))
    assert [line.strip() for line in lines(on)[1:7]] == [
        "because   k2:NoExecute is tolerated by [k2 for 300 s]",
        f"since     {utc(SINCE)} (first seen then)",
        f"until     {utc(LATER)}",
        "and       k1:NoExecute is tolerated by [k1 for 600 s]",
        f"since     {utc(SINCE)} (first seen then)",
        f"until     {utc(format_rfc3339(EPOCH + 600))}",
    ]


@pytest.mark.parametrize(
    ("most", "granted"), [(0.0, "is granted nothing"), (60.0, "is granted 1 m"), (900.0, "is granted 5 m")]
)
def test_the_hold_that_an_owner_asks_for_and_gets_is_shown(most: float, granted: str) -> None:
    """The annotation counts up to the maximum that the operators set."""
    on = stage(policy=DecisionPolicy(max_hold_seconds=most))
    on.sees(node(taint()), held(300.0, pod()))
    [line] = [line for line in lines(on) if line.startswith("  hold")]
    asked = "its owner asks to hold it 5 m past its deadline (annotation taint-eviction/hold)"
    assert line == f"  hold      {asked}, and {granted}"


def test_a_pod_that_is_held_indefinitely_stays() -> None:
    """JSON has no infinite numbers, so None means indefinitely."""
    on = stage(policy=DecisionPolicy(max_hold_seconds=float("inf")))
    on.sees(node(taint()), held(float("inf"), pod()))
    assert explained(on)["holdAnnotation"] == {"asksSeconds": None, "grantedSeconds": None}
    assert lines(on)[0].startswith("shop/web-0 stays on node n1: its owner holds it indefinitely")


@pytest.mark.parametrize(
    ("waits", "follows"), [(False, "its kubelet ends the pods, too"), (True, f"the taint {NOT_READY} evicts nobody")]
)
def test_a_graceful_shutdown_of_the_node_is_shown(waits: bool, follows: str) -> None:
    """The line quotes the node's condition, and says what follows from it by the settings."""
    on = stage(policy=DecisionPolicy(wait_for_shutdown=waits))
    shutting_down = Readiness("False", shutting_down=True)
    on.sees(replace(node(taint(NOT_READY)), ready=shutting_down), pod(tolerates(300, NOT_READY)))
    assert f"  node      its condition Ready says [node is shutting down]: {follows} meanwhile" in lines(on)
    assert (lines(on)[0] == "shop/web-0 stays on node n1: " + StayReason.SHUTTING_DOWN.value) == waits


def test_an_accepted_deletion_is_shown() -> None:
    """A dry run says that the pod would have been evicted."""
    on = one()
    on.finish(on.take_eviction(), Done())
    assert lines(on)[0] == "shop/web-0 has been evicted from node n1: the API server has accepted its deletion"
    dry = replace(LEADER, dry_run=True)
    assert lines(on, dry)[0] == "shop/web-0 would have been evicted from node n1 by now; this is a dry run"


def test_a_pod_that_is_being_evicted_says_so() -> None:
    """The attempt has begun and has not ended."""
    on = one()
    on.take_eviction()
    assert "  now       it is being evicted" in lines(on)


def test_an_answer_warns_that_its_replica_is_not_ready_or_does_not_lead() -> None:
    """A standby only watches, and a replica that is not ready may not know everything."""
    told = lines(one(), replace(STANDBY, why_not="the watch of pods has been silent for 200 s"))
    assert told[-2:] == [
        "  careful   host_uuid is not ready: the watch of pods has been silent for 200 s",
        "  careful   host_uuid, which answered, does not lead: it evicts nothing",
    ]


def test_each_taint_of_the_node_says_since_when() -> None:
    """A NoExecute taint has the start that this process counts from; other taints have their timeAdded, if any."""
    preferred = Taint("k4", PREFER_NO_SCHEDULE, "", epoch(-50.0))
    on = one(tolerates(), taints=(taint(added_at=-100.0), no_schedule("k3"), preferred))
    document = explained(on)
    assert document["taints"] == [
        {"taint": "k1:NoExecute", "since": format_rfc3339(EPOCH - 99), "sinceBy": "timeAdded"},
        {"taint": "k3:NoSchedule", "since": None, "sinceBy": None},
        {"taint": "k4:PreferNoSchedule", "since": format_rfc3339(EPOCH - 50), "sinceBy": "timeAdded"},
    ]
    assert document["notSchedulableAgain"] == ["k3:NoSchedule"]
    assert document["preferablyNotScheduledAgain"] == ["k4:PreferNoSchedule"]


def test_a_pod_that_is_not_known_may_not_exist_or_be_on_a_clean_node() -> None:
    """The controller knows only pods on tainted nodes; a replica that is not ready knows even less."""
    document = explained(Stage())
    assert (document["known"], document["namespace"], document["name"]) == (False, "shop", "web-0")
    assert lines(Stage()) == [
        "shop/web-0 is not known: there is no such pod, or its node has no NoExecute taint:"
        " only pods on nodes that have one are known"
    ]
    [starting] = lines(Stage(), replace(LEADER, why_not="the nodes have not been listed yet"))
    assert starting.endswith("this replica does not know all pods: the nodes have not been listed yet")


@pytest.mark.parametrize("name", ["", "web-0", "/web-0", "shop/", "shop/web-0/x"])
def test_a_name_that_names_no_pod_is_refused(name: str) -> None:
    """The error shows the right form."""
    code, document = asyncio.run(
        StatusEndpoints(Stage().brain.status, Ticking(0.0), lambda: LEADER).explain({"pod": name})
    )
    assert (code, document) == (400, {"error": "pod is missing: use /explain?pod=NAMESPACE/NAME"})


def test_a_name_that_another_pod_has_taken_explains_the_new_pod() -> None:
    """The query has only the name; the explanation has the UID."""
    on = one()
    on.sees(pod(tolerates(300), uid="b"))
    assert (explained(on)["uid"], explained(on)["outcome"]) == ("b", "leaves")


def test_a_pod_that_waits_for_an_earlier_tier_is_told_for_whom_and_until_when() -> None:
    """In the document and in words."""
    on = Stage(eviction=EvictionPolicy(order=Order.TIERS))
    ready = replace(node(taint()), ready=Readiness("True"))
    pods = pod(name="web", uid="w", created_at=-1), pod(name="db", uid="d", created_at=-5), pod(priority=2_000_000_000)
    on.sees(ready, *pods)
    on.lists("n1")
    told = explained(on)
    until = format_rfc3339(EPOCH + 600)
    hold = told["eviction"]["hold"]
    assert (hold["reason"], hold["tier"], hold["pod"], hold["others"]) == ("earlier_tier", "workloads", "shop/db", 1)
    assert hold["until"] == until
    text = f"it waits for pods of the tier workloads of its node: shop/db and 1 more, until {utc(until)} at most"
    assert hold["text"] == text
    assert [line for line in explanation_lines(told) if text in line] != []
