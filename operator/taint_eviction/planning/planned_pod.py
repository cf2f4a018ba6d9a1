"""One pod of a plan: what becomes of it, and what that means. Adds nothing up (``plan``)."""

from dataclasses import dataclass, field

from taint_eviction.core.decision import Evict
from taint_eviction.core.disruption_budgets import Budget, EvictionVerdict
from taint_eviction.core.forecast import PodForecast
from taint_eviction.core.objects import PodRef, Taint
from taint_eviction.core.policy import EvictionMode, Handling
from taint_eviction.planning.inventory import PodFacts


@dataclass(slots=True)
class PlannedPod:
    """What becomes of one pod, and what that means.

    ``repelled_by``: the taints for which it could not be scheduled on its node again; ``discouraged_by``: those for
    which it would only be if need be. ``kept_from``: for a pod without a node, the nodes that it could not be scheduled
    on for their taints. ``recreated_for_ever``: its DaemonSet creates it there again each time.

    ``handling``: how it would be evicted, None where it stays. ``verdict``: what the eviction API would say, None where
    it would not be asked. ``server_allows``: what the API server itself said to a dry-run eviction of this pod alone,
    None where it was not asked; ``server_answer``: the same in words.
    """

    facts: PodFacts
    forecast: PodForecast
    repelled_by: tuple[Taint, ...] = ()
    discouraged_by: tuple[Taint, ...] = ()
    budgets: tuple[Budget, ...] = ()
    kept_from: dict[str, tuple[Taint, ...]] = field(default_factory=dict)
    recreated_for_ever: bool = False
    handling: Handling | None = None
    verdict: EvictionVerdict | None = None
    server_allows: bool | None = None
    server_answer: str = ""

    @property
    def ref(self) -> PodRef:
        """Which pod."""
        return self.facts.pod.ref

    @property
    def leaves_at(self) -> float | None:
        """The instant at which it would leave; None if it stays."""
        return self.forecast.leaves_at

    @property
    def lost(self) -> bool:
        """Tell whether it is gone for good: it leaves, or its node does, and nobody creates another."""
        return self.facts.bare and (self.leaves_at is not None or self.forecast.orphaned)

    @property
    def paused_by(self) -> str:
        """The name of the rule that holds it, "" if none does."""
        rule = None if self.handling is None else self.handling.rule
        return rule.name if rule is not None and rule.pause else ""

    @property
    def asks_to_be_held(self) -> bool:
        """Tell whether its owner asks for more time than it is granted."""
        decision = self.forecast.decision
        return isinstance(decision, Evict) and (self.facts.pod.hold_seconds or 0.0) > decision.held_seconds

    @property
    def asks(self) -> bool:
        """Tell whether it would leave by way of the eviction API."""
        return self.handling is not None and self.handling.mode is not EvictionMode.DELETE and not self.paused_by

    @property
    def blocked(self) -> bool:
        """Tell whether its eviction would be refused: by the API server, or by arithmetic since others go before."""
        return self.server_allows is False or self.verdict not in (None, EvictionVerdict.ALLOWED)

    @property
    def deleted_at(self) -> float | None:
        """The instant at which it would be deleted though it is blocked; None if never."""
        at, handling = self.leaves_at, self.handling
        if at is None or handling is None or handling.mode is not EvictionMode.EVICT_THEN_DELETE or not self.blocked:
            return None
        return at + handling.evict_timeout_seconds
