"""Comparisons outlive the process: they are read back from its journals, even if some lines are damaged."""

import logging
from pathlib import Path

import orjson
import pytest
from tests.unit.builders import EPOCH, moment, ref
from tests.unit.runtime_fakes import FakeGate

from taint_eviction.reporting.comparisons import (
    ComparisonReporter,
    JournalComparisons,
    comparison_fields,
    in_words,
    totals_line,
)
from taint_eviction.reporting.journal import Journal
from taint_eviction.settings import Settings
from taint_eviction.shadow.comparison import Comparison, ComparisonResult, DifferenceReason
from taint_eviction.shadow.totals import MAX_DIFFERENCES, ComparisonTotals

LATER = Comparison(
    ref(), "n1", ComparisonResult.LATER, EPOCH + 5, 41.0, DifferenceReason.BEGUN_ANEW, "", "kube-controller-manager"
)
SAME = Comparison(ref(uid="b"), "n1", ComparisonResult.SAME, EPOCH + 6)
NEVER = Comparison(
    ref(uid="c"), "n1", ComparisonResult.NEVER, EPOCH + 7, 630.0, DifferenceReason.GAVE_UP, "until it was cleared"
)


def written(path: Path, found: list[Comparison], max_bytes: int = 2**20, dry_run: bool = True) -> ComparisonTotals:
    """Write a journal with these comparisons, and return their totals."""
    journal, totals = Journal(path, max_bytes, Settings(dry_run=dry_run)), ComparisonTotals(EPOCH)
    journal.carried = lambda: [totals_line(totals)]
    reporter = ComparisonReporter(FakeGate(), lambda _: None, journal.write)
    for each in found:
        reporter.compared(each, moment(each.at_epoch - EPOCH))
        totals.add(each)
    journal.close()
    return totals


def test_comparisons_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    """Results, seconds, reasons, and who ended the pod are in the journal."""
    written(tmp_path / "journal", [LATER, SAME, NEVER])
    read = JournalComparisons(tmp_path / "journal")
    assert list(read.totals.differences) == [LATER, NEVER]
    assert (read.totals.counts.total(), read.totals.later) == (3, (41.0, 41.0))
    assert (read.totals.since_epoch, read.until_epoch) == (EPOCH + 5, EPOCH + 7)


def test_only_the_leader_counts_comparisons_and_logs_them_at_info(caplog: pytest.LogCaptureFixture) -> None:
    """Each replica writes comparisons to its own journal."""
    caplog.set_level(logging.DEBUG)
    gate, counted, lines = FakeGate(), list[str](), list[str]()
    reporter = ComparisonReporter(gate, counted.append, lambda line, _: lines.append(line["uid"]))
    for gate.open, found in ((False, LATER), (True, NEVER)):
        reporter.compared(found, moment(0.0))
    assert (counted, lines) == (["never"], ["a", "c"])
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO"]


def test_a_file_that_continues_another_has_the_totals(tmp_path: Path) -> None:
    """The totals survive although the files before this one are gone."""
    written(tmp_path / "journal", [LATER, *[SAME] * 50, NEVER], max_bytes=2000)
    (tmp_path / "journal.1").unlink()
    read = JournalComparisons(tmp_path / "journal")
    assert {result.value: count for result, count in read.totals.counts.items()} == {"same": 50, "later": 1, "never": 1}
    assert (read.totals.later, read.totals.since_epoch) == ((41.0, 41.0), EPOCH)
    assert list(read.totals.differences) == [NEVER]


def test_two_files_are_read_as_one(tmp_path: Path) -> None:
    """No comparison counts twice."""
    totals = written(tmp_path / "journal", [SAME] * 30, max_bytes=2000)
    assert (tmp_path / "journal.1").exists()
    assert JournalComparisons(tmp_path / "journal").totals.counts == totals.counts


def test_evictions_of_a_dry_run_are_open_until_they_are_compared(tmp_path: Path) -> None:
    """Evictions by a controller that is not in a dry run are left out."""
    lines = [
        {"t": 1.0, "what": "journal"},
        {"t": 1.5, "what": "evicted", "uid": "real"},
        {"t": 2.0, "what": "journal", "dry_run": True},
        {"t": 3.0, "what": "evicted", "uid": "a"},
        {"t": 4.0, "what": "evicted", "uid": "b"},
        {"t": 9.0, "what": "evicted", "uid": "b"},
        {"t": 9.5, "what": "compared", "pod": "shop/web-0", "uid": "a", "node": "n1", "result": "same"},
    ]
    (tmp_path / "journal").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    read = JournalComparisons(tmp_path / "journal")
    assert (read.evicted_epochs, read.totals.since_epoch) == ({"b": 4.0}, 2.0)


@pytest.mark.parametrize(
    "line",
    [
        b'{"t": 2, "what": "compared", "pod": "shop/web',
        b'{"t": 2, "what": "compared"}',
        b'{"t": "x", "what": "compared"}',
        b'{"t": 2, "what": "compared", "pod": 7, "uid": "a", "node": "n", "result": "same"}',
        b'{"t": 2, "what": "compared", "pod": "a/b", "uid": "a", "node": "n", "result": "better"}',
        b'{"t": 2, "what": "compared_before", "since": 1, "counts": 7}',
        b'{"t": "inf", "what": "compared", "pod": "a/b", "uid": "a", "node": "n", "result": "same"}',
        b'{"t": 1e300, "what": "compared", "pod": "a/b", "uid": "a", "node": "n", "result": "same"}',
        b'{"t": 2, "what": "compared", "pod": "a/b", "uid": "a", "node": "n", "result": "never", "detail": 7}',
        b'{"t": 2, "what": "compared_before", "since": 1, "counts": {}, "unseen": 0, "later": ["nan", "nan"]}',
        b'["compared"]',
        b'\xff"compared"',
    ],
)
def test_lines_that_are_cut_or_garbled_are_left_out(tmp_path: Path, line: bytes) -> None:
    """The other lines count."""
    written(tmp_path / "journal", [LATER])
    with (tmp_path / "journal").open("ab") as file:
        file.write(line + b"\n")
    totals = JournalComparisons(tmp_path / "journal").totals
    assert (list(totals.differences), totals.counts.total()) == ([LATER], 1)


def test_differences_are_bounded_and_all_are_counted() -> None:
    """The totals keep a limited number of differences."""
    totals = ComparisonTotals(EPOCH)
    for _ in range(MAX_DIFFERENCES + 5):
        totals.add(LATER)
    fields = comparison_fields(totals, 0, 0, EPOCH + 9)
    assert (len(fields["differences"]), fields["compared"]) == (MAX_DIFFERENCES, MAX_DIFFERENCES + 5)


def test_who_was_first_is_counted_by_name() -> None:
    """Names that clients choose are bounded; those that are left out count as unknown, and all survive a new file."""
    totals = ComparisonTotals(EPOCH)
    for number in range(30):
        totals.add(Comparison(ref(), "n1", ComparisonResult.SOMEBODY_ELSE, EPOCH, by=f"client-{number % 25}"))
    told = comparison_fields(totals, 0, 0, EPOCH + 9)["somebodyElse"]
    assert told[0] == {"by": None, "reason": None, "pods": 5}
    assert told[1] == {"by": "client-0", "reason": None, "pods": 2}
    assert sum(each["pods"] for each in told) == 30
    assert sorted(totals_line(totals)["first"])[:2] == [["", "", 5], ["client-0", "", 2]]


def test_each_result_is_said_in_words() -> None:
    """The words say what the built-in controller did, and why, as far as that is known."""
    only = Comparison(ref(), "n1", ComparisonResult.BUILT_IN_ONLY, 0.0, 0.2, DifferenceReason.GUARD, "paused")
    other = Comparison(ref(), "n1", ComparisonResult.SOMEBODY_ELSE, 0.0, detail="EvictionByEvictionAPI")
    assert in_words(SAME) == "both the same"
    assert in_words(LATER).startswith("it came 41 s later: as if its countdown had begun anew")
    assert in_words(NEVER) == (
        "it never came, for 630 s, until it was cleared: it set its condition and did not delete the pod,"
        " as after five refused tries"
    )
    assert in_words(only) == "it alone evicted the pod: the eviction was held back here: paused"
    assert in_words(other) == "somebody else was first: EvictionByEvictionAPI"
