"""One watch that never gives up, and leaves nothing behind when it is no longer needed."""

import asyncio
import itertools

import pytest
from tests.unit.builders import node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import HANGS, Body, at, now, refused, running, slow, slow_start, until, virtually

from taint_eviction.core.facts import NodeSeen, PodSeen
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchEnded, WatchListener, WatchScope
from taint_eviction.runtime.supervised_watch import SupervisedWatch, WatchPorts

NODES = "nodes"


def nodes_watch(it: Body, doors: WatchPorts | None = None) -> SupervisedWatch:
    """Make a watch of all nodes."""
    return SupervisedWatch(NodesScope(), doors or it.doors())


def lists(it: Body) -> list[float]:
    """List when nodes were listed."""
    return [instant for instant, _ in it.api.sent("LIST nodes")]


def starts(it: Body) -> list[float]:
    """List when a watch was started."""
    return [instant for instant, _ in it.watcher.starts]


@virtually
async def test_lists_before_it_watches() -> None:
    """W20: arming does not wait for the watch, and the watch brings only what comes after."""
    it = Body()
    it.api.put(node(taint()))
    it.api.will("LIST nodes", slow(2))
    watch = nodes_watch(it)
    async with running(watch.run()):
        await until(1)
        assert (watch.listed.is_set(), starts(it)) == (False, [])
        await until(2)
        assert (watch.listed.is_set(), watch.watching.is_set(), starts(it)) == (True, True, [2])
        assert it.brain.tainted_nodes() == {"n1"}


@virtually
async def test_the_watch_begins_at_the_version_of_the_list() -> None:
    """So that it need not list again; behind each new list at that one's."""
    it = Body()
    it.api.put(node())
    first = it.api.version
    async with running(nodes_watch(it).run()):
        await until(1)
        it.api.put(node(taint()))
        it.watcher.end(NODES, WatchEnded("410"))
        await until(2)
    assert it.watcher.since == [first, it.api.version]
    assert first < it.api.version


@virtually
async def test_what_the_watch_brings_is_observed() -> None:
    """An object becomes a fact; one that can't be read is passed over."""
    it = Body()
    watch = nodes_watch(it)
    async with running(watch.run()):
        await until(1)
        it.watcher.listeners[NODES].on_event("MODIFIED", {"fact": None})
        it.watcher.report(NODES, NodeSeen(node(taint())), NodeSeen(node(taint())))
        assert it.brain.tainted_nodes() == {"n1"}


@virtually
@pytest.mark.parametrize("status", [401, 403, 410, 429, 500, 503])
async def test_a_list_that_fails_is_tried_again_with_growing_pauses(status: int) -> None:
    """W21: whatever the status; no watch is started meanwhile."""
    it = Body()
    it.api.will("LIST nodes", *[refused(status)] * 12)
    async with running(nodes_watch(it).run()):
        await until(200)
    pauses = [later - earlier for earlier, later in itertools.pairwise(lists(it))]
    assert all(0.1 * 2**i <= pause <= 0.2 * 2**i + 1e-6 for i, pause in enumerate(pauses[:6]))
    assert all(7.5 <= pause <= 15 for pause in pauses[7:])
    assert starts(it) == [lists(it)[12]]


@virtually
async def test_a_watch_that_ends_is_listed_and_watched_again() -> None:
    """W21: after any gap the state is what a fresh list says, what is gone included."""
    it = Body()
    it.api.put(node(taint()), node(taint(), name="n2"))
    watch = nodes_watch(it)
    async with running(watch.run()):
        await until(100)
        it.api.remove("n2")
        it.watcher.end(NODES, WatchEnded("410 Gone"))
        await until(100)
        assert (watch.listed.is_set(), watch.watching.is_set()) == (True, False)
        await until(100.2)
        assert (set(it.brain.tainted_nodes()), watch.watching.is_set()) == ({"n1"}, True)
        assert len(lists(it)) == len(starts(it)) == 2


@virtually
async def test_a_watch_that_never_comes_up_is_tried_again_with_growing_pauses() -> None:
    """It fails before it has listed: a bounded number of tries."""
    it = Body()
    watch = nodes_watch(it)

    async def broken(scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        it.watcher.starts.append((now(), NODES))
        raise WatchEnded("403 Forbidden")

    it.watcher.watch = broken  # type: ignore[method-assign]
    async with running(watch.run()):
        await until(600)
    assert 40 < len(starts(it)) < 90


@virtually
async def test_a_watch_that_lists_and_then_breaks_at_once_is_tried_again_with_growing_pauses() -> None:
    """Rights to list but not to watch: each try costs two lists, so there must not be five a second indefinitely."""
    it = Body()
    it.watcher.ends_at_once = WatchEnded("watch: 403 Forbidden")
    async with running(nodes_watch(it).run()):
        await until(600)
    assert len(starts(it)) < 90


@virtually
async def test_a_watch_that_has_been_up_for_long_is_restarted_at_once() -> None:
    """The pauses begin anew: trouble of yesterday does not delay today's restart."""
    it = Body()
    it.api.will("LIST nodes", *[refused(500)] * 10)
    async with running(nodes_watch(it).run()):
        await until(300)
        it.watcher.end(NODES, WatchEnded("cut"))
        await until(300.2)
        assert len(starts(it)) == 2


@virtually
async def test_a_watch_that_ends_by_cancellation_of_its_own_is_started_again() -> None:
    """Somebody inside the watch was cancelled, not we: a watch that is silently gone would never come back."""
    it = Body()
    watch = nodes_watch(it)
    async with running(watch.run()) as task:
        await until(1)
        it.watcher.end(NODES, asyncio.CancelledError())
        await until(3)
        assert (task.done(), watch.watching.is_set(), len(starts(it))) == (False, True, 2)


@virtually
async def test_a_watch_that_returns_is_started_again() -> None:
    """It should not end without a reason, but if it does, it is no reason to stay blind."""
    it = Body()

    async def returns(scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        it.watcher.starts.append((now(), NODES))

    it.watcher.watch = returns  # type: ignore[method-assign]
    async with running(nodes_watch(it).run()):
        await until(2)
        assert len(starts(it)) > 2


@virtually
async def test_lists_again_when_the_watch_has_listed_again() -> None:
    """W21: Kopf lists by itself after a 410 and does not tell what vanished: our list does."""
    it = Body()
    it.api.put(node(taint()), node(taint(), name="n2"))
    async with running(nodes_watch(it).run()):
        await until(50)
        it.api.remove("n2")
        it.watcher.listeners[NODES].on_listed()
        await until(50)
        assert (lists(it), set(it.brain.tainted_nodes()), starts(it)) == ([0.0, 50.0], {"n1"}, [0.0])


@virtually
async def test_a_second_gap_during_the_list_after_the_first_is_listed_too() -> None:
    """What the running list no longer saw is seen by the next."""
    it = Body()
    async with running(nodes_watch(it).run()):
        await until(50)
        it.api.ever["LIST nodes"] = slow(2)
        it.watcher.listeners[NODES].on_listed()
        at(51, it.watcher.listeners[NODES].on_listed)
        await until(60)
        assert lists(it) == [0, 50, 52]


@virtually
async def test_only_a_list_after_a_gap_moves_a_start() -> None:
    """The list before a watch, and that behind a list of its own; not the one every few minutes, nor one after that."""
    it = Body()
    it.api.put(node(taint(), written_at=-100))
    watch = nodes_watch(it, it.doors(resync_seconds=100.0))
    starts_seen = []
    async with running(watch.run()):
        await until(1)
        it.api.put(node(taint(), written_at=0))
        for seconds, happens in (
            (120, lambda: None),
            (130, it.watcher.listeners[NODES].on_listed),
            (131, lambda: it.api.put(node(taint(), written_at=130))),
            (300, lambda: it.watcher.end(NODES, WatchEnded("cut"))),
            (310, lambda: None),
        ):
            at(seconds, happens)
            await until(seconds + 1)
            starts_seen.append(it.brain.nodes.known["n1"].sightings[taint()].start_at)
    assert starts_seen == pytest.approx([-99, 1, 1, 131, 131])


@virtually
async def test_a_failed_list_after_a_gap_is_tried_again_as_one() -> None:
    """A taint that was set again in the gap is not taken for the one before it by the next list."""
    it = Body()
    it.api.put(node(taint(), written_at=-100))
    async with running(nodes_watch(it).run()):
        await until(20)
        it.api.put(node(taint(), written_at=10))
        it.api.will("LIST nodes", refused(503))
        it.watcher.listeners[NODES].on_listed()
        await until(60)
        assert it.brain.nodes.known["n1"].sightings[taint()].start_at == pytest.approx(11)


@virtually
async def test_the_brain_hears_how_far_the_watch_of_nodes_has_come() -> None:
    """That it was opened says nothing of the nodes; how far a watch of pods has come neither."""
    it = Body()
    it.api.put(node(), pod())
    it.watcher.up_after = 5.0
    async with running(nodes_watch(it).run()), running(SupervisedWatch(PodsScope("n1"), it.doors()).run()):
        await until(10)
        it.watcher.listeners["pods of n1"].on_progress(900)
        it.watcher.report(NODES, NodeSeen(node(taint(), written_at=-60)))
        assert it.brain.nodes.known["n1"].sightings[taint()].start_at == 0
        it.watcher.report(NODES, NodeSeen(node()))
        it.watcher.listeners[NODES].on_progress(900)
        assert it.brain.nodes.knows("n1", "uid-n1", 900)
        await until(12)
        it.watcher.report(NODES, NodeSeen(node(taint(), written_at=-60)))
        assert it.brain.nodes.known["n1"].sightings[taint()].start_at == 10


@virtually
async def test_a_pod_that_the_watch_adds_was_bound_since_it_was_last_heard() -> None:
    """Or since the list; but not where it is told once more of what it had come past, nor of a pod that has changed."""
    it = Body()
    it.sees(node(taint()))
    listed = it.api.version

    def added(name: str, version: int) -> float:
        body = {"fact": PodSeen(pod(tolerates(9), name=name, uid=name, bound_at=-3600, version=version))}
        it.watcher.listeners["pods of n1"].on_event("ADDED", body)
        bound = it.brain.pods.known[ref(name).key].bound
        assert bound is not None
        return bound.start_at

    async with running(SupervisedWatch(PodsScope("n1"), it.doors()).run()):
        await until(5)
        assert [added("a", listed + 1), added("b", listed)] == pytest.approx([0, -3599])
        it.watcher.listeners["pods of n1"].on_progress(listed + 1)
        await until(10)
        assert [added("c", listed + 2), added("d", listed + 1)] == pytest.approx([5, -3599])
        changed = PodSeen(pod(tolerates(9), name="e", uid="e", bound_at=-3600, version=listed + 3))
        it.watcher.report("pods of n1", changed)
        bound = it.brain.pods.known[ref("e").key].bound
        assert bound is not None
        assert bound.start_at == pytest.approx(-3599)


@virtually
async def test_lists_again_every_few_minutes() -> None:
    """W21: the resync interval, give or take a tenth, in case the watch lost something."""
    it = Body()
    async with running(nodes_watch(it, it.doors(resync_seconds=600.0)).run()):
        await until(6000)
    pauses = [later - earlier for earlier, later in itertools.pairwise(lists(it))]
    assert len(pauses) >= 9
    assert all(540 <= pause <= 660 for pause in pauses)
    assert starts(it) == [0]


@virtually
@pytest.mark.parametrize("after_gap", [False, True])
async def test_a_list_that_lacks_what_is_known_is_followed_by_another_one(after_gap: bool) -> None:
    """An API server, or a proxy, may leave a pod out of one answer; it must not stay for ten minutes for that."""
    it = Body()
    left_out = pod(tolerates(1000))
    it.sees(node(taint()), left_out)
    async with running(SupervisedWatch(PodsScope("n1"), it.doors(resync_seconds=600.0)).run()):
        await until(10)
        it.api.remove(ref().key)
        if after_gap:
            it.watcher.end("pods of n1", WatchEnded("410 Gone"))
        else:
            it.watcher.listeners["pods of n1"].on_listed()
        await until(12)
        assert it.brain.pods.find(ref()) is None
        it.api.put(left_out)
        await until(47)
        assert it.brain.pods.find(ref()) is not None
        await until(400)
    assert len(it.api.sent("LIST n1")) == 3


@virtually
async def test_one_failed_periodic_list_does_not_cost_a_healthy_watch() -> None:
    """The API server refuses a single list: the watch goes on, and the list is tried again soon."""
    it = Body()
    async with running(nodes_watch(it, it.doors(resync_seconds=600.0)).run()):
        await until(500)
        it.api.will("LIST nodes", refused(429))
        await until(700)
        assert len(lists(it)) == 3
        assert starts(it) == [0]


@virtually
async def test_a_watch_that_brings_nothing_is_followed_by_a_list_and_goes_on_where_nothing_changed() -> None:
    """An idle API server sends no bookmark: the stream looks like one that passes nothing on, and costs lists."""
    it = Body()
    it.api.put(node(taint()))
    it.watcher.bookmarks = False
    async with running(nodes_watch(it, it.doors(resync_seconds=3600.0)).run()):
        await until(1)
        for instant in range(10, 240, 20):  # A stream that opens is alive, and says nothing.
            at(instant, it.watcher.listeners[NODES].on_heard)
        await until(245)
    assert (lists(it), starts(it)) == ([*range(0, 241, 20)], [0])


@virtually
@pytest.mark.parametrize("resync_seconds", [3600.0, 40.0])
async def test_a_watch_that_does_not_bring_what_a_list_shows_ends(resync_seconds: float) -> None:
    """A proxy keeps back what it sends. A list after the gap shows what one beside a watch leaves to the watch."""
    it = Body()
    it.api.put(node(taint()))
    it.watcher.bookmarks = False
    async with running(nodes_watch(it, it.doors(resync_seconds=resync_seconds)).run()):
        await until(30)
        it.api.put(node(taint(), taint("other")))
        await until(84)
        assert (len(it.brain.nodes.known["n1"].sightings), len(starts(it))) == (1, 1)
        await until(130)
        assert (len(it.brain.nodes.known["n1"].sightings), len(starts(it))) == (2, 2)


@virtually
async def test_a_watch_whose_bookmarks_repeat_a_version_ends_where_a_list_shows_more() -> None:
    """An API server that hears nothing from etcd sends bookmarks on, each with the version that its cache has."""
    it = Body()
    it.sees(node(taint()))
    it.watcher.bookmarks = False
    async with running(SupervisedWatch(PodsScope("n1"), it.doors(resync_seconds=3600.0)).run()):
        await until(1)
        for instant in range(20, 300, 60):
            at(instant, it.watcher.listeners["pods of n1"].on_progress, it.api.version)
        at(30, it.api.put, pod())
        await until(79)
        assert it.brain.pods.find(ref()) is None
        await until(90)
        assert it.brain.pods.find(ref()) is not None
        assert len(starts(it)) == 2


@virtually
async def test_a_watch_that_brings_what_a_list_shows_a_little_later_goes_on() -> None:
    """The list overtakes the event; an event that tells nothing, as that of a heartbeat, counts as well."""
    it = Body()
    it.api.put(node())
    it.watcher.bookmarks = False
    async with running(nodes_watch(it, it.doors(resync_seconds=3600.0)).run()):
        at(79, it.api.put, node())
        at(84, lambda: it.watcher.listeners[NODES].on_progress(it.api.version))
        await until(170)
    assert (lists(it), starts(it)) == ([0, 20, 40, 60, 80, 104, 124, 144, 164], [0])


@virtually
async def test_a_watch_of_a_higher_version_than_a_list_ends() -> None:
    """It began at a version that is still to come, as after a restored backup, and brings nothing until then."""
    it = Body()
    it.api.put(node())
    it.watcher.bookmarks = False
    async with running(nodes_watch(it, it.doors(resync_seconds=3600.0)).run()):
        await until(1)
        it.watcher.listeners[NODES].on_progress(it.api.version)
        await until(30)
        assert len(starts(it)) == 1
        it.watcher.listeners[NODES].on_progress(it.api.version + 1000)
        it.api.put(node(taint()))
        await until(60)
        assert it.brain.tainted_nodes() == {"n1"}
        assert len(starts(it)) == 2
        assert it.watcher.since[-1] == it.api.version


@virtually
async def test_silence_is_counted_since_the_last_word() -> None:
    """Our own list after the first does not make a frozen watch look alive."""
    it = Body()
    watch = nodes_watch(it, it.doors(resync_seconds=50.0))
    async with running(watch.run()):
        await until(10)
        assert watch.silent_seconds() == 10
        it.watcher.listeners[NODES].on_heard()
        await until(100)
        assert (watch.silent_seconds(), len(lists(it)) > 1) == (90, True)


@virtually
async def test_a_watch_that_is_down_for_long_is_silent_for_long() -> None:
    """W20: lists that succeed do not hide that the watch has not been up for minutes."""
    it = Body()
    watch = nodes_watch(it)

    async def broken(scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        raise WatchEnded("403 Forbidden")

    async with running(watch.run()):
        await until(10)
        it.watcher.watch = broken  # type: ignore[method-assign]
        it.watcher.end(NODES, WatchEnded("cut"))
        await until(310)
        assert watch.silent_seconds() > 180


@virtually
@pytest.mark.parametrize("up_after", [1.0, None])
@pytest.mark.parametrize("cancelled_at", [0.5, 3.0, 20.0])
async def test_cancelling_leaves_no_task_behind(up_after: float | None, cancelled_at: float) -> None:
    """While it comes up, while it is up, and while it never does."""
    it = Body()
    it.watcher.up_after = up_after
    before = asyncio.all_tasks()
    async with running(nodes_watch(it).run()):
        await until(cancelled_at)
    assert it.watcher.open == set()
    await slow_start()
    assert asyncio.all_tasks() == before


@virtually
async def test_cancelling_waits_for_the_watch_to_close() -> None:
    """An embedded Kopf takes a second to end: it has ended when the task has."""
    it = Body()
    it.watcher.closing_seconds = 1.0
    async with running(nodes_watch(it).run()):
        await until(5)
    assert (now(), it.watcher.open) == (6, set())


@virtually
async def test_a_bug_in_the_watch_or_in_what_it_tells_ends_it_visibly() -> None:
    """Ours, not the world's: raised as it is."""
    it = Body()
    task = asyncio.create_task(nodes_watch(it).run())
    await until(1)
    it.watcher.end(NODES, ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        await task
    assert now() == 1


@virtually
async def test_many_watches_of_pods_that_fail_alike_need_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """An API server that is away ends the watches of all nodes' pods again and again; the watch of nodes is one."""
    it = Body()
    doors = it.doors()
    for number in range(100):
        it.api.ever[f"LIST n{number}"] = refused(503)
    it.api.ever["LIST nodes"] = refused(503)
    watches = [nodes_watch(it, doors), *(SupervisedWatch(PodsScope(f"n{number}"), doors) for number in range(100))]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch.run()) for watch in watches]
        await until(180)
        for task in tasks:
            task.cancel()
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    of_nodes = [text for text in warnings if text.startswith("the watch of nodes")]
    assert len(of_nodes) > 12
    assert len(warnings) - len(of_nodes) == 30
    assert sum("lines about other nodes' pods were held back" in text for text in warnings) == 2


@virtually
async def test_few_watches_start_at_a_time() -> None:
    """Starting is dear: with two turns, ten watches that need an eighth of a second each take five eighths."""
    it = Body()
    it.watcher.up_after = 0.125
    doors = it.doors(starts_at_once=2)
    watches = [SupervisedWatch(PodsScope(f"n{number}"), doors) for number in range(10)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch.run()) for watch in watches]
        await until(20)
        for task in tasks:
            task.cancel()
    assert sorted(starts(it)) == [0, 0, 0.125, 0.125, 0.25, 0.25, 0.375, 0.375, 0.5, 0.5]


@virtually
async def test_watches_that_never_come_up_give_up_their_turn() -> None:
    """Two that hang hold up the third by no more than a moment."""
    it = Body()
    it.watcher.up_after = None
    doors = it.doors(starts_at_once=2)
    third = SupervisedWatch(PodsScope("n3"), doors)
    hanging = [asyncio.create_task(SupervisedWatch(PodsScope(name), doors).run()) for name in ("n1", "n2")]
    await until(0.1)
    it.watcher.up_after = 0.0
    async with running(third.run()):
        await until(0.25)
        assert third.watching.is_set()
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)


@virtually
async def test_listing_once_lists_until_it_has_succeeded_and_watches_nothing() -> None:
    """For nodes that the watch of all pods covers."""
    it = Body()
    it.sees(node(taint()))
    it.api.put(pod(tolerates(60)))
    it.api.will("LIST n1", *[refused(500)] * 3)
    watch = SupervisedWatch(PodsScope("n1"), it.doors())
    await watch.list_once()
    await watch.list_once()
    assert (len(it.api.sent("LIST n1")), watch.listed.is_set(), starts(it)) == (4, True, [])
    assert [one.record.pod.ref.uid for one in it.brain.status.pending(it.clock.now())] == ["a"]


@virtually
async def test_a_list_that_hangs_can_be_cancelled() -> None:
    """Nothing is listed, and nothing is left."""
    it = Body()
    it.api.ever["LIST nodes"] = HANGS
    watch = nodes_watch(it)
    async with running(watch.run()):
        await until(100)
    assert watch.listed.is_set() is False


@virtually
async def test_facts_told_twice_or_out_of_order_change_nothing() -> None:
    """A watch that repeats itself: the deadline is the first one's."""
    it = Body()
    it.api.put(node(taint()), pod(tolerates(60)))
    doors = it.doors()
    async with running(nodes_watch(it, doors).run()), running(SupervisedWatch(PodsScope("n1"), doors).run()):
        await until(5)
        for _ in range(3):
            it.watcher.report("pods of n1", PodSeen(it.api.pods[pod().ref.key]), PodSeen(pod(version=1)))
        [one] = it.brain.status.pending(it.clock.now())
        assert one.decision.fire_at == 60
