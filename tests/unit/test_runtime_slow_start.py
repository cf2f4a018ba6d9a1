"""Slow start: a few after a pause, then more, then all."""

from tests.unit.runtime_fakes import now, until, virtually

from taint_eviction.runtime.slow_start import SlowStart


@virtually
async def test_who_chooses_its_own_work_reads_how_much_may_run() -> None:
    """A few after a pause, one more for each that ends, all a moment later; each step is announced."""
    announced: list[tuple[float, int]] = []
    it = SlowStart(4, 20, lambda: announced.append((now(), it.allowed)))
    assert (it.few, it.allowed) == (4, 4)
    it.begin()
    await until(0.1)
    it.let_more()
    await until(10)
    assert announced == [(0.1, 5), (0.2, 20)]
    it.pause()
    assert it.allowed == 4


@virtually
async def test_a_pause_ends_the_moment_after_which_all_may_run() -> None:
    """Work that follows it starts slowly for a moment of its own."""
    it = SlowStart(1, 5)
    it.begin()
    await until(0.1)
    it.pause()
    it.begin()
    await until(0.25)
    assert it.allowed == 1
    await until(0.35)
    assert it.allowed == 5
