"""The filter before Kopf, with the embedded API server: what it leaves out, and that nothing is lost by it."""

from __future__ import annotations

from kopf_watching import running_pod, watcher_of, watching

from fake_apiserver import ApiServer, populate
from taint_eviction.runtime.ports import NodesScope, PodsScope


def heartbeat(server: ApiServer, node: str, number: int) -> None:
    """Write a node's status, as a kubelet does every few minutes and when a condition changes."""
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{number:02}Z"}]
    server.patch("nodes", node, {"status": {"conditions": conditions}}, manager="kubelet")


async def test_heartbeats_reach_the_listener_only_as_signs_of_life() -> None:
    """If a node's status changes and its taints do not, the listener learns that the watch lives, and nothing else."""
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


async def test_progress_of_the_watch_is_reported_after_the_events_up_to_it() -> None:
    """A heartbeat causes only progress; an event comes before its progress, however long Kopf takes to deliver it."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=1, pods=0)
        async with watching(watcher, NodesScope()) as told:
            await told.until(lambda: told.events)
            heartbeat(server, "node-0", 1)
            await told.until(lambda: (server.store.resource_version, 1) in told.progress)
            server.taint("node-0", "broken")
            await told.until(lambda: (server.store.resource_version, 2) in told.progress)
            assert (server.store.resource_version, 1) not in told.progress


async def test_after_filtered_events_the_watch_continues_at_their_version() -> None:
    """Kopf gets a bookmark instead of these events, so it does not ask for them again when the stream breaks."""
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


async def test_the_deletion_of_a_known_pod_is_reported_and_the_watch_continues_at_its_version() -> None:
    """Kopf, which never got the pod, gets only the version, so it does not ask for the deletion again after a break."""
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


async def test_objects_in_lists_and_in_events_are_both_reduced() -> None:
    """Kopf reads lists with ``json()`` and watches with ``iter_chunked()``; other ways would show it whole pods."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=1, pods=1)
        async with watching(watcher, PodsScope("node-0")) as told:
            server.create("pods", running_pod("second", "node-0"))
            await told.until(lambda: len(told.events) == 2)
            for _, body in told.events:
                assert "containers" not in body["spec"]
                assert body["spec"]["nodeName"] == "node-0"
                assert body["kind"] == "Pod"


async def test_only_deletions_of_unwanted_pods_are_reported() -> None:
    """The listener may know the pod from elsewhere, so it must learn that the pod is gone."""

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
