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
        ("2030-01-02T03:12:00Z", "5m", "03:15", ("2030-01-02 03:07:00 UTC", "2030-01-02 03:15:00 UTC")),
    ],
)
def test_the_end_comes_after_the_beginning(now: str, since: str, until: str, read: tuple[str, str]) -> None:
    """A time of day is the last one; as an end it is the first one after the beginning, also if that is to come."""
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
