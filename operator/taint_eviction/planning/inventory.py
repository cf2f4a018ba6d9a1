"""What a plan is made from: the nodes, pods and budgets that were read, and what could not be used."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from taint_eviction.core.disruption_budgets import Budget
from taint_eviction.core.objects import NamespacedName, Node, Pod

ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller that owns a pod, and would create another in its place."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod with what a plan needs besides. ``owner`` None: nobody creates it again. ``pending``: phase Pending."""

    pod: Pod
    labels: Labels
    owner: Owner | None
    ready: bool
    pending: bool = False

    @property
    def bare(self) -> bool:
        """Tell whether it is gone for good once it has left."""
        return self.owner is None and not self.pod.mirror


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node with what a plan needs besides."""

    node: Node
    labels: Labels

    @property
    def zone(self) -> str:
        """The zone that its labels name, "" where none does."""
        return next((self.labels[label] for label in ZONE_LABELS if label in self.labels), "")


@dataclass(slots=True)
class Inventory:
    """All that was read.

    ``skipped`` counts objects of other kinds, ``repeated`` those that were given before, of which the last counts.
    ``problems`` has a sentence with its place for what could not be read, the first hundred of ``unread``: what is in
    here is then not all there is. ``complaints``: what was left out of objects that could be read, the first hundred of
    ``complained``. ``budgets_known`` False: there may be budgets, but they could not be asked for.
    """

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[NamespacedName, PodFacts] = field(default_factory=dict)
    budgets: dict[NamespacedName, Budget] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    problems: list[str] = field(default_factory=list)
    unread: int = 0
    complaints: list[str] = field(default_factory=list)
    complained: int = 0
    notes: list[str] = field(default_factory=list)
    budgets_known: bool = True

    def __len__(self) -> int:
        return len(self.nodes) + len(self.pods) + len(self.budgets)
