"""The actions of a scenario's timeline: each keyword is one unit, which reads its value and performs it.

Most take a short form, as a command line would have it (``taint: node-1 maintenance=now:NoExecute``), or a mapping.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from fake_apiserver.node_lifecycle import NodeLifecycleController
from fake_apiserver.status import StatusError
from taint_eviction.core.control_state import EVERYTHING, PauseScope, selector_scope
from taint_eviction.core.objects import SHUTTING_DOWN, NamespacedName
from taint_eviction.core.policy import PolicyRule
from taint_eviction.core.text import JsonObject
from taint_eviction.files import short_forms
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction.files.policy_file import PolicyReading
from taint_eviction.kube.condition_patches import CONDITION_TYPE
from taint_eviction.kube.kubernetes_objects import HOLD_ANNOTATION
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation import node_steps, pod_steps
from taint_eviction_lab.simulation.cluster import BUDGETS, Impossible, create_budget, later
from taint_eviction_lab.simulation.faults import CallFault, CallKind, Picked
from taint_eviction_lab.simulation.keywords import Key, first_key, read_mapping
from taint_eviction_lab.simulation.node_steps import KUBECTL
from taint_eviction_lab.simulation.object_file import ObjectReading, named
from taint_eviction_lab.simulation.stage import WATCHES, ReplayStage
from taint_eviction_lab.simulation.timeline import TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import server_time, virtual_now

_WRITTEN = "taint-eviction-lab/written"


class Action:
    """What happens at a second of the scenario."""

    keyword: ClassVar[str] = ""
    # Whether a value is that of the first field, rather than a mapping of all fields.
    is_plain: ClassVar[Callable[[Any], bool]] = staticmethod(lambda value: False)
    # Whether nothing, or an empty mapping, means all defaults.
    may_be_empty: ClassVar[bool] = False

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read the value of the keyword; None if a problem leaves nothing to perform."""
        make = cast(Callable[..., Self], cls)
        if cls.may_be_empty and at.value in (None, {}):
            return make()
        if cls.is_plain(at.value):
            return make(first_key(cls).read(reading, at, cls.keyword))
        return read_mapping(make, reading, at, cls.keyword)

    async def perform(self, stage: ReplayStage) -> None:
        """Let it happen; raise ``Impossible``, or ``StatusError``, if that is impossible now."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """An action at a second of the scenario; ``line`` is its line in the file, ``text`` its words for the timeline."""

    at: float
    action: Action
    line: int
    text: str

    async def perform(self, stage: ReplayStage) -> None:
        """Perform the action; raise ``Impossible`` if that is impossible now."""
        stage.timeline.add(TimelineEntry(virtual_now(), What.STEP, self.text))
        try:
            await self.action.perform(stage)
        except StatusError as refusal:
            raise Impossible(refusal.message) from refusal


ActionT = TypeVar("ActionT", bound=type[Action])

ACTIONS: dict[str, Callable[[ObjectReading, Marked], Action | None]] = {}
# What actions were called before 0.3.
OLD_ACTIONS = {"loseOrders": "loseControlState"}


@dataclass_transform(frozen_default=True)
def action(
    keyword: str, *, plain: Callable[[Any], bool] | None = None, may_be_empty: bool = False
) -> Callable[[ActionT], ActionT]:
    """Make a class the action of a keyword; its fields have their keys in their annotations."""

    def registered(cls: ActionT) -> ActionT:
        made = dataclass(frozen=True)(cls)
        made.keyword, made.may_be_empty = keyword, may_be_empty
        if plain is not None:
            made.is_plain = staticmethod(plain)
        ACTIONS[keyword] = made.read
        return cast(ActionT, made)

    return registered


def _any(_: Any) -> bool:
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _no_mapping(value: Any) -> bool:
    return not isinstance(value, dict)


# Keys that several actions have


def _flag(reading: ObjectReading, at: Marked, what: str) -> bool:
    return reading.boolean(at, what)


def _several(read: Callable[[ObjectReading, Marked], Any], what: str) -> Callable[[ObjectReading, Marked, str], Any]:
    return lambda reading, at, _: tuple(read(reading, item) for item in reading.items(at, what))


Node = Annotated[str, Key("node", lambda reading, at, _: reading.use_node(at))]
Pod = Annotated[NamespacedName, Key("pod", lambda reading, at, _: reading.use_pod(at))]
Taints = Annotated[tuple[JsonObject, ...], Key("taints", _several(ObjectReading.taint, "taints"))]
Manager = Annotated[str, Key("by", ObjectReading.text)]
For = Annotated[float, Key("for", ObjectReading.span)]
Replica = Annotated[int, Key("replica", lambda reading, at, _: reading.use_replica(at))]
Seconds = Annotated[float, Key("by", ObjectReading.seconds)]


# Nodes


@action("taint")
class AddTaints(Action):
    """Add taints to a node in one write; those of the same key and effect are replaced."""

    node: Node
    taints: Taints
    manager: Manager = KUBECTL

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read ``NODE KEY=VALUE:EFFECT``, or a mapping."""
        if isinstance(at.value, dict):
            return super().read(reading, at)
        words = reading.words(at, 2, "taint takes 'NODE KEY=VALUE:EFFECT', or a mapping")
        return cls(reading.use_node(words[0]), tuple(map(reading.taint, words[1:]))) if words else None

    async def perform(self, stage: ReplayStage) -> None:
        """Write the node's taints."""
        present = kube.taints_of(stage.cluster.body("nodes", self.node))
        taints = kube.add_taints(present, node_steps.dated(self.taints))
        node_steps.write_taints(stage.cluster, self.node, taints, self.manager)


@action("setTaints")
class SetTaints(Action):
    """Write a node's whole list of taints in one write."""

    node: Node
    taints: Taints
    manager: Manager = KUBECTL

    async def perform(self, stage: ReplayStage) -> None:
        """Write the node's taints."""
        node_steps.write_taints(stage.cluster, self.node, node_steps.dated(self.taints), self.manager)


def _removals(reading: ObjectReading, items: list[Marked]) -> tuple[tuple[str, str], ...] | None:
    removals = []
    for item in items:
        try:
            removals.append(short_forms.parse_taint_removal(reading.text(item, "a taint to remove")))
        except ValueError as expected:
            reading.problem(item.line, f"{item.value!r} is not {expected}")
    return tuple(removals) or None


@action("untaint")
class RemoveTaints(Action):
    """Remove taints from a node in one write: (key, effect), "" for every effect; None for all taints."""

    node: Node
    taints: Annotated[
        tuple[tuple[str, str], ...] | None,
        Key("taints", lambda reading, at, what: _removals(reading, reading.items(at, what))),
    ] = None
    manager: Manager = KUBECTL

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read ``NODE``, ``NODE KEY``, or a mapping."""
        if isinstance(at.value, dict):
            return super().read(reading, at)
        words = reading.words(at, 1, "untaint takes 'NODE' or 'NODE KEY', or a mapping")
        return cls(reading.use_node(words[0]), _removals(reading, words[1:])) if words else None

    async def perform(self, stage: ReplayStage) -> None:
        """Write the node's taints; each taint to remove must be there."""
        present = kube.taints_of(stage.cluster.body("nodes", self.node))
        taints = [] if self.taints is None else present
        for key, effect in self.taints or ():
            if (remaining := kube.remove_taints(taints, key, effect)) == taints:
                raise Impossible(f"node {self.node!r} has no taint {key!r} at this moment")
            taints = remaining
        node_steps.write_taints(stage.cluster, self.node, taints, self.manager)


@action("writeNode", plain=_text)
class WriteNode(Action):
    """Write anything but taints on a node: the time in the manager's entry of managedFields moves."""

    node: Node
    manager: Manager = KUBECTL

    async def perform(self, stage: ReplayStage) -> None:
        """Write an annotation."""
        node = stage.cluster.body("nodes", self.node)
        annotations = {**(node["metadata"].get("annotations") or {}), _WRITTEN: f"{virtual_now():g}"}
        stage.cluster.update("nodes", kube.with_metadata(node, annotations=annotations), manager=self.manager)


def _texts_or_none(reading: ObjectReading, at: Marked, what: str) -> dict[str, str | None]:
    """Read a mapping of texts, in which null removes one."""
    if not isinstance(at.value, dict):
        reading.problem(at.line, f"{what} must be a mapping, not {described(at)}")
        return {}
    return {
        name: None if text.value is None else reading.text(text, f"{what}.{name}") for name, text in at.value.items()
    }


def _labelling(reading: ObjectReading, at: Marked) -> tuple[str, str | None]:
    key, equals, value = str(at.value).partition("=")
    if not (equals or key.endswith("-")):
        reading.problem(at.line, f"{at.value!r} is neither KEY=VALUE nor KEY-")
    return (key, value) if equals else (key.removesuffix("-"), None)


@action("label")
class LabelNode(Action):
    """Write some labels of a node in one write; None removes one."""

    node: Node
    labels: Annotated[Mapping[str, str | None], Key("labels", _texts_or_none)]

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read ``NODE KEY=VALUE`` or ``NODE KEY-``, as ``kubectl label`` takes them, or a mapping."""
        if isinstance(at.value, dict):
            return super().read(reading, at)
        words = reading.words(at, 2, "label takes 'NODE KEY=VALUE' or 'NODE KEY-', or a mapping")
        return cls(reading.use_node(words[0]), dict(_labelling(reading, word) for word in words[1:])) if words else None

    async def perform(self, stage: ReplayStage) -> None:
        """Write the node."""
        node = stage.cluster.body("nodes", self.node)
        labels = {**(node["metadata"].get("labels") or {}), **self.labels}
        kept = {key: value for key, value in labels.items() if value is not None}
        stage.cluster.update("nodes", kube.with_metadata(node, labels=kept), manager="kubectl-label")


def _readiness(reading: ObjectReading, at: Marked, _: str) -> str:
    # YAML reads True and False as booleans.
    return str(at.value) if isinstance(at.value, bool) else reading.text(at, "status", ("True", "False", "Unknown"))


@action("setReady")
class SetReady(Action):
    """Write a node's condition Ready; its lastTransitionTime moves if ``status`` is another than before."""

    node: Node
    status: Annotated[str, Key("status", _readiness)]
    message: Annotated[str, Key("message", ObjectReading.text)] = ""

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read ``NODE STATUS``, or a mapping."""
        if not isinstance(at.value, str):
            return super().read(reading, at)
        words = reading.words(at, 2, "setReady takes 'NODE STATUS', or a mapping")
        return cls(reading.use_node(words[0]), _readiness(reading, words[1], "")) if words else None

    async def perform(self, stage: ReplayStage) -> None:
        """Write the condition as the kubelet does."""
        node, now = stage.cluster.body("nodes", self.node), stage.cluster.clock.timestamp()
        stage.cluster.update("nodes", kube.with_readiness(node, self.status, self.message, now), manager="kubelet")


def _one_node(reading: ObjectReading, at: Marked, _: str) -> JsonObject:
    bodies = reading.nodes(at)
    if len(bodies) > 1:
        reading.problem(at.line, "createNode takes one node")
    return bodies[0] if bodies else {}


@action("createNode", plain=_any)
class CreateNode(Action):
    """Create a node."""

    body: Annotated[JsonObject, Key("", _one_node)]

    async def perform(self, stage: ReplayStage) -> None:
        """Create it."""
        node_steps.create_node(stage.cluster, self.body)


@action("deleteNode", plain=_any)
class DeleteNode(Action):
    """Delete a node; its pods stay."""

    node: Node

    async def perform(self, stage: ReplayStage) -> None:
        """Delete it."""
        stage.cluster.delete("nodes", self.node)


@action("recreateNode", plain=_text)
class RecreateNode(Action):
    """Delete a node if it is there, and create one of the same name: another UID, these taints and no others."""

    node: Node
    taints: Taints = ()

    async def perform(self, stage: ReplayStage) -> None:
        """Delete and create it."""
        node_steps.recreate_node(stage.cluster, self.node, list(self.taints))


# Kubelets and the node lifecycle controller


@dataclass(frozen=True)
class FreezeKubelet(Action):
    """Let a node's kubelet end no pods, until it is thawed."""

    node: str
    frozen: bool

    async def perform(self, stage: ReplayStage) -> None:
        """Freeze or thaw it."""
        stage.cluster.body("nodes", self.node)
        (stage.cluster.kubelets.freeze if self.frozen else stage.cluster.kubelets.thaw)(self.node)


ACTIONS["freezeKubelet"] = lambda reading, at: FreezeKubelet(reading.use_node(at), True)
ACTIONS["thawKubelet"] = lambda reading, at: FreezeKubelet(reading.use_node(at), False)


def _lifecycle(stage: ReplayStage) -> NodeLifecycleController:
    if stage.cluster.node_lifecycle is None:
        raise Impossible("the settings of this scenario lack 'nodeLifecycle'")
    return stage.cluster.node_lifecycle


def _node_names(reading: ObjectReading, at: Marked, what: str) -> tuple[str, ...]:
    """Read a node, a range of nodes, or a list of these."""
    return tuple(
        reading.use_node(Marked(name, item.line, {}))
        for item in reading.one_or_more(at, what)
        for name in reading.expanded(item, reading.text(item, "a node"))
    )


Nodes = Annotated[tuple[str, ...], Key("", _node_names)]


@action("silence", plain=_any)
class SilenceKubelets(Action):
    """Cut kubelets off: no heartbeats, and none of their pods starts or ends."""

    nodes: Nodes

    async def perform(self, stage: ReplayStage) -> None:
        """Silence each."""
        heartbeats = _lifecycle(stage).heartbeats
        for node in self.nodes:
            heartbeats.silence(node)


@action("speak", plain=_any)
class HearKubelets(Action):
    """Let kubelets reach the API server again: they report that their nodes are ready."""

    nodes: Nodes

    async def perform(self, stage: ReplayStage) -> None:
        """Let each speak."""
        heartbeats = _lifecycle(stage).heartbeats
        for node in self.nodes:
            heartbeats.speak(node)


@action("shutDown")
class ShutDown(Action):
    """Let a node shut down gracefully: it is not ready, and silent after a time."""

    node: Node
    for_seconds: For

    async def perform(self, stage: ReplayStage) -> None:
        """Write the condition as the kubelet does, and silence it later."""
        heartbeats, cluster = _lifecycle(stage).heartbeats, stage.cluster
        node, now = cluster.body("nodes", self.node), cluster.clock.timestamp()
        cluster.update("nodes", kube.with_readiness(node, "False", SHUTTING_DOWN, now), manager="kubelet")
        later(self.for_seconds, heartbeats.silence, self.node)


@action("restartLifecycle", may_be_empty=True)
class RestartLifecycle(Action):
    """Let another kube-controller-manager take over ``after_seconds`` later; until then none runs.

    That restarts all that runs there: the node lifecycle controller and the built-in controller.
    """

    after_seconds: Annotated[float, Key("after", ObjectReading.span, needed=True)] = 0.0

    async def perform(self, stage: ReplayStage) -> None:
        """Restart what there is."""
        for replica in stage.built_ins:
            await replica.restart(self.after_seconds)
        if stage.cluster.node_lifecycle is not None or not stage.built_ins:
            _lifecycle(stage).restart(self.after_seconds)


# Pods


def _bodies(reading: ObjectReading, at: Marked, what: str) -> tuple[JsonObject, ...]:
    return tuple(body for item in reading.one_or_more(at, what) for body in reading.pods(item))


@action("create", plain=_any)
class CreatePods(Action):
    """Create pods: a pod, or a list of pods."""

    bodies: Annotated[tuple[JsonObject, ...], Key("", _bodies)]

    async def perform(self, stage: ReplayStage) -> None:
        """Create each."""
        for body in self.bodies:
            pod_steps.create_pod(stage.cluster, body)


@action("delete", plain=_text)
class DeletePod(Action):
    """Somebody else deletes a pod; ``force``: it is gone at once.
    ``built_in``: the built-in controller deletes it, after it has set its condition; ``refused``: the deletion fails.
    """

    pod: Pod
    force: Annotated[bool, Key("force", _flag)] = False
    built_in: Annotated[
        bool, Key("by", lambda reading, at, what: reading.text(at, what, ("built-in",)) == "built-in")
    ] = False
    refused: Annotated[bool, Key("refused", _flag)] = False

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a pod, or a mapping whose keys go together."""
        found = super().read(reading, at)
        if found is not None and found.force and found.built_in:
            reading.problem(at.line, "the built-in controller deletes no pod by force")
        if found is not None and found.refused and not found.built_in:
            reading.problem(at.line, "refused needs 'by: built-in'")
        return found

    async def perform(self, stage: ReplayStage) -> None:
        """Delete it."""
        if self.built_in:
            pod_steps.mark_as_built_in(stage.cluster, self.pod)
        if self.force:
            pod_steps.remove_pod(stage.cluster, self.pod)
        elif not self.refused:
            stage.cluster.delete("pods", self.pod.name, self.pod.namespace)


@action("recreate", plain=_text)
class RecreatePod(Action):
    """Create a pod of the same name: another UID, spec as before; an old one that still exists is removed at once.

    ``node`` None: on the old pod's node. ``unbound`` (``node: null``): on no node.
    """

    pod: Pod
    node: Annotated[
        str | None, Key("node", lambda reading, at, _: None if at.value is None else reading.use_node(at))
    ] = None
    unbound: bool = False

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a pod, or a mapping."""
        found = super().read(reading, at)
        names_node = isinstance(at.value, dict) and "node" in at.value
        return found and dataclasses.replace(found, unbound=names_node and found.node is None)

    async def perform(self, stage: ReplayStage) -> None:
        """Create it."""
        pod_steps.recreate_pod(stage.cluster, self.pod, self.node, self.unbound)


@action("bind")
class BindPod(Action):
    """Bind a pod to a node."""

    pod: Pod
    node: Node

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read ``POD NODE``, or a mapping."""
        if isinstance(at.value, dict):
            return super().read(reading, at)
        words = reading.words(at, 2, "bind takes 'POD NODE', or a mapping")
        return cls(reading.use_pod(words[0]), reading.use_node(words[1])) if len(words) == 2 else None

    async def perform(self, stage: ReplayStage) -> None:
        """Bind it."""
        pod_steps.bind_pod(stage.cluster, self.pod, self.node)


def _write_pod(stage: ReplayStage, key: NamespacedName, change: Callable[[JsonObject], JsonObject]) -> None:
    stage.cluster.update("pods", change(stage.cluster.body("pods", key.name, key.namespace)))


@action("tolerate")
class ChangeTolerations(Action):
    """Write a pod's whole list of tolerations."""

    pod: Pod
    tolerations: Annotated[
        tuple[JsonObject, ...], Key("tolerations", _several(ObjectReading.toleration, "tolerations"))
    ]

    async def perform(self, stage: ReplayStage) -> None:
        """Write them, with the defaults of admission."""
        tolerations = list(self.tolerations)
        _write_pod(
            stage,
            self.pod,
            lambda pod: pod_steps.with_default_tolerations(stage.cluster, kube.with_spec(pod, tolerations=tolerations)),
        )


@action("finish", plain=_text)
class FinishPod(Action):
    """Let a pod reach its final phase."""

    pod: Pod
    phase: Annotated[
        str,
        Key("phase", lambda reading, at, what: reading.text(at, what, ("Succeeded", "Failed")), needed=True),
    ] = "Succeeded"

    async def perform(self, stage: ReplayStage) -> None:
        """Write its phase; it is not ready."""
        now = stage.cluster.clock.timestamp()
        _write_pod(
            stage,
            self.pod,
            lambda pod: kube.with_condition(kube.with_status(pod, phase=self.phase), "Ready", "False", now),
        )


@action("removeFinalizers", plain=_any)
class RemoveFinalizers(Action):
    """Remove the finalizers of a pod."""

    pod: Pod

    async def perform(self, stage: ReplayStage) -> None:
        """Write the pod."""
        _write_pod(stage, self.pod, lambda pod: kube.with_metadata(pod, finalizers=None))


@action("resetCondition", plain=_any)
class ResetCondition(Action):
    """Set the DisruptionTarget condition's status to False, as the disruption controller does after two minutes."""

    pod: Pod

    async def perform(self, stage: ReplayStage) -> None:
        """Write the pod."""
        now = stage.cluster.clock.timestamp()
        _write_pod(stage, self.pod, lambda pod: kube.with_condition(pod, CONDITION_TYPE, "False", now))


@action("setHold")
class SetHold(Action):
    """Write the annotation by which a pod's owner holds its eviction; None removes it."""

    pod: Pod
    hold: Annotated[str | None, Key("hold", lambda reading, at, _: None if at.value is None else reading.hold(at))]

    async def perform(self, stage: ReplayStage) -> None:
        """Write the pod."""
        _write_pod(stage, self.pod, lambda pod: kube.with_annotations(pod, {HOLD_ANNOTATION: self.hold}))


@action("annotate")
class Annotate(Action):
    """Write some annotations of a pod; None removes one."""

    pod: Pod
    annotations: Annotated[Mapping[str, str | None], Key("annotations", _texts_or_none)]

    async def perform(self, stage: ReplayStage) -> None:
        """Write the pod."""
        _write_pod(stage, self.pod, lambda pod: kube.with_annotations(pod, self.annotations))


# The controller's processes, and clocks


@action("restart", may_be_empty=True)
class Restart(Action):
    """Kill the controller (with replicas: this one) and start it again ``after_seconds`` later.

    ``adopts``: whether it takes countdowns over from then on, None: as before. ``gracefully``: what is under way ends
    first, and the Lease is released.
    """

    after_seconds: Annotated[float, Key("after", ObjectReading.span)] = 0.0
    replica: Replica = 1
    adopts: Annotated[bool | None, Key("adopt", _flag)] = None
    gracefully: Annotated[bool, Key("gracefully", _flag)] = False

    async def perform(self, stage: ReplayStage) -> None:
        """Restart the replica."""
        await stage.replica(self.replica).restart(self.after_seconds, self.adopts, self.gracefully)


@action("freeze")
class Freeze(Action):
    """Freeze a controller process for a time: requests already sent arrive, and answers and events wait for it."""

    for_seconds: For
    replica: Replica = 1

    async def perform(self, stage: ReplayStage) -> None:
        """Freeze the replica."""
        stage.replica(self.replica).freeze(self.for_seconds)


@action("partition")
class Partition(Action):
    """Cut one replica off from the API server for a time.

    ``late_seconds``: the connections are half open: what it sends to change something meanwhile arrives so much later,
    and is never answered; None: it never arrives.
    """

    for_seconds: For
    replica: Replica = 1
    late_seconds: Annotated[float | None, Key("late", ObjectReading.span)] = None

    async def perform(self, stage: ReplayStage) -> None:
        """Cut the replica off."""
        stage.replica(self.replica).partition(self.for_seconds, self.late_seconds)


@action("lead", plain=_any)
class Lead(Action):
    """Give the controller the lead, or take it away."""

    leading: Annotated[bool, Key("", _flag)]

    async def perform(self, stage: ReplayStage) -> None:
        """Open or close its gate."""
        stage.gate.lead(self.leading)


@action("stepHostClock", plain=_no_mapping)
class StepHostClock(Action):
    """Set the host's clock (of replicas: this one's) forward, or back."""

    seconds: Seconds
    replica: Replica = 1

    async def perform(self, stage: ReplayStage) -> None:
        """Step it."""
        stage.replica(self.replica).host.step(self.seconds)


Server = Key("server", lambda reading, at, _: reading.use_server(at))


@action("stepServerClock", plain=_no_mapping)
class StepServerClock(Action):
    """Set the clock of an API server (counted from 1; None: of all of them) forward, or back."""

    seconds: Seconds
    server: Annotated[int | None, Server] = None

    async def perform(self, stage: ReplayStage) -> None:
        """Step it."""
        stage.cluster.clocks.step(self.seconds, self.server)


@action("stopServer")
class StopServer(Action):
    """Take an API server (counted from 1) away for a time: its connections end, and it gets no new ones."""

    server: Annotated[int, Server]
    for_seconds: For

    async def perform(self, stage: ReplayStage) -> None:
        """Stop it."""
        stage.cluster.clocks.stop(self.server, self.for_seconds)


# Calls

_WRITES = frozenset(
    {CallKind.MARK, CallKind.UNMARK, CallKind.DELETE, CallKind.EVICT, CallKind.ADOPT, CallKind.GIVE_BACK}
)
_READS = frozenset(
    {
        CallKind.LIST_NODES,
        CallKind.LIST_PODS,
        CallKind.LIST_CACHED_PODS,
        CallKind.LIST_ADOPTED,
        CallKind.READ_NODE,
        CallKind.READ_POD,
    }
)
_CALLS = {
    **{call.value: frozenset({call}) for call in CallKind},
    # What these two were called before 0.3.
    "readOrders": frozenset({CallKind.READ_CONTROL_STATE}),
    "writeOrders": frozenset({CallKind.WRITE_CONTROL_STATE}),
    "all": frozenset(CallKind),
    "writes": _WRITES,
    "reads": _READS,
}
_PICKING = ("call", "pod", "node", "times", "for")
# The field of a fault, and what reads its value.
_KeyOfFault = tuple[str, Callable[[ObjectReading, Marked, str], Any]]


@dataclass(frozen=True)
class DisturbCalls(Action):
    """Let calls fail, hang, be slow, or be answered with a wrong ``Date``."""

    picked: Picked
    for_seconds: float | None
    fault: CallFault

    async def perform(self, stage: ReplayStage) -> None:
        """Add the rule."""
        until = None if self.for_seconds is None else virtual_now() + self.for_seconds
        stage.faults.add(dataclasses.replace(self.picked, until=until), self.fault)


def _calls(reading: ObjectReading, at: Marked) -> frozenset[CallKind]:
    names = [reading.text(item, "call", _CALLS) for item in reading.one_or_more(at, "call")]
    return frozenset(call for name in names for call in _CALLS.get(name, frozenset()))


def _pattern(reading: ObjectReading, fields: Mapping[str, Marked], line: int) -> str:
    if "pod" in fields and "node" in fields:
        reading.problem(line, "'pod' and 'node' do not go together: a call is about one of them")
    if "pod" in fields:
        return str(named(reading.text(fields["pod"], "pod")))
    return reading.text(fields["node"], "node") if "node" in fields else "*"


def _disturbance(keyword: str, fault: CallFault, *, needed: str = "", least: str = "", **keys: _KeyOfFault) -> None:
    """Make a keyword disturb calls: ``keys`` has the keys that change the fault, each with the field that it is.

    ``least``: the key that is needed if there is none of them.
    """

    def read(reading: ObjectReading, at: Marked) -> DisturbCalls | None:
        fields = reading.needed(at, (*_PICKING, *keys), ("call", needed) if needed else ("call",), keyword)
        if fields is None or (
            least and not keys.keys() & fields and not reading.only(fields, (least,), at.line, keyword)
        ):
            return None
        changes = {name: read_key(reading, fields[key], key) for key, (name, read_key) in keys.items() if key in fields}
        times = reading.whole_number(fields["times"], "times", 1) if "times" in fields else None
        picked = Picked(_calls(reading, fields["call"]), _pattern(reading, fields, at.line), times)
        seconds = reading.span(fields["for"], "for") if "for" in fields else None
        return DisturbCalls(picked, seconds, dataclasses.replace(fault, **changes))

    ACTIONS[keyword] = read


_TOOK_EFFECT: _KeyOfFault = "takes_effect", _flag

# Without ``status`` the connection breaks.
_disturbance(
    "refuse",
    CallFault(fails=True),
    status=("status", lambda reading, at, what: reading.whole_number(at, what, 400)),
    message=("message", ObjectReading.text),
    retryAfter=("retry_after_seconds", ObjectReading.span),
    tookEffect=_TOOK_EFFECT,
    dateAhead=("date_ahead_seconds", ObjectReading.seconds),
    by=("delay_seconds", ObjectReading.span),
)
_disturbance("hang", CallFault(hangs=True), tookEffect=_TOOK_EFFECT)
_disturbance(
    "delay",
    CallFault(),
    least="by",
    connect=("connect_seconds", ObjectReading.span),
    by=("delay_seconds", ObjectReading.span),
    back=("back_seconds", ObjectReading.span),
)
_disturbance("misdate", CallFault(), needed="by", by=("date_ahead_seconds", ObjectReading.seconds))


@action("outage")
class Outage(Action):
    """The API server does not answer for a time: calls get no answer, and no watch is open."""

    for_seconds: For

    async def perform(self, stage: ReplayStage) -> None:
        """Refuse all calls, and cut all watches."""
        away = Picked(frozenset(CallKind), until=virtual_now() + self.for_seconds)
        stage.faults.add(away, CallFault(fails=True))
        for streams in stage.streams():
            streams.cut(self.for_seconds)


# Watches: those of nodes, of pods, or all; of one replica, or (None) of all

Watched = Annotated[str, Key("watch", lambda reading, at, what: reading.text(at, what, WATCHES))]
OneOrAll = Annotated[int | None, Key("replica", lambda reading, at, _: reading.use_replica(at))]


@action("lag")
class LagWatches(Action):
    """Delay all later events by a time."""

    watch: Watched
    by_seconds: Annotated[float, Key("by", ObjectReading.span)]
    replica: OneOrAll = None

    async def perform(self, stage: ReplayStage) -> None:
        """Let each lag."""
        for streams in stage.streams(self.watch, self.replica):
            streams.lag(self.by_seconds)


@action("cut")
class CutWatches(Action):
    """End watches, and let none be opened for a time."""

    watch: Watched
    for_seconds: For = 0.0
    replica: OneOrAll = None

    async def perform(self, stage: ReplayStage) -> None:
        """Cut each."""
        for streams in stage.streams(self.watch, self.replica):
            streams.cut(self.for_seconds)


@action("lose")
class LoseEvents(Action):
    """Lose events for a time, without the watches noticing."""

    watch: Watched
    for_seconds: For
    replica: OneOrAll = None

    async def perform(self, stage: ReplayStage) -> None:
        """Let each lose them."""
        for streams in stage.streams(self.watch, self.replica):
            streams.lose(self.for_seconds)


@action("buffer")
class BufferWatches(Action):
    """Let watches open, and keep back all that they bring for a time, as some proxies do."""

    watch: Watched
    for_seconds: For
    replica: OneOrAll = None

    async def perform(self, stage: ReplayStage) -> None:
        """Let a proxy stand before each."""
        for streams in stage.streams(self.watch, self.replica):
            streams.buffer(self.for_seconds)


@action("repeat")
class RepeatEvents(Action):
    """Deliver the events of a time more than once."""

    watch: Watched
    for_seconds: For
    replica: OneOrAll = None

    async def perform(self, stage: ReplayStage) -> None:
        """Let each repeat them."""
        for streams in stage.streams(self.watch, self.replica):
            streams.repeat(self.for_seconds)


@action("relist")
class RelistWatches(Action):
    """Let open watches list again, as after a 410: events under way are lost."""

    watch: Watched
    replica: OneOrAll = None

    async def perform(self, stage: ReplayStage) -> None:
        """Let each list."""
        for streams in stage.streams(self.watch, self.replica):
            streams.relist()


# What suspends evictions: pauses and the breaker in the ConfigMap, budgets, rules


Scope = Annotated[str | None, Key("node", lambda reading, at, _: reading.use_node(at))]
Namespace = Annotated[str | None, Key("namespace", ObjectReading.text)]


def read_selector(reading: ObjectReading, at: Marked, what: str) -> str:
    """Read a selector of nodes, with one text for selectors that mean the same."""
    try:
        return selector_scope(reading.text(at, what)).name
    except ValueError as expected:
        reading.problem(at.line, f"{at.value!r} is not {expected}")
        return ""


Selector = Annotated[str | None, Key("selector", read_selector)]


def _one_scope(reading: ObjectReading, at: Marked, found: "PauseEvictions | ResumeEvictions | None") -> bool:
    if found is None or [found.selector, found.node, found.namespace].count(None) >= 2:
        return found is not None
    what = "'selector', 'node' and 'namespace' do not go together"
    reading.problem(at.line, f"{what}: {found.keyword} takes one of them")
    return False


def _scope(found: "PauseEvictions | ResumeEvictions") -> PauseScope:
    if found.selector is not None:
        return PauseScope("selector", found.selector)
    if found.node is not None:
        return PauseScope("node", found.node)
    return EVERYTHING if found.namespace is None else PauseScope("namespace", found.namespace)


@action("pause")
class PauseEvictions(Action):
    """Pause the evictions of a node, of the nodes that a selector matches, or of a namespace; else all evictions.

    ``seconds``: the pause ends by itself after this time; None: it ends when somebody resumes.
    """

    node: Scope = None
    namespace: Namespace = None
    selector: Selector = None
    reason: Annotated[str, Key("reason", ObjectReading.text)] = ""
    seconds: Annotated[float | None, Key("for", ObjectReading.seconds)] = None

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a mapping: ``{}`` for all evictions."""
        found = super().read(reading, at)
        return found if _one_scope(reading, at, found) else None

    async def perform(self, stage: ReplayStage) -> None:
        """Write the ConfigMap."""
        stage.control_state.pause(_scope(self), self.reason, self.seconds)


@action("resume")
class ResumeEvictions(Action):
    """Remove one pause, named as for ``pause``; ``every``: all pauses."""

    node: Scope = None
    namespace: Namespace = None
    selector: Selector = None
    every: bool = False

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a mapping as for ``pause``, or ``all`` for every pause."""
        if at.value == "all":
            return cls(every=True)
        found = super().read(reading, at)
        return found if _one_scope(reading, at, found) else None

    async def perform(self, stage: ReplayStage) -> None:
        """Write the ConfigMap."""
        stage.control_state.resume(None if self.every else _scope(self))


@action("resetBreaker", may_be_empty=True)
class ResetBreaker(Action):
    """Close the circuit breaker, as a person whose clock is ahead of the API server's by this much."""

    ahead_seconds: Annotated[float, Key("ahead", ObjectReading.seconds, needed=True)] = 0.0

    async def perform(self, stage: ReplayStage) -> None:
        """Write the ConfigMap."""
        stage.control_state.reset(server_time(virtual_now()) + self.ahead_seconds, "a human")


@action("loseControlState", may_be_empty=True)
class LoseControlState(Action):
    """Somebody deletes the ConfigMap with pauses and the breaker's latch."""

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read nothing."""
        if at.value not in (None, {}):
            reading.problem(at.line, f"loseControlState takes nothing, not {described(at)}")
        return cls()

    async def perform(self, stage: ReplayStage) -> None:
        """Delete the ConfigMap."""
        stage.control_state.lose()


@action("scribble")
class Scribble(Action):
    """Somebody writes a key of that ConfigMap by hand; the key may be unknown, or its value malformed."""

    key: Annotated[str, Key("key", ObjectReading.text)]
    value: Annotated[str, Key("value", ObjectReading.text)]

    async def perform(self, stage: ReplayStage) -> None:
        """Write the ConfigMap."""
        stage.control_state.scribble(self.key, self.value)


@action("handBack")
class HandBack(Action):
    """Order that nothing is adopted, as the command ``hand-back`` does first; ``undo``: allow adoption again."""

    undo: bool

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read nothing, or ``undo``."""
        if at.value not in (None, "undo"):
            reading.problem(at.line, f"handBack takes nothing, or undo, not {described(at)}")
        return cls(at.value == "undo")

    async def perform(self, stage: ReplayStage) -> None:
        """Write the ConfigMap."""
        stage.control_state.hand_back(self.undo)


Budget = Annotated[JsonObject, Key("", lambda reading, at, _: reading.budget(at))]


@action("createBudget", plain=_any)
class CreateBudget(Action):
    """Create a PodDisruptionBudget."""

    body: Budget

    async def perform(self, stage: ReplayStage) -> None:
        """Create it without a status."""
        create_budget(stage.cluster, self.body)


@action("changeBudget", plain=_any)
class ChangeBudget(Action):
    """Write the whole spec of a PodDisruptionBudget."""

    body: Budget

    async def perform(self, stage: ReplayStage) -> None:
        """Write it."""
        metadata = self.body["metadata"]
        budget = stage.cluster.body(BUDGETS, metadata["name"], metadata["namespace"])
        stage.cluster.update(BUDGETS, {**budget, "spec": self.body["spec"]})


@action("deleteBudget", plain=_any)
class DeleteBudget(Action):
    """Delete a PodDisruptionBudget."""

    budget: Annotated[NamespacedName, Key("", lambda reading, at, _: reading.use_budget(at))]

    async def perform(self, stage: ReplayStage) -> None:
        """Delete it."""
        stage.cluster.delete(BUDGETS, self.budget.name, self.budget.namespace)


def read_rules(reading: ObjectReading, at: Marked, _: str = "") -> tuple[PolicyRule, ...]:
    """Read the rules of a policy, as they stand in the configuration file (``files.policy_file``)."""
    policy = PolicyReading(reading.file)
    rules = policy.rules(at)
    reading.problems += policy.problems
    return rules


@action("changePolicy", plain=_any)
class ChangePolicy(Action):
    """Apply other rules for evictions to every replica."""

    rules: Annotated[tuple[PolicyRule, ...], Key("", read_rules)]

    async def perform(self, stage: ReplayStage) -> None:
        """Apply them."""
        for replica in stage.replicas:
            replica.change_rules(self.rules)
