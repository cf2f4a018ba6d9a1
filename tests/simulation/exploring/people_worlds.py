"""Generates what several people and tools write into the ConfigMap with pauses and the breaker, without talking.

Two people pause and resume the same scope, for some time or until further notice. A tool applies older copies again:
of pauses, which may have ended long ago, and of a breaker that somebody opened, whether or not one is configured. Part
of ``generator``, with a random generator of its own, so that the rest of a document is the same as without.
"""

import random

from tests.simulation.exploring.quarters import Quarter, Quarters
from tests.simulation.exploring.restraining import JsonObject, key_of

_SHARE = 0.5
# Second 0 of a scenario is midnight.
_OLD_DATES = ("2029-12-24T12:00:00Z", "2029-12-31T23:00:00Z")
_LONG_AGO = "2028-01-01T00:00:00Z"
_OPENED = '{{"open": true, "since": "{}", "cause": "by hand"}}'
_CLOSED = '{{"open": false, "reset": "{}"}}'
_PAUSED = '{{"since": "{}", "by": "gitops"}}'
_PAUSED_UNTIL = '{{"since": "{}", "until": "{}", "by": "gitops"}}'
# How long before or after the end of a pause somebody else writes.
_BESIDE = (-0.3, -0.02, 0.0, 0.006, 0.011, 0.3, 1.0)


class PeopleWorlds(Quarters):
    """The environments of one document in which evictions need not be punctual.

    ``dates_differ``: some answers have a wrong date. One that is behind by hours counts for minutes.
    """

    def __init__(self, seed: int, settings: JsonObject, *, dates_differ: bool) -> None:
        super().__init__(seed, settings)
        self._rng = random.Random(f"people {seed}")
        self._dates_differ = dates_differ

    def quarter(self, begin: float, *, breaker: bool) -> Quarter:
        """Generate some environments, in most documents; ``breaker``: the document has a breaker.

        It comes after ``begin``, when everything else but faults that last has ended.
        """
        rng, quarter = self._rng, Quarter()
        # One more tainted node may be a surge.
        worlds = [self._old_latch] if breaker else [self._old_latch, self._two_pausers, self._old_pause]
        rng.shuffle(worlds)
        for world in worlds:
            if rng.random() >= _SHARE:
                continue
            quarter += world(round(begin, 3))
            begin = max(float(step["at"]) for step in quarter.steps) + 2.0
        return quarter

    def _two_pausers(self, begin: float) -> Quarter:
        """Let one person pause for some seconds and another one pause or resume the same scope when that ends."""
        rng, node = self._rng, "shared-1"
        scope: JsonObject = rng.choice(({"node": node}, {"namespace": "shared"}))
        first, later = rng.choice((4, 6)), rng.choice((8, 12))
        ends = round(begin + first, 3)
        steps: list[JsonObject] = [
            {"at": begin, "pause": {**scope, "for": first, "reason": "the first one"}},
            {"at": round(begin + rng.uniform(0.5, 3.0), 3), "taint": f"{node} a=1:NoExecute"},
        ]
        again = round(ends + rng.choice(_BESIDE), 3)
        if rng.random() < 0.5:
            # The leader is just removing the pause that has ended.
            slow = {"call": "writeControlState", "by": round(rng.uniform(0.3, 4.0), 3), "times": 1, "for": 6}
            steps.append({"at": round(ends - 0.5, 3), "delay": slow})
        second: JsonObject = {**scope, "reason": "the second one"}
        if rng.random() < 0.6:
            second["for"] = later
        steps.append({"at": again, "pause": second})
        if rng.random() < 0.5:
            steps.append({"at": round(again + rng.choice((0.01, 2.0)), 3), "pause": {**scope, "for": 1}})
        # A process whose API server is behind does not know when the pause ends.
        if "for" not in second or self._dates_differ or rng.random() < 0.3:
            steps.append({"at": round(again + later, 3), "resume": scope})
        pods: list[JsonObject] = [
            {"name": f"shared-{number}", "namespace": "shared", "nodeName": node, "tolerations": [f"a for {seconds}"]}
            for number, seconds in enumerate((0, first))
        ]
        return Quarter([node], pods, steps=steps)

    def _old_pause(self, begin: float) -> Quarter:
        """Let a tool apply an old copy of a pause again, which may have ended long ago."""
        rng, node = self._rng, "copied-1"
        scope = {"node": node}
        has_ended = rng.random() < 0.6
        until = _OLD_DATES[0] if self._dates_differ else rng.choice(_OLD_DATES)
        old = _PAUSED_UNTIL.format(_LONG_AGO, until) if has_ended else _PAUSED.format(_LONG_AGO)
        steps: list[JsonObject] = [
            {"at": begin, "pause": scope},
            {"at": round(begin + 1.0, 3), "taint": f"{node} a=1:NoExecute"},
            {"at": round(begin + rng.uniform(3.0, 8.0), 3), "scribble": {"key": key_of(scope), "value": old}},
        ]
        if not has_ended:
            steps.append({"at": round(begin + 14.0, 3), "resume": scope})
        return Quarter([node], [{"name": node, "nodeName": node}], steps=steps)

    def _old_latch(self, begin: float) -> Quarter:
        """Let a tool apply an old copy of an open breaker again after a reset, and later of a closed one."""
        rng, node = self._rng, "latched-1"
        old = _OPENED.format(_LONG_AGO)
        steps: list[JsonObject] = [
            {"at": begin, "resetBreaker": {}},
            {"at": round(begin + 4.0, 3), "scribble": {"key": "breaker", "value": old}},
            {"at": round(begin + 8.0, 3), "taint": f"{node} a=1:NoExecute"},
        ]
        closed: JsonObject = {"scribble": {"key": "breaker", "value": _CLOSED.format(rng.choice(_OLD_DATES))}}
        if rng.random() < 0.5:
            closed = {"resetBreaker": {}}
        steps.append({"at": round(begin + rng.uniform(14.0, 20.0), 3), **closed})
        return Quarter([node], [{"name": node, "nodeName": node}], steps=steps)
