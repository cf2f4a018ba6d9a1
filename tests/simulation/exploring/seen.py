"""What the parts of the oracle share: a broken rule, and what one process of the controller has seen."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.exploring.truth import NEVER, NodeState, PodState, TaintIdentity

from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind

POD_ANSWERS = (CallKind.MARK, CallKind.UNMARK, CallKind.READ_POD)
# Virtual time counts in microseconds.
TICK = 2e-6


@dataclass(frozen=True)
class BrokenRule:
    """A broken rule: its name, which shrinking keeps, the time, and a text about the circumstances."""

    rule: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.rule}: {self.text}"


# Called with a rule, the call that breaks it, and how.
Breach = Callable[[str, Trace, str], None]


@dataclass(frozen=True)
class Basis:
    """What a call was based on: the live read of the pod's node, None for none, and the read of the pod."""

    sent_at: float
    node: "Read | None"
    pod: "Read"


@dataclass(frozen=True)
class Read:
    """An answer: when its content was true, when it arrived, and the state; None: the object does not exist."""

    so_at: float
    heard_at: float
    state: NodeState | PodState | None = None


@dataclass
class Seen:
    """What one process has seen of nodes, by name, and of pods, by UID.

    ``watched``: each node as its watch delivered it last. ``found``: each node, by UID, as it was seen first, and
    ``newest``, as it was seen in its newest version. ``absent_at``: by UID and taint, when the node was last seen
    without a taint that has appeared since. ``heard_at``: when the watch of nodes delivered last. ``asked_at``: when
    the latest live read of each node was sent.
    ``reads``: when each live read of a node was sent, and when its answer arrived. ``led``: the process has led before.
    """

    born_at: float
    reads: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    nodes: dict[str, Read] = field(default_factory=dict)
    pods: dict[str, Read] = field(default_factory=dict)
    watched: dict[str, NodeState] = field(default_factory=dict)
    found: dict[str, NodeState] = field(default_factory=dict)
    newest: dict[str, NodeState] = field(default_factory=dict)
    absent_at: dict[tuple[str, TaintIdentity], float] = field(default_factory=dict)
    heard_at: float = -NEVER
    asked_at: dict[str, float] = field(default_factory=dict)
    terminating: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    led: bool = False
    fenced_at: float = -NEVER
    leads_since: float = NEVER
    sent: dict[int, Trace] = field(default_factory=dict)
    bases: dict[int, Basis] = field(default_factory=dict)
    carried_out: dict[int, float] = field(default_factory=dict)

    def note_node(self, name: str, state: NodeState) -> None:
        """Note a node that is seen now, in whichever version."""
        before = self.newest.get(state.uid)
        if before is not None and state.since < before.since:
            return
        self.newest[state.uid] = state
        if before is not None:
            last = max(self.heard_at, self.asked_at.get(name, -NEVER))
            self.absent_at |= {(state.uid, taint): last for taint in state.taints.keys() - before.taints.keys()}


def shown(trace: Trace) -> list[dict[str, Any]]:
    """Return the objects that a process sees now, by a watch or in an answer."""
    if trace.phase is Phase.SAW:
        return [trace.body]
    if trace.phase is not Phase.ANSWERED or trace.body is None:
        return []
    if trace.call in (CallKind.LIST_NODES, CallKind.LIST_PODS):
        return list(trace.body[0])
    if trace.call is CallKind.LIST_CACHED_PODS:
        return list(trace.body)
    return [trace.body] if trace.call in (CallKind.READ_NODE, *POD_ANSWERS) else []
