"""The life of an installation in a real cluster that has neither scheduler nor kubelets: both are played.

kubectl applies and deletes the manifests; kube-controller-manager creates the pods. Each pod that is bound gets a
process of the real command, with the arguments, the environment and the account of the pod. A relay on an address of
this machine stands for the pods' network: it passes a request on to the process of the pod that the API server asks.
"""

import asyncio
import contextlib
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp import web
from tests.e2e.cluster import MERGE, STRATEGIC, ClusterUnderTest, Json
from tests.e2e.test_admission import write_own_kubeconfig
from tests.manifests.test_kinds import MANIFESTS
from tests.stage.processes import CommandResult, RunningController, invoked, start
from tests.stage.waiting import PATIENCE_SECONDS, free_port

KUBE_SYSTEM, CONTROLLER = "kube-system", "taint-eviction-controller"
OVERLAYS = {"dry-run": KUBE_SYSTEM, "guarded": KUBE_SYSTEM, "managed": "taint-eviction"}
MANAGERS = f"/api/v1/namespaces/{KUBE_SYSTEM}/pods"
MANAGER = "kube-controller-manager-played"
OFF = "--controllers=*,-taint-eviction-controller"
POLICY = MANIFESTS / "overlays" / "guarded" / "policy.yaml"
# A pod's process is this program; its name on the network is that of the pod.
_PROGRAM = "import socket; socket.gethostname = lambda: {name!r}; from taint_eviction.cli import main; main()"
_UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints.",
}
_TURN_SECONDS = 0.2


@dataclass
class PlayedLife:
    """A cluster in which the controller may be installed, and what plays its nodes.

    ``places``: the names of nodes on which pods find a place, one pod of an installation each.
    """

    cluster: ClusterUnderTest
    config: Path
    directory: Path
    address: str
    places: list[str] = field(default_factory=list)
    _running: dict[str, RunningController] = field(default_factory=dict)
    _killed: set[str] = field(default_factory=set)

    async def __aenter__(self) -> "PlayedLife":
        self._relay = web.ServerRunner(web.Server(self._pass_on, access_log=None))
        await self._relay.setup()
        await web.TCPSite(self._relay, self.address, 0).start()
        self.port = int(self._relay.addresses[0][1])
        self._playing = asyncio.create_task(self._play())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for overlay in OVERLAYS:
            await self.remove(overlay)
        await self.cluster.call("DELETE", f"{MANAGERS}/{MANAGER}?gracePeriodSeconds=0", fine=(404,))
        with contextlib.suppress(TimeoutError, AssertionError):
            await self.ready(0)
        self._playing.cancel()
        await asyncio.wait((self._playing,))
        for running in self._running.values():
            await running.kill()
        await self._relay.cleanup()
        assert self._playing.cancelled(), self._playing.exception()

    # What people do

    async def apply(self, overlay: str) -> None:
        """Install an overlay, as the pages say."""
        await self.kubectl("apply", "--server-side", "--kustomize", str(MANIFESTS / "overlays" / overlay))

    async def remove(self, overlay: str) -> None:
        """Remove an overlay, as the pages say."""
        where = ("--kustomize", str(MANIFESTS / "overlays" / overlay))
        await self.kubectl("delete", "--ignore-not-found", "--wait=false", *where)
        for lease in (CONTROLLER, f"{CONTROLLER}-dry-run"):
            await self.cluster.call("DELETE", leases(OVERLAYS[overlay], lease), fine=(404,))

    async def kubectl(self, *words: str) -> None:
        """Run kubectl as an administrator."""
        command = ("kubectl", "--kubeconfig", str(self.config), *words)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    async def helm(self, *words: str) -> None:
        """Run Helm as an administrator, for the release ``evictions`` in the namespace of overlays/managed."""
        where = ("--namespace", OVERLAYS["managed"], "--kubeconfig", str(self.config))
        command = ("helm", words[0], "evictions", *words[1:], *where)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    async def order(self, *words: str) -> str:
        """Run a command of ours as an administrator, which must succeed; return what it prints."""
        said = await invoked(*words, "--kubeconfig", str(self.config))
        assert said.code == 0, said.complaints
        return said.out

    async def doctor(self, *words: str) -> CommandResult:
        """Ask the doctor, with an administrator's rights."""
        return await invoked("doctor", "--kubeconfig", str(self.config), "--port", str(self.port), *words)

    async def switch(self, *flags: str) -> None:
        """Let the pod of kube-controller-manager say these flags."""
        await self.cluster.call("DELETE", f"{MANAGERS}/{MANAGER}?gracePeriodSeconds=0", fine=(404,))
        container = {"name": "manager", "image": "manager", "command": ["kube-controller-manager", *flags]}
        spec = {"nodeName": self.places[0], "containers": [container], "tolerations": [{"operator": "Exists"}]}
        metadata = {"name": MANAGER, "labels": {"component": "kube-controller-manager"}}
        await self.cluster.call("POST", MANAGERS, {"metadata": metadata, "spec": spec})

    # What is seen

    async def pods(self) -> list[Json]:
        """Return the pods of the controller, wherever they are."""
        query = f"labelSelector=app.kubernetes.io%2Fname%3D{CONTROLLER}"
        found: list[Json] = (await self.cluster.call("GET", f"/api/v1/pods?{query}"))["items"]
        return found

    async def ready(self, number: int) -> None:
        """Wait until so many pods are ready, and none is about to end."""

        async def holds() -> bool:
            pods = await self.pods()
            return sum(map(_is_ready, pods)) == number and not any(map(_leaves, pods))

        await self._until(holds)

    async def rolled_out(self) -> None:
        """Wait until a rollout has ended."""
        await self.kubectl("-n", KUBE_SYSTEM, "rollout", "status", f"deployment/{CONTROLLER}", "--timeout=90s")
        await self.ready(2)
        await self.leader()

    async def leader(self, overlay: str = "guarded") -> str:
        """Wait until a pod whose process runs holds the Lease; return its name."""
        holder, lease = "", f"{CONTROLLER}-dry-run" if overlay == "dry-run" else CONTROLLER

        async def holds() -> bool:
            nonlocal holder
            found = await self.cluster.call("GET", leases(OVERLAYS[overlay], lease), fine=(404,)) or {}
            holder = str(found.get("spec", {}).get("holderIdentity") or "").rpartition("_")[0]
            return holder in self._running.keys() - self._killed

        await self._until(holds)
        return holder

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():
                assert not self._playing.done(), self._playing.exception()
                await asyncio.sleep(_TURN_SECONDS)

    async def standby(self) -> Json:
        """Return the pod that does not lead."""
        leader = await self.leader()
        [other] = [pod for pod in await self.pods() if pod["metadata"]["name"] != leader]
        return other

    # What happens

    async def stop(self, pod: str) -> None:
        """Kill the process of a pod, which never starts again, while the pod still says that it runs."""
        self._killed.add(pod)
        await self._running[pod].kill()

    async def steal_lease(self, seconds: int) -> None:
        """Write somebody else's name into the Lease."""
        spec = {"holderIdentity": "thief_1", "leaseDurationSeconds": seconds}
        await self.cluster.call("PATCH", leases(KUBE_SYSTEM, CONTROLLER), {"spec": spec}, headers=MERGE)

    # The scheduler and the kubelets

    async def _play(self) -> None:
        while True:
            pods = await self.pods()
            for name in self._running.keys() - {pod["metadata"]["name"] for pod in pods}:
                await self._running.pop(name).kill()
                self._killed.discard(name)
            for pod in pods:
                await self._turn(pod, pods)
            await asyncio.sleep(_TURN_SECONDS)

    async def _turn(self, pod: Json, pods: list[Json]) -> None:
        """Do what is next for a pod: bind it, start it, say that it is ready, or end it."""
        name, spec = pod["metadata"]["name"], pod["spec"]
        if name in self._killed and not _leaves(pod):
            return
        if "nodeName" not in spec:
            taken = {each["spec"].get("nodeName") for each in pods if _instance(each) == _instance(pod)}
            free = [place for place in self.places if place not in taken]
            if free and not _leaves(pod):
                await self._bind(pod, free[0])
                spec["nodeName"] = free[0]
            elif not _leaves(pod):
                await self._say(pod, conditions=[_UNSCHEDULABLE])
        elif _leaves(pod):
            if (running := self._running.pop(name, None)) is not None:
                await (running.kill() if name in self._killed else running.end())
            await self.cluster.call("DELETE", f"{path_of(pod)}?gracePeriodSeconds=0", fine=(404,))
        elif name not in self._running:
            self._running[name] = await self._start(pod)
        elif not _is_ready(pod) and (await self._running[name].get("/readyz"))[0] == 200:
            ready = {"type": "Ready", "status": "True"}
            state = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
            told = {"name": "controller", "ready": True, "restartCount": 0, "image": "", "imageID": "", "state": state}
            await self._say(pod, phase="Running", podIP=self.address, conditions=[ready], containerStatuses=[told])

    async def _bind(self, pod: Json, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": pod["metadata"]["name"]}, "target": target}
        await self.cluster.call("POST", f"{path_of(pod)}/binding", body, fine=(404, 409))

    async def _say(self, pod: Json, **status: Any) -> None:
        path = f"{path_of(pod)}/status"
        await self.cluster.call("PATCH", path, {"status": status}, fine=(404,), headers=STRATEGIC)

    async def _start(self, pod: Json) -> RunningController:
        """Start the process of a pod, with its arguments, its environment and its account."""
        [container] = pod["spec"]["containers"]
        account, metadata = pod["spec"]["serviceAccountName"], pod["metadata"]
        fields = {"spec.serviceAccountName": account, "metadata.namespace": metadata["namespace"]}
        environment = {
            each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in container.get("env", ())
        }
        words = [re.sub(r"\$\((\w+)\)", lambda at: environment[at[1]], word) for word in container["args"]]
        places = {"/var/lib/taint-eviction": self.directory, "/etc/taint-eviction/policy.yaml": POLICY}
        for there, here in places.items():
            words = [word.replace(there, str(here)) for word in words]
        listen = f"127.0.0.1:{free_port()}"
        place = self.directory / metadata["name"]
        place.mkdir(exist_ok=True)
        own = write_own_kubeconfig(self.config, place, await self._token(metadata["namespace"], account))
        flags = [word for word in words if "listen" not in word and word != "--log-format=json"]
        program = ("-c", _PROGRAM.format(name=metadata["name"]))
        process = await start(
            *(*flags, "--kubeconfig", str(own), "--listen", listen, "--log-format", "json"),
            *("--leader-elect-resource-namespace", metadata["namespace"]),
            program=program,
            environment=environment,
        )
        running = RunningController(process, listen)
        running.reading = asyncio.create_task(running.read())
        return running

    async def _token(self, namespace: str, account: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        found = await self.cluster.call("POST", path, {"spec": {"expirationSeconds": 3600}})
        return str(found["status"]["token"])

    async def _pass_on(self, request: web.BaseRequest) -> web.Response:
        """Pass a request of the API server on to the process of the pod that it asks."""
        asked = re.search(r"/pods/(?:https?:)?([^/:]+)", request.headers.get("X-Forwarded-Uri", ""))
        running = self._running.get(asked[1]) if asked else None
        if running is None:
            return web.Response(status=502)
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{running.url}{request.path_qs}") as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        except aiohttp.ClientError:
            return web.Response(status=502)


def path_of(pod: Json) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def leases(namespace: str, name: str) -> str:
    """Return the path of a Lease."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


def _instance(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["labels"]["app.kubernetes.io/instance"]


def _leaves(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def own_address() -> str | None:
    """Return an address of this machine that the API server may ask; None if it has loopback only."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        try:
            # Nothing is sent: that only chooses a route.
            asked.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(asked.getsockname()[0])
    return None if address.startswith("127.") else address


@contextlib.asynccontextmanager
async def living(cluster: ClusterUnderTest, config: Path, directory: Path, address: str) -> AsyncIterator[PlayedLife]:
    """Play an installation's life on two nodes, until the end of the block."""
    async with PlayedLife(cluster, config, directory, address) as life:
        for short in ("one", "two"):
            await cluster.create_node(short)
            life.places.append(cluster.node_name(short))
        yield life
