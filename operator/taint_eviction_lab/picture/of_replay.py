"""A replay as a picture, in the scenario's seconds; each pod has its own row, even after a pod of the same name."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taint_eviction.core.objects import NO_EXECUTE
from taint_eviction_ctl.picture.scene import Band, Bar, Kind, Mark, Picture, PodRow
from taint_eviction_lab.picture.overdue import BREAKER, Holds
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.timeline import TimelineEntry, What

_MARKS = {
    What.SCHEDULED: Kind.SCHEDULED,
    What.CANCELLED: Kind.CANCELLED,
    What.DROPPED: Kind.CANCELLED,
    What.EVICTED: Kind.EVICTED,
    What.DELETED_AGAIN: Kind.EVICTED,
    What.REFUSED: Kind.REFUSED,
    What.CALL_FAILED: Kind.REFUSED,
    What.BLOCKED: Kind.BLOCKED,
}
# A refusal is in the timeline twice: as the server answers it, and as the controller reports it.
_SEEN_TWICE_SECONDS = 0.05


def picture_of_replay(result: ReplayResult) -> Picture:
    """Draw a replay up to the last event."""
    scenario = result.scenario
    interesting = [entry.at for entry in result.timeline] + [entry.due_at or 0.0 for entry in result.timeline]
    end = min(max([1.0, *interesting]), result.ended_at)
    begin = min([0.0, *(step.at for step in scenario.steps)])
    margin = 0.04 * (end - begin)
    picture = Picture(f"Replay: {scenario.name}", " ".join(scenario.about.split()), begin - margin, end + 3 * margin)
    picture.bands = _bands(scenario)
    rows = _Rows(scenario, result.timeline, end)
    picture.rows, picture.holds = list(rows.rows.values()), rows.holds.bands()
    picture.steps = [Mark(entry.at, Kind.STEP, entry.subject) for entry in result.timeline if entry.what is What.STEP]
    for verdict in result.verdicts:
        mark = "ok" if verdict.met else "FAILED"
        picture.notes.append(f"{mark}: {verdict.pod}: expected {verdict.expected}; seen {verdict.seen}")
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
    return {name: bands for name, states in history.items() if (bands := _bands_of(states))}


def _changed(action: do.Action, taints: dict[str, list[Any]]) -> str | None:
    """Change a node's taints as the action does; return the node's name, None if it changes none."""
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


def _labels(scenario: Scenario) -> Iterator[tuple[str, float, Mapping[str, str]]]:
    """Yield the labels of nodes, and from when on each has had them, in the order of time."""
    known: dict[str, Mapping[str, str]] = {}
    given: list[tuple[float, do.Action]] = [(-math.inf, do.CreateNode(node)) for node in scenario.nodes]
    for at, action in given + [(step.at, step.action) for step in scenario.steps]:
        match action:
            case do.CreateNode():
                name = action.body["metadata"]["name"]
                known[name] = action.body["metadata"].get("labels") or {}
            case do.LabelNode():
                name = action.node
                changed = {**known.get(name, {}), **action.labels}
                known[name] = {key: value for key, value in changed.items() if value is not None}
            case _:
                continue
        yield name, at, known[name]


# Pods


class _Rows:
    def __init__(self, scenario: Scenario, timeline: Iterable[TimelineEntry], end: float) -> None:
        self.rows: dict[tuple[str, str], PodRow] = {}
        self.holds = Holds()
        for name, at, labels in _labels(scenario):
            self.holds.label(name, labels, at)
        self._end = end
        self._homes = _homes(scenario)
        self._born: dict[tuple[str, str], float] = {}
        # By pod: the last entry about its deadline.
        self._running: dict[tuple[str, str], TimelineEntry] = {}
        for entry in timeline:
            if entry.uid:
                self._add(entry)
            else:
                self._hold(entry)
        for key in list(self._running):
            self._end_countdown(key, end)
        for key, row in self.rows.items():
            self.holds.overdue(row, end)
            if key in self._born:
                self._exists(key, end)

    def _hold(self, entry: TimelineEntry) -> None:
        match entry.what:
            case What.PAUSED if entry.scope is not None:
                self.holds.begin(entry.scope, entry.at, entry.why)
            case What.RESUMED if entry.scope is not None:
                self.holds.end(entry.scope, entry.at)
            case What.SAID_OPEN:
                self.holds.begin(BREAKER, entry.at, entry.why)
            case What.SAID_CLOSED:
                self.holds.end(BREAKER, entry.at)
            case _:
                pass

    def _row(self, key: tuple[str, str]) -> PodRow:
        if key not in self.rows:
            pod, uid = key
            number = int(tail) if (tail := uid.rpartition("-")[2]).isdigit() else 1
            homes = self._homes.get(pod, [])
            node, self._born[key] = homes[min(number, len(homes)) - 1] if homes else ("", 0.0)
            self.rows[key] = PodRow(pod, node, "stays", "", uid)
        return self.rows[key]

    def _add(self, entry: TimelineEntry) -> None:
        key = entry.subject, entry.uid
        row = self._row(key)
        if (kind := _MARKS.get(entry.what)) is not None:
            self._mark(row, Mark(entry.at, kind, f"{entry.what.value}: {entry.why}"))
        match entry.what:
            case What.SCHEDULED:
                self._end_countdown(key, entry.at)
                row.outcome, row.why, row.deadline = "due", entry.why, entry.due_at
                self._running[key] = entry
            case What.CANCELLED | What.DROPPED:
                self._end_countdown(key, entry.at)
                if row.left_at is None:
                    self.holds.overdue(row, entry.at)
                    row.outcome, row.why, row.deadline = "cancelled", entry.why, None
            case What.EVICTED:
                self._end_countdown(key, entry.at)
                row.outcome, row.left_at = "evicted", entry.at
            case What.GONE if key in self._born:
                self._exists(key, entry.at)
            case _:
                pass

    def _mark(self, row: PodRow, mark: Mark) -> None:
        last = row.marks[-1] if row.marks else None
        twice = last is not None and last.kind in (Kind.BLOCKED, Kind.REFUSED) and mark.kind is Kind.REFUSED
        if last is not None and twice and mark.at - last.at < _SEEN_TWICE_SECONDS:
            row.marks[-1] = Mark(last.at, last.kind, f"{last.text}\n{mark.text}")
        else:
            row.marks.append(mark)

    def _exists(self, key: tuple[str, str], until: float) -> None:
        """Draw the span in which the pod exists, below everything else."""
        self.rows[key].bars.insert(0, Bar(self._born.pop(key), until, Kind.EXISTS, "the pod exists"))

    def _end_countdown(self, key: tuple[str, str], at: float) -> None:
        running = self._running.pop(key, None)
        if running is not None and running.due_at is not None:
            tolerated = running.due_at - running.held_seconds
            self._bar(self.rows[key], running.at, min(tolerated, at), Kind.COUNTDOWN, running.why)
            begin = max(tolerated, running.at)
            self._bar(self.rows[key], begin, min(running.due_at, at), Kind.HELD, running.why)

    def _bar(self, row: PodRow, begin: float, end: float, kind: Kind, text: str) -> None:
        if end > begin:
            row.bars.append(Bar(begin, end, kind, text))


def _homes(scenario: Scenario) -> dict[str, list[tuple[str, float]]]:
    """Return for each name the nodes of its pods and since when each pod exists, in the order of creation."""
    homes: dict[str, list[tuple[str, float]]] = {}
    begin = min([0.0, *(step.at for step in scenario.steps)])

    def bear(body: Mapping[str, Any], at: float) -> None:
        metadata = body["metadata"]
        key = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
        homes.setdefault(key, []).append(((body.get("spec") or {}).get("nodeName") or "", at))

    for pod in scenario.pods:
        bear(pod, begin)
    for step in scenario.steps:
        match step.action:
            case do.CreatePods():
                for body in step.action.bodies:
                    bear(body, step.at)
            case do.RecreatePod():
                known = homes.setdefault(str(step.action.pod), [("", begin)])
                known.append(("" if step.action.unbound else step.action.node or known[-1][0], step.at))
            case do.BindPod():
                known = homes.setdefault(str(step.action.pod), [("", begin)])
                known[-1] = step.action.node, known[-1][1]
            case _:
                pass
    return homes
