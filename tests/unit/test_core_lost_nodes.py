"""When a node counts as lost, and how its pods leave then, where budgets on lost nodes are ignored."""

import math
from dataclasses import replace

import pytest
from tests.unit.builders import Stage, epoch, moment, node, pod, taint, tolerates

from taint_eviction.core.events import Block, BlockReason, Failed
from taint_eviction.core.facts import NodeSeen, NodesHeard
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.objects import UNREACHABLE, Node, Readiness
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, PolicyRule
from taint_eviction.core.status import Pending

IGNORES = EvictionPolicy(EvictionMode.EVICT, ignores_budgets_on_lost_nodes=True)
LOST = taint(UNREACHABLE)
REFUSED = Block(BlockReason.BUDGET, "web")


def node_that_is(status: str | None, since: float | None = None, version: int | None = None) -> Node:
    """A node with a condition Ready, or without one; ``since`` is an instant."""
    ready = None if status is None else Readiness(status, None if since is None else epoch(since))
    return replace(node(LOST, version=version), ready=ready)


def lost_at(nodes: KnownNodes) -> float:
    """From when on the node counts as lost."""
    return nodes.known["n1"].lost_at


def first_seen(told: Node, at: float) -> float:
    """From when on a node counts as lost that is first seen at ``at``."""
    nodes = KnownNodes(GoneObjects())
    nodes.upsert(NodeSeen(told), moment(at))
    return lost_at(nodes)


@pytest.mark.parametrize(
    ("status", "since", "expected"),
    [
        ("Unknown", 0, -math.inf),
        ("Unknown", None, -math.inf),
        ("False", 0, 301),
        ("False", -600, -299),
        ("False", None, 1300),
        ("False", 999.5, 1300),
        ("False", 5000, 1300),
        ("True", 0, math.inf),
        ("Maybe", 0, math.inf),
        (None, None, math.inf),
    ],
)
def test_a_node_counts_as_lost_by_its_condition(status: str | None, since: float | None, expected: float) -> None:
    """At once if nobody hears of it; 5 minutes after it said that it is not ready, by the rule of objects' times."""
    assert first_seen(node_that_is(status, since), at=1000) == expected


def test_a_date_before_what_was_seen_does_not_count() -> None:
    """The clock of a kubelet may be behind by hours: the watch was alive at 90, and the node was ready."""
    nodes = KnownNodes(GoneObjects())
    nodes.upsert(NodeSeen(node_that_is("True", -9000, version=1)), moment(0))
    nodes.hear(NodesHeard(5), moment(90))
    nodes.upsert(NodeSeen(node_that_is("False", -7200, version=6)), moment(100))
    assert lost_at(nodes) == 390


def test_the_five_minutes_are_those_of_one_spell() -> None:
    """Heartbeats move nothing; another status, or the same one dated anew, begins anew."""
    nodes = KnownNodes(GoneObjects())
    for at, told, expected in (
        (10, node_that_is("False", 10), 310),
        (200, replace(node_that_is("False", 10), labels={"a": "b"}), 310),
        (250, node_that_is("Unknown", 250), -math.inf),
        (260, node_that_is("False", 260), 560),
        (400, node_that_is("False", 390), 691),
        (500, node_that_is("True", 500), math.inf),
    ):
        nodes.upsert(NodeSeen(told), moment(at))
        assert lost_at(nodes) == expected


def test_a_live_read_that_is_ahead_of_the_watch_counts() -> None:
    """In both directions, and until the watch has come as far."""
    nodes = KnownNodes(GoneObjects())
    nodes.upsert(NodeSeen(node_that_is("Unknown", 0, version=1)), moment(0))
    for at, status, version, expected in ((100, "True", 5, math.inf), (110, "False", 7, 410)):
        assert nodes.upsert(NodeSeen(node_that_is(status, at, version), asked_at=at - 0.1), moment(at)) is not None
        assert lost_at(nodes) == expected
    assert nodes.upsert(NodeSeen(node_that_is("True", 100, version=5)), moment(111)) is None
    assert lost_at(nodes) == 410
    nodes.upsert(NodeSeen(node_that_is("False", 110, version=7)), moment(112))
    assert lost_at(nodes) == 410


def stage(policy: EvictionPolicy = IGNORES, status: str = "False") -> Stage:
    """A stage with one pod that tolerates the loss of its node for 60 s, which began at 0."""
    on = Stage(eviction=policy)
    on.sees(node_that_is(status, 0), pod(tolerates(60, UNREACHABLE)))
    return on


def pending(on: Stage) -> Pending:
    """What waits."""
    (found,) = on.brain.status.pending(moment(on.now))
    return found


def refused(on: Stage) -> None:
    """Let the eviction API refuse the pod that is due."""
    work = on.take_eviction()
    assert work.by_eviction_api
    on.send(work)
    on.finish(work, Failed("no", on.now + 30, REFUSED))


def test_a_pod_of_a_lost_node_is_deleted() -> None:
    """The eviction API is not asked."""
    on = stage(status="Unknown").at(60)
    assert not on.take_eviction().by_eviction_api


def test_the_moment_at_which_a_node_becomes_lost_wakes_a_pod_that_waits_for_its_next_try() -> None:
    """The last refusal advises a longer wait."""
    on = stage().at(290)
    refused(on)
    assert on.next_at() == 300
    on.at(299.9)
    assert on.take() == []
    on.at(300)
    assert not on.take_eviction().by_eviction_api


def test_people_see_until_when_budgets_hold_a_pod() -> None:
    """Before the deadline it is what holds at the deadline."""
    on = stage()
    assert (pending(on).handling.node_lost, pending(on).eviction_api_until) == (False, 300)
    on.at(299)
    assert pending(on).eviction_api_until == 300
    on.at(300)
    assert (pending(on).handling.node_lost, pending(on).handling.mode) == (True, EvictionMode.DELETE)
    later = Stage(eviction=IGNORES)
    later.sees(node_that_is("False", 0), pod(tolerates(400, UNREACHABLE)))
    assert pending(later).handling.node_lost


def test_a_deletion_under_way_is_suspended_when_the_node_is_back() -> None:
    """The call that was begun is another one than the pod needs now."""
    on = stage(status="Unknown").at(60)
    work = on.take_eviction()
    assert on.decide_again(work)
    on.sees(node_that_is("True", 60))
    assert not on.decide_again(work)


def test_an_eviction_under_way_goes_on_when_the_node_becomes_lost() -> None:
    """Budgets may refuse it once more; then it is deleted at once."""
    on = stage().at(299)
    work = on.take_eviction()
    on.at(301)
    assert on.decide_again(work)
    on.send(work)
    on.finish(work, Failed("no", on.now + 30, REFUSED))
    assert not on.take_eviction().by_eviction_api


def test_a_change_of_the_policy_counts_at_once() -> None:
    """In both directions."""
    on = stage(replace(IGNORES, ignores_budgets_on_lost_nodes=False), status="Unknown").at(60)
    refused(on)
    on.at(61).change_policy(IGNORES)
    assert not on.take_eviction().by_eviction_api


def test_a_rule_that_pauses_holds_the_pods_of_a_lost_node() -> None:
    """Only the mode is another one."""
    rule = PolicyRule("paused", pause=True, mode=EvictionMode.EVICT)
    on = stage(replace(IGNORES, rules=(rule,)), status="Unknown").at(60)
    assert on.take() == []
