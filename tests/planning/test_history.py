"""The journal: an incident is recorded, drawn, and replayed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.stage.clocks import HandClock
from tests.unit.builders import node, pod, taint, tolerates

from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Done
from taint_eviction.core.facts import Fact, NodeSeen, NodesSwept, PodGone, PodSeen
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import UNREACHABLE, Readiness
from taint_eviction.reporting.journal import Journal
from taint_eviction.runtime.live import Live
from taint_eviction_ctl.picture.page import render_page
from taint_eviction_ctl.picture.scene import Kind
from taint_eviction_lab.cli.replay import replay as replay_command
from taint_eviction_lab.history.record import RunRecord, looks_like_record, read_record
from taint_eviction_lab.history.to_scenario import scenario_text
from taint_eviction_lab.picture.of_history import picture_of_record
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

EPOCH = 1_900_000_000.0
_PODS = (("early",), ("due", tolerates(5)), ("drained", tolerates(25)))


def incident(path: Path) -> None:
    """Taint a node, untaint it, taint it again: one pod goes at once, one is spared, one goes after 5 s."""
    clock, journal = HandClock(at=0.0), Journal(path)
    live = Live(Controller(), clock, [journal])

    def observe(fact: Fact) -> None:
        journal.observed(fact, clock.now())
        live.observe(fact)

    def at(second: float) -> None:
        while (due := live.controller.attempts.next_at(clock.now())) is not None and due <= second:
            clock.at = max(clock.at, due)
            for work in live.take_due(10, 10):
                live.finish(work, Done())
                observe(PodGone(work.ref))
        clock.at = second

    observe(NodeSeen(node()))
    at(10)
    observe(NodeSeen(node(taint())))
    observe(PodSeen(pod(tolerates(60), name="b", uid="b")))
    observe(PodSeen(pod(name="a")))
    at(30)
    observe(NodeSeen(node()))
    at(40)
    observe(NodeSeen(node(taint())))
    observe(PodSeen(pod(tolerates(5), name="c", uid="c")))
    at(50)
    observe(NodeSeen(node()))
    journal.close()


def read(path: Path) -> RunRecord:
    """Read a record."""
    with path.open("rb") as lines:
        return read_record(lines, path.name)


def played(text: str) -> ReplayResult:
    """Play a scenario."""
    return replay_scenario(read_scenario(text, "incident.yaml"))


def test_a_journal_becomes_a_picture(tmp_path: Path) -> None:
    """The picture has taints as bands, countdowns, cancellations and evictions."""
    incident(tmp_path / "journal")
    record = read(tmp_path / "journal")
    assert record.problems == []
    picture = picture_of_record(record)
    outcomes = {row.pod.rpartition("/")[2]: row.outcome for row in picture.rows}
    assert outcomes == {"a": "evicted", "b": "cancelled", "c": "evicted"}
    assert sorted((band.begin, band.end) for bands in picture.bands.values() for band in bands) == [(10, 30), (40, 50)]
    late = next(row for row in picture.rows if row.pod.endswith("/c"))
    assert [(bar.begin, bar.end) for bar in late.bars if bar.kind is Kind.COUNTDOWN] == [(40.0, 45.0)]
    assert "What happened" in render_page(picture)


def test_a_journal_of_a_process_beside_another_controller_can_be_played(tmp_path: Path) -> None:
    """A standby, or a dry run: the other one ends what is due, a person drains, and one pod is ending at the start."""
    clock, journal = HandClock(at=0.0), Journal(tmp_path / "journal")
    live = Live(Controller(), clock, [journal])

    def observe(at: float, *facts: Fact) -> None:
        clock.at = at
        for fact in facts:
            journal.observed(fact, clock.now())
            live.observe(fact)

    ending = {name: pod(*tolerations, name=name, uid=name, terminating=True) for name, *tolerations in _PODS}
    living = {name: pod(*tolerations, name=name, uid=name) for name, *tolerations in _PODS}
    observe(0, NodeSeen(node()))
    observe(10, NodeSeen(node(taint())), PodSeen(ending["early"]), PodSeen(living["due"]), PodSeen(living["drained"]))
    observe(12, PodGone(ending["early"].ref))
    observe(15.02, PodSeen(ending["due"]))
    observe(20, PodSeen(ending["drained"]))
    observe(40, PodGone(ending["due"].ref), PodGone(ending["drained"].ref))
    journal.close()
    result = played(scenario_text(read(tmp_path / "journal")))
    assert result.broken == ()


def test_a_journal_becomes_a_scenario_that_holds(tmp_path: Path) -> None:
    """In the replay the controller does what it did, so that an incident can be kept as a test."""
    incident(tmp_path / "journal")
    text = scenario_text(read(tmp_path / "journal"))
    result = played(text)
    assert result.broken == ()
    assert sorted(verdict.pod.rpartition("/")[2] for verdict in result.verdicts) == ["a", "b", "c"]


def test_a_journal_of_an_outage_becomes_a_scenario_that_holds(tmp_path: Path) -> None:
    """The journal has the readiness of nodes: without it the replayed countdown would start again."""
    clock, journal = HandClock(at=0.0), Journal(tmp_path / "journal")
    live = Live(Controller(), clock, [journal], heard=journal.observed)
    down, up = Readiness("Unknown", EPOCH - 60), Readiness("True", EPOCH - 3600)
    live.observe(NodeSeen(replace(node(name="n2"), ready=up)))
    for clock.at, taints in ((0.0, ()), (10.0, (taint(UNREACHABLE),)), (16.0, ()), (16.25, (taint(UNREACHABLE),))):
        live.observe(NodeSeen(replace(node(*taints), ready=down)))
        live.observe(PodSeen(pod(tolerates(12, UNREACHABLE))))
    clock.at = 22.0
    for work in live.take_due(10, 10):
        live.finish(work, Done())
    journal.close()
    result = played(scenario_text(read(tmp_path / "journal")))
    assert [verdict.expected for verdict in result.verdicts] == ["evicted at 21.9 (within 2.1 s)"]
    assert result.broken == ()


def test_a_journal_says_that_a_node_was_shut_down_gracefully(tmp_path: Path) -> None:
    """A controller that is set to wait for kubelets decides by the words of the node's condition."""
    journal = Journal(tmp_path / "journal")
    for at, shutting_down in ((0.0, False), (10.0, True), (20.0, False)):
        down = Readiness("False", EPOCH - 60, shutting_down)
        journal.observed(NodeSeen(replace(node(taint()), ready=down)), Moment(at, EPOCH + at))
    journal.close()
    text = scenario_text(read(tmp_path / "journal"))
    steps = [step.text for step in read_scenario(text, "incident.yaml").steps]
    assert len(steps) == 2
    assert ["node is shutting down" in step for step in steps] == [True, False]


def test_a_pod_appears_in_the_scenario_when_it_was_bound(tmp_path: Path) -> None:
    """Pods are observed only once their node is tainted; the time of the binding says when a pod appeared."""
    journal = Journal(tmp_path / "journal")
    journal.observed(NodeSeen(node()), Moment(0.0, EPOCH))
    journal.observed(NodeSeen(node(taint())), Moment(100.0, EPOCH + 100))
    for name, bound_at in (("old", EPOCH - 50), ("new", EPOCH + 60)):
        told = replace(pod(tolerates(5), name=name, uid=name), bound_at=bound_at)
        journal.observed(PodSeen(told), Moment(100.0, EPOCH + 100))
    journal.close()
    scenario = read_scenario(scenario_text(read(tmp_path / "journal")), "incident.yaml")
    assert [body["metadata"]["name"] for body in scenario.pods] == ["old"]
    assert [(step.at, step.text.split()[0]) for step in scenario.steps] == [(61.0, "create"), (100.0, "setTaints")]


def test_a_log_becomes_a_scenario_too(tmp_path: Path) -> None:
    """A log has less than a journal, but has taints, pods with a deadline, and their outcomes."""
    lines: list[dict[str, Any]] = [
        {"time": "2030-03-17T17:46:40Z", "what": "tainted", "node": "n1"},
        {"what": "scheduled", "taint": "k=v:NoExecute", "toleration": None, "pod": "ns/a", "uid": "1"},
        {
            "what": "scheduled",
            "taint": "k=v:NoExecute",
            "toleration": "k:NoExecute for 30 s",
            "pod": "ns/b",
            "uid": "2",
        },
        {
            "what": "evicted",
            "taint": "k=v:NoExecute",
            "toleration": None,
            "pod": "ns/a",
            "uid": "1",
            "late_seconds": 0.1,
        },
        {"time": "2030-03-17T17:46:55Z", "what": "cleared", "node": "n1"},
        {"time": "2030-03-17T17:46:55Z", "what": "cancelled", "pod": "ns/b", "uid": "2", "reason": "node_clean"},
    ]
    whole = [
        {"time": "2030-03-17T17:46:40Z", "node": "n1", "deadline": "2030-03-17T17:46:40Z", **line} for line in lines
    ]
    record = read_record([json.dumps(line).encode() + b"\n" for line in whole], "log")
    assert not record.observed
    result = played(scenario_text(record))
    assert result.broken == ()
    assert {verdict.pod for verdict in result.verdicts} == {"ns/a", "ns/b"}


def test_a_line_that_is_cut_is_reported_and_skipped(tmp_path: Path) -> None:
    """The usable lines are used, and the skipped lines are counted."""
    incident(tmp_path / "journal")
    raw = (tmp_path / "journal").read_bytes()
    record = read_record((raw[:-20] + b"\nnonsense\n" + raw[-60:-5]).splitlines(keepends=True), "journal")
    assert record.skipped == {"not JSON": 2, "cut in the middle": 1}
    assert record.problems[-1].endswith("the line is cut in the middle")
    assert played(scenario_text(record)).scenario.steps


def test_a_record_of_which_nothing_is_expected_says_so_and_what_was_skipped(tmp_path: Path) -> None:
    """No pod was evicted in it and none was to be, so that nothing fails."""
    lines: list[dict[str, Any]] = [
        {"what": "journal", "t": EPOCH},
        {"what": "node", "t": EPOCH + 1, "node": "n1", "taints": [], "ready": "True"},
        {"what": "ruled", "t": EPOCH + 2},
        {"what": "ruled", "t": EPOCH + 3},
        {"what": "node", "node": "n2"},
    ]
    (tmp_path / "journal").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = CliRunner().invoke(replay_command, [str(tmp_path / "journal")])
    assert result.exit_code == 0
    assert "nothing is expected here, so that nothing can fail" in result.stdout
    assert result.stderr.endswith("3 lines skipped: 2 of the kind ruled, 1 without a time\n")


def test_an_observation_without_news_leaves_no_line(tmp_path: Path) -> None:
    """Lists and heartbeats would fill any disk."""
    journal = Journal(tmp_path / "journal")
    for second in range(100):
        journal.observed(NodeSeen(node(taint())), Moment(second, EPOCH + second))
    journal.observed(NodesSwept(frozenset(), 200.0, None), Moment(200.0, EPOCH + 200))
    journal.close()
    told = [happening.what for happening in read(tmp_path / "journal").happenings]
    assert told == ["journal", "node", "node gone"]


def test_the_journal_is_bounded_and_each_file_stands_alone(tmp_path: Path) -> None:
    """There are two files of the given size at most, and the second begins with what is known."""
    path = tmp_path / "journal"
    journal = Journal(path, max_bytes=2000)
    journal.observed(NodeSeen(node(taint())), Moment(0.0, EPOCH))
    for second in range(200):
        journal.observed(PodSeen(pod(tolerates(second))), Moment(second, EPOCH + second))
    journal.close()
    assert path.stat().st_size <= 2000
    assert (tmp_path / "journal.1").stat().st_size <= 2000
    assert {"node", "pod"} <= {happening.what for happening in read(path).happenings}


def test_a_disk_that_cannot_be_written_ends_the_journal_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The controller continues."""
    journal = Journal(tmp_path / "no such directory" / "journal")
    journal.observed(NodeSeen(node(taint())), Moment(0.0, EPOCH))
    assert "the journal ends here, the controller continues" in caplog.text


def test_a_record_is_told_from_a_scenario_by_its_first_bytes() -> None:
    """A record begins with a JSON object."""
    assert looks_like_record(b'{"t":1.0,"what":"journal"}')
    assert not looks_like_record(b"about: a scenario\n")
