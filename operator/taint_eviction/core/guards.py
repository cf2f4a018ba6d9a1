"""What blocks evictions, and why: a list of guards. All who have to know ask the list: what may be taken next, what may
go on, what the breaker counts, what people are told, and what would leave if people released it. This module decides on
no pod. A new guard is a class here and its place in the list.

A guard of the cluster may begin and end as time passes. What a guard of flows blocks changes with the control state,
the policy, and the labels of nodes only: then the queue considers its flows again. The breaker is a guard, too. It
counts what is due and blocked by no other guard: that it is open never lowers its own count.

A pod that waits for a moment, for lists, for a limit or for a worker has a place in the queue (``eviction_queue``); no
guard blocks it. As long as the control state is not known, all evictions are blocked.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, NamedTuple

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.core.events import BreakerClosed, BreakerOpened, Event, Paused, Resumed
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode, KnownNodes
from taint_eviction.core.policy import EvictionPolicy, PolicyRule
from taint_eviction.core.sentences import bracketed, replica_name
from taint_eviction.core.text import one_line
from taint_eviction.core.unready_nodes import Evictions, no_evictions


class WaitReason(Enum):
    """Why a due pod is not evicted now, although no request was refused: a guard, or its place in the queue.

    In JSON, the name in lower case is the reason, and the value is the text.
    """

    ORDERS_UNKNOWN = "whether evictions are paused has not been read yet"
    BREAKER_OPEN = "the circuit breaker is open"
    PAUSED = "all evictions are paused"
    SELECTOR_PAUSED = "evictions from some nodes are paused, by their labels, and its node is one of them"
    NODE_PAUSED = "evictions from its node are paused"
    NAMESPACE_PAUSED = "evictions in its namespace are paused"
    RULE_PAUSED = "a rule of the policy pauses it"
    SETTLING = "it waits for a moment (--breaker-settle), in case many nodes are being tainted"
    UNLISTED = "it waits until the pods of newly tainted nodes have been listed"
    EARLIER_TIER = "it waits for pods of an earlier tier of its node"
    LIMITED = "it waits for its turn: a limit, or all workers are busy"

    @property
    def is_place(self) -> bool:
        """Return whether it is a place in the queue, and no guard."""
        return self in (WaitReason.SETTLING, WaitReason.UNLISTED, WaitReason.EARLIER_TIER, WaitReason.LIMITED)

    @property
    def is_passing(self) -> bool:
        """Return whether it lasts for a moment only: in a comparison, the pod would still have been evicted."""
        return self in (WaitReason.SETTLING, WaitReason.UNLISTED, WaitReason.ORDERS_UNKNOWN)


# For so many nodes it is remembered which pauses select them.
_MAX_SELECTED = 20_000


@dataclass(slots=True)
class _Grounds:
    """What guards go by: what people have ordered (None: it has not been read yet), the nodes by name, the policy."""

    control_state: ControlState | None
    nodes: Mapping[str, KnownNode]
    policy: EvictionPolicy
    # By node: the labels that were looked at, and the pauses that select these.
    selecting: dict[str, tuple[Mapping[str, str], Mapping[PauseScope, Pause]]] = field(default_factory=dict)
    # The rules that were looked at, and the names of those that pause.
    ruling: tuple[tuple[PolicyRule, ...], frozenset[str]] = ((), frozenset())

    @property
    def ordered(self) -> ControlState:
        """What people have ordered, as far as is known."""
        return self.control_state or ControlState()

    @property
    def paused_rules(self) -> frozenset[str]:
        """The names of the rules that pause."""
        if self.ruling[0] is not self.policy.rules:
            self.ruling = self.policy.rules, frozenset(rule.name for rule in self.policy.rules if rule.pause)
        return self.ruling[1]

    def selected_by(self, node_name: str) -> Mapping[PauseScope, Pause]:
        """Return the pauses that select a node by its labels."""
        selectors, node = self.ordered.selectors, self.nodes.get(node_name)
        if not selectors or node is None:
            return {}
        labels, known = node.live_node.labels, self.selecting.get(node_name)
        if known is None or known[0] is not labels:
            scopes = (PauseScope("selector", text) for text in selectors)
            known = labels, {scope: selectors[scope.name] for scope in scopes if scope.selects(labels)}
            if len(self.selecting) >= _MAX_SELECTED:
                self.selecting.clear()
            self.selecting[node_name] = known
        return known[1]

    @property
    def latch(self) -> Latch | None:
        """The breaker's latch, None: it is closed."""
        return self.ordered.latch

    @property
    def blocks_bypassing(self) -> bool:
        """Return whether an open breaker blocks evictions that bypass limits, too."""
        return self.latch is not None and (self.latch.out_of_service or self.latch.unreadable)


@dataclass(slots=True)
class _LiveGrounds(_Grounds):
    """What guards go by in a controller: its breaker says whether it is open."""

    breaker: Breaker = field(kw_only=True)

    @property
    def latch(self) -> Latch | None:
        return self.breaker.latch


class Guard:
    """Something that blocks evictions. ``ends`` says when it no longer does."""

    reason: ClassVar[WaitReason]
    noun: ClassVar[str]
    ends: ClassVar[str] = "it ends"

    def __init__(self, grounds: _Grounds) -> None:
        self._grounds = grounds

    def named(self, flow: FlowKey) -> str:
        """Return what it is called where it blocks a flow."""
        return self.noun

    def text(self, flow: FlowKey) -> str:
        """Return as a sentence that it blocks a flow."""
        return self.reason.value

    def says(self, flow: FlowKey, now: Moment) -> Pause | None:
        """Return since and until when, why, and by whom it blocks a flow; None: that is not known, or it does not."""
        return None


class ClusterGuard(Guard):
    """Blocks all evictions, or all but those that bypass limits."""

    def blocks(self, bypasses_limits: bool, now: Moment) -> bool:
        """Return whether it blocks all evictions; ``bypasses_limits``: those that bypass limits, too."""
        raise NotImplementedError


class FlowGuard(Guard):
    """Blocks flows, each by itself."""

    def blocks(self, flow: FlowKey) -> bool:
        """Return whether it blocks a flow."""
        raise NotImplementedError


class _OrdersUnknown(ClusterGuard):
    reason, noun, ends = WaitReason.ORDERS_UNKNOWN, "a control state that is not known", "it has been read"

    def blocks(self, bypasses_limits: bool, now: Moment) -> bool:
        return self._grounds.control_state is None


class _BreakerOpen(ClusterGuard):
    reason, noun, ends = WaitReason.BREAKER_OPEN, "the circuit breaker", "it is reset"

    def blocks(self, bypasses_limits: bool, now: Moment) -> bool:
        return self._grounds.latch is not None and (not bypasses_limits or self._grounds.blocks_bypassing)

    def says(self, flow: FlowKey, now: Moment) -> Pause | None:
        latch = self._grounds.latch
        return None if latch is None else Pause(latch.since_epoch, latch.cause, by=latch.controller)


class _EverythingPaused(ClusterGuard):
    reason, noun = WaitReason.PAUSED, "the pause of all evictions"

    def blocks(self, bypasses_limits: bool, now: Moment) -> bool:
        return self._grounds.ordered.cluster is not None

    def says(self, flow: FlowKey, now: Moment) -> Pause | None:
        return self._grounds.ordered.cluster


class _RulePaused(FlowGuard):
    reason, noun, ends = WaitReason.RULE_PAUSED, "a rule", "it no longer pauses them"

    def named(self, flow: FlowKey) -> str:
        return f"rule {flow.rule}"

    def blocks(self, flow: FlowKey) -> bool:
        return flow.rule in self._grounds.paused_rules


class _SelectorPaused(FlowGuard):
    reason, noun = WaitReason.SELECTOR_PAUSED, "a pause of nodes by their labels"

    def named(self, flow: FlowKey) -> str:
        return f"the pause of {self._longest(flow)[0].nodes}"

    def text(self, flow: FlowKey) -> str:
        return f"{self._longest(flow)[0]} are paused"

    def blocks(self, flow: FlowKey) -> bool:
        return bool(self._grounds.selected_by(flow.node_name))

    def says(self, flow: FlowKey, now: Moment) -> Pause | None:
        return self._longest(flow)[1] if self._grounds.selected_by(flow.node_name) else None

    def _longest(self, flow: FlowKey) -> tuple[PauseScope, Pause]:
        """Return the pause of the node that ends last."""
        return max(self._grounds.selected_by(flow.node_name).items(), key=lambda each: each[1].ends_epoch)


class _NodePaused(FlowGuard):
    reason, noun = WaitReason.NODE_PAUSED, "a pause of their node"

    def blocks(self, flow: FlowKey) -> bool:
        return flow.node_name in self._grounds.ordered.nodes

    def says(self, flow: FlowKey, now: Moment) -> Pause | None:
        return self._grounds.ordered.nodes.get(flow.node_name)


class _NamespacePaused(FlowGuard):
    reason, noun = WaitReason.NAMESPACE_PAUSED, "a pause of their namespace"

    def blocks(self, flow: FlowKey) -> bool:
        return flow.namespace in self._grounds.ordered.namespaces

    def says(self, flow: FlowKey, now: Moment) -> Pause | None:
        return self._grounds.ordered.namespaces.get(flow.namespace)


# So many spans in which something was blocked are remembered for each thing, and so many things.
_MAX_SPANS, _MAX_THINGS = 16, 1000
# Of these, so many are named of a pod, each in so many characters.
_MAX_NAMED, _MAX_BY = 5, 200

# What guards of the cluster say does not depend on the flow.
_ANY_FLOW = FlowKey("", "", "")


class _Blocked(NamedTuple):
    """From when until when something was blocked, and by what, in words."""

    begin: float
    end: float
    by: str


class _BlockedSpans:
    """When guards have blocked what, lately: scopes of pauses, nodes, rules, or everything."""

    def __init__(self) -> None:
        self._open: dict[object, _Blocked] = {}
        self._ended: dict[object, deque[_Blocked]] = {}

    def note(self, blocked: Mapping[object, _Blocked], now: float) -> None:
        """Note all that is blocked by now, by what, and since when at the latest."""
        for thing in [each for each in self._open if each not in blocked]:
            self.note_one(thing, None, now)
        for thing, span in blocked.items():
            self.note_one(thing, span, now)

    def note_one(self, thing: object, blocked: _Blocked | None, now: float) -> None:
        """Note that something is blocked by now, and since when at the latest; None: it is not."""
        if blocked is not None:
            self._open.setdefault(thing, blocked._replace(begin=min(blocked.begin, now)))
        elif thing in self._open:
            if thing not in self._ended and len(self._ended) >= _MAX_THINGS:
                del self._ended[next(iter(self._ended))]
            span = self._open.pop(thing)._replace(end=now)
            self._ended.setdefault(thing, deque(maxlen=_MAX_SPANS)).append(span)

    def of(self, thing: object) -> Iterator[_Blocked]:
        """Yield the spans in which this was blocked."""
        if thing in self._open:
            yield self._open[thing]
        yield from self._ended.get(thing, ())


def _blocked_by(noun: str, said: Pause | None, now: Moment) -> _Blocked:
    """Return a span that begins when something says that it blocks, now if it does not, with who ordered it and why."""
    since = now.at if said is None or said.since_epoch is None else now.instant_of(said.since_epoch)
    who = "" if said is None else bracketed(Pause(reason=said.reason, by=replica_name(said.by)), lambda _: None)
    return _Blocked(since, math.inf, one_line(noun + who, _MAX_BY))


class GuardList:
    """All guards, in the order in which the reason is told. It only answers."""

    def __init__(self, grounds: _Grounds) -> None:
        self._grounds = grounds
        of_cluster = _OrdersUnknown(grounds), _BreakerOpen(grounds), _EverythingPaused(grounds)
        self._of_cluster: tuple[ClusterGuard, ...] = of_cluster
        self._of_flows: tuple[FlowGuard, ...] = (
            _RulePaused(grounds),
            _SelectorPaused(grounds),
            _NodePaused(grounds),
            _NamespacePaused(grounds),
        )

    def blocking(self, flow: FlowKey, now: Moment) -> WaitReason | None:
        """Return why a flow is blocked; None if it is not."""
        return self.blocking_all(now, flow.bypasses_limits) or self.blocking_flow(flow)

    def blocking_all(self, now: Moment, bypasses_limits: bool = False) -> WaitReason | None:
        """Return why all evictions, or all ``bypasses_limits`` ones, are blocked; None if they are not."""
        for guard in self._of_cluster:
            if guard.blocks(bypasses_limits, now):
                return guard.reason
        return None

    def blocking_flow(self, flow: FlowKey) -> WaitReason | None:
        """Return why a flow is blocked, apart from reasons that block all evictions; None if it is not."""
        return next((guard.reason for guard in self._of_flows if guard.blocks(flow)), None)

    def of(self, reason: WaitReason) -> Guard | None:
        """Return the guard with this reason; None: it is a place in the queue."""
        guards: tuple[Guard, ...] = (*self._of_cluster, *self._of_flows)
        return next((guard for guard in guards if guard.reason is reason), None)

    def blocking_then(self, flow: FlowKey, then: Moment) -> list[Guard]:
        """Return each guard that blocks a flow at a later time, if until then nobody changes anything."""
        guards = [guard for guard in self._of_cluster if guard.blocks(flow.bypasses_limits, then)]
        blocking: list[Guard] = [*guards, *(guard for guard in self._of_flows if guard.blocks(flow))]
        return [guard for guard in blocking if not (guard.says(flow, then) or Pause()).has_ended(then.server_epoch)]


def guards_of(control_state: ControlState, policy: EvictionPolicy, nodes: Mapping[str, KnownNode]) -> GuardList:
    """Return the guards of a cluster with this control state, policy and nodes, for a plan."""
    return GuardList(_Grounds(control_state, nodes, policy))


class Guards(GuardList):
    """The guards of a running controller, and when they have blocked what."""

    def __init__(
        self, policy: EvictionPolicy, breaker: Breaker, control_state: ControlState | None, nodes: KnownNodes
    ) -> None:
        self._breaker = breaker
        self._nodes = nodes
        super().__init__(_LiveGrounds(control_state, nodes.known, policy, breaker=breaker))
        # Which guards of the cluster were blocking when that was last noted.
        self._noted: list[ClusterGuard] = []
        self._cluster_blocked, self._pauses_blocked, self._rules_blocked = (_BlockedSpans() for _ in range(3))
        self._selected_blocked = _BlockedSpans()
        # A rule that pauses from the beginning did so before this process, too.
        self.change_policy(policy, -math.inf)

    def supposing(self, change: Callable[[ControlState], ControlState]) -> GuardList:
        """Return the guards as they would be if people changed the control state so; its latch is the breaker's."""
        after = self.control_state and change(replace(self.control_state, latch=self._grounds.latch))
        return GuardList(_Grounds(after, self._nodes.known, self._grounds.policy))

    def blocked_by(self, flow: FlowKey, since: float, now: float) -> tuple[str, ...]:
        """Return what has blocked a flow since an instant, who ordered it and why, as far as this process knows."""
        spans = self._spans(flow)
        found = dict.fromkeys(span.by for span in spans if span.begin < now and span.end > since)
        return tuple(found)[:_MAX_NAMED]

    def _spans(self, flow: FlowKey) -> Iterator[_Blocked]:
        """Yield when a flow was blocked, and by what."""
        for guard in self._of_cluster:
            yield from self._cluster_blocked.of(guard.reason.name)
        yield from self._pauses_blocked.of(PauseScope("node", flow.node_name))
        yield from self._pauses_blocked.of(PauseScope("namespace", flow.namespace))
        yield from self._selected_blocked.of(flow.node_name)
        yield from self._rules_blocked.of(flow.rule)

    def blocked_seconds(self, flow: FlowKey, since: float, now: float) -> float:
        """Return for how long a flow has been blocked since an instant, as far as this process knows."""
        seconds, counted_until = 0.0, since
        for begin, end, _ in sorted(self._spans(flow)):
            seconds += max(0.0, min(end, now) - max(begin, counted_until))
            counted_until = max(counted_until, min(end, now))
        return seconds

    # What guards go by

    @property
    def control_state(self) -> ControlState | None:
        """What people have ordered, None until it has been read."""
        return self._grounds.control_state

    def change_policy(self, policy: EvictionPolicy, now: float) -> None:
        """Apply another policy."""
        self._grounds.policy = policy
        paused = self._grounds.paused_rules
        self._rules_blocked.note({rule: _Blocked(now, math.inf, f"rule {rule}") for rule in paused}, now)

    def pauses(self) -> dict[str, float]:
        """Count the pauses in force by their scope, as metrics name it: whole, selector, node, namespace."""
        state = self.control_state
        if state is None:
            return {}
        counts = {"selector": len(state.selectors), "node": len(state.nodes), "namespace": len(state.namespaces)}
        return {"whole": state.cluster is not None, **counts}

    def order(self, control_state: ControlState, now: Moment) -> list[Event]:
        """Apply the control state from the cluster; a known latch stays until it is reset."""
        before, after = self._grounds.ordered.pauses(), control_state.pauses()
        self.note(now)
        others = self._grounds.ordered.selectors != control_state.selectors
        self._grounds.control_state = control_state
        if others:
            self._grounds.selecting.clear()
            blocked = ((name, self._selected(name, now)) for name in self._nodes.tainted())
            self._selected_blocked.note({name: span for name, span in blocked if span is not None}, now.at)
        self.note(now)
        self._pauses_blocked.note(
            {scope: _blocked_by(f"a pause of its {scope.kind}", pause, now) for scope, pause in after.items()}, now.at
        )
        effects: list[Event] = [Paused(scope, pause) for scope, pause in after.items() if scope not in before]
        effects += [Resumed(scope) for scope in before if scope not in after]
        if now.dates_objects:
            self._breaker.date_back(now.server_epoch)
        return effects + self._noting_breaker(lambda: self._take_latch(control_state))

    def selecting(self, node_name: str) -> frozenset[PauseScope]:
        """Return the scopes of the pauses that select a node by its labels."""
        return frozenset(self._grounds.selected_by(node_name))

    def note_node(self, name: str, now: Moment, changed: bool = False) -> None:
        """Note whether pauses select a node; ``changed``: other ones than until now."""
        span = self._selected(name, now)
        self._selected_blocked.note_one(name, span and span._replace(begin=now.at) if changed else span, now.at)

    def _selected(self, node_name: str, now: Moment) -> _Blocked | None:
        """Return the span of the pause that has selected a node for the longest, None if none selects it."""
        pauses = self._grounds.selected_by(node_name).values()
        return min((_blocked_by("a pause of nodes by their labels", pause, now) for pause in pauses), default=None)

    def note(self, now: Moment) -> bool:
        """Note which guards of the cluster block by now; return whether others do than before. The leader asks often.
        A guard that ends has blocked what is due then, so people know of that; unless the breaker is open, too.
        """
        blocking = [guard for guard in self._of_cluster if guard.blocks(False, now)]
        if blocking == self._noted:
            return False
        before, after = (
            {each.reason for each in guards} - {WaitReason.BREAKER_OPEN} for guards in (self._noted, blocking)
        )
        self._noted = blocking
        if before - after - {WaitReason.ORDERS_UNKNOWN} and self._breaker.latch is None:
            self._breaker.acknowledge_backlog()
        self._cluster_blocked.note(
            {each.reason.name: _blocked_by(each.noun, each.says(_ANY_FLOW, now), now) for each in blocking}, now.at
        )
        return before != after

    def evaluate(
        self, nodes: Mapping[str, KnownNode], due: int, now: Moment, evictions: Evictions = no_evictions
    ) -> list[Event]:
        """Let the breaker evaluate, once the control state has been read.
        ``due``, ``evictions``: what no guard of flows blocks.
        """
        if self.control_state is None:
            return []
        others = (guard for guard in self._of_cluster if guard.reason is not WaitReason.BREAKER_OPEN)
        if self._breaker.latch is None and any(guard.blocks(False, now) for guard in others):
            due, evictions = 0, no_evictions
        return self._noting_breaker(lambda: self._breaker.evaluate(nodes, due, now, evictions))

    def begin_term(self) -> list[Event]:
        """Note that another leadership of this process begins."""
        return self._noting_breaker(lambda: self._breaker.begin_term(self._grounds.ordered.latch))

    def _take_latch(self, control_state: ControlState) -> None:
        breaker, latch = self._breaker, control_state.latch
        is_readable = control_state.breaker_epoch is not None and not (latch is not None and latch.unreadable)
        if is_readable and breaker.latch is not None and breaker.latch.unreadable:
            breaker.correct()
        breaker.read(latch, control_state.reset_epoch, by_itself=control_state.closed_by != "")

    def _noting_breaker(self, act: Callable[[], None]) -> list[Event]:
        before = self._breaker.latch
        act()
        after = self._breaker.latch
        if (before is None) == (after is None):
            return []
        return [BreakerClosed()] if after is None else [BreakerOpened(after)]
