"""Live reads of nodes: shared, fresh for a second, and nobody else's trouble."""

import asyncio
import gc

import pytest
from tests.unit.builders import node, pod, taint
from tests.unit.runtime_fakes import HANGS, Body, How, at, now, refused, slow, turns, until, virtually

from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import CallFailed


def body() -> Body:
    """A body that knows a tainted node."""
    made = Body()
    made.sees(node(taint()))
    return made


@virtually
async def test_one_read_serves_all_calls_within_a_second_of_its_answer() -> None:
    """W11: what counts is when it was answered; a second after that the next call reads anew."""
    it = body()
    it.api.will("GET node", slow(0.5))
    await it.node_reads.fresh("n1")
    for seconds in (0.5, 1.0, 1.499):
        await until(seconds)
        await it.node_reads.fresh("n1")
    await until(1.5)
    await it.node_reads.fresh("n1")
    assert it.api.sent() == [(0, "GET node"), (1.5, "GET node")]


@virtually
async def test_concurrent_callers_share_one_read() -> None:
    """Evictions of one node's pods, all at once, cost one read."""
    it = body()
    it.api.will("GET node", slow(0.5))
    await asyncio.gather(*(it.node_reads.fresh("n1") for _ in range(50)))
    assert (now(), len(it.api.calls)) == (0.5, 1)


@virtually
async def test_each_node_is_read_for_itself() -> None:
    """A slow read of one node holds up nobody who asks for another."""
    it = body()
    it.api.put(node(name="n2"))
    it.api.will("GET node", HANGS)
    hanging = asyncio.create_task(it.node_reads.fresh("n1"))
    await turns()
    await it.node_reads.fresh("n2")
    assert (now(), hanging.done()) == (0, False)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@virtually
async def test_a_failed_read_fails_all_who_wait_and_the_next_tries_anew() -> None:
    """A failure is not kept: it serves those who waited for it, and nobody else."""
    it = body()
    it.api.will("GET node", refused(500, after=0.5))
    ends = await asyncio.gather(*(it.node_reads.fresh("n1") for _ in range(5)), return_exceptions=True)
    assert [type(end) for end in ends] == [CallFailed] * 5
    await it.node_reads.fresh("n1")
    assert it.api.sent() == [(0, "GET node"), (0.5, "GET node")]


@virtually
async def test_a_cancelled_waiter_does_not_cancel_the_others_read() -> None:
    """Even the one who began the read may leave."""
    it = body()
    it.api.will("GET node", slow(1))
    first, second = (asyncio.create_task(it.node_reads.fresh("n1")) for _ in range(2))
    at(0.5, first.cancel)
    await second
    assert (now(), first.cancelled(), len(it.api.calls)) == (1, True, 1)


@virtually
async def test_a_read_that_fails_after_all_waiters_left_is_not_reported_as_an_unhandled_error() -> None:
    """Cancelled at stop, the read failing a moment later: no complaint of an exception that was never retrieved."""
    it = body()
    it.api.will("GET node", refused(500, after=1))
    waiter = asyncio.create_task(it.node_reads.fresh("n1"))
    await until(0.5)
    waiter.cancel()
    await asyncio.wait([waiter])
    await until(2)
    gc.collect()


@virtually
async def test_an_answer_is_an_observation() -> None:
    """W11: a taint that is gone in the live node is gone for the decision that follows."""
    it = body()
    it.sees(pod())
    it.api.put(node())
    await it.node_reads.fresh("n1")
    assert it.brain.tainted_nodes() == frozenset()


@virtually
async def test_a_node_that_is_not_found_is_gone() -> None:
    """W12: 404 is an answer, but serves nobody else: a watch that lags could bring the node back in between."""
    it = body()
    it.api.nodes.clear()
    await it.node_reads.fresh("n1")
    await it.node_reads.fresh("n1")
    assert (it.brain.cluster.nodes, len(it.api.calls)) == ({}, 2)


@virtually
async def test_a_late_answer_does_not_overrule_what_a_watch_brought_since() -> None:
    """The read was answered late, with a state that the watch has left behind: the newer version stays."""
    it = body()
    it.api.will("GET node", slow(5))
    reading = asyncio.create_task(it.node_reads.fresh("n1"))
    await until(2)
    it.sees(node())
    await reading
    assert (now(), it.brain.tainted_nodes()) == (5, frozenset())


@virtually
async def test_a_node_recreated_after_a_read_found_none_stays_known() -> None:
    """W12: "not found" is older than the node that a watch brought meanwhile."""
    it = body()
    it.api.nodes.clear()
    it.api.will("GET node", slow(5))
    reading = asyncio.create_task(it.node_reads.fresh("n1"))
    await until(2)
    it.sees(node(taint(), uid="new"))
    await reading
    assert it.brain.cluster.nodes["n1"].node.uid == "new"


@virtually
async def test_memory_is_bounded_by_the_reads_of_the_last_second() -> None:
    """Nodes come and go for ever: what is remembered of reads is forgotten once it serves no more."""
    it = body()
    for number in range(500):
        await it.node_reads.fresh(f"n{number}")
        await until(now() + 0.25)
    assert len(it.node_reads._answered_at) <= 5
    assert it.node_reads._under_way == {}


@virtually
async def test_a_span_of_zero_means_that_every_call_reads() -> None:
    """``node_read_seconds`` 0 is a legal setting: only concurrent callers share."""
    it = body()
    reads = NodeReads(it.api, it.live, serves_seconds=0.0)
    await reads.fresh("n1")
    await reads.fresh("n1")
    assert len(it.api.calls) == 2


@virtually
async def test_a_bug_in_a_read_reaches_who_waits() -> None:
    """What is neither an answer nor a failure of the world is raised as it is."""
    it = body()
    it.api.nodes["n1"] = None  # type: ignore[assignment]
    it.api.will("GET node", How())
    it.brain.cluster = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        await it.node_reads.fresh("n1")
