"""The failed attempts of one pod: what counts as patience, and what starts it anew."""

from dataclasses import replace

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
