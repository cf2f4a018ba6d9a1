"""The circumstances of a record as settings and steps of a scenario: above all, what held evictions. A journal has
settings, restarts and pauses as they were. For a failed attempt it has the error, but not which call failed: the
scenario refuses the call that ends the pod, for as long as attempts failed. Records lack budgets: evictions that they
blocked are refused, too. An open breaker becomes a pause of all evictions. ``notes`` names each of these substitutes.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from taint_eviction.core.control_state import EVERYTHING, PauseScope
from taint_eviction.core.text import JsonObject
from taint_eviction.settings import RECORDED
from taint_eviction_lab.history.happening import Happening

# The longest time until the controller of a scenario has read a pause after its step.
_POLL_SECONDS = 2.0
# Objects that are recorded this soon after the beginning existed before it.
_AT_THE_BEGINNING_SECONDS = 3.0
# How long a controller needs after its start to learn the time and to list everything before it records anything; its
# first records may also be dated this much later than the following ones, until its clock settles.
_LOOKING_AROUND_SECONDS = 1.5
# How long before the record of its end an attempt may have begun.
_ATTEMPT_SECONDS = 0.5
_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.2, 30.0
_STATUS = re.compile(r"\(HTTP ([45][0-9]{2})\)$")
# A scope beside those of pauses, and its words.
_BREAKER = "the circuit breaker"


@dataclass(slots=True)
class _Refusals:
    """Successive attempts on one pod that failed."""

    pod: str
    first: float
    last: float
    count: int
    error: str


@dataclass(frozen=True, slots=True)
class _Hold:
    scope: PauseScope
    since: float
    until: float | None


class Circumstances:
    """Turns happenings into steps. ``slack``: by how many seconds the record's times may be wrong."""

    def __init__(self, slack: float) -> None:
        # By node: its labels, and the pauses by labels that have ended for it alone, since it lost them.
        self._labels: dict[str, Mapping[str, str]] = {}
        self._lost: dict[str, list[_Hold]] = {}
        self.steps: list[JsonObject] = []
        self._settings: JsonObject = {}
        self._has_rules = False
        self._last_at: float | None = None
        self._slack = slack
        self._refusals: dict[str, _Refusals] = {}
        self._holds: dict[PauseScope | str, _Hold] = {}
        self._ended: list[_Hold] = []
        self._last_evicted = 0.0
        self._restarted = False
        self._of_breaker = False
        self._refused = False
        self._blocked = False
        self._late = 0

    def report(self, happening: Happening, at: float, nodes: Collection[str]) -> None:
        """Add what happened at a second of the scenario, which has these ``nodes`` by then."""
        match happening.what:
            case "journal":
                self._start(happening, at)
            case "refused":
                self._refuse(happening, at)
            case "paused" if happening.scope is not None:
                self._pause(happening.scope, happening.text("reason"), at, nodes)
            case "resumed" if happening.scope is not None:
                self._resume(happening.scope, at)
            case "breaker_opened":
                self._of_breaker = True
                self._pause(_BREAKER, happening.text("cause"), at, nodes)
            case "breaker_closed":
                self._resume(_BREAKER, at)
            case "evicted" | "cancelled" | "called off" | "pod gone":
                self._settle(happening.text("uid"))
            case _:
                pass
        self._last_at = at

    # The controller

    def _start(self, happening: Happening, at: float) -> None:
        """Add the beginning of a journal: the controller starts; or restarts, if there were lines before it."""
        if isinstance(told := happening.fields.get("settings"), dict):
            keys = [row.keyword for row in RECORDED]
            self._settings = {key: told[key] for key in keys if isinstance(told.get(key), str | int | float)}
        self._has_rules = self._has_rules or bool(happening.number("rules"))
        if self._last_at is not None and not happening.fields.get("continues"):
            down_at = min(at, self._last_at + 0.05)
            after = max(0.0, at - _LOOKING_AROUND_SECONDS - down_at)
            self.steps.append({"at": round(down_at, 3), "restart": {"after": round(after, 3)}})
            self._restarted = True

    def settings(self) -> JsonObject:
        """Return the settings; recorded pods already have the tolerations that admission adds."""
        mode = {"evictionMode": "evict"} if self._blocked else {}
        return {"defaultTolerationSeconds": None, **mode, **self._settings}

    # Attempts that failed

    def _refuse(self, happening: Happening, at: float) -> None:
        uid, error = happening.text("uid"), happening.text("error")
        self._blocked = self._blocked or happening.text("block") != ""
        self._refused = True
        known = self._refusals.get(uid)
        if known is None:
            # If the first attempt was late, the scenario refuses attempts from the deadline on.
            due = at - (happening.number("late_seconds") or 0.0)
            self._refusals[uid] = _Refusals(happening.text("pod"), due, at, 1, error)
        else:
            known.last, known.count = at, known.count + 1

    def _settle(self, uid: str) -> None:
        refusals = self._refusals.pop(uid, None)
        if refusals is not None:
            self._add(refusals, {"for": round(refusals.last - self._begin(refusals) + 0.05, 3)})

    def _add(self, refusals: _Refusals, span: JsonObject) -> None:
        found = _STATUS.search(refusals.error)
        status = {"status": int(found[1]), "message": refusals.error[: found.start()].strip()} if found else {}
        refuse = {"call": ["delete", "evict"], "pod": refusals.pod, **status, **span}
        self.steps.append({"at": self._begin(refusals), "refuse": refuse})

    def _begin(self, refusals: _Refusals) -> float:
        return max(0.0, round(refusals.first - _ATTEMPT_SECONDS - self._slack, 3))

    # Pauses

    def _pause(self, scope: PauseScope | str, reason: str, at: float, nodes: Collection[str]) -> None:
        what = scope if isinstance(scope, PauseScope) else EVERYTHING
        if scope in self._holds or (what.kind == "node" and what.name not in nodes):
            return
        self._holds[scope] = _Hold(what, at, None)
        if at > _AT_THE_BEGINNING_SECONDS:
            # As early as possible, so that the controller has read the pause by then; but not before the last eviction.
            ordered_at = max(at - _POLL_SECONDS, min(self._last_evicted + 0.05, at))
            why = ": ".join(filter(None, (_BREAKER if scope == _BREAKER else "", reason)))
            pause = _selection(what) | ({"reason": why} if why else {})
            self.steps.append({"at": round(ordered_at, 3), "pause": pause})

    def _resume(self, scope: PauseScope | str, at: float) -> None:
        hold = self._holds.pop(scope, None)
        if hold is not None:
            self._ended.append(_Hold(hold.scope, hold.since, at))
            if hold.scope not in [other.scope for other in self._holds.values()]:
                self.steps.append({"at": at, "resume": _selection(hold.scope)})

    def label(self, node: str, labels: Mapping[str, str], at: float) -> None:
        """Note the labels that a node has from then on."""
        before, self._labels[node] = self._labels.get(node, {}), labels
        self._lost.setdefault(node, []).extend(
            replace(hold, until=at)
            for hold in self._holds.values()
            if _selects(hold, before) and not _selects(hold, labels)
        )

    def control_state(self) -> JsonObject:
        """Return the pauses that were in force from the beginning, {} if there were none."""
        held = [hold for hold in (*self._ended, *self._holds.values()) if hold.since <= _AT_THE_BEGINNING_SECONDS]
        control_state: JsonObject = {"pause": True} if any(hold.scope == EVERYTHING for hold in held) else {}
        for kind, plural in (("node", "nodes"), ("namespace", "namespaces"), ("selector", "selectors")):
            if names := sorted({hold.scope.name for hold in held if hold.scope.kind == kind}):
                control_state[plural] = names
        return control_state

    # What to expect

    def evicted(self, happening: Happening, at: float, due: float, within: float) -> JsonObject:
        """Return when to expect an eviction that was due at ``due`` and came at ``at``; call this before ``report``."""
        begin, retry = due, 0.0
        refusals = self._refusals.get(happening.text("uid"))
        if refusals is not None:
            begin = max(begin, refusals.last)
            retry = min(_MAX_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(refusals.count, 10))
        for hold in self._concerning(happening.text("pod"), happening.text("node")):
            if hold.until is not None and due - _POLL_SECONDS <= hold.until <= at and hold.since <= due + _POLL_SECONDS:
                begin, retry = max(begin, hold.until), max(retry, _POLL_SECONDS)
        self._last_evicted = at
        self._late += at - begin > within + retry
        begin = max(0.0, round(begin - self._slack, 3))
        return {"at": begin, "within": round(max(within, at - begin if begin > due else 0.0) + retry, 3)}

    def _concerning(self, pod: str, node: str) -> list[_Hold]:
        scopes = EVERYTHING, PauseScope("node", node), PauseScope("namespace", pod.partition("/")[0])
        labels = self._labels.get(node, {})
        ended = [hold for hold in self._ended if hold.scope in scopes or _selects(hold, labels)]
        return ended + self._lost.get(node, [])

    # At the end

    def finish(self) -> None:
        """Refuse indefinitely the calls that were still refused at the end."""
        for refusals in self._refusals.values():
            self._add(refusals, {})
        self._refusals.clear()

    def notes(self) -> list[str]:
        """Return where the scenario differs from what happened, one sentence each."""
        found = ["The rules of the policy are missing."] if self._has_rules else []
        if self._restarted:
            found.append(
                "The record does not say when the controller ended: here it is after the last line before its restart."
            )
        if self._refused:
            found.append("Where attempts failed, the call that ends the pod is refused for as long as they did.")
        if self._blocked:
            found.append("Budgets are missing: what they blocked is refused, too.")
        if self._of_breaker:
            found.append("Where the circuit breaker was open, evictions are paused.")
        if self._late:
            late = "1 eviction was" if self._late == 1 else f"{self._late} evictions were"
            found.append(f"The record does not say why {late} late: here that counts as in time.")
        return found


def _selects(hold: _Hold, labels: Mapping[str, str]) -> bool:
    return hold.scope.kind == "selector" and hold.scope.selects(labels)


def _selection(scope: PauseScope) -> JsonObject:
    """Write a scope as the fields of a scenario's pause; {} means all evictions."""
    return {} if scope == EVERYTHING else {scope.kind: scope.name}
