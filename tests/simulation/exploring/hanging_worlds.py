"""Generates environments in which much hangs, and evictions must be punctual all the same.

Lists of many nodes' pods hang, retries of many strangers do, or the taking back of a condition does. Part of
``generator``, with a random generator of its own, so that the rest of a document is the same as without.
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
        for world in rng.sample((self._lists, self._strangers, self._taken_back), rng.choice((2, 3))):
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

    def _strangers(self, begin: float) -> Quarter:
        """Let the retries of many deletions hang when another pod's first deletion is refused for a moment."""
        rng, node, other = self._rng, "strange-1", "native-1"
        number = 3 * self._settings["workers"]
        self._settings["callTimeout"] = 10
        refused: JsonObject = {"call": "delete", "pod": "strange-*", "status": 503, "times": number, "for": 20}
        steps: list[JsonObject] = [
            {"at": begin, "refuse": refused},
            {"at": begin, "hang": {"call": "delete", "pod": "strange-*", "for": 40}},
            {"at": begin, "refuse": {"call": "delete", "pod": other, "status": 503, "times": 1}},
            {"at": begin, "taint": f"{node} a=1:NoExecute"},
            {"at": round(begin + rng.uniform(3.0, 12.0), 3), "taint": f"{other} a=1:NoExecute"},
        ]
        pods: list[JsonObject] = [{"name": f"strange-{{1..{number}}}", "nodeName": node}]
        return Quarter([node, other], [*pods, {"name": other, "nodeName": other}], steps=steps)

    def _taken_back(self, begin: float) -> Quarter:
        """Let the taking back of a condition hang when the pod is due again."""
        rng, node = self._rng, "back-1"
        again = round(begin + rng.uniform(5.5, 9.5), 3)
        steps: list[JsonObject] = [
            {"at": begin, "delay": {"call": "mark", "pod": node, "back": 1.5, "times": 1, "for": 2}},
            {"at": begin, "hang": {"call": "unmark", "pod": node, "for": 60, "tookEffect": rng.random() < 0.5}},
            {"at": begin, "taint": f"{node} a=1:NoExecute"},
            {"at": round(begin + 0.5, 3), "untaint": node},
            {"at": again, "taint": f"{node} a=1:NoExecute"},
        ]
        return Quarter([node], [{"name": node, "nodeName": node}], steps=steps)
