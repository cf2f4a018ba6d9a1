"""The writing end of a watch: from a watcher's queue to a connection, with bookmarks and an end.

What a watch starts with is queued before the first await, so that no change falls between the start and the queue.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson
from aiohttp import web

from .clock import WallClock, monotonic
from .connection import reset_connection
from .reading import headers, renderer_of, selection_of, version_of
from .request_info import RequestInfo
from .resources import ResourceType
from .status import expired, invalid
from .store import ObjectStore
from .validation import forbidden_field
from .watch import OpenWatch, WatchHub, error_line

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(slots=True)
class StreamSettings:
    """Seconds: how often bookmarks come, and how long a watch lasts that does not say so itself."""

    bookmark_interval_seconds: float = 60.0
    default_timeout_seconds: float = 1800.0


async def send_watch(
    request: web.BaseRequest,
    info: RequestInfo,
    store: ObjectStore,
    hub: WatchHub,
    clock: WallClock,
    settings: StreamSettings,
) -> web.StreamResponse:
    """Streams until the time is up, the client goes, or the watcher is ended."""
    watcher = OpenWatch(
        selection_of(info), request.headers.get("User-Agent", ""), renderer_of(request, info, clock), hub.queue_limit
    )
    hub.register(watcher)
    response = web.StreamResponse(headers=headers(clock))
    response.enable_chunked_encoding()
    try:
        _start(watcher, info, store)
        await response.prepare(request)
        await _Stream(request, response, watcher, store, settings, info).run()
    except ConnectionError:
        # The client went away while something was being written to it: that ends a watch like any other end.
        return response
    finally:
        hub.unregister(watcher)
    return response


def _start(watcher: OpenWatch, info: RequestInfo, store: ObjectStore) -> None:
    """Queues what the watch begins with: the history since a version, or the present as ADDED events."""
    query = info.query
    version = version_of(query.get("resourceVersion", ""))
    initial = query.get("sendInitialEvents") == "true"
    resource = watcher.selection.resource
    if "sendInitialEvents" in query and query.get("resourceVersionMatch") != "NotOlderThan":
        why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid("meta.k8s.io", "ListOptions", "", [forbidden_field("resourceVersionMatch", why)])
    if initial or version == 0:
        for record in store.select(watcher.selection):
            watcher.offer(watcher.render("ADDED", record))
        if initial and query.get("allowWatchBookmarks") == "true":
            watcher.offer(bookmark_line(resource, store.resource_version, initial_events_end=True))
        return
    watcher.after = version
    changes = store.changes_since(resource.plural, version)
    if changes is None:
        too_old = f"too old resource version: {version} ({store.compacted(resource.plural) + 1})"
        watcher.offer(error_line(expired(too_old).body()))
        watcher.end("clean")
        return
    for change in changes:
        if seen := watcher.selection.seen_change(change):
            watcher.offer(watcher.render(*seen))


def bookmark_line(resource: ResourceType, resource_version: int, *, initial_events_end: bool = False) -> bytes:
    metadata: dict[str, object] = {"resourceVersion": str(resource_version)}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    obj: dict[str, object] = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    if resource.has_status:
        # An empty object of the kind, as Go writes it.
        obj |= {"spec": {"containers": None} if resource.plural == "pods" else {}, "status": {}}
    return orjson.dumps({"type": "BOOKMARK", "object": obj}) + b"\n"


class _Stream:
    """One connection's loop."""

    def __init__(
        self, request: web.BaseRequest, response: web.StreamResponse, watcher: OpenWatch, store: ObjectStore,
        settings: StreamSettings, info: RequestInfo,
    ) -> None:  # fmt: skip
        self._request, self._response, self._watcher, self._store = request, response, watcher, store
        self._interval = settings.bookmark_interval_seconds
        self._bookmarks = info.query.get("allowWatchBookmarks") in {"true", "1"}
        seconds = float(info.query.get("timeoutSeconds") or settings.default_timeout_seconds)
        self._until, self._next_bookmark = monotonic() + seconds, monotonic() + self._interval

    async def run(self) -> None:
        watcher = self._watcher
        while True:
            if watcher.ended == "reset":
                reset_connection(self._request)
                return
            if lines := watcher.take():
                await self._response.write(b"".join(lines))
                continue
            if watcher.ended or monotonic() >= self._until:
                break
            await self._bookmark_if_due()
            await watcher.wait(max(0.0, self._wake_at() - monotonic()))
        if self._bookmarks and not watcher.ended and watcher.is_level:
            # Real servers send one more shortly before the time is up, so that the next watch starts where this ends.
            await self._response.write(self._bookmark())
        await self._response.write_eof()

    def _wake_at(self) -> float:
        return min(self._until, self._next_bookmark) if self._bookmarks else self._until

    async def _bookmark_if_due(self) -> None:
        if self._bookmarks and monotonic() >= self._next_bookmark:
            self._next_bookmark = monotonic() + self._interval
            if self._watcher.is_level:
                await self._response.write(self._bookmark())

    def _bookmark(self) -> bytes:
        return bookmark_line(self._watcher.selection.resource, self._store.resource_version)


async def hang() -> None:
    """Never returns: only the client's going or the server's end cancels it."""
    await asyncio.Event().wait()
