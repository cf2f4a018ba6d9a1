"""What the server fills in at creation: metadata, defaults of pods, and the admission plugin for tolerations.

Only defaults that clients of a taint controller can see are set; the rest of a pod stays as it was given.
Reference: kubernetes/pkg/apis/core/v1/defaults.go and plugin/pkg/admission/defaulttolerationseconds.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .resources import ResourceType
from .status import JsonObject

_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_POD_DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("restartPolicy", "Always"),
    ("terminationGracePeriodSeconds", 30),
    ("dnsPolicy", "ClusterFirst"),
    ("schedulerName", "default-scheduler"),
    ("enableServiceLinks", True),
)
_NODE_INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip
_CONDITION_TIMES = {
    "pods": ("lastProbeTime", "lastTransitionTime"),
    "nodes": ("lastHeartbeatTime", "lastTransitionTime"),
}
_EVENT_DEFAULTS = {"eventTime": None, "reportingComponent": "", "reportingInstance": ""}
_BUDGET_STATUS = dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)
_CONTAINER_DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("terminationMessagePath", "/dev/termination-log"),
    ("terminationMessagePolicy", "File"),
)


@dataclass(slots=True)
class Admission:
    """Switches of the server's admission and feature gates; the defaults are a real server's."""

    default_toleration_seconds: int | None = 300
    """Seconds of the not-ready and unreachable tolerations given to pods that lack them; None switches it off."""
    taint_nodes_by_condition: bool = False
    """Give new nodes the not-ready:NoSchedule taint. Real servers do; here nothing would remove it."""
    toleration_comparison_operators: bool = False
    """Accept the toleration operators Gt and Lt (KEP-5471, alpha)."""


class Identities:
    """The source of uids and generated names: one seed gives one sequence; None is different each time."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def uid(self, namespace: str, name: str) -> str:
        """A uid for a new object of this name; other identities may derive it from that."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def suffix(self) -> str:
        return "".join(self._random.choices(_NAME_ALPHABET, k=5))


def complete_metadata(obj: JsonObject, resource: ResourceType, namespace: str, uid: str, timestamp: str) -> None:
    """Replaces metadata with one that a new object has; what only the server may say is not taken from the client."""
    given = obj.get("metadata") or {}
    metadata: JsonObject = {"name": given["name"]}
    if "generateName" in given:
        metadata["generateName"] = given["generateName"]
    if resource.namespaced:
        metadata["namespace"] = namespace
    metadata |= {"uid": uid, "resourceVersion": "0"}
    if resource.has_generation:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = timestamp
    for name in ("labels", "annotations", "ownerReferences", "finalizers"):
        if given.get(name):
            metadata[name] = given[name]
    obj["metadata"] = metadata


def complete_pod(pod: JsonObject) -> None:
    """Defaults of the spec."""
    spec = pod["spec"]
    for name, value in _POD_DEFAULTS:
        spec.setdefault(name, value)
    spec.setdefault("securityContext", {})
    for container in spec.get("containers") or []:
        for name, value in _CONTAINER_DEFAULTS:
            container.setdefault(name, value)
        container.setdefault("resources", {})
        tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
        container.setdefault("imagePullPolicy", "Always" if tag in {"", "latest"} else "IfNotPresent")


def admit_pod(pod: JsonObject, admission: Admission, *, is_new: bool) -> None:
    """What admission plugins add: the tolerations at creations and at updates, the rest at creations."""
    spec = pod["spec"]
    if is_new:
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    if admission.default_toleration_seconds is not None:
        add_default_tolerations(spec, admission.default_toleration_seconds)


def add_default_tolerations(spec: JsonObject, seconds: int) -> None:
    """Adds the two tolerations of DefaultTolerationSeconds where the pod has none that tolerates the taint."""
    tolerations = list(spec.get("tolerations") or [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not _tolerates(tolerations, key):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    spec["tolerations"] = tolerations


def _tolerates(tolerations: Sequence[JsonObject], key: str) -> bool:
    """As the plugin asks: key and effect only, operator and value do not count."""
    return any(
        (not t.get("key") or t["key"] == key) and (not t.get("effect") or t["effect"] == "NoExecute")
        for t in tolerations
    )


def complete_node(node: JsonObject) -> None:
    """Adds what every node's status has."""
    status = node.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = dict.fromkeys(_NODE_INFO, "") | (status.get("nodeInfo") or {})
    node.setdefault("spec", {})


def taint_new_node(node: JsonObject) -> None:
    """Adds the taint of the admission plugin TaintNodesByCondition."""
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    taints = node["spec"].get("taints") or []
    if taint not in taints:
        node["spec"]["taints"] = [*taints, taint]


def complete_conditions(obj: JsonObject, resource: ResourceType) -> None:
    """Times that a condition lacks are null, not absent, in pods and nodes."""
    times = _CONDITION_TIMES.get(resource.plural, ())
    for condition in (obj.get("status") or {}).get("conditions") or [] if times else []:
        for name in times:
            condition.setdefault(name, None)


def complete_event(event: JsonObject) -> None:
    """Fields of the newer events API, which an event of core/v1 always shows."""
    for name, value in _EVENT_DEFAULTS.items():
        event.setdefault(name, value)


def complete_namespace(namespace: JsonObject) -> None:
    """Every namespace is labelled with its name."""
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    namespace["status"] = {"phase": "Active"}


def new_budget_status() -> JsonObject:
    """Before the disruption controller has seen the budget."""
    return dict(_BUDGET_STATUS)
