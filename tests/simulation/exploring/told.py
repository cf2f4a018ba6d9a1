"""What the judges of an exploration share: a broken rule, and what one controller process was told."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.exploring.truth import NEVER

from taint_eviction.simulation.audit import Trace

# Virtual time counts in microseconds.
TICK = 2e-6


@dataclass(frozen=True)
class Violation:
    """A rule that was broken, when, and about what; the rule's name is what shrinking holds on to."""

    rule: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.rule}: {self.text}"


# Told of a rule, the call that breaks it, and how.
Breach = Callable[[str, Trace, str], None]


@dataclass(frozen=True)
class Basis:
    """What a DELETE was sent on: when its node's live read was so and was heard, None for no read; and its pod's."""

    sent_at: float
    node: tuple[float, float] | None
    pod_so_at: float


@dataclass
class Told:
    """What one process has been told: when what it heard of was so, and when it heard it."""

    nodes: dict[str, tuple[float, float]] = field(default_factory=dict)
    pods: dict[str, float] = field(default_factory=dict)
    terminating: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    fenced_at: float = -NEVER
    leads_since: float = NEVER
    sent: dict[int, Trace] = field(default_factory=dict)
    bases: dict[int, Basis] = field(default_factory=dict)
    carried_out: dict[int, float] = field(default_factory=dict)
