"""One request to the API server and its complete answer: bounded in time, counted, and with its ``Date`` used.

Only the API server's own ``Date`` counts: that of an answer with an ``Audit-Id``. Some proxies remove that header; so
the ``Date`` of a success with JSON, or of a refusal with a ``Status``, is passed on as well, marked as plain. Any other
answer may come from a proxy or load balancer, whose clock does not date objects. Nor does that of a pod whose answer
the API server passes on.

An answer about another object than the one that was asked about is no answer: a proxy may mix answers up, and one that
comes twice on a connection is taken for the answer to the next request there.

Exceptions of HTTP libraries end here: each becomes a ``CallFailed`` with a plain sentence. ``api_reader`` and
``api_writer`` interpret the objects.

The requests use the session of ``kubernetes.aio``'s ``ApiClient``, but not its methods. The typed APIs cost 25 MB and
0.5 s at start for models that are never used; ``call_api`` costs 0.02 ms of CPU per call.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from kubernetes.aio.client import ApiClient

from taint_eviction.core.text import one_line
from taint_eviction.files.json_lists import CHUNK_BYTES, MOST_ITEM_BYTES, TooLong, decode, read_bytes, read_items
from taint_eviction.kube.answers import (
    Outcome,
    Refusal,
    failure_reason,
    is_certain,
    may_pass,
    outcome_of,
    read_date,
    read_refusal,
    refusal_text,
    retry_after_seconds,
)
from taint_eviction.kube.evictions import block_of
from taint_eviction.login.fence import NotSent, asking_at_last
from taint_eviction.runtime.ports import CallFailed, FailureReason, Ready
from taint_eviction.runtime.read_waits import ReadWaits

FIELD_MANAGER = "taint-eviction-controller"

# For requests that webhooks may see. The API server waits for one that hangs for 10 s by default, and for 30 s at most,
# and ends a request whose sender waits no longer.
ADMISSION_SECONDS = 35.0

_NO_REFUSAL = Refusal("", "", {})
_METHODS = {"get": "GET", "list": "GET", "patch": "PATCH", "delete": "DELETE", "create": "POST", "update": "PUT"}
# Reads may follow redirects. Any other call would be done elsewhere, and its answer taken for the API server's.
_READS = frozenset({"get", "list"})
# A list may have many objects; they are read one after the other.
_MOST_LIST_BYTES = 1 << 28
# A refusal is a Status with a message. Decoding 16 MB of anything else would hold the event loop for half a second.
_MOST_REFUSAL_BYTES = 1 << 20
_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}
_PATCH_HEADERS = {**_HEADERS, "Content-Type": "application/strategic-merge-patch+json"}
_JSON_PATCH_HEADERS = {**_HEADERS, "Content-Type": "application/json-patch+json"}
_AUDIT_ID = "Audit-Id"
# By resource, the kinds of objects whose answers are compared with what was asked about.
_KINDS = {"nodes": "Node", "pods": "Pod", "leases": "Lease", "configmaps": "ConfigMap"}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request. ``resource`` is plural/subresource as in RBAC; ``name`` is "" to list or create.

    ``group`` is the API group with its version, "" for the core group. ``url_path`` replaces all of these for a path
    that is no resource, such as /version. A patch is a strategic merge patch if ``body`` is an object, and a JSON patch
    if it is a list. ``accept``: the form in which the answer is asked for, "" for JSON.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    query: Mapping[str, str | int] | None = None
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    group: str = ""
    url_path: str = ""
    accept: str = ""

    @property
    def path(self) -> str:
        """The path of the request with its query."""
        if self.url_path:
            return self.url_path
        plural, _, subresource = self.resource.partition("/")
        parts = [f"/apis/{self.group}" if self.group else "/api/v1"]
        if self.namespace:
            parts.append(f"namespaces/{quote(self.namespace, safe='')}")
        parts.append(plural)
        if self.name:
            parts.append(quote(self.name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts) + (f"?{urlencode(self.query)}" if self.query else "")


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer. ``body`` is decoded JSON if the outcome is DONE, otherwise None.
    ``lacks_right``: the API server itself says that the user may not do this. A proxied pod or a service mesh may
    answer 403 as well.
    """

    outcome: Outcome
    status: int
    body: Any
    failure: CallFailed | None
    lacks_right: bool = False

    def need(self, *expected: Outcome) -> "ApiAnswer":
        """Return this answer if its outcome is expected; otherwise raise the server's refusal."""
        if self.outcome in expected:
            return self
        raise self.failure or CallFailed(f"unexpected answer (HTTP {self.status})", reason=FailureReason.OTHER)


class ApiCalls:
    """Makes requests, any number at a time, each within ``timeout_seconds`` unless its caller waits longer, or it is a
    read that had no answer before (``ReadWaits``).

    ``heard_date`` is called with the ``Date`` (seconds since the epoch) of every answer of the API server itself, with
    the number of its connection, and with whether it has an audit ID.
    ``counted`` is called with each request's verb, resource, and HTTP status, or one word for why there is no status.
    """

    def __init__(
        self,
        client: ApiClient,
        timeout_seconds: float,
        heard_date: Callable[[float, int, bool], None],
        counted: Callable[[str, str, str], None],
    ) -> None:
        self._rest = client.rest_client
        self._base_url = client.configuration.host.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._waits = ReadWaits(timeout_seconds)
        # ``make`` bounds the whole call; the session's other timeouts would only add timers. A connection that does not
        # come about is not worth a longer wait.
        self._connecting = aiohttp.ClientTimeout(sock_connect=timeout_seconds)
        self._heard_date = heard_date
        self._counted = counted

    async def make(
        self,
        call: ApiRequest,
        ready: Ready | None = None,
        session: aiohttp.ClientSession | None = None,
        take: Callable[[Any], None] | None = None,
        max_seconds: float | None = None,
    ) -> ApiAnswer:
        """Make a request and read the complete answer within the timeout of all calls, or ``max_seconds`` if that is
        longer; raise ``CallFailed`` if there is none, or if it has more bytes than one object may have: 16 MB.

        ``take`` is called with each item of a list as it arrives, and the body of the answer has none; then an answer
        may have 256 MB.

        ``session`` None: the client's.

        ``ready`` is awaited before a request that ends a pod is sent (see ``runtime.ports``). Its time does not count:
        the timeout starts again after it.
        """
        session = session or self._rest.pool_manager
        if session is None or session.closed:
            raise CallFailed("the connection to the API server was closed: this process is ending")
        read = _read_of(call)
        seconds = max(self._timeout_seconds if read is None else self._waits.seconds(read), max_seconds or 0.0)
        began_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds) as limit:
                with nullcontext() if ready is None else asking_at_last(lambda: _untimed(ready, limit, seconds)):
                    answer, body = await self._exchange(session, call, take)
        except TimeoutError:
            self._counted(call.verb, call.resource, "timeout")
            if read is not None and limit.expired():
                self._waits.unanswered(read, seconds)
            unanswered = f"no answer from the API server within {seconds:g} s"
            raise CallFailed(unanswered, may_pass=True) from None
        except NotSent as why:
            self._counted(call.verb, call.resource, "held")
            raise CallFailed(f"not sent: {why}") from None
        except TooLong as why:
            self._counted(call.verb, call.resource, "connection")
            raise CallFailed(f"the API server's answer is not read to its end: {why}") from None
        except orjson.JSONEncodeError as why:
            # An object is written as it was read, and some are nested more deeply than can be written.
            self._counted(call.verb, call.resource, "held")
            raise CallFailed(f"not sent: it cannot be written as JSON: {why}") from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            self._counted(call.verb, call.resource, "connection")
            raise CallFailed(_connection_trouble(error), may_pass=True) from error
        if read is not None:
            self._waits.answered(read, asyncio.get_running_loop().time() - began_at)
        status, headers = answer.status, answer.headers
        self._counted(call.verb, call.resource, str(status))
        refusal = read_refusal(body) if isinstance(body, bytes) else _NO_REFUSAL
        understood = _understood(call, status, headers, body, refusal)
        if _AUDIT_ID not in headers and (understood.outcome is Outcome.DONE or refusal.is_status):
            self._hear_date(call, answer, audited=False)
        return understood

    def _hear_date(self, call: ApiRequest, answer: aiohttp.ClientResponse, *, audited: bool) -> None:
        date = read_date(answer.headers.get("Date", ""))
        if date is not None and not call.resource.endswith("/proxy"):
            self._heard_date(date, getattr(answer, "connection_number", 0), audited)

    async def _exchange(
        self, session: aiohttp.ClientSession, call: ApiRequest, take: Callable[[Any], None] | None
    ) -> tuple[aiohttp.ClientResponse, Any]:
        """Return the answer and its body: bytes of a refusal, JSON of a success, or what kept it from being decoded."""
        answer = await session.request(
            _METHODS[call.verb],
            self._base_url + call.path,
            data=None if call.body is None else orjson.dumps(call.body),
            headers=_headers(call),
            timeout=self._connecting,
            allow_redirects=call.verb in _READS,
        )
        if _AUDIT_ID in answer.headers:
            # Not once its body has arrived, which may take long: the date is that of its head.
            self._hear_date(call, answer, audited=True)
        try:
            body = await _body(answer, take)
        except BaseException:
            answer.close()  # An answer that was read to its end needs no closing.
            raise
        return answer, body


async def _untimed(ready: Ready, limit: asyncio.Timeout, seconds: float) -> None:
    limit.reschedule(None)
    await ready()
    limit.reschedule(asyncio.get_running_loop().time() + seconds)


async def _body(answer: aiohttp.ClientResponse, take: Callable[[Any], None] | None) -> Any:
    # What is compressed is decompressed piece by piece, too.
    chunks = answer.content.iter_chunked(CHUNK_BYTES)
    if answer.status < 300 and take is not None:
        try:
            return await read_items(chunks, take, _MOST_LIST_BYTES)
        except orjson.JSONDecodeError as error:
            return error
    if answer.status >= 300:
        return await read_bytes(chunks, _MOST_REFUSAL_BYTES)
    try:
        return decode(await read_bytes(chunks, MOST_ITEM_BYTES))
    except orjson.JSONDecodeError as error:
        return error


def _read_of(call: ApiRequest) -> Hashable | None:
    """Return what a read asks about, however much of it one answer has; None: it is no read, or has its own bound."""
    if call.verb not in _READS or call.url_path or call.resource == "leases":
        return None
    return call.verb, call.resource, call.namespace, call.name, (call.query or {}).get("fieldSelector")


def _headers(call: ApiRequest) -> Mapping[str, str]:
    if call.accept:
        return {**_HEADERS, "Accept": call.accept}
    if call.verb != "patch":
        return _HEADERS
    return _PATCH_HEADERS if isinstance(call.body, Mapping) else _JSON_PATCH_HEADERS


def _understood(call: ApiRequest, status: int, headers: Mapping[str, str], body: Any, refusal: Refusal) -> ApiAnswer:
    outcome = outcome_of(status, refusal, call.resource.partition("/")[0], call.name)
    if outcome is Outcome.DONE:
        if isinstance(body, orjson.JSONDecodeError):
            raise CallFailed(f"the API server's answer is not JSON (HTTP {status})", reason=FailureReason.OTHER)
        if (asked := _not_about(call, body)) is not None:
            # Of a write nobody knows whether it was done.
            reason = FailureReason.OTHER if call.verb in _READS else FailureReason.NO_ANSWER
            raise CallFailed(f"the API server's answer is not about {asked}", reason=reason, may_pass=True)
        return ApiAnswer(outcome, status, body, None)
    failure = CallFailed(
        refusal_text(status, refusal),
        reason=failure_reason(status),
        retry_after_seconds=retry_after_seconds(headers, refusal),
        block=block_of(status, refusal),
        denied=refusal.denied,
        evacuates=refusal.evacuates,
        # A proxy may answer for an API server that goes on. A busy API server answers in plain text.
        certain=is_certain(status) and (refusal.is_status or _AUDIT_ID in headers),
        may_pass=may_pass(status),
    )
    return ApiAnswer(outcome, status, None, failure, lacks_right=status == 403 and refusal.is_status)


def _not_about(call: ApiRequest, body: Any) -> str | None:
    """Return what was asked about if the answer to a read, or to a write of an object, is about something else."""
    plural, _, subresource = call.resource.partition("/")
    kind = _KINDS.get(plural)
    if kind is None or subresource not in ("", "status") or call.verb == "delete":
        return None
    about = body if isinstance(body, Mapping) else {}
    if call.verb == "list":
        listed = about.get("kind") in (f"{kind}List", "PartialObjectMetadataList")
        return None if listed else f"a list of {plural}"
    created = call.body.get("metadata") or {} if call.verb == "create" and isinstance(call.body, Mapping) else {}
    name = call.name or created.get("name")
    metadata = about.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    answered = about.get("kind"), metadata.get("namespace") or "", metadata.get("name")
    named = f"{call.namespace}/{name}" if call.namespace else f"{name}"
    return None if answered == (kind, call.namespace, name) else f"{kind} {named}"


def _connection_trouble(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return one_line(f"the API server's answer was cut off: {one_line(error)}")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return one_line(f"the proxy {error.host}:{error.port} cannot be reached: {no_connection(error)}")
    return one_line(f"the API server cannot be reached: {no_connection(error)}")


def no_connection(error: BaseException) -> str:
    """Return why there is no connection, in the words of the system: aiohttp's text has Python objects in it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return one_line(error.certificate_error)
    if not isinstance(error, aiohttp.ClientConnectorError):
        return one_line(error)
    cause = error.os_error
    # Those have numbers of their own. asyncio puts the address where the system's words were.
    numbered = not isinstance(cause, ssl.SSLError | socket.gaierror) and cause.errno in errno.errorcode
    return os.strerror(cause.errno) if numbered and cause.errno else one_line(cause.strerror or cause)
