"""Finds the marks of all pods, and gives those with a note back, with the rights of the current user.
A note that cannot be read is reported and removed; the tolerations of its pod stay as they are.
"""

import asyncio
import contextlib
import shlex
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import orjson

from taint_eviction.cli.visible import complain
from taint_eviction.core.adoption import builtin_seconds, unexplained_marks, wanted_change
from taint_eviction.core.objects import NO_EXECUTE, Node, Pod, PodRef, Taint
from taint_eviction.core.pod_parts import PodParts
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION, JsonPatch
from taint_eviction.kube.adoptions import change_pod, patch_of
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction.runtime.clock import read_monotonic
from taint_eviction.runtime.ports import CallFailed

_PARTS = PodParts(long_notes=True)

# So many pods are given back at a time, and so many of one namespace: one whose admission webhook hangs does not keep
# the others waiting.
_AT_ONCE, _AT_ONCE_OF_NAMESPACE = 20, 10

# No more pods of a namespace are tried once calls for so many have failed after so long: each would take as long.
_MOST_LONG_FAILURES = 3
_LONG_SECONDS = 5.0
_NOT_TRIED = "it was not tried: its namespace's admission webhook seems to hang"


class GivingBack(Enum):
    """The result for a pod."""

    DONE = "it has its seconds back"
    GONE = "it is gone"
    UNCHANGED = "there was nothing to give back any more"


@dataclass(frozen=True, slots=True)
class MarkedPod:
    """A pod with a mark or a note, as it was read.

    ``noted``: there is a note, so that the pod can be given back.
    ``window_seconds``: after how many seconds the built-in controller evicts the pod once it has its seconds back,
    None: never, with the present taints.
    """

    pod: Pod
    noted: bool
    window_seconds: float | None


class MarkedPods(NamedTuple):
    """All pods with a mark or a note. ``unreadable``: what is wrong with each pod that has a note and is malformed."""

    pods: list[MarkedPod]
    unreadable: list[str]


async def list_marked(calls: ApiCalls) -> MarkedPods:
    """List all pods with a mark or a note, and what the taints of their nodes mean for them; it reads every spec."""
    found: dict[PodRef, MarkedPod] = {}
    unreadable: dict[str, None] = {}
    listed: AsyncIterator[MarkedPod | MalformedObject] = list_items(calls, ApiRequest("list", "pods"), _look_at)
    async for each in listed:
        if isinstance(each, MalformedObject):
            unreadable[str(each)] = None
        else:
            found[each.pod.ref] = each
    taints: dict[str, list[Taint]] = {}
    if found:
        async for node in list_items(calls, ApiRequest("list", "nodes"), _node):
            taints[node.name] = [taint for taint in node.taints if taint.effect == NO_EXECUTE]
    # A list that begins anew, because its next page has expired, has some pods twice.
    pods = [replace(each, window_seconds=_window_seconds(each.pod, taints)) for each in found.values()]
    return MarkedPods(pods, list(unreadable))


def _look_at(body: JsonObject) -> MarkedPod | MalformedObject | None:
    """Return a pod with a mark or a note, its window unknown; or what is wrong with a malformed one with a note."""
    try:
        pod = read_pod(body, _PARTS).value
    except MalformedObject as error:
        return error.with_traceback(None) if NOTE_ANNOTATION in str(body) else None
    noted = pod.adoption is not None
    return MarkedPod(pod, noted, None) if noted or unexplained_marks(pod) else None


def _node(body: JsonObject) -> Node | None:
    with contextlib.suppress(MalformedObject):
        return read_node(body).value
    return None


def _window_seconds(pod: Pod, taints: Mapping[str, Sequence[Taint]]) -> float | None:
    on_node = taints.get(pod.node_name or "", ())
    return None if pod.terminating or not on_node else builtin_seconds(pod.tolerations, on_node)


async def patch_line(calls: ApiCalls, marked: MarkedPod) -> str | None:
    """Read a pod again, and return the command with which kubectl gives it back; None: nothing is to be given back."""
    patches: list[JsonPatch | None] = []
    with contextlib.suppress(MalformedObject):  # It has become so since it was listed.
        await change_pod(calls, marked.pod.ref, lambda body: patches.append(_patch(body, read_pod(body, _PARTS).value)))
    if not patches or patches[0] is None:
        return None
    patch, (namespace, name) = patches[0], map(shlex.quote, marked.pod.ref.key)
    # Integers are written as they are; tools that compute with floats would round them.
    return f"kubectl patch pod -n {namespace} {name} --type=json -p {shlex.quote(orjson.dumps(patch).decode())}"


async def give_back_all(calls: ApiCalls, pods: Sequence[MarkedPod]) -> tuple[Counter[GivingBack], dict[str, str]]:
    """Give pods back, some at a time; return the number of pods by result, and the reason for each failed pod.

    Where an admission webhook seems to hang, the rest of its namespace is not tried.
    """
    room, done, failed = asyncio.Semaphore(_AT_ONCE), Counter[GivingBack](), dict[str, str]()
    rooms: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_ONCE_OF_NAMESPACE))
    long_failures: Counter[str] = Counter()

    async def give_back(marked: MarkedPod) -> None:
        namespace = marked.pod.ref.key.namespace
        async with rooms[namespace], room:
            if long_failures[namespace] >= _MOST_LONG_FAILURES:
                failed[str(marked.pod.ref)] = _NOT_TRIED
                return
            began_at = read_monotonic()
            try:
                done[await _give_back(calls, marked)] += 1
            except (CallFailed, MalformedObject) as error:
                failed[str(marked.pod.ref)] = str(error)
                long_failures[namespace] += read_monotonic() - began_at >= _LONG_SECONDS

    await asyncio.gather(*map(give_back, pods))
    return done, failed


async def _give_back(calls: ApiCalls, marked: MarkedPod) -> GivingBack:
    given, told = False, False

    def wanted(body: Mapping[str, Any]) -> JsonPatch | None:
        nonlocal given, told
        pod = read_pod(body, _PARTS).value
        patch = _patch(body, pod)
        if patch is not None and pod.adoption is not None and pod.adoption.void and not told:
            told = True
            complain(f"{pod.ref}: what its annotation {NOTE_ANNOTATION} says of no mark is removed with it")
        given = patch is not None
        return patch

    changed = await change_pod(calls, marked.pod.ref, wanted)
    if changed is None:
        return GivingBack.GONE
    return GivingBack.DONE if given else GivingBack.UNCHANGED


def _patch(body: Mapping[str, Any], pod: Pod) -> JsonPatch | None:
    change = wanted_change(pod, (), () if pod.adoption is None else pod.adoption.noted, {})
    return None if change is None else patch_of(body, pod, change)
