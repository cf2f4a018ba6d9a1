"""HTTP sessions towards the API server: one way of authorization, TLS and connecting, for calls and watches alike.

Does not know what is asked for (``api_client``, the Kopf shell) nor where credentials come from (``credentials``).
"""

import base64
import contextlib
import socket
import ssl
import urllib.request
from collections.abc import Sequence
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from taint_eviction.adapters.fence import ends_pod
from taint_eviction.adapters.token_sources import CredentialsError, TokenSource

# A peer that vanished without a word is noticed after about 30 s on any connection, busy or idle: half the time that a
# load balancer takes to move an address, and long enough for a hiccup.
_KEEPALIVE_IDLE_SECONDS = 15
_KEEPALIVE_INTERVAL_SECONDS = 5
_KEEPALIVE_PROBES = 3
_UNACKNOWLEDGED_MILLISECONDS = 30_000


class AuthorizationMiddleware:
    """Puts a fresh ``Authorization`` on each request; where the answer is 401, asks for a newer one, once.

    What ends a pod is sent once and no more: whoever sends it decides anew before it does so again.

    Only requests to the API server at ``url`` get it: a redirect elsewhere must not be told the token. ``proxy`` and
    ``tls_server_name`` are put on it as well, None for none: aiohttp takes them by request only, and others who use the
    session do not know them.
    """

    def __init__(
        self, source: TokenSource, url: str, proxy: str | None = None, tls_server_name: str | None = None
    ) -> None:
        self._source = source
        self._origin = URL(url).origin()
        self._proxy = URL(proxy) if proxy else None
        self._tls_server_name = tls_server_name

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send the request."""
        if request.url.origin() != self._origin:
            return await handler(request)
        if self._proxy is not None:
            request.proxy = self._proxy.with_user(None)
            if self._proxy.user is not None:
                login = f"{self._proxy.user}:{self._proxy.password or ''}"
                # aiohttp turns it into Proxy-Authorization, towards the proxy alone where the API server is behind TLS.
                basic = f"Basic {base64.b64encode(login.encode()).decode()}"
                request.proxy_headers = CIMultiDict({aiohttp.hdrs.AUTHORIZATION: basic})
        if self._tls_server_name is not None:
            request.server_hostname = self._tls_server_name
        sent = await self._authorize(request, None)
        if ends_pod(request.method, request.url):
            return await self._send_once(request, handler, sent)
        answer = await handler(request)
        if answer.status != 401:
            return answer
        if await self._authorize(request, sent or "") == sent:
            return answer
        answer.release()
        return await handler(request)

    async def _send_once(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, sent: str | None
    ) -> aiohttp.ClientResponse:
        """Send what destroys no second time: by then it may be seconds ago that it was decided, and by a leader.

        A newer token is only made ready for the next attempt. And aiohttp must not see that the connection broke: it
        would send a DELETE again by itself.
        """
        try:
            answer = await handler(request)
        except aiohttp.ClientConnectorError:
            raise  # nothing was sent, and aiohttp knows
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise aiohttp.ClientPayloadError(str(error) or type(error).__name__) from error
        if answer.status == 401:
            await self._authorize(request, sent or "")
        return answer

    async def _authorize(self, request: aiohttp.ClientRequest, rejected: str | None) -> str | None:
        try:
            value = await self._source.authorization(rejected)
        except CredentialsError as error:
            # aiohttp's word for it, so that whoever uses the session treats it like an API server out of reach.
            raise aiohttp.ClientConnectionError(str(error)) from error
        if value is not None:
            request.headers[aiohttp.hdrs.AUTHORIZATION] = value
        return value


def make_connector(ssl_context: ssl.SSLContext | None) -> aiohttp.TCPConnector:
    """Make the pool of connections: without a limit, so that no call ever waits for a watch to end.

    What bounds connections is who uses them: workers, concurrent lists, watches.
    """
    tls: Any = ssl_context if ssl_context is not None else True
    return aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=_keepalive_socket)


def environment_proxy(url: str) -> str | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for a URL, None for none.

    Asked once: aiohttp's ``trust_env`` reads them and ~/.netrc in a thread with every single request, which made each
    of them three times as slow.
    """
    parsed = URL(url)
    if parsed.host is None or urllib.request.proxy_bypass(parsed.host):
        return None
    return urllib.request.getproxies().get(parsed.scheme)


def make_session(
    connector: aiohttp.BaseConnector,
    middlewares: Sequence[aiohttp.ClientMiddlewareType],
    user_agent: str,
    response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
    request_class: type[aiohttp.ClientRequest] = aiohttp.ClientRequest,
    trace_configs: Sequence[aiohttp.TraceConfig] = (),
) -> aiohttp.ClientSession:
    """Make a session over a shared connector, which stays open when the session is closed."""
    return aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        # Nothing is packed, as among the parts of a control plane: that costs an API server more than the way does.
        headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
        response_class=response_class,
        request_class=request_class,
        middlewares=tuple(middlewares),
        trace_configs=list(trace_configs),
        cookie_jar=aiohttp.DummyCookieJar(),
        # Objects may be 1.5 MB and more; aiohttp's default of 64 KB stops and starts reading all the time.
        read_bufsize=2**21,
    )


def _keepalive_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": _KEEPALIVE_IDLE_SECONDS,
        "TCP_KEEPINTVL": _KEEPALIVE_INTERVAL_SECONDS,
        "TCP_KEEPCNT": _KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": _UNACKNOWLEDGED_MILLISECONDS,
    }
    for option, value in wanted.items():
        # Not every platform has each of them, and without them only half-open connections are noticed later.
        with contextlib.suppress(AttributeError, OSError):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
