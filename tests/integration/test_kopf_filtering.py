"""The filter before Kopf, against the embedded API server: what is swallowed, and that nothing is lost by it."""

from __future__ import annotations

from kopf_watching import running_pod, watcher_of, watching

from fake_apiserver import ApiServer, populate
from taint_eviction.runtime.ports import NodesScope, PodsScope


def heartbeat(server: ApiServer, node: str, number: int) -> None:
    """Do what a kubelet does every few minutes, and more often when something changes."""
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{number:02}Z"}]
    server.patch("nodes", node, {"status": {"conditions": conditions}}, manager="kubelet")


async def test_heartbeats_are_heard_and_not_told() -> None:
    """A node's status changes; its taints do not: the listener hears that the watch lives, and nothing else."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=1, pods=0)
        async with watching(watcher, NodesScope()) as told:
            heard = told.heard
            for number in range(20):
                heartbeat(server, "node-0", number)
            server.taint("node-0", "broken")
            await told.until(lambda: len(told.events) == 2)
            assert told.told == [(None, "node-0"), ("MODIFIED", "node-0")]
            assert told.heard > heard


async def test_how_far_the_watch_has_come_is_told_behind_what_it_has_brought() -> None:
    """Of a heartbeat there is nothing else to tell; an event is told first, however long Kopf takes to bring it."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=1, pods=0)
        async with watching(watcher, NodesScope()) as told:
            await told.until(lambda: told.events)
            heartbeat(server, "node-0", 1)
            await told.until(lambda: (server.store.resource_version, 1) in told.progress)
            server.taint("node-0", "broken")
            await told.until(lambda: (server.store.resource_version, 2) in told.progress)
            assert (server.store.resource_version, 1) not in told.progress


async def test_after_swallowed_events_the_watch_goes_on_at_their_version() -> None:
    """Kopf is given a bookmark in their place: when the stream breaks, it does not ask for what it has had."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=1, pods=0)
        async with watching(watcher, NodesScope()) as told:
            await told.until(lambda: told.events)
            heard = told.heard
            heartbeat(server, "node-0", 1)
            await told.until(lambda: told.heard > heard)
            server.store.compact()
            server.watches.cut()
            server.taint("node-0", "broken")
            await told.until(lambda: len(told.events) == 2)
            assert told.listed == 1
            first, second = server.requests.select(verb="watch", resource="nodes")
            assert int(second.query["resourceVersion"]) > int(first.query["resourceVersion"])


async def test_the_ending_of_a_known_pod_is_told_and_the_watch_goes_on_at_its_version() -> None:
    """Kopf, which was never shown the pod, hears of the version alone: after a break it does not ask for it again."""
    async with ApiServer() as server, watcher_of(server, known=lambda _kind, _body: True) as watcher:
        populate(server.registry, nodes=1, pods=0)
        server.create("pods", running_pod("known", "node-0"))
        server.create("pods", running_pod("second", "node-0"))
        async with watching(watcher, PodsScope("node-0")) as told:
            server.delete("pods", "known", grace_period_seconds=0)
            await told.until(lambda: told.events)
            server.store.compact()
            server.watches.cut()
            server.delete("pods", "second", grace_period_seconds=0)
            await told.until(lambda: len(told.events) == 2)
            assert told.told == [("DELETED", "known"), ("DELETED", "second")]
            assert told.listed == 1
            first, second = server.requests.select(verb="watch", resource="pods")
            assert int(second.query["resourceVersion"]) > int(first.query["resourceVersion"])


async def test_lists_and_events_are_both_cut_down() -> None:
    """Kopf reads ``json()`` of a list and ``iter_chunked()`` of a watch: a new way of reading would show whole pods."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=1, pods=1)
        async with watching(watcher, PodsScope("node-0")) as told:
            server.create("pods", running_pod("second", "node-0"))
            await told.until(lambda: len(told.events) == 2)
            for _, body in told.events:
                assert "containers" not in body["spec"]
                assert body["spec"]["nodeName"] == "node-0"
                assert body["kind"] == "Pod"


async def test_unwanted_pods_are_not_told_but_their_deletion_is() -> None:
    """The listener may know a pod from elsewhere, so it is never left believing in one that is gone."""

    def wanted(kind: str, body: dict[str, object]) -> bool:
        spec = body["spec"]
        return kind == "Pod" and isinstance(spec, dict) and spec.get("nodeName") == "node-1"

    async with ApiServer() as server, watcher_of(server, wanted=wanted) as watcher:
        populate(server.registry, nodes=2, pods=4)
        async with watching(watcher, PodsScope(None)) as told:
            await told.until(lambda: len(told.events) == 2)
            server.create("pods", running_pod("unwanted", "node-0"))
            server.create("pods", running_pod("wanted", "node-1"))
            server.delete("pods", "unwanted", grace_period_seconds=0)
            await told.until(lambda: len(told.events) == 4)
            assert set(told.told[2:]) == {("ADDED", "wanted"), ("DELETED", "unwanted")}
