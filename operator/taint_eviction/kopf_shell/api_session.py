"""The HTTP sessions of an embedded Kopf: one for each login, over a connector that all sessions share.

A session is cheap; an SSL context and a pool of connections are not. Kopf closes its session whenever credentials fail,
so no other code may use that session. The connector stays open; its owner closes it. Kopf also ends when a login
returns credentials equal to those that failed: a new session makes each login different.

This module does not set ``Authorization``. The opener of the sessions adds a middleware that sets it on each request,
so that tokens may rotate.
"""

import asyncio
from typing import Protocol

import aiohttp
import kopf

from taint_eviction.kopf_shell.responses import RewrittenResponse

# The wait before each further consecutive login.
_WAIT_SECONDS = 0.5
# The watch ends after this many consecutive logins were answered with 401.
_MAX_LOGINS = 3


class OpenSession(Protocol):
    """Opens a session that does not own its connector. The caller closes the session.

    ``listen_in`` must be the first of the session's middlewares: it handles each request first and each response last.
    The connector must not limit connections: every watch holds one as long as it lasts, and with aiohttp's default of
    100 the 101st would wait indefinitely, without an error.
    """

    def __call__(
        self, *, listen_in: aiohttp.ClientMiddlewareType, response_class: type[aiohttp.ClientResponse]
    ) -> aiohttp.ClientSession:
        """Open a session."""
        ...


class Logins:
    """Answers Kopf's logins with a new session each, until Kopf has made too many consecutive logins."""

    def __init__(self, url: str, open_session: OpenSession, listen_in: aiohttp.ClientMiddlewareType) -> None:
        self._url = url
        self._open_session = open_session
        self._listen_in = listen_in
        self._in_a_row = 0
        self._sessions: list[aiohttp.ClientSession] = []

    async def log_in(self) -> kopf.AiohttpSession | None:
        """Return a session; None, which ends this Kopf, if the API server refused all of the last few logins."""
        if self._in_a_row >= _MAX_LOGINS:
            return None
        # The first login, and the first after a 401, do not wait: most likely a token has just expired.
        await asyncio.sleep(max(0, self._in_a_row - 1) * _WAIT_SECONDS)
        self._in_a_row += 1
        return kopf.AiohttpSession(server=self._url, aiohttp_session=self.open())

    def open(self) -> aiohttp.ClientSession:
        """Open a session; ``close`` closes it."""
        session = self._open_session(listen_in=self._listen_in, response_class=RewrittenResponse)
        self._sessions = [*(earlier for earlier in self._sessions if not earlier.closed), session]
        connector = session.connector
        if connector is None or connector.limit or connector.limit_per_host:
            raise ValueError("the connector must not limit connections: each watch holds one as long as it lasts")
        return session

    def note_accepted(self) -> None:
        """Note that the API server accepted a request: the count of logins restarts."""
        self._in_a_row = 0

    async def close(self) -> None:
        """Close the sessions that Kopf has left open. May be called again."""
        for session in self._sessions:
            await session.close()
