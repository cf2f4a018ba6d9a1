"""The Lease of the leader election in ``coordination.k8s.io/v1``, written as client-go's electors write it.

This module does not elect (``runtime.leadership``).
"""

from collections.abc import Mapping
from typing import Any

from taint_eviction.files.kubernetes_times import format_micro_time, parse_rfc3339
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed, FailureReason

_GROUP = "coordination.k8s.io/v1"
# The API has 32 bits for leaseTransitions.
_MAX_TRANSITIONS = 2**31 - 1
# The API bounds no holderIdentity. One of this controller is the name of a host, with 37 characters more.
_MAX_HOLDER = 300
# How many due pods the breaker of the next holder need not count.
_IN_VAIN = "taint-eviction/tried-in-vain"
_MAX_DIGITS = 9


class KubernetesLease:
    """One Lease object; a ``LeaseStore``. Fields that others set, such as labels, are kept."""

    def __init__(self, calls: ApiCalls, namespace: str, name: str) -> None:
        self._calls = calls
        self._namespace = namespace
        self._name = name
        self._latest: Mapping[str, Any] = {}

    async def read(self) -> LeaseRecord | None:
        """Read the Lease; None if it does not exist."""
        answer = await self._calls.make(ApiRequest("get", "leases", self._namespace, self._name, group=_GROUP))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        return self._read(answer.body)

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the Lease, or replace exactly the version that was read."""
        verb, name = ("update", self._name) if record.version else ("create", "")
        # The API server replaces only the latest version; for any other one it answers with a conflict.
        latest = self._latest if record.version else {}
        body = _body(self._namespace, self._name, record, latest)
        answer = await self._calls.make(ApiRequest(verb, "leases", self._namespace, name, body=body, group=_GROUP))
        if answer.outcome is Outcome.ABSENT:
            raise CallFailed("the lease was deleted meanwhile", reason=FailureReason.CONFLICT)
        return self._read(answer.need(Outcome.DONE).body)

    def _read(self, body: Any) -> LeaseRecord:
        try:
            record = _record(body)
        except (AttributeError, KeyError, TypeError) as error:
            raise CallFailed("the API server's answer is not a Lease") from error
        self._latest = body
        return record


def _record(body: Any) -> LeaseRecord:
    """Read a Lease. A field that is absent or unreadable counts as never set: the Lease then only expires sooner."""
    spec, version = body.get("spec") or {}, body["metadata"]["resourceVersion"]
    if not isinstance(version, str):
        raise TypeError("its resourceVersion is not a string")
    holder, duration, transitions = (
        spec.get(field) for field in ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")
    )
    return LeaseRecord(
        holder=holder[:_MAX_HOLDER] if isinstance(holder, str) else "",
        duration_seconds=duration if isinstance(duration, int) else 0,
        acquired_epoch=parse_rfc3339(spec.get("acquireTime")) or 0.0,
        renewed_epoch=parse_rfc3339(spec.get("renewTime")) or 0.0,
        transitions=transitions if isinstance(transitions, int) and abs(transitions) < _MAX_TRANSITIONS else 0,
        version=version,
        tried_in_vain=_number((body["metadata"].get("annotations") or {}).get(_IN_VAIN)),
    )


def _number(text: object) -> int:
    if not isinstance(text, str) or len(text) > _MAX_DIGITS or not (text.isascii() and text.isdecimal()):
        return 0
    return int(text)


def _body(namespace: str, name: str, record: LeaseRecord, latest: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**(latest.get("metadata") or {}), "name": name, "namespace": namespace}
    annotations = {key: text for key, text in (metadata.pop("annotations", None) or {}).items() if key != _IN_VAIN}
    if record.tried_in_vain:
        annotations[_IN_VAIN] = str(record.tried_in_vain)
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": _GROUP,
        "kind": "Lease",
        "metadata": metadata | ({"resourceVersion": record.version} if record.version else {}),
        "spec": {
            **(latest.get("spec") or {}),
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_seconds,
            "acquireTime": format_micro_time(record.acquired_epoch),
            "renewTime": format_micro_time(record.renewed_epoch),
            "leaseTransitions": record.transitions,
        },
    }
