"""A cluster for a test: it creates nodes, pods and taints over HTTP, and records what happens to the pods.

It works with the embedded API server and with any real one, with or without kube-scheduler and the node lifecycle
controller. All objects that it creates have its own prefix and are removed at the end. No kubelet is needed: a pod
counts as evicted when it is terminating or gone.
"""

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tests.stage.waiting import PATIENCE_SECONDS

from taint_eviction.files.kubernetes_times import format_micro_time, format_rfc3339
from taint_eviction.login.credentials import Connection
from taint_eviction.runtime.clock import read_monotonic, read_wall

Json = dict[str, Any]
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}

# No scheduler has this name, so only the test binds pods.
NO_SCHEDULER = "taint-eviction-test"
# Where the node lifecycle controller looks for the heartbeats of each node, and how often a heartbeat is sent. Even the
# shortest grace period of a cluster is as long as several heartbeats.
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HEARTBEAT_SECONDS = 1.0


@dataclass(slots=True)
class WatchedPod:
    """One pod (one UID): the instants at which it was first seen, seen terminating, and gone; None for not yet."""

    name: str
    uid: str
    seen_at: float
    body: Json
    terminating_at: float | None = None
    gone_at: float | None = None

    @property
    def evicted_at(self) -> float | None:
        """Return when the deletion was first seen."""
        return self.terminating_at if self.terminating_at is not None else self.gone_at

    def condition(self, kind: str) -> Json | None:
        """Return a condition as last seen."""
        conditions = self.body.get("status", {}).get("conditions") or []
        return next((condition for condition in conditions if condition["type"] == kind), None)


@dataclass
class ClusterUnderTest:
    """The test's own namespace and nodes."""

    connection: Connection
    prefix: str = field(default_factory=lambda: f"taint-eviction-test-{secrets.token_hex(3)}")
    pods: dict[str, WatchedPod] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)

    async def __aenter__(self) -> "ClusterUnderTest":
        self._session: aiohttp.ClientSession = self.connection.make_session()
        self._changed = asyncio.Condition()
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.prefix}})
        # A real cluster's controller creates the account a moment later; until then admission refuses pods.
        account = {"metadata": {"name": "default"}}
        await self.call("POST", f"/api/v1/namespaces/{self.prefix}/serviceaccounts", account, fine=(404, 409))
        watching = asyncio.Event()
        self._watch = asyncio.create_task(self._follow(watching))
        self._heartbeat = asyncio.create_task(self._keep_alive())
        await watching.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._watch, self._heartbeat):
            task.cancel()
        await asyncio.wait((self._watch, self._heartbeat))
        assert self._heartbeat.cancelled(), self._heartbeat.exception()
        listed = await self.call("GET", f"/api/v1/namespaces/{self.prefix}/pods")
        for pod in listed["items"]:
            await self.remove_pod(pod["metadata"]["name"])
        for name in self._nodes:
            await self.call("DELETE", f"/api/v1/nodes/{name}", fine=(404,))
            await self.call("DELETE", f"{LEASES}/{name}", fine=(404,))
        await self.call("DELETE", f"/api/v1/namespaces/{self.prefix}", fine=(404,))
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, fine: Sequence[int] = (), **options: Any) -> Any:
        """Make a call and return its decoded answer, or None if its status is ``fine``; fail on other refusals."""
        async with self._session.request(method, self.connection.url + path, json=body, **options) as answer:
            text = await answer.text()
            if answer.status in fine:
                return None
            assert answer.ok, f"{method} {path}: {answer.status} {text[:500]}"
            return json.loads(text)

    async def eventually(self, path: str, condition: Callable[[Any], object], seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait until the object at a path (None: no object) meets a condition, and return the object."""
        async with asyncio.timeout(seconds):
            while not condition(found := await self.call("GET", path, fine=(404,))):  # noqa: ASYNC110 - asked again
                await asyncio.sleep(0.1)
        return found

    # Nodes

    def node_name(self, short: str) -> str:
        """Return the full name of one of this test's nodes."""
        return f"{self.prefix}-{short}"

    async def create_node(
        self, short: str, taints: Sequence[Json] = (), *, ready: bool = True, labels: Mapping[str, str] | None = None
    ) -> Json:
        """Create a node with a condition Ready that is True or False.

        The node lifecycle controller taints a node without that condition within seconds. It accepts the condition
        while the node's Lease is renewed, which happens until the end of the test.
        """
        name = self.node_name(short)
        await self.call("POST", LEASES, {"metadata": {"name": name}, "spec": self._sign_of_life(name)})
        self._nodes.add(name)
        status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        metadata = {"name": name, "labels": dict(labels or {})}
        node = {"metadata": metadata, "spec": {"taints": list(taints)}, "status": status}
        created: Json = await self.call("POST", "/api/v1/nodes", node)
        return created

    @staticmethod
    def _sign_of_life(name: str) -> Json:
        return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format_micro_time(read_wall())}

    async def _keep_alive(self) -> None:
        """Renew the Leases of all nodes, as their kubelets would."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            for name in sorted(self._nodes):
                await self.call("PATCH", f"{LEASES}/{name}", {"spec": self._sign_of_life(name)}, headers=MERGE)

    async def set_ready(self, short: str, status: str) -> None:
        """Set the condition Ready of a node, as its kubelet or the node lifecycle controller does."""
        since = format_rfc3339(read_wall())
        condition = {"type": "Ready", "status": status, "lastTransitionTime": since, "lastHeartbeatTime": since}
        path = f"/api/v1/nodes/{self.node_name(short)}/status"
        await self.call("PATCH", path, {"status": {"conditions": [condition]}}, headers=STRATEGIC)

    async def delete_node(self, short: str) -> None:
        """Delete a node; its pods stay."""
        await self.call("DELETE", f"/api/v1/nodes/{self.node_name(short)}")

    async def taint(self, short: str, key: str, value: str = "", time_added: str | None = None) -> None:
        """Add a NoExecute taint to a node."""
        taint = {"key": key, "effect": "NoExecute"} | ({"value": value} if value else {})
        if time_added is not None:
            taint["timeAdded"] = time_added
        await self._replace_taints(short, key, [taint])

    async def untaint(self, short: str, key: str) -> None:
        """Remove all taints with this key from a node."""
        await self._replace_taints(short, key, [])

    async def _replace_taints(self, short: str, key: str, taints: list[Json]) -> None:
        """Replace the taints with this key by these; others may write the same list meanwhile."""
        path, written = f"/api/v1/nodes/{self.node_name(short)}", None
        while written is None:
            node = await self.call("GET", path)
            kept = [taint for taint in node["spec"].get("taints") or [] if taint["key"] != key]
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": {"taints": [*kept, *taints]}}
            written = await self.call("PATCH", path, patch, fine=(409,), headers=MERGE)

    # Pods

    async def create_pod(
        self, name: str, node: str | None, tolerations: Sequence[Json] = (), **metadata: Any
    ) -> WatchedPod:
        """Create a pod, bound to ``node`` unless that is None, and return its record."""
        spec: Json = {
            "containers": [{"name": "main", "image": "pause"}],
            "tolerations": list(tolerations),
            "terminationGracePeriodSeconds": 1,
            "schedulerName": NO_SCHEDULER,
        }
        if node is not None:
            spec["nodeName"] = self.node_name(node)
        body = {"metadata": {"name": name, **metadata}, "spec": spec}
        created = await self.call("POST", f"/api/v1/namespaces/{self.prefix}/pods", body)
        uid = created["metadata"]["uid"]
        await self.until(lambda: uid in self.pods)
        return self.pods[uid]

    async def bind_pod(self, name: str, node: str) -> None:
        """Bind a pod as a scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node_name(node)}
        path = f"/api/v1/namespaces/{self.prefix}/pods/{name}/binding"
        await self.call("POST", path, {"metadata": {"name": name}, "target": target})

    async def patch_pod(self, name: str, patch: Mapping[str, Any]) -> None:
        """Apply a strategic merge patch to a pod."""
        await self.call("PATCH", f"/api/v1/namespaces/{self.prefix}/pods/{name}", patch, headers=STRATEGIC)

    async def make_ready(self, name: str) -> None:
        """Set a pod to Running and Ready, as a kubelet does."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        path = f"/api/v1/namespaces/{self.prefix}/pods/{name}/status"
        await self.call("PATCH", path, {"status": status}, headers=STRATEGIC)

    async def remove_pod(self, name: str) -> None:
        """Remove a pod at once, with or without finalizers."""
        path = f"/api/v1/namespaces/{self.prefix}/pods/{name}"
        await self.call("PATCH", path, {"metadata": {"finalizers": None}}, fine=(404,), headers=MERGE)
        await self.call("DELETE", f"{path}?gracePeriodSeconds=0", fine=(404,))

    async def told(self, history: WatchedPod, seconds: float = PATIENCE_SECONDS) -> list[Json]:
        """Wait for an event about this pod's UID and return all; events have no order relative to the pods' watch."""
        path = f"/api/v1/namespaces/{self.prefix}/events?fieldSelector=involvedObject.uid={history.uid}"
        found: list[Json] = (await self.eventually(path, lambda listed: listed["items"], seconds))["items"]
        return found

    # Budgets and the control state

    async def create_budget(self, name: str, app: str, min_available: int) -> str:
        """Create a PodDisruptionBudget for the pods with this label ``app``, and return its path."""
        spec = {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}}
        budgets = f"/apis/policy/v1/namespaces/{self.prefix}/poddisruptionbudgets"
        await self.call("POST", budgets, {"metadata": {"name": name}, "spec": spec})
        return f"{budgets}/{name}"

    async def relax_budget(self, path: str, min_available: int) -> None:
        """Let the budget allow more evictions."""
        await self.call("PATCH", path, {"spec": {"minAvailable": min_available}}, headers=MERGE)

    @property
    def state_path(self) -> str:
        """The path of the ConfigMap with the control state for controllers of this test."""
        return f"/api/v1/namespaces/{self.prefix}/configmaps/{self.prefix}"

    # Waiting

    async def until(self, condition: Any, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until ``condition()`` holds; check it after each change of a pod of this test."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def evicted(self, history: WatchedPod, seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until a pod has been evicted, and return the time."""
        await self.until(lambda: history.evicted_at is not None, seconds)
        assert history.evicted_at is not None
        return history.evicted_at

    async def stays(self, history: WatchedPod, seconds: float) -> None:
        """Fail if a pod is evicted within this time."""
        try:
            await self.evicted(history, seconds)
        except TimeoutError:
            return
        raise AssertionError(f"{history.name} was evicted")

    async def _follow(self, watching: asyncio.Event) -> None:
        """Record all changes; an API server ends a watch after half an hour or more."""
        path = f"/api/v1/namespaces/{self.prefix}/pods"
        unlimited = aiohttp.ClientTimeout(total=None, sock_read=None)
        while True:
            listed = await self.call("GET", path)
            await self._note_all(listed["items"])
            version = listed["metadata"]["resourceVersion"]
            url = f"{self.connection.url}{path}?watch=true&resourceVersion={version}"
            async with self._session.get(url, timeout=unlimited) as stream:
                watching.set()
                async for line in stream.content:
                    await self._note(json.loads(line))

    async def _note_all(self, bodies: Sequence[Json]) -> None:
        """Record the pods that exist; all others are gone."""
        for body in bodies:
            await self._note({"type": "ADDED", "object": body})
        present, now = {body["metadata"]["uid"] for body in bodies}, read_monotonic()
        async with self._changed:
            for uid, history in self.pods.items():
                if uid not in present and history.gone_at is None:
                    history.gone_at = now

    async def _note(self, event: Json) -> None:
        now, body = read_monotonic(), event["object"]
        metadata = body["metadata"]
        if event["type"] == "BOOKMARK":
            return
        async with self._changed:
            history = self.pods.setdefault(metadata["uid"], WatchedPod(metadata["name"], metadata["uid"], now, body))
            history.body = body
            if metadata.get("deletionTimestamp") and history.terminating_at is None:
                history.terminating_at = now
            if event["type"] == "DELETED":
                history.gone_at = now
            self._changed.notify_all()
