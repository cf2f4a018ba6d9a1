"""What became of pods is remembered, bounded, and told over /history."""

from typing import Any

from tests.unit.builders import Stage, moment, node, pod, ref, taint

from taint_eviction.adapters.outcome_memory import OutcomeMemory
from taint_eviction.core.effects import Done, Effect, Evicted
from taint_eviction.core.facts import PodGone
from taint_eviction.core.instants import Moment


def told(memory: OutcomeMemory, effects: list[Effect], now: Moment) -> list[dict[str, Any]]:
    """Tell the memory, and return all that it remembers."""
    for effect in effects:
        memory.report(effect, now)
    return [each.document() for each in memory.newest()]


def test_an_own_eviction_is_remembered_with_call_and_answer() -> None:
    """The taint that decided and the lateness belong to it."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    work = on.take_eviction()
    memory.attempted(work, Done(), moment(on.now))
    (row,) = told(memory, on.brain.attempts.settle(work, Done(), moment(on.now)), moment(on.now))
    assert (row["outcome"], row["call"], row["answer"], row["lateSeconds"]) == ("evicted", "delete", "accepted", 0.0)
    assert row["taint"] == str(taint())


def test_a_standby_remembers_a_pod_that_it_saw_go() -> None:
    """It knows what it had decided, and no call."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    (row,) = told(memory, on.brain.observe(PodGone(ref()), moment(on.now)), moment(on.now))
    assert (row["outcome"], row["call"], row["answer"]) == ("gone", None, None)


def test_count_and_bytes_are_bounded() -> None:
    """The oldest are forgotten first, and counted."""
    on = Stage()
    on.sees(node(taint()), pod())
    work = on.take_eviction()
    for memory in (OutcomeMemory(max_outcomes=2), OutcomeMemory(max_bytes=1500)):
        for number in range(5):
            memory.report(Evicted(ref(f"p{number}", f"p{number}"), "n1", work.decision, 0.0), moment(on.now))
        assert [each.ref.key.name for each in memory.newest()] == ["p4", "p3"]
        assert memory.forgotten == 3
        assert memory.bytes <= 1500


def test_a_storm_is_counted_back_to_the_last_pause() -> None:
    """And is over once nobody has gone for 5 s."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    decision = on.take_eviction().decision
    for number, at in enumerate((0.0, 10.0, 11.0, 12.0, 14.0)):
        memory.report(Evicted(ref(f"p{number}", f"p{number}"), "n1", decision, 0.0), moment(at))
    assert memory.storm(moment(14.0).server_epoch) == (4, 1.0)
    assert memory.storm(moment(20.0).server_epoch) == (0, 0.0)
