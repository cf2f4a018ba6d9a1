"""Generates environments for documents with a breaker: what it must count, and what it must not take for a surge."""

from tests.simulation.exploring.quarters import Quarter, Quarters
from tests.simulation.exploring.restraining import NONSENSE, JsonObject

# The value in the ConfigMap before somebody overwrote it.
_PUT_RIGHT = '{"open": false, "reset": "2029-12-24T12:00:00Z"}'


class BreakerWorlds(Quarters):
    """Environments that follow one another after everything else; each method takes the second of its start."""

    def _slow_lists(self, begin: float) -> Quarter:
        """Taint several nodes whose pods are listed late and out of order, and one whose pods are listed at once."""
        rng, names = self._rng, [f"late-{number}" for number in range(1, 6)]
        at = round(begin + 6.0, 3)
        steps: list[JsonObject] = [{"at": begin, "resetBreaker": {}}]
        for name in names[1:]:
            slow: JsonObject = {"call": ["listPods", "listCachedPods"], "node": name, "for": 35}
            steps.append({"at": begin, "delay": {**slow, **self._slow(2.6, 9.0)}})
        steps += [{"at": at, "taint": f"{name} a=1:NoExecute"} for name in names[1:]]
        steps.append({"at": round(at + rng.choice((0.0, 0.1, 0.5)), 3), "taint": f"{names[0]} a=1:NoExecute"})
        steps += [{"at": round(at + 25.0, 3), "untaint": name} for name in names]
        return Quarter([*names], [{"name": name, "nodeName": name} for name in names], steps=steps)

    def _old_taints(self, begin: float) -> Quarter:
        """Let a manager that set taints long ago write its nodes again while all processes restart."""
        rng, names = self._rng, [f"old-{number}" for number in range(1, 6)]
        at, painted = round(begin + 1.0, 3), {"taints": ["a=1:NoExecute"], "by": "painter"}
        steps: list[JsonObject] = [{"at": -3600.0, "taint": {"node": name, **painted}} for name in names]
        steps.append({"at": begin, "resetBreaker": {}})
        steps += [{"at": at, "writeNode": {"node": name, "by": "painter"}} for name in names]
        for replica in range(1, self._settings["replicas"] + 1):
            after = round(rng.uniform(0.0, 0.5), 3)
            steps.append({"at": at, "restart": {"after": after, "replica": replica}})
        steps += [{"at": round(begin + 25.0, 3), "untaint": name} for name in names]
        pods = [{"name": name, "nodeName": name, "tolerations": ["a for 9000"]} for name in names]
        return Quarter([*names], pods, steps=steps)

    def _partition(self, begin: float) -> Quarter:
        """Lose many nodes at once, of which one is tainted every 10 s; or restart many kubelets, and taint some nodes.

        When the first pod is due, only some of the lost nodes are tainted, and restarted kubelets are ready again.
        """
        rng, names = self._rng, [f"lost-{number}" for number in range(1, 6)]
        at, restarts = round(begin + 6.0, 3), rng.random() < 0.25
        key, status = ("not-ready", "False") if restarts else ("unreachable", "Unknown")
        taint = {"key": f"node.kubernetes.io/{key}", "effect": "NoExecute", "timeAdded": "now"}
        steps: list[JsonObject] = [{"at": begin, "resetBreaker": {}}]
        steps += [{"at": at, "setReady": f"{name} {status}"} for name in names]
        for index, name in enumerate(names[:3]):
            after = 0.1 + index * (1.0 if restarts else 10.0)
            steps.append({"at": round(at + after, 3), "taint": {"node": name, "taints": [taint]}})
        ready_at = round(at + (5.0 if restarts else 30.0), 3)
        steps += [{"at": ready_at, "setReady": f"{name} True"} for name in names]
        steps += [{"at": round(ready_at + 0.5, 3), "untaint": name} for name in names[:3]]
        ready: JsonObject = {"type": "Ready", "status": "True", "lastTransitionTime": -3600}
        tolerations = [f"node.kubernetes.io/{key} for 8"]
        pods = [{"name": name, "nodeName": name, "tolerations": tolerations} for name in names]
        return Quarter([{"name": name, "conditions": [ready]} for name in names], pods, steps=steps)

    def _reset_ahead(self, begin: float) -> Quarter:
        """Let somebody with a fast clock reset the breaker, and then taint many nodes."""
        rng, names = self._rng, [f"ahead-{number}" for number in range(1, 6)]
        at = round(begin + 8.0, 3)
        steps: list[JsonObject] = [{"at": begin, "resetBreaker": {"ahead": rng.choice((600, 3600))}}]
        steps += [{"at": at, "taint": f"{name} a=1:NoExecute"} for name in names]
        steps += [{"at": round(at + 20.0, 3), "untaint": name} for name in names]
        return Quarter([*names], [{"name": name, "nodeName": name} for name in names], steps=steps)

    def _nonsense_put_right(self, begin: float) -> Quarter:
        """Let somebody overwrite the breaker's key by hand and then correct it; after that a pod is due."""
        rng, node = self._rng, "righted-1"
        wrong = {"key": "breaker", "value": rng.choice(NONSENSE)}
        steps: list[JsonObject] = [
            {"at": begin, "resetBreaker": {}},
            {"at": round(begin + 4.0, 3), "scribble": wrong},
            {"at": round(begin + 4.0 + rng.uniform(3.0, 8.0), 3), "scribble": {**wrong, "value": _PUT_RIGHT}},
            {"at": round(begin + 15.0, 3), "taint": f"{node} a=1:NoExecute"},
        ]
        return Quarter([node], [{"name": "righted-1", "nodeName": node}], steps=steps)
