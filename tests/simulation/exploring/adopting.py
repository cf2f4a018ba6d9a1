"""The oracle's part about adoption, with the built-in controller as a second actor.

It reads notes with its own code. A change by this controller moves seconds between the spec and the note, and leaves
the tolerations that count as they were; a note that somebody else removed may be written again. The built-in controller
must not evict a pod whose countdown is taken over, and at the end no pod is marked without a reason.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tests.simulation.exploring.seen import BrokenRule
from tests.simulation.exploring.truth import (
    LIFECYCLE_KEYS,
    MARK,
    NEVER,
    NodeState,
    TolerationName,
    Truth,
    counted,
    named_tolerations,
    note_of,
    noted_places,
    tolerated_for,
    tolerates,
)

from taint_eviction.core.control_state import ControlState
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.replica import BUILT_IN
from taint_eviction_lab.simulation.scenario import Scenario

# Calls that adoption does not need.
_OTHERS = frozenset(
    {CallKind.MARK, CallKind.UNMARK, CallKind.DELETE, CallKind.EVICT, CallKind.GIVE_BACK, CallKind.LIST_ADOPTED}
)
# How long a leader needs at its start; how long before its timer a countdown is taken over, at least; and how soon this
# is done then, or once it is known.
_BEGINNING_SECONDS, _BEFORE_SECONDS, _ADOPTED_WITHIN_SECONDS = 8.0, 10.0, 5.0
# How soon, after what disturbed has ended: a refused call is tried again, at most; a watch runs again and has listed.
_CALLED_AGAIN_SECONDS, _SEEN_AGAIN_SECONDS = 45.0, 40.0
CHANGES = (CallKind.ADOPT, CallKind.GIVE_BACK)
_NOTE = "taint-eviction/seconds"
_OWN_LABEL = ("app.kubernetes.io/name", "taint-eviction-controller")
# The names of the built-in controller's processes begin with this.
_BUILT_IN = "built-in controller"
# How long the model of the built-in controller needs to handle an event.
_HANDLED_SECONDS = 0.01
# A pod whose reason for adoption ended is given back within this time, whichever events were lost.
GIVEN_BACK_SECONDS = 620.0

JsonObject = dict[str, Any]
Breach = Callable[[str, Trace, str], None]


class DisturbedSpan(NamedTuple):
    """A time from ``begin`` until ``end``; there is none if it ends before it begins."""

    begin: float
    end: float


def disturbed(scenario: Scenario) -> tuple[DisturbedSpan, ...]:
    """Return from when until when something disturbs what adoption needs: calls, watches, processes, orders.

    Restarts and elections are left out: who leads since when is seen.
    """
    steps = [step for step in scenario.steps if not isinstance(step.action, do.LagWatches)]
    return (*(DisturbedSpan(step.at, step.at + _disturbed_for(scenario, step)) for step in steps), *_lags(scenario))


def _disturbed_for(scenario: Scenario, step: do.ScenarioStep) -> float:
    """Return for how long a step disturbs what adoption needs; minus infinity: not at all."""
    resync_seconds = scenario.settings.watch.resync_seconds
    match step.action:
        case do.DisturbCalls() as calls:
            return _called_again(calls)
        case _ if getattr(step.action, "replica", None) == BUILT_IN:
            return -NEVER
        case do.LoseEvents(for_seconds=seconds):
            return seconds + 1.1 * resync_seconds + _SEEN_AGAIN_SECONDS
        case do.RepeatEvents(for_seconds=seconds):
            return seconds
        case do.Partition(for_seconds=seconds, late_seconds=late):
            return seconds + (late or 0.0) + _SEEN_AGAIN_SECONDS
        case do.HandBack(undo=True) | do.LoseControlState() | do.RelistWatches():
            return _SEEN_AGAIN_SECONDS
        case do.HandBack() | do.Scribble() | do.Lead() | do.StepHostClock() | do.StepServerClock():
            return NEVER
    return _shaken(step.action)


def _shaken(action: do.Action) -> float:
    match action:
        case (
            do.CutWatches(for_seconds=seconds)
            | do.BufferWatches(for_seconds=seconds)
            | do.Freeze(for_seconds=seconds)
            | do.Outage(for_seconds=seconds)
            | do.StopServer(for_seconds=seconds)
            | do.RestartLifecycle(after_seconds=seconds)
        ):
            return seconds + _SEEN_AGAIN_SECONDS
    return -NEVER


def _called_again(action: do.DisturbCalls) -> float:
    if action.picked.calls <= _OTHERS:
        return -NEVER
    lasts = NEVER if action.picked.times is not None or action.for_seconds is None else action.for_seconds
    return lasts + action.fault.delay_seconds + action.fault.back_seconds + _CALLED_AGAIN_SECONDS


def _lags(scenario: Scenario) -> Iterator[DisturbedSpan]:
    """Return from when until when watches lag: the next such step ends one."""
    lags = [
        (step.at, step.action)
        for step in scenario.steps
        if isinstance(step.action, do.LagWatches) and step.action.replica != BUILT_IN
    ]
    for number, (at, lag) in enumerate(lags):
        ends = (
            later_at
            for later_at, later in lags[number + 1 :]
            if later.watch in (lag.watch, "all") and later.replica in (lag.replica, None)
        )
        if lag.by_seconds:
            yield DisturbedSpan(at, next(ends, NEVER) + lag.by_seconds + _SEEN_AGAIN_SECONDS)


def is_built_in(process: str) -> bool:
    """Return whether a process is the model of the built-in controller."""
    return process.startswith(_BUILT_IN)


class AdoptionJudge:
    """Judges all processes.

    ``control_state`` returns the content of the ConfigMap. ``leaders`` returns who may act at a time, each process with
    since when. ``disturbed``: when adoption is disturbed; None: whether a countdown was taken over is not judged.
    """

    def __init__(
        self,
        truth: Truth,
        control_state: Callable[[], ControlState | None],
        breach: Breach,
        leaders: Callable[[float], Mapping[str, float]] = lambda _: {},
        disturbed: Sequence[DisturbedSpan] | None = None,
    ) -> None:
        self._leaders = leaders
        self._disturbed = disturbed
        self._settings = truth.settings.adoption
        self.marked: set[str] = set()
        self._truth = truth
        self._control_state = control_state
        self._breach = breach
        # By process: the control state that it has read.
        self._control_states: dict[str, ControlState] = {}
        # By UID and toleration: the seconds that were noted of it since it is a mark.
        self._noted: dict[str, dict[TolerationName, set[int]]] = {}
        # What the built-in controller's latest process has seen (nodes by name, pods by key), and which pods it has
        # begun to delete.
        self._seen_nodes: dict[str, tuple[float, JsonObject]] = {}
        self._seen_pods: dict[str, tuple[float, JsonObject]] = {}
        self._went_for: set[str] = set()
        self._built_in = ""
        # Whether the processes of a replica take countdowns over, if it was restarted with another setting.
        self._adopts: dict[int, bool] = {}
        # When a process last began to lead.
        self._led_at = -NEVER

    def notice(self, body: JsonObject) -> None:
        """Note a write of a pod."""
        uid, noted = body["metadata"]["uid"], noted_places(body)
        if not noted and uid not in self._noted:
            return  # Not all tolerations are readable.
        before, marks = self._noted.get(uid, {}), _marks(body)
        self._noted[uid] = {
            name: before.get(name, set()) | ({noted[place]} if place in noted else set())
            for place, name in enumerate(named_tolerations(body))
            if place in marks
        }

    def restart(self, replica: int, adopts: bool) -> None:
        """Note that a replica is restarted, and whether its processes take countdowns over from then on."""
        self._adopts[replica] = adopts

    def begin_to_lead(self, at: float) -> None:
        """Note that a process begins to lead."""
        self._led_at = at

    # Calls of this controller

    def trace(self, trace: Trace) -> None:
        """Judge one phase of a call of this controller."""
        if trace.call is CallKind.READ_CONTROL_STATE and trace.phase is Phase.ANSWERED:
            self._control_states[trace.process] = trace.body or ControlState()
        if trace.call not in CHANGES:
            return
        if trace.phase is Phase.SENT:
            control_state = self._control_states.get(trace.process)
            if control_state is None:
                self._breach("control state unknown", trace, "whether pods may be adopted was never read")
            if trace.call is CallKind.ADOPT:
                self._check_may_take_over(trace, control_state or ControlState())

    def _check_may_take_over(self, trace: Trace, read: ControlState) -> None:
        if read.no_adoption is not None:
            self._breach("adoption was stopped", trace, "it had read that nothing is to be adopted")
        if not self._takes_over(trace.process):
            self._breach("adopted without the flag", trace, f"{trace.process} takes nothing over")
        now = self._control_state() or ControlState()
        if now.no_adoption is not None and now.no_adoption_confirmed_by == trace.process:
            self._breach("adoption was stopped", trace, "it had confirmed that it adopts nothing")

    def _takes_over(self, process: str) -> bool:
        """Return whether a process has the flag."""
        return all(adopts for number, adopts in self._adopts.items() if process.startswith(f"replica {number},"))

    def check_change(self, trace: Trace, before: JsonObject, after: JsonObject, node: NodeState | None) -> None:
        """Check that a change of a pod moves seconds between spec and note, and changes nothing else.

        A mark without a note counts as "for ever" until a leader that knows the note writes it again: then it may count
        as any note said since it is a mark, as no process sees every note that others write.
        ``node``: the pod's node as the process had read it.
        """
        if _unmoved(before) != _unmoved(after):
            self._breach("wrote something else", trace, "more than seconds and note was written")
        old, new = counted(before), counted(after)
        again = self._noted_again(trace.uid, before, after)
        if new[: len(old)] != [new[place] if place in again else each for place, each in enumerate(old)]:
            self._breach("effective tolerations changed", trace, f"{old} became {new}")
        places = set(noted_places(after))
        if (_marks(after) - _marks(before)) - places:
            self._breach("marked without a note", trace, f"{after['metadata']}")
        if len(note_of(after) or ()) != len(places):
            self._breach("void note", trace, f"{after['metadata']}")
        if trace.call is CallKind.ADOPT:
            if why := _never_adopted(before):
                self._breach("adopted wrongly", trace, why)
            if left := self._left(after, node):
                self._breach("adopted in part", trace, f"it keeps {left}")

    def _noted_again(self, uid: str, before: JsonObject, after: JsonObject) -> set[int]:
        """Return the marks that had lost their note, and that a change notes as a note had said before."""
        known, names, noted = self._noted.get(uid, {}), named_tolerations(before), noted_places(after)
        lost = _marks(before) - {*noted_places(before)}
        return {place for place in lost & noted.keys() if noted[place] in known.get(names[place], ())}

    def _left(self, body: JsonObject, read: NodeState | None) -> list[JsonObject]:
        """Return the tolerations with seconds that match a taint which the process had read and which still exists."""
        now = self._truth.node_now(body["spec"].get("nodeName"))
        there = set() if read is None or now is None else read.taints.keys() & now.taints.keys()
        taints = [(key, value) for key, value, _ in sorted(there)]
        first = [_first_match(body, *taint) for taint in taints]
        return [each for each in first if each is not None and each.get("tolerationSeconds") not in (None, MARK)]

    # Calls of the built-in controller

    def trace_built_in(self, trace: Trace) -> None:
        """Judge one phase of a call of the built-in controller."""
        if trace.process != self._built_in:
            self._built_in = trace.process
            self._seen_nodes, self._seen_pods, self._went_for = {}, {}, set()
        match trace.phase, trace.call:
            case Phase.SAW, _:
                self._see(trace)
            case Phase.CARRIED_OUT, CallKind.MARK:
                self.marked.add(trace.uid)
            case Phase.SENT, CallKind.READ_POD:
                self._check_goes_for(trace)

    def _see(self, trace: Trace) -> None:
        body = trace.body
        metadata = body["metadata"]
        if "namespace" in metadata:
            self._seen_pods[f"{metadata['namespace']}/{metadata['name']}"] = (trace.at, body)
        else:
            self._seen_nodes[metadata["name"]] = (trace.at, body)

    def _check_goes_for(self, trace: Trace) -> None:
        """Check that the built-in controller does not begin to delete a pod that it has seen adopted.

        It may continue a deletion that it has begun.
        """
        if trace.subject in self._went_for:
            return
        self._went_for.add(trace.subject)
        self._check_was_adopted(trace)
        seen_at, pod = self._seen_pods.get(trace.subject, (NEVER, {}))
        if seen_at > trace.at - _HANDLED_SECONDS or note_of(pod) is None:
            return
        uid = pod["metadata"]["uid"]
        node_seen_at, node = self._seen_nodes.get(pod["spec"].get("nodeName") or "", (NEVER, {}))
        if uid in self._truth.gone or self._truth.names.get(uid) != trace.subject:
            return
        if node_seen_at > trace.at - _HANDLED_SECONDS:
            return
        if all(_tolerates_for_ever(pod, taint) for taint in node.get("spec", {}).get("taints") or []):
            self._breach("adopted, but evicted", trace, f"{uid} was adopted, as was seen at {seen_at:.3f}")

    def _check_was_adopted(self, trace: Trace) -> None:
        """Check that a pod that the built-in controller begins to delete could not have been taken over before.

        It could if one process has led long enough, and nothing was disturbed, from when it could be known that the
        countdown was late: it is taken over shortly before its timer, and what fails until then is tried again.
        """
        if not self._settings.enabled or self._disturbed is None:
            return
        bearers = [uid for uid, _ in self._truth.living() if self._truth.names[uid] == trace.subject]
        if not bearers:
            return
        pod, body = self._truth.pods[bearers[0]][-1], self._truth.bodies[bearers[0]]
        node = self._truth.node_now(pod.node)
        if node is None or not node.taints or _never_adopted(body) or pod.left_alone:
            return
        led_from = min((at for name, at in self._leaders(trace.at).items() if self._takes_over(name)), default=NEVER)
        calm_from = max((span.end for span in self._disturbed if span.begin <= trace.at), default=-NEVER)
        since = max(*node.taints.values(), node.resumed_at)
        known_at = max(led_from + _BEGINNING_SECONDS, calm_from, pod.edited_at, since)
        if max(known_at, trace.at - _BEFORE_SECONDS) + _ADOPTED_WITHIN_SECONDS > trace.at:
            return  # It may go for a pod by seconds that have just been changed.
        own = replace(pod, rules=())  # The built-in controller knows no ceiling.
        tolerance = min(tolerated_for(own, node, key, value) for key, value, _ in node.taints)
        if tolerance >= max(self._settings.from_seconds, 0.001):
            self._breach("not adopted in time", trace, f"known at {known_at:.3f}, and tolerated for {tolerance:.3f}")

    # The end state

    def check_end(self, now: float) -> list[BrokenRule]:
        """Return a broken rule for each pod that is adopted although neither a taint of its node matches its note nor
        one that may come back.
        """
        found = []
        nobody_adopts = bool(self._adopts) and not any(self._adopts.values())
        for uid, state in self._truth.living():
            body, node = self._truth.bodies[uid], self._truth.node_now(state.node)
            if node is None or state.terminating:
                continue
            if nobody_adopts and noted_places(body):
                text = f"{self._truth.names[uid]} ({uid}) on {state.node} is adopted, and nobody adopts any more"
                found.append(BrokenRule("not given back", now, text))
            if nobody_adopts or note_of(body) is None:
                continue
            tolerations = body["spec"]["tolerations"]
            first = [_first_match(body, key, value) for key, value, _ in node.taints]
            marked = [tolerations[place] for place in noted_places(body)]
            if not marked and not node.taints:
                continue  # A void note on a pod that nobody watches is seen within the hour.
            matters = [
                each in first or self._truth.goes_on(node.uid, each) or self._may_go_on(node, each, now)
                for each in marked
            ]
            if not matters or not all(matters):
                text = f"{self._truth.names[uid]} ({uid}) on {state.node} is adopted, and no taint matches"
                found.append(BrokenRule("not given back", now, text))
        return found

    def _may_go_on(self, node: NodeState, toleration: JsonObject, now: float) -> bool:
        """Return whether, for all that the leader can know, a lifecycle taint that this toleration matches may come
        back: it may have been removed before the leader began, and the node is not ready.
        """
        ready = node.unready_at == NEVER
        recent = now - self._led_at < self._truth.settings.decisions.outage_gap_seconds
        return recent and not ready and any(tolerates(toleration, key, "") for key in LIFECYCLE_KEYS)


def _tolerates_for_ever(pod: JsonObject, taint: JsonObject) -> bool:
    if taint["effect"] != "NoExecute":
        return True
    first = _first_match(pod, taint["key"], taint.get("value", ""))
    return first is not None and first.get("tolerationSeconds") in (None, MARK)


def _first_match(pod: JsonObject, key: str, value: str) -> JsonObject | None:
    found: JsonObject | None = next(
        (each for each in pod["spec"].get("tolerations") or [] if tolerates(each, key, value)), None
    )
    return found


def _marks(body: JsonObject) -> set[int]:
    tolerations = (body.get("spec") or {}).get("tolerations") or []
    return {place for place, each in enumerate(tolerations) if each.get("tolerationSeconds") == MARK}


def _never_adopted(body: JsonObject) -> str:
    """Return why a pod must never be adopted, "" if it may be."""
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp"):
        return "it is terminating"
    if (body.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return "it is finished"
    if "kubernetes.io/config.mirror" in (metadata.get("annotations") or {}):
        return "it is a mirror pod"
    if (metadata.get("labels") or {}).get(_OWN_LABEL[0]) == _OWN_LABEL[1]:
        return "it is the controller's own"
    return ""


def _unmoved(body: JsonObject) -> str:
    """Return all of a pod except what adoption moves and what every write changes."""
    metadata = {
        name: value
        for name, value in body["metadata"].items()
        if name not in ("resourceVersion", "generation", "managedFields", "annotations")
    }
    others = _others(body["metadata"].get("annotations") or {})
    spec = {name: value for name, value in (body.get("spec") or {}).items() if name != "tolerations"}
    return json.dumps([metadata, others, spec, body.get("status")], sort_keys=True)


def _others(texts: Mapping[str, Any]) -> JsonObject:
    return {name: text for name, text in texts.items() if name != _NOTE}
