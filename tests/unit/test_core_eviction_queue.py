"""What is wanted when and what may go: deadlines, settling, first tries and retries, and what is left of it."""

import math

import pytest
from tests.unit.builders import moment, pod, ref
from tests.unit.hints import hints, waiting_uids

from taint_eviction.core.effects import TakeBack
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.known_pods import KnownPods
from taint_eviction.core.limits import Token
from taint_eviction.core.pod_record import UNDECIDED, InFlight, PodRecord, Queued, Schedule, Settling
from taint_eviction.core.policy import EvictionPolicy, Limit, PolicyRule

ONE_A_SECOND = EvictionPolicy(total=Limit(1.0, 1))


class Wanted:
    """A queue, the nodes that are held, and short ways to ask it; pods are told by their UIDs."""

    def __init__(
        self, policy: EvictionPolicy | None = None, settle_seconds: float | None = None, list_wait_seconds: float = 0.0
    ) -> None:
        self.held: set[str] = set()
        self.pods = KnownPods(GoneObjects())
        waits = settle_seconds, list_wait_seconds
        policy = policy or EvictionPolicy()
        self.queue = EvictionQueue(policy, *waits, lambda key: key.node_name in self.held, self.pods)

    def record(self, uid: str) -> PodRecord:
        """Find the record of a pod; of one that is not known yet it begins."""
        if (record := self.pods.find(ref(uid, uid))) is not None:
            return record
        change = self.pods.put(PodSeen(pod(name=uid, uid=uid)), moment(0))
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
    ) -> None:
        """Want a pod's eviction."""
        self.queue.schedule(self.record(uid), Schedule(FlowKey(on, "shop", rule), fire_at, retry, anew_at), now)

    def forget(self, uid: str) -> None:
        """Want a pod's eviction no more."""
        self.queue.forget(self.record(uid))

    def take(self, now: float, retry: bool = False, unlisted_since: float = math.inf) -> list[str]:
        """Begin all that may go."""
        self.queue.advance(now, unlisted_since)
        begun = []
        while (taken := self.queue.take(now, retry)) is not None:
            record, tokens = taken
            assert isinstance(record.state, Queued)
            record.state = InFlight(TakeBack(record.ref, "n1", 0), record.state.schedule, tokens)
            begun.append(record.ref.uid)
        return begun

    def begun(self, uid: str) -> InFlight:
        """Return the state of one that was begun."""
        state = self.record(uid).state
        assert isinstance(state, InFlight)
        return state

    def tokens(self, uid: str) -> tuple[Token, ...]:
        """List the tokens of one that was begun."""
        return self.begun(uid).tokens or ()

    def send(self, uid: str, now: float) -> None:
        """Send one that was begun."""
        self.queue.send(self.tokens(uid), now)

    def end(self, uid: str, now: float, sent: bool = True, ended_pod: bool = True) -> None:
        """End one, sent or not."""
        tokens = self.tokens(uid)
        if sent:
            self.queue.send(tokens, now)
        self.record(uid).state = UNDECIDED
        self.queue.end(tokens, ended_pod)

    def may_send(self, uid: str) -> bool:
        """Ask whether the policy that let one through is still in force."""
        return self.begun(uid).tokens is not None

    def waiting(self) -> list[str]:
        """List those that wait, each once for each hint to it."""
        assert waiting_uids(self.pods) == sorted(hints(self.queue))
        return [uid for uid, found in hints(self.queue).items() for _ in found]

    def settles_until(self, uid: str) -> float | None:
        """Say until when one settles, None if it does not."""
        state = self.record(uid).state
        return state.until if isinstance(state, Settling) else None

    def next_at(self, now: float, retries: bool = True, stopped: bool = False) -> float | None:
        """Ask when something happens next."""
        return self.queue.next_at(now, retries, stopped)


# Deadlines


def test_what_is_wanted_goes_at_its_deadline_and_not_before() -> None:
    """And the next instant is told exactly."""
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
def test_wanting_again_moves_it(again: float, at: float) -> None:
    """Earlier or later, there is one of it."""
    it = Wanted()
    it.want("a", 10)
    it.want("a", again)
    assert it.waiting() == ["a"]
    assert it.next_at(0) == at
    assert it.take(100) == ["a"]


def test_what_is_in_its_lane_moves_as_well() -> None:
    """Due already, and then it is not: it goes back to waiting for its deadline."""
    it = Wanted(ONE_A_SECOND)
    it.want("a", 1)
    it.want("b", 2)
    assert it.take(3) == ["a"]
    it.want("b", 50)
    it.end("a", 3)
    assert it.take(10) == []
    assert it.take(50) == ["b"]


def test_wanting_the_same_again_keeps_its_turn() -> None:
    """Nobody goes to the back because it was looked at once more."""
    it = Wanted()
    it.want("a", 10)
    it.want("b", 10)
    it.queue.advance(10)
    it.want("a", 10)
    assert it.take(10) == ["a", "b"]


def test_another_lane_is_another_place() -> None:
    """The rule that governs it has changed: it waits under that one."""
    rules = (PolicyRule("slow", limit=Limit(0.1, 1)),)
    it = Wanted(EvictionPolicy(rules=rules))
    it.want("a", 0, rule="slow")
    it.want("b", 0, rule="slow")
    assert it.take(0) == ["a"]
    it.want("b", 0)
    assert it.take(0) == ["b"]


@pytest.mark.parametrize("now", [0, 5, 11])
def test_whoever_is_forgotten_goes_nowhere(now: float) -> None:
    """Before its deadline, while it settles, in its lane: nothing of it is left."""
    it = Wanted(ONE_A_SECOND, settle_seconds=2)
    it.want("a", 4)
    it.queue.advance(now)
    it.forget("a")
    assert it.waiting() == []
    assert it.take(100) == []
    assert it.next_at(100) is None


@pytest.mark.parametrize("now", [0, 4])
def test_a_retry_that_is_forgotten_goes_nowhere(now: float) -> None:
    """While it waits for its time, and in its lane."""
    it = Wanted()
    it.want("a", 4, retry=True)
    it.queue.advance(now)
    it.forget("a")
    assert (it.waiting(), it.next_at(100)) == ([], None)
    assert it.take(100, retry=True) == []


def test_to_forget_who_is_unknown_changes_nothing() -> None:
    """Nor to cancel."""
    it = Wanted()
    it.want("a", 1)
    it.forget("b")
    it.queue.cancel(it.record("b"))
    assert it.take(1) == ["a"]


# Retries


def test_retries_wait_for_their_time_and_in_lanes_of_their_own() -> None:
    """First tries and retries are taken apart."""
    it = Wanted()
    it.want("again", 5, retry=True)
    it.want("first", 6)
    assert it.next_at(0) == 5
    assert it.next_at(0, retries=False) == 6
    assert it.take(10) == ["first"]
    assert it.take(10, retry=True) == ["again"]


def test_a_first_try_becomes_a_retry() -> None:
    """Wherever it was, it is there no more."""
    it = Wanted()
    it.want("a", 5)
    it.queue.advance(5)
    it.want("a", 7, retry=True)
    assert it.take(6) == []
    assert it.take(7) == []
    assert it.take(7, retry=True) == ["a"]


def test_retries_that_may_go_are_waited_for_only_where_they_are_asked_for() -> None:
    """All hands that retries may have are busy: what is due of them is no reason to wake."""
    it = Wanted()
    it.want("a", 5, retry=True)
    it.queue.advance(9)
    assert it.next_at(9) == 9
    assert it.next_at(9, retries=False) is None


def test_first_tries_and_retries_share_the_limits() -> None:
    """The token that one takes is missing to the other, and given back to whoever waits."""
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
    """Until that is reconsidered."""
    it = Wanted()
    it.held = {"n1"}
    it.want("a", 0, retry=True)
    it.want("b", 0, on="n2", retry=True)
    assert it.take(1, retry=True) == ["b"]
    assert it.next_at(1) is None
    it.held = set()
    it.queue.reconsider()
    assert it.take(1, retry=True) == ["a"]


def test_while_all_is_stopped_nothing_that_may_go_is_a_reason_to_wake() -> None:
    """But deadlines, settling and retries still move on."""
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


# Settling


def test_without_settling_it_goes_when_it_is_due() -> None:
    """Exactly as if there were no circuit breaker."""
    it = Wanted()
    it.want("a", 1, now=50)
    assert it.take(50) == ["a"]
    assert it.record("a").known_since is None


def test_what_is_due_settles() -> None:
    """From its deadline on; meanwhile it counts as due and can be told from others."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    it.queue.advance(10)
    assert (it.queue.due(), it.settles_until("a")) == (1, 12)
    assert it.next_at(10) == 12
    assert it.take(11.999) == []
    assert it.take(12) == ["a"]
    assert it.settles_until("a") is None


def test_what_was_due_before_it_was_known_settles_from_then_on() -> None:
    """After a restart everything is overdue, and nothing has been looked at yet."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10, now=50)
    assert it.take(51.999) == []
    assert it.take(52) == ["a"]


def test_a_deadline_that_moves_into_the_past_settles_from_when_that_is_known() -> None:
    """Wanted for long, and now because of a taint that was added a while ago: its wave has not been looked at."""
    it = Wanted(settle_seconds=2)
    it.want("a", 300, now=0)
    it.want("a", 91, now=100)
    assert it.take(101.999) == []
    assert it.take(102) == ["a"]


def test_who_has_settled_need_not_settle_again() -> None:
    """Held back in flight, governed by another rule, looked at again: its deadline is the same."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    assert it.take(12) == ["a"]
    it.end("a", 13, sent=False)
    it.want("a", 10, now=13)
    assert it.take(13) == ["a"]
    it.end("a", 13, sent=False)
    it.want("a", 10, now=14, rule="slow")
    assert it.take(14) == ["a"]


def test_who_is_no_longer_wanted_and_is_again_settles_again() -> None:
    """That is another eviction."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    assert it.take(12) == ["a"]
    it.end("a", 12, sent=False)
    it.forget("a")
    it.want("a", 10, now=20)
    assert it.take(21) == []
    assert it.take(22) == ["a"]


@pytest.mark.parametrize(("settle_seconds", "settled_at"), [(2, 12), (0, 10)])
def test_what_is_due_waits_for_lists_too(settle_seconds: float, settled_at: float) -> None:
    """Of a node that is new when it has settled: until there is none any more."""
    it = Wanted(settle_seconds=settle_seconds, list_wait_seconds=10)
    it.want("a", 10)
    assert it.take(settled_at, unlisted_since=settled_at) == []
    assert it.queue.due() == 1
    assert it.settles_until("a") == settled_at
    assert it.next_at(settled_at) == 20
    assert it.take(13) == ["a"]
    assert it.queue.waited_until == -math.inf


def test_it_does_not_wait_for_nodes_that_are_tainted_once_it_has_settled() -> None:
    """They are none of its business."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", 10)
    assert it.take(12.5, unlisted_since=12.001) == ["a"]


def test_lists_are_waited_for_so_long_and_no_longer() -> None:
    """From its deadline on; what was waited for in vain is told."""
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


def test_what_was_overdue_waits_for_lists_from_when_that_is_known() -> None:
    """After a restart its deadline may have been long ago."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", -500, now=30)
    assert it.take(39.999, unlisted_since=30) == []
    assert it.take(40, unlisted_since=30) == ["a"]


def test_a_wait_for_lists_that_is_shorter_than_settling_is_none() -> None:
    """It ends with it."""
    it = Wanted(settle_seconds=5, list_wait_seconds=3)
    it.want("a", 10)
    assert it.take(14.999, unlisted_since=5) == []
    assert it.take(15, unlisted_since=5) == ["a"]
    assert it.queue.waited_until == 15


def test_who_goes_again_does_not_lower_until_when_lists_were_waited_for() -> None:
    """It settled long ago."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", 10)
    it.want("b", 15)
    assert it.take(25, unlisted_since=5) == ["a", "b"]
    it.end("a", 26, sent=False)
    it.want("a", 10, now=26)
    assert it.take(26, unlisted_since=5) == ["a"]
    assert it.queue.waited_until == 17


def test_retries_do_not_settle() -> None:
    """The first try did."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10, retry=True)
    assert it.take(10, retry=True) == ["a"]


def test_who_is_held_back_while_it_waits_for_lists_waits_in_its_lane() -> None:
    """And goes once it is not held any more: whoever lets it go knows."""
    it = Wanted(settle_seconds=2, list_wait_seconds=10)
    it.want("a", 10)
    assert it.take(13, unlisted_since=5) == []
    it.held = {"n1"}
    it.queue.reconsider()
    assert it.settles_until("a") is None
    it.held = set()
    it.queue.reconsider()
    assert it.take(14, unlisted_since=5) == ["a"]


def test_who_is_held_back_anyway_need_not_settle() -> None:
    """It does not count as due either: nothing of it is about to go."""
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


def test_who_is_held_back_while_it_settles_is_no_longer_due() -> None:
    """It waits in its lane, and the others settle on."""
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
    """Not retries, not what is in flight, not what is due later."""
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


def test_another_policy_holds_for_who_waits() -> None:
    """Those that were kept by a limit go once there is none; those that were free wait."""
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


def test_what_was_begun_and_not_sent_under_another_policy_may_not_go_on() -> None:
    """It was let through by limits that are no more: it begins anew, and its token is free."""
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


def test_another_taint_governs_who_still_waits_then() -> None:
    """At that instant it is told once; nothing is told of who has been begun, cancelled, or scheduled without it."""
    it = Wanted()
    it.held = {"n1"}
    for uid in ("a", "b", "c", "d"):
        it.want(uid, 1, on="n2" if uid == "b" else "n1", anew_at=5)
    assert it.take(1) == ["b"]
    it.queue.cancel(it.record("c"))
    it.want("d", 1)
    assert it.take(1) == []
    assert it.next_at(1) == it.next_at(1, retries=False) == it.next_at(1, stopped=True) == 5
    assert it.queue.pop_governed_anew(4.999) is None
    assert it.queue.pop_governed_anew(5) is it.record("a")
    assert it.queue.pop_governed_anew(5) is None
    assert it.next_at(5) is None
    it.end("b", 5)
    for uid in ("a", "b", "d"):
        it.forget(uid)
    assert it.waiting() == []


def test_what_was_begun_without_limits_may_not_go_on_once_there_are_some() -> None:
    """Whoever was let through by none is counted by none."""
    it = Wanted()
    it.want("a", 0)
    assert it.take(0) == ["a"]
    assert it.may_send("a")
    it.queue.change_policy(ONE_A_SECOND, 0)
    it.queue.change_policy(ONE_A_SECOND, 0)
    assert not it.may_send("a")
    it.end("a", 0, sent=False)
    assert it.waiting() == []


def test_what_was_sent_under_another_policy_ends_as_ever() -> None:
    """Its token was taken, and is not there for the next."""
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


def test_what_is_forgotten_settles_anew_and_has_no_hint() -> None:
    """Wanted, where it waits, since when it is known; begun; and nothing once it is forgotten."""
    it = Wanted(ONE_A_SECOND, settle_seconds=2)
    it.want("a", 10)
    assert (it.waiting(), it.record("a").known_since) == (["a"], (10, 0))
    assert it.take(12) == ["a"]
    assert it.waiting() == []
    it.end("a", 12)
    assert it.record("a").known_since == (10, 0)
    it.forget("a")
    assert it.record("a").known_since is None


def test_a_retry_that_is_due_and_no_longer_wanted_is_not_begun() -> None:
    """Nothing is left of it in its lane."""
    it = Wanted()
    it.want("a", 5, retry=True)
    it.queue.advance(5)
    it.forget("a")
    assert it.take(6, retry=True) == []
    assert it.waiting() == []


def test_a_retry_goes_once_its_node_is_no_longer_held() -> None:
    """As a first try does: when it is asked anew which are."""
    it = Wanted()
    it.held.add("n1")
    it.want("a", 5, retry=True)
    assert it.take(5, retry=True) == []
    it.held.clear()
    it.queue.reconsider()
    assert it.take(6, retry=True) == ["a"]
