"""The whole body, and what it says of itself."""

import asyncio
from typing import Any

import pytest
from tests.unit.builders import node, pod, taint, tolerates
from tests.unit.runtime_fakes import Body, at, now, refused, running, slow, slow_start, until, virtually

from taint_eviction.core.facts import NodeSeen
from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.ports import WatchEnded


def engine(it: Body, **settings: Any) -> Engine:
    """Make what is tested."""
    return Engine(it.live, it.doors(**settings), it.driver)


@virtually
async def test_from_nothing_to_the_first_eviction() -> None:
    """W20: alone, with no other controller's help: lists nodes, then pods, and evicts in time."""
    it = Body()
    it.api.put(node(taint()), node(name="n2"), pod(tolerates(30)), pod(name="x", uid="x", on="n2"))
    async with running(engine(it).run()):
        await until(60)
    assert it.api.deleted == [(30, "a")]


@virtually
async def test_what_a_watch_brings_is_acted_on_at_once() -> None:
    """Taint seen: its pods are listed and leave in the same instant."""
    it = Body()
    it.api.put(node(), pod())
    async with running(engine(it).run()):
        await until(5)
        it.api.put(node(taint()))
        it.watcher.report("nodes", NodeSeen(it.api.nodes["n1"]))
        await until(5)
        assert it.api.deleted == [(5, "a")]


@virtually
async def test_readiness_says_what_is_missing() -> None:
    """W20: nodes first, then the pods of the nodes that were tainted then."""
    it = Body()
    it.api.put(node(taint()))
    it.api.will("LIST nodes", slow(1))
    it.api.will("LIST n1", slow(1))
    whole = engine(it)
    assert whole.readiness() == (False, "the nodes have not been listed yet")
    async with running(whole.run()):
        await until(1)
        assert whole.readiness() == (False, "the pods of some tainted nodes have not been listed yet")
        await until(2)
        assert (whole.synced(), whole.readiness()) == (True, (True, "ok"))


@virtually
async def test_a_cluster_without_taints_is_ready_once_its_nodes_are_listed() -> None:
    """Nothing to wait for."""
    it = Body()
    it.api.put(node())
    whole = engine(it)
    async with running(whole.run()):
        await until(0)
        assert whole.readiness() == (True, "ok")


@virtually
async def test_a_newly_tainted_node_does_not_take_readiness_back() -> None:
    """W20: readiness is about the nodes tainted at the start; what comes later is work, not a lack."""
    it = Body()
    it.api.put(node(taint()), node(name="n2"))
    it.api.ever["LIST n2"] = refused(500)
    whole = engine(it)
    async with running(whole.run()):
        await until(5)
        it.watcher.report("nodes", NodeSeen(node(taint(), name="n2", version=1000)))
        await until(10)
        assert (whole.synced(), whole.readiness()) == (True, (True, "ok"))


@virtually
async def test_a_node_that_is_cleared_before_its_pods_were_listed_is_not_waited_for() -> None:
    """Its list may fail indefinitely: it does not matter any more."""
    it = Body()
    it.api.put(node(taint()))
    it.api.ever["LIST n1"] = refused(403)
    whole = engine(it, linger_seconds=5.0)
    async with running(whole.run()):
        await until(5)
        assert whole.synced() is False
        it.watcher.report("nodes", NodeSeen(node(version=1000)))
        await until(5)
        assert whole.synced() is True


@virtually
@pytest.mark.parametrize(("silent", "kind"), [("nodes", "nodes"), ("pods of n1", "pods")])
async def test_a_silent_watch_makes_it_not_ready(silent: str, kind: str) -> None:
    """W21: bookmarks come about once a minute; three minutes without a word, and the view may be stale."""
    it = Body()
    it.api.put(node(taint()))
    whole = engine(it, stale_after_seconds=180.0)
    async with running(whole.run()):
        await until(0)
        [loud] = it.watcher.listeners.keys() - {silent}
        for seconds in range(10, 201, 10):
            at(seconds, it.watcher.listeners[loud].on_heard)
        await until(180)
        assert whole.readiness() == (True, "ok")
        await until(181)
        assert whole.readiness() == (False, f"the watch of {kind} has been silent for 181 s")
        it.watcher.listeners[silent].on_heard()
        assert whole.readiness() == (True, "ok")


@virtually
async def test_a_dead_api_server_makes_it_not_ready_and_its_return_ready_again() -> None:
    """W21: minutes of outage: the process stays, timers go on, and the lists repair the view."""
    it = Body()
    it.api.put(node(taint()), pod(tolerates(400)))
    whole = engine(it)
    async with running(whole.run()):
        await until(10)
        outage = dict.fromkeys(("LIST nodes", "LIST n1", "GET node"), refused(503))
        it.api.ever.update(outage)
        for name in list(it.watcher.open):
            it.watcher.end(name, WatchEnded("connection refused"))
        await until(250)
        assert whole.readiness()[0] is False
        it.api.ever.clear()
        await until(270)
        assert whole.readiness() == (True, "ok")
        await until(401)
    assert it.api.deleted == [(400, "a")]


@virtually
async def test_its_beat_is_young_while_it_runs() -> None:
    """For liveness: a loop that no longer turns shows."""
    it = Body()
    whole = engine(it)
    async with running(whole.run()):
        await until(100)
        assert it.driver.beat_age_seconds() <= 0.5
    await until(110)
    assert it.driver.beat_age_seconds() >= 10


@virtually
@pytest.mark.parametrize("scope", ["nodes", "pods of n1"])
async def test_a_bug_in_any_watch_ends_it_with_that_exception(scope: str) -> None:
    """Visible, at once, with nothing left running."""
    it = Body()
    it.api.put(node(taint()))
    task = asyncio.create_task(engine(it).run())
    await until(5)
    it.watcher.end(scope, ZeroDivisionError("a bug"))
    with pytest.raises(ExceptionGroup) as raised:
        await task
    assert raised.group_contains(ZeroDivisionError)
    assert (now(), it.watcher.open) == (5, set())


@virtually
async def test_a_bug_in_the_driver_ends_the_watches_too() -> None:
    """A dead loop never looks healthy."""
    it = Body()
    it.api.put(node(taint()), pod(tolerates(5)))

    async def carry_out(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    it.evictor.carry_out = carry_out  # type: ignore[method-assign, assignment]
    with pytest.raises(ExceptionGroup) as raised:
        await engine(it).run()
    assert raised.group_contains(ZeroDivisionError)
    assert (now(), it.watcher.open) == (5, set())


@virtually
async def test_a_watch_of_nodes_that_was_cancelled_by_a_stranger_does_not_leave_it_blind() -> None:
    """A task group takes a cancelled child for a wish: the nodes must be watched again all the same."""
    it = Body()
    async with running(engine(it).run()):
        await until(5)
        it.watcher.end("nodes", asyncio.CancelledError())
        await until(10)
        assert "nodes" in it.watcher.open


@virtually
async def test_after_stop_it_goes_on_watching_until_it_is_cancelled() -> None:
    """The order at shutdown is the caller's: stop evicting, release the lease, end the watches."""
    it = Body()
    it.api.put(node(taint()), pod(tolerates(5)))
    async with running(engine(it).run()) as task:
        await until(1)
        assert await it.driver.stop(20) is True
        await until(10)
        assert (task.done(), it.watcher.open) == (False, {"nodes", "pods of n1"})
    await slow_start()
    assert it.api.deleted == []
