"""Limits, pauses and turns, against an oracle that recomputes from the whole history which pods may be evicted.

Instants are quarters of a second and rates are powers of two, so that floats hold them exactly.
"""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.memory import kept
from tests.property.strategies import examples
from tests.unit.builders import decided, moment, no_order, pod, ref
from tests.unit.hints import hints, waiting_uids, wanted_hints

from taint_eviction.core import fair_queue
from taint_eviction.core.events import Eviction
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.fair_queue import FairQueue, FlowKey
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.limits import Token, TokenBucket
from taint_eviction.core.pods import UNDECIDED, InFlight, KnownPods, PodRecord, Queued, Schedule
from taint_eviction.core.policy import UNLIMITED, EvictionPolicy, Limit, PolicyRule

NODES = ("n1", "n2", "n3")
KEYS = st.builds(
    FlowKey,
    st.sampled_from(NODES),
    st.sampled_from(["shop", "bank"]),
    st.sampled_from(["", "slow"]),
    st.sampled_from([False, False, True]),
)
UIDS = st.sampled_from([f"p{number}" for number in range(12)])
LIMITS = st.one_of(
    st.just(UNLIMITED),
    st.builds(Limit, st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.sampled_from([None, 1, 2, 3])),
    st.builds(Limit, at_once=st.sampled_from([1, 2])),
    st.builds(Limit, st.sampled_from([0.5, 2.0]), st.sampled_from([None, 2]), st.sampled_from([1, 2])),
)
POLICIES = st.builds(
    lambda total, node, namespace, slow: EvictionPolicy(
        total=total, per_node=node, per_namespace=namespace, rules=(PolicyRule("slow", limit=slow),)
    ),
    *[LIMITS] * 4,
)

Scope = tuple[str, str]


def scopes_of(key: FlowKey) -> tuple[Scope, ...]:
    """Return the scopes that may limit a flow; nothing limits an exempt one."""
    if key.bypasses_limits:
        return ()
    return ("total", ""), ("node", key.node_name), ("namespace", key.namespace), ("rule", key.rule)


def limit_of(policy: EvictionPolicy, scope: Scope) -> Limit:
    """Return the limit of a scope under a policy."""
    if scope[0] == "rule":
        return next((rule.limit for rule in policy.rules if rule.name == scope[1]), UNLIMITED)
    return {"total": policy.total, "node": policy.per_node, "namespace": policy.per_namespace}[scope[0]]


@dataclass
class Begun:
    """An eviction that began. ``counts``: the scopes whose limit still counts this eviction.

    ``ended_pod`` None: not known yet. If a request was sent before the policy changed, its token is never given back
    (``certain``).
    """

    key: FlowKey
    counts: set[Scope]
    sent_at: float | None = None
    over: bool = False
    ended_pod: bool | None = None
    outdated: bool = False
    certain: bool = False

    def spent(self) -> bool:
        """Return whether the eviction's token is used up, as far as is known."""
        return self.sent_at is not None and (self.ended_pod is not False or self.certain)


@dataclass
class History:
    """All events, and what follows from them. ``order``: policies and sent evictions in the order of time."""

    policies: list[tuple[float, EvictionPolicy]]
    begun: list[Begun] = field(default_factory=list)
    order: list[EvictionPolicy | Begun] = field(default_factory=list)

    @property
    def policy(self) -> EvictionPolicy:
        """The policy in force."""
        return self.policies[-1][1]

    def has_room(self, scope: Scope, now: float) -> bool:
        """Compute from scratch whether one more eviction may begin."""
        limit = limit_of(self.policy, scope)
        open_ones = [one for one in self.begun if scope in one.counts and not one.over]
        if limit.at_once is not None and len(open_ones) >= limit.at_once:
            return False
        return self.tokens(scope, now) - sum(one.sent_at is None for one in open_ones) >= 1

    def tokens(self, scope: Scope, now: float) -> float:
        """Compute the tokens of a scope now, from all policies and all sent evictions."""
        tokens, last, limit = math.inf, -math.inf, UNLIMITED
        policies = iter(self.policies)
        for event in self.order:
            at = next(policies)[0] if isinstance(event, EvictionPolicy) else event.sent_at
            assert at is not None
            tokens, last = self.grown(tokens, at - last, limit), at
            if isinstance(event, EvictionPolicy):
                most = limit_of(event, scope).max_tokens
                tokens = most if tokens >= limit.max_tokens else min(tokens, most)
                limit = limit_of(event, scope)
            elif event.spent() and scope in scopes_of(event.key):
                tokens -= 1
        return self.grown(tokens, now - last, limit)

    @staticmethod
    def grown(tokens: float, seconds: float, limit: Limit) -> float:
        """Return the number of tokens after these seconds."""
        if limit.per_second is None or seconds == math.inf:
            return limit.max_tokens
        return min(tokens + seconds * limit.per_second, limit.max_tokens)

    def allowed(self, scope: Scope, start: float, end: float) -> float:
        """Return how many pods may be evicted in a span: the largest burst in force in it, and the tokens that grow."""
        spans = [*pairwise(self.policies), (self.policies[-1], (math.inf, self.policy))]
        touching = [
            (max(a, start), min(b, end), limit_of(p, scope)) for (a, p), (b, _) in spans if a <= end and b >= start
        ]
        if any(limit.per_second is None for _, _, limit in touching):
            return math.inf
        grown = sum((until - since) * (limit.per_second or 0) for since, until, limit in touching)
        return max(limit.max_tokens for _, _, limit in touching) + grown


class LimitsMachine(RuleBasedStateMachine):
    """Pods wait, evictions begin and end in every way, policies and pauses change.

    The queue removes stale entries at once here; in production it does so only when there are many.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(fair_queue, "_SLACK", 0)

    @initialize(policy=POLICIES)
    def begin(self, policy: EvictionPolicy) -> None:
        """Start with a policy."""
        self.now = 0.0
        self.held: set[str] = set()
        self.pods = KnownPods(GoneObjects())
        self.queue = EvictionQueue(policy, None, 0.0, lambda key: key.node_name in self.held, self.pods, no_order())
        self.history = History([(-1.0, policy)], order=[policy])
        self.wanted: dict[str, tuple[FlowKey, float, bool]] = {}
        self.flying: dict[str, Begun] = {}
        # By which queue and what takes turns: nodes, or the namespaces of one node.
        self.waits: defaultdict[tuple[bool, str], dict[str, Counter[str]]] = defaultdict(dict)

    def may_go(self, retry: bool) -> dict[str, tuple[FlowKey, float]]:
        """Compute from scratch which pods may be evicted, each with its flow and deadline."""
        room = {
            scope: self.history.has_room(scope, self.now)
            for key, _, _ in self.wanted.values()
            for scope in scopes_of(key)
        }
        return {
            uid: (key, fire_at)
            for uid, (key, fire_at, again) in self.wanted.items()
            if again == retry
            and fire_at <= self.now
            and key.node_name not in self.held
            and all(room[scope] for scope in scopes_of(key))
        }

    # Events

    @rule(quarters=st.integers(1, 12))
    def time_passes(self, quarters: int) -> None:
        """Time passes; if a pod may be evicted afterwards, the queue had announced an instant no later than that."""
        woken = self.queue.next_at(self.now, retries=True, stopped=False)
        self.now += quarters / 4
        if self.may_go(retry=False) or self.may_go(retry=True):
            assert woken is not None
            assert woken <= self.now

    @rule(uid=UIDS, key=KEYS, wait=st.integers(-8, 8), retry=st.booleans())
    def want(self, uid: str, key: FlowKey, wait: int, retry: bool) -> None:
        """A pod's eviction is scheduled, or scheduled differently."""
        if uid not in self.flying:
            self.leave(uid)
            self.wanted[uid] = (key, self.now + wait / 4, retry)
            self.queue.schedule(self.record(uid), Schedule(*self.wanted[uid], None), self.now)

    @rule(uid=UIDS)
    def forget(self, uid: str) -> None:
        """The queue forgets a pod, whether it is scheduled, in flight or neither; an eviction in flight still ends."""
        self.leave(uid)
        self.wanted.pop(uid, None)
        self.queue.cancel(self.record(uid))
        self.record(uid).want_nothing()

    def record(self, uid: str) -> PodRecord:
        """Return the record of a pod; create it if the pod is not known yet."""
        if (record := self.pods.find(ref(uid, uid))) is not None:
            return record
        change = self.pods.upsert(PodSeen(pod(name=uid, uid=uid)), moment(0))
        assert change is not None
        return change[0]

    def tokens(self, uid: str) -> tuple[Token, ...] | None:
        """Return the tokens that an eviction in flight holds."""
        state = self.record(uid).state
        assert isinstance(state, InFlight)
        return state.tokens

    def leave(self, uid: str) -> None:
        """Note that a pod leaves its place in the queue: the turns of its node are counted anew."""
        if uid in self.wanted:
            key, _, retry = self.wanted[uid]
            self.waits[retry, ""].pop(key.node_name, None)
            self.waits[retry, key.node_name].pop(key.namespace, None)

    @rule(retry=st.booleans(), most=st.integers(1, 6))
    def take(self, retry: bool, most: int) -> None:
        """An eviction begins if and only if a pod may be evicted.

        It is the most overdue of its node and namespace. Nodes take turns, and so do the namespaces of each node.
        Exempt pods go before all others, the most overdue first, and use no turn.
        """
        self.queue.advance(self.now)
        for _ in range(most):
            before = self.may_go(retry)
            taken = self.queue.take(self.now, retry)
            assert (taken is None) == (not before)
            if taken is None:
                return
            record, tokens = taken
            assert isinstance(record.state, Queued)
            record.state = InFlight(Eviction(record.ref, "", decided(), False, 0), record.state.schedule, tokens)
            uid = record.ref.uid
            key, fire_at = before[uid]
            assert key.bypasses_limits == any(other.bypasses_limits for other, _ in before.values())
            rivals = [(other, at) for other, at in before.values() if other.bypasses_limits or not key.bypasses_limits]
            assert fire_at == min(at for other, at in rivals if key.bypasses_limits or other[:2] == key[:2])
            if not key.bypasses_limits:
                self.check_turns((retry, ""), {other.node_name for other, _ in before.values()}, key.node_name)
                on_node = {other.namespace for other, _ in before.values() if other.node_name == key.node_name}
                self.check_turns((retry, key.node_name), on_node, key.namespace)
            limited = {scope for scope in scopes_of(key) if limit_of(self.history.policy, scope) != UNLIMITED}
            self.flying[uid] = Begun(key, limited)
            self.history.begun.append(self.flying[uid])
            del self.wanted[uid]

    def check_turns(self, among: tuple[bool, str], waiting: set[str], served: str) -> None:
        """Assert that none gets more than one turn more than another that waits and may evict."""
        waits = self.waits[among] = {name: self.waits[among].get(name, Counter()) for name in waiting}
        for name, counts in waits.items():
            counts[served] += 1
            assert counts[served] <= counts[name] + 1

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        """A request is sent unless the policy has changed since; no span ever contains more evictions than allowed."""
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        one = self.flying[uid]
        if one.sent_at is not None:
            return
        assert (self.tokens(uid) is None) is one.outdated
        if not one.outdated:
            one.sent_at = self.now
            self.history.order.append(one)
            self.queue.send(self.tokens(uid) or (), self.now)
            for scope in scopes_of(one.key):
                self.check_spans(scope)

    def check_spans(self, scope: Scope) -> None:
        """Count the requests that may have evicted pods, in all spans that end now."""
        sent = [
            one.sent_at
            for one in self.history.begun
            if one.sent_at is not None and one.ended_pod is not False and scope in scopes_of(one.key)
        ]
        for start in set(sent):
            assert sum(at >= start for at in sent) <= self.history.allowed(scope, start, self.now)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), ended_pod=st.booleans())
    def end(self, data: st.DataObject, ended_pod: bool) -> None:
        """An eviction ends, whether its request was sent or not; a sent request may turn out to have evicted no pod."""
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        one = self.flying.pop(uid)
        one.over, one.ended_pod = True, ended_pod
        tokens, self.record(uid).state = self.tokens(uid), UNDECIDED
        self.queue.end(tokens or (), ended_pod)

    @rule(policy=POLICIES)
    def change_policy(self, policy: EvictionPolicy) -> None:
        """The policy changes: requests already sent count for good under limits that stay, and evictions whose request
        was not sent yet may no longer send it.
        """
        for one in self.history.begun:
            one.certain = one.certain or (one.sent_at is not None and one.ended_pod is not False)
            one.outdated = one.outdated or one.sent_at is None
            stay = {scope for scope in one.counts if limit_of(policy, scope) != UNLIMITED}
            one.counts = set() if one.outdated else stay
        self.history.policies.append((self.now, policy))
        self.history.order.append(policy)
        self.queue.change_policy(policy, self.now)
        self.waits.clear()

    @rule(held=st.sets(st.sampled_from(NODES), max_size=2))
    def pause(self, held: set[str]) -> None:
        """Nodes are paused and resumed."""
        self.held = held
        self.queue.reconsider()
        self.waits.clear()

    # What always holds

    @invariant()
    def whoever_is_wanted_waits_in_one_place(self) -> None:
        """Exactly the pods whose eviction is wanted wait in the queue, each in one place."""
        assert waiting_uids(self.pods) == sorted(self.wanted)
        assert hints(self.queue) == wanted_hints(self.pods)

    @invariant()
    def due_pods_are_counted(self) -> None:
        """The queue counts the first tries that are due and not paused."""
        self.queue.advance(self.now)
        free = [key for key, at, retry in self.wanted.values() if not retry and at <= self.now]
        assert self.queue.due() == sum(key.node_name not in self.held for key in free)

    @invariant()
    def nobody_wakes_for_nothing(self) -> None:
        """If no pod may be evicted, the queue announces a later instant or none."""
        self.queue.advance(self.now)
        if not self.may_go(retry=False) and not self.may_go(retry=True):
            for retry in (False, True):
                assert self.queue.take(self.now, retry) is None
            woken = self.queue.next_at(self.now, retries=True, stopped=False)
            assert woken is None or woken > self.now

    def teardown(self) -> None:
        """After all evictions have ended and all pods are forgotten, the queue holds nothing."""
        self.patch.undo()
        for uid in list(self.flying):
            self.queue.end(self.tokens(uid) or (), ended_pod=True)
            self.record(uid).state = UNDECIDED
        for number in range(12):
            self.queue.cancel(self.record(f"p{number}"))
        assert hints(self.queue) == 0
        for one in kept(self.queue, FairQueue):
            assert not {*NODES} & {*kept(one, str)}
            assert kept(one, FlowKey) == []
        assert all(bucket.is_idle(self.now + 1e6) for bucket in kept(self.queue, TokenBucket))


LimitsMachine.TestCase.settings = settings(max_examples=examples(1), stateful_step_count=50)
TestLimitsAgainstAnOracle = LimitsMachine.TestCase
