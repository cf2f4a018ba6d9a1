"""What happens to each pod, and what would happen to it if nodes and pods were changed.
The rules are the controller's, but no effect is carried out: ``KnownNodes`` and ``KnownPods`` keep the sightings,
``decide`` decides. The forecast observes the cluster as it is and then, at the instant of the changes, as it would be:
for a taint that stays, the running countdown continues; a new taint starts one. It assumes that nobody else replaces,
moves or writes anything.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from taint_eviction.core.decision import Decision, DecisionPolicy, Evict
from taint_eviction.core.facts import NodeGone, NodeSeen, PodSeen
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.objects import Node, Pod, PodRef, Taint, Toleration
from taint_eviction.core.pods import KnownPods, PodRecord
from taint_eviction.core.policy import EvictionPolicy, first_unpaused, handling_of
from taint_eviction.core.reconciler import decide_on, policy_on


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is changed, all at one instant ``at``.

    ``taints``: by node, its complete new list of taints; ``deleted_nodes``: their names; ``tolerations``: by pod, its
    complete new list.
    """

    at: float
    taints: Mapping[str, tuple[Taint, ...]]
    deleted_nodes: frozenset[str] = frozenset()
    tolerations: Mapping[PodRef, tuple[Toleration, ...]] | None = None

    @property
    def empty(self) -> bool:
        """Return whether nothing is changed."""
        return not (self.taints or self.deleted_nodes or self.tolerations)


@dataclass(frozen=True, slots=True)
class PodForecast:
    """What happens to one pod: ``decision`` with the changes, ``unchanged`` without them.
    ``eviction``: the policy that applies to the pods of its node. ``orphaned``: its node was deleted; the pod garbage
    collector then deletes the pod. ``taken_out``: the changes put its node out of service, so that the pod leaves past
    budgets, limits and an open breaker.
    """

    pod: Pod
    decision: Decision
    unchanged: Decision
    eviction: EvictionPolicy
    orphaned: bool = False
    taken_out: bool = False

    @property
    def leaves_at(self) -> float | None:
        """The instant at which the pod leaves; None if it stays."""
        return self.decision.fire_at if isinstance(self.decision, Evict) else None

    @property
    def anyway(self) -> bool:
        """Return whether the pod also leaves without the changes, no later, and held by the same."""
        at = self.leaves_at
        if at is None or self.taken_out:
            return False
        return isinstance(self.unchanged, Evict) and self.unchanged.fire_at <= at


def forecast(
    nodes: Iterable[Node],
    pods: Sequence[Pod],
    what_if: WhatIf,
    now: Moment,
    policy: DecisionPolicy,
    eviction: EvictionPolicy,
) -> list[PodForecast]:
    """Return what happens to each pod, in the order given. Of several pods with one name, the newest counts.
    If a rule of ``eviction`` pauses a pod, the pod leaves when another rule applies that does not pause it; if all its
    rules pause it, the pod is due at its deadline, and stays.
    """
    gone = GoneObjects()
    known_nodes, known_pods = KnownNodes(gone), KnownPods(gone)
    for node in nodes:
        known_nodes.upsert(NodeSeen(node), now)
    for pod in pods:
        known_pods.upsert(PodSeen(pod), now)
    policies = _by_node(known_nodes, eviction)
    unchanged = {
        record.ref: _decide(known_nodes, record, policy, policies.get(record.node_name, eviction))
        for record in known_pods.known.values()
    }
    _change(known_nodes, known_pods, what_if, now)
    changed_policies = _by_node(known_nodes, eviction)
    forecasts = []
    for pod in pods:
        before = unchanged.get(pod.ref)
        if before is None:
            continue
        record = known_pods.known[pod.ref.key]
        unchanged_policy = policies.get(record.node_name, eviction)
        if _leaves_before(what_if.at, before, record.pod, unchanged_policy) and now.at < what_if.at:
            # The pod leaves before anything is changed.
            forecasts.append(PodForecast(record.pod, before, before, unchanged_policy))
            continue
        orphaned = record.pod.node_name in what_if.deleted_nodes
        changed_policy = changed_policies.get(record.node_name, eviction)
        decision = _decide(known_nodes, record, policy, changed_policy)
        taken_out = changed_policy.out_of_service and not unchanged_policy.out_of_service
        forecasts.append(PodForecast(record.pod, decision, before, changed_policy, orphaned, taken_out))
    return forecasts


def _leaves_before(at: float, decision: Decision, pod: Pod, eviction: EvictionPolicy) -> bool:
    if not isinstance(decision, Evict) or decision.fire_at >= at:
        return False
    return not handling_of(decision.deciding, pod, eviction, decision.fire_at).paused


def _change(nodes: KnownNodes, pods: KnownPods, what_if: WhatIf, now: Moment) -> None:
    then = Moment(what_if.at, now.epoch_of(what_if.at))
    for fact in told_of_nodes(what_if, nodes, then):
        if isinstance(fact, NodeSeen):
            nodes.upsert(fact, then)
        else:
            nodes.drop(fact, then)
    for ref in what_if.tolerations or {}:
        record = pods.find(ref)
        if record is not None:
            pods.upsert(PodSeen(pod_after(record.pod, what_if)), then)


def told_of_nodes(what_if: WhatIf, nodes: KnownNodes, then: Moment) -> Iterator[NodeSeen | NodeGone]:
    """Yield what is told of the nodes that are changed, at the instant of the changes."""
    for name, taints in what_if.taints.items():
        # The writer of the list of taints owns the list from then on.
        yield NodeSeen(replace(nodes.known[name].node, taints=taints, taints_written_at=then.server_epoch))
    yield from (NodeGone(name) for name in what_if.deleted_nodes)


def pod_after(pod: Pod, what_if: WhatIf) -> Pod:
    """Return a pod as it is after the changes."""
    tolerations = (what_if.tolerations or {}).get(pod.ref)
    return pod if tolerations is None else replace(pod, tolerations=tolerations)


def _by_node(nodes: KnownNodes, eviction: EvictionPolicy) -> dict[str, EvictionPolicy]:
    return {name: policy_on(known, eviction) for name, known in nodes.known.items()}


def _decide(nodes: KnownNodes, record: PodRecord, policy: DecisionPolicy, eviction: EvictionPolicy) -> Decision:
    decision = decide_on(record.pod, record.bound, nodes.known.get(record.node_name), policy, eviction)
    return first_unpaused(decision, record.pod, eviction) if isinstance(decision, Evict) else decision


# Changes


def add_taint(taints: tuple[Taint, ...], added: Taint) -> tuple[Taint, ...]:
    """Add a taint as ``kubectl taint --overwrite`` does; one with the same key, effect and value stays as it is."""
    for taint in taints:
        if (taint.key, taint.effect, taint.value) == (added.key, added.effect, added.value):
            return taints
    return (*(taint for taint in taints if (taint.key, taint.effect) != (added.key, added.effect)), added)


def remove_taints(taints: tuple[Taint, ...], key: str, effect: str) -> tuple[Taint, ...]:
    """Remove the taints of this key, and of this effect unless that is ""."""
    return tuple(taint for taint in taints if taint.key != key or (effect and taint.effect != effect))


def add_toleration(tolerations: Sequence[Toleration], added: Toleration) -> tuple[Toleration, ...]:
    """Add a toleration as the API allows for a running pod: at the end of the list, or as new seconds of an existing
    one.
    """

    def same(other: Toleration) -> bool:
        return replace(other, toleration_seconds=None) == replace(added, toleration_seconds=None)

    if any(same(other) for other in tolerations):
        return tuple(added if same(other) else other for other in tolerations)
    return (*tolerations, added)
