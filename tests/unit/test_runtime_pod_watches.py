"""Which pods are watched, and when one watch of all replaces those of single nodes."""

import asyncio
from typing import Any

import pytest
from tests.unit.builders import node, pod, taint, tolerates
from tests.unit.runtime_fakes import Body, at, now, refused, running, slow, slow_start, until, virtually

from taint_eviction.core.events import NodeCleared
from taint_eviction.core.facts import NodeGone
from taint_eviction.core.objects import Node, Pod
from taint_eviction.runtime.pod_watches import PodWatches
from taint_eviction.runtime.ports import WatchEnded

ALL = "all bound pods"


def following(**settings: Any) -> tuple[Body, PodWatches]:
    """Make what is tested, with no node known."""
    it = Body()
    return it, PodWatches(it.doors(**settings))


def tainted(number: int) -> list[Node]:
    """Make tainted nodes n0, n1..."""
    return [node(taint(), name=f"n{i}") for i in range(number)]


def clean(number: int) -> list[Node]:
    """Make the same nodes without their taints."""
    return [node(name=f"n{i}") for i in range(number)]


def a_pod(on: str) -> Pod:
    """Make a pod named after its node."""
    return pod(tolerates(600), name=f"on-{on}", uid=f"on-{on}", on=on)


def scopes(*names: str) -> set[str]:
    """Name watches of single nodes."""
    return {f"pods of {name}" for name in names}


def known(it: Body) -> set[str]:
    """Name the pods that have a deadline."""
    return {one.record.pod.ref.uid for one in it.brain.status.pending(it.clock.now())}


@virtually
async def test_a_tainted_node_is_listed_and_watched_at_once() -> None:
    """And no other."""
    it, watches = following()
    it.api.put(a_pod("n0"), a_pod("n1"))
    async with running(watches.run()):
        at(0.3, it.sees, *tainted(1), node(name="n1"))
        await until(0.3)
        assert (it.watcher.open, known(it), watches.listed("n0"), watches.listed("n1")) == (
            scopes("n0"),
            {"on-n0"},
            True,
            False,
        )


@virtually
async def test_a_cleared_node_lingers_and_then_its_pods_are_released() -> None:
    """Watched for a minute more; then nothing of it is kept."""
    it, watches = following(linger_seconds=60.0)
    it.sees(*tainted(1))
    it.api.put(a_pod("n0"))
    async with running(watches.run()):
        await until(10)
        it.sees(*clean(1))
        await until(69)
        assert (it.watcher.open, len(it.brain.pods.known)) == (scopes("n0"), 1)
        await until(71)
        assert (it.watcher.open, it.brain.pods.known, watches.listed("n0")) == (set(), {}, False)


@virtually
async def test_flapping_within_the_linger_costs_no_list() -> None:
    """A taint that comes and goes every half minute: one list, one watch."""
    it, watches = following(linger_seconds=60.0, resync_seconds=3600.0)
    it.api.put(a_pod("n0"))
    for number in range(20):
        at(30 * number + 0.1, it.sees, *(tainted(1) if number % 2 == 0 else clean(1)))
    async with running(watches.run()):
        await until(600)
    assert (len(it.api.sent("LIST n0")), len(it.watcher.starts)) == (1, 1)


@virtually
async def test_a_node_tainted_again_while_it_lingers_is_evicted_from_at_once() -> None:
    """Its pods are known still: the new taint needs no list."""
    it, watches = following()
    it.sees(*tainted(1))
    it.api.put(a_pod("n0"))
    async with running(watches.run()), running(it.driver.run()):
        at(10, it.sees, *clean(1))
        at(20, it.sees, node(taint("k2"), name="n0"))
        await until(20)
        assert it.api.deleted == [(20, "on-n0")]


@virtually
async def test_a_node_tainted_again_after_the_linger_is_listed_anew() -> None:
    """What was released is not known any more."""
    it, watches = following(linger_seconds=60.0)
    it.sees(*tainted(1))
    async with running(watches.run()):
        at(10, it.sees, *clean(1))
        await until(100)
        it.api.put(a_pod("n0"))
        it.live.observe(it.api.facts()[0])
        it.sees(*tainted(1))
        await until(100)
        assert (known(it), len(it.api.sent("LIST n0"))) == ({"on-n0"}, 2)


@virtually
async def test_a_node_that_is_gone_is_released_too() -> None:
    """W12: deleted while tainted, it lingers like a cleared one and leaves nothing behind."""
    it, watches = following(linger_seconds=60.0)
    it.sees(*tainted(1))
    it.api.put(a_pod("n0"))
    async with running(watches.run()):
        await until(10)
        it.live.observe(NodeGone("n0"))
        await until(80)
        assert (it.watcher.open, it.brain.pods.known, it.brain.watched_nodes()) == (set(), {}, frozenset())
        assert len(it.reporter.of(NodeCleared)) == 1


@virtually
async def test_at_the_threshold_one_watch_of_all_pods_replaces_the_single_ones() -> None:
    """It is listed and up before the single ones end; all that was known stays known."""
    it, watches = following(whole_cluster_from=4, resync_seconds=3600.0)
    it.watcher.up_after = 1.0
    it.api.put(*(a_pod(f"n{number}") for number in range(5)))
    it.sees(*tainted(3))
    async with running(watches.run()):
        await until(10)
        assert it.watcher.open == scopes("n0", "n1", "n2")
        it.api.will("LIST pods", slow(5))
        it.sees(*tainted(4))
        await until(15.5)
        assert it.watcher.open == scopes("n0", "n1", "n2") | {ALL}
        await until(18)
        assert (it.watcher.open, known(it)) == ({ALL}, {f"on-n{number}" for number in range(4)})


@virtually
async def test_a_node_tainted_while_all_pods_are_watched_is_listed_but_not_watched_singly() -> None:
    """Its pods are not known: those of clean nodes were not kept."""
    it, watches = following(whole_cluster_from=2)
    it.sees(*tainted(2), node(name="n2"))
    it.api.put(*(a_pod(f"n{number}") for number in range(3)))
    async with running(watches.run()):
        await until(10)
        it.api.will("LIST n2", refused(500))
        it.sees(*tainted(3))
        await until(11)
        assert (it.watcher.open, "on-n2" in known(it), watches.listed("n2")) == ({ALL}, True, True)


@virtually
async def test_the_way_back_begins_below_three_quarters() -> None:
    """Hysteresis: at 3 of 4 nodes all pods stay watched, at 2 single watches return."""
    it, watches = following(whole_cluster_from=4, linger_seconds=1000.0)
    it.sees(*tainted(4))
    async with running(watches.run()):
        await until(5)
        it.sees(*clean(1))
        await until(10)
        assert it.watcher.open == {ALL}
        it.sees(*clean(2))
        await until(15)
        assert it.watcher.open == scopes("n0", "n1", "n2", "n3")


@virtually
async def test_the_watch_of_all_pods_ends_after_the_single_ones_are_up() -> None:
    """No moment without a watch."""
    it, watches = following(whole_cluster_from=2, linger_seconds=5.0)
    it.sees(*tainted(2))
    async with running(watches.run()):
        await until(5)
        it.watcher.up_after = 3.0
        it.sees(*clean(1))
        await until(7.5)
        assert ALL in it.watcher.open
        await until(12)
        assert it.watcher.open == scopes("n1")


@virtually
async def test_when_all_nodes_are_clean_nothing_is_watched() -> None:
    """From whole to nothing: the watch of all pods ends as well."""
    it, watches = following(whole_cluster_from=2, linger_seconds=5.0)
    it.sees(*tainted(3))
    async with running(watches.run()):
        await until(5)
        it.sees(*clean(3))
        await until(20)
        assert (it.watcher.open, watches.longest_silence_seconds()) == (set(), 0)


@virtually
async def test_up_and_down_and_up_again_in_a_hurry_ends_in_order() -> None:
    """The threshold crossed every half second while watches take seconds to come up and to end."""
    it, watches = following(whole_cluster_from=4, linger_seconds=2.0)
    it.watcher.up_after, it.watcher.closing_seconds = 1.0, 2.0
    it.api.put(*(a_pod(f"n{number}") for number in range(6)))
    for number in range(40):
        at(number / 2, it.sees, *(tainted(5) if number % 2 else clean(5)))
    at(30, it.sees, *tainted(2), *clean(6)[2:])
    async with running(watches.run()):
        await until(60)
        assert (it.watcher.open, known(it)) == (scopes("n0", "n1"), {"on-n0", "on-n1"})


@virtually
async def test_silence_is_that_of_the_quietest_watch() -> None:
    """One frozen watch among many shows."""
    it, watches = following()
    it.sees(*tainted(2))
    async with running(watches.run()):
        for seconds in range(1, 100):
            await until(seconds)
            it.watcher.listeners["pods of n1"].on_heard()
        assert watches.longest_silence_seconds() == 99
        it.watcher.listeners["pods of n0"].on_heard()
        assert watches.longest_silence_seconds() == 0


@virtually
async def test_a_watch_that_ends_is_nobody_elses_trouble() -> None:
    """The others go on, and it comes back."""
    it, watches = following()
    it.sees(*tainted(2))
    async with running(watches.run()):
        await until(5)
        it.watcher.end("pods of n0", WatchEnded("cut"))
        await until(5)
        assert it.watcher.open == scopes("n1")
        await until(6)
        assert it.watcher.open == scopes("n0", "n1")


@virtually
async def test_a_watch_that_ends_by_cancellation_of_its_own_comes_back() -> None:
    """Cancelled by somebody inside it, not by us: the node is still tainted and must still be watched."""
    it, watches = following()
    it.sees(*tainted(1))
    async with running(watches.run()):
        await until(5)
        it.watcher.end("pods of n0", asyncio.CancelledError())
        await until(10)
        assert it.watcher.open == scopes("n0")


@virtually
async def test_a_bug_in_a_watch_ends_it_visibly() -> None:
    """Ours: raised at once, the other watches closed."""
    it, watches = following()
    it.sees(*tainted(3))
    task = asyncio.create_task(watches.run())
    await until(5)
    it.watcher.end("pods of n1", ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        await task
    assert (now(), it.watcher.open) == (5, set())


@virtually
@pytest.mark.parametrize("cancelled_at", [0.5, 5.0, 10.1, 11.5, 20.5, 90.5])
async def test_cancelling_leaves_no_task_behind(cancelled_at: float) -> None:
    """While watches come up, while they change, and while those that were let go are still closing."""
    it, watches = following(whole_cluster_from=3, linger_seconds=60.0)
    it.watcher.up_after = it.watcher.closing_seconds = 1.0
    it.sees(*tainted(2))
    at(10, it.sees, *tainted(5))
    at(20, it.sees, *clean(5)[:4])
    before = asyncio.all_tasks()
    async with running(watches.run()):
        await until(cancelled_at)
    await slow_start()
    assert asyncio.all_tasks() == before
    assert it.watcher.open == set()


@virtually
async def test_cancelling_waits_for_watches_that_were_let_go_and_are_still_closing() -> None:
    """Released a moment ago, an embedded Kopf needs seconds to end: it is ours until it has."""
    it, watches = following(linger_seconds=1.0)
    it.sees(*tainted(1))
    it.watcher.closing_seconds = 5.0
    async with running(watches.run()):
        at(10, it.sees, *clean(1))
        await until(12.5)
        assert it.brain.watched_nodes() == frozenset()
    assert it.watcher.open == set()


@virtually
async def test_the_way_back_does_not_make_single_watches_look_silent_since_long_ago() -> None:
    """Back from an hour with one watch of all pods: a single watch is silent since it was started again."""
    it, watches = following(whole_cluster_from=2, linger_seconds=1e6)
    it.sees(*tainted(2))
    async with running(watches.run()):
        await until(3600)
        it.watcher.listeners[ALL].on_heard()
        it.api.ever.update({"LIST n0": slow(5), "LIST n1": slow(5)})
        it.sees(*clean(1))
        await until(3602)
        assert watches.longest_silence_seconds() <= 2


@virtually
async def test_forty_nodes_at_once_start_a_few_at_a_time() -> None:
    """All are listed soon; starting their watches takes turns."""
    it, watches = following(starts_at_once=2)
    it.watcher.up_after = 0.5
    it.api.put(*(a_pod(f"n{number}") for number in range(40)))
    async with running(watches.run()):
        at(1, it.sees, *tainted(40))
        await until(1)
        assert (len(known(it)), len(it.watcher.starts)) == (40, 2)
        await until(11)
        assert len(it.watcher.starts) == 40


@virtually
async def test_newly_tainted_nodes_are_watched_by_themselves_while_the_watch_of_all_pods_fails() -> None:
    """Otherwise a pod that is bound after the one list of its node would not be seen until that watch is up."""
    it, watches = following(whole_cluster_from=2)
    it.api.ever["LIST pods"] = refused(500)
    it.sees(*tainted(2))
    async with running(watches.run()):
        await until(5)
        assert it.watcher.open == set()
        await until(12)
        assert it.watcher.open == scopes("n0", "n1")
        it.api.ever.clear()
        await until(30)
        assert it.watcher.open == {ALL}


@virtually
async def test_nodes_are_watched_by_themselves_while_the_watch_of_all_pods_is_not_up_again() -> None:
    """Also those that were tainted while it was up: a pod that is bound to one of them later would not be seen."""
    it, watches = following(whole_cluster_from=2)
    it.sees(*tainted(2))
    async with running(watches.run()):
        await until(5)
        assert it.watcher.open == {ALL}
        it.api.ever["LIST pods"] = refused(500)
        it.watcher.end(ALL, WatchEnded("cut"))
        await until(60)
        assert it.watcher.open == set()
        await until(70)
        assert it.watcher.open == scopes("n0", "n1")
        it.api.ever.clear()
        await until(110)
        assert it.watcher.open == {ALL}
