"""Random clusters, in which a plan is made just before nodes are tainted: documents in the format of scenario files.

Nothing fails and nobody interferes, so a plan can be right to the second. A cluster has some of all that decides when a
pod leaves: an order, ceilings, rules that select nodes, limits, budgets, nodes that are lost, owners' holds, virtual
machines that move away, pauses that end or do not, and a circuit breaker. Equal seeds make equal documents.
"""

import random
from typing import Any

JsonObject = dict[str, Any]

PLANNED_AT = 20.0
KEYS = ("a", "b")
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
# The label app of pods of virtual machines.
MACHINE = "vm"
MOVES_AWAY = (
    'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
    'Eviction triggered evacuation of VMI "default/vm"'
)
# Apart from each other by more than the second that a plan does not know.
_SECONDS = (0, 0, 0, 4, 9, 16, 25, 39, 58)
_CRITICAL = 2_000_000_000
_DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "csi", "uid": "csi", "controller": True}


def random_cluster(seed: int) -> JsonObject:
    """Return the document of a seed; its steps at ``PLANNED_AT`` are what a plan has to foretell."""
    return _ClusterAuthor(random.Random(f"plan {seed}"), seed).document()


class _ClusterAuthor:
    def __init__(self, rng: random.Random, seed: int) -> None:
        self._rng, self._seed = rng, seed
        self._nodes = [f"node-{number}" for number in range(1, rng.choice((1, 2, 3, 4)) + 1)]
        self._mode = rng.choice(("delete", "evict", "evict-then-delete"))
        self._moves = self._mode != "delete" and rng.random() < 0.25

    def document(self) -> JsonObject:
        """Generate the whole document."""
        rng = self._rng
        given: JsonObject = {
            "nodes": [self._node(name) for name in self._nodes],
            "pods": [self._pod(f"pod-{number:02}") for number in range(rng.randint(2, 14))],
            "budgets": self._budgets(),
            "controlState": self._control_state(),
        }
        settings = self._settings()
        # A plan does not know how much of a limit, or of the patience with budgets, was used up before, nor whose pods
        # have left already when the breaker counts.
        unknown = ("evictionsPerSecond", "evict-then-delete", "breaker")
        steps = self._past(given, begun=not any(word in str(settings) for word in unknown))
        for node in rng.sample(self._nodes, rng.randint(1, len(self._nodes))):
            steps.append({"at": PLANNED_AT, "taint": f"{node} {rng.choice(KEYS)}=x:NoExecute"})
        return {
            "about": f"Generated from seed {self._seed}.",
            "name": f"planned-{self._seed}",
            "settings": settings,
            "given": given,
            "timeline": sorted(steps, key=lambda step: float(step["at"])),
            "expect": {},
            # Three tiers, and what a pause, a machine that moves, and the patience take.
            "until": PLANNED_AT + 400.0 + 3 * settings.get("orderWait", 600),
        }

    def _settings(self) -> JsonObject:
        rng = self._rng
        settings: JsonObject = {
            "defaultTolerationSeconds": None,
            "evictionMode": self._mode,
            "evictTimeout": rng.choice((15, 50)),
            "backgroundTimeout": rng.choice((0, 70, 130)),
            "budgetsOnLostNodes": rng.choice(("respect", "ignore")),
            "policy": self._rules(),
        }
        if rng.random() < 0.5:
            settings |= {"order": "tiers", "orderWait": rng.choice((12, 35, 600))}
        if rng.random() < 0.4:
            settings["honourHolds"] = rng.choice(("20s", "forever"))
        if rng.random() < 0.2:
            settings["evictFinished"] = False
        if rng.random() < 0.2:
            settings["defaultUnreachableSeconds"] = 45
        if rng.random() < 0.3:
            scope = rng.choice(("", "PerNode", "PerNamespace"))
            settings |= {f"evictionsPerSecond{scope}": rng.choice((0.1, 0.5)), f"evictionsBurst{scope}": 1}
        if rng.random() < 0.25:
            settings["breaker"] = {"nodes": rng.choice((0, 1, 2, "40%")), "leastNodes": 1}
            if rng.random() < 0.3:
                settings["breaker"]["duePods"] = rng.choice((2, 5))
        return settings

    def _rules(self) -> list[JsonObject]:
        rng, rules = self._rng, list[JsonObject]()
        matches: list[JsonObject] = [
            {"taintKeys": ["a"], "nodeSelector": "pool=gpu"},
            {"namespaces": ["other"]},
            {"podSelector": "app=csi", "taintKeys": ["a", "b"]},
            {"taintKeys": ["b"]},
            {"nodeSelector": "pool in (web)", "taintKeys": ["node.kubernetes.io/*"]},
        ]
        for number, match in enumerate(rng.sample(matches, rng.choice((0, 0, 1, 1, 2, 3)))):
            rule: JsonObject = {"name": f"rule-{number}", "match": match}
            if rng.random() < 0.35:
                rule["mode"] = rng.choice(("delete", "evict", "evict-then-delete"))
            if "taintKeys" in match and rng.random() < 0.5:
                rule["maxTolerationSeconds"] = rng.choice((0, 6, 30))
            if rng.random() < 0.2:
                rule["pause"] = True
            if rng.random() < 0.3:
                rule["tier"] = rng.choice(("workloads", "daemonsets", "critical-workloads", "critical-daemonsets"))
            if rng.random() < 0.2:
                rule["order"] = rng.choice(("none", "tiers"))
            if rng.random() < 0.2:
                rule["limits"] = {"evictionsPerSecond": rng.choice((0.2, 1))}
            if len(rule) > 2:
                rules.append(rule)
        return rules

    # Objects

    def _node(self, name: str) -> JsonObject:
        rng = self._rng
        return {"name": name, "labels": {"pool": rng.choice(("gpu", "web"))}, "conditions": [_ready("True", "-1h")]}

    def _pod(self, name: str) -> JsonObject:
        rng = self._rng
        pod: JsonObject = {
            "name": name,
            "namespace": rng.choice(("default", "default", "other")),
            "nodeName": rng.choice(self._nodes),
            "tolerations": [self._toleration() for _ in range(rng.choice((0, 1, 1, 2, 2)))],
            "labels": {"app": rng.choice(("web", "web", "db", "csi", *([MACHINE] if self._moves else [])))},
            "creationTimestamp": "-2h",
            "terminationGracePeriodSeconds": rng.choice((1, 7)),
        }
        if rng.random() < 0.25:
            pod["ownerReferences"] = [_DAEMONSET]
        if rng.random() < 0.25:
            pod["priority"] = _CRITICAL
        if rng.random() < 0.15:
            pod["hold"] = rng.choice(("8s", "true"))
        if rng.random() < 0.08 and pod["labels"]["app"] != MACHINE:
            pod["phase"] = rng.choice(("Succeeded", "Failed"))
        if rng.random() < 0.05:
            pod["annotations"] = {"kubernetes.io/config.mirror": "x"}
        return pod

    def _toleration(self) -> str:
        rng = self._rng
        key = rng.choice((*KEYS, *KEYS, "*", UNREACHABLE, NOT_READY))
        seconds = rng.choice(_SECONDS)
        return f"{key} for {'ever' if rng.random() < 0.15 else seconds}"

    def _budgets(self) -> list[JsonObject]:
        rng, budgets = self._rng, list[JsonObject]()
        if self._mode != "delete" or rng.random() < 0.3:
            for app in rng.sample(("web", "db", "csi"), rng.choice((0, 1, 2))):
                number = {rng.choice(("minAvailable", "maxUnavailable")): rng.choice((0, 1, 2, "50%"))}
                budgets.append({"name": app, "namespace": "default", "selector": {"app": app}, **number})
        if self._moves:
            budgets += [
                {"name": "vm", "namespace": namespace, "selector": {"app": MACHINE}, "minAvailable": "100%"}
                for namespace in ("default", "other")
            ]
        return budgets

    def _control_state(self) -> JsonObject:
        rng, state = self._rng, JsonObject()
        if rng.random() < 0.06:
            state["pause"] = True
        if rng.random() < 0.15:
            state["nodes"] = [rng.choice(self._nodes)]
        if rng.random() < 0.1:
            state["namespaces"] = ["other"]
        if rng.random() < 0.05:
            state["breaker"] = {"openSince": "-5m"}
        return state

    # What happens before the plan

    def _past(self, given: JsonObject, begun: bool) -> list[JsonObject]:
        rng, steps = self._rng, list[JsonObject]()
        if self._moves:
            for pod in given["pods"]:
                if pod["labels"]["app"] == MACHINE:
                    refuse = {"call": "evict", "times": 1, "status": 429, "message": MOVES_AWAY}
                    steps.append({"at": 0.0, "refuse": {**refuse, "pod": f"{pod['namespace']}/{pod['name']}"}})
        # Of a taint without a date the plan knows when its manager last wrote the list: one writer for each node.
        tainted, lost = rng.choice(self._nodes), rng.choice(self._nodes)
        if rng.random() < 0.3 and begun:
            steps.append({"at": 5.0, "taint": f"{tainted} {rng.choice(KEYS)}=x:NoExecute"})
        if rng.random() < 0.3 and begun and lost != tainted:
            steps += self._lost(lost)
        if rng.random() < 0.15:
            scope = rng.choice(({"node": rng.choice(self._nodes)}, {"namespace": "default"}))
            steps.append({"at": 3.0, "pause": {**scope, "for": rng.choice((40, 90))}})
        if rng.random() < 0.15:
            pod = rng.choice(given["pods"])
            pod["finalizers"] = ["example.com/hold"]
            steps.append({"at": 12.0, "delete": f"{pod['namespace']}/{pod['name']}"})
        return steps

    def _lost(self, node: str) -> list[JsonObject]:
        """Lose a node shortly before the plan."""
        status = self._rng.choice(("Unknown", "False"))
        key = UNREACHABLE if status == "Unknown" else NOT_READY
        taint = {"key": key, "effect": "NoExecute", "timeAdded": "now"}
        return [
            {"at": 15.0, "setReady": f"{node} {status}"},
            {"at": 15.0, "taint": {"node": node, "taints": [taint], "by": "lifecycle"}},
        ]


def _ready(status: str, since: str) -> JsonObject:
    return {"type": "Ready", "status": status, "lastTransitionTime": since}
