"""The order in which the pods of a plan leave their nodes, and plugins that leave before pods that may need them.

The rules are those of ``core.leaving_order``. A plan assumes that a pod is gone as soon as it leaves, so a pod that
waits leaves then at the earliest; grace periods and pods that do not end make it later.
"""

from collections import defaultdict
from collections.abc import Iterable

from taint_eviction.core.instants import Moment
from taint_eviction.core.leaving_order import PAST_GRACE_SECONDS, UNREADY_SECONDS
from taint_eviction.core.objects import Node, Pod
from taint_eviction.core.policy import tier_in
from taint_eviction.core.tiers import Order, Tier, tier_of
from taint_eviction_ctl.planning.planned_pod import PlannedOrder, PlannedPod


def add_order(pods: Iterable[PlannedPod], nodes: dict[str, Node], now: Moment) -> None:
    """Note for each pod that leaves when it leaves in order, and for whom it waits."""
    for name, here in _by_node(pods).items():
        ahead: list[tuple[PlannedPod, float]] = []
        leaving = [pod for pod in here if pod.leaves_at is not None or pod.facts.pod.terminating]
        for pod in sorted(leaving, key=lambda pod: (_tier(pod), pod.leaves_at or 0.0, pod.ref)):
            gone_at = pod.leaves_at
            if gone_at is None:
                ends_at = pod.facts.pod.deletion_ends_at
                gone_at = now.at if ends_at is None else now.instant_of(ends_at) + PAST_GRACE_SECONDS
            elif pod.handling is not None and pod.handling.order is Order.TIERS and not pod.out_of_service:
                pod.order = _order(pod, ahead, _applies_until(nodes.get(name), now), now)
                gone_at = gone_at if pod.order is None else pod.order.leaves_at
            stays = pod.paused_by or (pod.blocked and pod.deletes_at is None)
            ahead.append((pod, float("inf") if stays else gone_at))


def _order(
    pod: PlannedPod, ahead: list[tuple[PlannedPod, float]], applies_until: float, now: Moment
) -> PlannedOrder | None:
    """Return for whom a pod waits; ``ahead``: the pods of its node, and when they are gone, those before it first."""
    due_at, seconds = max(pod.leaves_at or 0.0, now.at), pod.forecast.eviction.order_wait_seconds
    leaves_at, until, first, others = due_at, due_at, None, 0
    for tier in range(_tier(pod)):
        end = min(due_at + (tier + 1) * seconds, applies_until)
        older = (each for each in ahead if _tier(each[0]) == tier and not _came_later(each[0].facts.pod, due_at, now))
        for other, gone_at in older:
            soon = other.leaves_at is None or other.leaves_at <= leaves_at + seconds
            if soon and leaves_at < end and gone_at > due_at - _SAME_MOMENT_SECONDS:
                first, others = first or other, others + (first is not None)
                leaves_at, until = max(leaves_at, min(gone_at, end)), end
    return None if first is None else PlannedOrder(first.ref, _tier(first), others, leaves_at, until)


# Pods that leave together: the later tier waits until the earlier one is gone.
_SAME_MOMENT_SECONDS = 1.0


def _came_later(pod: Pod, due_at: float, now: Moment) -> bool:
    return pod.created_at is not None and now.instant_of(pod.created_at) > due_at


def _applies_until(node: Node | None, now: Moment) -> float:
    """Return until when there is an order on a node; infinite while it is ready."""
    if node is None or node.is_out_of_service:
        return -float("inf")
    if node.is_ready:
        return float("inf")
    since = None if node.ready is None else node.ready.since
    return (now.at if since is None else now.instant_of(since)) + UNREADY_SECONDS


def _tier(pod: PlannedPod) -> Tier:
    return tier_of(pod.facts.pod) if pod.handling is None else tier_in(pod.facts.pod, pod.handling)


def _by_node(pods: Iterable[PlannedPod]) -> dict[str, list[PlannedPod]]:
    found: dict[str, list[PlannedPod]] = defaultdict(list)
    for pod in pods:
        if pod.facts.pod.node_name is not None:
            found[pod.facts.pod.node_name].append(pod)
    return found


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
            at = plugin.in_order_at or plugin.leaves_at
            later = sum(pod.in_order_at is None or pod.paused_by != "" or pod.in_order_at > at for pod in others)
            if later:
                found.append((plugin, later))
    return found


def _needs_plugins(pod: Pod) -> bool:
    return not (pod.mirror or pod.finished)
