"""The pods that are to be evicted, the most overdue first, in pages, for any number of pods and clients.
A listing goes through all pods and keeps their order; pages are taken from it. Both work in slices, so that the event
loop is never blocked for long. Requests are served one after the other, and together take at most a tenth of the time,
because any client that reaches the port may ask. This module does not describe pods (``status_document``).
"""

import asyncio
import contextlib
import heapq
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from taint_eviction.core.control_state import Release
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, Taint
from taint_eviction.core.status import Pending, Status
from taint_eviction.runtime.ports import Clock

MAX_PODS = 1000

# How many pods are examined or described in one slice: 1 to 2 ms of work.
SLICE = 200
# The work takes at most one part in this many of the time.
_PARTS = 10
# How long a listing serves other requests, and requests for its further pages.
_SERVES_SECONDS, _SERVES_PAGES_SECONDS = 1.0, 60.0
# Requests that may wait for their turn.
_MAX_WAITING = 16


class Busy(Exception):
    """Too many requests are waiting; this one is refused."""


class Place(NamedTuple):
    """A pod's place in the order: its deadline on this process's clock, then its name."""

    fire_at: float
    key: NamespacedName

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Parse the text that ``str`` returns; raise ``ValueError`` if it is not a place."""
        fire_at, namespace, name = text.split("/")
        return cls(float(fire_at), NamespacedName(namespace, name))

    def __str__(self) -> str:
        return f"{self.fire_at!r}/{self.key}"


@dataclass(slots=True)
class PendingGroup:
    """The pods of one node with one effective taint, by state; ``next_at`` is the earliest deadline ahead, if any."""

    counts: Counter[str] = field(default_factory=Counter)
    next_at: float = math.inf


# By the node's name and the taint.
Groups = dict[tuple[str, Taint], PendingGroup]


@dataclass(frozen=True, slots=True)
class StatusPage:
    """A part of the list. ``counts``, ``groups``: of all pods on all pages. ``last``: its end if more follow.
    ``still_held``: how many due pods a release leaves blocked. ``without_owner``: how many of the counted pods nothing
    recreates.
    """

    now: Moment
    counts: Counter[str]
    groups: Groups
    rows: list[Any]
    last: Place | None
    still_held: int = 0
    without_owner: int = 0


@dataclass(slots=True)
class _Listing:
    """The pods found at ``at`` in one namespace, None: in all; each run is sorted.
    ``release``: only those that it would let go, and ``still_held`` counts the others that are due and blocked; None:
    all that are to be evicted.
    """

    at: float
    namespace: str | None
    release: Release | None
    runs: list[list[Place]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    groups: Groups = field(default_factory=dict)
    still_held: int = 0
    without_owner: int = 0

    def count(self, pending: Pending, state: str) -> None:
        self.counts[state] += 1
        self.without_owner += pending.record.pod.controller is None
        key = pending.record.node_name, pending.decision.deciding.taint
        group = self.groups.setdefault(key, PendingGroup())
        group.counts[state] += 1
        if pending.decision.fire_at > self.at:
            group.next_at = min(group.next_at, pending.decision.fire_at)

    def after(self, last: Place | None) -> Iterator[Place]:
        runs = self.runs if last is None else [run[bisect_right(run, last) :] for run in self.runs]
        return heapq.merge(*runs)


class PendingPages:
    """Returns pages; ``state_of`` returns the state by which a pod is counted."""

    def __init__(self, status: Status, clock: Clock, state_of: Callable[[Pending], str]) -> None:
        self._status = status
        self._clock = clock
        self._state_of = state_of
        self._listing: _Listing | None = None
        self._turn = asyncio.Lock()
        self._inside = 0
        self._free_at = float("-inf")

    async def page(
        self,
        limit: int,
        namespace: str | None,
        after: Place | None,
        row: Callable[[Pending, Moment], Any],
        release: Release | None = None,
    ) -> StatusPage:
        """Return at most ``limit`` rows after a place; ``row`` makes the row of a pod. Raise ``Busy`` if overloaded.
        ``release``: only the pods that are due and blocked, and that it would let go.
        """
        async with self._share():
            serves_seconds = _SERVES_SECONDS if after is None else _SERVES_PAGES_SECONDS
            listing = await self._recent_listing(namespace, release, serves_seconds)
            places, now, rows = listing.after(after), self._clock.now(), []
            last, left = after, min(limit, MAX_PODS)
            while left > 0 and (some := list(islice(places, min(left, SLICE)))):
                rows += [row(each, now) for each in self._status.pending(now, [place.key for place in some])]
                last, left = some[-1], left - len(some)
                await asyncio.sleep(0)
            more = last is not None and next(places, None) is not None
            numbers = listing.still_held, listing.without_owner
            return StatusPage(now, listing.counts, listing.groups, rows, last if more else None, *numbers)

    async def _recent_listing(self, namespace: str | None, release: Release | None, serves_seconds: float) -> _Listing:
        now, listing = self._clock.now(), self._listing
        is_same = listing is not None and (listing.namespace, listing.release) == (namespace, release)
        if listing is None or not is_same or now.at > listing.at + serves_seconds:
            listing = self._listing = await self._list_all(_Listing(now.at, namespace, release))
        return listing

    async def _list_all(self, listing: _Listing) -> _Listing:
        guards = None if listing.release is None else self._status.supposing(listing.release)
        keys = iter(self._status.known_keys())
        while some := list(islice(keys, SLICE)):
            now = self._clock.now()
            wanted = [key for key in some if listing.namespace in (None, key.namespace)]
            found = list(self._status.pending(now, wanted))
            if guards is not None:
                released = [self._status.is_released(each, guards, now) for each in found]
                listing.still_held += released.count(False)
                found = [each for each, leaves in zip(found, released, strict=True) if leaves]
            for each in found:
                listing.count(each, self._state_of(each))
            listing.runs.append(sorted(Place(each.decision.fire_at, each.record.ref.key) for each in found))
            await asyncio.sleep(0)
        return listing

    @contextlib.asynccontextmanager
    async def _share(self) -> AsyncIterator[None]:
        """Wait for this request's turn, and until other work has had its share of the time."""
        if self._inside > _MAX_WAITING:
            raise Busy
        self._inside += 1
        try:
            async with self._turn:
                await asyncio.sleep(max(0.0, self._free_at - self._clock.now().at))
                began_at = self._clock.now().at
                yield
                ended_at = self._clock.now().at
                self._free_at = ended_at + (_PARTS - 1) * (ended_at - began_at)
        finally:
            self._inside -= 1
