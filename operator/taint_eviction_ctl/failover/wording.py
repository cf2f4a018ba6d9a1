"""Findings in words: what holds a pod, and the safe next step. Every sentence about a failover is here.

No step forces anything by itself. The one that makes Kubernetes force a deletion first names its condition: the
machine is off.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from taint_eviction.core.objects import OUT_OF_SERVICE, ControllerRef
from taint_eviction.core.text import many
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction_ctl.failover.objects import (
    SHUT_DOWN,
    AttachmentObject,
    ClaimObject,
    FinalizerEntry,
    NodeLease,
    NodeObject,
    PodObject,
)
from taint_eviction_ctl.planning.wording import span

_MAX_CONTAINERS = 3
# Where to look, what to ask a technician, and how to find out which machine it is.
_PAGE = "docs/tasks/terminating.md"
# Kubernetes' own finalizers, and what removes them.
_KNOWN_FINALIZERS: Mapping[str, str] = {
    "batch.kubernetes.io/job-tracking": "the Job controller (kube-controller-manager) removes it once it has counted"
    " the pod",
    "foregroundDeletion": "the garbage collector (kube-controller-manager) removes it once the pod's dependents are"
    " gone",
    "orphan": "the garbage collector (kube-controller-manager) removes it",
}


class Cause(Enum):
    """What holds a pod; the value is its name in JSON."""

    OUT_OF_SERVICE = "outOfService"
    KUBELET_SILENT = "kubeletSilent"
    ORPHAN = "nodeDeleted"
    GRACE_PERIOD = "gracePeriod"
    PAST_GRACE_PERIOD = "pastGracePeriod"
    FINALIZER = "finalizer"
    VOLUME_ATTACHED = "volumeAttached"
    VOLUME_NOT_ATTACHED = "volumeNotAttached"
    REPLACEMENT = "noReplacement"
    BARE = "notRecreated"


@dataclass(frozen=True, slots=True)
class NextStep:
    """One of several things to do: when, what, and a command for it ("": there is none)."""

    when: str
    text: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.when}: {self.text}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause with its facts in one sentence, what to do, and a command for it ("": there is none).

    ``steps``: the same, where it is more than one thing; the command is then that of the step that matters most.
    """

    cause: Cause
    text: str
    next: str
    command: str = ""
    steps: tuple[NextStep, ...] = ()


# The node


def kubelet_silent(node: NodeObject, lease: NodeLease | None, now_epoch: float, *, taken_out: bool) -> Finding:
    """The kubelet sends no signs of life, so nothing on that machine ends a pod."""
    text = f"the kubelet of {node.name} is silent: {'; '.join(_signs(node, lease, now_epoch))}"
    if taken_out:
        return Finding(Cause.KUBELET_SILENT, text, "nothing more: PodGC acts without the kubelet")
    if node.ready_by_kubelet:
        soon = (
            "look again in a minute: Ready becomes Unknown if the kubelet stays silent; if it does not, the node's"
            " clock is wrong, or kube-controller-manager does not run"
        )
        return Finding(Cause.KUBELET_SILENT, text, soon, _command("kubectl", "describe", "node", node.name))
    taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    if node.shut_down:
        text += f"; the cloud provider says that its machine is shut down (taint {SHUT_DOWN})"
        first, condition = f"bring {node.name} back", "or, unless somebody is starting it"
    else:
        first = f"bring {node.name} back, or confirm with the cloud, the hypervisor or its BMC that its machine is off"
        first += " (not only out of reach: a pod that still runs would run twice)"
        first += f"; {_PAGE} says how to tell which machine it is, and what a technician reads out there"
        condition = "only if it is off"
    preview = _command("taint-eviction", "plan", "--taint", f"{node.name}={taint}")
    add = _command("kubectl", "taint", "nodes", node.name, taint)
    steps = (
        NextStep("next", first),
        NextStep(condition, "see what the taint would do", preview),
        NextStep(
            "then",
            "add the taint: PodGC force-deletes the pods that are Terminating there (no pause and no circuit breaker"
            " holds that), their volumes are detached, and its other pods are evicted (a pause holds these)",
            add,
        ),
        *ends(node.name),
    )
    return _stepwise(Cause.KUBELET_SILENT, text, steps, add)


def may_still_run(node: NodeObject, lease: NodeLease | None, now_epoch: float) -> Finding:
    """A grace period of 0 is either the kubelet's last word or that of somebody who forced the deletion."""
    text = f"its containers may still run on {node.name}: its grace period is 0, which a forced deletion sets, too, and"
    text += f" the kubelet is silent: {'; '.join(_signs(node, lease, now_epoch))}"
    does = (
        f"bring {node.name} back, or make sure that its machine is off, before the finalizer goes: another pod of the"
    )
    does += f" name would run beside it; {_PAGE} says where to ask"
    return Finding(Cause.KUBELET_SILENT, text, does, _command("kubectl", "describe", "node", node.name))


def remove_out_of_service(node_name: str) -> str:
    """Return the command that removes the taint."""
    return _command("kubectl", "taint", "nodes", node_name, f"{OUT_OF_SERVICE}-")


def ends(node_name: str) -> tuple[NextStep, NextStep]:
    """Return how it ends with a node that is out of service: two steps, either of them the last."""
    return (
        NextStep(
            "if the machine returns",
            f"remove the taint once {node_name} is Ready again, not before: PodGC would no longer end the pods that are"
            " Terminating there",
            remove_out_of_service(node_name),
        ),
        NextStep(
            "if it is lost",
            "delete the node once no pod is Terminating there",
            _command("kubectl", "delete", "node", node_name),
        ),
    )


def _stepwise(cause: Cause, text: str, steps: tuple[NextStep, ...], command: str = "") -> Finding:
    first, *later = steps
    return Finding(cause, text, "; ".join([first.text, *map(str, later)]), command, steps)


def _signs(node: NodeObject, lease: NodeLease | None, now_epoch: float) -> list[str]:
    signs = []
    if lease is not None:
        ago = span(now_epoch - lease.renewed_epoch)
        signs.append(f"it last renewed its Lease {ago} ago, at {format_utc(lease.renewed_epoch)}")
    return [*signs, _readiness(node)]


def _readiness(node: NodeObject) -> str:
    if not node.ready:
        return "the node has no condition Ready"
    since = "" if node.ready_since_epoch is None else f" since {format_utc(node.ready_since_epoch)}"
    said = "" if node.is_ready or not node.ready_message else f" ({node.ready_message})"
    return f"its condition Ready is {node.ready}{since}{said}"


def out_of_service(node: NodeObject) -> Finding:
    """PodGC acts on it."""
    text = f"node {node.name} is not Ready and has the taint {OUT_OF_SERVICE}:{node.out_of_service[0]}"
    if "NoExecute" not in node.out_of_service:
        text += ": this effect evicts no pod, but those that are Terminating already are PodGC's"
    waits = "wait: PodGC force-deletes it within 20 s; if not, look at the log of kube-controller-manager"
    return _stepwise(Cause.OUT_OF_SERVICE, text, (NextStep("next", waits), *ends(node.name)))


def out_of_service_but_ready(node: NodeObject) -> Finding:
    """PodGC does not act on it."""
    return Finding(
        Cause.OUT_OF_SERVICE,
        f"node {node.name} has the taint {OUT_OF_SERVICE}:{node.out_of_service[0]}, but is Ready: PodGC force-deletes"
        " nothing there while it is",
        "remove the taint; if the machine is broken and only looks Ready, switch it off first",
        remove_out_of_service(node.name),
    )


def orphan(pod: PodObject) -> Finding:
    """PodGC deletes orphans."""
    return Finding(
        Cause.ORPHAN,
        f"its node {pod.node} no longer exists",
        "wait: PodGC force-deletes pods of deleted nodes within about a minute (after a quarantine of 40 s); if not,"
        " look at the log of kube-controller-manager",
    )


# The kubelet


def grace_period(ends_epoch: float, now_epoch: float) -> Finding:
    """Nothing is wrong."""
    return Finding(
        Cause.GRACE_PERIOD,
        f"it is within its grace period until {format_utc(ends_epoch)} ({span(ends_epoch - now_epoch)} more)",
        "nothing: its containers may still end by themselves",
    )


def past_grace_period(
    pod: PodObject, node: NodeObject | None, lease: NodeLease | None, ends_epoch: float, now_epoch: float
) -> Finding:
    """The kubelet is alive, as far as is known, and has not ended the pod."""
    text = f"its grace period ended {span(now_epoch - ends_epoch)} ago, at {format_utc(ends_epoch)}"
    text += f"; {_alive(pod, node, lease, now_epoch)}"
    if pod.running:
        named = ", ".join(pod.running[:_MAX_CONTAINERS]) + (", …" if len(pod.running) > _MAX_CONTAINERS else "")
        text += f"; still running by its status: {named}"
    machine = f"look at the pod's events, and on {pod.node} at the kubelet's log (journalctl -u kubelet) and the"
    machine += f" containers (crictl pods --namespace {shlex.quote(pod.namespace)} --name {shlex.quote(pod.name)})"
    return Finding(
        Cause.PAST_GRACE_PERIOD,
        text,
        machine if pod.node else "look at the pod's events",
        _command("kubectl", "-n", pod.namespace, "describe", "pod", pod.name),
    )


def _alive(pod: PodObject, node: NodeObject | None, lease: NodeLease | None, now_epoch: float) -> str:
    if node is None:
        return f"whether the kubelet of {pod.node} is alive is not known" if pod.node else "it is on no node"
    if lease is None:
        return f"node {node.name}: {_readiness(node)}"
    alive = f"the kubelet of {node.name} is alive (Lease renewed {span(now_epoch - lease.renewed_epoch)} ago)"
    return alive if node.is_ready else f"{alive}, but {_readiness(node)}"


# The object itself


def finalizer(pod: PodObject, entry: FinalizerEntry) -> Finding:
    """A finalizer: some controller has work to do before the object is removed."""
    text = f"finalizer {entry.name}" + (f", set by {entry.manager}," if entry.manager else "") + " keeps the object"
    describe = _command("kubectl", "-n", pod.namespace, "describe", "pod", pod.name)
    known = _KNOWN_FINALIZERS.get(entry.name)
    if known is not None:
        return Finding(Cause.FINALIZER, text, f"look at the log of kube-controller-manager: {known}", describe)
    domain = entry.name.partition("/")[0]
    whose = f"the controller of {domain}" if "." in domain else "the controller that set it"
    does = f"find out whether {whose} runs, and read its log: it removes the finalizer when its work is done"
    return Finding(Cause.FINALIZER, text, does, describe)


def more_finalizers(pod: PodObject, left: int) -> Finding:
    """Finalizers that are not named."""
    text = f"{many(left, 'other finalizer')} {'keeps' if left == 1 else 'keep'} it"
    describe = _command("kubectl", "-n", pod.namespace, "get", "pod", pod.name, "-o", "jsonpath={.metadata.finalizers}")
    return Finding(Cause.FINALIZER, text, "look at their names", describe)


# Volumes


def volume_attached(claim: ClaimObject, attachment: AttachmentObject, *, gone: bool, dead: bool) -> Finding:
    """A volume is still attached: no other node may use it meanwhile."""
    state = "is still attached to" if attachment.attached else "is not yet released by"
    text = f"volume {claim.volume} (claim {claim.name}) {state} {attachment.node}"
    text += ", which no longer exists" if gone else ""
    if attachment.detach_error:
        text += f"; {attachment.attacher} cannot detach it: {attachment.detach_error}"
        does = f"look at the log of {attachment.attacher} (its controller)"
    elif dead:
        does = "it is detached 6 m after the pod is gone, and at once if the node is out of service"
    else:
        does = "it is detached once the kubelet has ended the pod and unmounted it"
    return Finding(Cause.VOLUME_ATTACHED, text, does, _describe(attachment))


def volume_not_attached(claim: ClaimObject, attachment: AttachmentObject) -> Finding:
    """A volume cannot be attached to the replacement's node."""
    return Finding(
        Cause.VOLUME_NOT_ATTACHED,
        f"volume {claim.volume} (claim {claim.name}) cannot be attached to {attachment.node}: "
        f"{attachment.attach_error}",
        f"if it is still attached elsewhere, that comes first; else look at the log of {attachment.attacher}",
        _describe(attachment),
    )


# The replacement


def replacement_waits_for_name(owner: ControllerRef) -> Finding:
    """A StatefulSet never runs two pods of one name."""
    return Finding(
        Cause.REPLACEMENT,
        f"{owner.kind} {owner.name} cannot create its replacement before this pod is gone: it has the same name",
        "nothing: it follows by itself",
    )


def not_recreated() -> Finding:
    """A bare pod has no replacement."""
    text = "no controller owns it, so nothing recreates it once it is gone"
    return Finding(Cause.BARE, text, "create it again yourself, if it is needed")


def replacement_pending(pending: PodObject, owner: ControllerRef, others: int, volume: str) -> Finding:
    """The replacement was created, and does not start."""
    more = f" (and {many(others, 'other')})" if others else ""
    text = f"{pending.name}{more}, which {owner.kind} {owner.name} created since then, is Pending: "
    if pending.unscheduled:
        text += pending.unscheduled
        does = "make room, or change what keeps it from the nodes that are left"
    elif not pending.node:
        text += "the scheduler has not looked at it yet"
        does = "look at the scheduler if it stays so"
    elif volume:
        text += f"it is on {pending.node} and waits for volume {volume}, which is attached elsewhere"
        does = "the volume comes first"
    else:
        text += f"it is on {pending.node} and has not started{_containers(pending)}"
        does = "look at its events"
    command = _command("kubectl", "-n", pending.namespace, "describe", "pod", pending.name)
    return Finding(Cause.REPLACEMENT, text, does, command)


def _containers(pod: PodObject) -> str:
    return f" ({'; '.join(pod.waiting[:_MAX_CONTAINERS])})" if pod.waiting else ""


# What could not be read


def not_allowed(kind: str, verb: str) -> str:
    """Return a sentence on what the user may not read; ``kind`` in the plural."""
    return f"{kind}: you may not {verb} them"


def not_all(kind: str, count: int) -> str:
    """Return a sentence on where reading ended."""
    return f"{kind}: only the first {count:,} were read"


def _describe(attachment: AttachmentObject) -> str:
    return _command("kubectl", "describe", "volumeattachment", attachment.name)


def _command(*words: str) -> str:
    # Names come from the cluster: quoting keeps each name one word when the command is copied.
    return shlex.join(words)
