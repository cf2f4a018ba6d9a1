"""What holds a pod that is Terminating: objects in, findings out, in the order in which to act. Pure.

The words are in ``wording``. Reference: kubernetes/pkg/controller/podgc, volume/attachdetach, kubelet's Lease.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from taint_eviction_ctl.failover import wording
from taint_eviction_ctl.failover.objects import AttachmentObject, ClaimObject, NodeLease, NodeObject, PodObject
from taint_eviction_ctl.failover.wording import Finding

# Object times are whole seconds.
_SECOND = 1.0
# A user who may change a pod can give it thousands.
_MOST_FINALIZERS = 5


@dataclass(frozen=True, slots=True)
class FailoverCase:
    """A pod, and what was read about what may hold it.

    ``node`` None: the node does not exist if ``node_checked``, else nothing is known of it. ``lease`` None: not known,
    or there is none. ``siblings``: the Pending pods of its owner (``pending_by_owner``).
    """

    pod: PodObject
    now_epoch: float
    node: NodeObject | None = None
    node_checked: bool = True
    lease: NodeLease | None = None
    claims: tuple[ClaimObject, ...] = ()
    attachments: tuple[AttachmentObject, ...] = ()
    siblings: tuple[PodObject, ...] = ()

    @property
    def node_gone(self) -> bool:
        """Return whether the pod is an orphan of a deleted node."""
        return self.node is None and self.node_checked and bool(self.pod.node)

    @property
    def silent(self) -> bool:
        """Return whether the kubelet is silent. A renewed Lease is more recent than the condition Ready."""
        if self.node is None:
            return False
        lease = self.proof
        return self.node.ready == "Unknown" if lease is None else lease.expired(self.now_epoch)

    @property
    def proof(self) -> NodeLease | None:
        """The node's Lease, unless it is dated ahead: then the condition Ready counts."""
        return self.lease if self.lease is not None and self.lease.proves(self.now_epoch) else None

    @property
    def dead(self) -> bool:
        """Return whether the kubelet will not act any more. A Lease alone may mislead: clocks of nodes may be wrong."""
        return self.node_gone or (self.silent and self.node is not None and not self.node.ready_by_kubelet)

    @property
    def only_finalizers(self) -> bool:
        """Return whether finalizers keep the pod object: the kubelet has ended the pod, or somebody has forced that."""
        return self.pod.grace_seconds == 0 and bool(self.pod.finalizers)


def stuck(case: FailoverCase) -> bool:
    """Return whether a pod is past its grace period, or on a node that is not Ready, silent or gone."""
    if case.pod.deletion_epoch is None:
        return False
    if case.node_gone or case.silent or (case.node is not None and not case.node.is_ready):
        return True
    return case.now_epoch >= case.pod.deletion_epoch


def find(case: FailoverCase) -> tuple[Finding, ...]:
    """Return what holds a pod; nothing if its deletion was not requested."""
    if case.pod.deletion_epoch is None:
        return ()
    if not case.only_finalizers:
        ends: tuple[Finding, ...] = (*_node(case), *_grace(case, case.pod.deletion_epoch))
    else:
        ends = tuple(_still_running(case))
    return (*ends, *_finalizers(case), *_volumes(case), *_replacement(case))


def _node(case: FailoverCase) -> Iterator[Finding]:
    node, pod = case.node, case.pod
    if node is None:
        if case.node_gone:
            yield wording.orphan(pod)
        return
    taken_out = node.out_of_service and not node.is_ready
    if taken_out:
        yield wording.out_of_service(node)
    if case.silent:
        yield wording.kubelet_silent(node, case.proof, case.now_epoch, taken_out=bool(taken_out))
    if node.out_of_service and node.is_ready:
        yield wording.out_of_service_but_ready(node)


def _still_running(case: FailoverCase) -> Iterator[Finding]:
    """Yield that containers may still run: a silent kubelet has not ended them, whatever the grace period says."""
    node = case.node
    if case.silent and node is not None and not node.out_of_service:
        yield wording.may_still_run(node, case.proof, case.now_epoch)


def _grace(case: FailoverCase, ends_epoch: float) -> Iterator[Finding]:
    """Yield whether the kubelet is late, unless it is dead."""
    if case.dead:
        return
    if case.now_epoch < ends_epoch:
        yield wording.grace_period(ends_epoch, case.now_epoch)
    else:
        lease = None if case.silent else case.proof
        yield wording.past_grace_period(case.pod, case.node, lease, ends_epoch, case.now_epoch)


def _finalizers(case: FailoverCase) -> Iterator[Finding]:
    for finalizer in case.pod.finalizers[:_MOST_FINALIZERS]:
        yield wording.finalizer(case.pod, finalizer)
    if (left := len(case.pod.finalizers) - _MOST_FINALIZERS) > 0:
        yield wording.more_finalizers(case.pod, left)


def _volumes(case: FailoverCase) -> Iterator[Finding]:
    """Yield which volumes keep a replacement from using them, and what drivers report."""
    pod, ends = case.pod, case.pod.deletion_epoch or 0.0
    ending_in_time = case.now_epoch < ends and not case.dead
    for claim in case.claims:
        for attachment in case.attachments:
            if not claim.volume or attachment.volume != claim.volume:
                continue
            here = attachment.node == pod.node
            if attachment.detach_error or (here and not claim.shared and not ending_in_time):
                yield wording.volume_attached(claim, attachment, gone=here and case.node_gone, dead=case.dead)
            if attachment.attach_error and not here:
                yield wording.volume_not_attached(claim, attachment)


def _replacement(case: FailoverCase) -> Iterator[Finding]:
    owner = case.pod.owner
    if owner is None:
        yield wording.not_recreated()
        return
    if owner.kind == "StatefulSet":
        yield wording.replacement_waits_for_name(owner)
        return
    # A user who may create pods can have thousands that are stuck, and thousands that are Pending.
    younger = bisect_left(case.siblings, (case.pod.asked_epoch or 0.0) - _SECOND, key=_created)
    if younger < len(case.siblings):
        # The oldest has waited longest.
        first = case.siblings[younger]
        waits_for = _missing_volume(first, case)
        yield wording.replacement_pending(first, owner, len(case.siblings) - younger - 1, waits_for)


def pending_by_owner(pods: Iterable[PodObject]) -> Mapping[tuple[str, str], tuple[PodObject, ...]]:
    """Return the pods that may be replacements, by namespace and UID of their owner, the oldest first.

    An owner's pods are in its namespace: in another one anybody may write its UID.
    """
    found: defaultdict[tuple[str, str], list[PodObject]] = defaultdict(list)
    for each in pods:
        waits = each.phase == "Pending" and each.deletion_epoch is None and each.created_epoch is not None
        if waits and each.owner is not None:
            found[each.namespace, each.owner.uid].append(each)
    return {key: tuple(sorted(of, key=lambda each: (_created(each), each.name))) for key, of in found.items()}


def _created(pod: PodObject) -> float:
    return pod.created_epoch or 0.0


def _missing_volume(replacement: PodObject, case: FailoverCase) -> str:
    """Return the volume that a replacement on another node waits for; "" if it waits for none."""
    if not replacement.node or replacement.node == case.pod.node:
        return ""
    held = {each.volume for each in case.attachments if each.node == case.pod.node}
    wanted = (claim for claim in case.claims if claim.name in replacement.claims and not claim.shared)
    return next((claim.volume for claim in wanted if claim.volume in held), "")
