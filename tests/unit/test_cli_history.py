"""The bounds of time that people type."""

import pytest

from taint_eviction.files.kubernetes_times import format_utc, parse_rfc3339
from taint_eviction_ctl.cli.history import epochs_of
from taint_eviction_ctl.cli.values import PastTime
from taint_eviction_ctl.planning.wording import since as since_when


@pytest.mark.parametrize(
    ("now", "since", "until", "read"),
    [
        ("2030-01-02T09:00:00Z", "03:10", "03:15", ("2030-01-02 03:10:00 UTC", "2030-01-02 03:15:00 UTC")),
        ("2030-01-02T09:00:00Z", "23:50", "00:10", ("2030-01-01 23:50:00 UTC", "2030-01-02 00:10:00 UTC")),
        ("2030-01-02T03:12:00Z", "03:10", "03:15", ("2030-01-02 03:10:00 UTC", "2030-01-02 03:15:00 UTC")),
        ("2030-01-02T00:05:00Z", "23:50", "00:10", ("2030-01-01 23:50:00 UTC", "2030-01-02 00:10:00 UTC")),
        ("2030-01-02T09:00:00Z", "03:10 UTC", "03:15:30 UTC", ("2030-01-02 03:10:00 UTC", "2030-01-02 03:15:30 UTC")),
        (
            "2030-01-02T09:00:00Z",
            "2030-01-01 03:10:00 UTC",
            "2030-01-01 03:15 UTC",
            ("2030-01-01 03:10:00 UTC", "2030-01-01 03:15:00 UTC"),
        ),
        ("2030-01-02T16:00:00Z", "15:00", "14:00", ("2030-01-01 15:00:00 UTC", "2030-01-02 14:00:00 UTC")),
        ("2030-01-02T23:58:00Z", "23:50", "00:10", ("2030-01-01 23:50:00 UTC", "2030-01-02 00:10:00 UTC")),
        ("2030-01-02T16:00:00Z", "5m", "14:00", ("2030-01-02 15:55:00 UTC", "2030-01-02 14:00:00 UTC")),
        ("2030-01-02T03:12:00Z", "5m", "03:15", ("2030-01-02 03:07:00 UTC", "2030-01-02 03:15:00 UTC")),
    ],
)
def test_a_time_of_day_is_the_last_one(now: str, since: str, until: str, read: tuple[str, str]) -> None:
    """Never tomorrow's; as an end after the beginning it may be today's that is to come. What is left is refused."""
    bounds = {"since": PastTime().convert(since, None, None), "until": PastTime().convert(until, None, None)}
    epochs = epochs_of(bounds, parse_rfc3339(now) or 0.0)
    assert (format_utc(epochs["since"]), format_utc(epochs["until"])) == read


def test_a_date_that_was_seen_not_to_be_true_is_named() -> None:
    """Who sees an earlier timeAdded on the node would take the countdown for late."""
    at = "2030-01-01 03:02:00 UTC"
    assert since_when(at, "timeAdded") == f"{at} (timeAdded)"
    assert since_when(at, "last sight without it") == (
        f"{at} (not there until then); the object's date is earlier, and does not count: it was seen to be absent after"
        " that"
    )


def test_an_end_without_a_beginning_is_the_last_one() -> None:
    """At 16:00 the last 14:00 is today's, at 9:00 yesterday's."""
    bounds = {"until": PastTime().convert("14:00", None, None)}
    for now, read in (
        ("2030-01-02T16:00:00Z", "2030-01-02 14:00:00 UTC"),
        ("2030-01-02T09:00:00Z", "2030-01-01 14:00:00 UTC"),
    ):
        assert format_utc(epochs_of(bounds, parse_rfc3339(now) or 0.0)["until"]) == read
