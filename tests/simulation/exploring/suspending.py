"""The oracle's part about pauses, a control state that was not read yet, and the circuit breaker.

A pause counts for a process that has read it, or that must have read it since nothing kept it from reading for long;
a pause with an end counts until then, whether or not it is still in the ConfigMap.
The breaker counts for a process that knows of its latch or must have seen a surge; no latch is written for less.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.exploring.ceilings import chosen
from tests.simulation.exploring.excuses import Disturbances
from tests.simulation.exploring.handling import ENDS, HandlingJudge
from tests.simulation.exploring.seen import TICK, Breach
from tests.simulation.exploring.surges import SurgeJudge
from tests.simulation.exploring.truth import NEVER, Truth, due_at

from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.virtual_clock import server_time, virtual_now

# This long after its order, a pause counts for every process that nothing kept from reading it.
_PAUSED_SECONDS = 5.0
# A process may take a pause for ended this long before its end: it knows the API server's time to about that.
_ENDS_SECONDS = 0.5
# Reads that take longer than this, or are never answered, keep a process from reading a pause.
_SLOW_SECONDS = 0.1
_LOOK_BACK_SECONDS = 60.0
# The node of a pod is read this long before a call at most, also where the first read took too long.
_READ_SECONDS = 10.0
# How a readable value for the breaker's key begins, and what ends a pause.
_CLOSED = '{"open": false, "reset": '
_RESUMED = "false"


@dataclass
class _ControlStateRead:
    """What one process knows of the control state, None until it has read it. ``latch``: the breaker is open for it.

    ``lost``: what it knew of an object that was deleted, until it has written that again, so since ``written_at``.
    ``lost_before``: the same, before it seemed to be written: people may have ordered the same in an object of theirs.
    ``recreated``: the last answer was an object that others have created since. ``causes``: what still kept the breaker
    open when each of its writes was sent. ``latched_after``: it knew the latch only after that.
    """

    control_state: ControlState | None = None
    lost: ControlState | None = None
    lost_before: ControlState | None = None
    written_at: float = NEVER
    recreated: bool = False
    so_at: float = -NEVER
    answered_at: float = -NEVER
    known_at: float = NEVER
    latch: Latch | None = None
    latched_after: float = -NEVER
    reset_epoch: float = -NEVER
    hindered_at: float = -NEVER
    under_way: dict[int, float] = field(default_factory=dict)
    so: dict[int, float] = field(default_factory=dict)
    causes: dict[int, str] = field(default_factory=dict)


class SuspensionJudge:
    """Judges all processes.

    ``control_state`` returns the content of the ConfigMap, and is called after anything that may change it.
    ``leads_since`` returns since when a process may act at an instant. ``disturbances``: the faults; None: any.
    """

    def __init__(
        self,
        settings: Settings,
        truth: Truth,
        handling: HandlingJudge,
        control_state: Callable[[], ControlState | None],
        leads_since: Callable[[str, float], float],
        breach: Breach,
        *,
        disturbances: Disturbances | None,
    ) -> None:
        self._settings = settings
        self._truth = truth
        self._handling = handling
        self._control_state = control_state
        self._leads_since = leads_since
        self._breach = breach
        self._history: list[tuple[float, ControlState]] = [(-NEVER, ControlState())]
        self._read: dict[str, _ControlStateRead] = {}
        self._surges = SurgeJudge(settings.breaker, truth, self._acts_since, breach, disturbances)

    @property
    def changed_at(self) -> float:
        """When the control state last changed."""
        return self._history[-1][0]

    def hindered(self, process: str, until: float) -> None:
        """Note that a process can do nothing until ``until``."""
        self._read.setdefault(process, _ControlStateRead()).hindered_at = until

    def evaluate(self, at: float) -> None:
        """Note the control state, which may have changed."""
        control_state = self._control_state() or ControlState()
        if control_state != self._history[-1][1]:
            self._history.append((at, control_state))

    def check_scribble(self, key: str, value: str, at: float) -> None:
        """Check that an unreadable value holds back the scope of its key, and that an unknown key changes nothing."""
        if value.startswith(_CLOSED) or value == _RESUMED:
            return
        before, after = self._history[-1][1], self._control_state() or ControlState()
        kind, dot, name = key.partition(".")
        held: dict[str, object] = {} if dot else {"pause": after.cluster, "breaker": after.latch}
        if name:
            held = {"pause-node": after.nodes.get(name), "pause-namespace": after.namespaces.get(name)}
            held["pause-selector"] = after.selectors.get("")
        if held[kind] is None if kind in held else after != before:
            trace = Trace("somebody", 0, Phase.CARRIED_OUT, CallKind.WRITE_CONTROL_STATE, key, "", at)
            self._breach("unreadable value misread", trace, f"now it says {after}")

    def trace(self, trace: Trace) -> None:
        """Judge one phase of any call."""
        read = self._read.setdefault(trace.process, _ControlStateRead())
        self._surges.trace(trace)
        if trace.call is CallKind.READ_CONTROL_STATE:
            self._read_control_state(trace, read)
        elif trace.call is CallKind.WRITE_CONTROL_STATE and trace.phase is Phase.SENT:
            self._check_dry(trace)
            if (latch := self._history[-1][1].latch) is not None and not latch.unreadable:
                read.causes[trace.number] = self._surges.cause(trace, latch, self._reset_before())
        elif trace.call is CallKind.WRITE_CONTROL_STATE and trace.phase is Phase.CARRIED_OUT:
            self._check_written(trace, read)
        elif trace.phase is Phase.SENT and trace.call in (*ENDS, CallKind.MARK, CallKind.UNMARK):
            self._check_dry(trace)
            if trace.call is not CallKind.UNMARK:
                self._check_sent(trace, read)

    def _acts_since(self, process: str, at: float) -> float:
        """Return since when a process has been acting with a control state that it has read."""
        return max(self._leads_since(process, at), self._read.setdefault(process, _ControlStateRead()).known_at)

    # Reads and writes of the control state

    def _read_control_state(self, trace: Trace, read: _ControlStateRead) -> None:
        match trace.phase:
            case Phase.SENT:
                if read.under_way:
                    read.hindered_at = trace.at
                read.under_way = {trace.number: trace.at}
            case Phase.CARRIED_OUT:
                read.so[trace.number] = trace.at
            case Phase.FAILED:
                read.hindered_at = trace.at
            case Phase.ANSWERED:
                sent_at = read.under_way.pop(trace.number, trace.at)
                if trace.at > sent_at + _SLOW_SECONDS:
                    read.hindered_at = trace.at
                read.known_at = min(read.known_at, trace.at)
                if read.so[trace.number] < read.so_at:
                    return  # The process has known a newer state.
                self._take_control_state(read, trace.body, sent_at)
                read.so_at = read.so[trace.number]
                known = read.control_state or ControlState()
                self._take_latch(read, known, trace)
                read.answered_at = trace.at
                # A pause by labels counts where a process knows them: if they have always been such.
                self._handling.interrupt(
                    trace.process,
                    lambda *of: _paused(known, of[0], of[1], trace.at, self._labels(of[0], -NEVER)) is not None,
                )
                if read.latch is not None:
                    # The process may have closed the breaker since it knew of the latch, and not written that yet.
                    until = read.latched_after if self._settings.breaker.closes_by_itself else NEVER
                    self._handling.interrupt(trace.process, lambda *_: True, until)

    def _take_control_state(self, read: _ControlStateRead, answer: ControlState | None, sent_at: float) -> None:
        """Note what a process has read; what it knew of an object that was deleted stays in force.

        That is all that it knew: what it had written again by then, and what others had ordered in an object of theirs
        that is gone as well.
        """
        recreated, read.recreated = read.recreated, answer is not None and answer.recreated
        if answer is not None and not answer.recreated:
            read.lost, read.lost_before, read.control_state, read.written_at = None, None, answer, NEVER
            return
        if sent_at >= read.written_at or (recreated and answer is None):
            read.lost, read.lost_before, read.written_at = None, read.lost, NEVER
        read.lost = read.lost or read.control_state or ControlState()
        read.control_state = read.lost if answer is None else answer.with_lost(read.lost)

    def _take_latch(self, read: _ControlStateRead, control_state: ControlState, trace: Trace) -> None:
        reset = -NEVER if control_state.reset_epoch is None else control_state.reset_epoch
        readable = control_state.breaker_epoch is not None and not (
            control_state.latch is not None and control_state.latch.unreadable
        )
        if readable and read.latch is not None and read.latch.unreadable:
            read.latch = None
        if reset not in (-NEVER, read.reset_epoch):
            read.reset_epoch = reset
            self._surges.reset(trace, reset)
        # A latch that names no controller is a person's: whoever closes it, dates do not count.
        by_a_person = read.latch is not None and not read.latch.controller and control_state.reset_epoch is not None
        if by_a_person or (read.latch is not None and reset >= read.latch.since_epoch - TICK):
            read.latch = None
        if control_state.latch is not None:
            if control_state.latch != read.latch:
                read.latched_after = read.answered_at
            read.latch = control_state.latch

    def _check_written(self, trace: Trace, read: _ControlStateRead) -> None:
        before = self._history[-1][1]
        self.evaluate(trace.at)
        after = self._history[-1][1]
        lost = read.lost or read.control_state or ControlState()
        known = [before, *(before.with_lost(each) for each in (lost, read.lost_before) if each is not None)]
        if not any(_keeps_pauses(after, each, trace.at) for each in known):
            self._breach("wrote something else", trace, "a pause was changed")
        merged, there = before.with_lost(lost).pauses(), after.pauses()
        if read.lost is not None and all(each in there or _has_ended(merged[each], trace.at) for each in merged):
            read.written_at = trace.at
        if after.latch is not None and before.latch is None:
            read.latch, read.latched_after = after.latch, trace.at
            self._surges.check_opened(trace, after.latch)
        if after.latch is None and before.latch is not None and after.reset_epoch != before.reset_epoch:
            if cause := read.causes.get(trace.number, ""):
                self._breach("closed too early", trace, cause)
            elif not before.latch.controller and read.latch == before.latch:
                self._breach("closed too early", trace, "a person opened it, or its value was unreadable")

    def _reset_before(self) -> float:
        """Return when the breaker was closed the previous time; a date ahead counts from when it was written."""
        before = [(at, state.reset_epoch) for at, state in self._history[:-1] if state.reset_epoch is not None]
        return max((min(at, epoch - server_time(0.0)) for at, epoch in before), default=-NEVER)

    # Calls about pods

    def _check_dry(self, trace: Trace) -> None:
        if self._settings.dry_run:
            self._breach("dry run", trace, "a dry run changes nothing")

    def _check_sent(self, trace: Trace, read: _ControlStateRead) -> None:
        states = self._truth.pods.get(trace.uid)
        if not states:
            return
        node, namespace = states[-1].node or "", states[-1].namespace
        if read.control_state is None:
            self._breach("control state unknown", trace, "whether it is paused was never read")
            return
        # Labels count if the node had no others since it was read for the call.
        labels = self._labels(node, trace.at - _READ_SECONDS)
        if (scope := _paused(read.control_state, node, namespace, trace.at + _ENDS_SECONDS, labels)) is not None:
            self._breach("paused", trace, f"{scope}, as was read, so at {read.so_at:.3f}")
        elif (since := self._paused_since(node, namespace, trace.at)) < trace.at - _PAUSED_SECONDS and not (
            self._is_hindered(trace, read)
        ):
            self._breach("paused", trace, f"since {since:.3f}, and nobody noticed")
        since = trace.at - _LOOK_BACK_SECONDS
        # The node was read for the call.
        ways = self._handling.ways(trace.uid, since, trace.at + TICK, node_since=trace.at - _READ_SECONDS)
        if ways and all(way.paused for way in ways):
            self._breach("paused", trace, "by a rule of the policy")
        ways = self._handling.ways(trace.uid, since, trace.at + TICK)
        # Whatever opened the breaker: once too many nodes were out of service, it holds their pods until it is reset.
        holds_all = read.latch is not None and read.latch.out_of_service
        if any(way.exempt for way in ways) and not holds_all and not self._surges.blocks_bypassing(trace):
            return
        by_itself = self._settings.breaker.closes_by_itself
        if read.latch is not None and (read.latch.unreadable or not read.latch.controller or not by_itself):
            since = read.latch.since_epoch - server_time(0.0)
            self._breach("breaker open", trace, f"{trace.process} knows that it has been since {since:.3f}")
        self._surges.check_sent(trace)
        self._check_settled(trace, node, namespace)

    def _is_hindered(self, trace: Trace, read: _ControlStateRead) -> bool:
        slow = any(trace.at > sent_at + _SLOW_SECONDS for sent_at in read.under_way.values())
        return slow or read.hindered_at > trace.at - _PAUSED_SECONDS - 2.5

    def _paused_since(self, node: str, namespace: str, now: float) -> float:
        """Return since when a process that reads has known that pods of this node and namespace are paused now;
        ``NEVER`` if they are not. A pause that has ended by now counts for nothing, even if another one follows it.
        """
        since, labels = NEVER, self._labels(node, now - _READ_SECONDS)
        for at, control_state in reversed(self._history):
            if _paused(control_state, node, namespace, now + _ENDS_SECONDS, labels) is None:
                break
            since = at
        return since

    def _labels(self, node: str, since: float) -> list[Mapping[str, str]]:
        """Return the labels that a node had at any moment since then."""
        return [state.labels for state in self._truth.node_states(node, since) if state is not None]

    def _check_settled(self, trace: Trace, node: str, namespace: str) -> None:
        """Check that an eviction waits for the breaker to settle; pods of scopes that were ever paused are left out."""
        breaker = self._settings.breaker
        if not breaker.enabled or any(
            node in one.nodes or namespace in one.namespaces or one.selectors for _, one in self._history
        ):
            return
        if any(way.paused for way in self._handling.ways(trace.uid, -NEVER)) or self._handling.rules_changed:
            return
        since = trace.at - _LOOK_BACK_SECONDS
        pods = [pod for pod in self._truth.pod_states(trace.uid, since) if not pod.terminating]
        dues = [due_at(state, pod) for state in self._truth.node_states(node, since) for pod in pods]
        settled_at = min(dues, default=-NEVER) + breaker.settle_seconds
        if trace.at < settled_at - TICK:
            self._breach("not settled", trace, f"a surge may become known until {settled_at:.3f}")

    # The end

    def excuse(self, uid: str, due_by: float) -> bool:
        """Return whether a pod may stay at the end although it has been due since ``due_by``. Rules excuse it only if
        the rules of all due taints pause.
        """
        pod, control_state = self._truth.pods[uid][-1], self._history[-1][1]
        counts = [control_state]
        if self._control_state() is None:
            # What was known of the deleted ConfigMap stays in force.
            counts += [read.control_state for read in self._read.values() if read.control_state is not None]
        now, labels = virtual_now(), self._labels(pod.node or "", virtual_now())
        paused = any(_paused(each, pod.node or "", pod.namespace, now, labels) is not None for each in counts)
        ways = self._handling.ways(uid, NEVER, due_by)
        by_rule = bool(ways) and all(way.paused for way in ways)
        return paused or by_rule or control_state.latch is not None


def _paused(
    control_state: ControlState, node: str, namespace: str, at: float, labels: Sequence[Mapping[str, str]] = ()
) -> str | None:
    """Return what is paused at an instant; None: nothing that concerns these. ``labels``: those that the node may have;
    a pause by labels must match some of them each time.
    """
    paused = {
        "all evictions": control_state.cluster,
        f"node {node}": control_state.nodes.get(node),
        f"namespace {namespace}": control_state.namespaces.get(namespace),
    }
    if scope := next((scope for scope, pause in paused.items() if pause is not None and not _has_ended(pause, at)), ""):
        return scope
    selectors = [text for text, pause in control_state.selectors.items() if not _has_ended(pause, at)]
    held = bool(labels) and all(any(_selects(text, each) for text in selectors) for each in labels)
    return f"nodes by {selectors}" if held else None


def _selects(text: str, labels: Mapping[str, str]) -> bool:
    return all(chosen(term, labels) for term in parse_selector(text))


def _has_ended(pause: Pause, at: float) -> bool:
    return pause.until_epoch is not None and pause.until_epoch <= server_time(at)


def _keeps_pauses(after: ControlState, before: ControlState, at: float) -> bool:
    """Return whether all pauses are as before, apart from those that have ended and were removed."""
    new, old = after.pauses(), before.pauses()
    return all(old.get(scope) == pause for scope, pause in new.items()) and all(
        _has_ended(pause, at) for scope, pause in old.items() if scope not in new
    )
