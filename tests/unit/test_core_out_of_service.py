"""Nodes with the out-of-service taint: how their pods are evicted, what the breaker counts, and what is reported."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.builders import Stage, epoch, moment, no_schedule, node, pod, taint, tolerates
from tests.unit.test_reporting_explanation_document import explained
from tests.unit.test_reporting_status_document import one_due, stage, status

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Latch
from taint_eviction.core.events import BreakerOpened, Event, Failed, NodeTainted, ReadyOutOfService
from taint_eviction.core.facts import NodeGone, NodeSeen, NodesHeard, NodesSwept
from taint_eviction.core.instants import Sighting, TimeSource
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.objects import OUT_OF_SERVICE, Node, Readiness, Taint
from taint_eviction.core.out_of_service import OutOfServiceNodes
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule
from taint_eviction.core.sentences import BY_DELETE_OUT_OF_SERVICE, STARTS_NO_EVICTION
from taint_eviction_ctl.cli.explain import explanation_lines
from taint_eviction_ctl.cli.status_views import status_lines

OFF = taint(OUT_OF_SERVICE)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the colors that click.style adds."""
    monkeypatch.setattr("taint_eviction_ctl.cli.explain.click.style", lambda text, **_: text)


READY, UNKNOWN = Readiness("True"), Readiness("Unknown")
ASKS = EvictionPolicy(EvictionMode.EVICT)
FORGOTTEN = f"it is ready, but has the taint {OUT_OF_SERVICE}, which keeps pods away until somebody removes it"


def off(*taints: Taint, ready: Readiness | None = UNKNOWN, **fields: Any) -> Node:
    """A node with these taints, by default out-of-service."""
    return replace(node(*(taints or (OFF,)), **fields), ready=ready)


@pytest.mark.parametrize(
    ("told", "is_out_of_service"),
    [
        (off(), True),
        (off(ready=None), True),
        (off(ready=Readiness("False")), True),
        (off(ready=READY), False),
        (off(no_schedule(OUT_OF_SERVICE)), False),
        (off(taint("k1")), False),
        (off(taint("k1"), OFF), True),
    ],
)
def test_a_node_is_out_of_service_by_its_taint_while_it_is_not_ready(told: Node, is_out_of_service: bool) -> None:
    """As for the pod garbage collector, a missing condition Ready counts as not ready; only effect NoExecute counts."""
    assert told.is_out_of_service is is_out_of_service


@pytest.mark.parametrize(
    ("rule", "exempt"),
    [
        (PolicyRule("r"), True),
        (PolicyRule("r", ("*",)), True),
        (PolicyRule("r", (), ("shop",)), True),
        (PolicyRule("r", ("k1",)), True),
        (PolicyRule("r", (OUT_OF_SERVICE,), ("bank",)), True),
        (PolicyRule("r", (OUT_OF_SERVICE,)), False),
        (PolicyRule("r", ("node.kubernetes.io/*",)), False),
        (PolicyRule("r", ("k1", OUT_OF_SERVICE), ("shop",)), False),
        (PolicyRule("r", pause=True), False),
    ],
)
def test_a_rule_that_names_the_taint_or_pauses_ends_the_exemption(rule: PolicyRule, exempt: bool) -> None:
    """The rule names the key, or a pattern other than ``*``, and matches the pod; or it is the first and pauses it."""
    policy = EvictionPolicy(EvictionMode.EVICT, rules=(rule,))
    assert policy.on({}, True).handling(OUT_OF_SERVICE, pod(), 0.0).bypasses_limits is exempt
    assert policy.on({}, True).handling("k1", pod(), 0.0).bypasses_limits is False
    assert policy.on({}, False).handling(OUT_OF_SERVICE, pod(), 0.0).bypasses_limits is False
    assert policy.on({}, False) is policy


def test_an_earlier_rule_that_does_not_name_the_taint_still_counts() -> None:
    """The first rule that matches governs the pod."""
    first, second = PolicyRule("first", pause=True), PolicyRule("second", (OUT_OF_SERVICE,))
    assert EvictionPolicy(rules=(first, second)).on({}, True).handling(OUT_OF_SERVICE, pod(), 0.0).rule is first


def test_the_exemption_is_faster_than_any_rule() -> None:
    """It is faster even than a DELETE without limits."""
    exempt = ASKS.on({}, True).handling(OUT_OF_SERVICE, pod(), 0.0)
    assert exempt.mode is EvictionMode.DELETE
    assert exempt.urgency < EvictionPolicy().handling("k1", pod(), 0.0).urgency


def known(ready: Readiness | None, since: float, told: Taint = OFF) -> KnownNode:
    """A node with a taint that has been there since ``since``."""
    return KnownNode(off(told, ready=ready), since, {told: Sighting(since, TimeSource.FIRST_SIGHT, None)})


def never_old(name: str, which: Taint) -> bool:
    """Say that no taint is older than its date."""
    return False


def test_newly_out_of_service_nodes_count() -> None:
    """If at least one of them is not ready, the ready ones count too; taints from before the window do not."""
    seen, nodes = OutOfServiceNodes(), {"a": known(UNKNOWN, 20), "b": known(READY, 30), "c": known(UNKNOWN, 5)}
    nodes["d"] = KnownNode(off(no_schedule(OUT_OF_SERVICE)), 20)
    for name, one in nodes.items():
        seen.observe(name, one)
    assert seen.newly(nodes, 10, never_old) == 2
    assert seen.newly(nodes, 25, never_old) == 1
    assert seen.newly({**nodes, "a": known(READY, 20), "c": known(READY, 5)}, 10, never_old) == 0
    assert seen.newly(nodes, 10, lambda name, _: name == "b") == 1
    seen.observe("a", None)
    assert seen.newly(nodes, 10, never_old) == 1


def test_a_node_that_stops_being_ready_before_the_report_is_not_reported() -> None:
    """A standby notes the node and reports nothing."""
    seen = OutOfServiceNodes()
    seen.observe("a", known(READY, 0))
    seen.observe("a", known(UNKNOWN, 0))
    assert seen.report() == []


def test_a_taint_from_when_the_window_began_is_old() -> None:
    """A taint that is set a moment later counts."""
    seen, nodes = OutOfServiceNodes(), {"a": known(UNKNOWN, 20)}
    seen.observe("a", nodes["a"])
    assert [seen.newly(nodes, counts_from, never_old) for counts_from in (19.9, 20)] == [1, 0]


def test_a_ready_node_is_reported_once_until_its_taint_is_gone() -> None:
    """It does not matter how often the node is seen, or is not ready in between."""
    on = Stage()

    def told(*taints: Taint, ready: Readiness | None) -> list[Event]:
        on.brain.observe(NodeSeen(replace(node(*taints), ready=ready)), moment(on.now))
        return [effect for effect in on.evaluate() if isinstance(effect, ReadyOutOfService)]

    assert told(OFF, ready=UNKNOWN) == []
    assert told(OFF, ready=READY) == [ReadyOutOfService("n1")]
    assert told(OFF, ready=READY) == told(OFF, ready=UNKNOWN) == told(OFF, ready=READY) == []
    assert told(ready=READY) == []
    assert told(no_schedule(OUT_OF_SERVICE), ready=READY) == [ReadyOutOfService("n1")]
    on.brain.observe(NodeGone("n1", "uid-n1"), moment(on.now))
    assert on.brain.status.out_of_service_notes() == {}


def test_a_live_read_ahead_of_the_watch_shows_whether_the_node_is_ready() -> None:
    """An older event of the watch updates the node, but does not change this."""
    on = Stage()
    on.brain.observe(NodeSeen(off(version=5)), moment(0))
    on.brain.observe(NodesHeard(5), moment(0))
    on.brain.observe(NodeSeen(off(ready=READY, version=9), asked_at=1.0), moment(2))
    nodes = on.brain.nodes.known
    assert (nodes["n1"].live_node.is_ready, nodes["n1"].node.resource_version) == (True, 5)
    on.brain.observe(NodeSeen(off(version=7)), moment(3))
    on.brain.observe(NodeSeen(off(version=8)), moment(3))
    assert (nodes["n1"].live_node.is_ready, nodes["n1"].node.resource_version) == (True, 8)
    on.brain.observe(NodeSeen(off(version=10)), moment(4))
    assert not nodes["n1"].node.is_ready


def test_an_open_breaker_holds_exempt_pods_only_if_too_many_nodes_are_out_of_service() -> None:
    """Other pods are held; once more nodes than the threshold are out of service, all pods are."""
    on = stage(breaker=BreakerPolicy(True, NodeThreshold(1)), control_state=ControlState(latch=Latch(0.0, "people")))
    on.sees(node(taint(), name="n2"), pod(name="b", uid="b", on="n2"), off(), pod(), pod(name="c", uid="c"))
    on.brain.evaluate(moment(0))
    assert [work.ref.uid for work in on.brain.attempts.take_due(moment(0), 1, 1)] == ["a"]
    on.observe(NodesSwept(frozenset({"uid-n1", "uid-n2"}), 0.5, None))
    on.sees(off(name="n3"))
    on.brain.evaluate(moment(1))
    assert on.brain.attempts.take_due(moment(1), 9, 9) == []
    assert (on.brain.attempts.next_at(moment(1)) or 0.0) > 1


def test_an_open_breaker_keeps_no_exempt_pods_behind_others_because_calls_of_their_namespace_hang() -> None:
    """The others wait for its reset."""
    on = stage(breaker=BreakerPolicy(True, NodeThreshold(1)), control_state=ControlState(latch=Latch(0.0, "people")))
    on.sees(node(taint(), name="n2"), pod(namespace="bank", name="b", uid="b", on="n2"), off(), pod())
    on.brain.evaluate(moment(20))
    on.brain.attempts.note_waiting({"shop": 3})
    assert [work.ref.uid for work in on.brain.attempts.take_due(moment(20), 1, 1)] == ["a"]


def test_while_the_breaker_is_open_exempt_pods_do_not_wait_until_it_evaluates() -> None:
    """It evaluates twice a second, and a node has changed since; of a closed breaker the pods wait for that."""
    for latch, uids in ((Latch(0.0, "people"), ["a"]), (None, [])):
        on = stage(breaker=BreakerPolicy(True), control_state=ControlState(latch=latch))
        on.order(ControlState(latch=latch))
        on.sees(off(), pod())
        assert [work.ref.uid for work in on.brain.attempts.take_due(moment(0), 1, 1)] == uids


def test_a_latch_for_too_many_nodes_out_of_service_holds_exempt_pods_after_a_restart() -> None:
    """The new process may count fewer nodes than the latch says."""
    on = stage(breaker=BreakerPolicy(True))
    on.order(ControlState(latch=Latch(0.0, "3 of 8 nodes out of service", out_of_service=True)))
    on.sees(off(), pod())
    on.brain.evaluate(moment(0))
    assert on.brain.attempts.take_due(moment(0), 1, 1) == []


def test_an_unreadable_latch_holds_exempt_pods_too() -> None:
    """What the latch was meant to hold is not known."""
    on = stage(breaker=BreakerPolicy(True))
    on.order(ControlState(latch=Latch(0.0, "?", unreadable=True)))
    on.sees(off(), pod())
    on.brain.evaluate(moment(0))
    assert on.brain.attempts.take_due(moment(0), 1, 1) == []


def test_exempt_retries_come_before_first_tries() -> None:
    """A pod on a node that is out of service does not wait behind other pods after a failed deletion."""
    on = stage(eviction_policy=EvictionPolicy(EvictionMode.EVICT, total=Limit(at_once=2)))
    on.sees(off(), pod())
    work = on.take_eviction()
    on.send(work)
    on.finish(work, Failed("no answer", 5))
    on.at(5).sees(node(taint(), name="n2"), *(pod(name=name, uid=name, on="n2") for name in "bcd"))
    assert [work.ref.uid for work in on.brain.attempts.take_due(moment(5), 2, 1)] == ["a", "b"]


# What is reported


def test_status_and_explain_say_that_a_pod_is_deleted_because_its_node_is_out_of_service() -> None:
    """Both say so as JSON and as text."""
    on = stage(eviction_policy=ASKS)
    on.sees(off(), pod(tolerates(30, OUT_OF_SERVICE)))
    document = status(on)
    assert (document["pending"][0]["mode"], document["pending"][0]["outOfService"]) == ("delete", True)
    assert BY_DELETE_OUT_OF_SERVICE in status_lines(document)[-1]
    assert explained(on)["eviction"]["outOfService"] is True
    assert f"how       {BY_DELETE_OUT_OF_SERVICE}" in "\n".join(explanation_lines(explained(on)))
    on.sees(off(ready=READY, version=9))
    assert (status(on)["pending"][0]["mode"], status(on)["pending"][0]["outOfService"]) == ("evict", False)


def test_a_ready_node_with_the_taint_is_reported() -> None:
    """Status names the node, explain mentions it beside the pod, and a metric counts it."""
    on = Stage()
    on.sees(off(ready=READY), pod(tolerates(300, OUT_OF_SERVICE)), off(name="n2"))
    assert status(on)["outOfServiceNodes"] == [{"node": "n1", "text": FORGOTTEN}]
    assert any(f"node n1: {FORGOTTEN}" in line for line in status_lines(status(on)))
    assert explained(on)["nodeNote"] == FORGOTTEN
    assert f"node      {FORGOTTEN}" in "\n".join(explanation_lines(explained(on)))
    assert on.brain.status.ready_out_of_service_count() == 1


def test_a_taint_with_effect_no_schedule_is_reported_to_start_no_eviction() -> None:
    """The text says what the pod garbage collector does, also for a pod that is unknown as nothing evicts it."""
    on = Stage()
    on.sees(off(taint("k1"), no_schedule(OUT_OF_SERVICE)), pod())
    assert status(on)["outOfServiceNodes"] == [{"node": "n1", "text": STARTS_NO_EVICTION}]
    assert explained(on)["nodeNote"] == STARTS_NO_EVICTION
    assert explained(on, name="shop/other")["text"].endswith(f"; if it is on n1: {STARTS_NO_EVICTION}")


def test_a_node_without_the_taint_is_not_reported() -> None:
    """Neither status nor explain mentions the node."""
    on = one_due()
    assert status(on)["outOfServiceNodes"] == []
    assert explained(on)["nodeNote"] is None
    assert on.brain.observe(NodeSeen(node(taint(), name="n7")), moment(1)) == [NodeTainted("n7")]


def test_pods_of_nodes_out_of_service_do_not_count_as_due() -> None:
    """The breaker counts their nodes instead."""
    on = Stage(eviction=ASKS, breaker=BreakerPolicy(enabled=True, max_due=5))
    on.sees(off(), node(taint(), name="n2"), pod(), pod(name="web-1", uid="b", on="n2"))
    on.lists("n1", "n2")
    on.evaluate()
    assert on.brain.status.surge(moment(0)).due == 1


def test_only_pods_whose_eviction_failed_have_failures() -> None:
    """A pod that waits for its first attempt has none."""
    on = Stage()
    on.sees(off(), pod())
    assert on.brain.status.failures() == []


def test_pods_with_a_deadline_are_counted_as_pending() -> None:
    """A pod that stays is not pending."""
    on = Stage()
    on.sees(node(taint()), pod(tolerates(30)), pod(tolerates(), name="stays", uid="b"))
    assert on.brain.status.pending_count() == 1


def test_the_known_backlog_does_not_include_pods_of_nodes_out_of_service() -> None:
    """Therefore they do not hide other pods that become due after a reset."""
    on = Stage(breaker=BreakerPolicy(enabled=True, max_due=1, nodes=NodeThreshold(percent=100.0), lifecycle_nodes=None))
    on.sees(off(), node(taint(), name="n2"), *(pod(name=f"off-{number}", uid=f"o{number}") for number in range(3)))
    on.sees(*(pod(name=name, uid=name, on="n2") for name in "ab"))
    on.lists("n1", "n2")
    assert any(isinstance(effect, BreakerOpened) for effect in on.at(20).evaluate())
    on.order(ControlState(reset_epoch=epoch(21)))
    on.at(22).sees(*(pod(tolerates(22), name=name, uid=name, on="n2", bound_at=-10.0) for name in "cd"))
    assert any(isinstance(effect, BreakerOpened) for effect in on.at(25).evaluate())
