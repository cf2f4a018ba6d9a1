"""Quarters: nodes and pods that nothing else in a generated document touches, so that events there have one cause.

``worlds``, ``slow_worlds`` and ``breaker_worlds`` contain these events.
"""

import random
from dataclasses import dataclass, field

from tests.simulation.exploring.restraining import JsonObject


@dataclass
class Quarter:
    """The part that one environment adds to a document."""

    nodes: list[JsonObject | str] = field(default_factory=list)
    pods: list[JsonObject] = field(default_factory=list)
    budgets: list[JsonObject] = field(default_factory=list)
    rules: list[JsonObject] = field(default_factory=list)
    steps: list[JsonObject] = field(default_factory=list)

    def __iadd__(self, other: "Quarter") -> "Quarter":
        """Add another quarter's content."""
        self.nodes += other.nodes
        self.pods += other.pods
        self.budgets += other.budgets
        self.rules += other.rules
        self.steps += other.steps
        return self

    def join(self, given: JsonObject, settings: JsonObject, steps: list[JsonObject]) -> None:
        """Add the quarter to a document, without its steps; its rules stay when the document's policy changes."""
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
    """Generates quarters for one document with these ``settings``, with a random generator of its own.

    So the rest of a document is the same as without quarters.
    """

    def __init__(self, seed: int, settings: JsonObject) -> None:
        self._rng = random.Random(f"worlds {seed}")
        self._settings = settings

    def _misdated(self, begin: float) -> Quarter:
        """Let some answers, or one API server of three, have a wrong date; then set a taint."""
        rng, node, seconds = self._rng, "misdated-1", self._rng.choice((5, 30))
        off = rng.choice((7200, 7200, 60, -7200))
        begin = round(begin, 3)
        # The wrong servers date no objects: a process that restarts knows only what the objects say.
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
        """Draw a delay shorter than the timeout, for the way to the server, the way back, or both."""
        rng = self._rng
        seconds = rng.uniform(least, min(most, self._settings["callTimeout"] - 0.1))
        there = round(seconds * rng.choice((0.0, 0.5, 1.0)), 3)
        return {"by": there, "back": round(seconds - there, 3)}
