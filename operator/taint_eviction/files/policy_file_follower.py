"""Follows the policy file while the controller runs: a valid change is in force within seconds, an invalid one never.

The content is compared, not the file's times: a mounted ConfigMap changes by a swap of symbolic links. Threads of its
own read and parse the file, so that neither evictions nor the end of the process wait for a hanging disk. This module
neither parses the format (``files.policy_file``) nor applies a new policy.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread
from typing import Protocol, TypeVar

from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.files.marked_yaml import Malformed, read_text
from taint_eviction.files.policy_file import read_policy

logger = logging.getLogger(__name__)

_EVERY_SECONDS = 2.0

# A read that takes longer is told, and another one begins: a disk that was mounted again answers that one alone. So
# many wait for a disk at most.
_SLOW_SECONDS = 10.0
_MAX_READS = 3

T = TypeVar("T")


class OffTheLoop(Protocol):
    """Does blocking work outside of the event loop, as ``asyncio.to_thread``."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return the result of the work."""
        ...


async def in_own_thread(work: Callable[[], T]) -> T:
    """Return the result of the work, done in a thread for which nothing waits: not even the end of the process."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def answer(take: Callable[[], None]) -> None:
        if not result.done():
            take()

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # It is raised in the task that waits.
            failure = error
            take = lambda: result.set_exception(failure)  # noqa: E731
        else:
            take = lambda: result.set_result(found)  # noqa: E731
        with contextlib.suppress(RuntimeError):  # The loop has been closed meanwhile.
            loop.call_soon_threadsafe(answer, take)

    Thread(target=run, name="policy file", daemon=True).start()
    return await result


class PolicyFileFollower:
    """Reads ``path`` every two seconds and passes each new policy to ``apply``, the first one at once, which returns
    when the policy is in force.

    ``base`` has the defaults for what the file does not set. A file that is unreadable or invalid is logged once with
    all its problems, and the previous policy stays in force; so is a file whose disk does not answer. ``counted`` is
    called with "loaded" or "rejected" for each new content. ``invalid``: the current content was rejected, or is not
    known.
    """

    def __init__(
        self,
        path: Path,
        base: EvictionPolicy,
        apply: Callable[[EvictionPolicy], Awaitable[None]],
        counted: Callable[[str], None],
        *,
        off_the_loop: OffTheLoop = in_own_thread,
    ) -> None:
        self._path = path
        self._base = base
        self._apply = apply
        self._counted = counted
        self._off_the_loop = off_the_loop
        # The last content of the file, or the problems that kept it from being read.
        self._seen: object = None
        self._rejected = self._hangs = False
        # The reads under way, oldest first.
        self._reads: list[asyncio.Future[str | Malformed]] = []

    @property
    def invalid(self) -> bool:
        """Return whether the policy in force is not known to be that of the file."""
        return self._rejected or self._hangs

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await self._follow(await self._read())
                await asyncio.sleep(_EVERY_SECONDS)
        finally:
            for read in self._reads:
                read.cancel()
            await asyncio.gather(*self._reads, return_exceptions=True)

    async def _read(self) -> str | Malformed:
        """Return the content of the file by the latest read that has an answer, or why it cannot be read."""
        while True:
            if len(self._reads) < _MAX_READS:
                self._reads.append(asyncio.ensure_future(self._off_the_loop(self._read_once)))
            done, _ = await asyncio.wait(self._reads, timeout=_SLOW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if done:
                latest = max(self._reads.index(read) for read in done)
                for older in self._reads[:latest]:
                    older.cancel()
                found = self._reads[latest].result()
                del self._reads[: latest + 1]
                self._note_hanging(False)
                return found
            self._note_hanging(True)

    def _read_once(self) -> str | Malformed:
        try:
            return read_text(self._path)
        except Malformed as unreadable:
            return unreadable

    def _note_hanging(self, hangs: bool) -> None:
        if hangs and not self._hangs:
            what = f"its disk has not answered for {_SLOW_SECONDS:g} s"
            logger.error("policy file %s cannot be read, and the previous policy stays in force: %s", self._path, what)
        elif self._hangs and not hangs:
            logger.info("policy file %s can be read again", self._path)
        self._hangs = hangs

    async def _follow(self, content: str | Malformed) -> None:
        before, self._seen = self._seen, content.problems if isinstance(content, Malformed) else content
        if self._seen == before:
            return
        found = content if isinstance(content, Malformed) else await self._off_the_loop(lambda: self._parsed(content))
        if isinstance(found, Malformed):
            self._reject(found)
        else:
            await self._accept(found)

    def _parsed(self, text: str) -> EvictionPolicy | Malformed:
        try:
            return read_policy(text, str(self._path), self._base)
        except Malformed as malformed:
            return malformed

    async def _accept(self, policy: EvictionPolicy) -> None:
        self._rejected = False
        await self._apply(policy)
        self._counted("loaded")
        logger.info("policy file %s is in force; rules: %d", self._path, len(policy.rules))

    def _reject(self, malformed: Malformed) -> None:
        self._rejected = True
        self._counted("rejected")
        problems = "; ".join(str(problem) for problem in malformed.problems)
        logger.error("policy file %s is rejected, and the previous policy stays in force: %s", self._path, problems)
