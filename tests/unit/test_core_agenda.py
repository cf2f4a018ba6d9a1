"""What is wanted when and what may go: deadlines, settling, first tries and retries, and what is left of it."""

import pytest
from tests.unit.builders import ref

from taint_eviction.core.agenda import Agenda
from taint_eviction.core.lanes import LaneKey
from taint_eviction.core.policy import EvictionPolicy, Limit, PolicyRule

ONE_A_SECOND = EvictionPolicy(whole=Limit(1.0, 1))


class Wanted:
    """An agenda, the nodes that are held, and short ways to ask it; pods are told by their UIDs."""

    def __init__(self, policy: EvictionPolicy | None = None, settle_seconds: float = 0.0) -> None:
        self.held: set[str] = set()
        self.agenda = Agenda(policy or EvictionPolicy(), settle_seconds, lambda key: key.node_name in self.held)

    def want(
        self, uid: str, fire_at: float, now: float = 0, on: str = "n1", rule: str = "", retry: bool = False
    ) -> None:
        """Want a pod's eviction."""
        self.agenda.schedule(ref(uid, uid), LaneKey(on, "shop", rule), fire_at, now, retry)

    def take(self, now: float, retry: bool = False) -> list[str]:
        """Begin all that may go."""
        self.agenda.advance(now)
        taken = iter(lambda: self.agenda.take(now, retry), None)
        return [one.uid for one in taken if one is not None]

    def end(self, uid: str, now: float, sent: bool = True, ended_pod: bool = True) -> None:
        """End one, sent or not."""
        if sent:
            self.agenda.send(ref(uid, uid), now)
        self.agenda.end(ref(uid, uid), ended_pod)

    def next_at(self, now: float, retries: bool = True, stopped: bool = False) -> float | None:
        """Ask when something happens next."""
        return self.agenda.next_at(now, retries, stopped)


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
    assert list(it.agenda) == ["a"]
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
    it.agenda.advance(10)
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
    it.agenda.advance(now)
    it.agenda.forget(ref("a", "a"))
    assert len(it.agenda) == 0
    assert it.take(100) == []
    assert it.next_at(100) is None


@pytest.mark.parametrize("now", [0, 4])
def test_a_retry_that_is_forgotten_goes_nowhere(now: float) -> None:
    """While it waits for its time, and in its lane."""
    it = Wanted()
    it.want("a", 4, retry=True)
    it.agenda.advance(now)
    it.agenda.forget(ref("a", "a"))
    assert (len(it.agenda), it.next_at(100)) == (0, None)
    assert it.take(100, retry=True) == []


def test_to_forget_who_is_unknown_changes_nothing() -> None:
    """Nor to cancel."""
    it = Wanted()
    it.want("a", 1)
    it.agenda.forget(ref("b", "b"))
    it.agenda.cancel(ref("b", "b"))
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
    it.agenda.advance(5)
    it.want("a", 7, retry=True)
    assert it.take(6) == []
    assert it.take(7) == []
    assert it.take(7, retry=True) == ["a"]


def test_retries_that_may_go_are_waited_for_only_where_they_are_asked_for() -> None:
    """All hands that retries may have are busy: what is due of them is no reason to wake."""
    it = Wanted()
    it.want("a", 5, retry=True)
    it.agenda.advance(9)
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
    it.agenda.send(ref("a", "a"), 3)
    assert it.next_at(3) == 4
    it.agenda.end(ref("a", "a"), ended_pod=False)
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
    it.agenda.reconsider()
    assert it.take(1, retry=True) == ["a"]


def test_while_all_is_stopped_nothing_that_may_go_is_a_reason_to_wake() -> None:
    """But deadlines, settling and retries still move on."""
    it = Wanted(settle_seconds=2)
    it.want("due", 0)
    it.want("later", 7)
    it.want("again", 5, retry=True)
    it.want("again due", 0, retry=True)
    it.agenda.advance(0)
    assert it.next_at(0, stopped=True) == 2
    it.agenda.advance(2)
    assert it.next_at(2, stopped=True) == 5
    assert it.next_at(2, retries=False, stopped=True) == 7
    assert it.next_at(2) == 2


# Settling


def test_without_settling_it_goes_when_it_is_due() -> None:
    """Exactly as if there were no circuit breaker."""
    it = Wanted()
    it.want("a", 1, now=50)
    assert it.take(50) == ["a"]
    assert len(it.agenda) == 1


def test_what_is_due_settles() -> None:
    """From its deadline on; meanwhile it counts as due and can be told from others."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    it.agenda.advance(10)
    assert (it.agenda.due(), it.agenda.is_settling(ref("a", "a"))) == (1, True)
    assert it.next_at(10) == 12
    assert it.take(11.999) == []
    assert it.take(12) == ["a"]
    assert not it.agenda.is_settling(ref("a", "a"))


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
    it.agenda.forget(ref("a", "a"))
    it.want("a", 10, now=20)
    assert it.take(21) == []
    assert it.take(22) == ["a"]


def test_retries_do_not_settle() -> None:
    """The first try did."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10, retry=True)
    assert it.take(10, retry=True) == ["a"]


def test_who_is_held_back_anyway_need_not_settle() -> None:
    """It does not count as due either: nothing of it is about to go."""
    it = Wanted(settle_seconds=2)
    it.held = {"n1"}
    it.want("a", 10)
    it.want("b", 10, on="n2")
    it.agenda.advance(10)
    assert it.agenda.due() == 1
    assert not it.agenda.is_settling(ref("a", "a"))
    it.agenda.advance(12)
    assert it.agenda.due() == 1
    it.held = set()
    it.agenda.reconsider()
    assert it.agenda.due() == 2
    assert it.take(12) == ["a", "b"]


def test_who_is_held_back_while_it_settles_is_no_longer_due() -> None:
    """It waits in its lane, and the others settle on."""
    it = Wanted(settle_seconds=2)
    it.want("a", 10)
    it.want("b", 10, on="n2")
    it.agenda.advance(10)
    it.held = {"n1"}
    it.agenda.reconsider()
    assert it.agenda.due() == 1
    assert [it.agenda.is_settling(ref(uid, uid)) for uid in ("a", "b")] == [False, True]
    assert it.take(12) == ["b"]
    it.held = set()
    it.agenda.reconsider()
    assert it.take(12) == ["a"]


def test_due_counts_first_tries_that_wait() -> None:
    """Not retries, not what is in flight, not what is due later."""
    it = Wanted(ONE_A_SECOND)
    for uid in ("a", "b", "c"):
        it.want(uid, 0)
    it.want("later", 9)
    it.want("again", 0, retry=True)
    it.agenda.advance(0)
    assert it.agenda.due() == 3
    assert it.take(0) == ["a"]
    assert it.agenda.due() == 2


# Another policy


def test_another_policy_holds_for_who_waits() -> None:
    """Those that were kept by a limit go once there is none; those that were free wait."""
    it = Wanted(ONE_A_SECOND)
    for uid in ("a", "b", "c", "d"):
        it.want(uid, 0)
    assert it.take(0) == ["a"]
    it.agenda.send(ref("a", "a"), 0)
    it.agenda.change_policy(EvictionPolicy(whole=Limit(2.0, 2)), 0)
    assert it.take(0) == []
    assert it.take(0.5) == ["b"]
    it.agenda.change_policy(EvictionPolicy(), 0)
    assert it.take(0) == ["c", "d"]


def test_what_was_begun_and_not_sent_under_another_policy_may_not_go_on() -> None:
    """It was let through by limits that are no more: it begins anew, and its token is free."""
    it = Wanted(EvictionPolicy(whole=Limit(1.0, 2)))
    it.want("a", 0)
    it.want("b", 0)
    assert it.take(0) == ["a", "b"]
    it.agenda.send(ref("a", "a"), 0)
    it.agenda.change_policy(EvictionPolicy(whole=Limit(1.0, 1)), 0)
    assert it.agenda.may_send(ref("a", "a"))
    assert not it.agenda.may_send(ref("b", "b"))
    it.end("b", 0, sent=False)
    it.want("b", 0)
    assert it.take(0) == ["b"]
    assert it.agenda.may_send(ref("b", "b"))


def test_what_was_begun_without_limits_may_not_go_on_once_there_are_some() -> None:
    """Whoever was let through by none is counted by none."""
    it = Wanted()
    it.want("a", 0)
    assert it.take(0) == ["a"]
    assert it.agenda.may_send(ref("a", "a"))
    it.agenda.change_policy(ONE_A_SECOND, 0)
    it.agenda.change_policy(ONE_A_SECOND, 0)
    assert not it.agenda.may_send(ref("a", "a"))
    it.end("a", 0, sent=False)
    assert len(it.agenda) == 0


def test_what_was_sent_under_another_policy_ends_as_ever() -> None:
    """Its token was taken, and is not there for the next."""
    it = Wanted(ONE_A_SECOND)
    it.want("a", 0)
    it.want("b", 0)
    assert it.take(0) == ["a"]
    it.agenda.send(ref("a", "a"), 0)
    it.agenda.change_policy(EvictionPolicy(whole=Limit(0.5, 1, at_once=1)), 0)
    assert it.take(100) == []
    it.agenda.end(ref("a", "a"), ended_pod=True)
    assert it.next_at(0) == 2
    assert it.take(2) == ["b"]


# Nothing is left


def test_what_is_remembered_is_counted() -> None:
    """Wanted, where it waits, since when it is known; begun; and nothing once it is forgotten."""
    it = Wanted(ONE_A_SECOND, settle_seconds=2)
    it.want("a", 10)
    assert len(it.agenda) == 3
    assert it.take(12) == ["a"]
    assert len(it.agenda) == 2
    it.end("a", 12)
    assert len(it.agenda) == 1
    it.agenda.forget(ref("a", "a"))
    assert len(it.agenda) == 0


def test_a_retry_that_is_due_and_no_longer_wanted_is_not_begun() -> None:
    """Nothing is left of it in its lane."""
    it = Wanted()
    it.want("a", 5, retry=True)
    it.agenda.advance(5)
    it.agenda.forget(ref("a", "a"))
    assert it.take(6, retry=True) == []
    assert len(it.agenda) == 0


def test_a_retry_goes_once_its_node_is_no_longer_held() -> None:
    """As a first try does: when it is asked anew which are."""
    it = Wanted()
    it.held.add("n1")
    it.want("a", 5, retry=True)
    assert it.take(5, retry=True) == []
    it.held.clear()
    it.agenda.reconsider()
    assert it.take(6, retry=True) == ["a"]
