"""Generates environments that are slow, late, or have unusual rules, each in a quarter of its own.

In these environments calls are slow or hang, watches lag, or people hold evictions back and release them again.
"""

from collections.abc import Callable

from tests.simulation.exploring.breaker_worlds import BreakerWorlds
from tests.simulation.exploring.outage_worlds import OutageWorlds
from tests.simulation.exploring.quarters import Quarter
from tests.simulation.exploring.restraining import JsonObject
from tests.simulation.exploring.slow_worlds import SlowWorlds

# This long after the last restart there is a leader again, even with slow calls.
_CALM_SECONDS = 45.0


class Worlds(SlowWorlds, BreakerWorlds, OutageWorlds):
    """The environments of one document; a ``mild`` document gets those in which evictions must still be punctual.

    ``settings``: the document's settings; ``kinds``: what else holds evictions back in the document.
    """

    def __init__(self, seed: int, *, mild: bool, kinds: frozenset[str], settings: JsonObject) -> None:
        super().__init__(seed, settings)
        self._mild = mild
        self._kinds = kinds

    def quarter(self, last: float) -> Quarter:
        """Generate the environments; ``last``: nothing else happens after that second."""
        rng, quarter = self._rng, Quarter()
        for world in self._worlds():
            if rng.random() < 0.75:
                quarter += world(round(rng.uniform(1.0, 40.0) + (last + _CALM_SECONDS if self._mild else 0.0), 3))
        if "breaker" in self._kinds and not self._mild:
            for turn in (self._slow_lists, self._old_taints, self._reset_ahead, self._partition):
                if rng.random() < 0.95:
                    quarter += turn(last + 3.0)
                    last = max(float(step["at"]) for step in quarter.steps)
        return quarter

    def afterthought(self, last: float) -> Quarter:
        """Generate what happens after everything that held evictions back has ended."""
        if "breaker" in self._kinds and not self._mild and self._rng.random() < 0.85:
            return self._nonsense_put_right(last + 3.0)
        return Quarter()

    def _worlds(self) -> list[Callable[[float], Quarter]]:
        if self._mild:
            slow = [self._slow_lease, self._slow_control_state, self._slow_reads, self._slow_connections]
            return [self._dated_behind, self._behind, self._crowd, self._misdated, *slow, self._outage]
        # One more tainted node may be a surge.
        if "breaker" in self._kinds:
            return []
        deletes = [] if self._kinds & {"modes", "rules"} else [self._condition_refused]
        return [
            self._two_rules,
            self._held_and_let_go,
            self._read_that_travels_long,
            self._misdated,
            *deletes,
            self._outage,
        ]

    # Environments in which no pod may be evicted, or a pod must be at the end

    def _read_that_travels_long(self, begin: float) -> Quarter:
        """Let the answer of a read that shows a taint travel until the node is clean, while the watch lags.

        On another node one of two taints is removed before the deadline, while the watch lags.
        """
        rng, node, parted, seconds = self._rng, "afar-1", "parted-1", self._rng.choice((0, 5))
        back = round(min(rng.uniform(3.2, 9.0), self._settings["callTimeout"] - 0.05), 3)
        due_at = begin + seconds
        travelling: JsonObject = {"call": "readNode", "node": node, "times": 1, "for": 30, "back": back}
        steps: list[JsonObject] = [
            {"at": begin, "taint": f"{node} a=1:NoExecute"},
            {"at": begin, "delay": travelling},
            {"at": begin, "delay": {"call": "mark", "pod": node, "for": 30, "back": 0.6}},
            {"at": round(due_at + 0.1, 3), "lag": {"watch": "nodes", "by": 12}},
            {"at": round(due_at + rng.uniform(0.2, 1.0), 3), "untaint": node},
            {"at": round(due_at + 15.0, 3), "lag": {"watch": "nodes", "by": 0}},
            {"at": begin, "taint": {"node": parted, "taints": ["a=1:NoExecute", "b=1:NoExecute"]}},
            {"at": round(due_at + 2.7, 3), "untaint": f"{parted} b"},
        ]
        pods: list[JsonObject] = [
            {"name": node, "nodeName": node, "tolerations": [f"a for {seconds}"]},
            {"name": parted, "nodeName": parted, "tolerations": ["a indefinitely", f"b for {seconds + 3}"]},
        ]
        return Quarter([node, parted], pods, steps=steps)

    def _two_rules(self, begin: float) -> Quarter:
        """Let a taint be due whose rule keeps the pod, and then another taint whose rule does not."""
        rng, node = self._rng, "twofold-1"
        first = rng.choice(("paused", "asked"))
        pods: list[JsonObject] = [
            {"name": f"twofold-{number}", "namespace": "twofold", "nodeName": node, "tolerations": tolerations}
            for number, tolerations in enumerate(([], [f"{first} for 5", "gone for 8"]))
        ]
        rules: list[JsonObject] = [
            {"name": "paused", "match": {"taintKeys": ["paused"]}, "pause": True},
            {"name": "asked", "match": {"taintKeys": ["asked"]}, "mode": "evict"},
            {"name": "gone", "match": {"taintKeys": ["gone"]}, "mode": "delete"},
        ]
        later = round(begin + rng.choice((0.0, 1.0, 12.0)), 3)
        steps: list[JsonObject] = [
            {"at": begin, "taint": f"{node} {first}=1:NoExecute"},
            {"at": later, "taint": f"{node} gone=1:NoExecute"},
        ]
        return Quarter([node], pods, [_no_fewer("twofold")], rules, steps)

    def _held_and_let_go(self, begin: float) -> Quarter:
        """Pause pods that a budget refuses for longer than the budget's patience, and then resume them."""
        rng, node = self._rng, "held-1"
        pods = [{"name": f"held-{number}", "namespace": "held", "nodeName": node} for number in range(3)]
        rule: JsonObject = {"name": "held", "match": {"taintKeys": ["held"]}, "mode": "evict-then-delete"}
        rule["evictTimeout"] = rng.choice((6, 8))
        scope: JsonObject = rng.choice(({"node": node}, {"node": node}, {"namespace": "held"}, {}))
        # Before or after the first refusal.
        paused_at = round(begin + rng.choice((-3.0, 1.5, 1.5)), 3)
        steps: list[JsonObject] = [
            {"at": max(0.0, paused_at), "pause": scope},
            {"at": begin, "taint": f"{node} held=1:NoExecute"},
            {"at": round(begin + rng.uniform(12.0, 20.0), 3), "resume": scope},
        ]
        return Quarter([node], pods, [_no_fewer("held")], [rule], steps)

    def _condition_refused(self, begin: float) -> Quarter:
        """Let the patch of the condition fail up to three times for a temporary reason."""
        rng, node = self._rng, "unmarked-1"
        pods: list[JsonObject] = [{"name": f"unmarked-{number}", "nodeName": node} for number in range(3)]
        passing: JsonObject = {"call": "mark", "pod": "unmarked-*", "times": rng.choice((1, 2, 3)), "for": 30}
        if (status := rng.choice((429, 500, 503, None))) is not None:
            passing["status"] = status
        steps: list[JsonObject] = [{"at": begin, "refuse": passing}, {"at": begin, "taint": f"{node} a=1:NoExecute"}]
        return Quarter([node], pods, steps=steps)


def _no_fewer(namespace: str) -> JsonObject:
    return {"name": "all", "namespace": namespace, "selector": {"matchLabels": {}}, "maxUnavailable": 0}
