"""Follows the policy file while the controller runs: a good change counts within seconds, a bad one not at all.

Content is compared, not times: a mounted ConfigMap changes by a swap of symbolic links. Files are read and parsed in a
thread, so that a disk that hangs or a large file never keeps evictions waiting. Not here: the format
(``files.policy_file``), and what a new policy leads to.
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

Look = EvictionPolicy | Malformed | None


class OffTheLoop(Protocol):
    """Does blocking work elsewhere, as ``asyncio.to_thread``."""

    def __call__(self, work: Callable[[], Look], /) -> Awaitable[Look]:
        """Return what the work returns."""
        ...


class PolicyFileFollower:
    """Reads ``path`` every two seconds and gives each new policy to ``apply``, the first at once.

    ``base`` has what the file does not say. What cannot be read or is wrong is logged once with all its problems, and
    the policy before stays. ``counted`` is called with "loaded" or "rejected" for each new content. ``invalid``: what
    the file says now was rejected.
    """

    def __init__(
        self,
        path: Path,
        base: EvictionPolicy,
        apply: Callable[[EvictionPolicy], None],
        counted: Callable[[str], None],
        *,
        off_the_loop: OffTheLoop = asyncio.to_thread,
    ) -> None:
        self._path = path
        self._base = base
        self._apply = apply
        self._counted = counted
        self._off_the_loop = off_the_loop
        # What the file said last; what kept it from being read where it said nothing.
        self._seen: object = None
        self.invalid = False

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            found = await self._off_the_loop(self._look)
            if isinstance(found, EvictionPolicy):
                self._accept(found)
            elif found is not None:
                self._reject(found)
            await asyncio.sleep(_EVERY_SECONDS)

    def _look(self) -> Look:
        """Read the file; None where it says what it said before. Runs in a thread, and never twice at once."""
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

    def _accept(self, policy: EvictionPolicy) -> None:
        self.invalid = False
        self._apply(policy)
        self._counted("loaded")
        logger.info("policy file %s counts from now on; rules: %d", self._path, len(policy.rules))

    def _reject(self, malformed: Malformed) -> None:
        self.invalid = True
        self._counted("rejected")
        problems = "; ".join(str(problem) for problem in malformed.problems)
        logger.error("policy file %s is rejected, and the policy before stays: %s", self._path, problems)
