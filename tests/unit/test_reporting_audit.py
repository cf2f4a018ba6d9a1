"""The audit log: a line for each attempt, with all that somebody may ask about it afterwards."""

import json
from typing import Any

import pytest
from tests.unit.builders import EPOCH, Stage, moment, node, pod, ref, taint, tolerates

from taint_eviction.core.events import (
    Block,
    BlockReason,
    CalledOff,
    CutOff,
    Done,
    Eviction,
    Failed,
    PodIsGone,
    Suspended,
    TakeBack,
    Work,
    WorkOutcome,
)
from taint_eviction.core.policy import EvictionPolicy, PolicyRule
from taint_eviction.files.kubernetes_times import format_micro_time
from taint_eviction.reporting.audit import AuditLog
from taint_eviction.reporting.rotating_lines import Lines


class Kept:
    """A file in memory."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> int:
        """Keep the data."""
        self.content += data
        return len(data)

    def close(self) -> None:
        """Do nothing."""


def audited(work: Work, outcome: WorkOutcome, at: float = 0.0, dry_run: bool = False) -> dict[str, Any]:
    """The line about an attempt."""
    kept = Kept()
    AuditLog(Lines(kept, "the audit log", "memory"), dry_run).attempted(work, outcome, moment(at))
    assert kept.content.endswith(b"\n")
    line: dict[str, Any] = json.loads(kept.content)
    return line


def eviction() -> Eviction:
    """An eviction that is due at 30: of two taints the second decides."""
    on = Stage()
    on.sees(node(taint(), taint("k2", "v")), pod(tolerates(60), tolerates(30, "k2")))
    return on.at(30).take_eviction()


def test_an_eviction_names_pod_taints_tolerations_and_how_late_it_was() -> None:
    """The taint that decided comes first, and times have six digits of a second."""
    assert audited(eviction(), Done(), 30.125) == {
        "time": format_micro_time(EPOCH + 30.125),
        "action": "evict",
        "outcome": "evicted",
        "pod": "shop/web-0",
        "uid": "a",
        "node": "n1",
        "taints": [
            {
                "taint": "k2=v:NoExecute",
                "toleration": "k2 for 30 s",
                "by_default": False,
                "since": format_micro_time(EPOCH),
                "since_by": "first sight",
            },
            {
                "taint": "k1:NoExecute",
                "toleration": "k1 for 60 s",
                "by_default": False,
                "since": format_micro_time(EPOCH),
                "since_by": "first sight",
            },
        ],
        "deadline": format_micro_time(EPOCH + 30),
        "held_seconds": 0.0,
        "late_seconds": 0.125,
        "mode": "delete",
        "tries": 1,
        "answer": "accepted",
        "budget": None,
        "dry_run": False,
    }


def test_a_rule_that_shortens_a_toleration_is_named_beside_its_taint() -> None:
    """Only there: what no rule shortens has no such fields."""
    ceiling = PolicyRule("soon", taint_keys=("k2",), max_toleration_seconds=10)
    on = Stage(eviction=EvictionPolicy(rules=(ceiling,)))
    on.sees(node(taint(), taint("k2")), pod(tolerates(60), tolerates(30, "k2")))
    shortened, other = audited(on.at(10).take_eviction(), Done(), 10.0)["taints"]
    assert (shortened["toleration"], shortened["ceiling_rule"], shortened["ceiling_seconds"]) == (
        "k2 for 30 s",
        "soon",
        10,
    )
    assert not {"ceiling_rule", "ceiling_seconds"} & other.keys()


def test_the_deadline_is_that_of_the_taint_whose_rule_evicts() -> None:
    """A rule pauses the earlier taint, which comes second: the eviction is not late since that taint's deadline."""
    paused = PolicyRule("not yet", taint_keys=("k1",), pause=True)
    on = Stage(eviction=EvictionPolicy(rules=(paused,)))
    on.sees(node(taint(), taint("k2")), pod(tolerates(10), tolerates(30, "k2")))
    assert on.at(10).take() == []
    line = audited(on.at(30).take_eviction(), Done(), 30.125)
    assert [told["taint"] for told in line["taints"]] == ["k2:NoExecute", "k1:NoExecute"]
    assert (line["deadline"], line["late_seconds"]) == (format_micro_time(EPOCH + 30), 0.125)


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Done(), "evicted"),
        (PodIsGone(), "gone"),
        (CalledOff(), "called-off"),
        (CutOff(), "cut-off"),
        (Suspended(), "held"),
        (Failed("no (HTTP 403)", 40.0), "refused"),
        (Failed("no (HTTP 429)", 40.0, Block(BlockReason.BUDGET, "web")), "blocked"),
    ],
)
def test_each_outcome_has_a_word(outcome: WorkOutcome, word: str) -> None:
    """An attempt that did not evict the pod has a line, too."""
    assert audited(eviction(), outcome)["outcome"] == word


def test_a_refusal_is_logged_in_the_servers_words() -> None:
    """The line also names the budget that refuses."""
    line = audited(eviction(), Failed("no (HTTP 429)", 40.0, Block(BlockReason.BUDGET, "web")))
    assert (line["answer"], line["budget"]) == ("no (HTTP 429)", "web")


def test_a_take_back_has_no_taints() -> None:
    """A take-back undoes what was done for an eviction that is no longer wanted."""
    line = audited(TakeBack(ref(), "n1", 2), Done())
    assert (line["action"], line["outcome"], line["tries"]) == ("take-back", "taken-back", 3)
    assert "taints" not in line
    assert "deadline" not in line


def test_a_dry_run_says_so_in_each_line() -> None:
    """The field keeps readers from taking the line for a real eviction."""
    assert audited(eviction(), Done(), dry_run=True)["dry_run"] is True


def test_the_call_is_logged() -> None:
    """The mode says whether budgets could refuse the call."""
    work = eviction()
    asking = Eviction(work.ref, work.node_name, work.decision, False, 0, by_eviction_api=True)
    assert [audited(each, Done())["mode"] for each in (work, asking)] == ["delete", "evict"]
