"""Makes up scenarios from a seed: a workload, and faults of every kind, as documents in the format of scenario files.

The same seed gives the same document. Steps that cannot be done when their time comes are left out by who plays it, so
any part of a document is a document again: that is how it is shrunk.
"""

import random

from tests.simulation.exploring.racing import Races
from tests.simulation.exploring.restraining import KINDS, LOST, NAMESPACES, RACING, JsonObject

KEYS, VALUES = ("a", "b"), ("1", "2")
SECONDS = (0, 1, 2, 5, 10, 20, 30, 45, 120)
# How far beside an instant at which something else happens: races are found there.
BESIDE = (-0.5, -0.02, -0.011, -0.006, -0.001, 0.0, 0.001, 0.004, 0.006, 0.011, 0.016, 0.021, 0.026, 0.05, 0.3, 1.0)
LISTS = ("listNodes", "listPods", "listCachedPods")
CALLS = (*LISTS, "readNode", "readPod", "mark", "unmark", "delete", "watchNodes", "watchPods")
LEASE_CALLS = ("readLease", "writeLease")
LAST_SECOND = 70.0
FEW, MANY = (0, 0, 1, 2, 4), (0, 1, 2, 3, 5, 8, 12)
# What happens in a race.
_MILD_TURNS = ("recreate", "successor", "successor", "untaint", "clean", "tolerate", "restart", "swap")
_TURNS = (*_MILD_TURNS, "refuse")


def made_up(seed: int) -> JsonObject:
    """Return the document of a seed."""
    return _Author(random.Random(f"exploration {seed}"), seed).document()


class _Author:
    def __init__(self, chance: random.Random, seed: int) -> None:
        self._chance = chance
        self._seed = seed
        self._replicas = chance.choice((1, 1, 2, 2, 3))
        # Nothing but slow answers and restarts: then evictions must be punctual, too.
        self._mild = chance.random() < 0.2
        kinds = self._kinds()
        most = (3, 4, 5) if "breaker" in kinds else (2, 2, 3)
        self._nodes = [f"node-{number}" for number in range(1, chance.choice(most) + 1)]
        self._pods = [f"{chance.choice(('', '', 'other/'))}web-{number}" for number in range(chance.randint(2, 7))]
        self._instants = [1.0, 20.0]
        self._restraints = Races(
            chance, kinds, nodes=self._nodes, pods=self._pods, replicas=self._replicas, at=self._at, span=self._span
        )

    def _kinds(self) -> frozenset[str]:
        chance = self._chance
        if self._mild:
            return frozenset({"holds"} if chance.random() < 0.3 else ())
        if chance.random() < 0.06:
            return frozenset()
        racing = chance.choices([*RACING], [*RACING.values()])
        return frozenset({*racing, *chance.sample(KINDS, chance.choice((0, 0, 0, 1, 2)))})

    def document(self) -> JsonObject:
        """Make up everything."""
        chance, restraints = self._chance, self._restraints
        settings = self._settings()
        given: JsonObject = {
            "nodes": [self._node(name) for name in self._nodes],
            "pods": [self._pod(name) for name in self._pods],
        }
        given |= restraints.given()
        workload = (0, 8) if self._mild or restraints.kinds else (4, 24)
        steps = [self._workload() for _ in range(chance.randint(*workload))]
        turns = _MILD_TURNS if self._mild else _TURNS
        for _ in range(chance.randint(1, 6)):
            steps += self._race(chance.choice(self._nodes), chance.choice(self._pods), chance.choice(turns))
        steps += restraints.steps()
        nodes, pods = restraints.yard()
        given["nodes"] += nodes
        given["pods"] += pods
        steps += restraints.races(LAST_SECOND + 30.0)
        for number, turn in enumerate(self._turns_in_corners()):
            corner, cornered = f"corner-{number}", f"cornered-{number}"
            given["nodes"].append(corner)
            given["pods"].append({"name": cornered, "nodeName": corner})
            # A restart would mend what others lose, so what is to stay lost comes after all of them.
            after = LAST_SECOND if self._mild and turn == "successor" else 0.0
            steps += self._race(corner, cornered, turn, after)
        if not self._mild:
            steps += [self._fault() for _ in range(chance.choice(FEW if restraints.kinds else MANY))]
            steps += restraints.faults()
        if chance.random() < 0.75:
            steps += restraints.let_go(max([LAST_SECOND, *(float(step["at"]) for step in steps)]) + 1.0)
        return {
            "about": f"Made up from seed {self._seed}.",
            "name": f"explored-{self._seed}",
            "settings": settings,
            "given": given,
            "timeline": sorted(steps, key=lambda step: float(step["at"])),
            "expect": {},
        }

    def _settings(self) -> JsonObject:
        chance = self._chance
        return {
            "replicas": self._replicas,
            "resyncInterval": chance.choice((20, 60)),
            "retryMost": chance.choice((2, 10)),
            "callTimeout": chance.choice((3, 10)),
            "linger": chance.choice((1, 5, 60)),
            "workers": chance.choice((2, 4, 20)),
            "wholeClusterFrom": chance.choice((1, 2, 300)),
            "defaultTolerationSeconds": None,
            **self._restraints.settings(),
        }

    # Instants

    def _at(self) -> float:
        chance = self._chance
        if chance.random() < 0.4:
            at = chance.uniform(0.5, LAST_SECOND)
        else:
            at = chance.choice(self._instants[-6:]) + chance.choice((0, 0, *SECONDS)) + chance.choice(BESIDE)
        at = round(min(max(at, 0.0), LAST_SECOND), 3)
        self._instants.append(at)
        return at

    def _span(self, most: float) -> float:
        return round(self._chance.choice((0.01, 0.05, 0.3, 1.0)) * self._chance.uniform(0.1, 1.0) * most, 3)

    # Objects

    def _taint(self) -> str | JsonObject:
        chance = self._chance
        key, value = chance.choice(KEYS), chance.choice(VALUES)
        if self._restraints.kinds & {"holds", "breaker"} and chance.random() < 0.3:
            return {"key": chance.choice(LOST), "effect": "NoExecute", "timeAdded": "now"}
        effect = chance.choice(("NoExecute",) * 9 + ("NoSchedule",))
        if chance.random() < 0.2:
            return {"key": key, "value": value, "effect": effect, "timeAdded": "now"}
        return f"{key}={value}:{effect}"

    def _node(self, name: str) -> JsonObject | str:
        return {"name": name, "taints": [self._taint()]} if self._chance.random() < 0.2 else name

    def _tolerations(self) -> list[str]:
        chance = self._chance
        return [self._toleration() for _ in range(chance.choice((0, 1, 1, 1, 1, 2, 3)))]

    def _toleration(self) -> str:
        chance = self._chance
        key = chance.choice(KEYS)
        what = chance.choice((key, key, f"{key}={chance.choice(VALUES)}", "*", f"{key}:NoExecute"))
        return f"{what} for {chance.choice(('ever', *SECONDS))}"

    def _pod(self, name: str) -> JsonObject:
        chance = self._chance
        namespace, _, own = name.rpartition("/")
        pod: JsonObject = {"name": own, "namespace": namespace or NAMESPACES[0], "tolerations": self._tolerations()}
        pod |= self._restraints.pod()
        if chance.random() < 0.85:
            pod["nodeName"] = chance.choice(self._nodes)
        if chance.random() < 0.1:
            pod["finalizers"] = ["example.com/hold"]
        return pod

    # What people and other controllers do

    def _workload(self) -> JsonObject:
        chance = self._chance
        node, pod = chance.choice(self._nodes), chance.choice(self._pods)
        action, does = chance.choices(
            (
                ("taint", {"node": node, "taints": [self._taint()], "by": chance.choice(("kubectl", "lifecycle"))}),
                ("untaint", node if chance.random() < 0.6 else f"{node} {chance.choice(KEYS)}"),
                ("setTaints", {"node": node, "taints": [self._taint()]}),
                ("writeNode", node),
                ("recreateNode", {"node": node, "taints": [self._taint()] if chance.random() < 0.4 else []}),
                ("deleteNode", node),
                ("recreate", {"pod": pod, "node": chance.choice((*self._nodes, None))}),
                ("delete", {"pod": pod, "force": chance.random() < 0.5}),
                ("bind", f"{pod} {node}"),
                ("tolerate", {"pod": pod, "tolerations": self._tolerations()}),
                ("freezeKubelet", node),
                ("thawKubelet", node),
                ("removeFinalizers", pod),
                ("resetCondition", pod),
            ),
            weights=(30, 14, 8, 4, 3, 1, 16, 4, 5, 10, 2, 2, 1, 2),
        )[0]
        return {"at": self._at(), action: does}

    def _turns_in_corners(self) -> list[str]:
        """Say what happens in the corners, where nothing else does: what is lost there stays lost."""
        if self._mild:
            return ["successor"] * 6 + ["restart", "restart", "restart", "recreate"]
        return [self._chance.choice((*_TURNS, "refuse", "refuse")) for _ in range(self._chance.choice((0, 0, 1, 2)))]

    def _race(self, node: str, pod: str, turn: str, after: float = 0.0) -> list[JsonObject]:
        """Let a tolerance run, and something happen just when it runs out, or while it does."""
        chance, key, seconds = self._chance, self._chance.choice(KEYS), self._chance.choice(SECONDS[:-1])
        if turn == "restart" and chance.random() < 0.5:
            seconds = SECONDS[-1]
        begin = round(after + chance.uniform(1.0, LAST_SECOND / 2), 3)
        end = round(begin + 1.0 + seconds + chance.choice(BESIDE), 3)
        meanwhile = round(min(begin + 1.0 + seconds * chance.random(), LAST_SECOND), 3)
        self._instants += [begin + 1.0, end]
        steps: list[JsonObject] = [
            {"at": begin, "recreate": {"pod": pod, "node": node}},
            {"at": begin, "tolerate": {"pod": pod, "tolerations": [f"{key} for {seconds}"]}},
            {"at": begin + 1.0, "taint": {"node": node, "taints": [f"{key}=1:NoExecute"], "by": "kubectl"}},
        ]
        if turn == "successor" or chance.random() < 0.3:
            slow: JsonObject = {"call": chance.choice(("delete", "delete", "mark", "readNode")), "times": 2, "for": 5}
            if turn == "successor" and chance.random() < 0.6:
                slow["call"] = "delete"
            slow |= {"node": node} if slow["call"] == "readNode" else {"pod": pod}
            slow[chance.choice(("by", "back", "back"))] = round(chance.uniform(0.3, 2.9), 3)
            steps.append({"at": round(max(begin, end - 1.0), 3), "delay": slow})
        if not self._mild and chance.random() < 0.3:
            lag: JsonObject = {"watch": chance.choice(("nodes", "pods")), "by": self._span(20)}
            steps.append({"at": round(max(begin, end - 2.0), 3), "lag": lag})
        return steps + self._turn_of_a_race(turn, node, pod, key, (end, meanwhile))

    def _turn_of_a_race(
        self, turn: str, node: str, pod: str, key: str, instants: tuple[float, float]
    ) -> list[JsonObject]:
        chance, (end, meanwhile), in_a_corner = self._chance, instants, node not in self._nodes
        again: JsonObject = {"pod": pod, "node": node if in_a_corner else chance.choice((node, node, *self._nodes))}
        sometime = chance.choice(instants)
        match turn:
            case "recreate":
                return [{"at": end, "recreate": again}]
            case "successor":
                return [{"at": round(end + chance.choice((0.05, 0.2, 0.5, 1.5)), 3), "recreate": again}]
            case "untaint":
                return [{"at": end, "untaint": f"{node} {key}"}]
            case "clean":
                later = {"at": round(end + abs(chance.choice(BESIDE)), 3), "recreate": {"pod": pod, "node": node}}
                return [{"at": end, "untaint": f"{node} {key}"}, later]
            case "tolerate":
                edited = [f"{key} for {chance.choice(('ever', *SECONDS))}"]
                return [{"at": sometime, "tolerate": {"pod": pod, "tolerations": edited}}]
            case "restart":
                after, replicas = chance.choice((0, 1, 10)), range(1, self._replicas + 1)
                crashing = replicas if chance.random() < 0.7 else [chance.choice(replicas)]
                at = min(sometime, LAST_SECOND)
                return [{"at": at, "restart": {"after": after, "replica": replica}} for replica in crashing]
            case "refuse":
                refusals: JsonObject = {"call": ["delete", "evict", *chance.choice(([], ["mark"]))], "status": 500}
                which: JsonObject = {"pod": pod} if in_a_corner else {}
                which["times"] = chance.randint(*((4, 16) if in_a_corner else (1, 12)))
                return [{"at": round(max(meanwhile, end - 1.0), 3), "refuse": {**refusals, **which, "for": 30}}]
            case _:
                return [{"at": end, "setTaints": {"node": node, "taints": [self._taint()]}}]

    # What goes wrong

    def _fault(self) -> JsonObject:
        chance = self._chance
        kinds = (self._watch_fault, self._call_fault, self._replica_fault)
        action, does = chance.choices(kinds, weights=(4, 5, 3))[0]()
        return {"at": self._at(), action: does}

    def _watch_fault(self) -> tuple[str, JsonObject]:
        chance = self._chance
        which: JsonObject = {"watch": chance.choice(("nodes", "pods", "all"))}
        if chance.random() < 0.3:
            which["replica"] = chance.randint(1, self._replicas)
        action = chance.choice(("lag", "lag", "lag", "lose", "repeat", "relist", "cut"))
        if action == "relist":
            return action, which
        if action == "lose":
            # Of nodes it is not always survived, see README.md: a taint that flaps in a lost event seems to stay.
            which["watch"] = "pods"
        return action, {**which, ("by" if action == "lag" else "for"): self._span(20)}

    def _call_fault(self) -> tuple[str, JsonObject]:
        chance = self._chance
        if chance.random() < 0.1:
            return "outage", {"for": self._span(30)}
        calls = chance.sample(CALLS, chance.choice((1, 1, 2, 4))) if chance.random() < 0.85 else list(LEASE_CALLS)
        does: JsonObject = {"call": calls}
        if chance.random() < 0.5:
            does["times"] = chance.randint(1, 8)
        else:
            does["for"] = self._span(40)
        action = chance.choice(("refuse", "refuse", "refuse", "hang", "delay", "delay"))
        if action == "delay":
            return action, {**does, "by": self._span(8), "back": self._span(8)}
        if action == "hang":
            return action, {**does, "tookEffect": chance.random() < 0.5}
        if chance.random() < 0.85:
            does["status"] = chance.choice((403, 409, 429, 500, 503))
        if chance.random() < 0.2:
            does["retryAfter"] = chance.choice((1, 5))
        return action, {**does, "tookEffect": chance.random() < 0.4}

    def _replica_fault(self) -> tuple[str, JsonObject]:
        chance = self._chance
        replica = chance.randint(1, self._replicas)
        action = chance.choice(("restart", "restart", "freeze", "partition", "stepHostClock"))
        if action == "stepHostClock":
            return action, {"by": chance.choice((-7200, -30, -1, 1, 30, 7200)), "replica": replica}
        if action == "restart":
            return action, {"after": chance.choice((0, 0.1, 3, 20)), "replica": replica}
        return action, {"for": self._span(40), "replica": replica}
