"""How pictures write times: spans, instants on a picture's axis, and the marks of that axis."""

from collections.abc import Iterator
from math import ceil

from taint_eviction.core.instants import FAR_FUTURE_SECONDS
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction_ctl.picture.scene import Picture

_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))
_STEPS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
# Without a script the axis has only as many marks as fit side by side on a phone.
_MAX_TICKS = 4


def span(seconds: float) -> str:
    """Write a duration in two units: ``5 m``, ``1 h 10 m``, ``0.25 s``."""
    size = abs(seconds)
    if size >= FAR_FUTURE_SECONDS / 2:
        return "100 years"
    for length, unit, small, small_unit in _UNITS:
        if size >= length:
            count, rest = divmod(round(size / small), length // small)
            return f"{count} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{round(size, 2):g} s" if size < 10 else f"{size:.0f} s"


def clock(picture: Picture, at: float) -> str:
    """Write an instant by the API server's clock; "" if the picture has seconds of its own, or for 100 years ahead."""
    if picture.epoch is None or at >= FAR_FUTURE_SECONDS / 2:
        return ""
    return format_utc(picture.epoch + at)


def instant(picture: Picture, at: float) -> str:
    """Write an instant, from now or as a second, and by the clock."""
    wall = f" ({written})" if (written := clock(picture, at)) else ""
    if not picture.ahead:
        return f"second {round(at, 3):.10g}{wall}"
    return ("now" if abs(at) < 0.5 else f"{span(at)} ago" if at < 0 else f"in {span(at)}") + wall


def ticks(picture: Picture) -> Iterator[tuple[float, str, str]]:
    """Yield the marks of the axis: where, as a span, and by the clock."""
    length = picture.end - picture.begin
    every = next((step for step in _STEPS if length / step <= _MAX_TICKS), 86400 * ceil(length / 86400 / _MAX_TICKS))
    at = every * ceil(picture.begin / every)
    while at <= picture.end:
        sign, name = "−" if at < 0 else "", "now" if picture.ahead else "0 s"
        wall = clock(picture, at)
        yield at, sign + span(at) if at else name, wall[11:19] if length < 86400 else wall[5:16]
        at += every
