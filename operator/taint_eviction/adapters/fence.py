"""The last look before a pod is changed: may this process act, now that the connection stands and the token is at hand?

Whoever changes something asks its gate first. But between that and the first byte on the wire lie credentials that may
have to be renewed and a connection that may have to be made, seconds each; and a process that is frozen there wakes
when another has long since taken over. So the question is put again where nothing is awaited any more. What is already
on the wire is harmless: it names the pod's UID.

Fenced are the requests that change pods (their deletion, eviction and status), and no others: events are words, and
Leases are how one comes to be allowed.
"""

import re
from collections.abc import Callable

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

_POD = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+(?:/[a-z]+)?$")


class NotSent(aiohttp.ClientError):
    """A request that was held back at the last moment: this process may not act any more."""


def changes_pod(method: str, url: URL) -> bool:
    """Tell whether a request changes a pod that exists."""
    return method != aiohttp.hdrs.METH_GET and _POD.search(url.raw_path) is not None


def ends_pod(method: str, url: URL) -> bool:
    """Tell whether a request ends a pod: deletes or evicts it."""
    return changes_pod(method, url) and (method == aiohttp.hdrs.METH_DELETE or url.raw_path.endswith("/eviction"))


def fenced_requests(may_act: Callable[[], bool]) -> type[aiohttp.ClientRequest]:
    """Return what makes a session's requests raise ``NotSent`` where they change a pod and ``may_act`` says no.

    Not a middleware: those come before the connection is made.
    """

    class FencedRequest(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if changes_pod(self.method, self.url) and not may_act():
                raise NotSent
            return await super().send(conn)

    return FencedRequest
