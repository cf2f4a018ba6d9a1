"""The timed-worker queue alone, beside a bare heap."""

import gc
import heapq
import random
import tracemalloc
from collections.abc import Callable

from tests.bench.processes import now
from tests.bench.results import Result
from tests.bench.stage import Stages

from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.timed_queue import TimedWorkerQueue

_ENTRIES = 1_000_000


async def queue(_stages: Stages, scale: float) -> list[Result]:
    """Schedule 1,000,000 entries, cancel a tenth, and pop the others."""
    most = round(_ENTRIES * scale)
    refs = [PodRef(NamespacedName("default", f"pod-{index}"), f"uid-{index}") for index in range(most)]
    instants = [random.Random(1).random() * 1e4 for _ in range(1)] + [random.random() * 1e4 for _ in range(most - 1)]
    figure = f"queue, {most:,} entries"
    rates = {size: _rate(_use_queue, refs[:size], instants[:size]) for size in (most // 100, most // 10, most)}
    floor = _rate(_use_heap, refs, instants)
    growth = rates[most // 100] / rates[most]
    logarithm = _log_growth(most // 100, most)
    return [
        Result(figure, "operations a second", rates[most], "/s", 500_000, floor, "heapq and dict", at_least=True),
        Result(figure, "an operation's cost beside 1/100 of the entries", growth, "×", None, logarithm, "log n"),
        Result(figure, "memory an entry", _bytes_an_entry(refs, instants), "bytes", 200.0),
    ]


def _log_growth(few: int, many: int) -> float:
    return len(bin(many)) / len(bin(max(2, few)))


def _rate(use: Callable[[list[PodRef], list[float]], int], refs: list[PodRef], instants: list[float]) -> float:
    gc.collect()
    gc.set_threshold(10_000, 10, 100)  # as the controller sets it: a million tuples are worth no search
    began_at = now()
    operations = use(refs, instants)
    return operations / (now() - began_at)


def _use_queue(refs: list[PodRef], instants: list[float]) -> int:
    queue = TimedWorkerQueue()
    for ref, instant in zip(refs, instants, strict=True):
        queue.schedule(ref, instant)
    for ref in refs[::10]:
        queue.cancel(ref)
    cancelled, popped = len(refs[::10]), 0
    while queue.pop_due(1e9) is not None:
        popped += 1
    return len(refs) + cancelled + popped


def _use_heap(refs: list[PodRef], instants: list[float]) -> int:
    """Do the same with only a heap and a dict; no entry belongs to a UID, and none can be replaced."""
    heap: list[tuple[float, int, PodRef]] = []
    entries: dict[NamespacedName, float] = {}
    for order, (ref, instant) in enumerate(zip(refs, instants, strict=True)):
        entries[ref.key] = instant
        heapq.heappush(heap, (instant, order, ref))
    cancelled = sum(entries.pop(ref.key, None) is not None for ref in refs[::10])
    popped = 0
    while heap:
        if entries.pop(heapq.heappop(heap)[2].key, None) is not None:
            popped += 1
    return len(refs) + cancelled + popped


def _bytes_an_entry(refs: list[PodRef], instants: list[float]) -> float:
    """Measure the memory of the queue without the refs and instants."""
    tracemalloc.start()
    queue = TimedWorkerQueue()
    for ref, instant in zip(refs, instants, strict=True):
        queue.schedule(ref, instant)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(queue)
