"""What a picture shows, as values. Times are seconds on the picture's own axis."""

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """Kinds of marks and bars; the value is their name on the page and in its legend."""

    SCHEDULED = "scheduled"
    CANCELLED = "cancelled"
    EVICTED = "evicted"
    REFUSED = "refused"
    BLOCKED = "blocked"
    ORPHANED = "orphaned"
    CREATED = "created"
    GONE = "gone"
    STEP = "step"
    # Bars; BLOCKED and HELD are marks, too.
    EXISTS = "exists"
    COUNTDOWN = "countdown"
    HELD = "held"
    LATE = "late"
    RETRYING = "retrying"


@dataclass(frozen=True, slots=True)
class Mark:
    """An event at one instant."""

    at: float
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A state that lasts from ``begin`` to ``end``."""

    begin: float
    end: float
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Band:
    """A taint on a node, or a pause of evictions. ``evicts``: it is a taint that evicts.

    ``begin`` None: from before the picture's beginning; ``end`` None: to its end.
    """

    text: str
    begin: float | None
    end: float | None
    evicts: bool


@dataclass(slots=True)
class PodRow:
    """One pod. ``outcome``: one word, for filters; ``why``: a sentence; ``deadline`` None: it has none."""

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
        """How long after its deadline it was evicted; None: it was not."""
        if self.deadline is None or self.left_at is None:
            return None
        return max(0.0, self.left_at - self.deadline)


@dataclass(slots=True)
class Picture:
    """Everything on the page. ``epoch``: second 0 as Unix time; None: the seconds are a scenario's own.

    ``ahead``: second 0 is now, and the picture shows the future. ``asked``: which question it answers.
    ``compares``: its rows are of several clusters, and nothing is added up. ``holds``: pauses and open breakers.
    """

    title: str
    about: str
    begin: float
    end: float
    epoch: float | None = None
    ahead: bool = False
    asked: str = ""
    compares: bool = False
    bands: dict[str, list[Band]] = field(default_factory=dict)
    holds: list[Band] = field(default_factory=list)
    rows: list[PodRow] = field(default_factory=list)
    steps: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
