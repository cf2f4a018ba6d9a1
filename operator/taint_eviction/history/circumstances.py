"""Under what circumstances pods left, as settings and steps of a scenario; above all, what kept them from it.

Settings, restarts and pauses stand in a journal as they were. Of calls that failed it has how an attempt ended, but not
which of its calls that was: the one that ends a pod is refused, for as long as that went on. Budgets are in no record:
what they blocked is refused, too. The breaker's hold is a pause of all. Each of these stand-ins is named (``notes``).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from taint_eviction.history.happening import Happening

# How long after a step the controller of a scenario has read what was ordered, at most.
_POLL_SECONDS = 2.0
# What is told so soon after the beginning was there before it.
_AT_THE_BEGINNING_SECONDS = 3.0
# How long a controller lists everything before it has something to write down.
_LOOKING_AROUND_SECONDS = 0.6
# How long before its end is told an attempt may have begun.
_ATTEMPT_SECONDS = 0.5
_FIRST_BACKOFF_SECONDS, _MOST_BACKOFF_SECONDS = 0.2, 30.0
_STATUS = re.compile(r"\(HTTP ([45][0-9]{2})\)$")
# What of a journal's settings a scenario takes.
_SETTINGS = (
    *("evictFinished", "defaultNotReadySeconds", "defaultUnreachableSeconds", "honourHolds"),
    *("evictionMode", "evictTimeout", "workers", "retryFirst", "retryMost"),
    *("evictionsPerSecond", "evictionsPerSecondPerNode", "evictionsPerSecondPerNamespace"),
    *("evictionsBurst", "evictionsBurstPerNode", "evictionsBurstPerNamespace"),
)
_ALL, _BREAKER = "all evictions", "the circuit breaker"
_SCOPES = {"evictions from node ": "node", "evictions in namespace ": "namespace"}

JsonObject = dict[str, Any]


@dataclass(slots=True)
class _Refusals:
    """Attempts on one pod that failed, one after the other."""

    pod: str
    first: float
    last: float
    count: int
    error: str


@dataclass(frozen=True, slots=True)
class _Hold:
    scope: JsonObject
    since: float
    until: float | None


class Circumstances:
    """Takes in what happened, and gives the steps. ``slack`` is how many seconds the record may be off."""

    def __init__(self, slack: float) -> None:
        self.steps: list[JsonObject] = []
        self._settings: JsonObject = {}
        self._has_rules = False
        self._last_at: float | None = None
        self._slack = slack
        self._refusals: dict[str, _Refusals] = {}
        self._holds: dict[str, _Hold] = {}
        self._ended: list[_Hold] = []
        self._last_evicted = 0.0
        self._restarted = False
        self._of_breaker = False
        self._refused = False
        self._blocked = False
        self._late = 0

    def tell(self, happening: Happening, at: float, nodes: Collection[str]) -> None:
        """Take in what happened at a second of the scenario, which has these ``nodes`` by then."""
        match happening.what:
            case "journal":
                self._start(happening, at)
            case "refused":
                self._refuse(happening, at)
            case "paused":
                self._pause(happening.text("scope"), happening.text("reason"), at, nodes)
            case "resumed":
                self._resume(happening.text("scope"), at)
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
        """Take in how a journal begins: the controller has been started, again where something stands before it."""
        if isinstance(told := happening.fields.get("settings"), dict):
            self._settings = {name: told[name] for name in _SETTINGS if isinstance(told.get(name), str | int | float)}
        self._has_rules = self._has_rules or bool(happening.number("rules"))
        if self._last_at is not None and not happening.fields.get("continues"):
            down_at = min(at, self._last_at + 0.05)
            after = max(0.0, at - _LOOKING_AROUND_SECONDS - down_at)
            self.steps.append({"at": round(down_at, 3), "restart": {"after": round(after, 3)}})
            self._restarted = True

    def settings(self) -> JsonObject:
        """Return the settings; pods have the tolerations of admission already."""
        mode = {"evictionMode": "evict"} if self._blocked else {}
        return {"defaultTolerationSeconds": None, **mode, **self._settings}

    # Attempts that failed

    def _refuse(self, happening: Happening, at: float) -> None:
        uid, error = happening.text("uid"), happening.text("error")
        self._blocked = self._blocked or happening.text("block") != ""
        self._refused = True
        known = self._refusals.get(uid)
        if known is None:
            # Where the first attempt was late, for whatever reason, one that is in time is to be refused as well.
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

    def _pause(self, scope: str, reason: str, at: float, nodes: Collection[str]) -> None:
        what = _read_scope(scope)
        if what is None or scope in self._holds or ("node" in what and what["node"] not in nodes):
            return
        self._holds[scope] = _Hold(what, at, None)
        if at > _AT_THE_BEGINNING_SECONDS:
            # The sooner it is ordered the surer it is known by then; but not before what was done last.
            ordered_at = max(at - _POLL_SECONDS, min(self._last_evicted + 0.05, at))
            why = {"reason": ": ".join(filter(None, (_BREAKER if scope == _BREAKER else "", reason)))}
            self.steps.append({"at": round(ordered_at, 3), "pause": {**what, **(why if why["reason"] else {})}})

    def _resume(self, scope: str, at: float) -> None:
        hold = self._holds.pop(scope, None)
        if hold is not None:
            self._ended.append(_Hold(hold.scope, hold.since, at))
            if hold.scope not in [other.scope for other in self._holds.values()]:
                self.steps.append({"at": at, "resume": hold.scope})

    def orders(self) -> JsonObject:
        """Return the pauses that were in force from the beginning, {} if none was."""
        held = [hold for hold in (*self._ended, *self._holds.values()) if hold.since <= _AT_THE_BEGINNING_SECONDS]
        orders: JsonObject = {"pause": True} if any(not hold.scope for hold in held) else {}
        for kind, plural in (("node", "nodes"), ("namespace", "namespaces")):
            if names := sorted({hold.scope[kind] for hold in held if kind in hold.scope}):
                orders[plural] = names
        return orders

    # What to expect

    def evicted(self, happening: Happening, at: float, due: float, within: float) -> JsonObject:
        """Say when an eviction is expected that was due at ``due`` and came at ``at``; told before it is settled."""
        begin, retry = due, 0.0
        refusals = self._refusals.get(happening.text("uid"))
        if refusals is not None:
            begin = max(begin, refusals.last)
            retry = min(_MOST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(refusals.count, 10))
        for hold in self._concerning(happening.text("pod"), happening.text("node")):
            if hold.until is not None and due - _POLL_SECONDS <= hold.until <= at and hold.since <= due + _POLL_SECONDS:
                begin, retry = max(begin, hold.until), max(retry, _POLL_SECONDS)
        self._last_evicted = at
        self._late += at - begin > within + retry
        begin = max(0.0, round(begin - self._slack, 3))
        return {"at": begin, "within": round(max(within, at - begin if begin > due else 0.0) + retry, 3)}

    def _concerning(self, pod: str, node: str) -> list[_Hold]:
        scopes: list[JsonObject] = [{}, {"node": node}, {"namespace": pod.partition("/")[0]}]
        return [hold for hold in self._ended if hold.scope in scopes]

    # At the end

    def finish(self) -> None:
        """Let what was still refused at the end be refused for ever."""
        for refusals in self._refusals.values():
            self._add(refusals, {})
        self._refusals.clear()

    def notes(self) -> list[str]:
        """Say where the scenario is not what happened, a sentence each."""
        found = ["The rules of the policy are missing."] if self._has_rules else []
        if self._restarted:
            found.append(
                "When the controller ended is not in it: it is killed after the last line before it came back."
            )
        if self._refused:
            found.append("Where attempts failed, the call that ends a pod is refused for as long as they did.")
        if self._blocked:
            found.append("Budgets are missing: what they blocked is refused, too.")
        if self._of_breaker:
            found.append("What the circuit breaker held is held by a pause.")
        if self._late:
            late = "1 eviction was" if self._late == 1 else f"{self._late} evictions were"
            found.append(f"Why {late} late is not in it, so here that is in time.")
        return found


def _read_scope(text: str) -> JsonObject | None:
    """Read whose evictions are meant; None where nobody can tell."""
    if text in (_ALL, _BREAKER):
        return {}
    found = [(kind, text.removeprefix(prefix)) for prefix, kind in _SCOPES.items() if text.startswith(prefix)]
    return {found[0][0]: found[0][1]} if found and found[0][1] else None
