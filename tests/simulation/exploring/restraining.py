"""Generates what holds evictions back: modes and budgets, limits, pauses, the breaker, holds, rules, a dry run.

Part of ``generator``, whose instants it shares, so that these steps come when something else happens. ``racing`` has
the races in which they matter most.
"""

import random
from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]

# The kinds that have races, with their weights; then all kinds.
RACING = {"modes": 3, "limits": 5, "pauses": 4, "breaker": 9}
KINDS = (*RACING, "holds", "rules")
MODES = ("delete", "evict", "evict-then-delete")
NAMESPACES = ("default", "other")
APPS = ("web", "db")
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
BUDGETS = ("one", "two", "other/three")
# Values that somebody may write into the ConfigMap by hand in a hurry; then keys without a meaning.
NONSENSE = ("yes", "", "tru", "{", "[]", "1", '"true"', '{"open": "yes"}', '{"since": 5}')
UNKNOWN_KEYS = ("Pause", "paused", "pause-nodes.node-1", "pause-node.", "breakers")
CONTROL_STATE_CALLS = ("readControlState", "writeControlState")


class Restraints:
    """What holds evictions back in one document; ``at`` draws an instant, ``span`` a span up to the given seconds."""

    def __init__(
        self,
        rng: random.Random,
        kinds: frozenset[str],
        *,
        nodes: list[str],
        pods: list[str],
        replicas: int,
        at: Callable[[], float],
        span: Callable[[float], float],
    ) -> None:
        self.kinds = kinds
        self._rng = rng
        self._nodes = nodes
        self._pods = pods
        self._replicas = replicas
        self._at = at
        self._span = span
        self._budgets: list[str] = []
        self._window = 0.0
        # Races happen on nodes of their own (the yard), or among everything else.
        yard = bool(kinds & {*RACING}) and rng.random() < 0.9
        self._yard = [f"yard-{number}" for number in range(1, 4)] if yard else nodes
        self._yarders = [f"{rng.choice(('', '', 'other/'))}yarder-{number}" for number in range(5)] if yard else pods

    # Settings and objects

    def settings(self) -> JsonObject:
        """Generate the settings."""
        rng, settings = self._rng, JsonObject()
        if "modes" in self.kinds:
            settings["evictionMode"] = rng.choice((*MODES[1:], MODES[2]))
            settings["evictTimeout"] = rng.choice((3, 10, 10, 30))
            settings["readyAfter"] = rng.choice((0, 0, 3, 10))
        if "limits" in self.kinds:
            settings |= self._limits()
        if "breaker" in self.kinds:
            settings["breaker"] = self._breaker()
            self._window = settings["breaker"]["window"]
        if "holds" in self.kinds:
            settings["honourHolds"] = rng.choice((5, 20, "forever"))
            settings["defaultNotReadySeconds"] = rng.choice((0, 3, 20))
            settings["defaultUnreachableSeconds"] = rng.choice((2, 30))
        if "rules" in self.kinds:
            settings["policy"] = self._rules()
        if self.kinds and rng.random() < 0.04:
            settings["dryRun"] = True
        return settings

    def _limits(self) -> JsonObject:
        rng, limits = self._rng, JsonObject()
        for scope in rng.choice((("",), ("", "PerNode"), ("PerNode",), ("PerNamespace",), ("", "PerNamespace"))):
            if rng.random() < 0.8:
                limits[f"evictionsPerSecond{scope}"] = rng.choice((0.5, 1, 1, 2, 5))
                if rng.random() < 0.7:
                    limits[f"evictionsBurst{scope}"] = rng.choice((1, 1, 1, 2))
            else:
                limits[f"evictionsAtOnce{scope}"] = rng.choice((1, 2))
        return limits

    def _breaker(self) -> JsonObject:
        rng = self._rng
        breaker: JsonObject = {
            "nodes": rng.choice((1, 1, 2, 2, "15%")),
            "lifecycleNodes": rng.choice((1, 2, "50%", "exempt")),
            "leastNodes": rng.choice((1, 2, 3)),
            "window": 300 if rng.random() < 0.08 else rng.choice((5, 25, 25, 25, 25)),
            "settle": rng.choice((0.5, 1, 2, 2)),
        }
        if rng.random() < 0.12:
            breaker["duePods"] = rng.choice((1, 2, 4))
        if rng.random() < 0.18:
            breaker["closesByItself"] = True
        return breaker

    def _rules(self) -> list[JsonObject]:
        rng = self._rng
        rules: list[JsonObject] = []
        for number in range(rng.choice((1, 1, 2))):
            match = rng.choice(
                ({"taintKeys": ["a"]}, {"namespaces": ["ot*"]}, {"podSelector": {"matchLabels": {"app": "web"}}})
            )
            rule: JsonObject = {"name": f"rule-{number}", "match": match}
            rule |= rng.choice(
                (
                    {"pause": True},
                    {"mode": rng.choice(MODES), "evictTimeout": rng.choice((3, 10))},
                    {"limits": {"evictionsPerSecond": rng.choice((0.5, 1)), "burst": rng.choice((1, 2))}},
                    {"limits": {"concurrency": 1}},
                )
            )
            if all(rule["match"] != one["match"] for one in rules):
                rules.append(rule)
        return rules

    def pod(self) -> JsonObject:
        """Generate further fields of a pod."""
        more: JsonObject = {"labels": {"app": self._rng.choice(APPS)}} if self.kinds else {}
        if "holds" in self.kinds and self._rng.random() < 0.3:
            more["hold"] = self._hold()
        return more

    def yard(self) -> tuple[list[JsonObject | str], list[JsonObject]]:
        """Return the nodes and pods of the yard, if there is one."""
        if self._yarders == self._pods:
            return [], []
        names = [name.rpartition("/") for name in self._yarders]
        pods = [
            {"name": own, "namespace": space or NAMESPACES[0], "labels": {"app": APPS[0]}} for space, _, own in names
        ]
        return [*self._yard], [{**pod, "nodeName": self._yard[0]} for pod in pods]

    def _hold(self) -> str:
        return str(self._rng.choice(("true", "false", "2", "5s", "15", "1m", "nonsense")))

    def given(self) -> JsonObject:
        """Generate what exists at the start."""
        rng, given = self._rng, JsonObject()
        if "modes" in self.kinds:
            given["budgets"] = [self._budget(name) for name in BUDGETS[: rng.choice((1, 1, 2, 3))]]
        if "pauses" in self.kinds and rng.random() < 0.2:
            given["controlState"] = rng.choice(
                ({}, {"pause": True}, {"nodes": [rng.choice(self._nodes)]}, {"namespaces": [NAMESPACES[1]]})
            )
        if "breaker" in self.kinds and rng.random() < 0.1:
            given["controlState"] = {"breaker": {"openSince": -30}}
        return given

    def _budget(self, name: str) -> JsonObject:
        rng = self._rng
        self._budgets = sorted({*self._budgets, name})
        selector: JsonObject = rng.choice(({"app": APPS[0]}, {"app": APPS[0]}, {"app": APPS[1]}, {"matchLabels": {}}))
        fewer = ({"maxUnavailable": 0}, {"maxUnavailable": 0}, {"maxUnavailable": 1}, {"minAvailable": 1})
        allows = rng.choice((*fewer, {"minAvailable": "50%"}))
        namespace, _, own = name.rpartition("/")
        return {"name": own, "namespace": namespace or NAMESPACES[0], "selector": selector, **allows}

    # Actions of people

    def steps(self) -> list[JsonObject]:
        """Generate the actions with which people hold evictions back or release them."""
        rng, steps = self._rng, []
        acts: dict[str, Callable[[], tuple[str, Any]]] = {
            "pauses": self._pause,
            "modes": self._change_budget,
            "breaker": self._reset_or_scribble,
            "holds": lambda: (
                "setHold",
                {"pod": rng.choice(self._pods), "hold": rng.choice((None, self._hold()))},
            ),
            "rules": lambda: ("changePolicy", self._rules()),
        }
        for kind in sorted(self.kinds & set(acts)):
            for _ in range(rng.randint(0, 1 if kind == "breaker" else 3)):
                action, does = acts[kind]()
                steps.append({"at": self._at(), action: does})
        return steps

    def _pause(self) -> tuple[str, JsonObject | str]:
        rng = self._rng
        scope = rng.choice(({}, {"node": rng.choice(self._nodes)}, {"namespace": rng.choice(NAMESPACES)}))
        if rng.random() < 0.1:
            return "loseControlState", {}
        if rng.random() < 0.15:
            return self._scribble(key_of(scope) if rng.random() < 0.7 else rng.choice(UNKNOWN_KEYS))
        return rng.choice((("pause", scope), ("pause", scope), ("resume", scope), ("resume", "all")))

    def _reset_or_scribble(self) -> tuple[str, JsonObject]:
        if self._rng.random() < 0.3:
            return self._scribble("breaker")
        return "resetBreaker", {}

    def _scribble(self, key: str) -> tuple[str, JsonObject]:
        return "scribble", {"key": key, "value": self._rng.choice(NONSENSE)}

    def _change_budget(self) -> tuple[str, JsonObject | str]:
        action = self._rng.choice(("createBudget", "changeBudget", "deleteBudget"))
        if action == "deleteBudget":
            return action, self._rng.choice(self._budgets)
        return action, self._budget(self._rng.choice(BUDGETS))

    def faults(self) -> list[JsonObject]:
        """Generate faults of calls about the control state and of the eviction API."""
        rng = self._rng
        calls = [*(CONTROL_STATE_CALLS if self.kinds & {"pauses", "breaker"} else ())]
        calls += ["evict"] if self.kinds & {"modes", "rules"} else []
        faults = []
        for call in calls:
            if rng.random() < 0.3:
                does: JsonObject = {"call": call, "for": self._span(25)}
                kind = rng.choice(("refuse", "hang", "delay"))
                does |= {"back": self._span(4)} if kind == "delay" else {"tookEffect": rng.random() < 0.4}
                does |= {"status": rng.choice((403, 409, 429, 500))} if kind == "refuse" else {}
                faults.append({"at": self._at(), kind: does})
        return faults

    def let_go(self, at: float) -> list[JsonObject]:
        """End everything with which people hold evictions back: then each due pod must be evicted."""
        steps: list[JsonObject] = [{"at": at, "resume": "all"}] if "pauses" in self.kinds else []
        if "modes" in self.kinds:
            steps += [{"at": at, "deleteBudget": name} for name in self._budgets]
        if "breaker" in self.kinds:
            steps.append({"at": at, "resetBreaker": {}})
        return steps + ([{"at": at, "changePolicy": []}] if "rules" in self.kinds else [])


def key_of(scope: JsonObject) -> str:
    """Return the key of a pause in the ConfigMap."""
    return ".".join(["-".join(["pause", *scope]), *scope.values()])
