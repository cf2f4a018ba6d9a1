"""A new kind of event is told everywhere without a change of those who tell it."""

import logging

import orjson
import pytest
from tests.unit.runtime_fakes import FakeGate

from taint_eviction.core.events import Event, Fields, Times
from taint_eviction.core.instants import Moment
from taint_eviction.reporting.journal_lines import event_line
from taint_eviction.reporting.log_reporter import LogReporter
from taint_eviction_lab.simulation.timeline import Timeline, What
from taint_eviction_lab.simulation.timeline_reporter import TimelineReporter
from taint_eviction_lab.simulation.virtual_clock import HostClock, ProcessClock

NOW = Moment(1000.0, 1714557600.0)


class NodeRenumbered(Event):
    """An event of a kind that nobody knows."""

    name = "renumbered"

    def _said(self, times: Times) -> str:
        return f"node n1 has had number 7 since {times.of(990.0)}"

    def _subject(self) -> Fields:
        return {"node": "n1"}

    def _details(self) -> Fields:
        return {"number": 7}


def test_the_log_has_its_sentence_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    """It is a warning, since what is usual is listed."""
    with caplog.at_level(logging.DEBUG):
        LogReporter(FakeGate(), dry_run=True).report(NodeRenumbered(), NOW)
    [record] = caplog.records
    assert record.getMessage() == "dry run: node n1 has had number 7 since 2024-05-01 09:59:50 UTC"
    assert record.levelname == "WARNING"
    assert {name: vars(record)[name] for name in ("what", "node", "number")} == {
        "what": "renumbered",
        "node": "n1",
        "number": 7,
    }


def test_the_journal_has_its_fields() -> None:
    """They come after its name, in their own order."""
    assert orjson.dumps(event_line(NodeRenumbered(), NOW)) == b'{"what":"renumbered","node":"n1","number":7}'


def test_the_timeline_has_its_sentence() -> None:
    """The entry is about the node."""
    timeline = Timeline()
    TimelineReporter(timeline, ProcessClock(HostClock(), 0.0)).report(NodeRenumbered(), NOW)
    [entry] = timeline
    assert (entry.what, entry.subject) == (What.TOLD, "n1")
    assert entry.why.startswith("node n1 has had number 7 since ")
