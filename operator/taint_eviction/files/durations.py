"""Durations as people write them in files and flags: in seconds, or as in Kubernetes' own flags."""

import re

_DURATION_FORM = "seconds (90) or a duration (1m30s, 500ms)"

_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

# 31 years. Beyond this virtual time loses its microseconds.
_MAX_SECONDS = 1e9


def parse_seconds(value: object) -> float:
    """Read a number of seconds, or a text like ``90``, ``1m30s``, ``500ms``, with or without a minus before it.

    Returns a finite number. Raises ``ValueError`` with the valid forms.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= _MAX_SECONDS else float("nan")
    else:
        seconds = _parse_span(value.strip()) if isinstance(value, str) else float("nan")
    if not abs(seconds) <= _MAX_SECONDS:
        raise ValueError(_DURATION_FORM)
    return seconds


def _parse_span(text: str) -> float:
    unsigned = text.removeprefix("-")
    parts = _PARTS.findall(unsigned)
    if parts and "".join(number + unit for number, unit in parts) == unsigned:
        span = sum(float(number) * _UNITS[unit] for number, unit in parts)
        return span if text == unsigned else -span
    try:
        return float(text)
    except ValueError:
        return float("nan")
