"""How pods are evicted after the decision to evict them: by which call, how fast, and which evictions are held.
The first rule that matches a pod and its effective taint counts. The policy's general settings apply to what the rule
leaves open, and to pods that no rule matches. This module does not decide whether and when a pod is evicted
(``decision``); but a rule may set a ceiling on the seconds for which its pods tolerate its taints.

Each due taint has a rule of the policy (or none), and that rule counts as a whole. The *effective* taint is the due one
whose rule allows the eviction soonest. So a rule that pauses one taint does not protect the pod from another. The
functions about it take the policy of the pod's node (``EvictionPolicy.on``).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from taint_eviction.core.decision import Ceiling, Evict, TaintVerdict
from taint_eviction.core.label_selectors import LabelSelector, chooses
from taint_eviction.core.objects import LIFECYCLE_KEYS, OUT_OF_SERVICE, Pod
from taint_eviction.core.tiers import Order, Tier, tier_of


class EvictionMode(Enum):
    """Which call ends a pod.

    ``DELETE``: a DELETE, which ignores budgets. ``EVICT``: the eviction API; PodDisruptionBudgets hold indefinitely.
    ``EVICT_THEN_DELETE``: the eviction API until budgets, or admission, have refused for a given time, then a DELETE.
    """

    DELETE = "delete"
    EVICT = "evict"
    EVICT_THEN_DELETE = "evict-then-delete"


@dataclass(frozen=True, slots=True)
class Limit:
    """How many evictions: ``per_second`` on average, ``burst`` without a wait between them, ``at_once`` in flight.
    None: unlimited. ``burst`` None: the number for one second, at least 1.
    """

    per_second: float | None = None
    burst: int | None = None
    at_once: int | None = None

    @property
    def max_tokens(self) -> float:
        """The largest number of tokens that can accumulate."""
        if self.per_second is None:
            return math.inf
        return float(max(1, math.ceil(self.per_second)) if self.burst is None else self.burst)

    @property
    def size(self) -> tuple[float, float, float]:
        """A sort key for limits: by rate, then by burst, then by number in flight; unlimited is the largest."""
        per_second, at_once = (math.inf if each is None else each for each in (self.per_second, self.at_once))
        return per_second, self.max_tokens, at_once

    def problems(self, what: str) -> list[str]:
        """Return everything that is wrong with it, one sentence each; ``what`` names it."""
        found = []
        if self.per_second is not None and not (0 < self.per_second < math.inf):
            found.append(
                f"{what}: evictions per second must be more than 0, not {self.per_second:g}; to evict no pods, pause"
            )
        if self.burst is not None and self.burst < 1:
            found.append(f"{what}: the burst must be at least 1, not {self.burst}")
        if self.burst is not None and self.per_second is None:
            found.append(f"{what}: a burst has no effect without evictions per second")
        if self.at_once is not None and self.at_once < 1:
            found.append(f"{what}: evictions at once must be at least 1, not {self.at_once}; to evict no pods, pause")
        return found


UNLIMITED = Limit()
_MODES_BY_URGENCY = (EvictionMode.DELETE, EvictionMode.EVICT_THEN_DELETE, EvictionMode.EVICT)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """The settings for some pods. An empty field matches all pods; for a field that is None the general setting
    applies. ``taint_keys`` and ``namespaces`` are names, or prefixes followed by ``*``. ``node_selector`` selects by
    the labels of the pod's node (``EvictionPolicy.on``). ``limit`` is shared by all pods of the rule, and applies in
    addition to the general limits. ``pause``: none of its pods is evicted. ``order``: whether its pods wait for earlier
    tiers; ``tier``: that of its pods, None: the one that they have by themselves. ``max_toleration_seconds``: finite
    seconds of a toleration count as no more than this.
    """

    name: str
    taint_keys: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    pod_selector: LabelSelector = ()
    node_selector: LabelSelector = ()
    mode: EvictionMode | None = None
    evict_timeout_seconds: float | None = None
    limit: Limit = UNLIMITED
    pause: bool = False
    order: Order | None = None
    tier: Tier | None = None
    max_toleration_seconds: int | None = None

    def matches(self, taint_key: str, pod: Pod) -> bool:
        """Return whether the rule matches a pod that is evicted because of a taint with this key, on a node that its
        selector matches.
        """
        return (
            _named(taint_key, self.taint_keys)
            and _named(pod.ref.key.namespace, self.namespaces)
            and chooses(self.pod_selector, pod.labels)
        )

    def covers(self, other: "PolicyRule") -> bool:
        """Return whether the rule certainly matches everything that another one matches."""
        return (
            _names_all(self.taint_keys, other.taint_keys)
            and _names_all(self.namespaces, other.namespaces)
            and set(self.pod_selector) <= set(other.pod_selector)
            and set(self.node_selector) <= set(other.node_selector)
        )

    def names(self, taint_key: str) -> bool:
        """Return whether the rule names this key in particular: in full, or by a pattern other than ``*`` alone."""
        return any(pattern != "*" and _named(taint_key, (pattern,)) for pattern in self.taint_keys)


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name, or each that a pattern names, is one of those that patterns name."""
    return not patterns or any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns
    )


def _names_all(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    return all(_named(name, wide) for name in narrow or ("*",))


@dataclass(frozen=True, slots=True)
class Handling:
    """The settings for one pod: ``rule`` is the one that matched, None if none did.
    ``bypasses_limits``: the pod is evicted because its node is out of service, before others, and neither limits nor
    an open breaker block it (but see ``out_of_service``). ``order``: whether it waits for earlier tiers.
    ``node_lost``: its node is lost, so it is evicted by a DELETE, although its rule, or the policy, has another mode.
    """

    rule: PolicyRule | None
    mode: EvictionMode
    evict_timeout_seconds: float
    bypasses_limits: bool = False
    order: Order = Order.NONE
    node_lost: bool = False

    @property
    def paused(self) -> bool:
        """Return whether the rule pauses the pod."""
        return self.rule is not None and self.rule.pause

    @property
    def urgency(self) -> tuple[float, ...]:
        """A sort key: settings that allow an eviction sooner come first; paused ones come last, and are equal."""
        if self.paused:
            return (math.inf,)
        if self.bypasses_limits:
            return (-math.inf,)
        patience = self.evict_timeout_seconds if self.mode is EvictionMode.EVICT_THEN_DELETE else 0.0
        size = UNLIMITED.size if self.rule is None else self.rule.limit.size
        return (_MODES_BY_URGENCY.index(self.mode), patience, *(-each for each in size))


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """The settings for all pods, and the rules for some.
    ``evict_timeout_seconds``: for how long EVICT_THEN_DELETE uses the eviction API while it refuses (see
    ``FailedAttempts``). ``background_timeout_seconds``: for how long a pod whose virtual machine moves away does not
    count as refused, from the first such answer; 0: it counts. ``total`` limits all evictions together, ``per_node``
    those of each node, ``per_namespace`` those of each namespace. ``out_of_service``: the policy applies to the pods of
    a node that is out of service (see ``on``). ``order``: whether pods wait for earlier tiers of their node, and
    ``order_wait_seconds`` how long, for each earlier tier. ``ignores_budgets_on_lost_nodes``: a pod that leaves because
    its node is lost is deleted, whatever the mode is; ``lost_at``: from when on its node counts as lost (see ``on``).
    """

    mode: EvictionMode = EvictionMode.DELETE
    evict_timeout_seconds: float = 300.0
    total: Limit = UNLIMITED
    per_node: Limit = UNLIMITED
    per_namespace: Limit = UNLIMITED
    rules: tuple[PolicyRule, ...] = field(default=())
    out_of_service: bool = False
    background_timeout_seconds: float = 1800.0
    order: Order = Order.NONE
    order_wait_seconds: float = 600.0
    ignores_budgets_on_lost_nodes: bool = False
    lost_at: float = math.inf

    def on(
        self, labels: Mapping[str, str], out_of_service: bool = False, lost_at: float = math.inf
    ) -> "EvictionPolicy":
        """Return the policy that applies to the pods of a node with these labels: it has only the rules that select the
        node, and differs for a node that is out of service, or lost.

        ``lost_at``: from when on the node counts as lost if it stays as it is; infinite: it does not.
        """
        rules = self.rules
        if any(rule.node_selector for rule in rules):
            rules = tuple([rule for rule in rules if chooses(rule.node_selector, labels)])
        lost_at = lost_at if self.ignores_budgets_on_lost_nodes else math.inf
        if rules == self.rules and not out_of_service and lost_at == math.inf:
            return self
        return replace(self, rules=rules, out_of_service=out_of_service, lost_at=lost_at)

    @property
    def same_for_all_taints(self) -> bool:
        """Return whether a pod is evicted in the same way for every taint, at all times."""
        return not self.rules and not self.out_of_service and self.lost_at == math.inf

    def handling(self, taint_key: str, pod: Pod, at: float) -> Handling:
        """Return the settings for a pod that is evicted at ``at`` because of a taint with this key.
        On a node that is out of service the pod is deleted by a DELETE, unless a rule that matches it names that very
        taint, or the first rule that matches it pauses it.
        """
        matching = [rule for rule in self.rules if rule.matches(taint_key, pod)]
        rule = matching[0] if matching else None
        if self.out_of_service and taint_key == OUT_OF_SERVICE:
            ruled = any(each.names(taint_key) for each in matching) or (rule is not None and rule.pause)
            if not ruled:
                return Handling(None, EvictionMode.DELETE, self.evict_timeout_seconds, bypasses_limits=True)
        mode, timeout, order = self.mode, self.evict_timeout_seconds, self.order
        if rule is not None:
            mode, order = rule.mode or mode, rule.order or order
            timeout = timeout if rule.evict_timeout_seconds is None else rule.evict_timeout_seconds
        if taint_key in LIFECYCLE_KEYS and self.lost_at <= at and mode is not EvictionMode.DELETE:
            return Handling(rule, EvictionMode.DELETE, timeout, order=order, node_lost=True)
        return Handling(rule, mode, timeout, order=order)

    def ceiling(self, pod: Pod, taint_key: str) -> Ceiling | None:
        """Return the ceiling on the seconds for which a pod tolerates a taint with this key, None if there is none: it
        is that of the first rule that matches, whether the pod's node is out of service or not.
        """
        rule = next((rule for rule in self.rules if rule.matches(taint_key, pod)), None)
        if rule is None or rule.max_toleration_seconds is None:
            return None
        return Ceiling(rule.name, rule.max_toleration_seconds)

    @property
    def orders(self) -> bool:
        """Return whether any pod waits for earlier tiers."""
        return self.order is Order.TIERS or any(rule.order is Order.TIERS for rule in self.rules)

    @property
    def label_keys(self) -> frozenset[str]:
        """Return the keys of the pods' labels that its rules name."""
        return frozenset(term.key for rule in self.rules for term in rule.pod_selector)

    def problems(self) -> list[str]:
        """Return everything that is wrong with its limits, one sentence each."""
        limits = {"all evictions": self.total, "evictions per node": self.per_node}
        limits["evictions per namespace"] = self.per_namespace
        return [problem for what, limit in limits.items() for problem in limit.problems(what)]


def tier_in(pod: Pod, handling: Handling) -> Tier:
    """Return the tier of a pod that the policy handles so."""
    rule = handling.rule
    return tier_of(pod) if rule is None or rule.tier is None else rule.tier


# The effective taint


class EffectiveTaint(NamedTuple):
    """From ``at`` on, ``decision`` has the taint that is effective as ``deciding``; ``handling`` follows from it."""

    at: float
    decision: Evict
    handling: Handling


def effective_taint(decision: Evict, pod: Pod, policy: EvictionPolicy, at: float) -> EffectiveTaint:
    """Return the taint that is effective at ``at``; before the deadline: at that.
    Of taints with equivalent rules, the one with the earliest deadline is effective.
    """
    at = max(at, decision.fire_at)
    if not policy.same_for_all_taints and len(decision.verdicts) > 1:
        due = [verdict for verdict in decision.verdicts if (due_at := verdict.due_at) is not None and due_at <= at]
        deciding = min(due, key=lambda verdict: (handling_of(verdict, pod, policy, at).urgency, verdict.fire_at))
        decision = replace(decision, deciding=deciding)
    return EffectiveTaint(at, decision, handling_of(decision.deciding, pod, policy, at))


def effective_taints(decision: Evict, pod: Pod, policy: EvictionPolicy, at: float) -> Iterator[EffectiveTaint]:
    """Yield the taint that is effective at ``at``, and later whenever the pod is handled otherwise: another taint is
    effective, or its node counts as lost.
    """
    before = effective_taint(decision, pod, policy, at)
    yield before
    if policy.same_for_all_taints:
        return
    changes = {policy.lost_at, *(verdict.due_at for verdict in decision.verdicts)}
    for later in sorted(change for change in changes if change is not None and before.at < change < math.inf):
        then = effective_taint(decision, pod, policy, later)
        if then.decision.deciding is not before.decision.deciding or then.handling != before.handling:
            yield then
        before = then


def first_unpaused(decision: Evict, pod: Pod, policy: EvictionPolicy) -> Evict:
    """Return the decision at the first instant when no rule pauses the pod: at its deadline, or when another taint is
    due. If every rule that applies then pauses the pod, return the decision at its deadline.
    """
    for at, then, handling in effective_taints(decision, pod, policy, decision.fire_at):
        if not handling.paused:
            return replace(then, fire_at=at)
    return effective_taint(decision, pod, policy, decision.fire_at).decision


def deletes_at(decision: Evict, pod: Pod, policy: EvictionPolicy) -> float | None:
    """Return when a pod is deleted if budgets refuse it from its deadline on and nothing else holds it; None: never."""
    until = math.inf
    for at, _, handling in effective_taints(decision, pod, policy, decision.fire_at):
        if until <= at:
            break
        if handling.mode is EvictionMode.EVICT or handling.paused:
            continue
        patience = 0.0 if handling.mode is EvictionMode.DELETE else handling.evict_timeout_seconds
        until = max(at, decision.fire_at + patience)
    return None if until == math.inf else until


def handling_of(verdict: TaintVerdict, pod: Pod, policy: EvictionPolicy, at: float) -> Handling:
    """Return how the policy handles a pod that is evicted at ``at`` because of this taint."""
    return policy.handling(verdict.taint.key, pod, at)
