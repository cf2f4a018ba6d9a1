"""Generates races: what holds evictions back comes just when it matters, on nodes where nothing else happens.

Each race starts from a clean state. ``restraining`` contains what can hold evictions back.
"""

from collections.abc import Callable
from typing import Any

from tests.simulation.exploring.restraining import BUDGETS, NAMESPACES, JsonObject, Restraints, key_of


class Races(Restraints):
    """What holds evictions back in one document, and races about it."""

    def races(self, last: float) -> list[JsonObject]:
        """Generate races until ``last``, one after another; with limits, a race about limits comes at the end."""
        rng, steps = self._rng, []
        begin = rng.uniform(0.5, 8.0)
        races = {"pauses": self._pause_amid, "limits": self._many_at_once, "modes": self._asked_in_vain}
        races["breaker"] = self._surge
        kinds = sorted(self.kinds & set(races))
        while kinds and begin < last:
            more = self._race(races[rng.choice(kinds)], begin)
            steps += more
            begin = max(float(step["at"]) for step in more) + rng.uniform(0.5, 3.0)
        return steps + (self._race(self._many_at_once, begin, 3) if "limits" in kinds else [])

    def _race(self, race: Callable[..., list[JsonObject]], begin: float, *more: int) -> list[JsonObject]:
        """Clean up, mostly with the pauses and the breaker as well, and begin a race."""
        begin, steps = round(begin, 3), list[JsonObject]()
        for kind, lets_go in (("pauses", {"resume": "all"}), ("breaker", {"resetBreaker": {}})):
            if kind in self.kinds and self._rng.random() < 0.7:
                steps.append({"at": begin, **lets_go})
        return [*steps, {"at": begin, "untaint": self._yard[0]}, *race(begin, *more)]

    def _pause_amid(self, begin: float) -> list[JsonObject]:
        """Pause while an eviction is in flight that is slow enough for the process to read of the pause."""
        rng, node, pod = self._rng, self._yard[0], self._rng.choice(self._yarders)
        namespace = pod.partition("/")[0] if "/" in pod else NAMESPACES[0]
        scope = rng.choice(({}, {"node": node}, {"namespace": namespace}))
        slow: JsonObject = {"call": ["mark", "readPod"], "pod": pod, "times": 1, "for": 8}
        slow["back"] = round(rng.uniform(2.3, 2.9), 3)
        seconds = rng.choice((0, 0, 3))
        end = round(begin + 1.0 + seconds, 3)
        paused_at = round(max(begin, end + rng.uniform(-0.4, 0.3)), 3)
        action, does = ("pause", scope) if rng.random() < 0.85 else self._scribble(key_of(scope))
        steps: list[JsonObject] = [
            *self._bare(pod, node, begin, f"a for {seconds}"),
            {"at": begin + 0.5, "delay": slow},
            {"at": begin + 1.0, "taint": f"{node} a=1:NoExecute"},
            {"at": paused_at, action: does},
        ]
        return [*steps, {"at": round(paused_at + rng.uniform(4, 15), 3), "resume": "all"}]

    def _bare(self, pod: str, node: str, at: float, *tolerations: str) -> list[JsonObject]:
        return [
            {"at": at, "recreate": {"pod": pod, "node": node}},
            {"at": at, "tolerate": {"pod": pod, "tolerations": list(tolerations)}},
        ]

    def _many_at_once(self, begin: float, flaps: int | None = None) -> list[JsonObject]:
        """Let many pods be due at once, with some evictions so slow that others overtake or catch up with them.

        ``flaps``: how often all evictions are called off and due again; None: at random.
        """
        rng, home = self._rng, self._yard[0]
        flaps = rng.choice((0, 0, 1, 2)) if flaps is None else flaps
        steps = [step for pod in self._yarders for step in self._bare(pod, home, begin)]
        times = rng.choice((1, 1, 2, 3)) * (1 + flaps)
        slow: JsonObject = {"call": ["mark", "readPod"], "times": times, "for": 3 * (1 + flaps)}
        slow["back"] = round(rng.choice((0.9, 1.9, 1.4, 2.9)) + rng.uniform(0, 0.1), 3)
        if rng.random() < 0.8:
            steps.append({"at": begin + 0.9, "delay": slow})
        at = begin + 1.0
        steps.append({"at": at, "taint": f"{home} a=1:NoExecute"})
        for _ in range(flaps):
            off = round(at + rng.choice((0.01, 0.3, 0.6, 1.2, 2.5)), 3)
            at = round(off + rng.uniform(0.5, 3), 3)
            steps += [{"at": off, "untaint": home}, {"at": at, "taint": f"{home} a=1:NoExecute"}]
        return [*steps, {"at": round(at + rng.uniform(4, 18), 3), "writeNode": home}]

    def _asked_in_vain(self, begin: float) -> list[JsonObject]:
        """Let a budget refuse, while events happen that may cause another request; perhaps delete the budget later."""
        rng, home = self._rng, self._yard[0]
        pods = rng.sample(self._yarders, min(len(self._yarders), rng.choice((1, 2, 5))))
        steps: list[JsonObject] = [step for pod in pods for step in self._bare(pod, home, begin)]
        no = {"name": BUDGETS[0], "namespace": NAMESPACES[0], "selector": {"matchLabels": {}}, "maxUnavailable": 0}
        steps += [{"at": begin, "deleteBudget": BUDGETS[0]}, {"at": begin, "createBudget": no}]
        at = begin + 1.0
        steps.append({"at": at, "taint": f"{home} a=1:NoExecute"})
        for _ in range(rng.choice((1, 2, 4))):
            at = round(at + rng.choice((0.02, 0.4, 1.3, 3.1, 4.9)), 3)
            turn = rng.choice(("setTaints", "setTaints", "writeNode", "tolerate", "changePolicy", "relist"))
            does: dict[str, Any] = {
                "setTaints": {"node": home, "taints": [f"{rng.choice('ab')}={rng.choice('12')}:NoExecute"]},
                "writeNode": home,
                "tolerate": {"pod": rng.choice(pods), "tolerations": [f"a for {rng.choice((0, 1, 5))}"]},
                "changePolicy": self._rules() if "rules" in self.kinds else [],
                "relist": {"watch": rng.choice(("nodes", "pods"))},
            }
            steps.append({"at": at, turn: does[turn]})
        if rng.random() < 0.5:
            steps.append({"at": round(at + rng.uniform(0.5, 12.0), 3), "deleteBudget": BUDGETS[0]})
        return steps

    def _surge(self, begin: float) -> list[JsonObject]:
        """Taint several nodes within a short time or one after another; then mostly restart all processes."""
        rng, nodes, soon = self._rng, self._yard, self._rng.random() < 0.6
        apart = rng.choice((0.0, 0.1, 0.4, 3.0)) if soon else min(self._window, 25.0) + 1.0
        steps: list[JsonObject] = []
        for index, node in enumerate(nodes):
            pod = self._yarders[index % len(self._yarders)]
            tolerations = rng.choice(((), (), ("a for 20",))) if soon else ("a for 120",)
            steps += self._bare(pod, node, begin, *tolerations)
            steps.append({"at": round(begin + 1.0 + index * apart, 3), "taint": f"{node} a=1:NoExecute"})
        lasts = 4.0
        if not soon or rng.random() < 0.9:
            late = self._window + 3.0
            seconds = rng.choice((0.3, 2.5, *(late,) * 5)) if soon else 2.0
            died_at = round(min(float(steps[-1]["at"]) + seconds, begin + 65.0), 3)
            crash = {"after": rng.choice((0, 1, 3))}
            steps += [{"at": died_at, "restart": {**crash, "replica": one}} for one in range(1, self._replicas + 1)]
            # Until there is a leader again.
            lasts = 30.0
        end = round(float(steps[-1]["at"]) + lasts, 3)
        return [*steps, *({"at": end, "untaint": node} for node in nodes)]
