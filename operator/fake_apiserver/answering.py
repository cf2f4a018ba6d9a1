"""From a request to its answer: log, availability, authentication, authorization, faults, and then the operation.

The order is that of a real server, with the faults last before the operation. Nothing here decides what an
operation does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from .clock import WallClock, monotonic
from .connection import reset_connection
from .discovery import discovery_document, serves
from .faults import Fault, Faults
from .pod_proxy import ask_pod
from .reading import JSON, audit_id, read_object, send_list, send_object
from .registry import Registry
from .request_info import RequestInfo, parse_request
from .request_log import LoggedRequest, RequestLog
from .selectors import parse_field_selector
from .status import StatusError, forbidden, method_not_allowed, no_such_path
from .streaming import StreamSettings, hang, send_watch
from .watch import WatchHub
from .writing import decode_body, write

Authorizer = Callable[[RequestInfo], bool]
Tokens = set[str] | Callable[[str], bool]
ControlHandler = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]]

_PROBES = frozenset({"/healthz", "/livez", "/readyz"})
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
# Marks an answer that the API server itself did not give.
_BY_A_PROXY = "by a proxy"
CONTROL_PREFIX = "/_simulation/"


@dataclass(slots=True)
class Answerer:
    """Everything that an answer may depend on."""

    registry: Registry
    hub: WatchHub
    clock: WallClock
    requests: RequestLog
    faults: Faults
    watching: StreamSettings = field(default_factory=StreamSettings)
    tokens: Tokens | None = None
    """Accepted bearer tokens, a set that may change or a question; None accepts everybody."""
    authorize: Authorizer | None = None
    """Whether a request is allowed; None allows everything."""
    ready: bool = True
    """False answers 503 to everything, as a server does that has lost its etcd."""
    control: ControlHandler | None = None
    before_read: Callable[[str], None] = lambda _: None
    """Called with the plural of the kind that is about to be read."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The handler that the HTTP server calls for every request."""
        info = parse_request(request.method, request.path, dict(request.query), self.registry.store.kinds)
        raw = await request.read()
        if info.path.startswith(CONTROL_PREFIX) and self.control is not None:
            return await self.control(request, raw)
        entry = self._entry(request, info)
        self.requests.arrive(entry)
        try:
            response = await self._answer(request, info, raw, entry)
        except StatusError as error:
            response = self.refusal(error)
        if entry.code is None:
            self.requests.answer(entry, response.status)
        return self.dated(response)

    def _entry(self, request: web.BaseRequest, info: RequestInfo) -> LoggedRequest:
        return LoggedRequest(
            number=0, at=self.clock.now(), arrived_at=monotonic(), verb=info.verb, resource=info.resource_name,
            namespace=info.namespace, name=info.name, query=dict(info.query), path=info.path,
            user_agent=request.headers.get("User-Agent", ""), content_type=request.headers.get("Content-Type", ""),
        )  # fmt: skip

    def dated(self, response: web.StreamResponse) -> web.StreamResponse:
        """Set the server's own Date, which aiohttp would take from the host."""
        if not response.prepared:
            response.headers.setdefault("Date", self.clock.http_date())
            if not response.get(_BY_A_PROXY):
                response.headers["Audit-Id"] = audit_id()
            response.headers.setdefault("Cache-Control", "no-cache, private")
            response.headers["Server"] = ""
        return response

    def refusal(self, error: StatusError) -> web.Response:
        headers = {"Retry-After": str(error.retry_after_seconds)} if error.retry_after_seconds else {}
        return web.Response(
            status=error.code, body=orjson.dumps(error.body()) + b"\n", content_type=JSON, headers=headers
        )

    async def _answer(
        self, request: web.BaseRequest, info: RequestInfo, raw: bytes, entry: LoggedRequest
    ) -> web.StreamResponse:
        if info.path in _PROBES:
            return web.Response(text="ok" if self.ready else "[-]etcd failed", status=200 if self.ready else 500)
        if not self.ready:
            raise StatusError(503, "the server is currently unable to handle the request")
        self._authenticate(request)
        self._authorize(info)
        body = None
        if info.verb in _WRITES:
            body = decode_body(raw, entry.content_type, is_patch=info.verb == "patch")
        elif info.resource is not None:
            self.before_read(info.resource.plural)
        entry.body = body
        fault = self.faults.take(info, entry.user_agent, self._node_of(info)) if self.faults.rules else None
        if fault is None:
            return await self._operate(request, info, body, entry)
        return await self._operate_with(fault, request, info, body, entry)

    def _authenticate(self, request: web.BaseRequest) -> None:
        if self.tokens is None:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        known = self.tokens(token) if callable(self.tokens) else token in self.tokens
        if scheme.lower() != "bearer" or not known:
            raise StatusError(401, "Unauthorized")

    def _authorize(self, info: RequestInfo) -> None:
        if self.authorize is None or info.resource is None or self.authorize(info):
            return
        group = info.resource.group
        where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
        why = (
            f'User "system:simulation" cannot {info.verb} resource "{info.resource_name}" '
            f'in API group "{group}" {where}'
        )
        raise forbidden(group, info.resource.plural, info.name, why)

    def _node_of(self, info: RequestInfo) -> str:
        """The node that a request concerns, for matching faults; "" where there is none."""
        if info.resource is None:
            return ""
        if info.resource.plural == "nodes":
            return info.name
        if info.resource.plural != "pods":
            return ""
        if info.name:
            record = self.registry.store.get("pods", info.namespace, info.name)
            return record.node_name if record is not None else ""
        terms = parse_field_selector(info.query.get("fieldSelector", ""), info.resource)
        return next((term.value for term in terms if term.field == "spec.nodeName" and term.equal), "")

    async def _operate_with(
        self, fault: Fault, request: web.BaseRequest, info: RequestInfo, body: Any, entry: LoggedRequest
    ) -> web.StreamResponse:
        response = await self._go_wrong(fault, request, info, body, entry)
        if fault.date_ahead_seconds and not response.prepared:
            response.headers["Date"] = self.clock.http_date(fault.date_ahead_seconds)
        return response

    async def _go_wrong(
        self, fault: Fault, request: web.BaseRequest, info: RequestInfo, body: Any, entry: LoggedRequest
    ) -> web.StreamResponse:
        entry.faulty = True
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        breaks = fault.hang or fault.reset or fault.status is not None
        if not breaks:
            return await self._operate(request, info, body, entry)
        if fault.when == "after":
            # The request takes effect, and its answer is lost.
            self._take_effect(info, body, entry)
        if fault.hang:
            await hang()
        if fault.reset:
            reset_connection(request)
            return web.Response(status=499)
        error = fault.error()
        if fault.plain_text:
            return web.Response(status=error.code, text=error.message + "\n", headers=dict(fault.headers))
        if fault.html:
            page = f"<html><body><h1>{error.code} {error.message}</h1></body></html>\n"
            answer = web.Response(status=error.code, text=page, content_type="text/html", headers=dict(fault.headers))
            answer[_BY_A_PROXY] = True
            return answer
        response = self.refusal(error)
        response.headers.update(fault.headers)
        return response

    def _take_effect(self, info: RequestInfo, body: Any, entry: LoggedRequest) -> None:
        if info.verb not in _WRITES or info.resource is None:
            return
        try:
            write(self.registry, info, body, entry.content_type, entry.user_agent)
        except StatusError:
            return

    async def _operate(
        self, request: web.BaseRequest, info: RequestInfo, body: Any, entry: LoggedRequest
    ) -> web.StreamResponse:
        resource = info.resource
        if resource is None:
            kinds = self.registry.store.kinds
            if not serves(info.path, kinds):
                return web.Response(status=404, text="404 page not found\n")
            if info.method not in {"GET", "HEAD"}:
                raise no_such_path()
            document = discovery_document(info.path, request.host, kinds)
            return web.Response(body=orjson.dumps(document) + b"\n", content_type=JSON)
        if info.subresource and info.subresource not in {s.name for s in resource.subresources}:
            raise no_such_path()
        match info.verb:
            case "watch":
                self.requests.answer(entry, 200)
                return await send_watch(request, info, self.registry.store, self.hub, self.clock, self.watching)
            case "list":
                return await send_list(request, info, self.registry.store, self.clock)
            case "get" if info.subresource == "proxy":
                return await ask_pod(self.registry, info)
            case "get":
                return send_object(request, read_object(self.registry, info), info, self.clock)
            case verb if verb in _WRITES:
                answer = write(self.registry, info, body, entry.content_type, entry.user_agent)
                return web.Response(status=answer.code, body=answer.body, content_type=JSON)
        raise method_not_allowed()
