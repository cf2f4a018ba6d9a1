"""When the controller reports a DaemonSet whose pods are evicted, recreated and evicted again."""

from dataclasses import replace

import pytest
from tests.unit.builders import Stage, moment, node, pod, ref, taint

from taint_eviction.core import warnings
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Done, Event, EvictionLoop, Failed
from taint_eviction.core.facts import NodeSeen, PodSeen
from taint_eviction.core.objects import ControllerRef
from taint_eviction.core.warnings import EvictionLoops

AGENTS = ControllerRef("DaemonSet", "agents", "ds-1")


def evict_at(loops: EvictionLoops, *instants: float, controller: ControllerRef | None = AGENTS) -> list[float]:
    """Note evictions at these instants; list those that showed a loop."""
    return [at for at in instants if loops.evicted("default", controller, "n1", moment(at))]


@pytest.mark.parametrize(
    ("instants", "told"),
    [
        ((0, 300, 600), [600]),
        ((0, 300.1, 600.1), []),
        ((0, 1, 2, 3, 4), [2]),
        ((0, 301, 602, 603), [603]),
        ((0, 1, 2, 602, 603, 604), [2]),
        ((0, 1, 2, 602.1, 603, 604), [2, 604]),
    ],
)
def test_the_third_eviction_within_600_seconds_is_reported_once(instants: tuple[float, ...], told: list[float]) -> None:
    """A loop is reported again only after 600 seconds without an eviction."""
    assert evict_at(EvictionLoops(), *instants) == told


@pytest.mark.parametrize("controller", [None, ControllerRef("StatefulSet", "db", "s-1")])
def test_only_daemon_sets_recreate_their_pods_on_the_same_node(controller: ControllerRef | None) -> None:
    """For pods of other controllers, the scheduler chooses the node."""
    assert evict_at(EvictionLoops(), 0, 1, 2, 3, controller=controller) == []


def test_pods_of_another_namespace_show_no_loop_of_a_daemon_set() -> None:
    """Their owner may name any DaemonSet as their controller."""
    loops = EvictionLoops()
    assert evict_at(loops, 0, 1) == []
    assert not loops.evicted("others", AGENTS, "n1", moment(2))
    assert evict_at(loops, 3) == [3]


def test_loops_are_counted_until_they_have_ended() -> None:
    """A loop has ended after 600 seconds without an eviction."""
    loops = EvictionLoops()
    evict_at(loops, 0, 1)
    assert loops.count(moment(1)) == 0
    evict_at(loops, 2, 50)
    assert [loops.count(moment(at)) for at in (50, 650, 651)] == [1, 1, 0]


def test_the_number_of_remembered_pairs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair whose latest eviction is the oldest is forgotten first."""
    monkeypatch.setattr(warnings, "_MAX_REMEMBERED", 2)
    loops = EvictionLoops()
    for second, uid in enumerate("abaca"):
        loops.evicted("default", ControllerRef("DaemonSet", uid, uid), "n1", moment(second))
    assert loops.count(moment(9)) == 1
    assert not loops.evicted("default", ControllerRef("DaemonSet", "b", "b"), "n1", moment(9))


def end(stage: Stage, uid: str) -> list[Event]:
    """Observe a pod of the DaemonSet on the tainted node, and evict it at once."""
    stage.sees(replace(pod(uid=uid), controller=AGENTS))
    work = stage.take_eviction()
    stage.send(work)
    return stage.finish(work, Done())


def test_a_loop_names_its_daemon_set_and_the_taint_that_evicts() -> None:
    """The effect also names the pod that was evicted last."""
    stage = Stage()
    stage.sees(node(taint("k1")))
    first, second, third = (end(stage, uid) for uid in "abc")
    assert (len(first), len(second), third[1:]) == (1, 1, [EvictionLoop(ref(uid="c"), "n1", AGENTS, taint("k1"))])
    assert stage.brain.status.loop_count(moment(0)) == 1


def test_a_deletion_whose_answer_was_lost_counts_once_it_is_seen() -> None:
    """The pod is seen terminating, and this process has requested that."""
    stage = Stage()
    stage.sees(node(taint("k1")))
    end(stage, "a")
    end(stage, "b")
    stage.sees(replace(pod(uid="c"), controller=AGENTS))
    work = stage.take_eviction()
    stage.send(work)
    stage.finish(work, Failed("no answer", 1))
    effects = stage.sees(replace(pod(uid="c", terminating=True), controller=AGENTS))
    assert EvictionLoop(ref(uid="c"), "n1", AGENTS, taint("k1")) in effects


def test_a_dry_run_reports_no_loop() -> None:
    """No pod is recreated in a dry run; a taint that comes and goes would count the same pod again and again."""
    brain = Controller(dry_run=True)
    for version, second in enumerate((0.0, 1.0, 2.0)):
        brain.observe(NodeSeen(node(taint(), version=2 * version + 1)), moment(second))
        brain.observe(PodSeen(replace(pod(), controller=AGENTS)), moment(second))
        [work] = brain.attempts.take_due(moment(second), 1, 0)
        assert len(brain.attempts.finish(work, Done(), moment(second))) == 1
        brain.observe(NodeSeen(node(version=2 * version + 2)), moment(second))


def test_as_many_pairs_are_remembered_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a third pair comes, only one pair is forgotten."""
    monkeypatch.setattr(warnings, "_MAX_REMEMBERED", 2)
    loops = EvictionLoops()
    for second, uid in enumerate("abbbcccaaa"):
        loops.evicted("default", ControllerRef("DaemonSet", uid, uid), "n1", moment(second))
    assert loops.count(moment(10)) == 2
