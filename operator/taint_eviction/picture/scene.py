"""What a picture shows, as values; times are seconds on the picture's own axis."""

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """Kinds of marks and bars; the value is how the page and its legend name them."""

    SCHEDULED = "scheduled"
    CANCELLED = "cancelled"
    EVICTED = "evicted"
    REFUSED = "refused"
    BLOCKED = "blocked"
    ORPHANED = "orphaned"
    CREATED = "created"
    GONE = "gone"
    STEP = "step"
    # Bars; what is blocked or held may be a mark, too.
    EXISTS = "exists"
    COUNTDOWN = "countdown"
    HELD = "held"
    LATE = "late"
    RETRYING = "retrying"


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happens at one instant."""

    at: float
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that goes on from ``begin`` to ``end``."""

    begin: float
    end: float
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Band:
    """A taint on its node, or what holds evictions back; ``evicts``: it is a taint that does.

    ``end`` None: to the end of the picture, ``begin`` None: from before its beginning.
    """

    text: str
    begin: float | None
    end: float | None
    evicts: bool


@dataclass(slots=True)
class Lane:
    """One pod. ``outcome`` is one word for filters; ``why`` a sentence; ``deadline`` None where there was none."""

    pod: str
    node: str
    outcome: str
    why: str
    uid: str = ""
    owner: str = ""
    deadline: float | None = None
    left_at: float | None = None
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def late_seconds(self) -> float | None:
        """How long after its deadline it was evicted; None where it was not."""
        if self.deadline is None or self.left_at is None:
            return None
        return max(0.0, self.left_at - self.deadline)


@dataclass(slots=True)
class Picture:
    """Everything on the page. ``epoch``: second 0 in seconds since the epoch, None where the axis is a story's own.

    ``ahead``: second 0 is now, and what is shown lies ahead. ``holds``: what holds evictions back, of all or of some.
    """

    title: str
    about: str
    begin: float
    end: float
    epoch: float | None = None
    ahead: bool = False
    bands: dict[str, list[Band]] = field(default_factory=dict)
    holds: list[Band] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    steps: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
