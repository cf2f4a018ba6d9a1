"""What a scenario's steps do to pods, as writes by the fake API server's rules.

A step raises ``StatusError`` if the API server refuses it, ``Impossible`` if it cannot be performed. Steps may do more
than a real API server allows: they may remove tolerations.
"""

from collections.abc import Mapping
from typing import Any

from fake_apiserver.defaults import add_default_tolerations
from fake_apiserver.eviction import bind
from fake_apiserver.kubelet import fresh_pod
from fake_apiserver.patching import json_patch
from taint_eviction.core.adoption import CountdownChange, noted_places
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION, change_patch, read_note
from taint_eviction.kube.condition_patches import mark_patch
from taint_eviction.kube.json_fields import Unreadable
from taint_eviction.kube.taints_and_tolerations import read_tolerations
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.cluster import Impossible, SimulatedCluster, later
from taint_eviction_lab.simulation.virtual_clock import virtual_now

_DEFAULT_GRACE_SECONDS = 30
_BUILT_IN = "kube-controller-manager"
# Phases of pods that do not run.
_NEVER_READY = ("Pending", "Succeeded", "Failed")


def create_pod(cluster: SimulatedCluster, body: Mapping[str, Any]) -> None:
    """Create a pod with the defaults of an API server; one with a nodeName is bound in the same write."""
    pod = with_default_tolerations(cluster, body)
    if isinstance(pod.get("spec", {}), Mapping) and "terminationGracePeriodSeconds" not in kube.part_of(pod, "spec"):
        pod = kube.with_spec(pod, terminationGracePeriodSeconds=_DEFAULT_GRACE_SECONDS)
    bound, now = kube.node_name_of(pod) is not None, cluster.clock.timestamp()
    if bound and not kube.tells_when_bound(pod):
        pod = kube.with_condition(pod, "PodScheduled", "True", pod["metadata"].get("creationTimestamp", now))
    if bound and _ready_in_seconds(cluster, pod) == 0.0:
        pod = kube.with_condition(pod, "Ready", "True", now)
    record = cluster.put("pods", pod)
    _await_readiness(cluster, NamespacedName(record.namespace, record.name))


def recreate_pod(cluster: SimulatedCluster, key: NamespacedName, node: str | None, unbound: bool) -> None:
    """Create a pod of the same name with another UID. An old one that still exists is removed at once.

    The new pod has the old one's finalizers, too. It is not adopted even if the old one was: templates of pods have no
    notes.
    """
    last = cluster.recorder.latest("pods", *key)
    if last is None:
        raise Impossible(f"there has never been a pod {str(key)!r}")
    pod = fresh_pod(kube.sound(_as_created(last)))
    if cluster.pod(key) is not None:
        remove_pod(cluster, key)
        pod = kube.with_metadata(pod, finalizers=last["metadata"].get("finalizers"))
    node_name = None if unbound else node or kube.node_name_of(last)
    create_pod(cluster, kube.with_spec(pod, nodeName=node_name))


def _as_created(pod: JsonObject) -> JsonObject:
    """Return the pod with the noted seconds in place of their marks, and without its note."""
    try:
        note = read_note(kube.annotations_of(pod).get(NOTE_ANNOTATION))
    except Unreadable:
        return pod
    tolerations, complaints = read_tolerations(kube.list_in(kube.part_of(pod, "spec"), "tolerations"))
    if complaints or not note:
        return pod
    return json_patch(pod, change_patch(pod, tolerations, CountdownChange(returns=noted_places(tolerations, note))))


def mark_as_built_in(cluster: SimulatedCluster, key: NamespacedName) -> None:
    """Set the condition as the built-in controller does before it deletes a pod."""
    uid = cluster.record("pods", key.name, key.namespace).uid
    patch = mark_patch(PodRef(key, uid), cluster.clock.now().timestamp())
    cluster.patch("pods", key.name, patch, key.namespace, manager=_BUILT_IN)


def remove_pod(cluster: SimulatedCluster, key: NamespacedName) -> None:
    """Remove a pod in one write, despite finalizers. A real API server marks it as terminating first."""
    cluster.store.remove(cluster.record("pods", key.name, key.namespace))


def bind_pod(cluster: SimulatedCluster, key: NamespacedName, node_name: str) -> None:
    """Bind a pod to a node."""
    record = cluster.record("pods", key.name, key.namespace)
    bind(cluster.registry, record, {"target": {"kind": "Node", "name": node_name}})
    _await_readiness(cluster, key)


def with_default_tolerations(cluster: SimulatedCluster, pod: Mapping[str, Any]) -> JsonObject:
    """Return the pod with the tolerations that admission adds."""
    spec, seconds = pod.get("spec", {}), cluster.admission.default_toleration_seconds
    tolerations = (spec.get("tolerations") or []) if isinstance(spec, Mapping) else None
    if seconds is None or not isinstance(tolerations, list) or not all(isinstance(one, dict) for one in tolerations):
        return dict(pod)
    completed = dict(spec)
    add_default_tolerations(completed, seconds)
    return {**pod, "spec": completed}


# Readiness


def _ready_in_seconds(cluster: SimulatedCluster, pod: Mapping[str, Any]) -> float | None:
    """Return how long the pod takes to become ready; None if the scenario says whether it is, or if it does not run."""
    if kube.node_name_of(pod) is None or kube.condition_status(pod, "Ready") is not None:
        return None
    if not isinstance(pod.get("status", {}), Mapping) or kube.part_of(pod, "status").get("phase") in _NEVER_READY:
        return None
    return 0.0 if virtual_now() <= 0.0 else cluster.ready_seconds


def _await_readiness(cluster: SimulatedCluster, key: NamespacedName) -> None:
    pod = cluster.pod(key)
    seconds = None if pod is None else _ready_in_seconds(cluster, pod)
    if pod is None or seconds is None:
        return
    if seconds == 0.0:
        _become_ready(cluster, key, pod["metadata"]["uid"])
    else:
        later(seconds, _become_ready, cluster, key, pod["metadata"]["uid"])


def _become_ready(cluster: SimulatedCluster, key: NamespacedName, uid: str) -> None:
    pod = cluster.pod(key)
    if pod is not None and pod["metadata"]["uid"] == uid and kube.condition_status(pod, "Ready") is None:
        cluster.update("pods", kube.with_condition(pod, "Ready", "True", cluster.clock.timestamp()), manager="kubelet")
