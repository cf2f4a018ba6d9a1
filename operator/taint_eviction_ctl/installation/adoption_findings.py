"""What ``doctor`` finds of countdowns that were taken over: marks, notes, orders, and what version 0.2.0 left."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from taint_eviction.core.adoption import unexplained_marks
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import JsonObject, many
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.control_state_data import read_control_state
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.kubernetes_objects import MalformedObject, read_pod
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.installation.replicas import CONTROLLER

_ADMISSION = "admissionregistration.k8s.io"
# What version 0.2.0 wrote on pods, as label and annotation, and its policy at creation.
_OLD_KEY = "taint-eviction/adopted"
_OLD_POLICY = "adopt-at-admission"
_MUTATING = tuple(f"{_ADMISSION}/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_MAX_NAMES = 3

# (fine, what was found, advice)
Finding = tuple[bool, str, str]
ReadList = Callable[[str, ApiRequest], Awaitable[list[Any] | None]]
Read = Callable[[str, ApiRequest], Awaitable[Any]]


class _Pods(NamedTuple):
    """The names of the pods that have a note, a mark of unknown origin, or what 0.2.0 wrote."""

    noted: list[str]
    unexplained: list[str]
    old: list[str]


class AdoptionFindings:
    """Looks at every pod, the state ConfigMap and the admission policies; ``lease`` names the ConfigMap, too."""

    def __init__(self, calls: ApiCalls, lease: NamespacedName, listed: ReadList, read: Read) -> None:
        self._calls = calls
        self._lease = lease
        self._list = listed
        self._read = read

    async def find(self, adopts: bool, leads: bool | None, elsewhere: str) -> list[Finding]:
        """Return what is found; nothing if nothing is or was taken over.

        ``leads`` None: that is unknown. ``elsewhere``: the Leases of other installations that adopt.
        """
        try:
            pods = await self._pods()
        except CallFailed:
            if adopts:
                raise
            return []
        config_map = await self._read(f"ConfigMap {self._lease}", ApiRequest("get", "configmaps", *self._lease))
        state = ControlState() if config_map is None else read_control_state(config_map)[0]
        found = [each async for each in self._of_old_version(pods)]
        if adopts:
            found += [each async for each in self._while_adopting(pods, state, leads)]
        elif pods.noted and elsewhere:
            found.append((True, f"{_taken_over(pods)} by the installation of Lease {elsewhere}", ""))
        elif pods.noted:
            advice = (
                "look at the leader's log, start it with --adopt (components/adopt), or run taint-eviction hand-back"
            )
            if state.adopter and leads:
                advice = f"the leader gives them back; if that takes longer than two minutes, {advice}"
            elif leads is False:
                advice = "nobody evicts them: run taint-eviction hand-back, or install it again with components/adopt"
            if config_map is not None and not state.adopter:
                # The entry stays there until all are given back.
                unrecorded = f"ConfigMap {self._lease} does not say that any was taken over"
                advice = f"{unrecorded}: a tenant may have written the annotation and its seconds; if not, {advice}"
            found.append(
                (False, f"the countdowns of {_named(pods.noted)} are taken over, and no replica adopts", advice)
            )
        if pods.unexplained and (adopts or state.adopter):
            verb = "tolerates" if len(pods.unexplained) == 1 else "tolerate"
            said = f"{_named(pods.unexplained)} {verb} a taint for 9223372036854775807 s, and nobody noted why"
            advice = "a tenant may have written that; if not, set their tolerationSeconds as their owner has them"
            found.append((False, said, advice))
        return found or ([(True, _taken_over(pods), "")] if adopts else [])

    async def _pods(self) -> _Pods:
        pods = _Pods([], [], [])
        async for found in list_items(self._calls, ApiRequest("list", "pods"), _look_at):
            for names, of_pod in zip(pods, found, strict=True):
                names.extend(of_pod)
        return pods

    async def _of_old_version(self, pods: _Pods) -> AsyncIterator[Finding]:
        advice = "run hand-back of version 0.2.0 and remove its policy; this version reads neither"
        if pods.old:
            yield False, f"version 0.2.0 has adopted {_named(pods.old)}", advice
        for group in _MUTATING:
            request = ApiRequest("list", "mutatingadmissionpolicies", group=group)
            policies = await self._list("MutatingAdmissionPolicies", request) or ()
            names = [str((each.get("metadata") or {}).get("name")) for each in policies if isinstance(each, dict)]
            if old := next((name for name in names if CONTROLLER in name or _OLD_POLICY in name), ""):
                yield False, f"MutatingAdmissionPolicy {old} of version 0.2.0 is there: new pods stay for ever", advice
                return

    async def _while_adopting(self, pods: _Pods, state: ControlState, leads: bool | None) -> AsyncIterator[Finding]:
        if state.no_adoption is not None:
            advice = "to take countdowns over again: taint-eviction hand-back --undo, and apply the manifests"
            yield False, "hand-back was ordered: no countdown is taken over", advice
        if pods.noted and leads is False:
            advice = "start a replica (the leader's log says more), or give them back: taint-eviction hand-back"
            yield False, "no replica leads, so pods whose countdowns are taken over are not evicted", advice


def _look_at(body: JsonObject) -> _Pods | None:
    """Return the name of a pod, where it belongs; None: nowhere."""
    found, metadata = _Pods([], [], []), body.get("metadata") or {}
    name = f"{metadata.get('namespace')}/{metadata.get('name')}"
    if any(_OLD_KEY in (metadata.get(field) or ()) for field in ("labels", "annotations")):
        found.old.append(name)
    with suppress(MalformedObject):
        pod = read_pod(body).value
        if NOTE_ANNOTATION in (metadata.get("annotations") or ()):
            found.noted.append(name)
        elif unexplained_marks(pod):
            found.unexplained.append(name)
    return found if any(found) else None


def _taken_over(pods: _Pods) -> str:
    return f"the countdowns of {many(len(pods.noted), 'pod')} are taken over"


def _named(names: list[str]) -> str:
    return f"{many(len(names), 'pod')} ({', '.join(names[:_MAX_NAMES])}{', …' if len(names) > _MAX_NAMES else ''})"
