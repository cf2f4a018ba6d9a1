"""The judge of an exploration: watches every call at the simulated API server, and says what must never happen.

Knows the truth (``truth``) and what each process was told, from the calls' own traces; nothing from the controller.

Safety, at each write: due at some moment between the live read of its node and the arrival of its DELETE, by states
that the process can have seen; the read fresh; the right UID; never again after a success it heard of or a
deletionTimestamp it saw; only inside its own fence, and nobody else inside theirs. Liveness, after faults have stopped:
every due pod is gone, no other pod is Terminating because of us, and no condition is left on those that stay.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.simulation.exploring.truth import NEVER, Truth, due_at

from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.settings import Settings
from taint_eviction.simulation.audit import Phase, Trace
from taint_eviction.simulation.cluster import Change
from taint_eviction.simulation.faults import Call

_WRITES = (Call.MARK, Call.UNMARK, Call.DELETE)
_POD_ANSWERS = (Call.MARK, Call.UNMARK, Call.READ_POD)
# After faults have stopped, all is known again within so long and a list anew: watches, an election, retries.
_RECOVERY_SECONDS = 25.0
# How late an eviction may be where nothing is in its way.
_PUNCTUAL_SECONDS = 3.0
# Virtual time counts in microseconds.
_TICK = 2e-6


@dataclass(frozen=True)
class Violation:
    """A rule that was broken, when, and about what; the rule's name is what shrinking holds on to."""

    rule: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.rule}: {self.text}"


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
    sent: dict[int, Trace] = field(default_factory=dict)
    bases: dict[int, "Basis"] = field(default_factory=dict)
    carried_out: dict[int, float] = field(default_factory=dict)


class Oracle:
    """Collects ``violations``.

    ``in_the_way_seconds``: how long faults can hold up an eviction. ``elected`` False: whoever acts may.
    ``restarted_at``: when a process was last killed; ``peace_at``: when faults stopped.
    """

    def __init__(self, settings: Settings, in_the_way_seconds: float = NEVER, elected: bool = True) -> None:
        self.truth = Truth(settings.evict_finished)
        self.violations: list[Violation] = []
        self.deletes_arrived = 0
        self.restarted_at = -NEVER
        self.peace_at = NEVER
        self._renew_deadline = settings.election.renew_deadline_seconds
        self._node_read = settings.node_read_seconds
        self._elected = elected
        self._in_the_way = in_the_way_seconds
        self._recovery = 1.1 * settings.watch.resync_seconds + _RECOVERY_SECONDS
        self._told: dict[str, Told] = {}
        self._dead: set[str] = set()
        self._deleting: Trace | None = None

    def killed(self, process: str, at: float) -> None:
        """Take in that a process is no more."""
        self._dead.add(process)
        self.restarted_at = at

    def notice(self, change: Change) -> None:
        """Take in a write; one that a DELETE of ours makes must hit the pod that was meant."""
        self.truth.notice(change)
        meant = self._deleting
        if meant is not None and change.is_pod and change.body["metadata"]["uid"] != meant.uid:
            self._break("another UID", meant, f"{change.body['metadata']['uid']} was deleted for {meant.uid}")

    def trace(self, trace: Trace) -> None:
        """Take in a moment of a call."""
        told = self._told.setdefault(trace.process, Told())
        match trace.phase:
            case Phase.SENT:
                told.sent[trace.number] = trace
                if trace.call in _WRITES:
                    self._check_sent(trace, told)
            case Phase.ARRIVED:
                if trace.call is Call.DELETE:
                    self._check_delete(trace, told)
            case Phase.CARRIED_OUT:
                told.carried_out[trace.number] = trace.at
                self._deleting = None
            case Phase.ANSWERED:
                self._hear(trace, told)
            case Phase.SAW:
                self._look_at(trace.body, told)

    # What was told

    def _hear(self, trace: Trace, told: Told) -> None:
        so_at = told.carried_out.get(trace.number, trace.at)
        if trace.call is Call.READ_NODE:
            told.nodes[trace.subject] = (so_at, trace.at)
        elif trace.call in _POD_ANSWERS and trace.body is not None:
            told.pods[trace.uid] = so_at
            self._look_at(trace.body, told)
        elif trace.call is Call.LIST_PODS and trace.body is not None:
            for body in trace.body[0]:
                self._look_at(body, told)
        elif trace.call is Call.DELETE and trace.body is True:
            told.deleted.add(trace.uid)
        elif trace.call is Call.WRITE_LEASE and trace.body.holder == trace.process:
            told.fenced_at = told.sent[trace.number].at + self._renew_deadline
        elif trace.call is Call.READ_LEASE and _held_by_another(trace.body, trace.process):
            told.fenced_at = -NEVER

    def _look_at(self, body: dict[str, Any], told: Told) -> None:
        if body["metadata"].get("deletionTimestamp"):
            told.terminating.add(body["metadata"]["uid"])

    # What must not be

    def _check_sent(self, trace: Trace, told: Told) -> None:
        if self._elected and trace.at >= told.fenced_at:
            since = "never led" if told.fenced_at == -NEVER else f"fenced since {told.fenced_at:.3f}"
            self._break("sent without leading", trace, f"{trace.process} {since}")
        for name, other in self._told.items():
            if name != trace.process and name not in self._dead and other.fenced_at > trace.at:
                self._break("two leaders", trace, f"{trace.process} sends, {name} may until {other.fenced_at:.3f}")
        if trace.call is not Call.DELETE:
            return
        states = self.truth.pods.get(trace.uid, [])
        node = told.nodes.get(states[-1].node or "") if states else None
        told.bases[trace.number] = Basis(trace.at, node, told.pods.get(trace.uid, trace.at))
        if trace.uid in told.deleted:
            self._break("deleted again", trace, "its deletion had been answered with success")
        if trace.uid in told.terminating:
            self._break("deleted again", trace, "it had been seen terminating")

    def _check_delete(self, trace: Trace, told: Told) -> None:
        self.deletes_arrived += 1
        self._deleting = None if trace.refused else trace
        if trace.uid not in self.truth.pods:
            self._break("another UID", trace, f"there has never been a pod {trace.uid!r}")
            return
        if trace.uid in self.truth.gone:
            return
        node, basis = self.truth.pods[trace.uid][-1].node or "", told.bases[trace.number]
        self._check_punctual(trace, node)
        if basis.node is None or basis.sent_at - basis.node[1] > self._node_read + _TICK:
            self._break("no fresh read", trace, f"node {node} was not read in the second before {basis.sent_at:.3f}")
        read_at = trace.at if basis.node is None else basis.node[0]
        # A pod that is Terminating already was due, or somebody else's: deleting it again is another rule.
        pods = [state for state in self.truth.pod_states(trace.uid, basis.pod_so_at) if not state.terminating]
        nodes = self.truth.node_states(node, read_at)
        earliest = min((due_at(state, pod) for state in nodes for pod in pods), default=0.0)
        if earliest > basis.sent_at + _TICK:
            when = "never" if earliest == NEVER else f"at {earliest:.3f}"
            since = f"its node since {read_at:.3f} and itself since {basis.pod_so_at:.3f}"
            self._break("not due", trace, f"sent at {basis.sent_at:.3f}; by {since} due {when}")

    def _check_punctual(self, trace: Trace, node: str) -> None:
        """A tolerance that was running goes on through restarts: never later than the objects say."""
        there, pod = self.truth.node_now(node), self.truth.pods[trace.uid][-1]
        latest = due_at(there, pod, at_the_latest=True)
        if there is None or latest == NEVER:
            return
        latest = max(latest, there.written_at, pod.edited_at)
        if trace.at > min(max(latest, self.peace_at + self._recovery), latest + self._in_the_way) + _PUNCTUAL_SECONDS:
            self._break("late", trace, f"it was due at {latest:.3f} at the latest")

    def _break(self, rule: str, trace: Trace, text: str) -> None:
        call = "" if trace.call is None else trace.call.value
        self.violations.append(Violation(rule, trace.at, f"{call} {trace.subject} ({trace.uid}): {text}"))

    # What must be in the end

    def check_end(self, now: float) -> None:
        """Check what must be once faults have stopped long ago."""
        for uid, pod in self.truth.living():
            node = self.truth.node_now(pod.node)
            at = due_at(node, pod)
            if pod.terminating and node is not None:
                self._end("still terminating", now, uid, f"on {pod.node}")
            elif at <= now:
                self._end("not evicted", now, uid, f"on {pod.node}, due since {at:.3f}")
            elif pod.marked and not pod.terminating and self.truth.marked_at[uid] > self.restarted_at:
                self._end("condition left", now, uid, f"on {pod.node}, marked at {self.truth.marked_at[uid]:.3f}")

    def _end(self, rule: str, now: float, uid: str, text: str) -> None:
        self.violations.append(Violation(rule, now, f"{self.truth.names[uid]} ({uid}) {text}"))


def _held_by_another(record: LeaseRecord | None, process: str) -> bool:
    return record is not None and record.holder not in ("", process)
