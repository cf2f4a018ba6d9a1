"""One request to the API server and its whole answer: in bounded time, counted, with its ``Date`` heard.

The only place where HTTP libraries raise: whatever goes wrong becomes a ``CallFailed`` with a plain sentence. Does
not know what the objects mean (``api_client``).

Made over the session of ``kubernetes.aio``'s ``ApiClient``, but without its own ways of calling: the typed APIs cost 25
MB and 0.5 s at start, and models of objects that are never needed; the bare ``call_api`` 0.02 ms of CPU a call.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from kubernetes.aio.client import ApiClient

from taint_eviction.adapters.answers import (
    Outcome,
    Refusal,
    outcome_of,
    read_date,
    read_refusal,
    refusal_text,
    retry_after_seconds,
)
from taint_eviction.adapters.evictions import block_of
from taint_eviction.adapters.fence import NotSent
from taint_eviction.runtime.ports import CallFailed

FIELD_MANAGER = "taint-eviction-controller"

_NO_REFUSAL = Refusal("", "", {})
_METHODS = {"get": "GET", "list": "GET", "patch": "PATCH", "delete": "DELETE", "create": "POST", "update": "PUT"}
_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}
_PATCH_HEADERS = {**_HEADERS, "Content-Type": "application/strategic-merge-patch+json"}
# The whole of a call is bounded here, once; a session's own bound would be another timer.
_UNBOUNDED = aiohttp.ClientTimeout()


@dataclass(frozen=True, slots=True)
class Call:
    """A request. ``resource`` is plural/subresource, as in RBAC; ``name`` "" for lists and creations.

    ``group`` is the API group with its version, "" for the core group. ``url_path``: what is no resource, as /version.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    query: Mapping[str, str | int] | None = None
    body: Mapping[str, Any] | None = None
    group: str = ""
    url_path: str = ""

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
class Answer:
    """What came back: ``body`` is decoded where the outcome is DONE, None else."""

    outcome: Outcome
    status: int
    body: Any
    failure: CallFailed | None

    def need(self, *expected: Outcome) -> "Answer":
        """Return this answer if its outcome is among those expected, or raise what the server said."""
        if self.outcome in expected:
            return self
        raise self.failure or CallFailed(f"unexpected answer (HTTP {self.status})", status=self.status)


class ApiCalls:
    """Makes requests, any number at a time.

    ``heard_date`` is given the ``Date`` of every answer (seconds since the epoch); ``counted`` each request's verb and
    resource, and the HTTP status or one word for why there was none.
    """

    def __init__(
        self,
        client: ApiClient,
        timeout_seconds: float,
        heard_date: Callable[[float], None],
        counted: Callable[[str, str, str], None],
    ) -> None:
        self._rest = client.rest_client
        self._base_url = client.configuration.host.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._heard_date = heard_date
        self._counted = counted

    async def make(self, call: Call) -> Answer:
        """Make a request and read its answer to the end, all within the timeout; raise ``CallFailed`` if none came."""
        session = self._rest.pool_manager
        if session is None or session.closed:
            raise CallFailed("the connection to the API server was closed: this process is ending")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                status, headers, content = await self._exchange(session, call)
        except TimeoutError:
            self._counted(call.verb, call.resource, "timeout")
            raise CallFailed(f"no answer of the API server within {self._timeout_seconds:g} s") from None
        except NotSent as why:
            self._counted(call.verb, call.resource, "held")
            raise CallFailed(f"not sent: {why}") from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            self._counted(call.verb, call.resource, "connection")
            raise CallFailed(_connection_trouble(error)) from error
        self._counted(call.verb, call.resource, str(status))
        return _read(call, status, headers, content)

    async def _exchange(self, session: aiohttp.ClientSession, call: Call) -> tuple[int, Mapping[str, str], bytes]:
        answer = await session.request(
            _METHODS[call.verb],
            self._base_url + call.path,
            data=None if call.body is None else orjson.dumps(call.body),
            headers=_PATCH_HEADERS if call.verb == "patch" else _HEADERS,
            timeout=_UNBOUNDED,
        )
        date = read_date(answer.headers.get("Date", ""))
        if date is not None:
            self._heard_date(date)
        # Once read to the end, or failed at it, it needs no closing.
        return answer.status, answer.headers, await answer.read()


def _read(call: Call, status: int, headers: Mapping[str, str], content: bytes) -> Answer:
    refusal = _NO_REFUSAL if status < 300 else read_refusal(content)
    outcome = outcome_of(status, refusal, call.resource.partition("/")[0], call.name)
    if outcome is Outcome.DONE:
        try:
            return Answer(outcome, status, orjson.loads(content), None)
        except ValueError:
            raise CallFailed(f"the API server's answer is no JSON (HTTP {status})", status=status) from None
    failure = CallFailed(
        refusal_text(status, refusal),
        status=status,
        retry_after_seconds=retry_after_seconds(headers, refusal),
        block=block_of(status, refusal),
    )
    return Answer(outcome, status, None, failure)


def _connection_trouble(error: BaseException) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return f"the API server's answer was cut off: {said}"[:300]
    return f"the API server cannot be reached: {said}"[:300]
