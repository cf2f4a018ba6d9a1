"""A comparison as people read it: a verdict in one line, then what differs."""

from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from tests.unit.builders import EPOCH, ref

from taint_eviction.kube.api_calls import FIELD_MANAGER
from taint_eviction.reporting.comparisons import comparison_fields
from taint_eviction.settings import ElectionSettings
from taint_eviction.shadow.comparison import Comparison, ComparisonResult, DifferenceReason
from taint_eviction.shadow.totals import ComparisonTotals
from taint_eviction_ctl.cli.compare import compare
from taint_eviction_ctl.cli.compare_views import comparison_lines

DAY = 86400.0
OVERLAY = Path(__file__).parents[2] / "manifests" / "overlays" / "dry-run" / "kustomization.yaml"


def lines(totals: ComparisonTotals, outstanding: int = 0, unseen: int = 0, **more: Any) -> list[str]:
    """Return the lines of a comparison, without colours."""
    document = {**comparison_fields(totals, outstanding, unseen, EPOCH + 6 * DAY), **more}
    return [click.unstyle(line) for line in comparison_lines(document)]


def test_the_verdict_counts_what_was_the_same_and_what_was_not() -> None:
    """The verdict is for somebody who decides whether to switch controllers."""
    totals = ComparisonTotals(EPOCH)
    totals.counts.update({ComparisonResult.SAME: 398, ComparisonResult.NEVER: 9})
    for seconds in (41.2, 300.4, 77, 78, 79):
        totals.add(
            Comparison(ref(), "n1", ComparisonResult.LATER, EPOCH + 60, seconds, DifferenceReason.BEGUN_ANEW, "", "kcm")
        )
    verdict, outstanding, unseen, empty, header, first, *_, left = lines(totals, 2, 1)
    assert verdict == (
        "in 6 d 412 evictions: 398 the same; 9 that the built-in controller never did; 5 that it did later, by 41–300 s"
    )
    assert outstanding == "2 more evictions that the built-in controller has not done yet"
    assert unseen == "for 1 more it is not known what the built-in controller did"
    assert (empty, header.split()) == ("", ["WHEN", "POD", "NODE", "BUILT-IN", "CONTROLLER"])
    assert first.endswith(
        "shop/web-0  n1    it came 41 s later: as if its countdown had begun anew (a restart or a new leader),"
        " or it was slow"
    )
    assert left == "  … and 9 older"


def test_where_nothing_was_evicted_there_is_nothing_to_compare() -> None:
    """The verdict does not claim that both controllers agree."""
    assert lines(ComparisonTotals(EPOCH)) == ["in 6 d no eviction to compare"]
    assert lines(ComparisonTotals()) == ["in 0 s no eviction to compare"]


def test_the_dry_runs_own_lease_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overlay uses the same name; the variable for the Lease of other verbs does not count."""
    monkeypatch.setenv("TAINT_EVICTION_LEASE_NAME", "other")
    [lease_name] = [each for each in compare.params if each.name == "lease_name"]
    # Its account, after which the Lease is named, has the account's name with the overlay's suffix.
    suffix = yaml.safe_load(OVERLAY.read_text())["nameSuffix"]
    assert lease_name.default == ElectionSettings().lease_name + suffix
    assert lease_name.value_from_envvar(click.Context(compare, auto_envvar_prefix="TAINT_EVICTION")) is None


def test_a_journal_is_read_though_the_environment_names_a_replica(tmp_path: Path) -> None:
    """The variable is for the verbs that ask a replica."""
    (tmp_path / "journal").write_text('{"t": 1, "what": "journal", "version": 1, "dry_run": true}\n')
    line = ["--journal", str(tmp_path / "journal")]
    result = CliRunner().invoke(compare, line, env={"TAINT_EVICTION_SERVER": "http://127.0.0.1:1"})
    assert (result.exit_code, result.stdout) == (0, "in 0 s no eviction to compare\n")


def test_who_was_first_is_named_as_far_as_it_is_known() -> None:
    """The writer of a condition is known; a deletion alone names nobody."""
    totals = ComparisonTotals(EPOCH)
    for by, reason in (("kubectl", "EvictionByEvictionAPI"), ("", ""), ("", "Preempted"), (FIELD_MANAGER, "Deletion")):
        totals.add(Comparison(ref(), "n1", ComparisonResult.SOMEBODY_ELSE, EPOCH, by=by, detail=reason))
    assert lines(totals) == [
        "in 6 d 4 evictions: 4 by another client before either (1 by kubectl: EvictionByEvictionAPI, 1 by somebody: a"
        " deletion names nobody, 1 by somebody: Preempted, 1 by this controller itself, beside its dry run)"
    ]


def test_a_client_may_have_braces_in_its_name() -> None:
    """Whoever may delete a pod chooses it."""
    totals = ComparisonTotals(EPOCH)
    for by in ("{}", "{0.x}"):
        totals.add(Comparison(ref(), "n1", ComparisonResult.SOMEBODY_ELSE, EPOCH, by=by))
    said = "2 by another client before either (1 by {}, 1 by {0.x})"
    assert lines(totals) == [f"in 6 d 2 evictions: {said}"]


def test_differences_that_are_not_listed_are_counted() -> None:
    """These differences are older, or in other namespaces."""
    totals = ComparisonTotals(EPOCH)
    row = {"at": "t", "namespace": "shop", "name": "a", "node": "n1", "text": "never"}
    results = dict.fromkeys(("same", "never", "later", "built_in_only", "somebody_else"), 1)
    written = lines(totals, compared=5, results=results, differences=[row], namespace="shop")
    assert written[-1] == "  … and 2 older or in other namespaces"
