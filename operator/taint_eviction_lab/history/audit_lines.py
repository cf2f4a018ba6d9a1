"""The audit log as a record: the attempts, and conclusions from them about the time before.

A line names the taints, the tolerations that counted, and since when. So a taint was on its node from the earliest of
these times on, and the pod had a countdown. No line says when a taint was removed or which pods stayed.
"""

from taint_eviction.core.text import JsonObject
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction_lab.history.happening import Happening

# The journal's name of each outcome of an attempt. Other outcomes are left out: an attempt that was held back changed
# nothing, and one that was cut off may or may not have.
_WORDS = {
    "evicted": "evicted",
    "blocked": "refused",
    "refused": "refused",
    "gone": "pod gone",
    "called-off": "called off",
}


def is_audit_line(told: JsonObject) -> bool:
    """Return whether a line is one of an audit log."""
    return "action" in told and "outcome" in told


def _error(told: JsonObject) -> object:
    return told.get("answer") if told["outcome"] in ("refused", "blocked") else None


class AuditReading:
    """Collects the lines of an audit log."""

    def __init__(self) -> None:
        self._attempts: list[Happening] = []
        self._countdowns: dict[str, Happening] = {}
        self._taints: dict[tuple[str, str], Happening] = {}

    def read(self, told: JsonObject) -> str | None:
        """Add a line; return what is wrong with it, None if nothing is."""
        at = parse_rfc3339(told.get("time"))
        if at is None:
            return "the line has no time"
        if told["action"] != "evict":
            return None
        taints = [taint for taint in Happening(at, "", told).objects("taints") if _is_usable(taint)]
        if not taints:
            return "the line names no taint"
        about = {name: told.get(name) for name in ("pod", "uid", "node", "deadline", "late_seconds", "tries", "taints")}
        about |= {"taint": taints[0]["taint"], "toleration": taints[0].get("toleration"), "error": _error(told)}
        about |= {name: taints[0].get(name) for name in ("ceiling_rule", "ceiling_seconds")}
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
        """Return all happenings; at the same instant, causes come first."""
        return [*self._taints.values(), *self._countdowns.values(), *self._attempts]


def _is_usable(taint: JsonObject) -> bool:
    return isinstance(taint.get("taint"), str) and parse_rfc3339(taint.get("since")) is not None
