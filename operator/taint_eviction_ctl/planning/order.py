"""Plugins of a plan that leave before pods of their nodes that may need them."""

from collections import defaultdict
from collections.abc import Iterable

from taint_eviction.core.objects import Pod
from taint_eviction.core.policy import tier_in
from taint_eviction.core.tiers import Tier, tier_of
from taint_eviction_ctl.planning.planned_pod import PlannedPod


def plugins_before_others(pods: Iterable[PlannedPod]) -> list[tuple[PlannedPod, int]]:
    """Return the critical DaemonSets' pods, storage and device plugins among them, that leave before pods of earlier
    tiers of their node that stay or leave later, with how many these are.
    """
    found = []
    for here in _by_node(pods).values():
        others = [pod for pod in here if _tier(pod) is not Tier.CRITICAL_DAEMONSETS and _needs_plugins(pod.facts.pod)]
        for plugin in here:
            if _tier(plugin) is not Tier.CRITICAL_DAEMONSETS or plugin.leaves_at is None or plugin.paused_by:
                continue
            at = plugin.goes_at or plugin.leaves_at
            later = sum(pod.goes_at is None or pod.goes_at > at for pod in others)
            if later:
                found.append((plugin, later))
    return found


def _needs_plugins(pod: Pod) -> bool:
    return not (pod.mirror or pod.finished)


def _tier(pod: PlannedPod) -> Tier:
    return tier_of(pod.facts.pod) if pod.handling is None else tier_in(pod.facts.pod, pod.handling)


def _by_node(pods: Iterable[PlannedPod]) -> dict[str, list[PlannedPod]]:
    found: dict[str, list[PlannedPod]] = defaultdict(list)
    for pod in pods:
        if pod.facts.pod.node_name is not None:
            found[pod.facts.pod.node_name].append(pod)
    return found
