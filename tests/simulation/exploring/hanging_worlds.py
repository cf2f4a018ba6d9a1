"""Generates environments in which much hangs, and evictions must be punctual all the same.

Lists of many nodes' pods hang. Part of ``generator``, with a random generator of its own, so that the rest of a
document is the same as without.
"""

import random

from tests.simulation.exploring.quarters import Quarter, Quarters
from tests.simulation.exploring.restraining import JsonObject

# All restarts and slow elections are over this long after the last step.
_CALM_SECONDS = 45.0
_TO_THE_END = 900
_NODES = 40


class HangingWorlds(Quarters):
    """The environments of one document in which evictions must be punctual."""

    def __init__(self, seed: int, settings: JsonObject) -> None:
        super().__init__(seed, settings)
        self._rng = random.Random(f"hanging worlds {seed}")

    def quarter(self, last: float) -> Quarter:
        """Generate some environments; ``last``: nothing else happens after that second."""
        rng, quarter = self._rng, Quarter()
        begin = round(last + _CALM_SECONDS, 3)
        for world in rng.sample((self._lists,), rng.choice((0, 1))):
            quarter += world(round(begin + rng.uniform(1.0, 20.0), 3))
        # Other environments may have let the watch of nodes lag.
        quarter.steps.append({"at": round(begin - 15.0, 3), "lag": {"watch": "nodes", "by": 0}})
        return quarter

    def _lists(self, begin: float) -> Quarter:
        """Let the lists of many tainted nodes' pods hang when another node is tainted.

        The watch of nodes may be cut for a second meanwhile, so that the nodes must be listed.
        """
        rng, names = self._rng, f"listed-{{1..{_NODES}}}"
        # Each node has a watch of its own, which begins with a list.
        self._settings["wholeClusterFrom"] = 300
        hang: JsonObject = {"call": ["listPods", "listCachedPods"], "node": "listed-*", "for": _TO_THE_END}
        steps: list[JsonObject] = [{"at": -1.0, "hang": hang}]
        if rng.random() < 0.5:
            steps.append({"at": round(begin - rng.uniform(0.1, 0.9), 3), "cut": {"watch": "nodes", "for": 1}})
        steps.append({"at": begin, "taint": "unlisted-1 a=1:NoExecute"})
        nodes: list[JsonObject | str] = [{"name": names, "taints": ["maintenance=now:NoExecute"]}, "unlisted-1"]
        return Quarter(nodes, [{"name": "unlisted-1", "nodeName": "unlisted-1"}], steps=steps)
