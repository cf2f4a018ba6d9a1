"""Spans of time as people write them."""

import pytest

from taint_eviction.files.durations import parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(90, 90.0), (0.25, 0.25), ("90", 90.0), ("1m30s", 90.0), ("-1h", -3600.0), ("500ms", 0.5), ("1h2m3.5s", 3723.5)],
)
def test_spans(text: object, seconds: float) -> None:
    """Seconds, or durations as Kubernetes' flags have them."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", [None, True, "", "s", "1x", "1m30", "nan", "inf", float("nan"), 10**400, [], "1 m"])
def test_spans_that_are_none(text: object) -> None:
    """Whatever YAML may bring."""
    with pytest.raises(ValueError, match="duration"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["9" * 30_000, "1m" * 33, " " * 65, "1" + "0" * 64])
def test_a_longer_text_than_any_duration_is_refused_unread(text: str) -> None:
    """Anybody who may annotate a pod may write it."""
    with pytest.raises(ValueError, match="duration"):
        parse_seconds(text)
