"""Kubernetes events of many namespaces: none waits long for another one's, exact by a virtual clock."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from tests.unit.runtime_fakes import FakeClock, virtually

from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.reporting import event_recorder
from taint_eviction.reporting.event_recorder import EventRecorder
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_lab.simulation.virtual_clock import virtual_now as now

TIMEOUT_SECONDS = 10.0


class Answers(ApiCalls):
    """Calls that are answered at once, but never in the namespaces ``hanging``; ``asked`` has each with its second.

    ``fails``: the failure with which the next calls are answered.
    """

    def __init__(self, *hanging: str) -> None:
        self.hanging = set(hanging)
        self.asked: list[tuple[float, str]] = []
        self.fails: list[CallFailed] = []

    async def make(self, call: ApiRequest, *_: object, **__: object) -> ApiAnswer:
        """Answer a request."""
        self.asked.append((now(), call.namespace))
        if call.namespace in self.hanging:
            await asyncio.sleep(TIMEOUT_SECONDS)
            raise CallFailed("no answer", may_pass=True)
        if self.fails:
            raise self.fails.pop(0)
        return ApiAnswer(Outcome.DONE, 201, {}, None)

    def seconds(self, namespace: str) -> list[float]:
        """List when something was asked in this namespace."""
        return [second for second, about in self.asked if about == namespace]


@asynccontextmanager
async def recording(calls: ApiCalls) -> AsyncIterator[tuple[Callable[[str, int], None], Counter[str], EventRecorder]]:
    """Run a recorder; what it gives posts a number of events of a namespace, each about another pod."""
    counts: Counter[str] = Counter()
    recorder = EventRecorder(calls, FakeClock(), "me", lambda result: counts.update((result,)))

    def post(namespace: str, number: int) -> None:
        for index in range(number):
            ref = PodRef(NamespacedName(namespace, f"web-{index}"), f"{namespace}-{index}")
            recorder.post(ref, "TaintManagerEviction", f"{namespace} {index}")

    running = asyncio.create_task(recorder.run())
    yield post, counts, recorder
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@virtually
async def test_a_namespace_that_hangs_holds_up_another_one_for_a_second() -> None:
    """A hundred events whose posts hang wait in their own queue."""
    calls = Answers("slow")
    async with recording(calls) as (post, _, _):
        post("slow", 100)
        post("shop", 20)
        await asyncio.sleep(60.0)
    assert calls.seconds("shop") == [1.0] * 20


@virtually
async def test_a_namespace_that_hangs_rests_twice_as_long_each_time() -> None:
    """At most for five minutes; an event is given up after four tries, and the rests go on as they were."""
    calls = Answers("slow")
    async with recording(calls) as (post, counts, _):
        post("slow", 4)
        await asyncio.sleep(2400.0)
    begins = calls.seconds("slow")
    rests = [later - earlier - TIMEOUT_SECONDS for earlier, later in pairwise(begins)]
    assert rests == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0, 300.0, 300.0, 300.0]
    assert counts == {"failed": 4}


@virtually
async def test_many_namespaces_that_hang_hold_up_another_one_for_seconds() -> None:
    """A webhook does not answer for sixty namespaces: each is tried once, and from then on after all others."""
    calls = Answers(*(f"slow-{number}" for number in range(60)))
    async with recording(calls) as (post, _, _):
        for number in range(60):
            post(f"slow-{number}", 20)
        for _ in range(20):
            post("shop", 1)
            await asyncio.sleep(60.0)
    waited = [seconds - 60.0 * index for index, seconds in enumerate(calls.seconds("shop"))]
    assert len(waited) == 20
    assert waited[0] <= 60.0
    assert max(waited[1:]) <= 1.0


@virtually
async def test_a_namespace_that_answers_again_rests_no_more() -> None:
    """The event that was tried in vain is posted, and the others of its namespace right after it."""
    calls = Answers("slow")
    async with recording(calls) as (post, counts, recorder):
        post("slow", 3)
        await asyncio.sleep(TIMEOUT_SECONDS)
        calls.hanging.clear()
        assert await recorder.drain(60.0)
    assert calls.seconds("slow") == [0.0, 10.5, 10.5, 10.5]
    assert counts == {"posted": 3}


@virtually
async def test_namespaces_take_turns() -> None:
    """One of many events waits for one event of each other namespace."""
    calls = Answers()
    async with recording(calls) as (post, _, recorder):
        post("a", 3)
        post("b", 1)
        post("c", 2)
        assert await recorder.drain(1.0)
    assert [namespace for _, namespace in calls.asked] == ["a", "b", "c", "a", "c", "a"]


@virtually
async def test_a_busy_api_server_is_left_alone_by_all_namespaces() -> None:
    """Where it says how long to wait, it means everybody."""
    calls = Answers()
    calls.fails = [CallFailed("too many requests", retry_after_seconds=7.0, may_pass=True)]
    async with recording(calls) as (post, counts, recorder):
        post("a", 1)
        post("b", 1)
        assert await recorder.drain(20.0)
    assert calls.asked == [(0.0, "a"), (7.0, "b"), (7.5, "a")]
    assert counts == {"posted": 2}


@virtually
async def test_a_webhook_that_asks_to_wait_holds_up_its_own_namespace_only() -> None:
    """It may answer with any status, and with any time."""
    calls = Answers()
    calls.fails = [CallFailed("denied", retry_after_seconds=7.0, denied=True, may_pass=True)]
    async with recording(calls) as (post, counts, recorder):
        post("a", 1)
        post("b", 1)
        assert await recorder.drain(20.0)
    assert calls.asked == [(0.0, "a"), (0.0, "b"), (7.5, "a")]
    assert counts == {"posted": 2}


@virtually
async def test_what_is_too_much_is_dropped_from_the_longest_queue() -> None:
    """So a namespace with many events costs others none."""
    calls = Answers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_recorder, "_QUEUE", 5)
        async with recording(calls) as (post, counts, recorder):
            post("shop", 2)
            post("noisy", 10)
            assert await recorder.drain(1.0)
    assert (len(calls.seconds("shop")), len(calls.seconds("noisy"))) == (2, 3)
    assert counts == {"posted": 5, "dropped": 7}
