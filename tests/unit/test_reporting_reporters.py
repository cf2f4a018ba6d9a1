"""Which of several replicas reports an effect."""

import pytest
from tests.unit.runtime_fakes import FakeGate

from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.events import (
    AdoptionRefused,
    BreakerClosed,
    Cancelled,
    CountdownAdopted,
    Event,
    Evicted,
    EvictionLoop,
    GivenBack,
    NodeTainted,
    Refused,
    TaintRewritten,
)
from taint_eviction.core.instants import Moment, TimeSource
from taint_eviction.core.objects import ControllerRef, NamespacedName, PodRef, Taint
from taint_eviction.reporting.reporters import LeaderReporter

REF = PodRef(NamespacedName("shop", "web-0"), "uid-a")
NOW = Moment(1000.0, 1714557600.0)
TAINT = Taint("k", "NoExecute")
VERDICT = TaintVerdict(TAINT, None, None, 990.0, TimeSource.FIRST_SIGHT, 990.0)


class Listener:
    """A reporter that keeps what is reported."""

    def __init__(self) -> None:
        self.told: list[Event] = []

    def report(self, effect: Event, now: Moment) -> None:
        self.told.append(effect)


def told(effect: Event, leading: bool) -> list[Event]:
    gate, listener = FakeGate(), Listener()
    gate.open = leading
    LeaderReporter(gate, [listener]).report(effect, NOW)
    return listener.told


SEEN = [Cancelled(REF, "n1", StayReason.NODE_CLEAN), TaintRewritten("n1", TAINT), NodeTainted("n1"), BreakerClosed()]
DONE = [
    Evicted(REF, "n1", Evict(990.0, VERDICT, (VERDICT,)), 0.1),
    EvictionLoop(REF, "n1", ControllerRef("DaemonSet", "web", "uid-b"), TAINT),
    Refused(REF, "n1", "no", 1, 0.0, 1.0),
    CountdownAdopted(REF, "n1", 1),
    AdoptionRefused(REF, "n1", "no", 1),
    GivenBack(REF, "n1"),
]


@pytest.mark.parametrize("effect", SEEN)
def test_what_every_replica_sees_is_reported_only_by_the_leader(effect: Event) -> None:
    """The gate is asked at the moment of the report."""
    assert (told(effect, leading=True), told(effect, leading=False)) == ([effect], [])


@pytest.mark.parametrize("effect", DONE)
def test_what_this_process_did_is_reported_even_if_it_no_longer_leads(effect: Event) -> None:
    """No other replica knows of these effects."""
    assert told(effect, leading=False) == [effect]
