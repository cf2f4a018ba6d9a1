"""Finds the marks of all pods, and gives those with a note back, with the rights of the current user.
A note that cannot be read is reported and removed; the tolerations of its pod stay as they are.
"""

import asyncio
import contextlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import orjson

from taint_eviction.adapters.adoption_patches import NOTE_ANNOTATION, JsonPatch
from taint_eviction.adapters.adoptions import change_pod, patch_of
from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.adapters.item_lists import list_items
from taint_eviction.adapters.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction.cli.visible import complain
from taint_eviction.core.adoption import builtin_seconds, unexplained_marks, wanted_change
from taint_eviction.core.objects import NO_EXECUTE, Pod, PodRef, Taint
from taint_eviction.runtime.ports import CallFailed

_AT_ONCE = 10


class GivingBack(Enum):
    """The result for a pod."""

    DONE = "it has its seconds back"
    GONE = "it is gone"
    UNCHANGED = "there was nothing to give back any more"


@dataclass(frozen=True, slots=True)
class MarkedPod:
    """A pod with a mark or a note, as it was read.

    ``window_seconds``: after how many seconds the built-in controller evicts the pod once it has its seconds back,
    None: never, with the present taints.
    """

    body: Mapping[str, Any]
    pod: Pod
    window_seconds: float | None

    @property
    def noted(self) -> bool:
        """Return whether there is a note, so that the pod can be given back."""
        return self.pod.adoption is not None


class MarkedPods(NamedTuple):
    """All pods with a mark or a note. ``unreadable``: what is wrong with each pod that has a note and is malformed."""

    pods: list[MarkedPod]
    unreadable: list[str]


async def list_marked(calls: ApiCalls) -> MarkedPods:
    """List all pods with a mark or a note, and what the taints of their nodes mean for them; it reads every spec."""
    found: dict[PodRef, tuple[Mapping[str, Any], Pod]] = {}
    unreadable: dict[str, None] = {}
    async for body in list_items(calls, ApiRequest("list", "pods")):
        try:
            pod = read_pod(body).value
        except MalformedObject as error:
            if NOTE_ANNOTATION in str(body):
                unreadable[str(error)] = None
            continue
        if pod.adoption is not None or unexplained_marks(pod):
            found[pod.ref] = body, pod
    taints: dict[str, list[Taint]] = {}
    if found:
        async for body in list_items(calls, ApiRequest("list", "nodes")):
            with contextlib.suppress(MalformedObject):
                node = read_node(body).value
                taints[node.name] = [taint for taint in node.taints if taint.effect == NO_EXECUTE]
    # A list that begins anew, because its next page has expired, has some pods twice.
    pods = [MarkedPod(body, pod, _window_seconds(pod, taints)) for body, pod in found.values()]
    return MarkedPods(pods, list(unreadable))


def _window_seconds(pod: Pod, taints: Mapping[str, Sequence[Taint]]) -> float | None:
    on_node = taints.get(pod.node_name or "", ())
    return None if pod.terminating or not on_node else builtin_seconds(pod.tolerations, on_node)


def patch_line(marked: MarkedPod) -> str | None:
    """Return the command with which kubectl gives a pod back; None if there is nothing to give back."""
    patch = _patch(marked.body, marked.pod)
    if patch is None:
        return None
    namespace, name = map(shlex.quote, marked.pod.ref.key)
    # Integers are written as they are; tools that compute with floats would round them.
    return f"kubectl patch pod -n {namespace} {name} --type=json -p {shlex.quote(orjson.dumps(patch).decode())}"


async def give_back_all(calls: ApiCalls, pods: Sequence[MarkedPod]) -> tuple[Counter[GivingBack], dict[str, str]]:
    """Give pods back, some at a time; return the number of pods by result, and the reason for each failed pod."""
    room, done, failed = asyncio.Semaphore(_AT_ONCE), Counter[GivingBack](), dict[str, str]()

    async def give_back(marked: MarkedPod) -> None:
        async with room:
            try:
                done[await _give_back(calls, marked)] += 1
            except (CallFailed, MalformedObject) as error:
                failed[str(marked.pod.ref)] = str(error)

    await asyncio.gather(*map(give_back, pods))
    return done, failed


async def _give_back(calls: ApiCalls, marked: MarkedPod) -> GivingBack:
    given, told = False, False

    def wanted(body: Mapping[str, Any]) -> JsonPatch | None:
        nonlocal given, told
        pod = read_pod(body).value
        patch = _patch(body, pod)
        if patch is not None and pod.adoption is not None and pod.adoption.void and not told:
            told = True
            complain(f"{pod.ref}: what its annotation {NOTE_ANNOTATION} says of no mark is removed with it")
        given = patch is not None
        return patch

    changed = await change_pod(calls, marked.pod.ref, wanted, marked.body)
    if changed is None:
        return GivingBack.GONE
    return GivingBack.DONE if given else GivingBack.UNCHANGED


def _patch(body: Mapping[str, Any], pod: Pod) -> JsonPatch | None:
    change = wanted_change(pod, (), () if pod.adoption is None else pod.adoption.noted, {})
    return None if change is None else patch_of(body, pod, change)
