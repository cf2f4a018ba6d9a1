"""The list of pods that wait for their eviction, in pages: ordered, and never in the way of other work."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.unit.builders import Stage, moment, node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import virtually

from taint_eviction.core.facts import PodGone
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.status import Pending
from taint_eviction.reporting.pending_pages import MAX_PODS, SLICE, Busy, PendingPages, Place, StatusPage
from taint_eviction.reporting.status_document import state_of
from taint_eviction_lab.simulation.virtual_clock import virtual_now


@dataclass
class Asking:
    """Pages of a stage with this many pods, by the loop's clock; making a row takes ``row_seconds``."""

    pods: int = 0
    row_seconds: float = 0.0
    on: Stage = field(default_factory=Stage)
    worked_seconds: float = 0.0
    looked_at: int = 0
    max_at_once: int = 0

    def __post_init__(self) -> None:
        self.on.sees(node(taint()))
        self.add(*range(self.pods))
        self.pages = PendingPages(self.on.brain.status, self, state_of)
        pending = self.on.brain.status.pending

        def counted(now: Moment, keys: Iterable[NamespacedName] | None = None) -> Iterator[Pending]:
            for key in keys or ():
                self.looked_at += 1
                yield from pending(now, [key])

        self.on.brain.status.pending = counted  # type: ignore[method-assign]

    def add(self, *numbers: int) -> None:
        """Add pods; the higher a pod's number, the sooner it is due."""
        for number in numbers:
            self.on.sees(pod(tolerates(10_000 - number), name=f"p{number}", uid=f"u{number}"))

    def now(self) -> Moment:
        return moment(virtual_now() + self.worked_seconds)

    async def page(self, limit: int = MAX_PODS, after: Place | None = None) -> StatusPage:
        """Ask for a page of names."""
        return await self.pages.page(limit, None, after, self._row)

    def _row(self, pending: Pending, now: Moment) -> str:
        self.worked_seconds += self.row_seconds
        return pending.record.pod.ref.key.name

    async def notice(self) -> None:
        """Note how many pods are looked at from one turn of the loop to the next."""
        while True:
            before = self.looked_at
            await asyncio.sleep(0)
            self.max_at_once = max(self.max_at_once, self.looked_at - before)


@virtually
async def test_pages_follow_each_other_in_order() -> None:
    """The pod with the earliest deadline comes first, and each pod comes once."""
    asking = Asking(5 * SLICE + 1)
    names, after, count = [], None, 0
    while count == 0 or after is not None:
        page = await asking.page(2 * SLICE, after)
        names += page.rows
        after, count = page.last, count + 1
        assert page.counts == {"waiting": 5 * SLICE + 1}
    assert (names, count) == ([f"p{number}" for number in range(5 * SLICE, -1, -1)], 3)


@virtually
async def test_a_page_has_a_limit_whatever_is_asked_for() -> None:
    """The other pods are on further pages."""
    page = await Asking(MAX_PODS + 1).page(10**6)
    assert (len(page.rows), page.last is not None) == (MAX_PODS, True)


@virtually
async def test_an_empty_page_says_how_many_pods_there_are() -> None:
    """An empty page has no place to continue at: a client would ask without end."""
    page = await Asking(3).page(0)
    assert (page.rows, page.last, page.counts.total()) == ([], None, 3)


@virtually
async def test_the_loop_turns_after_each_slice() -> None:
    """Other work waits for no more than a slice, while pods are ordered and while a page is made."""
    asking = Asking(2 * MAX_PODS)
    noticing = asyncio.create_task(asking.notice())
    await asyncio.gather(*(asking.page() for _ in range(3)))
    noticing.cancel()
    await asyncio.gather(noticing, return_exceptions=True)
    assert asking.looked_at == 2 * MAX_PODS + 3 * MAX_PODS
    assert 0 < asking.max_at_once <= SLICE


@virtually
async def test_answers_take_a_tenth_of_the_time_at_most() -> None:
    """After a second of work the next query waits for nine seconds."""
    asking = Asking(10, row_seconds=0.1)
    for expected in (0.0, 9.0, 18.0):
        await asking.page()
        assert virtual_now() == pytest.approx(expected)


@virtually
async def test_only_a_limited_number_of_queries_waits() -> None:
    """A further query is refused at once; later there is room again."""
    asking = Asking(1)
    waiting = [asyncio.create_task(asking.page()) for _ in range(17)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await asking.page()
    await asyncio.gather(*waiting)
    assert (await asking.page()).rows == ["p0"]


@virtually
async def test_further_pages_keep_the_order_of_the_first() -> None:
    """A pod that is added meanwhile appears when the first page is asked for again; a pod that is gone is left out."""
    asking = Asking(4)
    first = await asking.page(2)
    asking.add(4)
    asking.on.observe(PodGone(ref("p1", "u1")))
    await asyncio.sleep(1.5)
    second = await asking.page(2, first.last)
    third = await asking.page(2)
    assert [first.rows, second.rows, third.rows] == [["p3", "p2"], ["p0"], ["p4", "p3"]]
    assert second.last is None


def test_a_place_is_read_as_it_was_written() -> None:
    """The deadline keeps its last bit: otherwise a pod would be left out, or would come twice."""
    place = Place(0.1 + 0.2, NamespacedName("shop", "web-0"))
    assert Place.parse(str(place)) == place
