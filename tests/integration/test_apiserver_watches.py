"""The embedded API server: watches, and the ways to disturb them."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from apiserver_client import NODES, Api, Stream, add_node, add_pod, serving
from tests.stage.waiting import now, until

from fake_apiserver import MALFORMED_LINE, ApiServer, StatusError, WatchMatch

ALL_PODS = "/api/v1/pods"
PODS_OF_N1 = {"fieldSelector": "spec.nodeName=n1"}


async def _version(api: Api) -> str:
    version: str = (await api.get(NODES)).body["metadata"]["resourceVersion"]
    return version


async def _read_for(stream: Stream, seconds: float) -> None:
    """Read bookmarks until the time is up (TimeoutError); fail on any other event."""
    async with asyncio.timeout(seconds):
        while True:
            assert json.loads(await stream.response.content.readline())["type"] == "BOOKMARK"


async def _until(server: ApiServer, count: int) -> None:
    """Wait until ``count`` watches have been opened."""
    await server.requests.wait_for(verb="watch", count=count)


async def test_a_watch_without_version_begins_with_the_existing_objects() -> None:
    """The existing objects come as synthetic ADDED events, then the changes."""
    async with serving() as (server, api):
        add_node(server, "n1")
        async with api.watch(NODES) as stream:
            assert await stream.seen(1) == [("ADDED", "n1")]
            server.taint("n1", "k")
            assert await stream.seen(1) == [("MODIFIED", "n1")]


async def test_a_watch_from_a_version_gets_all_changes_since() -> None:
    """Changes between the list and the watch come first, in order."""
    async with serving() as (server, api):
        add_node(server, "n1")
        version = await _version(api)
        server.taint("n1", "k")
        add_node(server, "n2")
        server.delete("nodes", "n1")
        async with api.watch(NODES, resourceVersion=version) as stream:
            assert await stream.seen(3) == [("MODIFIED", "n1"), ("ADDED", "n2"), ("DELETED", "n1")]


async def test_deleted_events_have_the_version_of_the_deletion() -> None:
    """A client that continues from that version does not see the deletion again."""
    async with serving() as (server, api):
        add_node(server)
        async with api.watch(NODES, resourceVersion=await _version(api)) as stream:
            server.delete("nodes", "n1")
            kind, node = await stream.next()
            assert (kind, node["metadata"]["resourceVersion"]) == ("DELETED", str(server.store.resource_version))
            assert (node["kind"], node["apiVersion"]) == ("Node", "v1")


async def test_an_object_that_enters_a_selection_is_added_and_one_that_leaves_it_is_deleted() -> None:
    """The DELETED event has the object as it last matched the label selector, with the new version."""
    async with serving() as (server, api):
        add_pod(server, "p1", labels={"app": "a"})
        async with api.watch(ALL_PODS, labelSelector="app=b", resourceVersion=await _version(api)) as stream:
            server.patch("pods", "p1", {"metadata": {"labels": {"app": "b"}}})
            assert await stream.seen(1) == [("ADDED", "p1")]
            server.patch("pods", "p1", {"metadata": {"labels": {"app": "c"}}})
            kind, pod = await stream.next()
            assert (kind, pod["metadata"]["labels"]) == ("DELETED", {"app": "b"})
            assert pod["metadata"]["resourceVersion"] == str(server.store.resource_version)


async def test_a_watch_of_one_nodes_pods_sees_a_pod_when_it_is_bound() -> None:
    """The watch gets no events about other nodes' pods."""
    async with serving() as (server, api), api.watch(ALL_PODS, **PODS_OF_N1) as stream:
        add_pod(server, "other", "n2")
        add_pod(server, "mine", "")
        await api.post(
            "/api/v1/namespaces/default/pods/mine/binding", {"metadata": {"name": "mine"}, "target": {"name": "n1"}}
        )
        assert await stream.seen(1) == [("ADDED", "mine")]


async def test_a_version_older_than_the_history_gets_an_error_410_in_a_200_stream() -> None:
    """The reason is Expired, and the stream ends."""
    async with serving(history_size=2) as (server, api):
        version = await _version(api)
        for name in ("a", "b", "c"):
            add_node(server, name)
        async with api.watch(NODES, resourceVersion=version) as stream:
            kind, status = await stream.next()
            assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
            assert status["message"].startswith("too old resource version: ")
            assert await stream.line() == b""


async def test_bookmarks_are_sent_only_to_watches_that_allow_them() -> None:
    """A bookmark has the current version, although no node has changed, and is sent after the interval."""
    async with serving() as (server, api):
        server.watching.bookmark_interval_seconds = 0.02
        async with api.watch(NODES, allowWatchBookmarks="true") as stream:
            await stream.next()
            add_pod(server)
            await stream.next()  # It may have been on its way already.
            kind, obj = await stream.next()
            assert (kind, obj["kind"]) == ("BOOKMARK", "Node")
            assert int(obj["metadata"]["resourceVersion"]) == server.store.resource_version
        async with api.watch(NODES, timeoutSeconds="1") as stream:
            assert await stream.line() == b""


async def test_initial_events_end_with_an_annotated_bookmark() -> None:
    """The watch asks for this with sendInitialEvents."""
    async with serving() as (server, api):
        add_node(server)
        query = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
        }
        async with api.watch(NODES, **query) as stream:
            assert await stream.seen(1) == [("ADDED", "n1")]
            kind, obj = await stream.next()
            assert (kind, obj["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})


async def test_a_watch_ends_after_its_timeout() -> None:
    """The watch honours timeoutSeconds and ends with a last bookmark."""
    async with serving() as (_, api):
        started = now()
        async with api.watch(NODES, timeoutSeconds="1", allowWatchBookmarks="true") as stream:
            assert (await stream.next())[0] == "BOOKMARK"
            assert await stream.line() == b""
        assert now() - started > 0.9


async def test_a_watch_that_the_server_cuts_ends_cleanly() -> None:
    """The client sees the end of the stream and no error."""
    async with serving() as (server, api), api.watch(NODES) as stream:
        await _until(server, 1)
        assert server.watches.cut(WatchMatch(resource="nodes")) == 1
        assert await stream.line() == b""


async def test_a_watch_that_the_server_resets_ends_with_a_connection_error() -> None:
    """The client does not see a clean end of the stream."""
    async with serving() as (server, api), api.watch(NODES) as stream:
        await _until(server, 1)
        server.watches.cut(reset=True)
        with pytest.raises(aiohttp.ClientError):
            await stream.line()


async def test_a_frozen_watch_is_silent_and_stays_open() -> None:
    """A frozen watch gets no bookmarks either, while the watch of another kind continues."""
    async with serving() as (server, api):
        server.watching.bookmark_interval_seconds = 0.01
        async with api.watch(NODES, allowWatchBookmarks="true") as frozen, api.watch(ALL_PODS) as other:
            await _until(server, 2)
            server.watches.freeze(WatchMatch(resource="nodes"))
            add_node(server)
            add_pod(server)
            assert await other.seen(1) == [("ADDED", "p1")]
            [watcher] = server.watches.select(resource="nodes")
            assert (watcher.delivered, watcher.ended) == (0, "")
            # Bookmarks sent before the freeze may still arrive, but no later ones do.
            with pytest.raises(TimeoutError):
                await _read_for(frozen, 0.05)


async def test_the_events_of_one_kind_can_be_held_and_released() -> None:
    """The node watch lags behind the pod watch; no event is lost, and the order is kept."""
    async with serving() as (server, api):
        nodes = WatchMatch(resource="nodes")
        server.watches.hold(nodes)
        async with api.watch(NODES) as held, api.watch(ALL_PODS) as flowing:
            await _until(server, 2)
            add_node(server, "n1")
            server.taint("n1", "k")
            add_pod(server)
            assert await flowing.seen(1) == [("ADDED", "p1")]
            assert server.watches.select(nodes)[0].delivered == 0
            server.watches.calm(nodes)
            assert await held.seen(2) == [("ADDED", "n1"), ("MODIFIED", "n1")]


async def test_a_lagging_watch_delivers_events_late() -> None:
    """The given lag also applies to watches that are opened later."""
    async with serving() as (server, api):
        server.watches.lag(0.1)
        async with api.watch(NODES) as stream:
            await _until(server, 1)
            started = now()
            add_node(server)
            assert await stream.seen(1) == [("ADDED", "n1")]
            assert now() - started >= 0.09


async def test_events_can_be_dropped_and_duplicated() -> None:
    """A correct server neither loses nor repeats an event."""
    async with serving() as (server, api), api.watch(NODES) as stream:
        await _until(server, 1)
        server.watches.drop_next(1)
        for name in ("lost", "kept"):
            add_node(server, name)
        assert await stream.seen(1) == [("ADDED", "kept")]
        server.watches.duplicate_next(1)
        server.taint("kept", "k")
        assert await stream.seen(2) == [("MODIFIED", "kept"), ("MODIFIED", "kept")]


async def test_an_error_event_of_any_status_can_be_sent() -> None:
    """The stream ends after the error event."""
    async with serving() as (server, api), api.watch(NODES) as stream:
        await _until(server, 1)
        server.watches.send_error(StatusError(500, "etcdserver: leader changed"))
        kind, status = await stream.next()
        assert (kind, status["code"], status["message"]) == ("ERROR", 500, "etcdserver: leader changed")
        assert await stream.line() == b""


async def test_a_malformed_line_can_be_sent() -> None:
    """Tests use this to show what half a JSON object does to a client."""
    async with serving() as (server, api), api.watch(NODES) as stream:
        await _until(server, 1)
        server.watches.send_line(MALFORMED_LINE)
        with pytest.raises(json.JSONDecodeError):
            await stream.next()


async def test_a_client_that_does_not_read_its_watch_delays_no_other() -> None:
    """Its queue fills and the server ends its watch, while another watch gets all events."""
    async with serving(watch_queue_limit=50) as (server, api):
        server.watches.hold(WatchMatch(user_agent="slow"))
        slow = {"User-Agent": "slow"}
        async with (
            api.session.get(NODES, params={"watch": "true"}, headers=slow),
            api.watch(NODES) as quick,
        ):
            await _until(server, 2)
            for index in range(60):
                add_node(server, f"n{index}")
                assert (await quick.next())[0] == "ADDED"
            assert [watcher.user_agent for watcher in server.watches.select() if not watcher.ended] == [
                quick.response.request_info.headers["User-Agent"]
            ]


async def test_an_event_for_watches_with_the_same_selection_is_encoded_once() -> None:
    """All these watches write the same bytes object."""
    async with serving() as (server, api), api.watch(NODES) as one, api.watch(NODES) as two:
        await _until(server, 2)
        server.watches.hold()
        add_node(server)
        server.watches.calm()
        [[first], [second]] = [watcher.take() for watcher in server.watches.select()]
        assert first is second
        add_node(server, "n2")
        assert await one.line() == await two.line()


async def test_closed_watches_are_removed() -> None:
    """Nothing is kept for a client that has disconnected."""
    async with serving() as (server, api):
        async with api.watch(NODES):
            await _until(server, 1)
        await until(lambda: not server.watches.select())


async def test_kubectl_can_watch_tables() -> None:
    """The object of each event is a table with one row."""
    async with serving() as (server, api):
        add_node(server)
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        async with api.session.get(NODES, params={"watch": "true"}, headers=headers) as response:
            event = json.loads(await response.content.readline())
            assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
            assert event["object"]["rows"][0]["cells"][0] == "n1"
