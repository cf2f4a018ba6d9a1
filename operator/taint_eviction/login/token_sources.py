"""Sources of the ``Authorization`` of each request: a fixed value, a file that rotates, or credentials to renew.

Sessions ask before every request, so that tokens may rotate while the process runs. Nothing here makes requests to the
API server. Token files are tiny and read in place. Renewals run beside the requests, one at a time; a request waits for
one only if there are no valid credentials.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from taint_eviction.core.instants import Moment
from taint_eviction.runtime.lasting_failure import LastingFailure
from taint_eviction.runtime.ports import Clock

logger = logging.getLogger(__name__)

# A token file is read again after this time. The kubelet replaces service account tokens after 80 % of their lifetime,
# so even a token that lives for 30 s does not expire before it is read again.
_FILE_SECONDS = 3.0

# Credentials are renewed this long before they expire, or after 80 % of their lifetime if that is later.
_RENEW_AHEAD_SECONDS = 60.0

# Credentials are not used in their last seconds, or in the last twentieth of a short lifetime: a call takes time.
_MARGIN_SECONDS = 5.0

# The timeout of a renewal while the credentials are valid; it leaves time for another one.
_RENEWAL_SECONDS = 25.0

# The timeout of a renewal that requests wait for.
_MAX_RENEWAL_SECONDS = 60.0

# The wait after a renewal that failed, or that returned the refused credentials again.
_RENEW_PAUSE_SECONDS = 5.0


class CredentialsError(Exception):
    """Credentials that are missing, unusable or cannot be renewed; one line that says what to do."""


class TokenSource(Protocol):
    """Returns the value of ``Authorization``. ``failures`` counts how often it could not be read or renewed."""

    failures: int

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return the header's value; None for no header.

        ``rejected`` is the value that the API server has just answered with 401 ("": there was none): a newer value is
        returned if there is one. Raises ``CredentialsError``.
        """
        ...

    async def close(self) -> None:
        """Cancel a renewal in progress."""
        ...


class FixedAuthorization:
    """A value that never changes: a token or password in a kubeconfig, or none."""

    failures = 0

    def __init__(self, value: str | None) -> None:
        self._value = value

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return the fixed value."""
        return self._value

    async def close(self) -> None:
        """Do nothing: there are no renewals."""


class TokenFile:
    """A bearer token in a file that another process replaces: of a service account, or a kubeconfig's ``tokenFile``."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._value: str | None = None
        self._read_at = 0.0
        self._failing = LastingFailure()
        self.failures = 0

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return the token. While the file cannot be read, the last token that was read."""
        now = self._clock.now().at
        if self._value is None or now - self._read_at >= _FILE_SECONDS or rejected == self._value:
            self._read_at = now
            self._read()
        return self._value

    async def close(self) -> None:
        """Do nothing: there are no renewals."""

    def _read(self) -> None:
        try:
            token = self._path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            problem = f"cannot read the token in {self._path}: {error}"
        else:
            if token:
                self._value = f"Bearer {token}"
                self._failing.ends()
                return
            problem = f"the token file {self._path} is empty"
        self.failures += 1
        if self._value is None:
            raise CredentialsError(problem)
        if self._failing.goes_on(self._read_at):
            logger.warning("%s; the last token stays in use", problem)


class Renewed(NamedTuple):
    """New credentials. ``expires_epoch`` None: unknown; they are used until they are refused."""

    value: str | None
    expires_epoch: float | None


class RenewedAuthorization:
    """Credentials that are renewed before they expire and when they are refused, one renewal at a time."""

    def __init__(self, renew: Callable[[], Awaitable[Renewed]], first: Renewed, clock: Clock) -> None:
        self._renew = renew
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._failure: CredentialsError | None = None
        self._failing = LastingFailure()
        self.failures = 0
        self._take(first, clock.now())

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return credentials that are neither refused nor expired, if there are any."""
        now = self._clock.now()
        refused = rejected is not None and rejected == (self._current.value or "")
        if refused or self._seconds_left(now) <= self._ahead_seconds:
            usable = not refused and self._seconds_left(now) > self._margin_seconds
            renewal = self._renewal(now, _RENEWAL_SECONDS if usable else _MAX_RENEWAL_SECONDS)
            if renewal is not None and not usable:
                # Shielded: a request that is cancelled must not cancel the renewal that others wait for.
                await asyncio.shield(renewal)
        if self._failure is not None and (refused or self._seconds_left(self._clock.now()) <= 0):
            raise self._failure
        return self._current.value

    async def close(self) -> None:
        """Cancel a renewal in progress."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _renewal(self, now: Moment, max_seconds: float) -> asyncio.Task[None] | None:
        """Return the renewal in progress, or start one; None if the last one has just ended."""
        if self._task is not None and self._task.done():
            self._task.result()
            self._task = None
        if self._task is None and now.at - self._tried_at >= _RENEW_PAUSE_SECONDS:
            self._task = asyncio.create_task(self._run(max_seconds), name="renew credentials")
        return self._task

    async def _run(self, max_seconds: float) -> None:
        try:
            async with asyncio.timeout(max_seconds):
                renewed = await self._renew()
        except TimeoutError:
            self._fail(CredentialsError(f"the renewal did not end within {max_seconds:g} s"))
        except CredentialsError as failure:
            self._fail(failure)
        else:
            self._take(renewed, self._clock.now())

    def _fail(self, failure: CredentialsError) -> None:
        self._failure = failure
        self.failures += 1
        self._tried_at = self._clock.now().at
        if self._failing.goes_on(self._tried_at):
            logger.warning("credentials cannot be renewed: %s", failure)

    def _take(self, renewed: Renewed, now: Moment) -> None:
        self._current = renewed
        self._failure = None
        self._failing.ends()
        self._tried_at = now.at
        life = max(0.0, self._seconds_left(now))
        self._ahead_seconds = min(_RENEW_AHEAD_SECONDS, 0.2 * life)
        self._margin_seconds = min(_MARGIN_SECONDS, 0.05 * life)

    def _seconds_left(self, now: Moment) -> float:
        expires = self._current.expires_epoch
        return math.inf if expires is None else expires - now.server_epoch
