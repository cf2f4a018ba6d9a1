"""Live reads of nodes: shared for a second, and nobody else's trouble."""

import asyncio
import gc

import pytest
from tests.memory import kept
from tests.unit.builders import node, pod, taint
from tests.unit.runtime_fakes import HANGS, Body, How, at, now, refused, slow, slow_start, until, virtually

from taint_eviction.core.objects import Taint
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import CallFailed


def body() -> Body:
    """A body that knows a tainted node."""
    made = Body()
    made.sees(node(taint()))
    return made


@virtually
async def test_one_read_serves_all_calls_that_start_within_a_second_of_its_sending() -> None:
    """W11: what counts is when it was sent; a second after that the next call reads anew."""
    it = body()
    it.api.will("GET node", slow(0.5))
    assert await it.node_reads.read("n1") == 0
    for seconds in (0.5, 0.999):
        await until(seconds)
        assert await it.node_reads.read("n1") == 0
    await until(1)
    assert await it.node_reads.read("n1") == 1
    assert it.api.sent() == [(0, "GET node"), (1, "GET node")]


@virtually
async def test_a_read_whose_answer_travels_for_long_serves_nobody_who_comes_later() -> None:
    """W11: what it shows may be as old as the question, whenever the answer comes."""
    it = body()
    it.api.will("GET node", slow(9))
    reading = [asyncio.create_task(it.node_reads.read("n1"))]
    for seconds in (0.9, 1.0, 8.0):
        await until(seconds)
        reading.append(asyncio.create_task(it.node_reads.read("n1")))
    assert await asyncio.gather(*reading) == [0, 0, 1, 8]
    assert await it.node_reads.read("n1") == 9


@virtually
async def test_concurrent_callers_share_one_read() -> None:
    """Evictions of one node's pods, all at once, cost one read."""
    it = body()
    it.api.will("GET node", slow(0.5))
    await asyncio.gather(*(it.node_reads.read("n1") for _ in range(50)))
    assert (now(), len(it.api.calls)) == (0.5, 1)


@virtually
async def test_each_node_is_read_for_itself() -> None:
    """A slow read of one node holds up nobody who asks for another."""
    it = body()
    it.api.put(node(name="n2"))
    it.api.will("GET node", HANGS)
    hanging = asyncio.create_task(it.node_reads.read("n1"))
    await slow_start()
    await it.node_reads.read("n2")
    assert (now(), hanging.done()) == (0, False)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@virtually
async def test_a_failed_read_fails_all_who_wait_and_the_next_tries_anew() -> None:
    """A failure is not kept: it serves those who waited for it, and nobody else."""
    it = body()
    it.api.will("GET node", refused(500, after=0.5))
    ends = await asyncio.gather(*(it.node_reads.read("n1") for _ in range(5)), return_exceptions=True)
    assert [type(end) for end in ends] == [CallFailed] * 5
    await it.node_reads.read("n1")
    assert it.api.sent() == [(0, "GET node"), (0.5, "GET node")]


@virtually
async def test_a_cancelled_waiter_does_not_cancel_the_others_read() -> None:
    """Even the one who began the read may leave."""
    it = body()
    it.api.will("GET node", slow(1))
    first, second = (asyncio.create_task(it.node_reads.read("n1")) for _ in range(2))
    at(0.5, first.cancel)
    await second
    assert (now(), first.cancelled(), len(it.api.calls)) == (1, True, 1)


@virtually
async def test_a_read_that_fails_after_all_waiters_left_is_not_reported_as_an_unhandled_error() -> None:
    """Cancelled at stop, the read failing a moment later: no complaint of an exception that was never retrieved."""
    it = body()
    it.api.will("GET node", refused(500, after=1))
    waiter = asyncio.create_task(it.node_reads.read("n1"))
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
    await it.node_reads.read("n1")
    assert it.brain.tainted_nodes() == frozenset()


@virtually
async def test_a_node_that_is_not_found_is_gone() -> None:
    """W12: 404 is an answer, but serves nobody else: a watch that lags could bring the node back in between."""
    it = body()
    it.api.remove(*it.api.nodes)
    await it.node_reads.read("n1")
    await it.node_reads.read("n1")
    assert (it.brain.nodes.known, len(it.api.calls)) == ({}, 2)


@virtually
async def test_a_late_answer_does_not_overrule_what_a_watch_brought_since() -> None:
    """The read was answered late, with a state that the watch has left behind: the newer version stays."""
    it = body()
    it.api.will("GET node", slow(5))
    reading = asyncio.create_task(it.node_reads.read("n1"))
    await until(2)
    it.sees(node())
    await reading
    assert (now(), it.brain.tainted_nodes()) == (5, frozenset())


@virtually
async def test_a_node_recreated_after_a_read_found_none_stays_known() -> None:
    """W12: "not found" is older than the node that a watch brought meanwhile."""
    it = body()
    it.api.remove(*it.api.nodes)
    it.api.will("GET node", slow(5))
    reading = asyncio.create_task(it.node_reads.read("n1"))
    await until(2)
    it.sees(node(taint(), uid="new"))
    await reading
    assert it.brain.nodes.known["n1"].node.uid == "new"


@virtually
async def test_an_answer_ahead_of_the_watch_waits_until_that_has_come_as_far_and_asks_again() -> None:
    """W11: somebody labelled the node, and the watch is 2 s behind; whoever comes meanwhile reads for himself."""
    it = body()
    it.api.put(node(taint()))
    reading = [asyncio.create_task(it.node_reads.read("n1"))]
    at(2, it.sees)
    await until(0.5)
    reading.append(asyncio.create_task(it.node_reads.read("n1")))
    await until(1.5)
    reading.append(asyncio.create_task(it.node_reads.read("n1")))
    sent_at = await asyncio.gather(*reading)
    assert [when for when, _ in it.api.sent()] == pytest.approx([0, 1.5, 2, 2], abs=0.1)
    assert sent_at == pytest.approx([2, 2, 2], abs=0.1)


@virtually
async def test_where_it_does_not_matter_since_when_a_taint_is_there_no_watch_is_waited_for() -> None:
    """W11: that the taint is there suffices; whoever needs to know since when still waits, beside it."""
    it = body()
    it.api.put(node(taint()))
    patient = asyncio.create_task(it.node_reads.read("n1"))
    assert (await it.node_reads.read("n1", awaits_watch=False), now()) == (0, 0)
    assert (await patient, now()) == (5, 5)


@virtually
async def test_a_watch_that_tells_nothing_is_waited_for_for_five_seconds() -> None:
    """W11: then the second answer counts, though it is ahead of the watch as well."""
    it = body()
    it.api.put(node(taint()))
    assert await it.node_reads.read("n1") == 5
    assert it.api.sent() == [(0, "GET node"), (5, "GET node")]
    assert it.brain.tainted_nodes() == {"n1"}


@virtually
@pytest.mark.parametrize("shown", [(), (taint("other"),), (taint(added_at=0),)])
async def test_an_answer_that_shows_another_taint_waits_for_nothing(shown: tuple[Taint, ...]) -> None:
    """W11: absent, or with another ``timeAdded``: that is certain at once."""
    it = body()
    it.api.put(node(*shown))
    assert await it.node_reads.read("n1") == 0
    assert (it.api.sent(), it.brain.tainted_nodes()) == ([(0, "GET node")], {"n1"} if shown else frozenset())


@virtually
async def test_a_node_that_is_gone_when_it_is_asked_for_again_is_gone() -> None:
    """W12: deleted while the watch was waited for."""
    it = body()
    it.api.put(node(taint()))
    at(1, it.api.remove, *it.api.nodes)
    assert await it.node_reads.read("n1") is None
    assert it.brain.nodes.known == {}


@virtually
async def test_memory_is_bounded_by_the_reads_of_the_last_second() -> None:
    """Nodes come and go indefinitely: what is remembered of reads is forgotten once it serves no more."""
    it = body()
    for number in range(500):
        it.api.put(node(name=f"n{number}"))
        await it.node_reads.read(f"n{number}")
        await until(now() + 0.25)
    reads = [task for task in kept(it.node_reads, asyncio.Task) if task.get_name().startswith("read node")]
    assert 0 < len(reads) <= 5


@virtually
async def test_a_span_of_zero_means_that_every_call_reads() -> None:
    """``node_read_seconds`` 0 is a legal setting: nobody shares."""
    it = body()
    reads = NodeReads(it.api, it.live, serves_seconds=0.0)
    await asyncio.gather(reads.read("n1"), reads.read("n1"))
    assert len(it.api.calls) == 2


@virtually
async def test_a_bug_in_a_read_reaches_who_waits() -> None:
    """What is neither an answer nor a failure of the world is raised as it is."""
    it = body()
    it.api.nodes["n1"] = None  # type: ignore[assignment]
    it.api.will("GET node", How())
    it.live.observe = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        await it.node_reads.read("n1")
