"""Which nodes the breaker does not count, and why: for people who expect another number."""

from dataclasses import replace

import pytest
from tests.unit.builders import Stage, epoch, moment, node, pod, taint, tolerates
from tests.unit.test_core_unready_nodes import POLICY, lost_node, ready

from taint_eviction.core.breaker_table import NotCounted
from taint_eviction.core.control_state import ControlState, Latch
from taint_eviction.core.objects import CONTROL_PLANE_LABEL, EXEMPT_LABEL, UNREACHABLE, Node


def uncounted(on: Stage) -> dict[NotCounted, list[str]]:
    """Return the uncounted nodes by their reason, as of now."""
    return on.brain.status.uncounted(moment(on.now))


def test_a_node_from_which_no_pod_is_evicted_is_not_counted() -> None:
    """A taint that all pods tolerate is no surge; a node whose taint evicts a pod counts, and is not listed."""
    on = Stage(breaker=POLICY)
    on.at(10).sees(node(taint(), name="n1"), node(taint(), name="n2"), node(name="n3"))
    on.sees(pod(on="n1"), pod(tolerates(), name="b", uid="b", on="n2"))
    on.lists("n1", "n2")
    assert uncounted(on) == {NotCounted.NO_EVICTION: ["n2"]}


def test_an_unlisted_node_is_not_counted_yet() -> None:
    """It is unknown whether a pod must be evicted from it."""
    on = Stage(breaker=POLICY)
    on.at(10).sees(node(name="n1"))
    on.at(20).sees(node(taint(), name="n1"))
    assert uncounted(on) == {NotCounted.UNLISTED: ["n1"]}


def test_a_node_tainted_or_lost_before_the_window_is_not_counted() -> None:
    """The window is 100 s."""
    on = Stage(breaker=POLICY)
    on.sees(node(name="n1"))
    on.at(10).sees(node(taint(), name="n1"), lost_node("n2", since=9, tainted=False))
    on.sees(pod(tolerates(5000), on="n1"))
    on.lists("n1")
    assert uncounted(on.at(105)) == {NotCounted.NO_EVICTION: ["n2"]}
    assert uncounted(on.at(111)) == {NotCounted.OLD: ["n1", "n2"]}


def test_a_label_excludes_no_node_that_people_have_tainted() -> None:
    """It keeps a node out of the outages alone."""
    on = Stage(breaker=POLICY)
    on.at(10).sees(replace(node(taint(), name="n1"), labels={EXEMPT_LABEL: ""}))
    on.sees(pod(tolerates(5000), on="n1"))
    on.lists("n1")
    assert uncounted(on.at(111)) == {NotCounted.OLD: ["n1"]}


def test_a_node_tainted_before_the_last_reset_is_not_counted() -> None:
    """The person who resets the breaker knows of the node."""
    on = Stage(breaker=POLICY)
    on.at(10).sees(node(taint(), name="n1"))
    on.sees(pod(tolerates(5000), on="n1"))
    on.lists("n1")
    on.at(20).order(ControlState(reset_epoch=epoch(15)))
    assert uncounted(on) == {NotCounted.KNOWN: ["n1"]}


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (replace(lost_node("n1", since=5), labels={EXEMPT_LABEL: ""}), NotCounted.EXCLUDED),
        (replace(lost_node("n1", since=5), labels={CONTROL_PLANE_LABEL: ""}), NotCounted.CONTROL_PLANE),
    ],
)
def test_a_node_excluded_from_outages_has_its_reason(lost: Node, reason: NotCounted) -> None:
    """The reason is its label, or its role if the policy excludes the control plane."""
    on = Stage(breaker=replace(POLICY, without_control_plane=True))
    on.at(10).sees(lost)
    on.sees(pod(tolerates(30, UNREACHABLE), on="n1", bound_at=-50))
    assert uncounted(on) == {reason: ["n1"]}


def test_an_undated_taint_found_at_start_is_not_counted() -> None:
    """The taint may be old: it evicts no pod that an old taint would have evicted long ago."""
    on = Stage(breaker=POLICY)
    on.at(10).sees(node(taint(), name="n1", written_at=5))
    on.sees(pod(on="n1", bound_at=7))
    on.lists("n1")
    assert uncounted(on) == {NotCounted.UNDATED: ["n1"]}


def test_a_node_that_was_lost_long_after_the_others_is_not_counted_with_them() -> None:
    """The window does not move while the breaker is open, so the node is not old either."""
    on = Stage(breaker=POLICY)
    on.at(5).sees(lost_node("a1"), lost_node("a2"), replace(node(name="b1"), ready=ready("True")))
    on.sees(*(pod(name=name, uid=name, on=name, bound_at=-50) for name in ("a1", "a2")))
    on.at(10).order(ControlState(latch=Latch(epoch(10), "2 of 3 nodes")))
    on.at(300).sees(lost_node("b1", since=295), pod(name="b1", uid="b1", on="b1", bound_at=-50))
    on.lists("b1")
    assert uncounted(on) == {NotCounted.APART: ["b1"]}
