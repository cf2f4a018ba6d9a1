"""The HTTP sessions that an embedded Kopf gets: each its own, over a connector that all share.

A session is cheap, an SSL context and a pool of connections are not. Kopf closes its session whenever credentials fail,
so it must be one that nobody else uses; the connector stays open, its closing is its owner's. A session of its own also
makes each login distinct: Kopf refuses credentials that equal those which failed, and ends.

``Authorization`` is no business of this room: whoever opens the sessions adds a middleware that computes it for each
request, so that tokens may rotate.
"""

import asyncio
from typing import Protocol

import aiohttp
import kopf

from taint_eviction.kopf_shell.answers import Answer

_WAIT_SECONDS = 0.5


class OpenSession(Protocol):
    """Opens a session that does not own its connector; closing the session is the caller's.

    ``listen_in`` must be the first of its middlewares: it sees each request first and each answer last. The connector
    must have no limit of connections: every watch holds one for as long as it lasts, and aiohttp's default of 100 would
    let the 101st wait for ever, without an error.
    """

    def __call__(
        self, *, listen_in: aiohttp.ClientMiddlewareType, response_class: type[aiohttp.ClientResponse]
    ) -> aiohttp.ClientSession:
        """Open one more."""
        ...


class Logins:
    """What Kopf gets when it asks to log in: a new session each time, until it has asked too often in a row."""

    def __init__(self, url: str, open_session: OpenSession, listen_in: aiohttp.ClientMiddlewareType, most: int) -> None:
        self._url = url
        self._open_session = open_session
        self._listen_in = listen_in
        self._most = most
        self._in_a_row = 0
        self._sessions: list[aiohttp.ClientSession] = []

    async def log_in(self) -> kopf.AiohttpSession | None:
        """Return a session; None, which ends this Kopf, where the last few were all refused."""
        if self._in_a_row >= self._most:
            return None
        # The first login, and the first after a 401, are made at once: then a token has just expired. Later ones wait.
        await asyncio.sleep(max(0, self._in_a_row - 1) * _WAIT_SECONDS)
        self._in_a_row += 1
        return kopf.AiohttpSession(server=self._url, aiohttp_session=self.open())

    def open(self) -> aiohttp.ClientSession:
        """Open a session that ``close`` will close."""
        session = self._open_session(listen_in=self._listen_in, response_class=Answer)
        self._sessions = [*(earlier for earlier in self._sessions if not earlier.closed), session]
        connector = session.connector
        if connector is None or connector.limit or connector.limit_per_host:
            raise ValueError("the connector must have no limit of connections: each watch holds one all the time")
        return session

    def note_accepted(self) -> None:
        """Note that the API server accepted a request: the next 401 is a new story."""
        self._in_a_row = 0

    async def close(self) -> None:
        """Close what Kopf has left open; may be called again."""
        for session in self._sessions:
            await session.close()
