"""The input of a plan: nodes, pods and budgets, and what could not be read."""

from collections import Counter
from dataclasses import dataclass, field

from taint_eviction.core.objects import NamespacedName, Node, Pod
from taint_eviction_ctl.planning.disruption_budgets import Budget

_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod with further facts that a plan needs. ``pending``: its phase is Pending."""

    pod: Pod
    ready: bool
    pending: bool = False

    @property
    def bare(self) -> bool:
        """Return whether no controller recreates the pod."""
        return self.pod.controller is None and not self.pod.mirror


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node with further facts that a plan needs."""

    node: Node

    @property
    def zone(self) -> str:
        """The zone in its labels, "" if there is none."""
        labels = self.node.labels
        return next((labels[label] for label in _ZONE_LABELS if label in labels), "")


@dataclass(slots=True)
class Inventory:
    """All that was read.

    ``skipped`` counts objects of other kinds by kind; ``repeated`` counts objects that were given before (the last one
    is kept). ``problems``: what could not be read, one sentence with its place each, the first hundred of ``unread``;
    if there is any, the inventory is incomplete. ``complaints``: what was left out of objects that could be read, the
    first hundred of ``complained``. ``budgets_known`` False: the budgets could not be listed.
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

    def keep_namespace(self, namespace: str) -> None:
        """Leave out the pods and budgets of all other namespaces."""
        self.pods = {key: pod for key, pod in self.pods.items() if key.namespace == namespace}
        self.budgets = {key: budget for key, budget in self.budgets.items() if key.namespace == namespace}

    def __len__(self) -> int:
        return len(self.nodes) + len(self.pods) + len(self.budgets)
