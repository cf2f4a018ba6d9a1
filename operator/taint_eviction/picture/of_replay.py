"""A replay as a picture: the scenario's own seconds, every bearer of a name in a lane of its own."""

from collections.abc import Iterable, Mapping
from typing import Any

from taint_eviction.core.objects import NO_EXECUTE
from taint_eviction.picture.scene import Band, Bar, Kind, Lane, Mark, Picture
from taint_eviction.simulation import actions as do
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.replay import ReplayResult
from taint_eviction.simulation.scenario import Scenario
from taint_eviction.simulation.timeline import Entry, What

_MARKS = {
    What.SCHEDULED: Kind.SCHEDULED,
    What.CANCELLED: Kind.CANCELLED,
    What.DROPPED: Kind.CANCELLED,
    What.EVICTED: Kind.EVICTED,
    What.DELETED_AGAIN: Kind.EVICTED,
    What.REFUSED: Kind.REFUSED,
    What.CALL_FAILED: Kind.REFUSED,
    What.GONE: Kind.GONE,
}


def picture_of_replay(result: ReplayResult) -> Picture:
    """Draw a replay, as long as something happens."""
    scenario = result.scenario
    interesting = [entry.at for entry in result.timeline] + [entry.due_at or 0.0 for entry in result.timeline]
    end = min(max([1.0, *interesting]), result.ended_at)
    begin = min([0.0, *(step.at for step in scenario.steps)])
    margin = 0.04 * (end - begin)
    picture = Picture(f"Replay: {scenario.name}", " ".join(scenario.about.split()), begin - margin, end + 3 * margin)
    picture.bands = _bands(scenario)
    picture.lanes = list(_Lanes(scenario, result.timeline, end).lanes.values())
    picture.steps = [Mark(entry.at, Kind.STEP, entry.subject) for entry in result.timeline if entry.what is What.STEP]
    for verdict in result.verdicts:
        held = "held" if verdict.held else "BROKEN"
        picture.notes.append(f"{held}: {verdict.pod}: expected {verdict.expected}; seen {verdict.seen}")
    return picture


# Taints


def _bands(scenario: Scenario) -> dict[str, list[Band]]:
    taints: dict[str, list[Any]] = {}
    history: dict[str, list[tuple[float | None, list[Any]]]] = {}

    def note(at: float | None, name: str) -> None:
        history.setdefault(name, []).append((at, list(taints.get(name, ()))))

    for node in scenario.nodes:
        name = node["metadata"]["name"]
        taints[name] = list((node.get("spec") or {}).get("taints") or ())
        note(None, name)
    for step in scenario.steps:
        changed = _changed(step.action, taints)
        if changed is not None:
            note(step.at, changed)
    return {name: _bands_of(states) for name, states in history.items()}


def _changed(action: do.Action, taints: dict[str, list[Any]]) -> str | None:
    """Change a node's taints as the action does; return which node's, None if it changes none."""
    match action:
        case do.AddTaints():
            taints[action.node] = kube.add_taints(taints.get(action.node, []), action.taints)
        case do.SetTaints() | do.RecreateNode():
            taints[action.node] = list(action.taints)
        case do.RemoveTaints():
            left = [] if action.taints is None else taints.get(action.node, [])
            for key, effect in action.taints or ():
                left = kube.remove_taints(left, key, effect)
            taints[action.node] = left
        case do.DeleteNode():
            taints[action.node] = []
        case do.CreateNode():
            name = str(action.body["metadata"]["name"])
            taints[name] = list((action.body.get("spec") or {}).get("taints") or ())
            return name
        case _:
            return None
    return action.node


def _bands_of(states: Iterable[tuple[float | None, list[Any]]]) -> list[Band]:
    open_since: dict[str, float | None] = {}
    bands: list[Band] = []
    for at, taints in states:
        named = {_name(taint) for taint in taints}
        for gone in [name for name in open_since if name not in named]:
            bands.append(Band(gone, open_since.pop(gone), at, gone.endswith(NO_EXECUTE)))
        for name in sorted(named - open_since.keys()):
            open_since[name] = at
    return bands + [Band(name, since, None, name.endswith(NO_EXECUTE)) for name, since in open_since.items()]


def _name(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


# Pods


class _Lanes:
    def __init__(self, scenario: Scenario, timeline: Iterable[Entry], end: float) -> None:
        self.lanes: dict[tuple[str, str], Lane] = {}
        self._end = end
        self._nodes = _homes(scenario)
        self._running: dict[tuple[str, str], tuple[float, float, str]] = {}
        for entry in timeline:
            if entry.uid:
                self._add(entry)
        for key, (since, due, why) in self._running.items():
            self._bar(self.lanes[key], since, min(due, end), Kind.COUNTDOWN, why)

    def _add(self, entry: Entry) -> None:
        key = entry.subject, entry.uid
        if key not in self.lanes:
            number = int(tail) if (tail := entry.uid.rpartition("-")[2]).isdigit() else 1
            homes = self._nodes.get(entry.subject, [])
            node = homes[min(number, len(homes)) - 1] if homes else ""
            self.lanes[key] = Lane(entry.subject, node, "stays", "", entry.uid)
        lane, kind = self.lanes[key], _MARKS.get(entry.what)
        if kind is None:
            return
        lane.marks.append(Mark(entry.at, kind, f"{entry.what.value}: {entry.why}"))
        match entry.what:
            case What.SCHEDULED:
                self._end_countdown(key, entry.at)
                lane.outcome, lane.why, lane.deadline = "due", entry.why, entry.due_at
                self._running[key] = entry.at, entry.due_at or entry.at, entry.why
            case What.CANCELLED | What.DROPPED:
                self._end_countdown(key, entry.at)
                if lane.left_at is None:
                    lane.outcome, lane.why, lane.deadline = "cancelled", entry.why, None
            case What.EVICTED:
                self._evicted(key, entry)
            case _:
                pass

    def _evicted(self, key: tuple[str, str], entry: Entry) -> None:
        lane = self.lanes[key]
        lane.outcome, lane.left_at = "evicted", entry.at
        self._end_countdown(key, entry.at)
        if lane.deadline is not None and entry.at > lane.deadline:
            tries = sum(mark.kind is Kind.REFUSED for mark in lane.marks)
            kind = Kind.RETRYING if tries else Kind.LATE
            self._bar(lane, lane.deadline, entry.at, kind, f"{entry.at - lane.deadline:.3f} s past its deadline")

    def _end_countdown(self, key: tuple[str, str], at: float) -> None:
        running = self._running.pop(key, None)
        if running is not None:
            self._bar(self.lanes[key], running[0], min(running[1], at), Kind.COUNTDOWN, running[2])

    def _bar(self, lane: Lane, begin: float, end: float, kind: Kind, text: str) -> None:
        if end > begin:
            lane.bars.append(Bar(begin, end, kind, text))


def _homes(scenario: Scenario) -> dict[str, list[str]]:
    """List on which node each bearer of a pod's name was, in their order."""
    homes: dict[str, list[str]] = {}

    def bear(body: Mapping[str, Any]) -> None:
        metadata = body["metadata"]
        key = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
        homes.setdefault(key, []).append((body.get("spec") or {}).get("nodeName") or "")

    for pod in scenario.pods:
        bear(pod)
    for step in scenario.steps:
        match step.action:
            case do.CreatePods():
                for body in step.action.bodies:
                    bear(body)
            case do.RecreatePod():
                known = homes.setdefault(str(step.action.pod), [""])
                known.append("" if step.action.unbound else step.action.node or known[-1])
            case do.BindPod():
                homes.setdefault(str(step.action.pod), [""])[-1] = step.action.node
            case _:
                pass
    return homes
