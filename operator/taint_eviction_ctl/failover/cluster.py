"""Reads what may hold pods that are Terminating, with the rights of the current user; changes nothing.
What may not or cannot be read is named in ``unchecked``, and the rest is still read. Every read is bounded:
by the timeout of a call, in pages, and in number.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction_ctl.failover.findings import FailoverCase, pending_by_owner, stuck
from taint_eviction_ctl.failover.objects import (
    AttachmentObject,
    ClaimObject,
    NodeLease,
    NodeObject,
    PodObject,
    read_attachment_object,
    read_claim_object,
    read_node_lease,
    read_node_object,
    read_pod_object,
)
from taint_eviction_ctl.failover.wording import not_all, not_allowed

_LEASE_NAMESPACE = "kube-node-lease"
_LEASES, _STORAGE = "coordination.k8s.io/v1", "storage.k8s.io/v1"
_READS_AT_ONCE = 10

# How many objects of each kind are read at most; the answer says what is left out.
MAX_PODS = 5_000
_MAX_NODES = 10_000
_MAX_ATTACHMENTS = 10_000
MAX_CLAIMS = 500
# How many nodes that are not Ready have their pods listed one node after the other.
MAX_DEAD_NODES = 100

ReadT = TypeVar("ReadT")
KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class Terminating:
    """How many pods are Terminating on each node that is not Ready; nodes without one are left out.

    ``out_of_service``: those of them that have this taint.
    """

    by_node: Mapping[str, int]
    unchecked: tuple[str, ...]
    out_of_service: tuple[str, ...] = ()


@dataclass
class FailoverReader:
    """Reads objects for one answer; ``now`` returns the API server's time as seconds since the epoch.

    ``where`` names the kubeconfig that is used; ``unchecked`` collects what could not be read, one sentence each.
    """

    calls: ApiCalls
    now: Callable[[], float]
    where: str
    unchecked: list[str] = field(default_factory=list)
    # The nodes with the taint out-of-service, once all pods that are stuck were read.
    out_of_service: list[str] = field(default_factory=list)

    # One pod

    async def read_pod(self, key: NamespacedName) -> PodObject | None:
        """Read a pod; None if there is none. Raise ``CallFailed`` if that is not known."""
        body = await self._get(ApiRequest("get", "pods", key.namespace, key.name))
        return None if body is None else read_pod_object(body)

    async def read_case(self, pod: PodObject) -> FailoverCase:
        """Read what may hold a pod that is Terminating."""
        nodes, leases, (claims, attachments), siblings = await asyncio.gather(
            self._nodes([pod.node] if pod.node else []),
            self._leases([pod.node] if pod.node else []),
            self._volumes([pod]),
            self._siblings(pod),
        )
        return self._case(pod, nodes, leases, claims, attachments, pending_by_owner(siblings))

    async def _siblings(self, pod: PodObject) -> list[PodObject]:
        """List the pods among which a replacement may be: only if the owner creates one, and under another name."""
        if pod.owner is None or pod.owner.kind in ("StatefulSet", "DaemonSet"):
            return []
        query = {"labelSelector": f"pod-template-hash={pod.template_hash}"} if pod.template_hash else {}
        return await self._list("Pods", ApiRequest("list", "pods", pod.namespace, query=query), read_pod_object)

    # All pods

    async def read_stuck(self, namespace: str) -> list[FailoverCase]:
        """Find the pods of a namespace ("": of all) that are stuck; raise ``CallFailed`` if pods cannot be listed."""
        nodes = await self._list("Nodes", ApiRequest("list", "nodes"), read_node_object, _MAX_NODES)
        known = None if self.unchecked else {node.name: node for node in nodes}
        self.out_of_service = [node.name for node in nodes if node.out_of_service]
        # Pods on nodes that are not Ready come first, however many pods there are.
        dead = [node.name for node in nodes if not node.is_ready][:MAX_DEAD_NODES]
        on_dead = await _each(dead, lambda name: self._pods(namespace, f"spec.nodeName={name}", None))
        pods = {pod.uid: pod for found in on_dead.values() for pod in found}
        pods |= {pod.uid: pod for pod in await self._pods(namespace, "spec.nodeName!=", MAX_PODS)}
        terminating = [pod for pod in pods.values() if pod.deletion_epoch is not None]
        leases = await self._leases(sorted({pod.node for pod in terminating if pod.node}))
        found = [self._case(pod, known, leases) for pod in terminating]
        return await self._completed([case for case in found if stuck(case)], list(pods.values()), known, leases)

    async def _completed(
        self,
        cases: Sequence[FailoverCase],
        pods: Sequence[PodObject],
        nodes: Mapping[str, NodeObject] | None,
        leases: Mapping[str, NodeLease],
    ) -> list[FailoverCase]:
        """Add further explanations; only for pods that are stuck, which justify these reads."""
        claims, attachments = await self._volumes([case.pod for case in cases])
        # Pods without a node were not in the lists before.
        pods = [*pods, *(await self._unbound(cases))]
        pending = pending_by_owner(pods)
        return [self._case(case.pod, nodes, leases, claims, attachments, pending) for case in cases]

    async def _unbound(self, cases: Sequence[FailoverCase]) -> list[PodObject]:
        if not any(case.pod.owner is not None for case in cases):
            return []
        namespaces = {case.pod.namespace for case in cases}
        return await self._pods(namespaces.pop() if len(namespaces) == 1 else "", "spec.nodeName=", MAX_PODS)

    async def _pods(self, namespace: str, selector: str, max_pods: int | None) -> list[PodObject]:
        call = ApiRequest("list", "pods", namespace, query={"fieldSelector": selector})
        return await self._read_list("Pods", call, read_pod_object, max_pods)

    async def count_terminating(self, namespace: str) -> Terminating:
        """Count the pods that are Terminating on nodes that are not Ready; raise ``CallFailed`` if that fails."""
        nodes = await self._read_list("Nodes", ApiRequest("list", "nodes"), read_node_object, _MAX_NODES)
        dead = [node.name for node in nodes if not node.is_ready]
        if len(dead) > MAX_DEAD_NODES:
            self._say(not_all("Nodes that are not Ready", MAX_DEAD_NODES))
        listed = await _each(
            dead[:MAX_DEAD_NODES], lambda name: self._pods(namespace, f"spec.nodeName={name}", MAX_PODS)
        )
        counts = {name: sum(pod.deletion_epoch is not None for pod in pods) for name, pods in listed.items()}
        by_node = {name: count for name, count in counts.items() if count}
        # The controller names those that are Ready.
        out = [node.name for node in nodes if node.out_of_service and not node.is_ready and node.name not in by_node]
        return Terminating(by_node, tuple(self.unchecked), tuple(out))

    # What holds them

    def _case(
        self,
        pod: PodObject,
        nodes: Mapping[str, NodeObject] | None,
        leases: Mapping[str, NodeLease],
        claims: Mapping[tuple[str, str], ClaimObject] | None = None,
        attachments: tuple[AttachmentObject, ...] = (),
        pending: Mapping[tuple[str, str], tuple[PodObject, ...]] | None = None,
    ) -> FailoverCase:
        found = (claims or {}).get
        own = [claim for name in pod.claims if (claim := found((pod.namespace, name))) is not None]
        return FailoverCase(
            pod,
            self.now(),
            (nodes or {}).get(pod.node),
            nodes is not None,
            leases.get(pod.node),
            tuple(own),
            attachments,
            () if pod.owner is None else (pending or {}).get((pod.namespace, pod.owner.uid), ()),
        )

    async def _nodes(self, names: Sequence[str]) -> Mapping[str, NodeObject] | None:
        """Read nodes; those that do not exist are left out. None: they cannot be read."""
        found: dict[str, NodeObject] = {}
        for name in names:
            try:
                body = await self._get(ApiRequest("get", "nodes", name=name))
            except CallFailed as error:
                self._note("Nodes", "get", error)
                return None
            if body is not None:
                found[name] = read_node_object(body)
        return found

    async def _leases(self, nodes: Sequence[str]) -> Mapping[str, NodeLease]:
        """Read the Leases of nodes, as far as there are any and they can be read."""

        async def read(name: str) -> NodeLease | None:
            call = ApiRequest("get", "leases", _LEASE_NAMESPACE, name, group=_LEASES)
            body = await self._tried(f"Leases in {_LEASE_NAMESPACE}", call)
            return None if body is None else read_node_lease(body)

        found = await _each(nodes, read)
        return {name: lease for name, lease in found.items() if lease is not None}

    async def _volumes(
        self, pods: Sequence[PodObject]
    ) -> tuple[Mapping[tuple[str, str], ClaimObject], tuple[AttachmentObject, ...]]:
        """Read the claims of pods, namespaces in turns, and where their volumes are attached."""
        turns = Counter[str]()
        wanted: dict[tuple[str, str], int] = {}
        for key in dict.fromkeys((pod.namespace, name) for pod in pods for name in pod.claims):
            wanted[key] = turns[key[0]] = turns[key[0]] + 1
        if len(wanted) > MAX_CLAIMS:
            self._say(not_all("PersistentVolumeClaims", MAX_CLAIMS))

        async def read(key: tuple[str, str]) -> ClaimObject | None:
            body = await self._tried("PersistentVolumeClaims", ApiRequest("get", "persistentvolumeclaims", *key))
            return None if body is None else read_claim_object(body)

        first = sorted(wanted, key=wanted.__getitem__)[:MAX_CLAIMS]
        claims = {key: claim for key, claim in (await _each(first, read)).items() if claim is not None}
        volumes = {claim.volume for claim in claims.values()}
        if not any(volumes):
            return claims, ()
        call = ApiRequest("list", "volumeattachments", group=_STORAGE)
        listed = await self._list("VolumeAttachments", call, read_attachment_object, _MAX_ATTACHMENTS)
        return claims, tuple(each for each in listed if each.volume in volumes)

    # Reads

    async def _list(
        self, what: str, call: ApiRequest, read: Callable[[JsonObject], ReadT], max_items: int = MAX_PODS
    ) -> list[ReadT]:
        """List objects; none if that is not possible."""
        try:
            return await self._read_list(what, call, read, max_items)
        except CallFailed as error:
            self._note(what, "list", error)
            return []

    async def _read_list(
        self, what: str, call: ApiRequest, read: Callable[[JsonObject], ReadT], max_items: int | None
    ) -> list[ReadT]:
        found: list[ReadT] = []
        async with aclosing(list_items(self.calls, call, read)) as items:
            async for item in items:
                if len(found) == max_items:
                    self._say(not_all(what, max_items))
                    break
                found.append(item)
        return found

    async def _tried(self, what: str, call: ApiRequest) -> JsonObject | None:
        """Read an object; None if there is none, or if that is not possible."""
        try:
            return await self._get(call)
        except CallFailed as error:
            self._note(what, call.verb, error)
            return None

    async def _get(self, call: ApiRequest) -> JsonObject | None:
        answer = await self.calls.make(call)
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        if not isinstance(answer.body, dict):
            raise CallFailed(f"the API server's answer is no object ({call.resource})")
        return answer.body

    def _note(self, what: str, verb: str, error: CallFailed) -> None:
        forbidden = error.reason is FailureReason.FORBIDDEN
        self._say(not_allowed(what, verb) if forbidden else f"{what}: {error}")

    def _say(self, sentence: str) -> None:
        if sentence not in self.unchecked:
            self.unchecked.append(sentence)


async def _each(keys: Iterable[KeyT], read: Callable[[KeyT], Awaitable[ReadT]]) -> dict[KeyT, ReadT]:
    """Read something for each key, a few at a time."""
    turn = asyncio.Semaphore(_READS_AT_ONCE)

    async def one(key: KeyT) -> tuple[KeyT, ReadT]:
        async with turn:
            return key, await read(key)

    return dict(await asyncio.gather(*(one(key) for key in keys)))
