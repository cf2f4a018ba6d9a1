"""Sentences that logs, tables, pictures and documents have in common."""

from taint_eviction.core.instants import TimeSource

_SEEN = {TimeSource.FIRST_SIGHT.value: "first seen then", TimeSource.LAST_ABSENT.value: "not there until then"}


def tolerated(taint: object, toleration: object | None, by_default: bool = False) -> str:
    """Say whether a taint is tolerated and by which toleration; ``by_default``: the pod itself has no such toleration.

    Both may be values or texts; None (or "") as toleration: the taint is not tolerated.
    """
    if not toleration:
        return f"{taint} is not tolerated"
    return f"{taint} is tolerated {'by default ' if by_default else ''}by [{toleration}]"


def began(instant: str, source: str) -> str:
    """Say when a taint or a binding began; ``source``: the value of the ``TimeSource`` that says so."""
    return f"{instant} ({_SEEN.get(source, source)})"
