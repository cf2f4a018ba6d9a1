"""Kopf is embedded to read: whatever it observes, it writes to no object."""

from __future__ import annotations

from kopf_watching import running_pod, watcher_of, watching

from fake_apiserver import ApiServer
from taint_eviction.runtime.ports import NodesScope, PodsScope

KOPF_FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
KOPF_ANNOTATION = "kopf.zalando.org/last-handled-configuration"


async def test_objects_of_other_kopf_operators_are_not_changed() -> None:
    """Their finalizers and annotations stay, on pods that change, terminate and are deleted: all requests are reads."""
    theirs = {"finalizers": [KOPF_FINALIZER], "annotations": {KOPF_ANNOTATION: '{"spec":{}}'}}
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.create("nodes", {"metadata": {"name": "n1", **theirs}})
        for name in ("stays", "changes", "goes"):
            server.create("pods", running_pod(name, "n1", **theirs))
        async with watching(watcher, NodesScope()) as nodes, watching(watcher, PodsScope(None)) as pods:
            server.patch("pods", "changes", {"metadata": {"labels": {"changed": "yes"}}})
            server.taint("n1", "broken")
            server.delete("pods", "goes", grace_period_seconds=0)
            await pods.until(lambda: len(pods.events) >= 5)
            await nodes.until(lambda: len(nodes.events) >= 2)
            server.create("pods", running_pod("last", "n1"))
            await pods.until(lambda: ("ADDED", "last") in pods.told)
        assert {request.verb for request in server.requests.entries} == {"get", "list", "watch"}
        for pod in server.list("pods"):
            if pod["metadata"]["name"] != "last":
                assert pod["metadata"]["finalizers"] == [KOPF_FINALIZER]
