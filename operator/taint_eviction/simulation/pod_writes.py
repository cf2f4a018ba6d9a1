"""The API server's side of the controller's writes to pods: what each does, at one instant, and to the timeline.

Not here: how a call gets there, and its answer back (``api``).
"""

from taint_eviction.core.effects import Block, BlockReason
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.budgets import Refusal, SimulatedBudgets
from taint_eviction.simulation.cluster import Deletion, SimulatedCluster
from taint_eviction.simulation.kubernetes_json import JsonObject
from taint_eviction.simulation.timeline import BY_EVICTION, Entry, Timeline, What
from taint_eviction.simulation.virtual_clock import timestamp, virtual_now

# What the eviction API advises while a budget is being counted.
_COUNTING_SECONDS = 10.0


class PodWrites:
    """Carries out writes."""

    def __init__(self, cluster: SimulatedCluster, budgets: SimulatedBudgets, timeline: Timeline) -> None:
        self._cluster = cluster
        self._budgets = budgets
        self._timeline = timeline

    def pod_of(self, ref: PodRef) -> JsonObject | None:
        """Return the pod; None if there is none of this name, or it has another UID."""
        body = self._cluster.pods.get(ref.key)
        return body if body is not None and body["metadata"]["uid"] == ref.uid else None

    def mark(self, ref: PodRef, already: bool) -> JsonObject | None:
        """Set the condition; ``already`` leaves its time as it is."""
        time = None if already else timestamp(virtual_now())
        return self._write_condition(ref, kube.disruption_target("True", time))

    def unmark(self, pod: Pod) -> JsonObject | None:
        """Set the condition's status to False on exactly this version of ``pod``; raise ``CallFailed`` (409)."""
        body = self.pod_of(pod.ref)
        if body is not None and body["metadata"]["resourceVersion"] != str(pod.resource_version):
            raise CallFailed("the object has been modified: apply your changes to the latest version", status=409)
        return self._write_condition(pod.ref, kube.disruption_target("False", timestamp(virtual_now())))

    def _write_condition(self, ref: PodRef, condition: JsonObject) -> JsonObject | None:
        body = self.pod_of(ref)
        if body is None:
            return None
        if body == (written := kube.with_condition(body, condition)):
            return body
        before = kube.condition_status(body)
        self._cluster.change_pod(ref.key, lambda _: written)
        if before != condition["status"]:
            self._note(What.MARKED if condition["status"] == "True" else What.UNMARKED, ref)
        return self._cluster.pods[ref.key]

    def delete(self, ref: PodRef, how: str = "") -> bool:
        """Begin the pod's deletion; ``how`` is told besides."""
        node_name = self._cluster.last_node_of(ref.key) or ""
        match deletion := self._cluster.delete_pod(ref.key, ref.uid):
            case Deletion.ACCEPTED:
                self._note(What.EVICTED, ref, f"from {node_name}{how}")
            case Deletion.ALREADY_TERMINATING:
                self._note(What.DELETED_AGAIN, ref, f"{deletion.value}{how}")
            case Deletion.NOT_FOUND | Deletion.OTHER_UID:
                self._note(What.DELETE_MISSED, ref, f"{deletion.value}{how}")
        return deletion in (Deletion.ACCEPTED, Deletion.ALREADY_TERMINATING)

    def evict(self, ref: PodRef) -> bool:
        """Mark the pod and begin its deletion if its budgets allow it; raise ``CallFailed`` with ``block`` if not."""
        body = self.pod_of(ref)
        if body is not None:
            refusal = self._budgets.admit(body)
            if refusal is not None:
                self._note(What.BLOCKED, ref, f"by {', '.join(refusal.by)}: {refusal.why}")
                raise _failure(refusal)
            already = kube.condition_status(body) == "True"
            self._write_condition(ref, kube.eviction_target(None if already else timestamp(virtual_now())))
        return self.delete(ref, BY_EVICTION)

    def _note(self, what: What, ref: PodRef, why: str = "") -> None:
        self._timeline.add(Entry(virtual_now(), what, str(ref), ref.uid, why))


def _failure(refusal: Refusal) -> CallFailed:
    if len(refusal.by) > 1:
        return CallFailed(refusal.why, status=500, block=Block(BlockReason.SEVERAL_BUDGETS, ""))
    message = f"Cannot evict pod as it would violate the pod's disruption budget. {refusal.why}"
    reason = BlockReason.BUDGET if refusal.counted else BlockReason.BUDGET_NOT_READY
    advice = None if refusal.counted else _COUNTING_SECONDS
    return CallFailed(message, status=429, retry_after_seconds=advice, block=Block(reason, *refusal.by))
