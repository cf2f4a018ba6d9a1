"""The last look before a pod is changed: may this process act, now that the connection stands and the token is at hand?

Whoever changes something asks its gate first. But between that and the first byte on the wire lie credentials that may
have to be renewed and a connection that may have to be made, seconds each; and a process that is frozen there wakes
when another has long since taken over. So the question is put again where nothing is awaited any more. And what ends a
pod and has waited there for long is not sent at all: its node may be clean by now, so it is decided anew. What is
already on the wire is harmless: it names the pod's UID.

Fenced are the requests that change pods (their deletion, eviction and status), and no others: events are words, and
Leases are how one comes to be allowed.
"""

import re
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from taint_eviction.runtime.clock import read_monotonic

# As long as one live read of a node serves.
_FRESH_SECONDS = 1.0

_POD = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+(?:/[a-z]+)?$")


class NotSent(aiohttp.ClientError):
    """A request that was held back at the last moment; the message says why."""


def changes_pod(method: str, url: URL) -> bool:
    """Tell whether a request changes a pod that exists."""
    return method != aiohttp.hdrs.METH_GET and _POD.search(url.raw_path) is not None


def ends_pod(method: str, url: URL) -> bool:
    """Tell whether a request ends a pod: deletes or evicts it."""
    return changes_pod(method, url) and (method == aiohttp.hdrs.METH_DELETE or url.raw_path.endswith("/eviction"))


def fenced_requests(may_act: Callable[[], bool], may_evict: Callable[[], bool]) -> type[aiohttp.ClientRequest]:
    """Return what makes a session's requests raise ``NotSent`` where they change a pod and ``may_act`` says no.

    Those that end one are not sent either where ``may_evict`` says no.

    Not a middleware: those come before the connection is made.
    """

    class FencedRequest(aiohttp.ClientRequest):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._made_at = read_monotonic()

        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if changes_pod(self.method, self.url) and not may_act():
                raise NotSent("this process does not lead any more")
            if ends_pod(self.method, self.url) and not may_evict():
                raise NotSent("evictions are held back")
            if ends_pod(self.method, self.url) and read_monotonic() - self._made_at > _FRESH_SECONDS:
                raise NotSent("connection or credentials took so long that it is to be decided anew")
            return await super().send(conn)

    return FencedRequest
