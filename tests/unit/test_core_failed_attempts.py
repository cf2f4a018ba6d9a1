"""The failed attempts of one pod: what counts as patience, and what starts it anew."""

from dataclasses import replace

import pytest
from tests.unit.builders import decided, moment, ref

from taint_eviction.core.events import Block, BlockReason, Eviction, Failed
from taint_eviction.core.pods import FailedAttempts

REFUSED = FailedAttempts(0.0, 11, 300.0, "refused", refused=True, refused_seconds=290.0, refused_at=290.0)


def test_a_pause_starts_patience_anew_also_after_an_evacuation() -> None:
    """After an evacuation there is a sum of refusals without a last one, and it does not outlive a pause either."""
    evacuated = replace(REFUSED, refused_at=None)
    assert evacuated.without_refusals.refused_seconds == 0.0
    assert REFUSED.without_refusals.refused_seconds == 0.0


def test_attempts_without_a_refusal_stay_as_they_are() -> None:
    """There is nothing to start anew."""
    failed = FailedAttempts(0.0, 1, 5.0, "HTTP 500")
    assert failed.without_refusals is failed


@pytest.mark.parametrize(
    ("outcome", "sent", "unanswered", "hung"),
    [
        (Failed("HTTP 500", 5), True, False, 2),
        (Failed("no answer", 5, unanswered=True), True, True, 3),
        (Failed("no answer", 5, unanswered=True), False, True, 2),
        (Failed("refused late", 5, late=True), True, True, 2),
    ],
)
def test_a_call_without_an_answer_counts_as_hung_if_it_was_to_end_the_pod(
    outcome: Failed, sent: bool, unanswered: bool, hung: int
) -> None:
    """A late answer makes the next call wait like none, but the next one need not wait longer for its answer."""
    before = FailedAttempts(0.0, 2, 3.0, "no answer", hung=2)
    after = before.with_failure(Eviction(ref(), "n1", decided(), False, 2), outcome, sent, moment(4))
    assert (after.unanswered, after.hung, after.tries) == (unanswered, hung, 3)


def test_only_a_virtual_machine_that_moves_away_evacuates() -> None:
    """A budget's refusal is none."""
    blocks = [None, Block(BlockReason.BUDGET, "web"), Block(BlockReason.EVACUATION, "web")]
    assert [replace(REFUSED, block=block).evacuates for block in blocks] == [False, False, True]
