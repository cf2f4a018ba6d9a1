"""Generates environments with calls and watches that are slow, or calls that hang, and evictions still punctual."""

from tests.simulation.exploring.quarters import Quarter, Quarters
from tests.simulation.exploring.restraining import JsonObject

# Longer than every run's phase with faults, whose end ends these delays.
_TO_THE_END = 600
# An environment that must come after the others begins this much later.
_LATER_SECONDS = 45.0


class SlowWorlds(Quarters):
    """Environments for documents in which nothing holds evictions back; each method takes its earliest start."""

    def _behind(self, begin: float) -> Quarter:
        """Let the watch of nodes lag behind reads and lists, while the manager of a taint writes the node repeatedly.

        This comes late: to a list ahead of the watch, a taint with a wrong date starts when the watch was last heard.
        On another node the taint is removed and set again, which the watch has not delivered when the tolerance ends.
        """
        rng, written, again = self._rng, "behind-1", "again-1"
        seconds, begin = rng.choice((15, 25)), round(begin + _LATER_SECONDS, 3)
        steps: list[JsonObject] = []
        if rng.random() < 0.85:
            steps.append(
                {"at": round(begin - 1.0, 3), "lag": {"watch": "nodes", "by": round(rng.uniform(2.3, 2.6), 3)}}
            )
        steps.append({"at": begin, "taint": {"node": written, "taints": ["a=1:NoExecute"], "by": "painter"}})
        at = begin
        while at < begin + seconds + 20.0:
            at = round(at + rng.uniform(0.4, 1.6), 3)
            steps.append({"at": at, "writeNode": {"node": written, "by": "painter"}})
        steps += [
            {"at": begin, "taint": f"{again} a=1:NoExecute"},
            {"at": round(begin + 10.3, 3), "untaint": again},
            {"at": round(begin + 11.35, 3), "taint": f"{again} a=1:NoExecute"},
        ]
        pods: list[JsonObject] = [
            {"name": written, "nodeName": written, "tolerations": [f"a for {seconds}"]},
            {"name": again, "nodeName": again, "tolerations": ["a for 10"]},
        ]
        return Quarter([written, again], pods, steps=steps)

    def _dated_behind(self, begin: float) -> Quarter:
        """Set a taint that is dated by a clock that is behind, just after the node was seen without the taint."""
        rng, node = self._rng, "dated-1"
        taint: JsonObject = {"key": "a", "effect": "NoExecute", "timeAdded": rng.choice(("-2h", "-60s"))}
        steps: list[JsonObject] = [
            {"at": round(begin - 0.006, 3), "writeNode": node},
            {"at": begin, "taint": {"node": node, "taints": [taint], "by": "lifecycle"}},
        ]
        tolerations = [f"a for {rng.choice((5, 30))}"]
        return Quarter([node], [{"name": "dated-1", "nodeName": node, "tolerations": tolerations}], steps=steps)

    def _crowd(self, begin: float) -> Quarter:
        """Let more deletions hang than there are workers, while other pods become due."""
        rng, crowd, others = self._rng, "crowd-1", ["bystander-1", "bystander-2"]
        number = self._settings["workers"] + 2
        pods: list[JsonObject] = [{"name": f"crowd-{{1..{number}}}", "nodeName": crowd}]
        pods += [{"name": other, "nodeName": other} for other in others]
        hang: JsonObject = rng.choice(
            (
                {"call": "delete", "pod": "crowd-*"},
                {"call": "delete", "pod": "crowd-*"},
                {"call": ["mark", "delete"], "pod": "crowd-*"},
                {"call": "readNode", "node": crowd},
            )
        )
        steps: list[JsonObject] = [
            {"at": begin, "hang": {**hang, "for": 25, "tookEffect": rng.random() < 0.5}},
            {"at": begin, "taint": f"{crowd} a=1:NoExecute"},
            {"at": round(begin + rng.uniform(2.2, 3.0), 3), "taint": f"{others[0]} a=1:NoExecute"},
            {"at": round(begin + rng.uniform(5.0, 22.0), 3), "taint": f"{others[1]} a=1:NoExecute"},
        ]
        return Quarter([crowd, *others], pods, steps=steps)

    def _slow_lease(self, _: float) -> Quarter:
        """Let every call about the Lease take seconds, but no longer than leaders of client-go survive."""
        slow: JsonObject = {"call": ["readLease", "writeLease"], "for": _TO_THE_END, **self._slow(2.6, 4.4)}
        return Quarter(steps=[{"at": 0.0, "delay": slow}])

    def _slow_control_state(self, _: float) -> Quarter:
        """Let every read of the control state take longer than the interval between reads."""
        return Quarter(
            steps=[{"at": 0.0, "delay": {"call": "readControlState", "for": _TO_THE_END, **self._slow(2.1, 4.4)}}]
        )

    def _slow_connections(self, begin: float) -> Quarter:
        """Let each connection for a condition or DELETE of some pods take longer than a read of their node serves."""
        most = min(4.5, self._settings["callTimeout"] - 0.1)
        connect = round(self._rng.uniform(min(3.1, most), most), 3)
        slow: JsonObject = {"call": ["mark", "delete"], "pod": "distant-*", "for": _TO_THE_END, "connect": connect}
        steps: list[JsonObject] = [{"at": 0.0, "delay": slow}, {"at": begin, "taint": "distant-1 a=1:NoExecute"}]
        return Quarter(["distant-1"], [{"name": "distant-1", "nodeName": "distant-1"}], steps=steps)

    def _slow_reads(self, begin: float) -> Quarter:
        """Let every read of a node take so long that it hardly serves a call."""
        node = "far-1"
        slow: JsonObject = {"call": "readNode", "node": node, "for": _TO_THE_END, **self._slow(1.5, 2.6)}
        steps: list[JsonObject] = [{"at": 0.0, "delay": slow}, {"at": begin, "taint": f"{node} a=1:NoExecute"}]
        return Quarter([node], [{"name": "far-1", "nodeName": node}], steps=steps)
