"""Quarters: nodes and pods that nothing else of a made-up document touches, so that what happens there has one reason.

Not here: what does happen there (``worlds``, ``slow_worlds``, ``breaker_worlds``).
"""

import random
from dataclasses import dataclass, field

from tests.simulation.exploring.restraining import JsonObject


@dataclass
class Quarter:
    """What a world adds to a document."""

    nodes: list[JsonObject | str] = field(default_factory=list)
    pods: list[JsonObject] = field(default_factory=list)
    budgets: list[JsonObject] = field(default_factory=list)
    rules: list[JsonObject] = field(default_factory=list)
    steps: list[JsonObject] = field(default_factory=list)

    def __iadd__(self, other: "Quarter") -> "Quarter":
        """Take in another one."""
        self.nodes += other.nodes
        self.pods += other.pods
        self.budgets += other.budgets
        self.rules += other.rules
        self.steps += other.steps
        return self

    def join(self, given: JsonObject, settings: JsonObject, steps: list[JsonObject]) -> None:
        """Give a document what this has besides its steps; these rules stay whatever becomes of others."""
        given["nodes"] += self.nodes
        given["pods"] += self.pods
        if self.budgets:
            given["budgets"] = [*given.get("budgets", ()), *self.budgets]
        if self.rules:
            settings["policy"] = [*self.rules, *settings.get("policy", ())]
            for step in steps:
                if "changePolicy" in step:
                    step["changePolicy"] = [*self.rules, *step["changePolicy"]]


class Quarters:
    """Makes them up for one document with these ``settings``, from a stream of chances of its own.

    So documents stay what they were without them.
    """

    def __init__(self, seed: int, settings: JsonObject) -> None:
        self._rng = random.Random(f"worlds {seed}")
        self._settings = settings

    def _misdated(self, begin: float) -> Quarter:
        """Let answers, or one API server of three, or all of them, have a wrong date; then a taint is set."""
        rng, node, seconds = self._rng, "misdated-1", self._rng.choice((5, 30))
        off = rng.choice((7200, 7200, 60, -7200))
        begin = round(begin, 3)
        # No writes are dated by those that are wrong: whoever begins anew can know no better than objects tell.
        wrong: JsonObject = rng.choice(
            (
                {"misdate": {"call": "all", "by": off, "times": rng.choice((1, 3))}},
                {"misdate": {"call": "all", "by": off, "times": rng.choice((1, 3))}},
                {"stepServerClock": {"by": off, "server": 2}},
                {"stepServerClock": {"by": off, "server": 3}},
            )
        )
        steps: list[JsonObject] = [
            {"at": begin, **wrong},
            {"at": round(begin + rng.uniform(2.0, 15.0), 3), "taint": f"{node} a=1:NoExecute"},
        ]
        if "stepServerClock" in wrong:
            self._settings["apiServers"] = 3
        pods: list[JsonObject] = [{"name": "misdated-1", "nodeName": node, "tolerations": [f"a for {seconds}"]}]
        return Quarter([node], pods, steps=steps)

    def _slow(self, least: float, most: float) -> JsonObject:
        """Make up how a call takes longer, but less than the timeout: on its way there, or back, or both."""
        rng = self._rng
        seconds = rng.uniform(least, min(most, self._settings["callTimeout"] - 0.1))
        there = round(seconds * rng.choice((0.0, 0.5, 1.0)), 3)
        return {"by": there, "back": round(seconds - there, 3)}
