"""Follows the policy file while the controller runs: a valid change is in force within seconds, an invalid one never.

The content is compared, not the file's times: a mounted ConfigMap changes by a swap of symbolic links. A thread reads
and parses the file, so that evictions do not wait for a hanging disk or a large file. This module neither parses
the format (``files.policy_file``) nor applies a new policy.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.files.marked_yaml import Malformed, read_text
from taint_eviction.files.policy_file import read_policy

logger = logging.getLogger(__name__)

_EVERY_SECONDS = 2.0

# A policy, the faults of an invalid one, or None if the content has not changed.
News = EvictionPolicy | Malformed | None


class OffTheLoop(Protocol):
    """Does blocking work outside of the event loop, as ``asyncio.to_thread``."""

    def __call__(self, work: Callable[[], News], /) -> Awaitable[News]:
        """Return the result of the work."""
        ...


class PolicyFileFollower:
    """Reads ``path`` every two seconds and passes each new policy to ``apply``, the first one at once, which returns
    when the policy is in force.

    ``base`` has the defaults for what the file does not set. A file that is unreadable or invalid is logged once with
    all its problems, and the previous policy stays in force. ``counted`` is called with "loaded" or "rejected" for each
    new content. ``invalid``: the current content was rejected.
    """

    def __init__(
        self,
        path: Path,
        base: EvictionPolicy,
        apply: Callable[[EvictionPolicy], Awaitable[None]],
        counted: Callable[[str], None],
        *,
        off_the_loop: OffTheLoop = asyncio.to_thread,
    ) -> None:
        self._path = path
        self._base = base
        self._apply = apply
        self._counted = counted
        self._off_the_loop = off_the_loop
        # The last content of the file, or the problems that kept it from being read.
        self._seen: object = None
        self.invalid = False

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            found = await self._off_the_loop(self._read)
            if isinstance(found, EvictionPolicy):
                await self._accept(found)
            elif found is not None:
                self._reject(found)
            await asyncio.sleep(_EVERY_SECONDS)

    def _read(self) -> News:
        """Read the file; return None if its content has not changed. Runs in a thread, one at a time."""
        try:
            text = read_text(self._path)
        except Malformed as unreadable:
            return unreadable if self._is_new(unreadable.problems) else None
        if not self._is_new(text):
            return None
        try:
            return read_policy(text, str(self._path), self._base)
        except Malformed as malformed:
            return malformed

    def _is_new(self, seen: object) -> bool:
        before, self._seen = self._seen, seen
        return seen != before

    async def _accept(self, policy: EvictionPolicy) -> None:
        self.invalid = False
        await self._apply(policy)
        self._counted("loaded")
        logger.info("policy file %s is in force; rules: %d", self._path, len(policy.rules))

    def _reject(self, malformed: Malformed) -> None:
        self.invalid = True
        self._counted("rejected")
        problems = "; ".join(str(problem) for problem in malformed.problems)
        logger.error("policy file %s is rejected, and the previous policy stays in force: %s", self._path, problems)
