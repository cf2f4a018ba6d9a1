"""The last check before a request that changes a pod: may this process still act?

Every caller checks the gate first. But afterwards the credentials may need a renewal and the request a new connection,
each of which can take seconds; and a process that is suspended meanwhile may wake while another replica leads. So the
fence checks the gate again at a point after which nothing is awaited. For a request that ends a pod it also awaits the
caller's final decision (``asking_at_last``) on the connection that is already open: so the node is read after
everything that can take seconds. A request that was already sent is harmless: it names the pod's UID.

Only requests that change pods are fenced (deletion, eviction, status). Events destroy nothing, and a process needs the
Lease before it may act.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from taint_eviction.runtime.ports import Ready

_POD = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+(?:/[a-z]+)?$")

# aiohttp creates its requests itself: only the context of the call can pass something to them.
_READY: ContextVar[Ready | None] = ContextVar("ready", default=None)


class NotSent(aiohttp.ClientError):
    """A request that was not sent; the message says why."""


def changes_pod(method: str, url: URL) -> bool:
    """Return whether a request changes a pod that exists; one that says ``dryRun`` changes nothing."""
    if method == aiohttp.hdrs.METH_GET or url.query.get("dryRun") == "All":
        return False
    return _POD.search(url.raw_path) is not None


def ends_pod(method: str, url: URL) -> bool:
    """Return whether a request ends a pod: deletes or evicts it."""
    return changes_pod(method, url) and (method == aiohttp.hdrs.METH_DELETE or url.raw_path.endswith("/eviction"))


@contextlib.contextmanager
def asking_at_last(ready: Ready) -> Iterator[None]:
    """Await ``ready`` before each request in this block that ends a pod; if it raises, the request is not sent.

    It is awaited again when the request is sent again: on another connection, or after a redirect.
    """
    token = _READY.set(ready)
    try:
        yield
    finally:
        _READY.reset(token)


def fenced_requests(may_act: Callable[[], bool], may_evict: Callable[[], bool]) -> type[aiohttp.ClientRequest]:
    """Return a class of requests that raise ``NotSent`` if they change a pod and ``may_act`` returns False.

    A request that ends a pod also needs ``may_evict``. A middleware cannot do this: it runs before the connection is
    made.
    """

    class FencedRequest(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            changes = changes_pod(self.method, self.url)
            ends = changes and ends_pod(self.method, self.url)
            if ends and (ready := _READY.get()) is not None:
                await ready()
                if conn.protocol is None or conn.closed or conn.protocol.should_close:
                    # An answer that came unasked would be taken for the answer to this request.
                    raise NotSent("its connection was closed, or brought an answer unasked, while its node was read")
            if changes and not may_act():
                raise NotSent("this process no longer leads")
            if ends and not may_evict():
                raise NotSent("evictions are suspended")
            return await super().send(conn)

    return FencedRequest
