"""HTTP sessions to the API server: authorization, TLS and connections, the same for calls and watches.

This module neither makes requests (``api_calls``, the Kopf shell) nor finds credentials (``credentials``).
"""

import base64
import contextlib
import ipaddress
import itertools
import logging
import socket
import ssl
import urllib.request
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from taint_eviction.login.fence import ends_pod
from taint_eviction.login.token_sources import CredentialsError, TokenSource

logger = logging.getLogger(__name__)

# A peer that is gone without closing its connections is detected after about 30 s, on busy and idle connections: half
# the time that a load balancer needs to move an address, and longer than a short interruption.
_KEEPALIVE_IDLE_SECONDS = 15
_KEEPALIVE_INTERVAL_SECONDS = 5
_KEEPALIVE_PROBES = 3
_UNACKNOWLEDGED_MILLISECONDS = 30_000


# A number for each connection, as long as it exists.
_numbers: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count(1)


class NumberedResponse(aiohttp.ClientResponse):
    """A response that knows on which connection it came: ``connection_number`` is never used for another one.

    aiohttp takes the connection away from a response as soon as that has been read.
    """

    connection_number = 0

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Receive the head of the response."""
        if connection.protocol is not None:
            self.connection_number = _numbers.setdefault(connection.protocol, next(_next_number))
        return await super().start(connection)


class AuthorizationMiddleware:
    """Sets a current ``Authorization`` on each request. After a 401 it retries once with newer credentials.

    A request that ends a pod is sent only once: its sender decides again before it sends another one.

    Only requests to the API server at ``url`` get the token: a redirect must not carry it elsewhere. Over plain http
    they get none, except on this machine and without a proxy: everybody on the way could read it. They also get
    ``proxy`` and ``tls_server_name``, None for none: aiohttp accepts these for a request only, and the other users of a
    session do not know them. ``heard`` is called with whether the API server, or the client, accepts the other side:
    False after a 401 and after a certificate that cannot be verified.
    """

    def __init__(
        self,
        source: TokenSource,
        url: str,
        proxy: str | None = None,
        tls_server_name: str | None = None,
        heard: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._origin = URL(url).origin()
        self._proxy = URL(proxy) if proxy else None
        self._tls_server_name = tls_server_name
        self._heard = heard
        self._said_unsent = False
        here = self._proxy is None and _is_loopback(self._origin.host or "")
        self._sends_credentials = self._origin.scheme == "https" or here

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
                # aiohttp sends it as Proxy-Authorization, and only to the proxy where the API server uses TLS.
                basic = f"Basic {base64.b64encode(login.encode()).decode()}"
                request.proxy_headers = CIMultiDict({aiohttp.hdrs.AUTHORIZATION: basic})
        if self._tls_server_name is not None:
            request.server_hostname = self._tls_server_name
        sent = await self._authorize(request, None)
        try:
            answer = await self._send(request, handler, sent)
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError):
            self._heard(False)
            raise
        self._heard(answer.status != 401)
        return answer

    async def _send(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, sent: str | None
    ) -> aiohttp.ClientResponse:
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
        """Send a destructive request only once: at a second time its decision could be seconds old.

        After a 401 a newer token is fetched for the next attempt only. A broken connection is reported to aiohttp as
        another error: aiohttp itself would send the DELETE again.
        """
        try:
            answer = await handler(request)
        except aiohttp.ClientConnectorError:
            raise  # Nothing was sent, and aiohttp does not retry.
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise aiohttp.ClientPayloadError(str(error) or type(error).__name__) from error
        if answer.status == 401:
            await self._authorize(request, sent or "")
        return answer

    async def _authorize(self, request: aiohttp.ClientRequest, rejected: str | None) -> str | None:
        try:
            value = await self._source.authorization(rejected)
        except CredentialsError as error:
            # An error of aiohttp: users of the session handle it like an API server that cannot be reached.
            raise aiohttp.ClientConnectionError(str(error)) from error
        if value is not None and not self._sends_credentials:
            if not self._said_unsent:
                logger.warning("%s is plain http: credentials are not sent", self._origin)
                self._said_unsent = True
            return None
        if value is not None:
            request.headers[aiohttp.hdrs.AUTHORIZATION] = value
        return value


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_connector(ssl_context: ssl.SSLContext | None) -> aiohttp.TCPConnector:
    """Make the pool of connections, without a limit, so that no call waits for a watch to end.

    The number of workers, concurrent lists and watches bounds the number of connections.
    """
    tls: Any = ssl_context if ssl_context is not None else True
    return aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=_keepalive_socket)


def environment_proxy(url: str) -> str | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for a URL; None for none, and on this machine.

    NO_PROXY may have networks, as in kubectl: Python's own reading of it has names and addresses only.

    Called once: aiohttp's ``trust_env`` reads them and ~/.netrc in a thread for every request, which then takes three
    times as long.
    """
    parsed = URL(url)
    host, proxies = parsed.host, urllib.request.getproxies()
    if host is None or _is_loopback(host) or _is_in_networks(host, proxies.get("no", "")):
        return None
    return None if urllib.request.proxy_bypass(f"{host}:{parsed.port}") else proxies.get(parsed.scheme)


def _is_in_networks(host: str, networks: str) -> bool:
    """Return whether ``host`` is an IP address in one of these networks, as ``10.96.0.0/12,fd00::/8``; entries that are
    no networks, such as names, are ignored.
    """
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        for network in networks.split(","):
            with contextlib.suppress(ValueError):
                if address in ipaddress.ip_network(network.strip(), strict=False):
                    return True
    return False


def with_tls(
    request_class: type[aiohttp.ClientRequest], current: Callable[[], ssl.SSLContext]
) -> type[aiohttp.ClientRequest]:
    """Return a class of requests that use the current TLS context, and no connection on which an answer came unasked.

    aiohttp keeps connections by their context, so that a request with a new one uses none of the old connections: an
    API server checks the client's certificate of an open connection with each request.
    """

    class CurrentTlsRequest(request_class):  # type: ignore[valid-type, misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "ssl": current()})

        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            if conn.protocol is not None and conn.protocol.should_close:
                # It would be taken for the answer to this request.
                conn.close()
                raise aiohttp.ServerDisconnectedError("an answer came unasked")
            response: aiohttp.ClientResponse = await super().send(conn)
            return response

    return CurrentTlsRequest


def make_session(
    connector: aiohttp.BaseConnector,
    middlewares: Sequence[aiohttp.ClientMiddlewareType],
    user_agent: str,
    response_class: type[aiohttp.ClientResponse] = NumberedResponse,
    request_class: type[aiohttp.ClientRequest] = aiohttp.ClientRequest,
) -> aiohttp.ClientSession:
    """Make a session over a shared connector, which stays open when the session closes."""
    return aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        # No compression, as among control plane components: it costs the API server more than the network.
        headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
        response_class=response_class,
        request_class=request_class,
        middlewares=tuple(middlewares),
        cookie_jar=aiohttp.DummyCookieJar(),
        # Objects may have 1.5 MB and more; with aiohttp's default of 64 KB, reading stops and starts all the time.
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
        # Some platforms lack some of these options, and then detect half-open connections later.
        with contextlib.suppress(AttributeError, OSError):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
