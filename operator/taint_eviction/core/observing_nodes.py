"""Handles facts about nodes: updates the guards, has their pods decided again, and reports what people should know.
``known_nodes`` says what a fact changes about a node and its taints. This module decides on no pod (``deciding``).
"""

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.deciding import Deciding
from taint_eviction.core.effects import Effect, NodeCleared, NodeTainted, TaintRewritten
from taint_eviction.core.facts import NodeGone, NodeSeen, NodesHeard, NodesSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.known_pods import KnownPods
from taint_eviction.core.out_of_service import OutOfServiceNodes
from taint_eviction.core.stray_taints import StrayTaints


class ObservingNodes:
    """Observes facts about nodes.
    ``watched``: the names of the nodes whose pods are watched: tainted now, or tainted recently and not yet released.
    """

    def __init__(
        self,
        nodes: KnownNodes,
        pods: KnownPods,
        breaker: Breaker,
        deciding: Deciding,
        out_of_service: OutOfServiceNodes,
    ) -> None:
        self.watched: set[str] = set()
        self.stray_taints = StrayTaints()
        self._nodes = nodes
        self._pods = pods
        self._breaker = breaker
        self._deciding = deciding
        self._out_of_service = out_of_service
        # Whether all nodes have been listed once: taints found until then are older than this process.
        self._listed = False

    def seen(self, fact: NodeSeen, now: Moment) -> list[Effect]:
        """Observe a node."""
        name, breaker = fact.node.name, self._breaker
        found = not self._listed and name not in self._nodes.known
        change, known = self._nodes.put(fact, now), self._nodes.known.get(name)
        self._out_of_service.observe(name, known)
        if known is not None:
            self.stray_taints.node_seen(known.node, known.sightings, now)
            if known.node is fact.node:
                breaker.unready.see(fact, now)
        if change is None:
            return []
        taints = self._nodes.known[name].sightings
        breaker.node_changed(name, taints)
        if found:
            breaker.node_found(name, taints)
        effects: list[Effect] = [TaintRewritten(name, taint) for taint in change.rewritten]
        if change.is_tainted and not change.was_tainted:
            if name not in self.watched:
                breaker.unlisted[name] = now.at
            self.watched.add(name)
            effects.append(NodeTainted(name))
        if change.was_tainted and not change.is_tainted:
            effects.append(NodeCleared(name))
        return effects + self._deciding.redecide_all(self._pods.on_node(name), now)

    def gone(self, fact: NodeGone, now: Moment) -> list[Effect]:
        """Forget a node that no longer exists."""
        known = self._nodes.drop(fact, now)
        if known is None:
            return []
        self.stray_taints.node_gone(fact.name)
        self._out_of_service.observe(fact.name, None)
        self._breaker.node_changed(fact.name, ())
        self._breaker.unready.forget(fact.name)
        effects: list[Effect] = [NodeCleared(fact.name)] if known.sightings else []
        return effects + self._deciding.redecide_all(self._pods.on_node(fact.name), now)

    def heard(self, fact: NodesHeard, now: Moment) -> list[Effect]:
        """Note how far the watch of nodes has come."""
        self._nodes.hear(fact, now)
        self._breaker.unready.hear(now)
        return self._settle_outages(now)

    def swept(self, fact: NodesSwept, now: Moment) -> list[Effect]:
        """Observe the end of a list of all nodes."""
        self._listed = True
        absent = [NodeGone(known.node.name, known.node.uid) for known in self._nodes.absent(fact)]
        effects = [effect for gone in absent for effect in self.gone(gone, now)]
        return effects + self._settle_outages(now)

    def _settle_outages(self, now: Moment) -> list[Effect]:
        """Let countdowns continue, now that the watch, or a list, has brought all nodes after a gap."""
        effects: list[Effect] = []
        for name in self._nodes.settle_outages():
            self._breaker.node_changed(name, self._nodes.known[name].sightings)
            effects += self._deciding.redecide_all(self._pods.on_node(name), now)
        return effects
