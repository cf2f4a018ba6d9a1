"""One eviction from the first look to the last word, and what it comes to when calls fail or the world moves on."""

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.builders import node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import (
    EFFECT_WITHOUT_ANSWER,
    HANGS,
    LOST_ANSWER,
    Body,
    How,
    at,
    begin,
    blocked,
    body,
    once,
    refused,
    running,
    slow,
    slow_start,
    take_back,
    times_out,
    until,
    virtually,
)

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import (
    Block,
    BlockReason,
    CalledOff,
    Done,
    Failed,
    PodIsGone,
    Suspended,
)
from taint_eviction.core.facts import NodeSeen, PodGone
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit
from taint_eviction.runtime.backoff import backoff_seconds, blocked_seconds
from taint_eviction.settings import RetrySettings

SEQUENCE = ["GET node", "PATCH", "DELETE"]


# The sequence


@virtually
async def test_reads_the_node_sets_the_condition_and_deletes() -> None:
    """Two calls and a shared read: no GET of the pod, and the second look at the node is served by the first."""
    it = body()
    assert await once(it) == Done()
    assert (it.api.verbs(), it.api.deleted) == (SEQUENCE, [(0, "a")])


@virtually
async def test_a_hundred_evictions_of_one_node_share_one_read() -> None:
    """W11: two calls a pod, and one read for all."""
    it = body()
    it.sees(*(pod(name=f"p{number}", uid=f"u{number}") for number in range(99)))
    works = it.live.take_due(100, 0)
    assert await asyncio.gather(*map(it.carry_out, works)) == [Done()] * 100
    assert [it.api.verbs().count(verb) for verb in SEQUENCE] == [1, 100, 100]


@virtually
@pytest.mark.parametrize("how", [refused(403), refused(409), refused(422)])
async def test_a_refused_condition_costs_one_get_and_the_pod_is_deleted(how: How) -> None:
    """W9: forbidden, in conflict or invalid: the condition is not a precondition."""
    it = body()
    it.api.will("PATCH", how)
    assert await once(it) == Done()
    assert [verb for verb in it.api.verbs() if verb != "GET node"] == ["PATCH", "GET pod", "DELETE"]


@virtually
async def test_a_condition_without_an_answer_is_given_up_early_enough_for_another_try() -> None:
    """The first call hangs: it is cut off within 5 s, the second sets the condition, and no GET is needed."""
    it = body()
    it.api.will("PATCH", times_out(10))
    assert await once(it) == Done()
    assert [verb for verb in it.api.verbs() if verb != "GET node"] == ["PATCH", "PATCH", "DELETE"]
    assert it.api.deleted[0][0] <= 5


@virtually
async def test_a_condition_that_is_never_answered_costs_ten_seconds() -> None:
    """W9: the second call is waited for until then, and the pod goes all the same."""
    it = body()
    it.api.ever["PATCH"] = times_out(60)
    assert await once(it) == Done()
    assert [verb for verb in it.api.verbs() if verb != "GET node"] == ["PATCH", "PATCH", "GET pod", "DELETE"]
    assert it.api.deleted[0][0] == 10


MAY_PASS = [refused(429), refused(500), refused(503), times_out(0.1), refused(503, retry_after=2)]


@virtually
@pytest.mark.parametrize("how", MAY_PASS)
@pytest.mark.parametrize("times", [1, 2])
async def test_a_condition_whose_refusal_passes_within_seconds_is_set(how: How, times: int) -> None:
    """One 503 must not make Jobs count a disruption as a failure: up to two more tries, then the pod goes marked."""
    it = body(graceful=True)
    it.api.will("PATCH", *[how] * times)
    assert await once(it) == Done()
    assert [verb for verb in it.api.verbs() if verb != "GET node"] == [*["PATCH"] * (times + 1), "DELETE"]
    assert it.api.pods[ref().key].marked
    if how.retry_after is not None:
        assert [sent for sent, _ in it.api.sent("PATCH")] == pytest.approx([2 * n for n in range(times + 1)], abs=0.2)


@virtually
@pytest.mark.parametrize("how", MAY_PASS)
async def test_a_condition_that_is_refused_all_the_time_is_tried_three_times(how: How) -> None:
    """W9: a refusal that lasts never blocks: after 5 s at most the pod is read and goes."""
    it = body()
    it.api.ever["PATCH"] = how
    assert await once(it) == Done()
    assert [verb for verb in it.api.verbs() if verb != "GET node"] == [*["PATCH"] * 3, "GET pod", "DELETE"]
    assert it.api.deleted[0][0] <= 5


@virtually
async def test_a_condition_is_not_waited_for_longer_than_a_few_seconds() -> None:
    """W9: the server advises a minute: the pod goes now, without it."""
    it = body()
    it.api.will("PATCH", refused(429, retry_after=60))
    assert await once(it) == Done()
    assert (it.api.verbs(), it.api.deleted) == (["GET node", "PATCH", "GET pod", "DELETE"], [(0, "a")])


@virtually
async def test_untainted_between_two_tries_of_the_condition_calls_off() -> None:
    """W11: before the second try it is decided again, on a live node."""
    it = body()
    it.api.will("PATCH", refused(503, retry_after=2))
    at(1, it.api.put, node())
    assert await once(it) == CalledOff()
    assert it.api.verbs() == ["GET node", "PATCH", "GET node"]


@virtually
async def test_where_the_condition_is_refused_and_the_pod_cannot_be_read_nothing_is_deleted() -> None:
    """W11: the last decision needs the live pod; without it the attempt has failed, in the server's words."""
    it = body()
    it.api.will("PATCH", refused(403))
    it.api.will("GET pod", refused(503))
    outcome = await once(it)
    assert isinstance(outcome, Failed)
    assert (outcome.message, it.api.verbs()) == ("refused with 503", ["GET node", "PATCH", "GET pod"])


@virtually
@pytest.mark.parametrize(
    ("vanishes", "verbs"), [("GET node", SEQUENCE[:2]), ("PATCH", SEQUENCE[:2]), ("DELETE", SEQUENCE)]
)
async def test_a_pod_that_is_gone_at_any_step_is_done_with(vanishes: str, verbs: list[str]) -> None:
    """Gone while any call is under way: nothing is sent after that, nothing counts as evicted, nothing stays."""
    it = body()
    it.api.will(vanishes, How(effect_after=0.5))
    at(0.25, it.api.remove, *it.api.pods)
    assert await once(it) == PodIsGone()
    assert (
        it.api.verbs(),
        list(it.brain.status.pending(it.clock.now())),
        it.brain.attempts.next_at(it.clock.now()),
    ) == (
        verbs,
        [],
        None,
    )


@virtually
async def test_a_pod_recreated_under_the_same_name_is_not_touched() -> None:
    """W2: every call carries the UID; B lives where A was to be evicted."""
    it = body()
    it.api.will("GET node", slow(0.5))
    at(0.25, it.api.put, pod(uid="b"))
    assert await once(it) == PodIsGone()
    assert ([p.ref.uid for p in it.api.pods.values()], it.api.deleted) == (["b"], [])


@virtually
async def test_a_pod_that_somebody_else_is_deleting_is_left_alone() -> None:
    """W13: the answer to the PATCH shows a deletionTimestamp that no watch has brought yet."""
    it = body()
    it.api.put(pod(terminating=True))
    assert await once(it) == CalledOff()
    assert it.api.deleted == []


# Deciding again


@virtually
async def test_a_lagging_node_watch_kills_nobody() -> None:
    """W11: the startup taint was removed before the pod came; only the live node knows."""
    it = body()
    it.api.put(node())
    assert await once(it) == CalledOff()
    assert it.api.verbs() == ["GET node"]


@virtually
async def test_a_node_that_is_gone_evicts_nobody() -> None:
    """W12: its pods are PodGC's work."""
    it = body()
    it.api.remove(*it.api.nodes)
    assert await once(it) == CalledOff()
    assert (it.api.verbs(), it.brain.attempts.next_at(it.clock.now())) == (["GET node"], None)


@virtually
async def test_untainted_between_condition_and_deletion_calls_off_and_takes_back() -> None:
    """W10: a watch brings the clean node while the PATCH is under way: no DELETE, and status False in the end."""
    it = body()
    it.api.will("PATCH", slow(0.5))
    at(0.25, it.sees, node())
    assert await once(it) == CalledOff()
    assert await take_back(it) == Done()
    assert it.api.verbs() == ["GET node", "PATCH", "GET pod", "UNMARK"]
    assert (it.api.pods[ref().key].marked, it.brain.attempts.next_at(it.clock.now())) == (False, None)


@virtually
async def test_a_toleration_added_meanwhile_shows_in_the_answer_to_the_patch() -> None:
    """W11: the live pod that the PATCH returns tolerates indefinitely now."""
    it = body()
    it.api.put(pod(tolerates()))
    assert await once(it) == CalledOff()
    assert it.api.verbs() == ["GET node", "PATCH"]


@virtually
@pytest.mark.parametrize(("seconds", "reads"), [(0.99, 1), (1.0, 2), (3.0, 2)])
async def test_after_a_slow_condition_the_node_is_read_again(seconds: float, reads: int) -> None:
    """W11: the read before the PATCH is too old for the DELETE when a second has passed."""
    it = body()
    it.api.will("PATCH", slow(seconds))
    assert await once(it) == Done()
    assert it.api.verbs().count("GET node") == reads


@virtually
async def test_a_read_that_is_answered_at_once_and_arrives_late_is_repeated() -> None:
    """W11: untainted while the answer was on its way: what counts is when it was sent."""
    it = body()
    it.api.will("GET node", slow(9))
    at(1, it.api.put, node())
    assert await once(it) == CalledOff()
    assert it.api.sent() == [(0, "GET node"), (9, "GET node")]


@virtually
@pytest.mark.parametrize(
    ("seconds", "sent"),
    [
        (2, [(0, "GET node"), (2, "PATCH"), (2, "GET node"), (4, "DELETE")]),
        (3, [(0, "GET node"), (3, "PATCH"), (3, "GET node"), (6, "DELETE")]),
        (
            20,
            [
                *((0, "GET node"), (20, "GET node"), (40, "PATCH")),
                *((40, "GET node"), (60, "GET node"), (80, "DELETE")),
            ],
        ),
    ],
)
async def test_where_reads_always_take_long_pods_go_all_the_same(seconds: float, sent: list[tuple[float, str]]) -> None:
    """W11: each read serves the call that it was made for, and is repeated once at most."""
    it = body()
    it.api.ever["GET node"] = slow(seconds)
    assert await once(it) == Done()
    assert it.api.sent() == sent


# Ahead of the watch


@virtually
@pytest.mark.parametrize("again", [True, False])
async def test_where_the_read_is_ahead_of_the_watch_the_watch_decides_what_came_of_the_taint(again: bool) -> None:
    """W11: set again meanwhile, or merely labelled: the same answer, and only the watch can tell, 2 s later."""
    it = Body()
    it.sees(node(taint()), pod(tolerates(60)))
    await until(60)
    if again:
        it.api.put(node())
        at(62, it.live.observe, NodeSeen(it.api.nodes["n1"]))
    it.api.put(node(taint()))
    at(62, it.live.observe, NodeSeen(it.api.nodes["n1"]))
    assert await once(it) == (CalledOff() if again else Done())
    assert it.brain.attempts.next_at(it.clock.now()) == (122 if again else None)


@virtually
async def test_a_live_read_never_moves_a_start() -> None:
    """W11: the watch is silent; the same taint is there at the second look, and its countdown is over."""
    it = Body()
    it.sees(node(taint()), pod(tolerates(60)))
    await until(60)
    it.api.put(node(taint(), written_at=59))
    assert await once(it) == Done()
    assert it.api.deleted == [(65, "a")]


# The connection


@virtually
@pytest.mark.parametrize("mode", [EvictionMode.DELETE, EvictionMode.EVICT])
async def test_the_node_is_read_on_the_connection_that_stands(mode: EvictionMode) -> None:
    """W11: where it takes 1.2 s to open one, the read comes after that, and the pod goes right away."""
    it = asking(mode)
    it.api.connect_seconds = 1.2
    assert await once(it) == Done()
    asked = [(0, "GET node"), (0, "PATCH" if mode is EvictionMode.DELETE else "GET pod")]
    assert it.api.sent() == [*asked, (1.2, "GET node"), (1.2, "DELETE" if mode is EvictionMode.DELETE else "EVICT")]


@virtually
async def test_untainted_while_the_connection_is_opened_calls_off() -> None:
    """W11: what was decided before that does not count."""
    it = body()
    it.api.connect_seconds = 0.5
    at(0.25, it.sees, node())
    assert await once(it) == CalledOff()
    assert it.api.deleted == []


@virtually
async def test_a_deletion_that_is_not_sent_takes_no_token_of_a_limit() -> None:
    """It is taken when the request is sent, which is after the last look."""
    it = Body(brain=Controller(eviction_policy=EvictionPolicy(total=Limit(per_second=0.001, burst=1))))
    it.sees(node(taint()), pod())
    it.api.connect_seconds = 0.5
    at(0.25, it.sees, node())
    assert await once(it) == CalledOff()
    it.api.connect_seconds = 0
    it.sees(node(taint()), pod(name="other", uid="b"))
    assert await once(it) == Done()


@virtually
async def test_untainted_behind_every_watch_during_a_slow_condition_calls_off() -> None:
    """W11: the second read of the node is what saves the pod here."""
    it = body()
    it.api.will("PATCH", slow(3))
    at(2, it.api.put, node())
    assert await once(it) == CalledOff()
    assert it.api.deleted == []


# The gate


@virtually
@pytest.mark.parametrize(("closed_at", "verbs"), [(0.25, ["GET node"]), (0.75, ["GET node", "PATCH"])])
async def test_a_gate_that_closes_between_two_steps_holds(closed_at: float, verbs: list[str]) -> None:
    """Leadership lost while a call is under way: nothing that changes something is sent after that."""
    it = body()
    it.api.will("GET node", slow(0.5))
    it.api.will("PATCH", slow(0.4))
    at(closed_at, setattr, it.gate, "open", False)
    assert await once(it) == Suspended()
    assert (it.api.verbs(), it.brain.attempts.next_at(it.clock.now())) == (verbs, 0)


@virtually
async def test_the_gate_is_asked_before_each_changing_call() -> None:
    """Two evicting calls, two answers used; the answer that closes it stops the DELETE."""
    it = body()
    it.gate.closes_after = 1
    assert await once(it) == Suspended()
    assert it.api.verbs() == ["GET node", "PATCH"]


# Failures


@virtually
@pytest.mark.parametrize("verb", ["GET node", "DELETE"])
@pytest.mark.parametrize("status", [401, 403, 409, 429, 500, 503])
async def test_any_refusal_is_a_failure_with_a_time_to_come_back(verb: str, status: int) -> None:
    """W8: whatever the status, the eviction is due again within the first backoff."""
    it = body()
    it.api.will(verb, refused(status))
    outcome = await once(it)
    assert isinstance(outcome, Failed)
    assert 0.1 <= outcome.retry_at <= 0.2
    assert it.brain.attempts.next_at(it.clock.now()) == outcome.retry_at


@virtually
@pytest.mark.parametrize(("seconds", "late"), [(0.5, False), (9.5, True)])
async def test_a_late_answer_is_told(seconds: float, late: bool) -> None:
    """A webhook that hangs is answered for by the API server, after a while."""
    it = body()
    it.api.will("DELETE", refused(500, after=seconds))
    outcome = await once(it)
    assert isinstance(outcome, Failed)
    assert (outcome.late, outcome.unanswered) == (late, False)


@virtually
async def test_retry_after_is_honoured() -> None:
    """W8: 429 with 7 s: not before, and at most half the first wait later."""
    it = body()
    it.api.will("DELETE", refused(429, retry_after=7))
    outcome = await once(it)
    assert isinstance(outcome, Failed)
    assert 7 <= outcome.retry_at <= 7.1


@virtually
async def test_a_deletion_whose_answer_was_lost_is_not_asked_for_again() -> None:
    """The DELETE took effect and its answer did not come: the retry finds the pod terminating and leaves it."""
    it = body(graceful=True)
    it.api.will("DELETE", LOST_ANSWER)
    assert isinstance(await once(it), Failed)
    await until(1)
    assert await once(it) == CalledOff()
    assert it.api.deleted == [(0, "a")]


@virtually
async def test_a_lost_answer_is_asked_for_again_where_the_pod_still_stands() -> None:
    """Nobody can know whether a reset call was carried out: it is repeated, and a pod that is gone is done with."""
    it = body()
    it.api.will("DELETE", LOST_ANSWER)
    assert isinstance(await once(it), Failed)
    await until(1)
    assert await once(it) == PodIsGone()


@virtually
async def test_a_condition_whose_answer_was_lost_is_taken_back() -> None:
    """W10: the PATCH took effect, its answer was lost, and the node is clean since: the condition goes."""
    it = body()
    it.api.will("PATCH", LOST_ANSWER)
    at(0.05, it.sees, node())
    assert await once(it) == CalledOff()
    assert await take_back(it) == Done()
    assert it.api.pods[ref().key].marked is False


@virtually
@pytest.mark.parametrize("verb", SEQUENCE)
@pytest.mark.parametrize("how", [HANGS, EFFECT_WITHOUT_ANSWER])
async def test_cancelled_in_the_middle_of_any_call_nothing_is_left(verb: str, how: How) -> None:
    """At stop a call may hang indefinitely: cancelling ends it, and the work can be settled and begun again."""
    it = body(graceful=True)
    it.api.will(verb, how)
    work = begin(it)
    attempt = asyncio.create_task(it.carry_out(work))
    await until(1)
    attempt.cancel()
    await asyncio.wait([attempt])
    await slow_start()
    assert attempt.cancelled()
    it.live.finish(work, CalledOff())
    assert it.brain.attempts.next_at(it.clock.now()) == 0


@virtually
async def test_settling_twice_is_our_own_bug() -> None:
    """Whoever settles what is not in flight is told so at once."""
    it = body()
    work = begin(it)
    it.live.finish(work, Suspended())
    with pytest.raises(ValueError, match="not in flight"):
        it.live.finish(work, Suspended())


@virtually
async def test_a_pod_that_vanishes_in_flight_is_settled_without_a_trace() -> None:
    """The watch brings the deletion before the answer: evicted once, and nothing stays."""
    it = body()
    it.api.will("DELETE", slow(0.5))
    at(0.25, it.live.observe, PodGone(ref()))
    assert await once(it) == Done()
    assert (it.brain.attempts.next_at(it.clock.now()), list(it.brain.pods)) == (None, [])


# How long to wait


@given(st.integers(0, 10**9), st.integers(0, 2**32))
def test_each_wait_is_between_half_and_all_of_the_doubled_one(tries: int, seed: int) -> None:
    """0.2 s doubling to 30 s, whatever the number of tries: the exponent is capped, too."""
    whole = min(30.0, 0.2 * 2 ** min(tries, 30))
    wait = backoff_seconds(tries, None, RetrySettings(), random.Random(seed))
    assert whole / 2 <= wait <= whole


@given(st.integers(0, 40), st.floats(0, 30) | st.just(1e9), st.integers(0, 2**32))
def test_never_sooner_than_advised(tries: int, advised: float, seed: int) -> None:
    """What the server advises counts where it is longer, up to the longest wait, spread by half of the first wait."""
    own = backoff_seconds(tries, None, RetrySettings(), random.Random(seed))
    wait = backoff_seconds(tries, advised, RetrySettings(), random.Random(seed))
    assert wait == own if advised <= own else min(advised, 30.0) <= wait <= min(advised, 30.0) + 0.1


# By the eviction API

ASKING = ["GET node", "GET pod", "EVICT"]


def asking(mode: EvictionMode = EvictionMode.EVICT, evict_timeout_seconds: float = 60.0) -> Body:
    """A body that asks the eviction API and knows a pod which is due now."""
    it = Body(brain=Controller(eviction_policy=EvictionPolicy(mode, evict_timeout_seconds)))
    it.sees(node(taint()), pod())
    return it


@virtually
async def test_the_eviction_api_is_asked_on_a_live_pod_and_without_a_condition() -> None:
    """It sets one of its own once it has agreed; one call more would be one too many."""
    it = asking()
    assert await once(it) == Done()
    assert (it.api.verbs(), it.api.deleted) == (ASKING, [(0, "a")])


@virtually
async def test_a_pod_that_is_gone_is_not_evicted() -> None:
    """As the live read says, or the eviction API."""
    it = asking()
    it.api.remove(*it.api.pods)
    assert await once(it) == PodIsGone()
    assert it.api.verbs() == ASKING[:2]
    it = asking()
    it.api.will("GET pod", slow(0.5))
    at(0.25, it.api.remove, *it.api.pods)
    assert await once(it) == PodIsGone()
    assert it.api.verbs() == ASKING


@virtually
async def test_a_pod_that_came_to_tolerate_unseen_is_not_evicted() -> None:
    """W11: the live read decides."""
    it = asking()
    it.api.put(pod(tolerates()))
    assert await once(it) == CalledOff()
    assert it.api.verbs() == ASKING[:2]


@virtually
async def test_a_budgets_no_is_a_failure_of_its_own() -> None:
    """With the budget's name, for whoever asks what it waits for."""
    it = asking()
    it.api.will("EVICT", blocked())
    outcome = await once(it)
    assert isinstance(outcome, Failed)
    assert (outcome.message, outcome.block) == ("no disruption allowed", Block(BlockReason.BUDGET, "web"))
    assert 5 <= outcome.retry_at <= 6
    assert it.brain.attempts.next_at(it.clock.now()) == outcome.retry_at


@virtually
async def test_a_budget_that_says_no_for_ever_is_followed_by_a_deletion_after_the_timeout() -> None:
    """evict-then-delete: 60 s past the deadline and not a second later, with its condition."""
    it = asking(EvictionMode.EVICT_THEN_DELETE)
    it.api.ever["EVICT"] = blocked()
    async with running(it.driver.run()):
        await until(59.9)
        assert it.api.deleted == []
        asked = [seconds for seconds, _ in it.api.sent("EVICT")]
        await until(61)
    assert [(round(seconds, 3), uid) for seconds, uid in it.api.deleted] == [(60, "a")]
    assert it.api.verbs()[-2:] == ["PATCH", "DELETE"]
    assert all(later - earlier >= 5 for earlier, later in pairwise(asked))
    assert len(asked) == 4


@virtually
@pytest.mark.parametrize(
    ("tries", "advised", "least", "most"),
    [
        (0, None, 5, 6),
        (0, 0.0, 5, 6),
        (1, None, 10, 12),
        (2, None, 20, 24),
        (3, None, 30, 36),
        (50, None, 30, 36),
        (0, 10.0, 10, 12),
        (9, 10.0, 10, 12),
        (0, 1.0, 1, 1.2),
        (0, 86400.0, 30, 36),
    ],
)
async def test_a_budget_is_asked_when_the_server_says_so_and_else_less_and_less_often(
    tries: int, advised: float | None, least: float, most: float
) -> None:
    """At least 5 s where it advises nothing or 0, doubled up to the longest retry; a fifth more at most."""
    waits = [blocked_seconds(tries, advised, RetrySettings(), random.Random(seed)) for seed in range(50)]
    assert min(waits) >= least
    assert max(waits) <= most
    assert max(waits) > min(waits)


@virtually
async def test_what_is_paused_between_two_calls_is_held() -> None:
    """And nothing is asked for any more; it goes on where it was once the pause ends."""
    it = asking()
    it.api.will("GET pod", slow(0.5))
    at(0.25, it.live.order, ControlState(cluster=Pause()))
    assert await once(it) == Suspended()
    assert (it.api.verbs(), it.live.take_due(10, 10)) == (ASKING[:2], [])
    it.live.order(ControlState())
    assert await once(it) == Done()
