"""Gives adopted pods their ``tolerationSeconds`` back, with the rights of the current user.
An invalid annotation is reported and removed; the tolerations of its pod stay as they are.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from taint_eviction.adapters.adoption_patches import ADOPTED, JsonPatch, return_patch
from taint_eviction.adapters.adoptions import change_pod, is_noted, noted_on
from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.adapters.item_lists import list_items
from taint_eviction.adapters.json_fields import Unreadable
from taint_eviction.adapters.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction.cli.visible import complain
from taint_eviction.core.adoption import builtin_seconds, seconds_to_return
from taint_eviction.core.objects import NO_EXECUTE, NamespacedName, Taint
from taint_eviction.runtime.ports import CallFailed

_AT_ONCE = 10


class GivingBack(Enum):
    """The result for an adopted pod."""

    DONE = "it has its seconds back"
    GONE = "it is gone, or somebody else gave it back"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A pod with the label, as it was read.

    ``window_seconds``: after how many seconds the built-in controller evicts the pod once it has its seconds back,
    None: never, with the present taints.
    """

    body: Mapping[str, Any]
    window_seconds: float | None

    @property
    def name(self) -> str:
        """Namespace and name."""
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"


async def list_adopted(calls: ApiCalls) -> list[Adopted]:
    """List all pods with the label, and what the taints of their nodes mean for them."""
    labelled = ApiRequest("list", "pods", query={"labelSelector": ADOPTED})
    # A list that begins anew, because its next page has expired, has some pods twice.
    bodies = list({body["metadata"]["uid"]: body async for body in list_items(calls, labelled)}.values())
    taints: dict[str, list[Taint]] = {}
    if bodies:
        async for body in list_items(calls, ApiRequest("list", "nodes")):
            with contextlib.suppress(MalformedObject):
                node = read_node(body).value
                taints[node.name] = [taint for taint in node.taints if taint.effect == NO_EXECUTE]
    return [Adopted(body, _window_seconds(body, taints)) for body in bodies]


def _window_seconds(body: Mapping[str, Any], taints: Mapping[str, Sequence[Taint]]) -> float | None:
    try:
        pod = read_pod(body).value
    except MalformedObject:
        return None
    on_node = taints.get(pod.node_name or "", ())
    if pod.terminating or not on_node:
        return None
    return builtin_seconds(pod.tolerations, on_node)


async def give_back_all(calls: ApiCalls, pods: Sequence[Adopted]) -> tuple[Counter[GivingBack], dict[str, str]]:
    """Give pods back, some at a time; return the number of pods by result, and the reason for each failed pod."""
    room, done, failed = asyncio.Semaphore(_AT_ONCE), Counter[GivingBack](), dict[str, str]()

    async def give_back(pod: Adopted) -> None:
        async with room:
            try:
                done[await _give_back(calls, pod)] += 1
            except (CallFailed, MalformedObject) as error:
                failed[pod.name] = str(error)

    await asyncio.gather(*map(give_back, pods))
    return done, failed


async def _give_back(calls: ApiCalls, pod: Adopted) -> GivingBack:
    metadata, given, asked = pod.body["metadata"], False, 0

    def patch_of(body: Mapping[str, Any]) -> JsonPatch | None:
        nonlocal given, asked
        asked, given = asked + 1, is_noted(body)
        return _patch(body, pod.name, asked == 1) if given else None

    key = NamespacedName(metadata["namespace"], metadata["name"])
    changed = await change_pod(calls, key, metadata["uid"], patch_of, pod.body)
    return GivingBack.DONE if changed is not None and given else GivingBack.GONE


def _patch(body: Mapping[str, Any], name: str, tell: bool) -> JsonPatch:
    tolerations = read_pod(body).value.spec_tolerations
    seconds: dict[int, int] = {}
    try:
        noted = noted_on(body).seconds
        seconds = seconds_to_return(tolerations, noted)
    except Unreadable as error:
        if tell:
            complain(f"{name}: the annotation {ADOPTED} is removed, and the tolerations are not changed: {error}")
    else:
        if tell and len(seconds) < len(noted):
            lost = len(noted) - len(seconds)
            complain(f"{name}: {lost} of the noted seconds stay away, since no such toleration is without seconds now")
    return return_patch(body["metadata"], seconds)
