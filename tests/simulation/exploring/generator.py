"""Generates scenarios from a seed: a workload and faults of every kind, as documents in the format of scenario files.

The same seed gives the same document. The player leaves out steps that are impossible when their time comes, so any
part of a document is a valid document: shrinking depends on this.
"""

import random

from tests.simulation.exploring.adoption_worlds import add_adoption
from tests.simulation.exploring.all_at_once import all_at_once
from tests.simulation.exploring.ceilings import add_ceilings, shortened
from tests.simulation.exploring.dry_runs import add_dry_run, dry_run_of_hours
from tests.simulation.exploring.hanging_worlds import HangingWorlds
from tests.simulation.exploring.late_requests import add_late_adoptions, buffered_watches, late_requests
from tests.simulation.exploring.lifecycle_worlds import LifecycleWorlds
from tests.simulation.exploring.lost_nodes import add_lost_nodes, lose_nodes
from tests.simulation.exploring.ordering import add_order, leave_in_order
from tests.simulation.exploring.out_of_service import add_out_of_service
from tests.simulation.exploring.people_worlds import PeopleWorlds
from tests.simulation.exploring.pools import add_paused_pools, add_pools
from tests.simulation.exploring.quarters import Quarter
from tests.simulation.exploring.racing import Races
from tests.simulation.exploring.random_faults import RandomFaults
from tests.simulation.exploring.refusal_worlds import RefusalWorlds
from tests.simulation.exploring.restraining import KINDS, LOST, NAMESPACES, RACING, JsonObject
from tests.simulation.exploring.takeovers import taken_over
from tests.simulation.exploring.worlds import Worlds

KEYS, VALUES = ("a", "b"), ("1", "2")
SECONDS = (0, 1, 2, 5, 10, 20, 30, 45, 120)
# Distances from an instant at which something else happens: races are found there.
BESIDE = (-0.5, -0.02, -0.011, -0.006, -0.001, 0.0, 0.001, 0.004, 0.006, 0.011, 0.016, 0.021, 0.026, 0.05, 0.3, 1.0)
LAST_SECOND = 70.0
FEW, MANY = (0, 0, 1, 2, 4), (0, 1, 2, 3, 5, 8, 12)
# What can happen in a race.
_MILD_TURNS = ("recreate", "successor", "successor", "untaint", "clean", "tolerate", "restart", "swap")
_TURNS = (*_MILD_TURNS, "refuse")


def made_up(seed: int) -> JsonObject:
    """Return the document of a seed."""
    if (of_hours := dry_run_of_hours(seed)) is not None:
        return of_hours
    if (in_order := leave_in_order(seed)) is not None:
        return in_order
    if (about_ceilings := shortened(seed)) is not None:
        return about_ceilings
    if (about_lost_nodes := lose_nodes(seed)) is not None:
        return about_lost_nodes
    if (about_takeovers := taken_over(seed)) is not None:
        return about_takeovers
    if (everything := all_at_once(seed)) is not None:
        return everything
    document = _Author(random.Random(f"exploration {seed}"), seed).document()
    add_out_of_service(document, seed)
    add_dry_run(document, seed)
    add_order(document, seed)
    add_ceilings(document, seed)
    add_lost_nodes(document, seed)
    add_adoption(document, seed)
    add_late_adoptions(document, seed)
    add_pools(document, seed)
    add_paused_pools(document, seed)
    return document


class _Author:
    def __init__(self, rng: random.Random, seed: int) -> None:
        self._rng = rng
        self._seed = seed
        self._replicas = rng.choice((1, 1, 2, 2, 3))
        # With only slow answers and restarts, evictions must be punctual, too.
        self._mild = rng.random() < 0.25
        kinds = self._kinds()
        most = (3, 4, 5) if "breaker" in kinds else (2, 2, 3)
        self._nodes = [f"node-{number}" for number in range(1, rng.choice(most) + 1)]
        self._pods = [f"{rng.choice(('', '', 'other/'))}web-{number}" for number in range(rng.randint(2, 7))]
        self._instants = [1.0, 20.0]
        self._restraints = Races(
            rng, kinds, nodes=self._nodes, pods=self._pods, replicas=self._replicas, at=self._at, span=self._span
        )

    def _kinds(self) -> frozenset[str]:
        rng = self._rng
        if self._mild:
            return frozenset({"holds"} if rng.random() < 0.3 else ())
        if rng.random() < 0.06:
            return frozenset()
        racing = rng.choices([*RACING], [*RACING.values()])
        return frozenset({*racing, *rng.sample(KINDS, rng.choice((0, 0, 0, 1, 2)))})

    def document(self) -> JsonObject:
        """Generate the whole document."""
        rng, restraints = self._rng, self._restraints
        settings = self._settings()
        given: JsonObject = {
            "nodes": [self._node(name) for name in self._nodes],
            "pods": [self._pod(name) for name in self._pods],
        }
        given |= restraints.given()
        workload = (0, 8) if self._mild or restraints.kinds else (4, 24)
        steps = [self._workload() for _ in range(rng.randint(*workload))]
        turns = _MILD_TURNS if self._mild else _TURNS
        for _ in range(rng.randint(1, 6)):
            steps += self._race(rng.choice(self._nodes), rng.choice(self._pods), rng.choice(turns))
        steps += restraints.steps()
        nodes, pods = restraints.yard()
        given["nodes"] += nodes
        given["pods"] += pods
        steps += restraints.races(LAST_SECOND + 30.0)
        for number, turn in enumerate(self._turns_in_corners()):
            corner, cornered = f"corner-{number}", f"cornered-{number}"
            given["nodes"].append(corner)
            given["pods"].append({"name": cornered, "nodeName": corner})
            # A restart would repair what others lose, so a loss that must stay comes after all restarts.
            after = LAST_SECOND if self._mild and turn == "successor" else 0.0
            steps += self._race(corner, cornered, turn, after)
        if not self._mild:
            faults = RandomFaults(rng, self._replicas, self._span)
            steps += [{"at": self._at(), **faults.one()} for _ in range(rng.choice(FEW if restraints.kinds else MANY))]
            steps += restraints.faults()
            late = late_requests(self._seed, steps, self._replicas)
            steps += [*late, *buffered_watches(self._seed, steps, self._replicas)]
        worlds = Worlds(self._seed, mild=self._mild, kinds=restraints.kinds, settings=settings)
        quarter = worlds.quarter(_last(steps))
        steps += quarter.steps
        if not self._mild and "breaker" not in restraints.kinds:
            quarter += (refusals := RefusalWorlds(self._seed, settings).quarter(_last(steps)))
            steps += refusals.steps
        if self._mild:
            quarter += (hanging := HangingWorlds(self._seed, settings).quarter(_last(steps)))
            steps += hanging.steps
        if rng.random() < 0.75:
            steps += restraints.let_go(_last(steps) + 1.0)
        quarter += (afterthought := worlds.afterthought(_last(steps)))
        steps += afterthought.steps
        if not self._mild:
            differ = "apiServers" in settings or any("misdate" in step for step in steps)
            people = PeopleWorlds(self._seed, settings, dates_differ=differ).quarter(
                _last(steps) + 3.0, breaker="breaker" in restraints.kinds
            )
            quarter += people
            steps += people.steps
        # The node lifecycle controller would overwrite the conditions of a quarter that writes its own.
        own_conditions = any(isinstance(node, dict) and "conditions" in node for node in quarter.nodes)
        if "breaker" not in restraints.kinds and not own_conditions:
            quarter += (lifecycle := self._lifecycle(given, settings, _last(steps)))
            steps += lifecycle.steps
        quarter.join(given, settings, steps)
        return {
            "about": f"Generated from seed {self._seed}.",
            "name": f"explored-{self._seed}",
            "settings": settings,
            "given": given,
            "timeline": sorted(steps, key=lambda step: float(step["at"])),
            "expect": {},
        }

    def _lifecycle(self, given: JsonObject, settings: JsonObject, last: float) -> Quarter:
        """Generate faults of kubelets: among everything else, or after it if evictions must be punctual."""
        others = [node if isinstance(node, str) else node["name"] for node in given["nodes"]]
        restrained = self._restraints.kinds - {"holds"}
        begin = last + 1.0 if self._mild else 1.0
        return LifecycleWorlds(self._seed, settings).lifecycle(begin, None if restrained else others)

    def _settings(self) -> JsonObject:
        rng = self._rng
        return {
            "replicas": self._replicas,
            "resyncInterval": rng.choice((20, 60)),
            "retryMost": rng.choice((2, 10)),
            "callTimeout": rng.choice((3, 10, 10)),
            "linger": rng.choice((1, 5, 60)),
            "workers": rng.choice((2, 4, 20)),
            "wholeClusterFrom": rng.choice((1, 2, 300)),
            "defaultTolerationSeconds": None,
            **self._restraints.settings(),
        }

    # Instants

    def _at(self) -> float:
        rng = self._rng
        if rng.random() < 0.4:
            at = rng.uniform(0.5, LAST_SECOND)
        else:
            at = rng.choice(self._instants[-6:]) + rng.choice((0, 0, *SECONDS)) + rng.choice(BESIDE)
        at = round(min(max(at, 0.0), LAST_SECOND), 3)
        self._instants.append(at)
        return at

    def _span(self, most: float) -> float:
        return round(self._rng.choice((0.01, 0.05, 0.3, 1.0)) * self._rng.uniform(0.1, 1.0) * most, 3)

    # Objects

    def _taint(self) -> str | JsonObject:
        rng = self._rng
        key, value = rng.choice(KEYS), rng.choice(VALUES)
        if self._restraints.kinds & {"holds", "breaker"} and rng.random() < 0.3:
            return {"key": rng.choice(LOST), "effect": "NoExecute", "timeAdded": "now"}
        effect = rng.choice(("NoExecute",) * 9 + ("NoSchedule",))
        if rng.random() < 0.2:
            return {"key": key, "value": value, "effect": effect, "timeAdded": "now"}
        return f"{key}={value}:{effect}"

    def _node(self, name: str) -> JsonObject | str:
        return {"name": name, "taints": [self._taint()]} if self._rng.random() < 0.2 else name

    def _tolerations(self) -> list[str]:
        rng = self._rng
        return [self._toleration() for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3)))]

    def _toleration(self) -> str:
        rng = self._rng
        key = rng.choice(KEYS)
        what = rng.choice((key, key, f"{key}={rng.choice(VALUES)}", "*", f"{key}:NoExecute"))
        return f"{what} for {rng.choice(('ever', *SECONDS))}"

    def _pod(self, name: str) -> JsonObject:
        rng = self._rng
        namespace, _, own = name.rpartition("/")
        pod: JsonObject = {"name": own, "namespace": namespace or NAMESPACES[0], "tolerations": self._tolerations()}
        pod |= self._restraints.pod()
        if rng.random() < 0.85:
            pod["nodeName"] = rng.choice(self._nodes)
        if rng.random() < 0.1:
            pod["finalizers"] = ["example.com/hold"]
        return pod

    # Actions of people and other controllers

    def _workload(self) -> JsonObject:
        rng = self._rng
        node, pod = rng.choice(self._nodes), rng.choice(self._pods)
        action, does = rng.choices(
            (
                ("taint", {"node": node, "taints": [self._taint()], "by": rng.choice(("kubectl", "lifecycle"))}),
                ("untaint", node if rng.random() < 0.6 else f"{node} {rng.choice(KEYS)}"),
                ("setTaints", {"node": node, "taints": [self._taint()]}),
                ("writeNode", node),
                ("recreateNode", {"node": node, "taints": [self._taint()] if rng.random() < 0.4 else []}),
                ("deleteNode", node),
                ("recreate", {"pod": pod, "node": rng.choice((*self._nodes, None))}),
                ("delete", {"pod": pod, "force": rng.random() < 0.5}),
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
        """Return what happens in the corners: nodes where nothing else happens, so that a loss there stays a loss."""
        if self._mild:
            return ["successor"] * 9 + ["restart", "restart", "restart", "recreate"]
        return [self._rng.choice((*_TURNS, "refuse", "refuse")) for _ in range(self._rng.choice((0, 0, 1, 2)))]

    def _race(self, node: str, pod: str, turn: str, after: float = 0.0) -> list[JsonObject]:
        """Start a tolerance, and let something happen just when it ends or while it runs."""
        rng, key, seconds = self._rng, self._rng.choice(KEYS), self._rng.choice(SECONDS[:-1])
        if turn == "restart" and rng.random() < 0.5:
            seconds = SECONDS[-1]
        begin = round(after + rng.uniform(1.0, LAST_SECOND / 2), 3)
        end = round(begin + 1.0 + seconds + rng.choice(BESIDE), 3)
        meanwhile = round(min(begin + 1.0 + seconds * rng.random(), LAST_SECOND), 3)
        self._instants += [begin + 1.0, end]
        steps: list[JsonObject] = [
            {"at": begin, "recreate": {"pod": pod, "node": node}},
            {"at": begin, "tolerate": {"pod": pod, "tolerations": [f"{key} for {seconds}"]}},
            {"at": begin + 1.0, "taint": {"node": node, "taints": [f"{key}=1:NoExecute"], "by": "kubectl"}},
        ]
        if turn == "successor" or rng.random() < 0.3:
            slow: JsonObject = {"call": rng.choice(("delete", "delete", "mark", "readNode")), "times": 2, "for": 5}
            if turn == "successor" and rng.random() < 0.6:
                slow["call"] = "delete"
            slow |= {"node": node} if slow["call"] == "readNode" else {"pod": pod}
            slow[rng.choice(("by", "back", "back"))] = round(rng.uniform(0.3, 2.9), 3)
            steps.append({"at": round(max(begin, end - 1.0), 3), "delay": slow})
        if not self._mild and rng.random() < 0.3:
            lag: JsonObject = {"watch": rng.choice(("nodes", "pods")), "by": self._span(20)}
            steps.append({"at": round(max(begin, end - 2.0), 3), "lag": lag})
        return steps + self._turn_of_a_race(turn, node, pod, key, (end, meanwhile))

    def _turn_of_a_race(
        self, turn: str, node: str, pod: str, key: str, instants: tuple[float, float]
    ) -> list[JsonObject]:
        rng, (end, meanwhile), in_a_corner = self._rng, instants, node not in self._nodes
        again: JsonObject = {"pod": pod, "node": node if in_a_corner else rng.choice((node, node, *self._nodes))}
        sometime = rng.choice(instants)
        match turn:
            case "recreate":
                return [{"at": end, "recreate": again}]
            case "successor":
                return [{"at": round(end + rng.choice((0.05, 0.2, 0.5, 1.5)), 3), "recreate": again}]
            case "untaint":
                return [{"at": end, "untaint": f"{node} {key}"}]
            case "clean":
                later = {"at": round(end + abs(rng.choice(BESIDE)), 3), "recreate": {"pod": pod, "node": node}}
                return [{"at": end, "untaint": f"{node} {key}"}, later]
            case "tolerate":
                edited = [f"{key} for {rng.choice(('ever', *SECONDS))}"]
                return [{"at": sometime, "tolerate": {"pod": pod, "tolerations": edited}}]
            case "restart":
                after, replicas = rng.choice((0, 1, 10)), range(1, self._replicas + 1)
                crashing = replicas if rng.random() < 0.7 else [rng.choice(replicas)]
                at = min(sometime, LAST_SECOND)
                return [{"at": at, "restart": {"after": after, "replica": replica}} for replica in crashing]
            case "refuse":
                refusals: JsonObject = {"call": ["delete", "evict", *rng.choice(([], ["mark"]))], "status": 500}
                which: JsonObject = {"pod": pod} if in_a_corner else {}
                which["times"] = rng.randint(*((4, 16) if in_a_corner else (1, 12)))
                return [{"at": round(max(meanwhile, end - 1.0), 3), "refuse": {**refusals, **which, "for": 30}}]
            case _:
                return [{"at": end, "setTaints": {"node": node, "taints": [self._taint()]}}]


def _last(steps: list[JsonObject]) -> float:
    return max([LAST_SECOND, *(float(step["at"]) for step in steps)])
