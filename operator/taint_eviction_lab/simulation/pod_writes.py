"""The API server's side of the controller's writes to pods: each changes the pod at one instant, and the timeline.

The requests are production's own; the rules are the fake API server's. ``calls`` carries calls and answers.
"""

import orjson

from fake_apiserver.budgets import matching_budgets
from fake_apiserver.deletion import DeleteOptions, delete
from fake_apiserver.eviction import evict
from fake_apiserver.patching import json_patch
from fake_apiserver.records import StoredObject
from fake_apiserver.registry import WriteOptions
from fake_apiserver.resources import RESOURCES
from fake_apiserver.status import StatusError
from fake_apiserver.strategic import strategic_merge_patch
from taint_eviction.core.objects import MARK_SECONDS, NamespacedName, Pod, PodRef
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION, JsonPatch
from taint_eviction.kube.answers import (
    Outcome,
    failure_reason,
    is_certain,
    may_pass,
    outcome_of,
    read_refusal,
    refusal_text,
    retry_after_seconds,
)
from taint_eviction.kube.api_calls import FIELD_MANAGER
from taint_eviction.kube.condition_patches import mark_patch, unmark_patch
from taint_eviction.kube.evictions import block_of, eviction_body
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.cluster import SimulatedCluster
from taint_eviction_lab.simulation.timeline import BY_EVICTION, Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import virtual_now

_PODS = RESOURCES["pods"]


class PodWrites:
    """Carries out writes; raises ``CallFailed`` if the API server refuses.

    ``manager`` is the writer's name in managedFields, ``by`` an addition to the timeline's texts.
    """

    def __init__(
        self, cluster: SimulatedCluster, timeline: Timeline, manager: str = FIELD_MANAGER, by: str = ""
    ) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._options = WriteOptions(manager, subresource="status")
        self._changing = WriteOptions(manager)
        self._by = by

    def pod_of(self, ref: PodRef) -> JsonObject | None:
        """Return the pod; None if there is none of this name, or it has another UID."""
        body = self._cluster.pod(ref.key)
        return body if body is not None and body["metadata"]["uid"] == ref.uid else None

    def get(self, key: NamespacedName) -> JsonObject:
        """Return the pod that has this name; raise ``StatusError`` (404) if there is none."""
        return self._cluster.recorder.body(self._cluster.record("pods", key.name, key.namespace))

    def change(self, key: NamespacedName, patch: JsonPatch) -> JsonObject:
        """Change the pod by a JSON patch that adopts its countdown, or gives it back; raise ``StatusError``."""
        record = self._cluster.record("pods", key.name, key.namespace)
        before = self._cluster.recorder.body(record)
        changed = self._cluster.registry.patch(record, lambda pod: json_patch(pod, patch), self._changing)
        after = self._cluster.recorder.body(changed)
        was_noted, is_noted = (
            kube.part_of(kube.part_of(pod, "metadata"), "annotations").get(NOTE_ANNOTATION) for pod in (before, after)
        )
        ref = PodRef(key, after["metadata"]["uid"])
        written = [each["value"] for each in patch if each["path"].endswith("/tolerationSeconds")]
        if MARK_SECONDS in written:
            self._note(What.ADOPTED, ref, f"seconds {_seconds_of(after)}, not {_seconds_of(before)}")
        elif written:
            self._note(What.GIVEN_BACK, ref, f"seconds {_seconds_of(after)}")
        elif was_noted != is_noted:
            self._note(What.NOTED, ref, str(is_noted))
        return after

    def mark(self, ref: PodRef, since_epoch: float | None) -> JsonObject | None:
        """Set the condition; ``since_epoch`` None leaves its time as it is. None if the pod is gone."""
        return self._patch_status(ref, mark_patch(ref, since_epoch))

    def unmark(self, pod: Pod, since_epoch: float) -> JsonObject | None:
        """Set the condition's status to False on exactly this version of ``pod``. None if the pod is gone."""
        return self._patch_status(pod.ref, unmark_patch(pod.ref, pod.resource_version or 0, since_epoch))

    def _patch_status(self, ref: PodRef, patch: JsonObject) -> JsonObject | None:
        try:
            record = self._cluster.record("pods", ref.key.name, ref.key.namespace)
            before = self._condition_of(record)
            written = self._cluster.registry.patch(record, lambda pod: strategic_merge_patch(pod, patch), self._options)
        except StatusError as error:
            _raise_unless_gone(error, ref)
            return None
        self._note_condition(ref, before, self._condition_of(written))
        return self._cluster.recorder.body(written)

    def delete(self, ref: PodRef, how: str = "") -> bool:
        """Begin the pod's deletion; ``how`` is added to the timeline. False if the pod is gone."""
        body = self.pod_of(ref)
        if body is not None:
            self._note_deletion(ref, body, how)
        try:
            record = self._cluster.record("pods", ref.key.name, ref.key.namespace)
            delete(self._cluster.registry, record, DeleteOptions(uid=ref.uid))
        except StatusError as error:
            return self._missed(error, ref, how)
        return True

    def delete_by_name(self, key: NamespacedName) -> bool:
        """Begin the deletion of the pod that has this name. False if there is none."""
        body = self._cluster.pod(key)
        return self.delete(PodRef(key, "" if body is None else body["metadata"]["uid"]))

    def evict(self, ref: PodRef) -> bool:
        """Mark the pod and begin its deletion if its budgets allow it. False if the pod is gone."""
        body = self.pod_of(ref)
        try:
            record = self._cluster.record("pods", ref.key.name, ref.key.namespace)
            before = self._condition_of(record)
            evict(self._cluster.registry, record, eviction_body(ref), {})
        except StatusError as error:
            return self._missed(error, ref, BY_EVICTION)
        self._note_condition(ref, before, "True")
        if body is not None:
            self._note_deletion(ref, body, BY_EVICTION)
        return True

    def _condition_of(self, record: StoredObject) -> str | None:
        return kube.condition_status(self._cluster.recorder.body(record))

    def _note_condition(self, ref: PodRef, before: str | None, after: str | None) -> None:
        if before != after and after is not None:
            self._note(What.MARKED if after == "True" else What.UNMARKED, ref)

    def _note_deletion(self, ref: PodRef, body: JsonObject, how: str) -> None:
        if kube.is_terminating(body):
            self._note(What.DELETED_AGAIN, ref, f"it is terminating already{how}")
        else:
            self._note(What.EVICTED, ref, f"from {kube.node_name_of(body) or ''}{how}")

    def _missed(self, error: StatusError, ref: PodRef, how: str) -> bool:
        """Note that a pod is gone and return False; raise any other refusal."""
        try:
            outcome = _raise_unless_gone(error, ref)
        except CallFailed as failure:
            if failure.block is not None:
                record = self._cluster.record("pods", ref.key.name, ref.key.namespace)
                names = ", ".join(budget.name for budget in matching_budgets(self._cluster.registry, record))
                self._note(What.BLOCKED, ref, f"by {names}: {failure}")
            raise
        self._note(What.DELETE_MISSED, ref, f"{outcome.value}{how}")
        return False

    def _note(self, what: What, ref: PodRef, why: str = "") -> None:
        why = f"{why}{self._by}".removeprefix(", ")
        self._timeline.add(TimelineEntry(virtual_now(), what, str(ref), ref.uid, why))


def _raise_unless_gone(error: StatusError, ref: PodRef) -> Outcome:
    """Return the outcome of a refusal which says that the pod is gone; raise any other refusal."""
    refusal = read_refusal(orjson.dumps(error.body()))
    outcome = outcome_of(error.code, refusal, "pods", ref.key.name)
    if outcome in (Outcome.ABSENT, Outcome.ANOTHER_UID):
        return outcome
    raise failure_of(error) from error


def failure_of(error: StatusError) -> CallFailed:
    """Return a refusal as the failure that callers receive."""
    refusal = read_refusal(orjson.dumps(error.body()))
    return CallFailed(
        refusal_text(error.code, refusal),
        reason=failure_reason(error.code),
        retry_after_seconds=retry_after_seconds({}, refusal),
        block=block_of(error.code, refusal),
        denied=refusal.denied,
        evacuates=refusal.evacuates,
        certain=is_certain(error.code),
        may_pass=may_pass(error.code),
    )


def _seconds_of(pod: JsonObject) -> str:
    """List the seconds of the pod's tolerations, for people."""
    return ", ".join(map(kube.seconds_text, kube.toleration_seconds(pod)))
