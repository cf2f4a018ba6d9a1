"""The audit log as a record: attempts as they are told, and before them what each of them lets one conclude.

A line names the taints with the tolerations that counted and since when. So a taint is on a node from the earliest of
these times on, and a pod has a countdown; when a taint went, and who stayed, no line says.
"""

from typing import Any

from taint_eviction.adapters.kubernetes_times import parse_rfc3339
from taint_eviction.history.happening import Happening

# How attempts to evict are called elsewhere. One that was held back changed nothing, one that was cut off may
# have or not, and a take-back is no eviction.
_WORDS = {
    "evicted": "evicted",
    "blocked": "refused",
    "refused": "refused",
    "gone": "pod gone",
    "called-off": "called off",
}

JsonObject = dict[str, Any]


def is_audit_line(told: JsonObject) -> bool:
    """Tell an audit log's line from others."""
    return "action" in told and "outcome" in told


def _error(told: JsonObject) -> object:
    return told.get("answer") if told["outcome"] in ("refused", "blocked") else None


class AuditReading:
    """Collects lines."""

    def __init__(self) -> None:
        self._attempts: list[Happening] = []
        self._countdowns: dict[str, Happening] = {}
        self._taints: dict[tuple[str, str], Happening] = {}

    def read(self, told: JsonObject) -> str | None:
        """Take in a line; return what is wrong with it, None if nothing is."""
        at = parse_rfc3339(told.get("time"))
        if at is None:
            return "the line does not tell its time"
        if told["action"] != "evict":
            return None
        taints = [taint for taint in Happening(at, "", told).objects("taints") if _is_usable(taint)]
        if not taints:
            return "the line names no taint"
        about = {name: told.get(name) for name in ("pod", "uid", "node", "deadline", "late_seconds", "tries", "taints")}
        about |= {"taint": taints[0]["taint"], "toleration": taints[0].get("toleration"), "error": _error(told)}
        self._conclude(about, taints)
        if (what := _WORDS.get(str(told["outcome"]))) is not None:
            self._attempts.append(Happening(at, what, about))
        return None

    def _conclude(self, about: JsonObject, taints: list[JsonObject]) -> None:
        for taint in taints:
            since, key = parse_rfc3339(taint["since"]) or 0.0, (str(about["node"]), str(taint["taint"]))
            if key not in self._taints or since < self._taints[key].at:
                self._taints[key] = Happening(since, "taint", {"node": key[0], "taint": key[1]})
        since = parse_rfc3339(taints[0]["since"]) or 0.0
        self._countdowns.setdefault(str(about["uid"]), Happening(since, "scheduled", about))

    def happenings(self) -> list[Happening]:
        """Return all there is to tell; of the same instant, what explains the rest comes first."""
        return [*self._taints.values(), *self._countdowns.values(), *self._attempts]


def _is_usable(taint: JsonObject) -> bool:
    return isinstance(taint.get("taint"), str) and parse_rfc3339(taint.get("since")) is not None
