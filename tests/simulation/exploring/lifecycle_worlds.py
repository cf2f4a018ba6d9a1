"""Generates faults of kubelets: nodes fall silent and come back, whole zones fail, the node lifecycle controller
restarts.

Kubernetes' node lifecycle controller sets and removes its taints by its own rules, so the document does not say when:
the oracle judges by the taints as they were.
"""

import random

from tests.simulation.exploring.quarters import Quarter, Quarters
from tests.simulation.exploring.restraining import LOST, JsonObject

_GRACE_SECONDS, _PERIOD_SECONDS = 10.0, 2.0
_SECONDS = (0, 2, 5, 20, "ever")


class LifecycleWorlds(Quarters):
    """A quarter of two zones in some documents, with a random generator of its own."""

    def __init__(self, seed: int, settings: JsonObject) -> None:
        super().__init__(seed, settings)
        self._rng = random.Random(f"lifecycle {seed}")

    def lifecycle(self, begin: float, others: list[str] | None) -> Quarter:
        """Generate the quarter; ``others``: all other nodes if they may fail, too."""
        rng = self._rng
        if rng.random() < 0.6:
            return Quarter()
        self._settings["nodeLifecycle"] = {
            "gracePeriod": _GRACE_SECONDS,
            "period": _PERIOD_SECONDS,
            "renewal": _PERIOD_SECONDS,
            "largeZone": rng.choice((2, 50)),
        }
        zones = {zone: [f"{zone}-{number}" for number in range(1, rng.randint(1, 4) + 1)] for zone in ("dark", "dim")}
        nodes: list[JsonObject | str] = [
            {"name": name, "zone": zone, **self._label()} for zone, names in zones.items() for name in names
        ]
        pods = [self._lost(name) for names in zones.values() for name in names]
        steps, at = list[JsonObject](), begin
        for _ in range(rng.randint(1, 4)):
            at = round(at + rng.uniform(0.5, 15.0), 3)
            steps += self._outage(at, zones, others)
        for _ in range(rng.choice((0, 1, 1, 2))):
            # Mostly while taints are there, or wait in the controller's queues.
            restarted_at = round(rng.uniform(begin, at + 3.0 * _GRACE_SECONDS), 3)
            steps.append({"at": restarted_at, "restartLifecycle": {"after": rng.choice((0, 0, 1, 8))}})
        return Quarter(nodes, pods, steps=steps)

    def _label(self) -> JsonObject:
        excluded = {"labels": {"node.kubernetes.io/exclude-disruption": ""}}
        return excluded if self._rng.random() < 0.1 else {}

    def _lost(self, node: str) -> JsonObject:
        tolerations = [f"{key}:NoExecute for {self._rng.choice(_SECONDS)}" for key in LOST]
        return {"name": node, "namespace": "lost", "nodeName": node, "tolerations": tolerations}

    def _outage(self, begin: float, zones: dict[str, list[str]], others: list[str] | None) -> list[JsonObject]:
        """Let some nodes fall silent, and come back one by one, all at once, or not at all."""
        rng = self._rng
        own = [name for names in zones.values() for name in names]
        turn = rng.choice(("one", "one", "zone", "zone", "all", "shutdown", "posted"))
        lasts = rng.choice((1.0, 1.2, 2.0, 4.0)) * _GRACE_SECONDS + rng.uniform(-1.0, 5.0)
        if turn in ("shutdown", "posted"):
            node = rng.choice(own)
            down: JsonObject = {"shutDown": {"node": node, "for": rng.choice((1, 5))}}
            there = down if turn == "shutdown" else {"setReady": f"{node} False"}
            return [{"at": begin, **there}, {"at": round(begin + lasts, 3), "speak": node}]
        silent = {"one": [rng.choice(own)], "zone": zones[rng.choice(list(zones))], "all": [*own, *(others or ())]}[
            turn
        ]
        steps: list[JsonObject] = [{"at": begin, "silence": silent}]
        if rng.random() < 0.3:
            back = [round(begin + lasts + rng.uniform(0.0, 20.0), 3) for _ in silent]
            return steps + [{"at": at, "speak": node} for at, node in zip(back, silent, strict=True)]
        return steps + ([{"at": round(begin + lasts, 3), "speak": silent}] if rng.random() < 0.8 else [])
