"""One pod of a plan. The sums are in ``plan``."""

from dataclasses import dataclass, field
from typing import NamedTuple

from taint_eviction.core.decision import Evict
from taint_eviction.core.objects import PodRef, Taint
from taint_eviction.core.policy import EvictionMode, Handling
from taint_eviction.core.tiers import Tier
from taint_eviction_ctl.planning.disruption_budgets import Budget, EvictionVerdict
from taint_eviction_ctl.planning.forecast import PodForecast
from taint_eviction_ctl.planning.inventory import PodFacts


class PlannedOrder(NamedTuple):
    """For whom a pod waits in the order of its node: ``ref`` and ``others`` more pods, the first of them of ``tier``.

    ``leaves_at``: when it leaves if these are gone as soon as they leave, None: something else keeps it; ``until``:
    when it waits no more at the latest, but for the time in which it is blocked itself.
    """

    ref: PodRef
    tier: Tier
    others: int
    leaves_at: float | None
    until: float


class Holder(NamedTuple):
    """What keeps a pod on its node although it is due: the reason for machines, its name, and when it ends."""

    reason: str
    noun: str
    ends: str


@dataclass(slots=True)
class PlannedPod:
    """What happens to one pod.

    ``repelled_by``: the taints because of which it could not be scheduled on its node again; ``discouraged_by``: those
    because of which the scheduler would avoid the node. ``kept_from``: for a pod without a node, by node the taints
    because of which it could not be scheduled there. ``recreated_for_ever``: its DaemonSet recreates it on the tainted
    node each time. ``freed``: it is Terminating, and PodGC force-deletes it, since its node is out of service;
    ``freed_anyway``: also without the changes.

    ``handling``: how it would be evicted; None: it stays. ``goes_at``: when that happens, after all for which it waits;
    None: it stays, or something keeps it. ``deletes_at``: the same, if budgets have refused it before. ``verdict``: the
    arithmetic's answer for the eviction API; None: it would not be asked. ``server_allows``: the API server's answer to
    a dry-run eviction of this pod alone, None: it was not asked; ``server_answer``: the same in words;
    ``moves_away``: it says that the virtual machine in the pod moves away. ``order``: for whom it waits; None: for no
    pod of an earlier tier. ``holders``: what keeps it when it would leave.

    ``adopted``: beside a built-in controller its countdown would be adopted; False: that controller evicts it; None:
    that controller would not evict it, or the plan does not consider it.
    """

    facts: PodFacts
    forecast: PodForecast
    repelled_by: tuple[Taint, ...] = ()
    discouraged_by: tuple[Taint, ...] = ()
    budgets: tuple[Budget, ...] = ()
    kept_from: dict[str, tuple[Taint, ...]] = field(default_factory=dict)
    recreated_for_ever: bool = False
    freed: bool = False
    freed_anyway: bool = False
    handling: Handling | None = None
    goes_at: float | None = None
    deletes_at: float | None = None
    verdict: EvictionVerdict | None = None
    server_allows: bool | None = None
    server_answer: str = ""
    moves_away: bool = False
    adopted: bool | None = None
    order: PlannedOrder | None = None
    holders: tuple[Holder, ...] = ()

    @property
    def ref(self) -> PodRef:
        """The pod's name and UID."""
        return self.facts.pod.ref

    @property
    def leaves_at(self) -> float | None:
        """The instant at which it would leave; None if it stays."""
        return self.forecast.leaves_at

    @property
    def shown_at(self) -> float | None:
        """The instant that people see: when it leaves, or when it is due if something keeps it; None if it stays."""
        return self.leaves_at if self.goes_at is None else self.goes_at

    @property
    def by_podgc(self) -> str:
        """Return in a word that PodGC force-deletes the pod: ``freed`` if it is Terminating, else ``orphaned``; "" if
        PodGC does not. It does if the node is deleted, or is out of service while the pod is Terminating.
        """
        if not (self.forecast.orphaned or self.freed):
            return ""
        return "freed" if self.facts.pod.terminating else "orphaned"

    @property
    def by_change(self) -> bool:
        """Return whether it ends because of the changes: without them it would stay, or leave later, or be held."""
        if self.leaves_at is not None:
            return not self.forecast.anyway
        return self.by_podgc != "" and not self.freed_anyway

    @property
    def lost(self) -> bool:
        """Return whether the pod is lost: the pod or its node is deleted, and no controller recreates it."""
        return self.facts.bare and (self.leaves_at is not None or self.by_podgc != "")

    @property
    def paused_by(self) -> str:
        """The name of the rule that pauses it, "" if none does."""
        rule = None if self.handling is None else self.handling.rule
        return rule.name if rule is not None and rule.pause else ""

    @property
    def out_of_service(self) -> bool:
        """Return whether the pod is evicted by a DELETE because its node is out of service."""
        return self.handling is not None and self.handling.bypasses_limits

    @property
    def asks_to_be_held(self) -> bool:
        """Return whether its owner requests a longer hold than is granted."""
        decision = self.forecast.decision
        return isinstance(decision, Evict) and (self.facts.pod.hold_seconds or 0.0) > decision.held_seconds

    @property
    def asks(self) -> bool:
        """Return whether it would be evicted by the eviction API."""
        return self.handling is not None and self.handling.mode is not EvictionMode.DELETE and not self.paused_by

    @property
    def blocked(self) -> bool:
        """Return whether its eviction would be refused: by the API server, or because others leave before it."""
        return self.server_allows is False or self.verdict not in (None, EvictionVerdict.ALLOWED)

    @property
    def deleted_at(self) -> float | None:
        """The instant at which it would be deleted although it is blocked; None if never."""
        return self.deletes_at if self.blocked else None
