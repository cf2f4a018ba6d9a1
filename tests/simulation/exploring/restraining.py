"""Makes up what holds evictions back: modes and budgets, limits, pauses, the breaker, holds, rules, a dry run.

Part of ``generator``, whose instants it shares, so that all this happens where something else does.
"""

import random
from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]

KINDS = ("modes", "limits", "pauses", "breaker", "breaker", "holds", "rules")
MODES = ("delete", "evict", "evict-then-delete")
NAMESPACES = ("default", "other")
APPS = ("web", "db")
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
BUDGETS = ("one", "two", "other/three")
ORDERS_CALLS = ("readOrders", "writeOrders")
_RACING = frozenset({"modes", "limits", "pauses", "breaker"})


class Restraints:
    """What holds back in one document; ``at`` makes up an instant, ``span`` a span of at most so many seconds."""

    def __init__(
        self,
        chance: random.Random,
        kinds: frozenset[str],
        *,
        nodes: list[str],
        pods: list[str],
        replicas: int,
        at: Callable[[], float],
        span: Callable[[float], float],
    ) -> None:
        self.kinds = kinds
        self._chance = chance
        self._nodes = nodes
        self._pods = pods
        self._replicas = replicas
        self._at = at
        self._span = span
        self._budgets: list[str] = []
        self._window = 0.0
        # Where races happen: among everything else, or where nothing else does.
        yard = bool(kinds & _RACING) and chance.random() < 0.75
        self._yard = [f"yard-{number}" for number in range(1, 4)] if yard else nodes
        self._yarders = [f"{chance.choice(('', '', 'other/'))}yarder-{number}" for number in range(5)] if yard else pods

    # What is set

    def settings(self) -> JsonObject:
        """Make up the settings."""
        chance, settings = self._chance, JsonObject()
        if "modes" in self.kinds:
            settings["evictionMode"] = chance.choice(MODES[1:])
            settings["evictTimeout"] = chance.choice((3, 10, 30))
            settings["readyAfter"] = chance.choice((0, 0, 3, 10))
        if "limits" in self.kinds:
            settings |= self._limits()
        if "breaker" in self.kinds:
            settings["breaker"] = self._breaker()
            self._window = settings["breaker"]["window"]
        if "holds" in self.kinds:
            settings["honourHolds"] = chance.choice((5, 20, "forever"))
            settings["defaultNotReadySeconds"] = chance.choice((0, 3, 20))
            settings["defaultUnreachableSeconds"] = chance.choice((2, 30))
        if "rules" in self.kinds:
            settings["policy"] = self._rules()
        if self.kinds and chance.random() < 0.04:
            settings["dryRun"] = True
        return settings

    def _limits(self) -> JsonObject:
        chance, limits = self._chance, JsonObject()
        for scope in chance.choice((("",), ("", "PerNode"), ("PerNode",), ("PerNamespace",), ("", "PerNamespace"))):
            if chance.random() < 0.8:
                limits[f"evictionsPerSecond{scope}"] = chance.choice((0.5, 1, 1, 2, 5))
                if chance.random() < 0.7:
                    limits[f"evictionsBurst{scope}"] = chance.choice((1, 1, 1, 2))
            else:
                limits[f"evictionsAtOnce{scope}"] = chance.choice((1, 2))
        return limits

    def _breaker(self) -> JsonObject:
        chance = self._chance
        breaker: JsonObject = {
            "nodes": chance.choice((1, 1, 2, 2, "30%")),
            "lifecycleNodes": chance.choice((1, 2, "50%", "exempt")),
            "leastNodes": chance.choice((1, 2, 3)),
            "window": chance.choice((10, 15, 20, 300)),
            "settle": chance.choice((0.5, 1, 2, 2)),
        }
        if chance.random() < 0.2:
            breaker["duePods"] = chance.choice((1, 2, 4))
        if chance.random() < 0.25:
            breaker["closesByItself"] = True
        return breaker

    def _rules(self) -> list[JsonObject]:
        chance = self._chance
        rules: list[JsonObject] = []
        for number in range(chance.choice((1, 1, 2))):
            match = chance.choice(
                ({"taintKeys": ["a"]}, {"namespaces": ["ot*"]}, {"podSelector": {"matchLabels": {"app": "web"}}})
            )
            rule: JsonObject = {"name": f"rule-{number}", "match": match}
            rule |= chance.choice(
                (
                    {"pause": True},
                    {"mode": chance.choice(MODES), "evictTimeout": chance.choice((3, 10))},
                    {"limits": {"evictionsPerSecond": chance.choice((0.5, 1)), "burst": chance.choice((1, 2))}},
                    {"limits": {"concurrency": 1}},
                )
            )
            if all(rule["match"] != one["match"] for one in rules):
                rules.append(rule)
        return rules

    def pod(self) -> JsonObject:
        """Make up what a pod has besides."""
        more: JsonObject = {"labels": {"app": self._chance.choice(APPS)}} if self.kinds else {}
        if "holds" in self.kinds and self._chance.random() < 0.3:
            more["hold"] = self._hold()
        return more

    def yard(self) -> tuple[list[JsonObject | str], list[JsonObject]]:
        """List nodes and pods of the yard, if there is one."""
        if self._yarders == self._pods:
            return [], []
        names = [name.rpartition("/") for name in self._yarders]
        pods = [
            {"name": own, "namespace": space or NAMESPACES[0], "labels": {"app": APPS[0]}} for space, _, own in names
        ]
        return [*self._yard], [{**pod, "nodeName": self._yard[0]} for pod in pods]

    def _hold(self) -> str:
        return str(self._chance.choice(("true", "false", "2", "5s", "15", "1m", "nonsense")))

    def given(self) -> JsonObject:
        """Make up what is there from the beginning."""
        chance, given = self._chance, JsonObject()
        if "modes" in self.kinds:
            given["budgets"] = [self._budget(name) for name in BUDGETS[: chance.choice((1, 1, 2, 3))]]
        if "pauses" in self.kinds and chance.random() < 0.2:
            given["orders"] = chance.choice(
                ({}, {"pause": True}, {"nodes": [chance.choice(self._nodes)]}, {"namespaces": [NAMESPACES[1]]})
            )
        if "breaker" in self.kinds and chance.random() < 0.1:
            given["orders"] = {"breaker": {"openSince": -30}}
        return given

    def _budget(self, name: str) -> JsonObject:
        chance = self._chance
        self._budgets = sorted({*self._budgets, name})
        selector: JsonObject = chance.choice(
            ({"app": APPS[0]}, {"app": APPS[0]}, {"app": APPS[1]}, {"matchLabels": {}})
        )
        fewer = ({"maxUnavailable": 0}, {"maxUnavailable": 0}, {"maxUnavailable": 1}, {"minAvailable": 1})
        allows = chance.choice((*fewer, {"minAvailable": "50%"}))
        namespace, _, own = name.rpartition("/")
        return {"name": own, "namespace": namespace or NAMESPACES[0], "selector": selector, **allows}

    # What people do

    def steps(self) -> list[JsonObject]:
        """Make up what people do to hold evictions back, or to let them go, and what keeps it from being heard."""
        chance, steps = self._chance, []
        acts: dict[str, Callable[[], tuple[str, Any]]] = {
            "pauses": self._pause,
            "modes": self._change_budget,
            "breaker": lambda: ("resetBreaker", {}),
            "holds": lambda: (
                "setHold",
                {"pod": chance.choice(self._pods), "hold": chance.choice((None, self._hold()))},
            ),
            "rules": lambda: ("changePolicy", self._rules()),
        }
        for kind in sorted(self.kinds & set(acts)):
            for _ in range(chance.randint(0, 3)):
                action, does = acts[kind]()
                steps.append({"at": self._at(), action: does})
        return steps

    def _pause(self) -> tuple[str, JsonObject | str]:
        chance = self._chance
        scope = chance.choice(({}, {"node": chance.choice(self._nodes)}, {"namespace": chance.choice(NAMESPACES)}))
        if chance.random() < 0.1:
            return "loseOrders", {}
        return chance.choice((("pause", scope), ("pause", scope), ("resume", scope), ("resume", "all")))

    def _change_budget(self) -> tuple[str, JsonObject | str]:
        action = self._chance.choice(("createBudget", "changeBudget", "deleteBudget"))
        if action == "deleteBudget":
            return action, self._chance.choice(self._budgets)
        return action, self._budget(self._chance.choice(BUDGETS))

    def faults(self) -> list[JsonObject]:
        """Keep orders from being read and written, and the eviction API from answering."""
        chance = self._chance
        calls = [*(ORDERS_CALLS if self.kinds & {"pauses", "breaker"} else ())]
        calls += ["evict"] if self.kinds & {"modes", "rules"} else []
        faults = []
        for call in calls:
            if chance.random() < 0.3:
                does: JsonObject = {"call": call, "for": self._span(25)}
                kind = chance.choice(("refuse", "hang", "delay"))
                does |= {"back": self._span(4)} if kind == "delay" else {"tookEffect": chance.random() < 0.4}
                does |= {"status": chance.choice((403, 409, 429, 500))} if kind == "refuse" else {}
                faults.append({"at": self._at(), kind: does})
        return faults

    def let_go(self, at: float) -> list[JsonObject]:
        """Take everything back that people hold: what is due then has to go."""
        steps: list[JsonObject] = [{"at": at, "resume": "all"}] if "pauses" in self.kinds else []
        if "modes" in self.kinds:
            steps += [{"at": at, "deleteBudget": name} for name in self._budgets]
        if "breaker" in self.kinds:
            steps.append({"at": at, "resetBreaker": {}})
        return steps + ([{"at": at, "changePolicy": []}] if "rules" in self.kinds else [])

    # Races

    def races(self, last: float) -> list[JsonObject]:
        """Let something hold back just when it matters, here and there until then."""
        chance, steps = self._chance, []
        begin = chance.uniform(0.5, 8.0)
        races = {"pauses": self._pause_amid, "limits": self._many_at_once, "modes": self._many_at_once}
        races["breaker"] = self._wave
        kinds = sorted(self.kinds & set(races))
        while kinds and begin < last:
            steps.append({"at": round(begin, 3), "untaint": self._yard[0]})
            more = races[chance.choice(kinds)](round(begin, 3))
            steps += more
            begin = max(float(step["at"]) for step in more) + chance.uniform(0.5, 3.0)
        return steps

    def _pause_amid(self, begin: float) -> list[JsonObject]:
        """Pause while an eviction is on its way, and slow enough to hear of it."""
        chance, node, pod = self._chance, self._yard[0], self._chance.choice(self._yarders)
        namespace = pod.partition("/")[0] if "/" in pod else NAMESPACES[0]
        scope = chance.choice(({}, {"node": node}, {"namespace": namespace}))
        slow: JsonObject = {"call": ["mark", "readPod"], "pod": pod, "times": 1, "for": 8}
        slow["back"] = round(chance.uniform(2.3, 2.9), 3)
        seconds = chance.choice((0, 0, 3))
        end = round(begin + 1.0 + seconds, 3)
        paused_at = round(max(begin, end + chance.uniform(-0.4, 0.3)), 3)
        steps: list[JsonObject] = [
            *self._bare(pod, node, begin, f"a for {seconds}"),
            {"at": begin + 0.5, "delay": slow},
            {"at": begin + 1.0, "taint": f"{node} a=1:NoExecute"},
            {"at": paused_at, "pause": scope},
        ]
        return [*steps, {"at": round(paused_at + chance.uniform(4, 15), 3), "resume": "all"}]

    def _bare(self, pod: str, node: str, at: float, *tolerations: str) -> list[JsonObject]:
        return [
            {"at": at, "recreate": {"pod": pod, "node": node}},
            {"at": at, "tolerate": {"pod": pod, "tolerations": list(tolerations)}},
        ]

    def _many_at_once(self, begin: float) -> list[JsonObject]:
        """Let many be due at once, and some so slow on their way that others may overtake or catch up with them."""
        chance, home = self._chance, self._yard[0]
        steps = [step for pod in self._yarders for step in self._bare(pod, home, begin)]
        slow: JsonObject = {"call": ["mark", "readPod"], "times": chance.choice((1, 1, 2, 3)), "for": 3}
        slow["back"] = round(chance.choice((0.9, 1.9, 1.4, 2.9)) + chance.uniform(0, 0.1), 3)
        if chance.random() < 0.7:
            steps.append({"at": begin + 0.9, "delay": slow})
        steps.append({"at": begin + 1.0, "taint": f"{home} a=1:NoExecute"})
        off = round(begin + 1.0 + chance.choice((0.01, 0.3, 1.2, 2.5)), 3)
        if chance.random() < 0.5:
            again = {"at": round(off + chance.uniform(0.5, 4), 3), "taint": f"{home} a=1:NoExecute"}
            return [*steps, {"at": off, "untaint": home}, again]
        return [*steps, {"at": round(begin + chance.uniform(4, 25), 3), "writeNode": home}]

    def _wave(self, begin: float) -> list[JsonObject]:
        """Taint several nodes within a short time, or one after the other; let all processes die soon or late."""
        chance, nodes, soon = self._chance, self._yard, self._chance.random() < 0.6
        apart = chance.choice((0.0, 0.1, 0.4, 3.0)) if soon else min(self._window, 20.0) + 1.0
        steps: list[JsonObject] = []
        for index, node in enumerate(nodes):
            pod = self._yarders[index % len(self._yarders)]
            tolerations = chance.choice(((), (), ("a for 20",))) if soon else ("a for 120",)
            steps += self._bare(pod, node, begin, *tolerations)
            steps.append({"at": round(begin + 1.0 + index * apart, 3), "taint": f"{node} a=1:NoExecute"})
        if not soon or chance.random() < 0.8:
            seconds = chance.choice((0.3, 2.5, self._window + 3.0, self._window + 3.0)) if soon else 2.0
            died_at = round(min(float(steps[-1]["at"]) + seconds, 65.0), 3)
            crash = {"after": chance.choice((0, 1, 5))}
            steps += [{"at": died_at, "restart": {**crash, "replica": one}} for one in range(1, self._replicas + 1)]
        return [*steps, *({"at": round(float(steps[-1]["at"]) + 30.0, 3), "untaint": node} for node in nodes)]
