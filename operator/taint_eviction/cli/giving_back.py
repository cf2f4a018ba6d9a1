"""Gives adopted pods their seconds back, with the rights of whoever runs the command.

An annotation that is no note is told, and only taken off: the tolerations stay as they are.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from taint_eviction.adapters.adoption_patches import ADOPTED, read_note, return_patch
from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import FIELD_MANAGER, ApiCalls, ApiRequest
from taint_eviction.adapters.json_fields import Unreadable, as_object
from taint_eviction.adapters.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction.cli.visible import complain
from taint_eviction.core.adoption import TolerationKey, builtin_seconds, seconds_to_return
from taint_eviction.core.objects import NO_EXECUTE, Taint
from taint_eviction.planning.cluster import list_items
from taint_eviction.runtime.ports import CallFailed

_AT_ONCE = 10
_CONFLICT = 409
# Each conflict means that somebody else has changed the pod meanwhile.
_MAX_TRIES = 8


class GivenBack(Enum):
    """What became of an adopted pod."""

    DONE = "it has its seconds back"
    GONE = "it is gone, or somebody else gave it back"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A pod with the label, as it was read.

    ``window_seconds``: after how many seconds the built-in controller evicts it once it has its seconds back, None:
    never, as things are.
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
    bodies = [body async for body in list_items(calls, labelled)]
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


async def give_back_all(calls: ApiCalls, pods: Sequence[Adopted]) -> tuple[Counter[GivenBack], dict[str, str]]:
    """Give pods back, some at a time; return how many became what, and for each that failed why."""
    room, done, failed = asyncio.Semaphore(_AT_ONCE), Counter[GivenBack](), dict[str, str]()

    async def give_back(pod: Adopted) -> None:
        async with room:
            try:
                done[await _give_back(calls, pod)] += 1
            except (CallFailed, MalformedObject) as error:
                failed[pod.name] = str(error)

    await asyncio.gather(*map(give_back, pods))
    return done, failed


async def _give_back(calls: ApiCalls, pod: Adopted) -> GivenBack:
    body: Mapping[str, Any] = pod.body
    metadata = body["metadata"]
    name = (metadata["namespace"], metadata["name"])
    for attempt in range(_MAX_TRIES):
        answer = await calls.make(
            ApiRequest("patch", "pods", *name, {"fieldManager": FIELD_MANAGER}, _patch(body, pod.name, attempt == 0))
        )
        if answer.outcome is Outcome.DONE:
            return GivenBack.DONE
        read = (await calls.make(ApiRequest("get", "pods", *name))).need(Outcome.DONE, Outcome.ABSENT)
        if read.outcome is Outcome.ABSENT or not _is_still_adopted(read.body, metadata["uid"]):
            return GivenBack.GONE
        same = read.body["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]
        if same and answer.status != _CONFLICT:
            # No test of the patch failed: the change itself is refused.
            answer.need(Outcome.DONE)
        body = read.body
    raise CallFailed(f"it was changed by others meanwhile, {_MAX_TRIES} times in a row")


def _is_still_adopted(body: Mapping[str, Any], uid: str) -> bool:
    metadata = body["metadata"]
    return metadata["uid"] == uid and any(ADOPTED in (metadata.get(field) or ()) for field in ("labels", "annotations"))


def _patch(body: Mapping[str, Any], name: str, tell: bool) -> list[dict[str, Any]]:
    tolerations = read_pod(body).value.spec_tolerations
    seconds: dict[int, int] = {}
    try:
        noted = _noted(body)
        seconds = seconds_to_return(tolerations, noted)
    except Unreadable as error:
        if tell:
            complain(f"{name}: its annotation {ADOPTED} is taken off, and its tolerations stay as they are: {error}")
    else:
        if tell and len(seconds) < len(noted):
            lost = len(noted) - len(seconds)
            complain(f"{name}: {lost} of the noted seconds stay away, since no such toleration is without seconds now")
    return return_patch(body["metadata"], seconds)


def _noted(body: Mapping[str, Any]) -> Mapping[TolerationKey, int]:
    return read_note(as_object(body["metadata"].get("annotations"), "annotations").get(ADOPTED)).seconds
