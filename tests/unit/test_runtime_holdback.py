"""Limits, pauses and circuit breaker on the whole body: what is really sent, and that nothing spins while it waits."""

from collections.abc import Sequence

import pytest
from tests.unit.builders import epoch, node, own_latch, pod, ref, taint
from tests.unit.runtime_fakes import Body, How, at, blocked, refused, running, slow, times_out, until, virtually

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import BreakerOpened
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule


def body(policy: EvictionPolicy, pods: int, nodes: int = 1, workers: int = 20, namespace: str = "shop") -> Body:
    """A body that knows pods which are due now, spread over nodes; UIDs are u0, u1..."""
    it = Body(workers, Controller(eviction_policy=policy))
    it.sees(*(node(taint(), name=f"n{number}") for number in range(nodes)))
    it.sees(
        *(pod(name=f"p{i}", uid=f"u{i}", on=f"n{i % nodes}", bound_at=-9, namespace=namespace) for i in range(pods))
    )
    return it


def max_in_any_span(instants: Sequence[float], seconds: float) -> int:
    """Count the most that fall into a span of this length."""
    return max(sum(start <= other <= start + seconds for other in instants) for start in instants)


def sent(it: Body, *verbs: str) -> list[float]:
    """List when what was sent that ends pods."""
    return [instant for instant, _ in it.api.sent(*(verbs or ("DELETE", "EVICT")))]


# Limits


@virtually
@pytest.mark.parametrize("latency", [0.0, 0.03, 0.4])
async def test_no_more_is_sent_in_any_span_than_is_allowed(latency: float) -> None:
    """Five a second with a burst of eight, measured at the request, however long each call takes."""
    it = body(EvictionPolicy(total=Limit(5.0, 8)), 60, nodes=7)
    for verb in ("GET node", "PATCH", "DELETE"):
        it.api.ever[verb] = How(latency / 2, latency / 2)
    async with running(it.driver.run()):
        await until(40)
    instants = sent(it)
    assert len(instants) == len(it.api.deleted) == 60
    for span in (0.0, 0.5, 1.0, 2.0, 5.0):
        assert max_in_any_span(instants, span) <= 8 + 5 * span
    assert instants[-1] <= (60 - 8) / 5 + 3 * latency + 1


@virtually
async def test_a_call_that_hangs_takes_one_token_and_not_everybodys_time() -> None:
    """Every other deletion hangs for ten seconds; one a second goes out all the same."""
    it = body(EvictionPolicy(total=Limit(1.0, 1)), 12)
    it.api.will("DELETE", *[times_out(10), How()] * 3)
    async with running(it.driver.run()):
        await until(11.9)
    assert sent(it) == [*range(12)]


@virtually
async def test_what_a_budget_refuses_uses_up_nothing() -> None:
    """Ten that are refused and one that is not: it goes at once, though only one may in ten seconds."""
    it = body(EvictionPolicy(EvictionMode.EVICT, total=Limit(0.1, 1)), 11)
    it.api.will("EVICT", *[blocked()] * 10)
    async with running(it.driver.run()):
        await until(4.9)
        assert it.api.deleted == [(0, "u9")]
        await until(39.9)
    assert [instant for instant, _ in it.api.deleted] == [0, 10, 20, 30]


@virtually
async def test_who_waits_for_a_limit_is_cancelled_with_its_node() -> None:
    """Untainted after three: three have gone."""
    it = body(EvictionPolicy(total=Limit(1.0, 1)), 50)
    async with running(it.driver.run()):
        at(2.5, it.sees, node(name="n0"))
        await until(60)
    assert sent(it) == [0, 1, 2]
    assert it.brain.attempts.next_at(it.clock.now()) is None


@virtually
@pytest.mark.parametrize(
    "policy",
    [
        EvictionPolicy(total=Limit(0.3, 1)),
        EvictionPolicy(per_node=Limit(0.3, 1)),
        EvictionPolicy(total=Limit(1.7), per_node=Limit(0.3), per_namespace=Limit(0.7, 3)),
        EvictionPolicy(total=Limit(at_once=1)),
        EvictionPolicy(rules=(PolicyRule("slow", limit=Limit(1 / 3, 1, 2)),)),
    ],
)
async def test_waiting_for_a_limit_does_not_spin(policy: EvictionPolicy) -> None:
    """Clocks are read a few times for each eviction and each half second, and no more."""
    it = body(policy, 30, nodes=5)
    it.api.ever["DELETE"] = slow(0.7)
    async with running(it.driver.run()):
        await until(60)
        assert it.clock.reads < 60 * 2 * 4 + 30 * 30
    assert len(it.api.deleted) >= 18


@virtually
async def test_another_policy_holds_from_one_call_to_the_next() -> None:
    """Its condition is under way when budgets are to hold: the next call is no deletion."""
    it = body(EvictionPolicy(), 1)
    it.api.will("PATCH", slow(0.5))
    async with running(it.driver.run()):
        at(0.25, it.live.change_policy, EvictionPolicy(EvictionMode.EVICT))
        await until(2)
    assert it.api.verbs() == ["GET node", "PATCH", "GET pod", "EVICT"]


@virtually
async def test_a_stricter_limit_holds_for_those_that_were_begun_without() -> None:
    """Twenty conditions are under way when one a second is to go: one a second goes."""
    it = body(EvictionPolicy(), 20)
    it.api.will("PATCH", *[slow(0.5)] * 20)
    async with running(it.driver.run()):
        at(0.25, it.live.change_policy, EvictionPolicy(total=Limit(1.0, 1)))
        await until(5.4)
    assert sent(it) == [0.5, 1.5, 2.5, 3.5, 4.5]


# Pauses


@virtually
async def test_a_pause_stops_what_is_about_to_be_sent_and_what_waits() -> None:
    """Nothing is sent from that instant on, until it is resumed; and then everything, with no wait."""
    it = body(EvictionPolicy(), 40, workers=10)
    it.api.ever["PATCH"] = slow(0.1)
    async with running(it.driver.run()):
        at(0.15, it.live.order, ControlState(cluster=Pause()))
        await until(20)
        before = len(sent(it))
        assert before == 4
        reads = it.clock.reads
        await until(30)
        assert it.clock.reads - reads < 10 * 2 * 5
        it.live.order(ControlState())
        await until(31)
    assert len(sent(it)) == len(it.api.deleted) == 40
    assert min(instant for instant in sent(it) if instant > 0.15) == 30.1


@virtually
async def test_while_the_orders_are_not_known_nothing_is_sent_and_nothing_spins() -> None:
    """Due for long, and not begun."""
    it = Body(brain=Controller(control_state=None))
    it.sees(node(taint()), pod())
    async with running(it.driver.run()):
        await until(60)
        assert (it.api.calls, it.driver.in_flight) == ([], 0)
        assert it.clock.reads < 60 * 2 * 5
        it.live.order(ControlState())
        await until(60)
        assert it.api.deleted == [(60, "a")]


# Circuit breaker


@virtually
async def test_a_wave_stops_before_anybody_has_gone() -> None:
    """Four of ten nodes within one and a half seconds; it is told, and a reset lets everybody go."""
    it = Body(brain=Controller(breaker=BreakerPolicy(enabled=True, nodes=NodeThreshold(percent=30.0))))
    it.sees(*(node(name=f"n{number}") for number in range(10)))

    def taint_one(number: int) -> None:
        it.sees(node(taint(), name=f"n{number}"), pod(name=f"p{number}", uid=f"u{number}", on=f"n{number}"))

    async with running(it.driver.run()):
        for number in range(4):
            at(10 + number / 2, taint_one, number)
        await until(100)
        assert it.api.calls == []
        reads = it.clock.reads
        await until(110)
        assert it.clock.reads - reads < 10 * 2 * 5
        latch = own_latch(epoch(11.5), "4 of 10 nodes newly tainted within 300 s, more than 30 %")
        assert it.reporter.of(BreakerOpened) == [(11.5, BreakerOpened(latch))]
        it.live.order(ControlState(reset_epoch=epoch(110)))
        await until(110)
    assert sorted(it.api.deleted) == [(110, f"u{number}") for number in range(4)]


@virtually
async def test_one_node_goes_two_seconds_later() -> None:
    """No wave; exactly when it has settled."""
    it = Body(brain=Controller(breaker=BreakerPolicy(enabled=True)))
    it.sees(node(name="n2"), node(name="n3"), node(name="n4"))
    async with running(it.driver.run()):
        at(5, it.sees, node(taint()), pod())
        at(5, it.lists_pods)
        await until(10)
    assert it.api.deleted == [(7, "a")]


@virtually
async def test_the_end_of_a_list_lets_go_at_once_what_has_waited_for_it() -> None:
    """Nothing else happens then, and nobody looks until later."""
    it = Body(brain=Controller(breaker=BreakerPolicy(enabled=True)))
    it.sees(node(name="n2"), node(name="n3"), node(name="n4"))
    async with running(it.driver.run()):
        at(5, it.sees, node(taint()), pod())
        at(8.3, it.lists_pods)
        await until(10)
    assert it.api.deleted == [(8.3, "a")]


@virtually
async def test_the_breaker_looks_again_before_each_eviction_begins() -> None:
    """The first three are at their conditions when the fourth node is tainted: none of them is sent."""
    it = Body(brain=Controller(breaker=BreakerPolicy(enabled=True, nodes=NodeThreshold(number=3), settle_seconds=0.0)))
    it.api.ever["PATCH"] = slow(0.5)
    it.sees(*(node(taint(), name=f"n{number}") for number in range(3)))
    it.sees(*(pod(name=f"p{number}", uid=f"u{number}", on=f"n{number}") for number in range(3)))
    it.lists_pods()
    async with running(it.driver.run()):
        at(0.25, it.sees, node(taint(), name="n3"), pod(name="p3", uid="u3", on="n3"))
        await until(5)
    assert it.api.verbs().count("PATCH") == 3
    assert sent(it) == []


# Failures


@virtually
async def test_a_lost_answer_of_the_eviction_api_is_asked_for_again() -> None:
    """Nobody can know; a pod that is gone by then is done with."""
    it = body(EvictionPolicy(EvictionMode.EVICT), 1)
    it.api.will("EVICT", How(failure="connection reset"))
    async with running(it.driver.run()):
        await until(5)
    assert it.api.deleted == [(0, "u0")]
    assert it.api.verbs().count("EVICT") == 1
    assert it.brain.pods.find(ref("p0", "u0")) is None


@virtually
async def test_a_budget_that_frees_up_lets_the_pod_go() -> None:
    """At the server's advice, not before, and not much later."""
    it = body(EvictionPolicy(EvictionMode.EVICT), 1)
    it.api.will("EVICT", blocked(retry_after=10), blocked())
    async with running(it.driver.run()):
        await until(60)
    first, second, third = sent(it)
    assert first == 0
    assert 10 <= second - first <= 12
    assert 10 <= third - second <= 12
    assert it.api.deleted == [(third, "u0")]


@virtually
async def test_the_eviction_api_may_be_refused_like_any_call() -> None:
    """No rights, a webhook: the usual backoff, which is no budget's."""
    it = body(EvictionPolicy(EvictionMode.EVICT), 1)
    it.api.will("EVICT", refused(403), refused(500))
    async with running(it.driver.run()):
        await until(5)
    assert len(sent(it)) == 3
    assert it.api.deleted[0][0] < 1
