"""Sentences that logs, tables, pictures and documents have in common."""

import re
from collections.abc import Callable

from taint_eviction.core.control_state import Latch, Pause
from taint_eviction.core.decision import Ceiling
from taint_eviction.core.instants import TimeSource
from taint_eviction.core.objects import NO_EXECUTE, OUT_OF_SERVICE, Node
from taint_eviction.core.text import many

# How a pod is evicted if its node is out of service, or lost.
BY_DELETE_OUT_OF_SERVICE = (
    "by a DELETE, before all others: its node is out of service and not ready, so neither PodDisruptionBudgets nor"
    " limits apply"
)
BY_DELETE_NODE_LOST = "by a DELETE: its node is lost, and PodDisruptionBudgets on lost nodes are ignored"
STARTS_NO_EVICTION = (
    f"the taint {OUT_OF_SERVICE} with another effect than NoExecute starts no eviction; while the node is not ready,"
    " the pod garbage collector force-deletes its pods that are terminating already"
)

# What a process puts behind the name of its host.
_RANDOM_PART = re.compile(r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

_SEEN = {
    TimeSource.FIRST_SIGHT.value: "first seen then",
    TimeSource.LAST_ABSENT.value: "not there until then",
    TimeSource.OUTAGE.value: "the start of the outage: the taint was taken back and set again",
}


def tolerated(
    taint: object, toleration: object | None, by_default: bool = False, ceiling: Ceiling | None = None
) -> str:
    """Return a sentence on whether a taint is tolerated, by which toleration, and which rule shortens that.
    ``by_default``: the pod itself has no such toleration. Taint and toleration may be values or texts. A toleration
    that is None or "" means that the taint is not tolerated.
    """
    if not toleration:
        return f"{taint} is not tolerated"
    most = "" if ceiling is None else f", but rule {ceiling.rule} allows at most {ceiling.seconds} s"
    return f"{taint} is tolerated {'by default ' if by_default else ''}by [{toleration}]{most}"


def replica_name(identity: str) -> str:
    """Return the name of a process for people: its pod or host, without the random part that makes it unique."""
    return _RANDOM_PART.sub("", identity)


def stabilized(seconds: float) -> str:
    """Return what has delayed a pod that nothing blocked, while a breaker is on."""
    return f"the wait of {seconds:g} s before each eviction (--breaker-settle)"


def began(instant: str, source: str) -> str:
    """Return when a taint or a binding began; ``source``: the value of the ``TimeSource`` that says so."""
    return f"{instant} ({_SEEN.get(source, source)})"


def bracketed(order: Latch | Pause, text: Callable[[float | None], str | None]) -> str:
    """Return in brackets since when, until when, by whom and why something is so; "" if none of this is known.

    ``text`` writes seconds since the epoch, and returns None where they are not known.
    """
    if isinstance(order, Latch):
        since, until, by, why = text(order.since_epoch), None, replica_name(order.controller), order.cause
    else:
        since, until, by, why = text(order.since_epoch), text(order.until_epoch), order.by, order.reason
    told = filter(None, (since and f"since {since}", until and f"until {until}", by and f"by {by}"))
    found = ": ".join(filter(None, (", ".join(told), why)))
    return f" ({found})" if found else ""


def shutting_down_note(left_to_kubelet: int) -> str:
    """Return what becomes of the pods of a node that shuts down gracefully, of which so many are withheld."""
    says = "it shuts down gracefully"
    if not left_to_kubelet:
        return f"{says}, and its kubelet ends its pods, too"
    pods = many(left_to_kubelet, "pod")
    return f"{says}, and --graceful-shutdown=wait leaves {pods} to its kubelet"


def out_of_service_note(node: Node) -> str:
    """Return what people should know about a node with the taint out-of-service, "" if nothing."""
    if not any(taint.key == OUT_OF_SERVICE for taint in node.taints):
        return ""
    if node.is_ready:
        return f"it is ready, but has the taint {OUT_OF_SERVICE}, which keeps pods away until somebody removes it"
    return "" if node.carries(OUT_OF_SERVICE, NO_EXECUTE) else STARTS_NO_EVICTION
