"""What people have ordered while it runs: pauses, and the circuit breaker's latch with its reset.

Values only. They are kept in the cluster, so that they outlive processes and reach every replica; times are therefore
the API server's (seconds since the epoch).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pause:
    """Evictions are held. ``since_epoch`` None and ``reason`` "": whoever ordered it did not say."""

    since_epoch: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Latch:
    """The circuit breaker is open since ``since_epoch``; ``cause`` says why, with figures.

    ``unreadable``: what is kept of it makes no sense, so it counts as open, and only a human closes it.
    """

    since_epoch: float
    cause: str
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything that is ordered at a moment.

    ``whole`` holds all evictions, ``nodes`` and ``namespaces`` (by name) those of some. ``latch``: the breaker is open,
    None: nobody wrote that it is. ``reset_epoch``: a human closed it then, None: never.
    """

    whole: Pause | None = None
    nodes: Mapping[str, Pause] = field(default_factory=dict)
    namespaces: Mapping[str, Pause] = field(default_factory=dict)
    latch: Latch | None = None
    reset_epoch: float | None = None
