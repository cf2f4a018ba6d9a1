"""The actions of a scenario's timeline: a closed union of values, one for each keyword.
``action_file`` reads them, and ``stage`` performs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from taint_eviction.core.objects import NamespacedName
from taint_eviction_lab.simulation.faults import CallFault, Picked
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.lifecycle_actions import LifecycleAction
from taint_eviction_lab.simulation.suspension_actions import SuspensionAction

# The manager in managedFields that changes taints, if a scenario names none.
KUBECTL = "kubectl-taint"
# The number of the replica that is the model of the built-in controller; all others count from 1.
BUILT_IN = -1


@dataclass(frozen=True, slots=True)
class AddTaints:
    """Add taints to a node in one write; those of the same key and effect are replaced."""

    node: str
    taints: tuple[JsonObject, ...]
    manager: str = KUBECTL


@dataclass(frozen=True, slots=True)
class RemoveTaints:
    """Remove taints from a node in one write: (key, effect), "" for every effect; None for all taints."""

    node: str
    taints: tuple[tuple[str, str], ...] | None
    manager: str = KUBECTL


@dataclass(frozen=True, slots=True)
class SetTaints:
    """Write a node's whole list of taints in one write."""

    node: str
    taints: tuple[JsonObject, ...]
    manager: str = KUBECTL


@dataclass(frozen=True, slots=True)
class WriteNode:
    """Write anything but taints on a node: the time in the manager's entry of managedFields moves."""

    node: str
    manager: str


@dataclass(frozen=True, slots=True)
class SetReady:
    """Write a node's condition Ready; its lastTransitionTime moves if ``status`` is another than before."""

    node: str
    status: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Create a node."""

    body: JsonObject


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete a node; its pods stay."""

    node: str


@dataclass(frozen=True, slots=True)
class RecreateNode:
    """Delete a node if it is there, and create one of the same name: another UID, these taints and no others."""

    node: str
    taints: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePods:
    """Create pods."""

    bodies: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Somebody else deletes a pod; ``force``: it is gone at once.
    ``built_in``: the built-in controller deletes it, after it has set its condition; ``refused``: the deletion fails.
    """

    pod: NamespacedName
    force: bool = False
    built_in: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class RecreatePod:
    """Create a pod of the same name: another UID, spec as before; an old one that still exists is removed at once.

    ``node`` None: on the old pod's node. ``unbound``: on no node.
    """

    pod: NamespacedName
    node: str | None = None
    unbound: bool = False


@dataclass(frozen=True, slots=True)
class BindPod:
    """Bind a pod to a node."""

    pod: NamespacedName
    node: str


@dataclass(frozen=True, slots=True)
class ChangeTolerations:
    """Write a pod's whole list of tolerations."""

    pod: NamespacedName
    tolerations: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class FinishPod:
    """Let a pod reach its final phase."""

    pod: NamespacedName
    phase: str


@dataclass(frozen=True, slots=True)
class RemoveFinalizers:
    """Remove the finalizers of a pod."""

    pod: NamespacedName


@dataclass(frozen=True, slots=True)
class ResetCondition:
    """Set the DisruptionTarget condition's status to False, as the disruption controller does after two minutes."""

    pod: NamespacedName


@dataclass(frozen=True, slots=True)
class Restart:
    """Kill the controller (with replicas: this one) and start it again ``after_seconds`` later.

    ``adopts``: whether it takes countdowns over from then on, None: as before. ``gracefully``: what is under way ends
    first, and the Lease is released.
    """

    after_seconds: float
    replica: int = 1
    adopts: bool | None = None
    gracefully: bool = False


@dataclass(frozen=True, slots=True)
class Freeze:
    """Freeze a controller process for a time: requests already sent arrive, and answers and events wait for it."""

    for_seconds: float
    replica: int = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """Cut one replica off from the API server for a time.

    ``late_seconds``: the connections are half open: what it sends to change something meanwhile arrives so much later,
    and is never answered; None: it never arrives.
    """

    for_seconds: float
    replica: int = 1
    late_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Lead:
    """Give the controller the lead, or take it away."""

    leading: bool


@dataclass(frozen=True, slots=True)
class DisturbCalls:
    """Let calls fail, hang, be slow, or be answered with a wrong ``Date``."""

    picked: Picked
    for_seconds: float | None
    fault: CallFault


@dataclass(frozen=True, slots=True)
class Outage:
    """The API server does not answer for a time: calls get no answer, and no watch is open."""

    for_seconds: float


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches that an action is about: of these kinds, and of this replica; None for all replicas."""

    nodes: bool
    pods: bool
    replica: int | None = None


@dataclass(frozen=True, slots=True)
class LagWatches:
    """Delay all later events by a time."""

    watches: Watches
    by_seconds: float


@dataclass(frozen=True, slots=True)
class CutWatches:
    """End watches, and let none be opened for a time."""

    watches: Watches
    for_seconds: float


@dataclass(frozen=True, slots=True)
class LoseEvents:
    """Lose events for a time, without the watches noticing."""

    watches: Watches
    for_seconds: float


@dataclass(frozen=True, slots=True)
class RepeatEvents:
    """Deliver the events of a time more than once."""

    watches: Watches
    for_seconds: float


@dataclass(frozen=True, slots=True)
class RelistWatches:
    """Let open watches list again, as after a 410: events under way are lost."""

    watches: Watches


@dataclass(frozen=True, slots=True)
class StepHostClock:
    """Set the host's clock (of replicas: this one's) forward, or back."""

    seconds: float
    replica: int = 1


@dataclass(frozen=True, slots=True)
class StepServerClock:
    """Set the clock of an API server (counted from 1; None: of all of them) forward, or back."""

    seconds: float
    server: int | None = None


@dataclass(frozen=True, slots=True)
class StopServer:
    """Take an API server (counted from 1) away for a time: its connections end, and it gets no new ones."""

    server: int
    for_seconds: float


@dataclass(frozen=True, slots=True)
class FreezeKubelet:
    """Let a node's kubelet end no pods, until it is thawed."""

    node: str
    frozen: bool


@dataclass(frozen=True, slots=True)
class SetHold:
    """Write the annotation by which a pod's owner holds its eviction; None removes it."""

    pod: NamespacedName
    hold: str | None


@dataclass(frozen=True, slots=True)
class Annotate:
    """Write some annotations of a pod; None removes one."""

    pod: NamespacedName
    annotations: Mapping[str, str | None]


ClusterAction = (
    AddTaints
    | RemoveTaints
    | SetTaints
    | WriteNode
    | SetReady
    | CreateNode
    | DeleteNode
    | RecreateNode
    | FreezeKubelet
    | CreatePods
    | DeletePod
    | RecreatePod
    | BindPod
    | ChangeTolerations
    | FinishPod
    | RemoveFinalizers
    | ResetCondition
    | SetHold
    | Annotate
)
"""What the people and programs of a cluster do to its nodes and pods."""

Action = (
    ClusterAction
    | Restart
    | Freeze
    | Partition
    | Lead
    | DisturbCalls
    | Outage
    | LagWatches
    | CutWatches
    | LoseEvents
    | RepeatEvents
    | RelistWatches
    | StepHostClock
    | StepServerClock
    | StopServer
    | LifecycleAction
    | SuspensionAction
)


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """An action at a second of the scenario; ``line`` is its line in the file, ``text`` its words for the timeline."""

    at: float
    action: Action
    line: int
    text: str
