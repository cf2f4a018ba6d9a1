"""Durations as people write them in files, flags and annotations: in seconds, or as in Kubernetes' own flags.

Anybody who may annotate a pod may send one, so its length is bounded before it is parsed, in linear time.
"""

import re

_DURATION_FORM = "seconds (90) or a duration (1m30s, 500ms)"

# No duration in this range needs more characters.
_MAX_CHARACTERS = 64
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

# 31 years. Beyond this virtual time loses its microseconds.
_MAX_SECONDS = 1e9


def parse_seconds(value: object) -> float:
    """Read a number of seconds, or a text like ``90``, ``1m30s``, ``500ms``, with or without a minus before it.

    Returns a finite number. Raises ``ValueError`` with the valid forms, also for a text of more than 64 characters.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= _MAX_SECONDS else float("nan")
    else:
        text = value if isinstance(value, str) and len(value) <= _MAX_CHARACTERS else "nan"
        seconds = _parse_span(text.strip())
    if not abs(seconds) <= _MAX_SECONDS:
        raise ValueError(_DURATION_FORM)
    return seconds


def duration_text(seconds: float) -> str:
    """Return a duration in the largest unit in which it is a whole number; one below a second in milliseconds."""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds * 1000:g}ms"


def _parse_span(text: str) -> float:
    unsigned = text.removeprefix("-")
    span, at = 0.0, 0
    # Each part begins where the last one ended: a search from every character would take quadratic time.
    while part := _PART.match(unsigned, at):
        span, at = span + float(part[1]) * _UNITS[part[2]], part.end()
    if at and at == len(unsigned):
        return span if text == unsigned else -span
    try:
        return float(text)
    except ValueError:
        return float("nan")
