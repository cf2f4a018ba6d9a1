"""Whose turn it is among the pods that are due, and who waits aside for what."""

from collections.abc import Iterable

import pytest
from tests.unit.builders import ref

from taint_eviction.core import fair_queue
from taint_eviction.core.fair_queue import FairQueue, FlowKey
from taint_eviction.core.limits import Limits, Token, TokenBucket
from taint_eviction.core.policy import EvictionPolicy, Limit


def key(node_name: str = "n1", namespace: str = "shop", rule: str = "") -> FlowKey:
    """A lane."""
    return FlowKey(node_name, namespace, rule)


class WaitingPods:
    """Lanes under a policy, with nodes that are held, and short ways to ask them; pods are told by their UIDs."""

    def __init__(self, policy: EvictionPolicy | None = None) -> None:
        self.limits = Limits(policy or EvictionPolicy())
        self.held: set[str] = set()
        self.flows = FairQueue(lambda flow: flow.node_name in self.held, self.limits.buckets)
        self.begun: dict[str, tuple[Token, ...]] = {}

    def add(self, uid: str, flow: FlowKey | None = None, fire_at: float = 0) -> None:
        """Let a pod wait."""
        self.flows.add(ref(uid, uid), flow or key(), fire_at)

    def crowd(self, uids: Iterable[str], flow: FlowKey, fire_at: float = 0) -> None:
        """Let several wait, each a second less overdue than the one before."""
        for number, uid in enumerate(uids):
            self.add(uid, flow, fire_at + number)

    def discard(self, uid: str) -> None:
        """Let go of a pod."""
        self.flows.discard(ref(uid, uid))

    def take(self, now: float = 0) -> str | None:
        """Take one."""
        taken = self.flows.take(now)
        if taken is None:
            return None
        which, self.begun[which.uid] = taken
        return which.uid

    def all(self, now: float = 0) -> list[str]:
        """Take as many as may go."""
        return [uid for uid in iter(lambda: self.take(now), None) if uid is not None]

    def send(self, uid: str, now: float) -> None:
        """Send one that was begun."""
        for token in self.begun[uid]:
            token.bucket.send(token, now)
            self.flows.freed(token.bucket)

    def end(self, uid: str, ended_pod: bool = True) -> None:
        """End one that was begun."""
        for token in self.begun.pop(uid):
            token.bucket.end(token, ended_pod)
            self.flows.freed(token.bucket)

    def evict(self, now: float) -> list[str]:
        """Take, send and end as many as may go."""
        gone = []
        while (uid := self.take(now)) is not None:
            self.send(uid, now)
            self.end(uid)
            gone.append(uid)
        return gone


# Turns


def test_of_one_node_the_most_overdue_goes_first() -> None:
    """Across its namespaces and rules; ties go in the order in which they came."""
    it = WaitingPods()
    for uid, flow, fire_at in [
        ("c", key(namespace="shop"), 3),
        ("a", key(namespace="bank"), 1),
        ("d", key(namespace="bank"), 4),
        ("b", key(rule="slow"), 2),
        ("d2", key(namespace="shop"), 4),
    ]:
        it.add(uid, flow, fire_at)
    assert it.all() == ["a", "b", "c", "d", "d2"]


def test_nodes_take_turns() -> None:
    """A node with three that are long overdue does not go thrice before another has gone once."""
    it = WaitingPods()
    it.crowd(["a1", "a2", "a3"], key("a"), 0)
    it.crowd(["b1", "b2"], key("b"), 100)
    assert it.all() == ["a1", "b1", "a2", "b2", "a3"]


def test_in_each_turn_the_node_with_the_most_overdue_pod_is_first() -> None:
    """The order of one turn is not that of the next."""
    it = WaitingPods()
    it.add("a1", key("a"), 1)
    it.add("a2", key("a"), 9)
    it.add("b1", key("b"), 2)
    it.add("b2", key("b"), 3)
    assert it.all() == ["a1", "b1", "b2", "a2"]


def test_a_node_with_many_lanes_has_one_turn_like_the_others() -> None:
    """Turns are nodes', not lanes'."""
    it = WaitingPods()
    it.crowd(["a1"], key("a", "x"), 0)
    it.crowd(["a2"], key("a", "y"), 1)
    it.crowd(["a3"], key("a", "z"), 2)
    it.crowd(["b1", "b2"], key("b"), 50)
    assert it.all() == ["a1", "b1", "a2", "b2", "a3"]


def test_a_node_that_comes_later_takes_part_from_the_turn_that_is_on() -> None:
    """It does not make up for the turns in which it was not there, nor waits for those before it to be done."""
    it = WaitingPods()
    it.crowd(["a1", "a2", "a3", "a4", "a5"], key("a"))
    assert [it.take(), it.take(), it.take()] == ["a1", "a2", "a3"]
    it.crowd(["b1", "b2", "b3"], key("b"), 100)
    assert it.all() == ["b1", "a4", "b2", "a5", "b3"]


def test_a_node_that_comes_back_has_not_lost_its_place_in_the_turn() -> None:
    """It has had its turn, and one pod that comes after another does not win it a second one."""
    it = WaitingPods()
    it.crowd(["b1", "b2"], key("b"), 50)
    it.add("a1", key("a"), 0)
    assert it.take() == "a1"
    it.add("a2", key("a"), 1)
    assert it.all() == ["b1", "a2", "b2"]


def test_turns_begin_anew_when_nobody_waits() -> None:
    """Nothing is kept of nodes of which nobody waits."""
    it = WaitingPods()
    it.crowd(["a1", "a2", "a3"], key("a"))
    it.all()
    it.add("a4", key("a"), 0)
    it.add("b1", key("b"), 1)
    assert it.all() == ["a4", "b1"]
    assert (it.flows._next_turns, it.flows._turn, it.flows._flows, it.flows._ready) == ({}, 0, {}, [])


def test_a_more_overdue_pod_that_comes_later_moves_its_node_forward() -> None:
    """The turn is its node's, the order is by the most overdue."""
    it = WaitingPods()
    it.add("a1", key("a"), 5)
    it.add("b1", key("b"), 6)
    it.add("b0", key("b"), 4)
    assert it.all() == ["b0", "a1", "b1"]


def test_a_less_overdue_pod_that_comes_later_changes_nothing() -> None:
    """The one before it still stands for its lane."""
    it = WaitingPods()
    it.add("a1", key("a"), 5)
    it.add("a2", key("a"), 7)
    it.add("b1", key("b"), 6)
    assert it.all() == ["a1", "b1", "a2"]


# Whoever waits stays cancellable


def test_whoever_is_let_go_of_is_not_taken() -> None:
    """The first of a lane, one in its middle, the last; and whoever is not here changes nothing."""
    it = WaitingPods()
    it.crowd(["a", "b", "c", "d"], key())
    for uid in ("a", "c", "nobody", "a"):
        it.discard(uid)
    assert len(it.flows) == 2
    assert it.all() == ["b", "d"]


def test_without_its_most_overdue_pod_a_node_moves_back() -> None:
    """Its place was that pod's."""
    it = WaitingPods()
    it.add("a1", key("a"), 1)
    it.add("a2", key("a"), 9)
    it.add("b1", key("b"), 5)
    it.discard("a1")
    assert it.all() == ["b1", "a2"]


def test_an_emptied_lane_that_fills_again_is_a_new_one() -> None:
    """Nothing of the old one stands in its way."""
    it = WaitingPods()
    it.add("a", key(), 1)
    it.discard("a")
    it.add("b", key(), 2)
    assert it.all() == ["b"]


def test_how_many_wait() -> None:
    """Held ones count, but are not free."""
    it = WaitingPods()
    it.held = {"n2"}
    it.crowd(["a", "b"], key("n1"))
    it.crowd(["c", "d", "e"], key("n2"))
    assert (len(it.flows), it.flows.free) == (5, 2)
    it.discard("c")
    assert (len(it.flows), it.flows.free) == (4, 2)
    it.take()
    assert (len(it.flows), it.flows.free) == (3, 1)


# Held


def test_who_is_held_waits_until_that_is_reconsidered() -> None:
    """Both ways; and the others go on."""
    it = WaitingPods()
    it.held = {"n2"}
    it.crowd(["a", "b"], key("n1"))
    it.crowd(["c", "d"], key("n2"), -10)
    assert it.take() == "a"
    it.held = {"n1"}
    assert it.take() == "b"
    it.add("a2", key("n1"))
    it.flows.reconsider()
    assert it.flows.free == 2
    assert it.all() == ["c", "d"]
    assert it.flows.next_at(0) is None
    it.held = set()
    it.flows.reconsider()
    assert it.flows.free == 1
    assert it.all() == ["a2"]


def test_reconsidering_gives_nobody_a_second_turn() -> None:
    """Who has had its turn has had it."""
    it = WaitingPods()
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2"], key("b"), 50)
    assert it.take() == "a1"
    it.flows.reconsider()
    assert it.all() == ["b1", "a2", "b2"]


# Limited


def test_who_has_no_room_waits_aside_and_the_others_go() -> None:
    """One a node each second: the second ones wait, whoever comes next on another node goes."""
    it = WaitingPods(EvictionPolicy(per_node=Limit(1.0, 1)))
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2"], key("b"), 50)
    assert it.evict(0) == ["a1", "b1"]
    it.add("c1", key("c"), 99)
    assert it.evict(0.5) == ["c1"]
    assert it.flows.next_at(0.5) == 1.0
    assert it.evict(0.999) == []
    assert it.evict(1.0) == ["a2", "b2"]


def test_all_that_one_limit_keeps_go_one_by_one_as_it_has_room() -> None:
    """Two a second for all: by turns, the most overdue first, and no one is asked in vain."""
    it = WaitingPods(EvictionPolicy(total=Limit(2.0, 1)))
    for number in range(4):
        it.crowd([f"{number}a", f"{number}b"], key(f"n{number}"), 10 * number)
    gone = [it.evict(step / 2) for step in range(8)]
    assert gone == [["0a"], ["1a"], ["2a"], ["3a"], ["0b"], ["1b"], ["2b"], ["3b"]]


def test_what_grew_while_nobody_looked_lets_as_many_go_at_once() -> None:
    """A burst of three is three, each of another node."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 3)))
    for number in range(8):
        it.add(f"n{number}", key(f"n{number}"), number)
    assert it.evict(0) == ["n0", "n1", "n2"]
    assert it.flows.next_at(0) == 1.0
    assert it.evict(2.5) == ["n3", "n4"]
    assert it.evict(100) == ["n5", "n6", "n7"]


def test_a_lane_needs_room_under_each_of_its_limits() -> None:
    """Its node's and the whole's, whichever lacks; once one has room, it may wait for the other."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 2), per_node=Limit(0.25, 1)))
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2"], key("b"), 50)
    it.crowd(["c1"], key("c"), 90)
    assert it.evict(0) == ["a1", "b1"]
    assert it.evict(1) == ["c1"]
    assert it.flows.next_at(1) == 2.0
    assert it.evict(2) == []
    assert it.flows.next_at(2) == 4.0
    assert it.evict(4) == ["a2", "b2"]


def test_one_that_is_called_by_one_limit_and_kept_by_another_lets_the_next_one_go() -> None:
    """The whole has room, and the node of the first has one in flight: the second is called at once."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1), per_node=Limit(at_once=1)))
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2"], key("b"), 50)
    assert it.take(0) == "a1"
    it.send("a1", 0)
    assert it.evict(1) == ["b1"]
    assert it.evict(2) == ["b2"]
    it.end("a1")
    assert it.evict(2.5) == []
    assert it.evict(3) == ["a2"]


def test_who_ends_makes_room_where_no_time_does() -> None:
    """One at once for each node: the next begins when the one before has ended, and only then."""
    it = WaitingPods(EvictionPolicy(per_node=Limit(at_once=1)))
    it.crowd(["a1", "a2", "a3"], key("a"))
    assert it.all() == ["a1"]
    assert it.flows.next_at(0) is None
    assert it.all(1e9) == []
    it.end("a1")
    assert it.flows.next_at(5) == 5
    assert it.all() == ["a2"]


def test_sending_makes_the_waiting_countable() -> None:
    """What is spoken for says nothing of when; once it is sent, the next token's instant is known."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    it.crowd(["a", "b"], key())
    assert it.all() == ["a"]
    assert it.flows.next_at(0) is None
    it.send("a", 3)
    assert it.flows.next_at(3) == 4
    assert it.all(4) == ["b"]


def test_a_token_that_comes_back_hastens_the_next() -> None:
    """It was waited for until 10; the no of a budget makes it at once."""
    it = WaitingPods(EvictionPolicy(total=Limit(0.1, 1)))
    it.crowd(["a", "b"], key())
    assert it.all() == ["a"]
    it.send("a", 0)
    assert it.flows.next_at(0) == 10
    it.end("a", ended_pod=False)
    assert it.flows.next_at(0) == 0
    assert it.all() == ["b"]


def test_called_too_early_the_place_goes_to_who_deserves_it_more() -> None:
    """Kept by the whole: a's lane is called first, then its node has a turn by another lane; so b goes before it."""
    it = WaitingPods(EvictionPolicy(per_namespace=Limit(1.0, 1)))
    it.crowd(["a1", "a2"], key("a", "shop"), 0)
    it.crowd(["b1"], key("b", "shop"), 10)
    assert it.evict(0) == ["a1"]
    it.add("a0", key("a", "bank"), -5)
    it.add("x", key("x", "mall"), 5)
    # At 1 the shop has room: a2's lane is called to the turn; before it, bank's a0 is more overdue.
    assert it.take(1) == "x"
    assert it.take(1) == "b1"
    assert it.take(1) == "a0"


def test_a_more_overdue_pod_that_comes_while_its_lane_is_kept_counts() -> None:
    """Its lane goes before others that the same limit keeps."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    it.add("x", key("x"), 0)
    it.add("a", key("a"), 5)
    it.add("b", key("b"), 6)
    assert it.evict(0) == ["x"]
    it.add("b0", key("b"), 4)
    assert it.evict(1) == ["b0"]
    assert it.evict(2) == ["a"]


def test_a_more_overdue_pod_that_comes_while_another_lane_is_called_counts() -> None:
    """Its lane is kept, and the one before it in line was called to the turn already, but has not gone."""
    it = WaitingPods(EvictionPolicy(per_namespace=Limit(1.0, 1)))
    it.add("x", key("x"), 0)
    it.add("a", key("a"), 1)
    it.add("b", key("b"), 2)
    assert it.evict(0) == ["x"]
    it.add("free", key("free", "bank"), 0)
    assert it.take(1) == "free"
    it.add("b0", key("b"), 0.5)
    assert [it.take(1), it.take(1)] == ["b0", None]


def after_x_others_are_kept(policy: EvictionPolicy, alone: bool) -> WaitingPods:
    """At 0, x has gone; its limit keeps a, then b, each in the lane of its name. Unless ``alone``, a2 is behind a."""
    it = WaitingPods(policy)
    it.add("x", key("x"), 0)
    it.add("a", key("a"), 1)
    it.add("b", key("b"), 2)
    if not alone:
        it.add("a2", key("a"), 7)
    assert it.evict(0) == ["x"]
    return it


@pytest.mark.parametrize("alone", [True, False])
def test_whoever_is_let_go_of_while_it_is_kept_does_not_keep_others(alone: bool) -> None:
    """The token goes to the next, whether or not somebody else is left in its lane."""
    it = after_x_others_are_kept(EvictionPolicy(total=Limit(1.0, 1)), alone)
    it.discard("a")
    assert it.evict(1) == ["b"]
    assert it.evict(2) == ([] if alone else ["a2"])


@pytest.mark.parametrize("alone", [True, False])
def test_whoever_is_let_go_of_once_it_is_called_does_not_keep_others(alone: bool) -> None:
    """Called to the turn, but not first in it: the next that its limit keeps takes part at once."""
    it = after_x_others_are_kept(EvictionPolicy(per_namespace=Limit(1.0, 1)), alone)
    it.add("first", key("first", "bank"), -1)
    it.add("last", key("last", "mall"), 99)
    assert it.take(1) == "first"
    it.discard("a")
    assert [it.take(1), it.take(1), it.take(1)] == ["b", "last", None]


def test_a_limit_that_has_room_for_several_calls_one_after_the_other() -> None:
    """Before any of them is sent."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 3)))
    for number in range(8):
        it.add(f"n{number}", key(f"n{number}"), number)
    assert it.evict(0) == ["n0", "n1", "n2"]
    assert it.all(2) == ["n3", "n4"]
    it.end("n3")
    assert it.all(2) == ["n5"]


def test_one_that_was_called_goes_back_behind_those_that_come_before_it_by_then() -> None:
    """Its most overdue pod is let go of: others that the same limit keeps are first now."""
    it = WaitingPods(EvictionPolicy(per_namespace=Limit(1.0, 1)))
    it.add("x", key("x"), 0)
    it.add("a", key("a"), 1)
    it.add("a2", key("a"), 50)
    it.add("b", key("b"), 10)
    assert it.evict(0) == ["x"]
    it.add("free", key("free", "bank"), 0)
    it.add("free2", key("free2", "mall"), 20)
    assert it.take(1) == "free"
    it.discard("a")
    assert [it.take(1), it.take(1), it.take(1)] == ["b", "free2", None]


def test_nothing_is_left_of_a_limit_that_keeps_nobody() -> None:
    """All that waited for it is let go of: its instant is no longer waited for, whoever else waits."""
    it = WaitingPods(EvictionPolicy(per_node=Limit(1.0, 1)))
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2", "b3"], key("b"))
    assert it.evict(0) == ["a1", "b1"]
    it.discard("a2")
    assert it.evict(1) == ["b2"]
    assert (len(it.flows._kept), len(it.flows._calls), it.flows.next_at(1)) == (1, 1, 2)
    assert it.evict(2) == ["b3"]
    assert (it.flows._kept, it.flows._calls, it.flows.next_at(2)) == ({}, [], None)


def test_held_while_it_is_kept() -> None:
    """A lane that is held when its limit has room again does not take the token from the others."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    it.add("x", key("x"), 0)
    it.add("a", key("a"), 1)
    it.add("b", key("b"), 2)
    assert it.evict(0) == ["x"]
    it.held = {"a"}
    it.flows.reconsider()
    assert it.evict(1) == ["b"]
    assert it.flows.next_at(1) is None
    it.held = set()
    it.flows.reconsider()
    assert it.evict(1.5) == []
    assert it.flows.next_at(1.5) == 2
    assert it.evict(2) == ["a"]


def test_two_kinds_of_lanes_share_the_limits() -> None:
    """What one of them speaks for is not there for the other, and it waits for exactly what is left."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    other = WaitingPods()
    other.flows._buckets = it.limits.buckets
    it.crowd(["a", "b"], key())
    other.crowd(["c", "d"], key())
    assert it.evict(0) == ["a"]
    assert other.all(0) == []
    assert (it.flows.next_at(0), other.flows.next_at(0)) == (1, 1)
    assert it.evict(1) == ["b"]
    assert other.all(1) == []
    assert other.flows.next_at(1) == 2
    assert other.all(2) == ["c"]


def test_ready_means_now() -> None:
    """Whoever may go may go at once, and after them whoever is waited for."""
    it = WaitingPods()
    assert it.flows.next_at(7) is None
    it.add("a")
    assert it.flows.next_at(7) == 7
    it.take()
    assert it.flows.next_at(7) is None


# Bounded


def test_a_lane_that_is_never_served_forgets_who_was_let_go_of() -> None:
    """Held for hours while pods come and go: what is remembered is bounded by those who wait."""
    it = WaitingPods()
    it.held = {"n1"}
    it.crowd(["first", "second"], key())
    for number in range(1000):
        it.add(f"u{number}", key(), 100)
        it.discard(f"u{number}")
    [flow] = it.flows._flows.values()
    assert len(flow.entries) <= 2 * 3 + 64
    it.held = set()
    it.flows.reconsider()
    assert it.all() == ["first", "second"]


@pytest.mark.parametrize("rate", [None, 0.001])
def test_places_of_lanes_that_are_no_more_are_bounded(rate: float | None) -> None:
    """Nobody takes, or nobody may go; lanes come and go, and so do their most overdue pods."""
    it = WaitingPods(EvictionPolicy() if rate is None else EvictionPolicy(total=Limit(rate, 1)))
    it.crowd(["x", "y"], key("x"), 0)
    if rate is not None:
        assert it.evict(0) == ["x"]
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number % 3}"), 1000 - number)
        if rate is not None:
            assert it.take(0) is None
        it.discard(f"u{number}")
    places = [it.flows._ready, *(kept.places for kept in it.flows._kept.values())]
    assert sum(map(len, places)) <= 2 * (2 * 2 + 64)
    assert it.evict(0) == (["x", "y"] if rate is None else [])
    assert it.evict(2000) == ([] if rate is None else ["y"])


def test_throwing_away_what_is_stale_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first place is no longer true, and others come and go until all such places are thrown away."""
    monkeypatch.setattr(fair_queue, "_SLACK", 0)
    it = WaitingPods()
    for uid, fire_at in [("x", 1), ("a", 5), ("b", 2), ("c", 6), ("d", 7)]:
        it.add(uid, key(uid), fire_at)
    it.discard("x")
    for number in range(7):
        it.add(f"u{number}", key("u"), 100)
        it.discard(f"u{number}")
    assert len(it.flows._ready) < 7
    assert it.all() == ["b", "a", "c", "d"]


def test_throwing_away_who_was_let_go_of_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same within one lane."""
    monkeypatch.setattr(fair_queue, "_SLACK", 0)
    it = WaitingPods()
    for uid, fire_at in [("x", 1), ("a", 5), ("b", 2), ("c", 6), ("d", 7)]:
        it.add(uid, key(), fire_at)
    it.discard("x")
    for number in range(7):
        it.add(f"u{number}", key(), 100)
        it.discard(f"u{number}")
    [flow] = it.flows._flows.values()
    assert len(flow.entries) < 11
    assert it.all() == ["b", "a", "c", "d"]


def test_nodes_whose_turn_is_over_are_forgotten() -> None:
    """While somebody is held indefinitely, thousands of nodes come and go."""
    it = WaitingPods()
    it.held = {"held"}
    it.add("for ever", key("held"))
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number}"), number)
        assert it.take() == f"u{number}"
    assert it.flows._next_turns == {}


def test_nodes_that_do_not_wait_are_forgotten_while_others_wait_for_long() -> None:
    """Kept by a limit for hours, while thousands of nodes come and go: those who wait keep their turns."""
    it = WaitingPods(EvictionPolicy(per_namespace=Limit(0.001, 1)))
    it.crowd(["a1", "a2"], key("a", "slow"), 0)
    assert it.evict(0) == ["a1"]
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number}", f"s{number}"), number)
        assert it.evict(number / 1000) == [f"u{number}"]
    assert len(it.flows._next_turns) <= 2 * 1 + 64 + 1
    assert it.flows._next_turns["a"] == 1


class Counted(WaitingPods):
    """Counts how often it is asked what limits a lane."""

    def __init__(self, policy: EvictionPolicy) -> None:
        super().__init__(policy)
        self.looked = 0
        self.flows._buckets = self.buckets

    def buckets(self, node_name: str, namespace: str, rule: str, now: float) -> tuple[TokenBucket, ...]:
        """Count and answer."""
        self.looked += 1
        return self.limits.buckets(node_name, namespace, rule, now)


def test_ten_thousand_on_a_thousand_nodes_look_at_no_limit_in_vain() -> None:
    """One a second for each node: those that go are looked at, and each that is to wait anew, once; and no others."""
    it = Counted(EvictionPolicy(per_node=Limit(1.0, 1)))
    for number in range(10_000):
        it.add(f"u{number}", key(f"n{number % 1000}"), number)
    for second in range(10):
        assert len(it.evict(second)) == 1000
        assert it.evict(second + 0.5) == []
    assert it.looked == 10_000 + 9 * 1000


def test_a_thousand_that_one_limit_keeps_are_looked_at_once() -> None:
    """And then each when its turn has come."""
    it = Counted(EvictionPolicy(total=Limit(1.0, 1)))
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number}"), number)
    for second in range(100):
        assert it.evict(second) == [f"u{second}"]
    assert it.looked == 1000 + 99


def test_exempt_pods_are_counted_while_their_flow_may_go() -> None:
    """Also after it was asked anew which flows are suspended."""
    it = WaitingPods()
    it.crowd(["a", "b"], FlowKey("n1", "shop", "", exempt=True))
    it.add("c", key("n2"))
    it.flows.reconsider()
    assert it.flows.exempt == 2
    it.held = {"n1"}
    it.flows.reconsider()
    assert it.flows.exempt == 0
