"""Generates outages: lifecycle taints that are removed and set again, in a quarter of their own.

After a restart of kube-controller-manager the countdown goes on. If the node was ready in between, or no other node
was ready throughout, the countdown restarts. No other node of a document has a condition Ready, so none is a witness.
"""

from tests.simulation.exploring.quarters import Quarter, Quarters
from tests.simulation.exploring.restraining import JsonObject

_KEYS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")


class OutageWorlds(Quarters):
    """Environments in which a node is down; each method takes the second of its earliest start."""

    def _outage(self, begin: float) -> Quarter:
        """Remove a taint while a tolerance runs, and set it again before or after the tolerance would end."""
        rng, dark, bright = self._rng, "dark-1", "bright-1"
        key, seconds = rng.choice(_KEYS), rng.choice((12, 20))
        removed_at = begin + rng.uniform(2.0, seconds - 2.0)
        back_at = removed_at + rng.choice((0.2, 0.2, 3.0, seconds))
        meanwhile = rng.choice(("down", "down", "ready", "all dark", "swapped"))
        taint: JsonObject = {"node": dark, "taints": [{"key": key, "effect": "NoExecute", "timeAdded": "now"}]}
        taint["by"] = "lifecycle"
        steps: list[JsonObject] = [
            {"at": begin, "taint": taint},
            {"at": removed_at, "untaint": f"{dark} {key}"},
            {"at": back_at, "taint": taint},
        ]
        between = removed_at + 0.4 * (back_at - removed_at)
        if meanwhile == "ready":
            ready_at = rng.choice((removed_at - 0.1, removed_at + 0.05))
            steps += [{"at": ready_at, "setReady": f"{dark} True"}, {"at": between, "setReady": f"{dark} Unknown"}]
        elif meanwhile == "all dark":
            dark_at = rng.choice((removed_at - 0.5, removed_at + 0.05))
            steps += [{"at": dark_at, "setReady": f"{bright} Unknown"}, {"at": between, "setReady": f"{bright} True"}]
        elif meanwhile == "swapped":
            steps[-1] = {"at": back_at, "taint": {**taint, "taints": [{**taint["taints"][0], "key": _other(key)}]}}
        nodes: list[JsonObject | str] = [_node(dark, "Unknown"), _node(bright, "True")]
        tolerations = [f"{each} for {seconds}" for each in _KEYS]
        pods: list[JsonObject] = [{"name": dark, "nodeName": dark, "tolerations": tolerations}]
        return Quarter(nodes, pods, steps=[{**step, "at": round(float(step["at"]), 3)} for step in steps])


def _other(key: str) -> str:
    return next(each for each in _KEYS if each != key)


def _node(name: str, status: str) -> JsonObject:
    return {"name": name, "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "-1h"}]}
