"""Since when nodes are not ready, and how many of them stopped being ready together."""

from dataclasses import replace

import pytest
from tests.unit.builders import Stage, epoch, moment, node, pod, ref, taint, tolerates

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.breaker_table import ZoneRow
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.events import BreakerClosed, BreakerOpened
from taint_eviction.core.facts import NodeSeen, PodGone
from taint_eviction.core.objects import CONTROL_PLANE_LABEL, EXEMPT_LABEL, UNREACHABLE, ZONE_LABEL, Node, Readiness
from taint_eviction.core.policy import EvictionPolicy, PolicyRule
from taint_eviction.core.unready_nodes import UnreadyNodes

POLICY = BreakerPolicy(enabled=True, lifecycle_nodes=NodeThreshold(number=1), window_seconds=100.0)


def ready(status: str = "Unknown", since: float | None = 0.0) -> Readiness:
    """A condition Ready with this status."""
    return Readiness(status, None if since is None else epoch(since))


def lost(which: Readiness | None, name: str = "n1", *, after_gap: bool = False, zone: str = "") -> NodeSeen:
    """A node with this condition."""
    return NodeSeen(replace(node(name=name), ready=which, labels={ZONE_LABEL: zone}), after_gap=after_gap)


def seen(*facts: tuple[float, NodeSeen], policy: BreakerPolicy = POLICY) -> UnreadyNodes:
    """What is known after these observations."""
    it = UnreadyNodes(policy)
    for at, fact in facts:
        it.see(fact, moment(at))
    return it


@pytest.mark.parametrize(
    ("condition", "lost_at"),
    [
        (ready(since=10), {"n1": 11}),
        (ready("False", since=10), {"n1": 11}),
        (ready(since=500), {"n1": 50}),
        (ready("True", since=10), {}),
        (ready(since=None), {}),
        (None, {}),
    ],
)
def test_an_outage_begins_at_its_conditions_time(condition: Readiness | None, lost_at: dict[str, float]) -> None:
    """Times are truncated, so a second is added; a start is never in the future, and a missing time means no outage."""
    assert seen((50, lost(condition))).lost == lost_at


def test_an_outage_begins_no_earlier_than_the_node_was_known_to_be_ready() -> None:
    """The node was seen ready, or the watch showed no change, after the condition's time."""
    it = seen((50, lost(ready("True", -900))))
    it.see(lost(ready("False", 10)), moment(80))
    assert it.lost == {"n1": 50}
    it.see(lost(ready("True", 85)), moment(85))
    it.hear(moment(95))
    it.see(lost(ready("False", 10)), moment(97))
    assert it.lost == {"n1": 95}


def test_an_outage_lasts_while_the_node_is_not_seen_ready() -> None:
    """The condition may have any status other than True."""
    it = seen((50, lost(ready("False", 10))), (60, lost(ready("Unknown", 55))), (70, lost(ready("Unknown", 55))))
    assert it.lost == {"n1": 11}


@pytest.mark.parametrize(("status", "after_gap"), [("Unknown", False), ("Unknown", True), ("False", True)])
def test_a_node_that_may_have_been_ready_in_between_is_lost_anew(status: str, after_gap: bool) -> None:
    """A later time of the same status proves it; over a gap of the watch, another status may hide it."""
    it = seen((50, lost(ready("Unknown", 10))), (90, lost(ready(status, 80), after_gap=after_gap)))
    assert it.lost == {"n1": 81}


def test_another_node_with_the_same_name_is_lost_anew() -> None:
    """The node has another UID."""
    it = seen((50, lost(ready(since=10))))
    it.see(NodeSeen(replace(node(name="n1", uid="other"), ready=ready(since=40))), moment(60))
    assert (it.lost, it.total) == ({"n1": 41}, 1)
    it.forget("n1")
    assert (it.lost, it.total, it.zones) == ({}, 0, {})


@pytest.mark.parametrize(
    ("label", "setting", "total"),
    [(EXEMPT_LABEL, False, 0), (CONTROL_PLANE_LABEL, False, 1), (CONTROL_PLANE_LABEL, True, 0), ("none", True, 1)],
)
def test_excluded_nodes_count_neither_as_lost_nor_in_total(label: str, setting: bool, total: int) -> None:
    """They are excluded by a label, even one added later, or as control-plane nodes if the policy says so."""
    it = UnreadyNodes(replace(POLICY, without_control_plane=setting))
    it.see(lost(ready(since=10)), moment(50))
    it.see(NodeSeen(replace(lost(ready(since=10)).node, labels={label: ""})), moment(51))
    assert (len(it.lost), it.total) == (total, total)


def test_nodes_lost_within_the_window_count_together() -> None:
    """The window reaches back and ahead from each node; nodes that people know of do not count."""
    it = seen(*((1000, lost(ready(since=at - 1), f"n{at}")) for at in (0, 100, 101, 300)))
    assert {each.name: each.count for each in it.together(-1)} == {"n0": 2, "n100": 3, "n101": 2, "n300": 1}
    assert {each.name: each.count for each in it.together(100)} == {"n101": 1, "n300": 1}


def test_nodes_lost_together_count_together_although_the_watch_shows_one_late() -> None:
    """The late node's own outage begins no earlier than the watch was last heard; its date still counts."""
    up = [(0.0, lost(ready("True"), name)) for name in ("n1", "n2")]
    it = seen(*up, (70.0, lost(ready(since=50))), policy=replace(POLICY, window_seconds=5.0))
    it.hear(moment(70))
    it.see(lost(ready(since=50), "n2"), moment(70))
    assert it.lost == {"n1": 51, "n2": 70}
    assert {each.name: each.count for each in it.together(-1)} == {"n1": 2, "n2": 2}
    assert [it.names(each, -1) for each in it.together(-1)] == [{"n1", "n2"}] * 2


def test_nodes_that_people_know_of_are_not_named() -> None:
    """Nodes that were lost outside the window are not named either."""
    it = seen(*((1000, lost(ready(since=at - 1), f"n{at}")) for at in (1, 50, 100, 250)))
    around_100 = {each.name: each for each in it.together(1)}["n100"]
    assert it.names(around_100, 1) == {"n50", "n100"}


def test_zones_count_if_they_have_a_threshold() -> None:
    """A zone counts its own nodes; nodes without a zone form no zone."""
    facts = [(1000.0, lost(ready(since=0), f"n{zone}{number}", zone=zone)) for zone in ("a", "") for number in range(2)]
    it = seen(*facts, policy=replace(POLICY, zone=NodeThreshold(percent=50.0)))
    assert {(each.zone, each.count, each.total) for each in it.together(-1)} == {(None, 4, 4), ("a", 2, 2)}


@pytest.mark.parametrize(
    ("zones", "asks"),
    [(["a"], False), (["a", "b"], False), (["a", "a"], True), (["", ""], False), (["a", "b", "c"], True)],
)
def test_a_small_outage_is_no_news(zones: list[str], asks: bool) -> None:
    """Below the thresholds there is nothing to evaluate; a deleted node is no longer lost."""
    policy = replace(POLICY, lifecycle_nodes=NodeThreshold(number=2), zone=NodeThreshold(number=1))
    it = seen(
        *((50, lost(ready(since=10), f"n{number}", zone=zone)) for number, zone in enumerate(zones)), policy=policy
    )
    assert it.needs_evaluation is asks
    it.forget("n0")
    assert it.needs_evaluation is False


# With pods


def lost_node(name: str, *, zone: str = "east", since: float = 0.0, tainted: bool = True) -> Node:
    """A node that is lost, and tainted or not yet tainted."""
    return replace(
        node(*([taint(UNREACHABLE)] if tainted else []), name=name), ready=ready(since=since), labels={ZONE_LABEL: zone}
    )


def partition(**policy: object) -> Stage:
    """A stage on which two of three nodes are lost; the pod on one of them tolerates that for 30 s."""
    on = Stage(breaker=replace(POLICY, **policy))  # type: ignore[arg-type]
    healthy = replace(node(name="n3"), ready=ready("True"), labels={ZONE_LABEL: "west"})
    on.at(5).sees(lost_node("n1"), lost_node("n2", tainted=False), healthy)
    on.sees(pod(tolerates(30, UNREACHABLE), on="n1", bound_at=-50))
    on.lists("n1")
    return on


CAUSE = "2 of 3 nodes stopped being ready within 100 s of n1 and still are not, more than 1"


def opened(on: Stage) -> list[str]:
    """Let the breaker evaluate, and return why it opens."""
    return [effect.latch.cause for effect in on.evaluate() if isinstance(effect, BreakerOpened)]


def test_the_breaker_opens_when_an_eviction_is_due() -> None:
    """The breaker opens not before, although all is known, and holds that eviction."""
    on = partition()
    assert opened(on.at(34.5)) == []
    assert opened(on.at(35)) == [CAUSE]
    assert on.take() == []


def test_the_breaker_opens_while_the_last_eviction_is_in_flight() -> None:
    """An eviction that has not been sent yet can still be held."""
    on = partition()
    on.sees(replace(lost_node("n2", tainted=False), ready=ready("True", 4), resource_version=9))
    assert opened(on.at(35)) == []
    assert opened(on.at(37.1)) == []
    work = on.take_eviction()
    on.sees(replace(lost_node("n2", since=36, tainted=False), resource_version=10))
    assert opened(on.at(38)) == [CAUSE]
    assert not on.decide_again(work)


def test_the_breaker_does_not_open_during_a_pause() -> None:
    """It opens when the pause ends, if the nodes are still lost."""
    on = partition()
    on.order(ControlState(namespaces={"shop": Pause()}))
    assert opened(on.at(40)) == []
    on.order(ControlState())
    assert opened(on.at(41)) == [CAUSE]


def test_a_pod_bound_to_a_lost_node_does_not_open_the_breaker() -> None:
    """Its eviction is not due to the outage."""
    on = partition()
    on.observe(PodGone(ref()))
    on.at(150).sees(pod(tolerates(30, UNREACHABLE), uid="b", name="b", on="n1", bound_at=145))
    assert opened(on.at(190)) == []
    assert on.take_eviction().ref == ref("b", "b")


def test_a_pod_that_its_owner_changed_after_the_outage_began_does_not_open_the_breaker() -> None:
    """Anybody may change the seconds of pods of their own."""
    on = partition()
    on.at(20).sees(replace(pod(tolerates(15, UNREACHABLE), on="n1", bound_at=-50), resource_version=7))
    assert [opened(on.at(at)) for at in (20, 23, 36)] == [[], [], []]
    assert on.take_eviction().ref == ref()


def test_the_breaker_closes_by_itself_when_the_nodes_are_ready() -> None:
    """That no eviction is due for a moment is not enough."""
    on = partition(closes_by_itself=True)
    assert opened(on.at(35)) == [CAUSE]
    on.sees(replace(pod(tolerates(300, UNREACHABLE), on="n1", bound_at=-50), resource_version=7))
    assert on.at(36).evaluate() == []
    on.sees(replace(node(name="n2"), ready=ready("True", 37), resource_version=11))
    assert on.at(38).evaluate() == [BreakerClosed()]


def test_the_table_has_a_row_for_all_nodes_and_one_per_zone() -> None:
    """The worst zone comes first, even before an eviction is due."""
    threshold = NodeThreshold(percent=90.0)
    on = partition(zone=threshold)
    assert on.brain.status.zones(moment(5)) == [
        ZoneRow(None, 3, 2, 2, 0, 2, NodeThreshold(number=1), ("n1", "n2")),
        ZoneRow("east", 2, 2, 2, 0, 2, threshold, ("n1", "n2")),
        ZoneRow("west", 1, 0, 0, 0, 0, threshold, ()),
    ]
    assert on.brain.status.surge(moment(5)).lifecycle_nodes == 2


def test_the_table_is_bounded() -> None:
    """The table has at most twenty zones, with ten names each."""
    on = Stage(breaker=POLICY)
    for number in range(30):
        on.at(5).sees(lost_node(f"n{number:02}", zone=f"zone-{number:02}"))
    on.sees(pod(tolerates(30, UNREACHABLE), on="n00", bound_at=-50))
    rows = on.brain.status.zones(moment(5))
    assert [row.zone for row in rows] == [None, *(f"zone-{number:02}" for number in range(20))]
    assert (rows[0].counted, rows[0].names) == (30, tuple(f"n{number:02}" for number in range(10)))


def test_the_breaker_evaluates_at_once_when_a_rule_no_longer_pauses() -> None:
    """The breaker opens before the pod is evicted that the rule has held."""
    on = partition()
    on.change_policy(EvictionPolicy(rules=(PolicyRule("wait", pause=True),)))
    assert opened(on.at(40)) == []
    on.change_policy(EvictionPolicy())
    assert opened(on) == [CAUSE]
