"""The four tiers in which the pods of a node leave, and which pod belongs to which.

Workloads leave before what serves them: the plugins of storage and devices are critical pods of DaemonSets, and without
them no volume is unmounted. Pure; ``leaving_order`` says who waits for whom.
"""

from enum import Enum, IntEnum

from taint_eviction.core.objects import Pod

# From this priority on pods are critical for the cluster or for their node (scheduling.SystemCriticalPriority).
CRITICAL_PRIORITY = 2_000_000_000


class Order(Enum):
    """Whether a pod waits for earlier tiers of its node."""

    NONE = "none"
    TIERS = "tiers"


class Tier(IntEnum):
    """The tiers, in the order in which they leave."""

    WORKLOADS = 0
    DAEMONSETS = 1
    CRITICAL_WORKLOADS = 2
    CRITICAL_DAEMONSETS = 3

    @property
    def word(self) -> str:
        """Return its name as policies write it."""
        return self.name.lower().replace("_", "-")


def tier_of(pod: Pod) -> Tier:
    """Return the tier that a pod has by itself."""
    of_daemonset = pod.controller is not None and pod.controller.kind == "DaemonSet"
    if pod.priority >= CRITICAL_PRIORITY:
        return Tier.CRITICAL_DAEMONSETS if of_daemonset else Tier.CRITICAL_WORKLOADS
    return Tier.DAEMONSETS if of_daemonset else Tier.WORKLOADS
