"""Where the ``Authorization`` of each request comes from: fixed, a file that rotates, or renewed now and then.

Asked before every request, so that tokens may rotate under a running process. Nothing here makes requests to the API
server; files are tiny and read in place, whatever takes longer is awaited, and never runs twice at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from taint_eviction.core.instants import Moment
from taint_eviction.runtime.ports import Clock

logger = logging.getLogger(__name__)

# A token file is read again when its last reading is older than this. Service account tokens are replaced when 80 % of
# their life is over, so even one that lives for 30 s is never out of date.
_FILE_SECONDS = 3.0

# Credentials are renewed this long before they expire, or when 80 % of their life is over if that is later.
_RENEW_AHEAD_SECONDS = 60.0

# A renewal that failed, or gave what was refused again, is not repeated sooner than this.
_RENEW_PAUSE_SECONDS = 5.0


class CredentialsError(Exception):
    """Credentials that are missing, unusable or cannot be renewed; one line that says what to do."""


class TokenSource(Protocol):
    """Says what to put into ``Authorization``."""

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return the header's value, None for none.

        ``rejected`` is a value that the API server has just answered with 401 ("": there was none): if there is a
        newer one, return that. Raises ``CredentialsError``.
        """
        ...

    async def close(self) -> None:
        """End what is under way."""
        ...


class FixedAuthorization:
    """One that never changes: a token or password written into a kubeconfig, or none at all."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return the fixed value."""
        return self._value

    async def close(self) -> None:
        """Nothing is ever under way."""


class TokenFile:
    """A bearer token in a file that somebody else replaces: service accounts, and ``tokenFile`` of a kubeconfig."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._value: str | None = None
        self._read_at = 0.0

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return the token, read lately; one that can't be read now is used as long as it lasts."""
        now = self._clock.now().at
        if self._value is None or now - self._read_at >= _FILE_SECONDS or rejected == self._value:
            self._read_at = now
            self._read()
        return self._value

    async def close(self) -> None:
        """Nothing is ever under way."""

    def _read(self) -> None:
        try:
            token = self._path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            problem = f"cannot read the token in {self._path}: {error}"
        else:
            if token:
                self._value = f"Bearer {token}"
                return
            problem = f"the token file {self._path} is empty"
        if self._value is None:
            raise CredentialsError(problem)
        logger.warning("%s; going on with the last one", problem)


class Renewed(NamedTuple):
    """Fresh credentials. ``expires_epoch`` None: they tell no end, and are kept until they are refused."""

    value: str | None
    expires_epoch: float | None


class RenewedAuthorization:
    """Credentials that are fetched again before they expire and when they are refused, by at most one at a time."""

    def __init__(self, renew: Callable[[], Awaitable[Renewed]], first: Renewed, clock: Clock) -> None:
        self._renew = renew
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._failure: CredentialsError | None = None
        self._take(first, clock.now())

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return credentials that are neither refused nor about to expire, if there are any to be had."""
        now = self._clock.now()
        refused = rejected is not None and rejected == (self._current.value or "")
        if not refused and not self._is_due(now):
            return self._current.value
        if self._task is not None or now.at - self._tried_at >= _RENEW_PAUSE_SECONDS:
            # Shielded: whoever gives up waiting must not end the renewal that others wait for.
            await asyncio.shield(self._renewing())
        if self._failure is not None and (refused or self._is_over(self._clock.now())):
            raise self._failure
        return self._current.value

    async def close(self) -> None:
        """Cut off a renewal that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _renewing(self) -> asyncio.Task[None]:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="renew credentials")
        return self._task

    async def _run(self) -> None:
        try:
            self._take(await self._renew(), self._clock.now())
        except CredentialsError as failure:
            self._failure = failure
            self._tried_at = self._clock.now().at
            logger.warning("credentials cannot be renewed: %s", failure)
        finally:
            self._task = None

    def _take(self, renewed: Renewed, now: Moment) -> None:
        self._current = renewed
        self._failure = None
        self._tried_at = now.at
        if renewed.expires_epoch is None:
            self._due_epoch: float | None = None
        else:
            life = max(0.0, renewed.expires_epoch - now.server_epoch)
            self._due_epoch = renewed.expires_epoch - min(_RENEW_AHEAD_SECONDS, 0.2 * life)

    def _is_due(self, now: Moment) -> bool:
        return self._due_epoch is not None and now.server_epoch >= self._due_epoch

    def _is_over(self, now: Moment) -> bool:
        expires = self._current.expires_epoch
        return expires is not None and now.server_epoch >= expires
