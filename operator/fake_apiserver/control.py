"""Control over HTTP below `/_simulation/`, for tests and benchmarks that run in another process.

GET  stats                       counts of objects and requests, open watches, resourceVersion
GET  requests                    logged requests
POST taint, untaint              {"nodes": [names] or null for all, "key", "value", "effect"}
POST faults / DELETE faults      a fault's attributes / remove all faults
POST watches/cut, watches/calm   {"resource", "node", ..., "reset"}: see `watch.WatchMatch`
POST ready                       {"ready": bool}
POST compact                     forget the history
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from .request_log import LoggedRequest
from .status import JsonObject
from .watch import WatchMatch

if TYPE_CHECKING:
    from .server import ApiServer


class Control:
    """One method per path; every body and answer is JSON."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._actions: dict[tuple[str, str], Callable[[JsonObject], Any]] = {
            ("GET", "stats"): self._stats,
            ("GET", "requests"): self._requests,
            ("POST", "taint"): self._taint,
            ("POST", "untaint"): self._untaint,
            ("POST", "faults"): self._add_fault,
            ("DELETE", "faults"): self._clear_faults,
            ("POST", "watches/cut"): self._cut,
            ("POST", "watches/calm"): self._calm,
            ("POST", "ready"): self._ready,
            ("POST", "compact"): self._compact,
        }

    async def handle(self, request: web.BaseRequest, raw: bytes) -> web.StreamResponse:
        """Answers 404 for unknown paths, 400 with a sentence for invalid bodies."""
        action = self._actions.get((request.method, request.path.removeprefix("/_simulation/")))
        if action is None:
            return web.Response(status=404, text=__doc__ or "")
        try:
            answer = action(orjson.loads(raw) if raw else {})
        except (KeyError, TypeError, ValueError) as error:
            return web.Response(status=400, text=f"{type(error).__name__}: {error}\n")
        return web.Response(body=orjson.dumps(answer) + b"\n", content_type="application/json")

    def _stats(self, _: JsonObject) -> JsonObject:
        server = self._server
        return {
            "resourceVersion": server.store.resource_version,
            "objects": {plural: server.store.count(plural) for plural in server.store.kinds},
            "watches": {plural: len(server.watches.select(resource=plural)) for plural in server.store.kinds},
            "requests": [
                {"verb": verb, "resource": resource, "code": code, "count": count}
                for (verb, resource, code), count in server.requests.counts.items()
            ],
        }

    def _requests(self, _: JsonObject) -> list[JsonObject]:
        names = [f.name for f in fields(LoggedRequest)]
        return [{name: getattr(entry, name) for name in names} for entry in self._server.requests.entries]

    def _nodes(self, body: JsonObject) -> list[str]:
        names = body.get("nodes")
        return names if names is not None else [node["metadata"]["name"] for node in self._server.list("nodes")]

    def _taint(self, body: JsonObject) -> JsonObject:
        nodes = self._nodes(body)
        for node in nodes:
            effect, added = body.get("effect", "NoExecute"), body.get("timeAdded")
            self._server.taint(node, body["key"], body.get("value", ""), effect, time_added=added)
        return {"nodes": len(nodes)}

    def _untaint(self, body: JsonObject) -> JsonObject:
        nodes = self._nodes(body)
        for node in nodes:
            self._server.untaint(node, body["key"], body.get("effect"))
        return {"nodes": len(nodes)}

    def _add_fault(self, body: JsonObject) -> JsonObject:
        self._server.faults.add(**body)
        return {"faults": len(self._server.faults.rules)}

    def _clear_faults(self, _: JsonObject) -> JsonObject:
        self._server.faults.clear()
        return {"faults": 0}

    def _cut(self, body: JsonObject) -> JsonObject:
        reset = bool(body.pop("reset", False))
        return {"watches": self._server.watches.cut(WatchMatch(**body), reset=reset)}

    def _calm(self, _: JsonObject) -> JsonObject:
        self._server.watches.calm()
        return {}

    def _ready(self, body: JsonObject) -> JsonObject:
        self._server.ready = bool(body["ready"])
        return {"ready": self._server.ready}

    def _compact(self, _: JsonObject) -> JsonObject:
        self._server.store.compact()
        return {"resourceVersion": self._server.store.resource_version}
