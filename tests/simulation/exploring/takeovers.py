"""Lets countdowns be taken over while processes end, start and become leaders, in a small share of the seeds.

Nodes are tainted, clean for a moment or for long, and tainted again, while replicas are restarted around these moments.
The built-in controller may miss a moment in which a node was clean, but none of 10 s. In most documents a pause holds
all evictions: who goes then was evicted by the built-in controller. Part of ``generator``, with a random generator of
its own, so that other documents are the same as before this module existed.
"""

import random
from typing import Any

JsonObject = dict[str, Any]

_SHARE, _SALT = 0.06, "taken over 2"
_SECONDS = (30, 45, 60, 90, 120, 200)
_STAYS = (0.5, 3.0, 15.0, 40.0)
# How long a node is clean; the built-in controller may miss the first of these moments.
_MISSED, _NOTICED = (0.5, 3.0, 6.0, 9.0), (12.0, 30.0, 80.0, 150.0)
# So much earlier it begins to miss what happens, and so much later it ends.
_BESIDE_MISSED = 0.2
# When a process ends or something else happens, beside a change of a node.
_BESIDE = (-4.0, -1.0, -0.02, -0.001, 0.0, 0.006, 0.021, 0.3, 1.0, 2.0, 4.0, 9.0, 20.0)
_AWAY = (0, 0, 1, 3, 10, 40, 600)


def taken_over(seed: int) -> JsonObject | None:
    """Return a document about countdowns that are taken over, in a small share of the seeds; None for the others."""
    rng = random.Random(f"{_SALT} {seed}")
    return _TakeoverAuthor(rng, seed).document() if rng.random() < _SHARE else None


class _TakeoverAuthor:
    def __init__(self, rng: random.Random, seed: int) -> None:
        self._rng = rng
        self._seed = seed
        self._replicas = rng.choice((1, 1, 2, 2, 3))
        self._steps: list[JsonObject] = []
        self._pods: list[JsonObject] = []
        self._instants: list[float] = []

    def document(self) -> JsonObject:
        """Generate the whole document."""
        rng = self._rng
        # All replicas start while a node is clean that was tainted before, and nothing else happens.
        starts_alone = rng.random() < 0.25
        nodes = ["node-1", "node-2"][: 1 if starts_alone else rng.choice((1, 1, 2))]
        for node in nodes:
            self._add_pods(node)
            if starts_alone:
                self._start_between(node)
            else:
                self._live(node, may_be_missed=len(nodes) == 1)
                self._disturb()
        return {
            "about": f"Generated from seed {self._seed}: taken over.",
            "name": f"explored-{self._seed}",
            "settings": {
                "adopt": True,
                "builtIn": "1.36",
                "defaultTolerationSeconds": None,
                "replicas": self._replicas,
                "resyncInterval": rng.choice((20, 60, 300)),
                "linger": rng.choice((1, 5, 60)),
            },
            "given": {
                "nodes": nodes,
                "pods": self._pods,
                **({"controlState": {"pause": True}} if rng.random() < 0.75 else {}),
            },
            "timeline": sorted(self._steps, key=lambda step: float(step["at"])),
            "expect": {},
        }

    def _disturb(self) -> None:
        """Restart replicas, let owners edit their pods, and perhaps one thing fail."""
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2, 3))):
            restart = {"replica": rng.randint(1, self._replicas), "after": rng.choice(_AWAY)}
            self._steps.append({"at": self._beside(), "restart": restart})
        if rng.random() < 0.3:
            self._steps.append({"at": self._beside(), **self._trouble()})
        for _ in range(rng.choice((0, 0, 1, 2))):
            self._steps.append({"at": self._beside(), "tolerate": self._edit()})
        if rng.random() < 0.2:
            self._steps.append({"at": self._beside(), "recreate": rng.choice(self._pods)["name"]})

    def _add_pods(self, node: str) -> None:
        rng = self._rng
        for number in range(rng.choice((1, 2))):
            tolerations = [self._tolerates("a"), *([self._tolerates("b")] if rng.random() < 0.3 else [])]
            self._pods.append({"name": f"{node}-web-{number}", "nodeName": node, "tolerations": tolerations})

    def _tolerates(self, key: str) -> JsonObject:
        return {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": self._rng.choice(_SECONDS),
        }

    def _live(self, node: str, *, may_be_missed: bool) -> None:
        """Let a node be tainted, clean and tainted again, and at last tainted until every timer has ended."""
        rng, at = self._rng, round(self._rng.uniform(1.0, 30.0), 3)
        # Always the same ones: what the built-in controller has missed, it does not learn later.
        all_tolerate_b = all(len(pod["tolerations"]) > 1 for pod in self._pods if pod["nodeName"] == node)
        taints = "a=1:NoExecute b=1:NoExecute" if all_tolerate_b and rng.random() < 0.5 else "a=1:NoExecute"
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            self._taint(node, taints, at)
            clean_at = round(at + rng.choice(_STAYS) + rng.uniform(0.0, 3.0), 3)
            gap = rng.choice(_MISSED if rng.random() < 0.5 else _NOTICED)
            if gap in _MISSED and may_be_missed and rng.random() < 0.7:
                self._miss(clean_at, gap)
            at = self._clean(node, clean_at, gap)
        self._taint(node, taints, at)
        self._steps.append({"at": round(at + max(_SECONDS) + 30.0, 3), "untaint": node})

    def _start_between(self, node: str) -> None:
        """Let all replicas start in a moment that the built-in controller misses.

        The timer that they have not seen ends before the one that they have seen would be late.
        """
        rng, at = self._rng, round(self._rng.uniform(1.0, 30.0), 3)
        self._taint(node, "a=1:NoExecute", at)
        seconds = max(pod["tolerations"][0]["tolerationSeconds"] for pod in self._pods)
        clean_at, gap = round(at + 0.4 * seconds + rng.uniform(0.0, 3.0), 3), rng.choice(_MISSED)
        self._miss(clean_at, gap)
        start_at = round(clean_at + rng.uniform(0.05, gap), 3)
        for replica in range(1, self._replicas + 1):
            away = round(rng.uniform(0.0, min(start_at - 0.5, 40.0)), 3)
            self._steps.append({"at": round(start_at - away, 3), "restart": {"replica": replica, "after": away}})
        self._taint(node, "a=1:NoExecute", self._clean(node, clean_at, gap))

    def _miss(self, clean_at: float, gap: float) -> None:
        lost = {"watch": "nodes", "for": round(gap + 2 * _BESIDE_MISSED, 3), "replica": "built-in"}
        self._steps.append({"at": round(clean_at - _BESIDE_MISSED, 3), "lose": lost})

    def _clean(self, node: str, at: float, gap: float) -> float:
        """Let a node be clean, and return when it is tainted again."""
        self._steps.append({"at": at, "untaint": node})
        self._instants.append(at)
        return round(at + gap, 3)

    def _taint(self, node: str, taints: str, at: float) -> None:
        self._steps.append({"at": at, "taint": f"{node} {taints}"})
        self._instants.append(at)

    def _edit(self) -> JsonObject:
        """Let an owner change the seconds of one toleration, or remove them."""
        rng, pod = self._rng, self._rng.choice(self._pods)
        changed = rng.randrange(len(pod["tolerations"]))
        tolerations = [dict(each) for each in pod["tolerations"]]
        tolerations[changed].pop("tolerationSeconds")
        if rng.random() < 0.7:
            tolerations[changed]["tolerationSeconds"] = rng.choice(_SECONDS)
        return {"pod": pod["name"], "tolerations": tolerations}

    def _trouble(self) -> JsonObject:
        rng, replica = self._rng, self._rng.randint(1, self._replicas)
        return rng.choice(
            (
                {"cut": {"watch": "nodes", "for": rng.choice((0, 5, 20)), "replica": replica}},
                {"cut": {"watch": "pods", "for": rng.choice((0, 5, 20)), "replica": replica}},
                {"relist": {"watch": rng.choice(("nodes", "pods")), "replica": replica}},
                {"freeze": {"for": rng.choice((2, 12, 30)), "replica": replica}},
                {"partition": {"for": rng.choice((2, 12, 30)), "replica": replica}},
                {"refuse": {"call": "adopt", "for": rng.choice((3, 20)), "status": 500}},
                {"hang": {"call": "adopt", "times": rng.choice((1, 2))}},
                {"refuse": {"call": "listPods", "for": rng.choice((3, 10)), "status": 503}},
                {"restart": {"replica": "built-in", "after": rng.choice((0, 5))}},
            )
        )

    def _beside(self) -> float:
        """Return a moment beside a change of a node, or any moment."""
        rng = self._rng
        if rng.random() < 0.25:
            return round(rng.uniform(0.5, max(self._instants) + 60.0), 3)
        return round(max(0.5, rng.choice(self._instants) + rng.choice(_BESIDE)), 3)
