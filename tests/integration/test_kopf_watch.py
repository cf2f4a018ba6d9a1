"""What a watch by Kopf reports to its listener, with the embedded API server."""

from __future__ import annotations

import asyncio

import pytest
from kopf_watching import Recorder, running_pod, watcher_of, watching
from tests.stage.waiting import PATIENCE_SECONDS

from fake_apiserver import ApiServer, populate
from taint_eviction.kopf_shell.tuning import WatchTuning
from taint_eviction.runtime.ports import NodesScope, PodsScope

PAGED = WatchTuning(page_size=2, retry_seconds=(0.01,))


async def test_existing_nodes_are_reported_as_listed() -> None:
    """Each node is reported once, without an event type, and ``on_listed`` is called once."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=3, pods=0)
        async with watching(watcher, NodesScope()) as told:
            await told.until(lambda: len(told.events) == 3)
            assert sorted(told.told, key=str) == [(None, "node-0"), (None, "node-1"), (None, "node-2")]
            assert told.listed == 1


async def test_a_list_of_several_pages_is_reported_once() -> None:
    """``on_listed`` is called after the last page."""
    async with ApiServer() as server, watcher_of(server, PAGED) as watcher:
        populate(server.registry, nodes=5, pods=0)
        async with watching(watcher, NodesScope()) as told:
            await told.until(lambda: len(told.events) == 5)
            assert told.listed == 1
            assert len(server.requests.select(verb="list", resource="nodes")) == 3


async def test_changes_of_a_node_are_reported_with_their_type() -> None:
    """ADDED, MODIFIED and DELETED arrive in order."""
    async with ApiServer() as server, watcher_of(server) as watcher, watching(watcher, NodesScope()) as told:
        server.create("nodes", {"metadata": {"name": "n1"}})
        server.taint("n1", "broken", "yes")
        server.delete("nodes", "n1")
        await told.until(lambda: len(told.events) == 3)
        assert told.told == [("ADDED", "n1"), ("MODIFIED", "n1"), ("DELETED", "n1")]
        assert told.events[1][1]["spec"]["taints"] == [{"key": "broken", "value": "yes", "effect": "NoExecute"}]


async def test_a_watch_of_one_nodes_pods_reports_no_others() -> None:
    """The API server selects them: it does not send pods of other nodes and unbound pods."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=2, pods=4)
        server.create("pods", running_pod("unbound"))
        async with watching(watcher, PodsScope("node-1")) as told:
            await told.until(lambda: len(told.events) == 2)
            assert {body["spec"]["nodeName"] for _, body in told.events} == {"node-1"}
            sent = server.requests.select(lambda entry: entry.resource == "pods")
            assert {entry.query["fieldSelector"] for entry in sent} == {"spec.nodeName=node-1"}


async def test_a_watch_of_all_pods_reports_only_bound_pods() -> None:
    """An unbound pod is reported when it is bound."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=2, pods=2)
        server.create("pods", running_pod("late"))
        async with watching(watcher, PodsScope(None)) as told:
            await told.until(lambda: len(told.events) == 2)
            server.patch("pods", "late", {"spec": {"nodeName": "node-0"}})
            await told.until(lambda: ("ADDED", "late") in told.told)
            assert len(told.events) == 3


async def test_all_events_of_one_node_are_reported_in_order() -> None:
    """Kopf 1.45 does not batch events: none of a burst is left out, and none overtakes another."""
    async with ApiServer() as server, watcher_of(server) as watcher, watching(watcher, NodesScope()) as told:
        server.create("nodes", {"metadata": {"name": "n1"}})
        for number in range(200):
            server.taint("n1", "broken", str(number))
        await told.until(lambda: len(told.events) == 201)
        assert told.taint_values() == [str(number) for number in range(200)]


async def test_a_pod_recreated_with_its_name_is_another_object() -> None:
    """The DELETED event and the ADDED event have their own UIDs."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.create("nodes", {"metadata": {"name": "n1"}})
        old = server.create("pods", running_pod("web-0", "n1"))
        async with watching(watcher, PodsScope("n1")) as told:
            server.delete("pods", "web-0", grace_period_seconds=0)
            new = server.create("pods", running_pod("web-0", "n1"))
            await told.until(lambda: {"ADDED", "DELETED"} <= {event_type for event_type, _ in told.events})
            uids = {event_type: body["metadata"]["uid"] for event_type, body in told.events}
            assert uids["DELETED"] == old["metadata"]["uid"]
            assert uids["ADDED"] == new["metadata"]["uid"]


async def test_a_cut_watch_continues_without_a_list() -> None:
    """A disconnect is no gap: Kopf opens the stream again at the last version."""
    async with ApiServer() as server, watcher_of(server) as watcher, watching(watcher, NodesScope()) as told:
        server.watches.cut(reset=True)
        server.create("nodes", {"metadata": {"name": "n1"}})
        await told.until(lambda: told.told == [("ADDED", "n1")])
        assert told.listed == 1


async def test_after_410_the_list_is_reported_again() -> None:
    """After a 410 there is a gap, so ``on_listed`` is called; objects deleted in the gap are not reported."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=2, pods=0)
        async with watching(watcher, NodesScope()) as told:
            await told.until(lambda: len(told.events) == 2)
            await server.stop()
            server.delete("nodes", "node-0")
            await server.restart(keep_history=False)
            await told.until(lambda: told.listed == 2 and len(told.events) == 3)
            assert told.told[2] == (None, "node-1")


async def test_a_watch_after_the_listeners_own_list_does_not_list_again() -> None:
    """The watch begins at that list's version: it reports only what has happened since."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.create("pods", running_pod("there", "n1"))
        server.create("pods", running_pod("leaves", "n1"))
        version = server.store.resource_version
        server.delete("pods", "leaves", grace_period_seconds=0)
        server.create("pods", running_pod("comes", "n1"))
        async with watching(watcher, PodsScope("n1"), since=version) as told:
            await told.until(lambda: len(told.events) == 3)
            assert set(told.told) == {("MODIFIED", "leaves"), ("DELETED", "leaves"), ("ADDED", "comes")}
            assert told.listed == 1
            assert server.requests.select(verb="list", resource="pods") == []


async def test_a_watch_after_a_list_that_is_too_old_lists_again() -> None:
    """The server no longer has the changes since that version, so Kopf lists, and the pods found are reported."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.create("pods", running_pod("leaves", "n1"))
        version = server.store.resource_version
        server.delete("pods", "leaves", grace_period_seconds=0)
        server.create("pods", running_pod("comes", "n1"))
        server.store.compact()
        async with watching(watcher, PodsScope("n1"), since=version) as told:
            await told.until(lambda: told.listed == 2 and len(told.events) == 1)
            assert told.told == [(None, "comes")]
            assert len(server.requests.select(verb="list", resource="pods")) == 1


async def test_bookmarks_are_requested_and_count_as_signs_of_life() -> None:
    """On a watch without events, only bookmarks show that it lives."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.watching.bookmark_interval_seconds = 0.02
        async with watching(watcher, NodesScope()) as told:
            opened = told.heard
            await told.until(lambda: told.heard >= opened + 3)
            (watch,) = server.requests.select(verb="watch", resource="nodes")
            assert watch.query["allowWatchBookmarks"] == "true"
            assert told.events == []


async def test_a_frozen_watch_is_opened_again_and_misses_nothing() -> None:
    """A frozen watch gets no bookmarks within the inactivity timeout, so Kopf closes the connection and reconnects."""
    tuning = WatchTuning(inactivity_seconds=1.0, retry_seconds=(0.01,))
    async with ApiServer() as server, watcher_of(server, tuning) as watcher:
        server.watching.bookmark_interval_seconds = 0.05
        async with watching(watcher, NodesScope()) as told:
            for watch in server.watches.select(resource="nodes"):
                watch.taps.frozen = True
            server.create("nodes", {"metadata": {"name": "n1"}})
            await told.until(lambda: told.told == [("ADDED", "n1")])
            assert told.listed == 1


async def test_a_taint_is_reported_without_a_delay_by_kopf() -> None:
    """By default, Kopf waits a tenth of a second to collect the events of an object."""
    async with ApiServer() as server, watcher_of(server) as watcher, watching(watcher, NodesScope()) as told:
        server.create("nodes", {"metadata": {"name": "n1"}})
        loop, delays = asyncio.get_running_loop(), []
        for number in range(50):
            before, written_at = len(told.events), loop.time()
            server.taint("n1", "broken", str(number))
            await told.until(lambda before=before: len(told.events) > before)  # type: ignore[misc]
            delays.append(loop.time() - written_at)
        assert min(delays) < 0.05


@pytest.mark.parametrize("prefix", ["", "/k8s/clusters/c-1"])
async def test_many_watches_share_one_discovery(prefix: str) -> None:
    """The resources of the server are read once, and not by each watch, also where a gateway has it below a path."""
    async with ApiServer() as server, watcher_of(server, prefix=prefix) as watcher:
        populate(server.registry, nodes=20, pods=20)
        async with watching(watcher, NodesScope()):
            asked = len(server.requests.select(resource="/api/v1"))
            recorders = [Recorder() for _ in range(20)]
            tasks = [
                asyncio.create_task(watcher.watch(PodsScope(f"node-{number}"), recorder))
                for number, recorder in enumerate(recorders)
            ]
            for recorder in recorders:
                await recorder.until(lambda recorder=recorder: recorder.listed and recorder.events)  # type: ignore[misc]
            assert len(server.requests.select(resource="/api/v1")) == asked == 1
            assert not server.requests.select(lambda request: request.path in ("/api", "/apis"))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
