"""RFC 3339 times are read as seconds since the epoch, and written from them."""

import pytest

from taint_eviction.files.kubernetes_times import format_micro_time, format_rfc3339, parse_rfc3339


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("2024-05-01T10:00:00Z", 1714557600.0),
        ("2024-05-01T12:00:00+02:00", 1714557600.0),
        ("2024-05-01T05:30:00-04:30", 1714557600.0),
        ("2024-05-01T10:00:00.25Z", 1714557600.25),
        ("2024-05-01T10:00:00.250000Z", 1714557600.25),
        ("2024-05-01T10:00:00.123456789Z", 1714557600.123456),
        ("9999-12-31T23:59:59Z", 253402300799.0),
    ],
)
def test_rfc3339_times_are_read_with_offsets_and_fractions(text: str, epoch: float) -> None:
    """Times as Kubernetes writes them are read exactly, to the microsecond."""
    assert parse_rfc3339(text) == epoch


@pytest.mark.parametrize(
    "text",
    [
        None,
        1714557600,
        "",
        "yesterday",
        "2024-05-01",
        "2024-05-01T10:00:00",
        "20240501T100000Z00000",
        "2024-W18-3T10:00:00Z",
        "2024-13-01T10:00:00Z",
        "2024-05-01T10:00:61Z",
        "2024-05-01T25:00:00Z",
        "0001-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "99999-01-01T00:00:00Z",
    ],
)
def test_a_text_that_is_no_usable_time_is_none(text: object) -> None:
    """Garbage, times without an offset, and times before 1970, such as Go's zero time, do not count."""
    assert parse_rfc3339(text) is None


@pytest.mark.parametrize("epoch", [1.0, 1714557600.0, 1714557600.999, 253402300799.0])
def test_times_are_written_as_whole_seconds_cut_off(epoch: float) -> None:
    """A time is never written later than it is."""
    assert parse_rfc3339(format_rfc3339(epoch)) == float(int(epoch))


@pytest.mark.parametrize(("epoch", "text"), [(-5.0, "1970-01-01T00:00:00Z"), (1e18, "9999-12-31T23:59:59Z")])
def test_times_out_of_range_are_clamped(epoch: float, text: str) -> None:
    """No number of seconds makes writing a time fail."""
    assert format_rfc3339(epoch) == text


@pytest.mark.parametrize(
    ("epoch", "text"),
    [
        (1714557600.0, "2024-05-01T10:00:00.000000Z"),
        (1714557600.25, "2024-05-01T10:00:00.250000Z"),
        (1714557600.000001, "2024-05-01T10:00:00.000001Z"),
        (1e18, "9999-12-31T23:59:59.000000Z"),
        (-5.0, "1970-01-01T00:00:00.000000Z"),
    ],
)
def test_micro_times_have_six_digits_of_a_second(epoch: float, text: str) -> None:
    """Leases have times like these; times out of range are clamped, too."""
    assert format_micro_time(epoch) == text
