"""Applies a changed policy: pods keep only labels that rules name, so new keys are read before a rule uses them.

A list that hangs does not keep a policy out of force for long: it may be the pause that somebody needs now. Each pod is
read, with its labels, before the request that ends it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from taint_eviction.core.pod_parts import PodParts, needed_keys
from taint_eviction.core.policy import EvictionPolicy

logger = logging.getLogger(__name__)

_LONGEST_SECONDS = 30.0


class PolicyChanges:
    """``change`` puts a policy in force, ``parts`` says what all readers read of pods, and ``list_again`` returns once
    all watched pods were listed again.
    """

    def __init__(
        self, change: Callable[[EvictionPolicy], None], parts: PodParts, list_again: Callable[[], Awaitable[None]]
    ) -> None:
        self._change = change
        self._parts = parts
        self._list_again = list_again

    async def apply(self, policy: EvictionPolicy) -> None:
        """Put the policy in force; if it names labels that were not kept, list the pods first, for 30 s at most."""
        needed, kept = needed_keys(policy.label_keys), self._parts.label_keys
        if kept is not None and not needed <= kept:
            self._parts.label_keys = needed | kept
            try:
                async with asyncio.timeout(_LONGEST_SECONDS):
                    await self._list_again()
            except TimeoutError:
                logger.warning(
                    "not all pods could be listed again within %g s; the changed policy is in force all the same, and "
                    "the labels of the others are read before they are evicted",
                    _LONGEST_SECONDS,
                )
        self._change(policy)
        if kept is not None:
            self._parts.label_keys = needed
