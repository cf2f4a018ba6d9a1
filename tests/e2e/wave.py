"""A wave of countdowns that are taken over, beside the real built-in controller: ``python -m tests.e2e.wave``.

    export KUBECONFIG=… PYTHONPATH=operator
    python -m tests.e2e.wave                                          # 10,000 pods with 300 s on 200 nodes: 12 minutes
    python -m tests.e2e.wave --kill-leader                            # kill -9, at both of the worst moments
    python -m tests.e2e.wave --restart-built-in 'systemctl restart …' # half-way: it counts anew
    python -m tests.e2e.wave --blip 15 --blip 200                     # before the wave, one more node blips twice

It installs overlays/managed (without its Deployment), and runs two replicas outside the cluster with the account's
token, under its policy, and with the flags of its pod. All evictions are paused, and the API server answers each of
their writes after ``--delay`` seconds. Then all nodes become unreachable at once. Who is deleted then was evicted by
the built-in controller. It is waited until its last timer would have fired, and then until no pod has a note any more.
There are no kubelets, so kube-controller-manager must not run its node-lifecycle-controller.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bare import BareClient, all_at_once
from tests.bench.processes import now
from tests.e2e.cluster import ClusterUnderTest, Json
from tests.e2e.slow_writes import SlowWrites, in_between
from tests.e2e.test_admission import APPLY, Installed, built, gone, in_force, paths, token_of, write_own_kubeconfig
from tests.stage.processes import RunningController, output_of, start_controller
from tests.stage.waiting import free_port

from taint_eviction.core.objects import UNREACHABLE
from taint_eviction.files.kubernetes_times import format_rfc3339, parse_rfc3339
from taint_eviction.login.credentials import Connection, with_kubeconfig
from taint_eviction.runtime.clock import ServerClock, read_wall

PERMANENT, LABEL = "taint-eviction-test/dedicated", "taint-eviction-test/wave"
NOTE = "taint-eviction/seconds"
_PODS = "/api/v1/namespaces/default/pods"
_CONCURRENCY = 32
_BLIP_PODS = 100
# What begins sooner after the first lists is taken over at once.
_STARTED_SECONDS = 12.0
_READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
_DELETE_NOW: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
# The built-in controller is late by less than that, also after a restart, when it lists all pods before it counts.
_AFTER_SECONDS = 60.0
# After a blip nothing is to be waited for but what a blip must not cause.
_AFTER_BLIP_SECONDS = 30.0
# For 10,000 pods, given back at more than 20 a second, with a leader killed in between.
_GIVEN_BACK_SECONDS = 600.0
# The worst moments for a leader to end: when all is still to do, and shortly before a minute is left.
_KILLED_AFTER, _KILLED_BEFORE = 2.0, 75.0


@dataclass
class Wave:
    """The nodes and pods of one run. All pods tolerate the permanent taint; the first nodes have it."""

    client: BareClient
    run: str
    nodes: int
    pods: int
    permanent: int
    seconds: int

    async def create(self) -> None:
        """Create them; nodes are ready, and pods bound."""
        nodes = self._names

        async def node(name: str) -> None:
            body = {"metadata": {"name": name, "labels": {LABEL: self.run}}, "status": {"conditions": [_READY]}}
            await self.client.call("POST", "/api/v1/nodes", body)
            await self.taint(name)

        async def pod(number: int) -> None:
            tolerations = [{"key": PERMANENT, "operator": "Exists"}]
            if self.seconds != 300:  # The API server adds those by itself.
                tolerations.append(_tolerates(self.seconds))
            spec = {
                "nodeName": nodes[number % self.nodes],
                "containers": [{"name": "main", "image": "pause"}],
                "tolerations": tolerations,
            }
            metadata = {"name": f"{self.run}-{number}", "labels": {LABEL: self.run}}
            await self.client.call("POST", _PODS, {"metadata": metadata, "spec": spec})

        await all_at_once(node, nodes, _CONCURRENCY)
        await all_at_once(pod, range(self.pods), _CONCURRENCY)

    async def taint(self, node: str, *more: Json) -> None:
        """Let a node have its permanent taint, if it has one, and these."""
        permanent = int(node.rpartition("-")[2]) < self.permanent
        taints = [{"key": PERMANENT, "effect": "NoExecute"}] if permanent else []
        await self.client.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [*taints, *more]}})

    async def lose(self) -> None:
        """Let all nodes become unreachable."""
        lost = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": format_rfc3339(read_wall())}
        await all_at_once(lambda node: self.taint(node, lost), self._names, _CONCURRENCY)

    async def find_again(self) -> None:
        """Let all nodes be reachable again."""
        await all_at_once(self.taint, self._names, _CONCURRENCY)

    @property
    def _names(self) -> list[str]:
        return [f"{self.run}-{number}" for number in range(self.nodes)]

    async def found(self) -> list[Json]:
        """Return the pods."""
        return await self.client.list_all(_PODS, f"&labelSelector={LABEL}={self.run}")

    async def remove(self) -> None:
        """Remove everything."""
        names = [pod["metadata"]["name"] for pod in await self.found()]

        async def remove(path: str) -> None:
            await self.client.call("DELETE", path, _DELETE_NOW, allowed=(404,))

        await all_at_once(remove, (f"{_PODS}/{name}" for name in names), _CONCURRENCY)
        await all_at_once(remove, (f"/api/v1/nodes/{name}" for name in self._names), _CONCURRENCY)


def _tolerates(seconds: int) -> Json:
    return {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}


class Replicas:
    """Two replicas, of which one leads. ``flags`` are theirs."""

    def __init__(self, config: Path, flags: tuple[str, ...]) -> None:
        self._config = config
        self._flags = flags
        self.running: list[RunningController] = []

    async def start(self) -> None:
        """Start one more, and wait until it knows the cluster."""
        started = await start_controller(self._config, *self._flags, listen=f"127.0.0.1:{free_port()}")
        self.running.append(started)
        await started.synced()

    async def leader(self) -> RunningController | None:
        """Return the one that leads."""
        for each in self.running:
            with contextlib.suppress(ValueError):  # It does not answer yet.
                if await each.leads():
                    return each
        return None

    async def kill_leader(self) -> None:
        """Kill the one that leads, and start another one, as a kubelet would."""
        leader = await self.leader()
        assert leader is not None
        await leader.kill()
        self.running.remove(leader)
        await self.start()

    async def adopted(self) -> int | None:
        """Return how many pods the leader says that it has taken over; None: nobody leads, or it does not answer."""
        leader = await self.leader()
        text = "" if leader is None else (await leader.get("/metrics"))[1]
        name = "taint_eviction_controller_adopted_pods "
        found = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
        return int(float(found[0])) if found else None

    async def end(self) -> None:
        """End all."""
        for each in self.running:
            await each.kill()


@contextlib.asynccontextmanager
async def installed(cluster: ClusterUnderTest) -> AsyncIterator[Installed]:
    """Install overlays/managed, and a running pod on which the policy can be tried."""
    async with contextlib.AsyncExitStack() as stack:
        made = Installed(cluster, "managed", built("overlays/managed", Path()))
        await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": made.namespace}})
        stack.push_async_callback(gone, cluster, f"/api/v1/namespaces/{made.namespace}")
        for path, document in paths(made.documents):
            await cluster.call("PATCH", f"{path}?fieldManager={cluster.prefix}", document, headers=APPLY)
            stack.push_async_callback(cluster.call, "DELETE", path, fine=(404,))
        await cluster.create_node("a")
        await cluster.create_pod("web", "a")
        await cluster.make_ready("web")
        await in_force(made)
        yield made


@contextlib.asynccontextmanager
async def _connected(config: Path) -> AsyncIterator[Connection]:
    """Connect as the user of a kubeconfig."""
    connection = await with_kubeconfig(str(config), None, ServerClock())
    try:
        yield connection
    finally:
        await connection.close()


async def measure(options: argparse.Namespace) -> bool:
    """Make the blips and a wave, and say what has come of it; return whether nothing was evicted."""
    config = Path(os.environ["KUBECONFIG"])
    async with (
        _connected(config) as connection,
        ClusterUnderTest(connection) as cluster,
        installed(cluster) as made,
        BareClient(config) as client,
    ):
        with tempfile.TemporaryDirectory() as name:
            own = write_own_kubeconfig(config, Path(name), await token_of(made))
            async with in_between(own, options.delay) as slow:
                return await _measure(options, made, client, own, slow)


async def _measure(
    options: argparse.Namespace, made: Installed, client: BareClient, own: Path, slow: SlowWrites
) -> bool:
    """Measure with replicas that use ``own`` as their kubeconfig, and so ``slow``."""
    cluster, config = made.cluster, os.environ["KUBECONFIG"]
    wave = Wave(client, cluster.prefix, options.nodes, options.pods, options.permanent, options.seconds)
    blip = Wave(client, f"{cluster.prefix}-blip", 1, _BLIP_PODS, 0, options.seconds)
    both = (wave, blip) if options.blip else (wave,)
    where = ("--leader-elect-resource-namespace", made.namespace)
    replicas = Replicas(own, ("--leader-elect", *made.flags, *where))
    named = ("--state-namespace", made.namespace, "--state-name", made.lease)
    await output_of("pause", "--kubeconfig", config, *named)
    try:
        for each in both:
            await each.create()
            _say(f"created {each.pods} pods on {each.nodes} nodes")
        for _ in range(2):
            await replicas.start()
        state = f"/api/v1/namespaces/{made.namespace}/configmaps/{made.lease}"
        await cluster.eventually(state, lambda found: "adopts" in (found.get("data") or {}), 60.0)
        await asyncio.sleep(_STARTED_SECONDS)
        held = [await _blip(blip, replicas, slow, seconds) for seconds in options.blip]
        return all([*held, await _wave(wave, replicas, slow, options)])
    finally:
        await replicas.end()
        for each in both:
            await each.remove()


async def _wave(wave: Wave, replicas: Replicas, slow: SlowWrites, options: argparse.Namespace) -> bool:
    began_at, began_epoch = now(), read_wall()
    await wave.lose()
    _say(f"all nodes are unreachable after {now() - began_at:.1f} s")
    whole = float(options.seconds)
    half_time = whole / 2
    last_timer_at = now() - began_at + whole

    async def restart_built_in() -> None:
        nonlocal last_timer_at
        await _shell(options.restart_built_in)
        last_timer_at = now() - began_at + whole

    tasks: dict[float, tuple[str, Callable[[], Awaitable[object]]]] = {}
    if options.kill_leader:
        for at in (_KILLED_AFTER, whole - _KILLED_BEFORE):
            tasks[at] = "the leader is killed", replicas.kill_leader
    if options.restart_built_in:
        tasks[half_time] = "kube-controller-manager is restarted", restart_built_in
    under_way: list[asyncio.Task[object]] = []
    marked_at = None
    next_at = 0.0
    while (passed := now() - began_at) < last_timer_at + _AFTER_SECONDS:
        for at in [at for at in tasks if at <= passed]:
            told, begin = tasks.pop(at)
            _say(f"{passed:5.0f} s: {told}; {await replicas.adopted()} pods are taken over")
            under_way.append(asyncio.ensure_future(begin()))
        if passed >= next_at:
            next_at += 10.0
            adopted = await replicas.adopted()
            _say(f"{passed:5.0f} s: {adopted} pods are taken over, {dict(slow.writes)}")
            if adopted is not None and adopted >= wave.pods / 2 and half_time in tasks:
                tasks[passed] = tasks.pop(half_time)  # While half of the countdowns are still its own.
            if marked_at is None and adopted is not None and adopted >= wave.pods:
                marked_at = passed
        await asyncio.sleep(0.5)
    await asyncio.gather(*under_way)
    _say(f"the last timer of the built-in controller was for {last_timer_at:.0f} s; {passed:.0f} s have passed")
    evicted = await _evicted(wave, began_epoch)
    _say(f"all taken over after {marked_at} s; patches of pods: {slow.writes['PATCH pods']}")
    is_given_back = await _give_back(wave, replicas)
    return not evicted and is_given_back


async def _evicted(wave: Wave, began_epoch: float) -> int:
    """Say who was evicted by the built-in controller, and when; return how many."""
    pods = await wave.found()
    evicted = [pod["metadata"] for pod in pods if "deletionTimestamp" in pod["metadata"]]
    count = len(evicted) + wave.pods - len(pods)
    _say(f"evicted by the built-in controller: {count} of {wave.pods}")
    for at, together in sorted(Counter(round(_asked_at(each) - began_epoch) for each in evicted).items()):
        _say(f"  {together} after {at} s")
    _say_how_they_are(wave, pods)
    return count


async def _give_back(wave: Wave, replicas: Replicas) -> bool:
    """Let the nodes be back, and return whether the pods then have their seconds, whatever the leader says."""
    began_at = now()
    await wave.find_again()
    while now() - began_at < _GIVEN_BACK_SECONDS:
        # Metrics are cheap, a list of all pods is not; but a new leader may say 0 before it knows them.
        if await replicas.adopted() == 0 and not any(_is_noted(pod) for pod in await wave.found()):
            break
        await asyncio.sleep(2.0)
    pods = await wave.found()
    _say(f"nodes are back: after {now() - began_at:.0f} s")
    _say_how_they_are(wave, pods)
    return not any(_is_noted(pod) or set(_seconds_of(pod)) != {wave.seconds} for pod in pods)


async def _blip(wave: Wave, replicas: Replicas, slow: SlowWrites, seconds: float) -> bool:
    before = slow.writes.copy()
    await wave.lose()
    await asyncio.sleep(seconds)
    await wave.find_again()
    await asyncio.sleep(_AFTER_BLIP_SECONDS)
    pods = await wave.found()
    written = {name: count for name, count in (slow.writes - before).items() if "leases" not in name}
    _say(f"a blip of {seconds:g} s, {len(pods)} pods: writes {written or 'none'}; adopted {await replicas.adopted()}")
    _say_how_they_are(wave, pods)
    return len(pods) == wave.pods and not any("deletionTimestamp" in pod["metadata"] for pod in pods)


def _asked_at(metadata: Json) -> float:
    return (parse_rfc3339(metadata["deletionTimestamp"]) or 0.0) - float(metadata["deletionGracePeriodSeconds"])


def _say_how_they_are(wave: Wave, pods: list[Json]) -> None:
    noted = sum(_is_noted(pod) for pod in pods)
    seconds = Counter(each for pod in pods for each in _seconds_of(pod))
    _say(f"  {len(pods)} of {wave.pods} pods, {noted} with a note; tolerationSeconds: {dict(seconds)}")


def _is_noted(pod: Json) -> bool:
    return NOTE in (pod["metadata"].get("annotations") or {})


def _seconds_of(pod: Json) -> Iterator[int | None]:
    for each in pod["spec"]["tolerations"]:
        if each.get("key") == UNREACHABLE:
            yield each.get("tolerationSeconds")


async def _shell(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command)
    assert await process.wait() == 0, command


def main() -> None:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.wave", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--permanent", type=int, default=20, help="so many of the nodes have a taint that all tolerate")
    parser.add_argument(
        "--seconds", type=int, default=300, help="how long the pods tolerate that a node is unreachable"
    )
    parser.add_argument(
        "--delay", type=float, default=0.1, help="how long each write of the replicas takes, in seconds"
    )
    parser.add_argument("--kill-leader", action="store_true", help="kill it twice")
    parser.add_argument(
        "--restart-built-in",
        metavar="COMMAND",
        help="restart kube-controller-manager by this command, when half of the pods are taken over",
    )
    parser.add_argument(
        "--blip", type=float, action="append", default=[], help="before the wave, one more node is back after SECONDS"
    )
    sys.exit(0 if asyncio.run(measure(parser.parse_args())) else 1)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main()
