"""The audit log as a record: what follows from its lines is drawn, and replayed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.planning.test_history import EPOCH, played, read
from tests.stage.clocks import HandClock
from tests.unit.builders import node, pod, taint, tolerates

from taint_eviction.core.controller import Controller
from taint_eviction.core.events import (
    Block,
    BlockReason,
    CalledOff,
    Done,
    Failed,
    PodIsGone,
    TakeBack,
    Work,
    WorkOutcome,
)
from taint_eviction.core.facts import Fact, NodeSeen, PodGone, PodSeen
from taint_eviction.core.instants import Moment
from taint_eviction.reporting.audit import AuditLog
from taint_eviction.reporting.rotating_lines import RotatingLines
from taint_eviction.runtime.live import Live
from taint_eviction_ctl.picture.scene import Kind
from taint_eviction_lab.history.to_scenario import scenario_text
from taint_eviction_lab.picture.of_history import picture_of_record


class Incident:
    """A controller with an audit log, and with a clock that is moved by hand."""

    def __init__(self, path: Path) -> None:
        self.clock = HandClock(at=0.0)
        self.audit = AuditLog(RotatingLines(path, 2**20, "the audit log"))
        self.live = Live(Controller(), self.clock, [], attempted=self.audit.attempted)
        self.refusals: dict[str, list[WorkOutcome]] = {}

    def see(self, *facts: Fact) -> None:
        """Let the controller observe facts now."""
        for fact in facts:
            self.live.observe(fact)

    def until(self, second: float) -> None:
        """Evict all pods that are due up to then; each pod vanishes at once, unless its attempt is refused first."""
        while (due := self.live.controller.attempts.next_at(self.clock.now())) is not None and due <= second:
            self.clock.at = max(self.clock.at, due)
            for work in self.live.take_due(10, 10):
                self.settle(work)
        self.clock.at = second

    def settle(self, work: Work) -> None:
        """End one attempt."""
        left = self.refusals.get(work.ref.key.name)
        if left:
            self.live.finish(work, left.pop(0))
            return
        self.live.finish(work, Done())
        self.see(PodGone(work.ref))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of the audit log."""
    return tmp_path / "audit"


@pytest.fixture
def incident(file: Path) -> Iterator[Incident]:
    """Make an incident with an audit log of its own."""
    made = Incident(file)
    yield made
    made.audit.close()


def surge(on: Incident) -> None:
    """Two taints, and three pods: one goes at once, one by its second toleration, one comes later and is blocked."""
    on.see(NodeSeen(node(taint(), taint("k2", "v"))))
    on.see(PodSeen(pod(tolerates(), name="a", uid="a")))
    on.see(PodSeen(pod(tolerates(), tolerates(20, "k2"), name="b", uid="b")))
    on.until(5)
    on.see(PodSeen(pod(tolerates(10), tolerates(60, "k2"), name="c", uid="c", bound_at=5.0)))
    on.refusals["c"] = [Failed("no (HTTP 429)", 16.0, Block(BlockReason.BUDGET, "web"))]
    on.until(30)


def test_an_audit_log_becomes_a_picture(incident: Incident, file: Path) -> None:
    """The picture has taints, countdowns, refusals and evictions, and a note on what the log does not contain."""
    surge(incident)
    record = read(file)
    assert (record.problems, record.skipped) == ([], {})
    picture = picture_of_record(record)
    drawn = {row.pod: ([mark.kind for mark in row.marks], row.left_at, row.outcome) for row in picture.rows}
    assert drawn == {
        "shop/a": ([Kind.SCHEDULED, Kind.EVICTED], 0.0, "evicted"),
        "shop/b": ([Kind.SCHEDULED, Kind.EVICTED], 20.0, "evicted"),
        "shop/c": ([Kind.SCHEDULED, Kind.REFUSED, Kind.EVICTED], 16.0, "evicted"),
    }
    countdowns = [(bar.begin, bar.end) for row in picture.rows for bar in row.bars if bar.kind is Kind.COUNTDOWN]
    assert countdowns == [(0.0, 20.0), (5.0, 15.0)]
    [bands] = picture.bands.values()
    assert {(band.text, band.begin) for band in bands} == {("k1:NoExecute", 0.0), ("k2=v:NoExecute", 0.0)}
    assert picture.notes == [record.missing]


def test_an_audit_log_becomes_a_scenario_that_holds(incident: Incident, file: Path) -> None:
    """Each pod has the tolerations that counted, also those of taints that did not decide."""
    surge(incident)
    text = scenario_text(read(file))
    result = played(text)
    assert result.broken == ()
    assert sorted(verdict.pod for verdict in result.verdicts) == ["shop/a", "shop/b", "shop/c"]
    assert "pods that stayed and taints that were removed are missing" in " ".join(text.split())


def test_nothing_is_expected_of_a_pod_whose_eviction_was_called_off(incident: Incident, file: Path) -> None:
    """The audit log does not say why the eviction was called off: the replay may evict the pod."""
    incident.see(NodeSeen(node(taint())), PodSeen(pod()))
    incident.refusals["web-0"] = [CalledOff()]
    [work] = incident.live.take_due(10, 10)
    incident.settle(work)
    assert played(scenario_text(read(file))).broken == ()


def test_a_pod_that_somebody_else_deleted_goes_in_the_scenario_too(incident: Incident, file: Path) -> None:
    """The pod was gone when its turn came."""
    incident.see(NodeSeen(node(taint())), PodSeen(pod(tolerates(5))))
    incident.refusals["web-0"] = [PodIsGone()]
    incident.until(10)
    result = played(scenario_text(read(file)))
    assert result.broken == ()
    assert [(step.at, step.text.split()[0]) for step in result.scenario.steps][-1] == (5.0, "delete")


def test_take_backs_are_no_evictions(incident: Incident, file: Path) -> None:
    """Take-backs are in the audit log, but not in the record made from it, and no line is skipped."""
    incident.audit.attempted(TakeBack(pod().ref, "n1", 0), Done(), Moment(0.0, EPOCH))
    record = read(file)
    assert (record.happenings, record.skipped, record.problems) == ([], {}, [])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"action": "evict", "outcome": "evicted", "taints": []}', "the line has no time"),
        ('{"action": "evict", "outcome": "evicted", "time": "2030-01-01T00:00:00Z"}', "the line names no taint"),
    ],
)
def test_a_line_that_lacks_a_field_is_reported_with_its_place(file: Path, line: str, problem: str) -> None:
    """The line counts as skipped."""
    file.write_text(f"{line}\n")
    record = read(file)
    assert (record.problems, record.skipped) == ([f"audit:1: {problem}"], {"malformed": 1})
