"""When each pod may be evicted: deadlines, settling, first tries and retries, and what the queue keeps of them."""

import math

import pytest
from tests.unit.builders import decided, moment, no_order, pod, ref
from tests.unit.hints import hints, waiting_uids, wanted_hints

from taint_eviction.core.events import Eviction
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.limits import Token
from taint_eviction.core.pods import UNDECIDED, InFlight, KnownPods, PodRecord, Queued, Schedule, Stabilizing
from taint_eviction.core.policy import EvictionPolicy, Limit, PolicyRule

ONE_A_SECOND = EvictionPolicy(total=Limit(1.0, 1))


class Wanted:
    """A queue, the nodes that are held, and short ways to ask it; pods are named by their UIDs."""

    def __init__(
        self, policy: EvictionPolicy | None = None, settle_seconds: float | None = None, list_wait_seconds: float = 0.0
    ) -> None:
        self.held: set[str] = set()
        self.pods = KnownPods(GoneObjects())
        waits = settle_seconds, list_wait_seconds
        policy = policy or EvictionPolicy()
        self.queue = EvictionQueue(policy, *waits, lambda key: key.node_name in self.held, self.pods, no_order())

    def record(self, uid: str) -> PodRecord:
        """Return the record of a pod; a pod that is unknown becomes known."""
        if (record := self.pods.find(ref(uid, uid))) is not None:
            return record
        change = self.pods.upsert(PodSeen(pod(name=uid, uid=uid)), moment(0))
        assert change is not None
        return change[0]

    def want(
        self,
        uid: str,
        fire_at: float,
        now: float = 0,
        *,
        on: str = "n1",
        rule: str = "",
        retry: bool = False,
        anew_at: float | None = None,
        unanswered: bool = False,
    ) -> None:
        """Schedule a pod's eviction."""
        schedule = Schedule(FlowKey(on, "shop", rule), fire_at, retry, anew_at, unanswered)
        self.queue.schedule(self.record(uid), schedule, now)

    def forget(self, uid: str) -> None:
        """Forget a pod's eviction."""
        self.queue.cancel(self.record(uid))
        self.record(uid).want_nothing()

    def take(self, now: float, retry: bool = False, unlisted_since: float = math.inf) -> list[str]:
        """Begin all evictions that are allowed."""
        self.queue.advance(now, unlisted_since)
        begun = []
        while (taken := self.queue.take(now, retry)) is not None:
            record, tokens = taken
            assert isinstance(record.state, Queued)
            record.state = InFlight(Eviction(record.ref, "n1", decided(), False, 0), record.state.schedule, tokens)
            begun.append(record.ref.uid)
        return begun

    def begun(self, uid: str) -> InFlight:
        """Return the state of a pod whose eviction has begun."""
        state = self.record(uid).state
        assert isinstance(state, InFlight)
        return state

    def tokens(self, uid: str) -> tuple[Token, ...]:
        """List the tokens of a pod whose eviction has begun."""
        return self.begun(uid).tokens or ()

    def send(self, uid: str, now: float) -> None:
        """Send an eviction that has begun."""
        self.queue.send(self.tokens(uid), now)

    def end(self, uid: str, now: float, sent: bool = True, ended_pod: bool = True) -> None:
        """End an eviction, sent or not."""
        tokens = self.tokens(uid)
        if sent:
            self.queue.send(tokens, now)
        self.record(uid).state = UNDECIDED
        self.queue.end(tokens, ended_pod)

    def may_send(self, uid: str) -> bool:
        """Return whether the policy that admitted an eviction is still in force."""
        return self.begun(uid).tokens is not None

    def waiting(self) -> list[str]:
        """List the UIDs of the waiting pods; the queue has a hint to each of them, and no others."""
        assert hints(self.queue) == wanted_hints(self.pods)
        return waiting_uids(self.pods)

    def settles_until(self, uid: str) -> float | None:
        """Return until when a pod settles, None if it does not."""
        state = self.record(uid).state
        return state.until if isinstance(state, Stabilizing) else None

    def next_at(self, now: float, retries: bool = True, stopped: bool = False) -> float | None:
        """Return when something is due next."""
        return self.queue.next_at(now, retries, stopped)


# Deadlines


def test_an_eviction_begins_at_its_deadline_and_not_before() -> None:
    """The queue reports the next instant exactly."""
    it = Wanted()
    it.want("b", 20)
    it.want("a", 10)
    assert it.next_at(0) == 10
    assert it.take(9.999) == []
    assert it.take(10) == ["a"]
    assert it.next_at(10) == 20
    assert it.take(25) == ["b"]
    assert it.next_at(25) is None


@pytest.mark.parametrize(("again", "at"), [(5.0, 5.0), (20.0, 20.0), (10.0, 10.0)])
def test_scheduling_again_moves_an_eviction(again: float, at: float) -> None:
    """The new deadline may be earlier or later; the queue has one hint to the pod."""
    it = Wanted()
    it.want("a", 10)
    it.want("a", again)
    assert it.waiting() == ["a"]
    assert it.next_at(0) == at
    assert it.take(100) == ["a"]


def test_scheduling_again_moves_an_eviction_that_is_in_its_flow() -> None:
    """The eviction was due and no longer is: it waits for its new deadline."""
    it = Wanted(ONE_A_SECOND)
    it.want("a", 1)
    it.want("b", 2)
    assert it.take(3) == ["a"]
    it.want("b", 50)
    it.end("a", 3)
    assert it.take(10) == []
    assert it.take(50) == ["b"]


def test_scheduling_the_same_again_keeps_the_turn() -> None:
    """A pod does not lose its turn because it was evaluated once more."""
    it = Wanted()
    it.want("a", 10)
    it.want("b", 10)
    it.queue.advance(10)
    it.want("a", 10)
    assert it.take(10) == ["a", "b"]


def test_another_rule_moves_an_eviction_to_another_flow() -> None:
    """The pod no longer waits for the limit of the former rule."""
    rules = (PolicyRule("slow", limit=Limit(0.1, 1)),)
    it = Wanted(EvictionPolicy(rules=rules))
    it.want("a", 0, rule="slow")
    it.want("b", 0, rule="slow")
    assert it.take(0) == ["a"]
    it.want("b", 0)
    assert it.take(0) == ["b"]


@pytest.mark.parametrize("now", [0, 5, 11])
def test_a_forgotten_eviction_does_not_begin(now: float) -> None:
    """The eviction may be before its deadline, settling, or in its flow: the queue keeps nothing of it."""
    it = Wanted(ONE_A_SECOND, settle_seconds=2)
    it.want("a", 4)
    it.queue.advance(now)
    it.forget("a")
    assert it.waiting() == []
    assert it.take(100) == []
    assert it.next_at(100) is None


@pytest.mark.parametrize("now", [0, 4])
def test_a_forgotten_retry_does_not_begin(now: float) -> None:
    """The retry may wait for its time, or in its flow."""
    it = Wanted()
    it.want("a", 4, retry=True)
    it.queue.advance(now)
    it.forget("a")
    assert (it.waiting(), it.next_at(100)) == ([], None)
    assert it.take(100, retry=True) == []


def test_forgetting_or_cancelling_a_pod_that_does_not_wait_changes_nothing() -> None:
    """Another pod's eviction begins as scheduled."""
    it = Wanted()
    it.want("a", 1)
    it.forget("b")
    it.queue.cancel(it.record("b"))
    assert it.take(1) == ["a"]


# Retries


def test_retries_wait_for_their_time_and_in_flows_of_their_own() -> None:
    """First tries and retries are taken separately."""
    it = Wanted()
    it.want("again", 5, retry=True)
    it.want("first", 6)
    assert it.next_at(0) == 5
    assert it.next_at(0, retries=False) == 6
    assert it.take(10) == ["first"]
    assert it.take(10, retry=True) == ["again"]


def test_a_first_try_becomes_a_retry() -> None:
    """The eviction is no longer among the first tries."""
    it = Wanted()
    it.want("a", 5)
    it.queue.advance(5)
    it.want("a", 7, retry=True)
    assert it.take(6) == []
    assert it.take(7) == []
    assert it.take(7, retry=True) == ["a"]


def test_a_due_retry_wakes_only_a_caller_that_takes_retries() -> None:
    """If retries already have all the workers that they may have, a due retry is no reason to wake up."""
    it = Wanted()
    it.want("a", 5, retry=True)
    it.queue.advance(9)
    assert it.next_at(9) == 9
    assert it.next_at(9, retries=False) is None


def test_first_tries_and_retries_share_the_limits() -> None:
    """A token that one of them takes is missing for the other, and a returned one goes to whichever waits."""
    it = Wanted(ONE_A_SECOND)
    it.want("a", 0)
    it.want("b", 0, retry=True)
    assert it.take(0) == ["a"]
    assert it.take(0, retry=True) == []
    assert it.next_at(0) is None
    it.send("a", 3)
    assert it.next_at(3) == 4
    it.end("a", 0, sent=False, ended_pod=False)
    assert it.next_at(3) == 3
    assert it.take(3, retry=True) == ["b"]
    it.want("c", 3)
    assert it.take(3) == []
    it.end("b", 3, sent=False)
    assert it.take(3) == ["c"]


def test_retries_are_held_like_first_tries() -> None:
    """A retry on a held node waits until the queue has reconsidered what is held."""
    it = Wanted()
    it.held = {"n1"}
    it.want("a", 0, retry=True)
    it.want("b", 0, on="n2", retry=True)
    assert it.take(1, retry=True) == ["b"]
    assert it.next_at(1) is None
    it.held = set()
    it.queue.reconsider()
    assert it.take(1, retry=True) == ["a"]


def test_while_everything_is_suspended_a_ready_pod_is_no_reason_to_wake() -> None:
    """Deadlines, the end of settling, and retry times still are."""
    it = Wanted(settle_seconds=2)
    it.want("due", 0)
    it.want("later", 7)
    it.want("again", 5, retry=True)
    it.want("again due", 0, retry=True)
    it.queue.advance(0)
    assert it.next_at(0, stopped=True) == 2
    it.queue.advance(2)
    assert it.next_at(2, stopped=True) == 5
    assert it.next_at(2, retries=False, stopped=True) == 7
    assert it.next_at(2) == 2


# Stabilizing


def test_without_settling_an_eviction_begins_when_it_is_due() -> None:
    """This is the case without a circuit breaker."""
    it = Wanted()
    it.want("a", 1, now=50)
    assert it.take(50) == ["a"]
    assert it.record("a").known_since is None


def test_a_due_eviction_settles() -> None:
    """It settles from its deadline on, and counts as due meanwhile."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    it.queue.advance(10)
    assert (it.queue.due(), it.settles_until("a")) == (1, 12)
    assert it.next_at(10) == 12
    assert it.take(11.999) == []
    assert it.take(12) == ["a"]
    assert it.settles_until("a") is None


def test_an_eviction_that_was_due_before_it_was_known_settles_from_then_on() -> None:
    """After a restart all deadlines are in the past, and the breaker has not evaluated yet."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10, now=50)
    assert it.take(51.999) == []
    assert it.take(52) == ["a"]


def test_an_eviction_whose_deadline_moves_into_the_past_settles_from_then_on() -> None:
    """The pod is due because of a taint added a while ago, whose surge the breaker has not evaluated yet."""
    it = Wanted(settle_seconds=2)
    it.want("a", 300, now=0)
    it.want("a", 91, now=100)
    assert it.take(101.999) == []
    assert it.take(102) == ["a"]


def test_an_eviction_whose_deadline_has_passed_does_not_settle_anew_for_another_one_that_has() -> None:
    """The owner of a pod can move its deadline within the past as often as he likes."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    it.want("a", 9, now=11)
    it.want("a", 10, now=11.5)
    it.want("a", 9, now=11.9)
    assert it.take(11.999) == []
    assert it.take(12) == ["a"]


def test_an_eviction_that_has_settled_does_not_settle_again() -> None:
    """This applies while its deadline stays the same, even if it is suspended in flight or governed by another rule."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    assert it.take(12) == ["a"]
    it.end("a", 13, sent=False)
    it.want("a", 10, now=13)
    assert it.take(13) == ["a"]
    it.end("a", 13, sent=False)
    it.want("a", 10, now=14, rule="slow")
    assert it.take(14) == ["a"]


def test_an_eviction_that_is_forgotten_and_scheduled_again_settles_again() -> None:
    """It counts as another eviction."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    assert it.take(12) == ["a"]
    it.end("a", 12, sent=False)
    it.forget("a")
    it.want("a", 10, now=20)
    assert it.take(21) == []
    assert it.take(22) == ["a"]


@pytest.mark.parametrize(("settle_seconds", "settled_at"), [(2, 12), (0, 10)])
def test_a_due_eviction_waits_for_lists_too(settle_seconds: float, settled_at: float) -> None:
    """It waits as long as a node that was newly tainted when it had settled is unlisted."""
    it = Wanted(settle_seconds=settle_seconds, list_wait_seconds=10)
    it.want("a", 10)
    assert it.take(settled_at, unlisted_since=settled_at) == []
    assert it.queue.due() == 1
    assert it.settles_until("a") == settled_at
    assert it.next_at(settled_at) == 20
    assert it.take(13) == ["a"]
    assert it.queue.waited_until == -math.inf


def test_an_eviction_does_not_wait_for_nodes_tainted_after_it_has_settled() -> None:
    """The first unlisted node was tainted a millisecond after the eviction had settled."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", 10)
    assert it.take(12.5, unlisted_since=12.001) == ["a"]


def test_the_wait_for_lists_is_bounded() -> None:
    """The wait counts from the deadline; the queue reports that it ended in vain, and up to when."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", 10)
    it.want("b", 11)
    assert it.take(19.999, unlisted_since=5) == []
    assert it.queue.waited_until == -math.inf
    assert it.take(20, unlisted_since=5) == ["a"]
    assert it.queue.waited_until == 12
    assert it.next_at(20) == 21
    assert it.take(21, unlisted_since=5) == ["b"]
    assert it.queue.waited_until == 13


def test_an_overdue_eviction_waits_for_lists_from_when_it_is_known() -> None:
    """After a restart the deadline may be long past."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", -500, now=30)
    assert it.take(39.999, unlisted_since=30) == []
    assert it.take(40, unlisted_since=30) == ["a"]


def test_a_wait_for_lists_that_is_shorter_than_settling_adds_nothing() -> None:
    """The wait ends when settling ends."""
    it = Wanted(settle_seconds=5, list_wait_seconds=3)
    it.want("a", 10)
    assert it.take(14.999, unlisted_since=5) == []
    assert it.take(15, unlisted_since=5) == ["a"]
    assert it.queue.waited_until == 15


def test_an_eviction_that_begins_again_does_not_lower_how_far_lists_were_awaited() -> None:
    """The eviction settled before the other one, whose wait for lists also ended in vain."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", 10)
    it.want("b", 15)
    assert it.take(25, unlisted_since=5) == ["a", "b"]
    it.end("a", 26, sent=False)
    it.want("a", 10, now=26)
    assert it.take(26, unlisted_since=5) == ["a"]
    assert it.queue.waited_until == 17


def test_retries_do_not_settle() -> None:
    """The first try has settled already."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10, retry=True)
    assert it.take(10, retry=True) == ["a"]


def test_an_eviction_held_while_it_waits_for_lists_waits_in_its_flow() -> None:
    """It may begin as soon as it is no longer held, because the person who releases it knows of it."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", 10)
    assert it.take(13, unlisted_since=5) == []
    it.held = {"n1"}
    it.queue.reconsider()
    assert it.settles_until("a") is None
    it.held = set()
    it.queue.reconsider()
    assert it.take(14, unlisted_since=5) == ["a"]


def test_an_eviction_that_is_held_when_due_does_not_settle() -> None:
    """While it is held, it does not count as due either."""
    it = Wanted(settle_seconds=2)
    it.held = {"n1"}
    it.want("a", 10)
    it.want("b", 10, on="n2")
    it.queue.advance(10)
    assert it.queue.due() == 1
    assert it.settles_until("a") is None
    it.queue.advance(12)
    assert it.queue.due() == 1
    it.held = set()
    it.queue.reconsider()
    assert it.queue.due() == 2
    assert it.take(12) == ["a", "b"]


def test_an_eviction_held_while_it_settles_is_no_longer_due() -> None:
    """The held eviction waits in its flow, and the other one keeps settling."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    it.want("b", 10, on="n2")
    it.queue.advance(10)
    it.held = {"n1"}
    it.queue.reconsider()
    assert it.queue.due() == 1
    assert [it.settles_until(uid) for uid in ("a", "b")] == [None, 12]
    assert it.take(12) == ["b"]
    it.held = set()
    it.queue.reconsider()
    assert it.take(12) == ["a"]


def test_due_counts_first_tries_that_wait() -> None:
    """Retries, evictions in flight, and evictions that are due later do not count."""
    it = Wanted(ONE_A_SECOND)
    for uid in ("a", "b", "c"):
        it.want(uid, 0)
    it.want("later", 9)
    it.want("again", 0, retry=True)
    it.queue.advance(0)
    assert it.queue.due() == 3
    assert it.take(0) == ["a"]
    assert it.queue.due() == 2


# Another policy


def test_a_new_policy_applies_to_waiting_evictions() -> None:
    """Evictions that a limit keeps wait for the new policy's limit, and begin once there is none."""
    it = Wanted(ONE_A_SECOND)
    for uid in ("a", "b", "c", "d"):
        it.want(uid, 0)
    assert it.take(0) == ["a"]
    it.send("a", 0)
    it.queue.change_policy(EvictionPolicy(total=Limit(2.0, 2)), 0)
    assert it.take(0) == []
    assert it.take(0.5) == ["b"]
    it.queue.change_policy(EvictionPolicy(), 0)
    assert it.take(0) == ["c", "d"]


def test_an_eviction_begun_under_an_old_policy_and_not_sent_may_not_continue() -> None:
    """The limits that admitted it are no longer in force: it begins anew, and its token is free."""
    it = Wanted(EvictionPolicy(total=Limit(1.0, 2)))
    it.want("a", 0)
    it.want("b", 0)
    assert it.take(0) == ["a", "b"]
    it.send("a", 0)
    it.queue.change_policy(EvictionPolicy(total=Limit(1.0, 1)), 0)
    assert it.may_send("a")
    assert not it.may_send("b")
    it.end("b", 0, sent=False)
    it.want("b", 0)
    assert it.take(0) == ["b"]
    assert it.may_send("b")


def test_a_waiting_eviction_is_popped_when_another_taint_may_govern_it() -> None:
    """It is popped once at that instant; one that has begun, was cancelled, or was scheduled without it is not."""
    it = Wanted()
    it.held = {"n1"}
    for uid in ("a", "b", "c", "d"):
        it.want(uid, 1, on="n2" if uid == "b" else "n1", anew_at=5)
    assert it.take(1) == ["b"]
    it.queue.cancel(it.record("c"))
    it.want("d", 1)
    assert it.take(1) == []
    assert it.next_at(1) == it.next_at(1, retries=False) == it.next_at(1, stopped=True) == 5
    assert it.queue.pop_taint_change(4.999) is None
    assert it.queue.pop_taint_change(5) is it.record("a")
    assert it.queue.pop_taint_change(5) is None
    assert it.next_at(5) is None
    it.end("b", 5)
    for uid in ("a", "b", "d"):
        it.forget(uid)
    assert it.waiting() == []


def test_an_eviction_begun_without_limits_may_not_continue_once_there_are_some() -> None:
    """No limit has admitted the eviction, so no limit counts it."""
    it = Wanted()
    it.want("a", 0)
    assert it.take(0) == ["a"]
    assert it.may_send("a")
    it.queue.change_policy(ONE_A_SECOND, 0)
    it.queue.change_policy(ONE_A_SECOND, 0)
    assert not it.may_send("a")
    it.end("a", 0, sent=False)
    assert it.waiting() == []


def test_an_eviction_sent_under_an_old_policy_ends_as_usual() -> None:
    """Its token is used, and is missing for the next eviction under the new limit."""
    it = Wanted(ONE_A_SECOND)
    it.want("a", 0)
    it.want("b", 0)
    assert it.take(0) == ["a"]
    it.send("a", 0)
    it.queue.change_policy(EvictionPolicy(total=Limit(0.5, 1, at_once=1)), 0)
    assert it.take(100) == []
    it.end("a", 0, sent=False, ended_pod=True)
    assert it.next_at(0) == 2
    assert it.take(2) == ["b"]


# Nothing is left


def test_a_forgotten_eviction_leaves_nothing_behind() -> None:
    """The queue has a hint to the pod while it waits; the record says since when the deadline is known until then."""
    it = Wanted(ONE_A_SECOND, settle_seconds=2)
    it.want("a", 10)
    assert (it.waiting(), it.record("a").known_since) == (["a"], (10, 0, None))
    assert it.take(12) == ["a"]
    assert it.waiting() == []
    it.end("a", 12)
    assert it.record("a").known_since == (10, 0, None)
    it.forget("a")
    assert it.record("a").known_since is None


def test_a_due_retry_that_is_forgotten_does_not_begin() -> None:
    """No hint to the retry is left in its flow."""
    it = Wanted()
    it.want("a", 5, retry=True)
    it.queue.advance(5)
    it.forget("a")
    assert it.take(6, retry=True) == []
    assert it.waiting() == []


def test_a_retry_begins_once_its_node_is_no_longer_held() -> None:
    """The queue must reconsider which flows are held, as for a first try."""
    it = Wanted()
    it.held.add("n1")
    it.want("a", 5, retry=True)
    assert it.take(5, retry=True) == []
    it.held.clear()
    it.queue.reconsider()
    assert it.take(6, retry=True) == ["a"]


def test_retries_after_a_call_without_an_answer_come_last() -> None:
    """Their calls may hang again, and the workers for retries are few."""
    it = Wanted()
    it.want("hung", 1, retry=True, unanswered=True)
    it.want("refused", 2, on="n2", retry=True)
    assert it.next_at(10) == 1
    assert it.take(10, retry=True) == ["refused", "hung"]
    assert it.next_at(10) is None


@pytest.mark.parametrize(("hanging", "before"), [(frozenset(), 3), (frozenset({"shop"}), 15)])
def test_retries_of_a_namespace_that_hangs_seldom_go_before_others(hanging: frozenset[str], before: int) -> None:
    """With a limit of one at a time, each may keep others waiting for a minute."""
    it = Wanted()
    it.want("hung", 1, retry=True, unanswered=True)
    for number in range(20):
        refused = Schedule(FlowKey("n2", "other", ""), 2, True, None)
        it.queue.schedule(it.record(f"refused-{number}"), refused, 0)
    it.queue.put_last(hanging)
    assert it.take(10, retry=True).index("hung") == before


def test_a_namespace_hangs_while_three_of_its_calls_wait_or_had_no_answer() -> None:
    """A limit of one at a time never lets three of them wait together."""
    it = Wanted()
    it.want("a", 1, retry=True, unanswered=True)
    it.want("b", 1, retry=True, unanswered=True)
    it.want("c", 1, retry=True)
    assert it.queue.hanging({}) == frozenset()
    assert it.queue.hanging({"shop": 1}) == {"shop"}
    assert it.queue.hanging({"other": 3}) == {"other"}
    assert it.take(2, retry=True) == ["c", "a", "b"]
    assert it.queue.hanging({"shop": 2}) == frozenset()
