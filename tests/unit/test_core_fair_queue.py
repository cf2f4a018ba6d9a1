"""Whose turn it is among the pods that are due, and which pods wait aside for which limit."""

from collections.abc import Iterable

import pytest
from tests.memory import kept
from tests.unit.builders import ref

from taint_eviction.core import fair_queue
from taint_eviction.core.fair_queue import FairQueue, FlowKey
from taint_eviction.core.limits import Limits, Token, TokenBucket
from taint_eviction.core.policy import EvictionPolicy, Limit


def key(node_name: str = "n1", namespace: str = "shop", rule: str = "") -> FlowKey:
    """A flow."""
    return FlowKey(node_name, namespace, rule)


class WaitingPods:
    """Flows under a policy, with nodes that are held, and short ways to ask them; pods are named by their UIDs."""

    def __init__(self, policy: EvictionPolicy | None = None, limits: Limits | None = None) -> None:
        self.limits = Limits(policy or EvictionPolicy()) if limits is None else limits
        self.held: set[str] = set()
        self.flows = FairQueue(lambda flow: flow.node_name in self.held, self.buckets)
        self.begun: dict[str, tuple[Token, ...]] = {}

    def buckets(self, node_name: str, namespace: str, rule: str, now: float) -> tuple[TokenBucket, ...]:
        """Return what limits a flow."""
        return self.limits.buckets(node_name, namespace, rule, now)

    def remembered(self, *names: str) -> int:
        """Count those of these names that the queue still has anywhere."""
        return len(set(names) & set(kept(self.flows, str)))

    def items(self) -> int:
        """Count the entries and places in all lists of the queue, stale ones included."""
        return len([each for each in kept(self.flows, tuple) if "order" in getattr(each, "_fields", ())])

    def add(self, uid: str, flow: FlowKey | None = None, fire_at: float = 0) -> None:
        """Let a pod wait."""
        self.flows.add(ref(uid, uid), flow or key(), fire_at)

    def crowd(self, uids: Iterable[str], flow: FlowKey, fire_at: float = 0) -> None:
        """Let several pods wait, each a second less overdue than the one before."""
        for number, uid in enumerate(uids):
            self.add(uid, flow, fire_at + number)

    def discard(self, uid: str) -> None:
        """Remove a pod."""
        self.flows.discard(ref(uid, uid))

    def take(self, now: float = 0) -> str | None:
        """Take one pod."""
        taken = self.flows.take(now)
        if taken is None:
            return None
        which, self.begun[which.uid] = taken
        return which.uid

    def all(self, now: float = 0) -> list[str]:
        """Take as many pods as may be evicted."""
        return [uid for uid in iter(lambda: self.take(now), None) if uid is not None]

    def send(self, uid: str, now: float) -> None:
        """Send the eviction of a pod that was taken."""
        for token in self.begun[uid]:
            token.bucket.send(token, now)
            self.flows.freed(token.bucket)

    def end(self, uid: str, ended_pod: bool = True) -> None:
        """End the eviction of a pod that was taken."""
        for token in self.begun.pop(uid):
            token.bucket.end(token, ended_pod)
            self.flows.freed(token.bucket)

    def evict(self, now: float) -> list[str]:
        """Take, send and end as many evictions as are allowed."""
        gone = []
        while (uid := self.take(now)) is not None:
            self.send(uid, now)
            self.end(uid)
            gone.append(uid)
        return gone


# Turns


def test_the_most_overdue_pod_of_a_node_and_namespace_is_first() -> None:
    """Rules do not change this order; equally overdue pods keep the order in which they came."""
    it = WaitingPods()
    for uid, flow, fire_at in [
        ("c", key(), 3),
        ("a", key(rule="slow"), 1),
        ("d", key(), 4),
        ("b", key(rule="slow"), 2),
        ("d2", key(rule="slow"), 4),
    ]:
        it.add(uid, flow, fire_at)
    assert it.all() == ["a", "b", "c", "d", "d2"]


def test_the_namespaces_of_a_node_take_turns() -> None:
    """Many pods of one namespace, due earlier, do not keep those of another one waiting."""
    it = WaitingPods()
    it.crowd([f"many{number}" for number in range(5)], key(namespace="tenant"), 0)
    it.crowd(["few0", "few1"], key(namespace="shop"), 100)
    assert it.all() == ["many0", "few0", "many1", "few1", "many2", "many3", "many4"]


def test_namespaces_take_turns_on_each_node_by_itself() -> None:
    """A namespace that had its turn on one node has not had it on another."""
    it = WaitingPods()
    it.crowd(["a1", "a2"], key("a", "tenant"), 0)
    it.crowd(["b1", "b2"], key("b", "tenant"), 0)
    it.add("a3", key("a", "shop"), 100)
    it.add("b3", key("b", "shop"), 100)
    assert it.all() == ["a1", "b1", "a3", "b3", "a2", "b2"]


def test_a_namespace_that_comes_later_takes_part_from_the_current_turn_on() -> None:
    """It does not make up for turns that it has missed on its node."""
    it = WaitingPods()
    it.crowd(["a1", "a2", "a3", "a4", "a5"], key(namespace="tenant"))
    assert [it.take(), it.take(), it.take()] == ["a1", "a2", "a3"]
    it.crowd(["b1", "b2", "b3"], key(namespace="shop"), 100)
    assert it.all() == ["b1", "a4", "b2", "a5", "b3"]


def test_namespaces_whose_calls_hang_come_last_on_all_nodes() -> None:
    """Neither the turns of their nodes nor their overdue pods put them before others, until they hang no more."""
    it = WaitingPods()
    for node in "abc":
        it.crowd([f"{node}1", f"{node}2"], key(node, "tenant"), 0)
    it.add("exempt", FlowKey("d", "tenant", "", bypasses_limits=True), 0)
    it.crowd(["shop1", "shop2"], key("a", "shop"), 100)
    it.flows.put_last(frozenset({"tenant"}))
    assert [it.take(), it.take(), it.take(), it.take()] == ["shop1", "shop2", "exempt", "b1"]
    it.crowd(["shop3", "shop4"], key("b", "shop"), 100)
    assert it.take() == "shop3"
    it.flows.put_last(frozenset())
    assert it.take() == "a1"


def test_a_namespace_whose_calls_hang_no_more_is_called_by_its_limit_in_turn() -> None:
    """It comes last among the flows that a limit keeps back, too, and loses no place there."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    it.crowd(["a1", "a2"], key("a", "tenant"), 0)
    it.crowd(["b1", "b2"], key("b", "shop"), 100)
    it.flows.put_last(frozenset({"tenant"}))
    assert it.evict(0) == ["b1"]
    assert it.evict(1) == ["b2"]
    it.flows.put_last(frozenset())
    it.add("b3", key("b", "shop"), 100)
    assert (it.evict(2), it.evict(3), it.evict(4)) == (["a1"], ["a2"], ["b3"])


def test_nodes_take_turns() -> None:
    """A node with three pods that are long overdue does not get three turns before another node gets one."""
    it = WaitingPods()
    it.crowd(["a1", "a2", "a3"], key("a"), 0)
    it.crowd(["b1", "b2"], key("b"), 100)
    assert it.all() == ["a1", "b1", "a2", "b2", "a3"]


def test_in_each_turn_the_node_with_the_most_overdue_pod_is_first() -> None:
    """The order of the nodes may differ from one turn to the next."""
    it = WaitingPods()
    it.add("a1", key("a"), 1)
    it.add("a2", key("a"), 9)
    it.add("b1", key("b"), 2)
    it.add("b2", key("b"), 3)
    assert it.all() == ["a1", "b1", "b2", "a2"]


def test_a_node_with_many_flows_has_one_turn_like_the_others() -> None:
    """Turns belong to nodes, not to flows."""
    it = WaitingPods()
    it.crowd(["a1"], key("a", "x"), 0)
    it.crowd(["a2"], key("a", "y"), 1)
    it.crowd(["a3"], key("a", "z"), 2)
    it.crowd(["b1", "b2"], key("b"), 50)
    assert it.all() == ["a1", "b1", "a2", "b2", "a3"]


def test_a_node_that_comes_later_takes_part_from_the_current_turn_on() -> None:
    """The node does not make up for turns that it has missed, nor waits until the other nodes are done."""
    it = WaitingPods()
    it.crowd(["a1", "a2", "a3", "a4", "a5"], key("a"))
    assert [it.take(), it.take(), it.take()] == ["a1", "a2", "a3"]
    it.crowd(["b1", "b2", "b3"], key("b"), 100)
    assert it.all() == ["b1", "a4", "b2", "a5", "b3"]


def test_a_node_that_comes_back_gets_no_second_turn() -> None:
    """The node has had its turn, and a new pod does not give it another one before the other node."""
    it = WaitingPods()
    it.crowd(["b1", "b2"], key("b"), 50)
    it.add("a1", key("a"), 0)
    assert it.take() == "a1"
    it.add("a2", key("a"), 1)
    assert it.all() == ["b1", "a2", "b2"]


def test_turns_begin_anew_when_no_pod_waits() -> None:
    """The queue keeps nothing about nodes without waiting pods."""
    it = WaitingPods()
    it.crowd(["a1", "a2", "a3"], key("a"))
    it.all()
    it.add("a4", key("a"), 0)
    it.add("b1", key("b"), 1)
    assert it.remembered("a", "b") == 2
    assert it.all() == ["a4", "b1"]
    assert (it.remembered("a", "b"), it.items()) == (0, 0)


def test_a_more_overdue_pod_that_comes_later_moves_its_node_forward() -> None:
    """The order within a turn is by each node's most overdue pod."""
    it = WaitingPods()
    it.add("a1", key("a"), 5)
    it.add("b1", key("b"), 6)
    it.add("b0", key("b"), 4)
    assert it.all() == ["b0", "a1", "b1"]


def test_a_less_overdue_pod_that_comes_later_changes_nothing() -> None:
    """The more overdue pod still determines the place of its flow."""
    it = WaitingPods()
    it.add("a1", key("a"), 5)
    it.add("a2", key("a"), 7)
    it.add("b1", key("b"), 6)
    assert it.all() == ["a1", "b1", "a2"]


# Every waiting pod can be cancelled


def test_a_discarded_pod_is_not_taken() -> None:
    """A flow's first pod, one in its middle, or its last may be discarded; a UID that does not wait changes nothing."""
    it = WaitingPods()
    it.crowd(["a", "b", "c", "d"], key())
    for uid in ("a", "c", "nobody", "a"):
        it.discard(uid)
    assert len(it.flows) == 2
    assert it.all() == ["b", "d"]


def test_without_its_most_overdue_pod_a_node_moves_back() -> None:
    """The node's place was that of the discarded pod."""
    it = WaitingPods()
    it.add("a1", key("a"), 1)
    it.add("a2", key("a"), 9)
    it.add("b1", key("b"), 5)
    it.discard("a1")
    assert it.all() == ["b1", "a2"]


def test_an_empty_flow_that_fills_again_is_a_new_one() -> None:
    """The pod that was discarded does not block the new one."""
    it = WaitingPods()
    it.add("a", key(), 1)
    it.discard("a")
    it.add("b", key(), 2)
    assert it.all() == ["b"]


def test_the_queue_counts_the_pods_that_wait() -> None:
    """Held pods are included in the length, but are not free."""
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


def test_a_held_flow_waits_until_it_is_reconsidered() -> None:
    """A change in what is held has no effect before that on flows that wait already; flows that are not held go on."""
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


def test_reconsidering_gives_no_node_a_second_turn() -> None:
    """A node that has had its turn waits for the next one."""
    it = WaitingPods()
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2"], key("b"), 50)
    assert it.take() == "a1"
    it.flows.reconsider()
    assert it.all() == ["b1", "a2", "b2"]


# Limited


def test_a_flow_without_room_waits_aside_while_others_go_on() -> None:
    """The limit is one pod per node and second: a node's second pod waits, and a pod on another node does not."""
    it = WaitingPods(EvictionPolicy(per_node=Limit(1.0, 1)))
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2"], key("b"), 50)
    assert it.evict(0) == ["a1", "b1"]
    it.add("c1", key("c"), 99)
    assert it.evict(0.5) == ["c1"]
    assert it.flows.next_at(0.5) == 1.0
    assert it.evict(0.999) == []
    assert it.evict(1.0) == ["a2", "b2"]


def test_flows_that_one_limit_keeps_go_one_by_one_as_it_has_room() -> None:
    """The limit is two pods per second in total: nodes take turns, and the most overdue pod is first."""
    it = WaitingPods(EvictionPolicy(total=Limit(2.0, 1)))
    for number in range(4):
        it.crowd([f"{number}a", f"{number}b"], key(f"n{number}"), 10 * number)
    gone = [it.evict(step / 2) for step in range(8)]
    assert gone == [["0a"], ["1a"], ["2a"], ["3a"], ["0b"], ["1b"], ["2b"], ["3b"]]


def test_a_limit_that_was_not_asked_for_long_allows_its_burst() -> None:
    """However much time has passed, a burst of three is three pods, each of another node."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 3)))
    for number in range(8):
        it.add(f"n{number}", key(f"n{number}"), number)
    assert it.evict(0) == ["n0", "n1", "n2"]
    assert it.flows.next_at(0) == 1.0
    assert it.evict(2.5) == ["n3", "n4"]
    assert it.evict(100) == ["n5", "n6", "n7"]


def test_a_flow_needs_room_under_each_of_its_limits() -> None:
    """A flow that gets room under its node's limit may then wait for the total limit, or the other way round."""
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


def test_a_flow_called_by_one_limit_and_kept_by_another_lets_the_next_one_go() -> None:
    """The total limit has room, but the first flow's node has a pod in flight: the second flow is called at once."""
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


def test_only_an_eviction_that_ends_makes_room_under_a_limit_in_flight() -> None:
    """Each node may have one eviction in flight: the next begins only once that one has ended."""
    it = WaitingPods(EvictionPolicy(per_node=Limit(at_once=1)))
    it.crowd(["a1", "a2", "a3"], key("a"))
    assert it.all() == ["a1"]
    assert it.flows.next_at(0) is None
    assert it.all(1e9) == []
    it.end("a1")
    assert it.flows.next_at(5) == 5
    assert it.all() == ["a2"]


def test_sending_makes_the_next_tokens_time_known() -> None:
    """A reserved token does not say when the next one comes; a sent one does."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    it.crowd(["a", "b"], key())
    assert it.all() == ["a"]
    assert it.flows.next_at(0) is None
    it.send("a", 3)
    assert it.flows.next_at(3) == 4
    assert it.all(4) == ["b"]


def test_a_returned_token_shortens_the_wait() -> None:
    """The next pod would wait until 10; the attempt ends no pod, so its token can be used at once."""
    it = WaitingPods(EvictionPolicy(total=Limit(0.1, 1)))
    it.crowd(["a", "b"], key())
    assert it.all() == ["a"]
    it.send("a", 0)
    assert it.flows.next_at(0) == 10
    it.end("a", ended_pod=False)
    assert it.flows.next_at(0) == 0
    assert it.all() == ["b"]


def test_a_limit_first_calls_a_node_that_has_had_no_turn() -> None:
    """Node a has had its turn, so b1 comes before the pods of node a, although these are more overdue."""
    it = WaitingPods(EvictionPolicy(per_namespace=Limit(1.0, 1)))
    it.crowd(["a1", "a2"], key("a", "shop"), 0)
    it.crowd(["b1"], key("b", "shop"), 10)
    assert it.evict(0) == ["a1"]
    it.add("a0", key("a", "bank"), -5)
    it.add("x", key("x", "mall"), 5)
    # At 1 the shop's limit has room and calls b's flow; node a's flows take part in the next turn.
    assert it.take(1) == "x"
    assert it.take(1) == "b1"
    assert it.take(1) == "a0"


def test_a_limit_calls_the_next_flow_if_the_called_one_loses_its_nodes_turn() -> None:
    """The limit calls a1's flow first, but node a has its turn with a more overdue pod, so b1 comes before a1."""
    it = WaitingPods(EvictionPolicy(per_namespace=Limit(1.0, 1)))
    it.add("x", key("x"), 0)
    it.add("a1", key("a"), 1)
    it.add("b1", key("b"), 2)
    assert it.evict(0) == ["x"]
    it.add("a0", key("a", "bank"), -5)
    assert it.evict(1) == ["a0", "b1"]
    assert it.evict(2) == ["a1"]


def test_a_more_overdue_pod_that_comes_while_its_flow_is_kept_counts() -> None:
    """The pod's flow moves before other flows that the same limit keeps."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    it.add("x", key("x"), 0)
    it.add("a", key("a"), 5)
    it.add("b", key("b"), 6)
    assert it.evict(0) == ["x"]
    it.add("b0", key("b"), 4)
    assert it.evict(1) == ["b0"]
    assert it.evict(2) == ["a"]


def test_a_more_overdue_pod_that_comes_while_another_flow_is_called_counts() -> None:
    """The limit keeps the pod's flow, and has already called another one, whose pod has not been taken yet."""
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
    """At 0, x is gone; its limit keeps a, then b, each in its own flow. Unless ``alone``, a2 is behind a."""
    it = WaitingPods(policy)
    it.add("x", key("x"), 0)
    it.add("a", key("a"), 1)
    it.add("b", key("b"), 2)
    if not alone:
        it.add("a2", key("a"), 7)
    assert it.evict(0) == ["x"]
    return it


@pytest.mark.parametrize("alone", [True, False])
def test_a_pod_discarded_while_it_is_kept_does_not_block_others(alone: bool) -> None:
    """The token goes to the next pod, whether or not another pod is left in the flow."""
    it = after_x_others_are_kept(EvictionPolicy(total=Limit(1.0, 1)), alone)
    it.discard("a")
    assert it.evict(1) == ["b"]
    assert it.evict(2) == ([] if alone else ["a2"])


@pytest.mark.parametrize("alone", [True, False])
def test_a_pod_discarded_once_it_is_called_does_not_block_others(alone: bool) -> None:
    """The pod's flow was called, but not taken yet: the next flow that the limit keeps takes part at once."""
    it = after_x_others_are_kept(EvictionPolicy(per_namespace=Limit(1.0, 1)), alone)
    it.add("first", key("first", "bank"), -1)
    it.add("last", key("last", "mall"), 99)
    assert it.take(1) == "first"
    it.discard("a")
    assert [it.take(1), it.take(1), it.take(1)] == ["b", "last", None]


def test_a_limit_with_room_for_several_calls_one_after_the_other() -> None:
    """The limit calls the next flow before the pod of the previous one is sent."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 3)))
    for number in range(8):
        it.add(f"n{number}", key(f"n{number}"), number)
    assert it.evict(0) == ["n0", "n1", "n2"]
    assert it.all(2) == ["n3", "n4"]
    it.end("n3")
    assert it.all(2) == ["n5"]


def test_a_called_flow_that_loses_its_first_pod_goes_back_behind_others() -> None:
    """Its most overdue pod is discarded, so that another flow that the same limit keeps comes first."""
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


def test_nothing_is_left_of_a_limit_that_keeps_no_flow() -> None:
    """The last pod that waited for the limit is discarded or taken: the limit no longer determines the next instant."""
    it = WaitingPods(EvictionPolicy(per_node=Limit(1.0, 1)))
    it.crowd(["a1", "a2"], key("a"))
    it.crowd(["b1", "b2", "b3"], key("b"))
    assert it.evict(0) == ["a1", "b1"]
    it.discard("a2")
    assert it.evict(1) == ["b2"]
    assert (len(kept(it.flows, TokenBucket)), it.flows.next_at(1)) == (1, 2)
    assert it.evict(2) == ["b3"]
    assert (kept(it.flows, TokenBucket), it.flows.next_at(2)) == ([], None)


def test_a_flow_may_be_held_while_a_limit_keeps_it() -> None:
    """A flow that is held when its limit has room again does not take the token from other flows."""
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


def test_two_queues_share_the_limits() -> None:
    """A token that one queue reserves is missing in the other, which waits for exactly what is left."""
    it = WaitingPods(EvictionPolicy(total=Limit(1.0, 1)))
    other = WaitingPods(limits=it.limits)
    it.crowd(["a", "b"], key())
    other.crowd(["c", "d"], key())
    assert it.evict(0) == ["a"]
    assert other.all(0) == []
    assert (it.flows.next_at(0), other.flows.next_at(0)) == (1, 1)
    assert it.evict(1) == ["b"]
    assert other.all(1) == []
    assert other.flows.next_at(1) == 2
    assert other.all(2) == ["c"]


def test_a_ready_pod_may_be_taken_now() -> None:
    """The next instant is now while a pod is ready, and is not known when none waits."""
    it = WaitingPods()
    assert it.flows.next_at(7) is None
    it.add("a")
    assert it.flows.next_at(7) == 7
    it.take()
    assert it.flows.next_at(7) is None


# Bounded


def test_a_flow_that_is_never_served_forgets_discarded_pods() -> None:
    """The flow is held while pods come and go: the number of its entries is bounded by the number of waiting pods."""
    it = WaitingPods()
    it.held = {"n1"}
    it.crowd(["first", "second"], key())
    for number in range(1000):
        it.add(f"u{number}", key(), 100)
        it.discard(f"u{number}")
    assert it.items() <= 2 * 3 + 64
    it.held = set()
    it.flows.reconsider()
    assert it.all() == ["first", "second"]


@pytest.mark.parametrize("rate", [None, 0.001])
def test_the_number_of_stale_places_is_bounded(rate: float | None) -> None:
    """Flows come and go, and so do their most overdue pods, while no pod is taken, or none may be."""
    it = WaitingPods(EvictionPolicy() if rate is None else EvictionPolicy(total=Limit(rate, 1)))
    it.crowd(["x", "y"], key("x"), 0)
    if rate is not None:
        assert it.evict(0) == ["x"]
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number % 3}"), 1000 - number)
        if rate is not None:
            assert it.take(0) is None
        it.discard(f"u{number}")
    assert it.items() <= 2 * (2 * 2 + 64) + 2 * 2 + 64
    assert it.evict(0) == (["x", "y"] if rate is None else [])
    assert it.evict(2000) == ([] if rate is None else ["y"])


def test_removing_stale_places_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first place is stale, and other pods come and go until all stale places are removed."""
    monkeypatch.setattr(fair_queue, "_SLACK", 0)
    it = WaitingPods()
    for uid, fire_at in [("x", 1), ("a", 5), ("b", 2), ("c", 6), ("d", 7)]:
        it.add(uid, key(uid), fire_at)
    it.discard("x")
    for number in range(7):
        it.add(f"u{number}", key("u"), 100)
        it.discard(f"u{number}")
    assert it.items() < 2 * 7
    assert it.all() == ["b", "a", "c", "d"]


def test_removing_discarded_pods_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods are in one flow, whose first entry is stale."""
    monkeypatch.setattr(fair_queue, "_SLACK", 0)
    it = WaitingPods()
    for uid, fire_at in [("x", 1), ("a", 5), ("b", 2), ("c", 6), ("d", 7)]:
        it.add(uid, key(), fire_at)
    it.discard("x")
    for number in range(7):
        it.add(f"u{number}", key(), 100)
        it.discard(f"u{number}")
    assert it.items() < 4 + 7 + 1
    assert it.all() == ["b", "a", "c", "d"]


def test_nodes_whose_turn_is_over_are_forgotten() -> None:
    """A flow is held indefinitely while pods of a thousand nodes come and are taken."""
    it = WaitingPods()
    it.held = {"held"}
    it.add("for ever", key("held"))
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number}"), number)
        assert it.take() == f"u{number}"
    assert it.remembered(*(f"n{number}" for number in range(1000))) == 0


def test_nodes_that_do_not_wait_are_forgotten_while_others_wait_for_long() -> None:
    """A limit keeps a flow while a thousand nodes come and go; the node that waits keeps its turn."""
    it = WaitingPods(EvictionPolicy(per_namespace=Limit(0.001, 1)))
    it.crowd(["a1", "a2"], key("a", "slow"), 0)
    assert it.evict(0) == ["a1"]
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number}", f"s{number}"), number)
        assert it.evict(number / 1000) == [f"u{number}"]
    assert it.remembered(*(f"n{number}" for number in range(1000))) <= 2 * 2 * 1 + 64 + 2
    it.add("new", key("new", "new"), 5000)
    assert it.evict(1001) == ["new", "a2"]


class Counted(WaitingPods):
    """Counts how often the queue asks what limits a flow."""

    def __init__(self, policy: EvictionPolicy) -> None:
        super().__init__(policy)
        self.looked = 0

    def buckets(self, node_name: str, namespace: str, rule: str, now: float) -> tuple[TokenBucket, ...]:
        """Count and answer."""
        self.looked += 1
        return self.limits.buckets(node_name, namespace, rule, now)


def test_limits_are_not_checked_in_vain_for_ten_thousand_pods() -> None:
    """One pod per node and second: the queue checks limits once per pod that it takes, and once per flow that waits."""
    it = Counted(EvictionPolicy(per_node=Limit(1.0, 1)))
    for number in range(10_000):
        it.add(f"u{number}", key(f"n{number % 1000}"), number)
    for second in range(10):
        assert len(it.evict(second)) == 1000
        assert it.evict(second + 0.5) == []
    assert it.looked == 10_000 + 9 * 1000


def test_limits_are_checked_once_for_each_flow_that_one_limit_keeps() -> None:
    """After the first check, the queue checks a flow's limits again only when it is the flow's turn."""
    it = Counted(EvictionPolicy(total=Limit(1.0, 1)))
    for number in range(1000):
        it.add(f"u{number}", key(f"n{number}"), number)
    for second in range(100):
        assert it.evict(second) == [f"u{second}"]
    assert it.looked == 1000 + 99


def test_exempt_pods_are_counted_while_their_flow_is_not_held() -> None:
    """The count is right also after the queue has reconsidered which flows are held."""
    it = WaitingPods()
    it.crowd(["a", "b"], FlowKey("n1", "shop", "", bypasses_limits=True))
    it.add("c", key("n2"))
    it.flows.reconsider()
    assert it.flows.bypasses_limits == 2
    it.held = {"n1"}
    it.flows.reconsider()
    assert it.flows.bypasses_limits == 0
