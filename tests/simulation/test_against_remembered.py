"""What is remembered of a pod says when the built-in controller would have evicted it: as its model does."""

from collections.abc import Iterable

import pytest
from tests.stage.catalogue import scenario_file

from taint_eviction.core.events import Event
from taint_eviction.core.instants import Moment
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.reporting.outcome_memory import OutcomeMemory
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction_ctl.cli.against_built_in import built_in_text, in_brief
from taint_eviction_ctl.cli.asking import Document
from taint_eviction_lab.built_in.version import MEASURED
from taint_eviction_lab.simulation.against import alone, by_built_in
from taint_eviction_lab.simulation.replay import replay
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.simulation.timeline import Timeline, What
from taint_eviction_lab.simulation.virtual_clock import date_of
from taint_eviction_lab.wiring import production_parsing


class Remembering(OutcomeMemory):
    """Remembers, and knows when it was last told something."""

    def report(self, event: Event, now: Moment) -> None:
        """Remember."""
        self.now = now
        super().report(event, now)


def played(name: str) -> tuple[list[Document], dict[str, float]]:
    """Return what is remembered of a scenario's pods, and by UID when the model evicts them in their cluster."""
    file = scenario_file(name)
    scenario = read_scenario(file.read_text(encoding="utf-8"), file.name)
    memories: list[Remembering] = []

    def reporters(_timeline: Timeline, _gate: Gate) -> Iterable[Reporter]:
        memories.append(Remembering())
        return memories[-1:]

    replay(alone(scenario), production_parsing(), reporters)
    timeline = replay(by_built_in(scenario, MEASURED), production_parsing(), leaves_out=True).timeline
    remembered = [each.document(memory.now) for memory in memories for each in memory.newest()]
    return remembered, {entry.uid: entry.at for entry in timeline if entry.what is What.EVICTED}


@pytest.mark.parametrize(
    "name",
    [
        "breaker-is-reset",
        "budget-blocks-then-frees",
        "evict-tolerance-of-70-seconds",
        "hold-for-a-default-tolerance",
        "hold-for-a-span",
        "limit-of-a-node",
        "pause-at-night-beside-a-hold-and-a-ceiling",
        "pause-ends-by-itself",
        "reschedule-second-taint-hastens",
    ],
)
def test_the_model_evicts_when_it_is_said(name: str) -> None:
    """The remembered instant is that at which the model evicts the pod, played in a cluster of its own."""
    remembered, evicted_at = played(name)
    said = {each["uid"]: (parse_rfc3339(each["builtInAt"]) or 0.0) - date_of(0.0) for each in remembered}
    assert said
    assert said == pytest.approx({uid: evicted_at[uid] for uid in said}, abs=1.0)


def test_each_difference_is_told_with_its_reason() -> None:
    """A pause, a hold and a ceiling: the built-in controller knows none of them."""
    remembered, _ = played("pause-at-night-beside-a-hold-and-a-ceiling")
    assert {each["name"]: in_brief(each) for each in remembered} == {
        "web-0": "9 m 56 s earlier",
        "cart-0": "same",
        "db-0": "10 m earlier",
        "batch-0": "10 m later",
    }


@pytest.mark.parametrize("name", ["reschedule-seconds-shortened", "reschedule-not-ready-becomes-unreachable"])
def test_a_timer_from_before_a_change_is_not_known(name: str) -> None:
    """The built-in controller keeps its first timer; what is remembered is what stood at the end. The page says so."""
    remembered, evicted_at = played(name)
    said = (parse_rfc3339(remembered[0]["builtInAt"]) or 0.0) - date_of(0.0)
    assert abs(said - evicted_at[remembered[0]["uid"]]) > 2.0


OUTCOME: Document = {
    "time": "2030-01-01T00:00:10.5Z",
    "outcome": "evicted",
    "since": "2030-01-01T00:00:10Z",
    "sinceBy": "first sight",
    "builtInAt": "2030-01-01T00:00:10Z",
    "lateSeconds": 0.5,
    "heldSeconds": 0.0,
    "byDefault": False,
    "ceiling": None,
    "call": "delete",
    "tries": 1,
}
AT = "2030-01-01 00:00:10 UTC"
GIVES_UP = "after refusals as here it gives up, with its fifth try within a second"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, f"would have evicted it at about the same time, at {AT}"),
        ({"tries": 7}, f"would have evicted it at about the same time, at {AT}: {GIVES_UP}"),
        ({"outcome": "refused"}, f"would have tried it at {AT}: {GIVES_UP}"),
        (
            {"time": "2030-01-01T00:05:10Z", "byDefault": True, "lateSeconds": 0.0},
            f"would have evicted it 5 m earlier, at {AT}: it knows no default tolerance",
        ),
        (
            {"time": "2030-01-01T00:05:10Z", "outcome": "blocked", "call": "evict", "lateSeconds": 300.0},
            f"would have tried it at {AT}: it knows no pause, breaker, limit or order, and asks no budget; here the pod"
            " waited 5 m past its deadline",
        ),
        (
            {"time": "2030-01-01T00:05:10Z", "lateSeconds": 300.0, "heldBy": ["the circuit breaker", "rule a"]},
            f"would have evicted it 5 m earlier, at {AT}: it does not know the circuit breaker and rule a; here the pod"
            " waited 5 m past its deadline",
        ),
        (
            {"time": "2029-12-31T23:59:10Z", "lateSeconds": 0.0},
            f"would have evicted it 1 m later, at {AT}, if the taint was still there: a timer that it has set is never"
            " moved",
        ),
        (
            {"sinceBy": "start of the outage"},
            f"would have evicted it at about the same time, at {AT}: in this outage the taint was taken back and set"
            " again, with which it begins again, and is later",
        ),
        (
            {"since": None, "builtInAt": None},
            "not known what it would have done: an event does not tell when the countdown began",
        ),
        (
            {"builtInAt": None},
            "not known what it would have done: a version of this controller that does not note it has remembered this",
        ),
    ],
)
def test_what_else_would_have_mattered_is_told(fields: Document, text: str) -> None:
    """Refusals, defaults, budgets, the outage, and what is not known."""
    assert built_in_text({**OUTCOME, **fields}) == text
