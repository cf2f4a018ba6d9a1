"""What holds a pod that is Terminating, found from objects as the API server has them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from taint_eviction.core.text import JsonObject
from taint_eviction.files.kubernetes_times import format_rfc3339, format_utc
from taint_eviction_ctl.failover.findings import FailoverCase, find, pending_by_owner, stuck
from taint_eviction_ctl.failover.objects import (
    NodeLease,
    NodeObject,
    PodObject,
    read_attachment_object,
    read_claim_object,
    read_node_lease,
    read_node_object,
    read_pod_object,
)
from taint_eviction_ctl.failover.wording import Cause, Finding

NOW = 1_800_000_000.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def ago(seconds: float) -> str:
    """Write a time so long before now; negative: after."""
    return format_rfc3339(NOW - seconds)


def pod_body(name: str = "db-0", uid: str = "a", **metadata: Any) -> JsonObject:
    """Make a pod of n1 that was asked to go 330 s ago, with a grace period of 30 s."""
    asked = {"deletionTimestamp": ago(300), "deletionGracePeriodSeconds": 30, "creationTimestamp": ago(9000)}
    owned = {"ownerReferences": owned_by("ReplicaSet", "db")}
    head = {"namespace": "shop", "name": name, "uid": uid, **asked, **owned, **metadata}
    return {
        "metadata": {field: value for field, value in head.items() if value is not None},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }


def owned_by(kind: str, name: str = "web") -> list[JsonObject]:
    """Make the reference to an owner that controls a pod."""
    return [{"kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}]


def pod(**metadata: Any) -> PodObject:
    """Read a pod."""
    return read_pod_object(pod_body(**metadata))


def node(ready: str | None = "True", *effects: str, message: str = "") -> NodeObject:
    """Make n1, with out-of-service taints of these effects."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": ago(400), "message": message}
    taints = [{"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": effect} for effect in effects]
    conditions = [] if ready is None else [{"type": "DiskPressure", "status": "False"}, condition]
    return read_node_object(
        {"metadata": {"name": "n1"}, "spec": {"taints": taints}, "status": {"conditions": conditions}}
    )


def lease(seconds: float) -> NodeLease | None:
    """Make a Lease that was renewed so long ago."""
    return read_node_lease({"spec": {"renewTime": f"{ago(seconds)[:-1]}.000000Z", "leaseDurationSeconds": 40}})


def causes(found: Iterable[Finding]) -> list[Cause]:
    """Return what was found, in order."""
    return [finding.cause for finding in found]


def the(cause: Cause, case: FailoverCase) -> Finding:
    """Return the one finding of a cause."""
    [found] = [finding for finding in find(case) if finding.cause is cause]
    return found


def test_nothing_holds_a_pod_that_nobody_asked_to_go() -> None:
    """Whatever its node is."""
    living = pod(deletionTimestamp=None, finalizers=["example.com/x"])
    assert find(FailoverCase(living, NOW, node("Unknown"))) == ()
    assert not stuck(FailoverCase(living, NOW, node("Unknown")))


# The kubelet


def test_a_silent_kubelet_is_told_by_its_lease_and_the_condition() -> None:
    """With the condition's own message; the taint comes only after the machine is confirmed to be off."""
    down = node("Unknown", message="Kubelet stopped posting node status.")
    case = FailoverCase(pod(), NOW, down, lease=lease(400))
    [found] = find(case)
    assert found.text == (
        f"the kubelet of n1 is silent: it last renewed its Lease 6 m 40 s ago, at {format_utc(NOW - 400)};"
        f" its condition Ready is Unknown since {format_utc(NOW - 400)} (Kubelet stopped posting node status.)"
    )
    assert "that its machine is off" in found.next
    assert found.command == f"kubectl taint nodes n1 {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    assert [(step.when, step.command) for step in found.steps] == [
        ("next", ""),
        ("only if it is off", f"taint-eviction plan --taint n1={OUT_OF_SERVICE}=nodeshutdown:NoExecute"),
        ("then", found.command),
        ("if the machine returns", f"kubectl taint nodes n1 {OUT_OF_SERVICE}-"),
        ("if it is lost", "kubectl delete node n1"),
    ]
    assert found.next.endswith("; if it is lost: delete the node once no pod is Terminating there")


def test_a_pod_without_an_owner_is_not_recreated() -> None:
    """Somebody has to create it again once it is gone."""
    found = find(FailoverCase(pod(ownerReferences=None), NOW, node("Unknown"), lease=lease(400)))
    assert causes(found) == [Cause.KUBELET_SILENT, Cause.BARE]
    assert found[1].text == "no controller owns it, so nothing recreates it once it is gone"


def test_the_clouds_own_word_that_a_machine_is_off_needs_no_confirmation() -> None:
    """The cloud's node lifecycle controller sets this taint after it has asked the provider."""
    body = {
        "metadata": {"name": "n1"},
        "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }
    [found] = find(FailoverCase(pod(), NOW, read_node_object(body)))
    assert found.text.endswith(
        "the cloud provider says that its machine is shut down (taint node.cloudprovider.kubernetes.io/shutdown)"
    )
    assert "confirm" not in found.next
    assert found.command == f"kubectl taint nodes n1 {OUT_OF_SERVICE}=nodeshutdown:NoExecute"


def test_without_a_lease_the_condition_alone_tells_a_silent_kubelet() -> None:
    """It may be that the person may not read it."""
    assert causes(find(FailoverCase(pod(), NOW, node("Unknown")))) == [Cause.KUBELET_SILENT]


def test_a_lease_that_is_renewed_is_later_news_than_the_condition() -> None:
    """The kubelet is back; the node lifecycle controller has not said so yet."""
    case = FailoverCase(pod(), NOW, node("Unknown"), lease=lease(5))
    assert causes(find(case)) == [Cause.PAST_GRACE_PERIOD]


def test_a_lease_that_is_dated_ahead_proves_nothing() -> None:
    """The clock of the dead node was 20 minutes ahead: the condition counts, with the advice for a dead node."""
    case = FailoverCase(pod(), NOW, node("Unknown"), lease=lease(-1192))
    [found] = find(case)
    assert found.text == f"the kubelet of n1 is silent: its condition Ready is Unknown since {format_utc(NOW - 400)}"
    assert found.command == f"kubectl taint nodes n1 {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    alive = FailoverCase(pod(), NOW, node("True"), lease=lease(-1192))
    assert causes(find(alive)) == [Cause.PAST_GRACE_PERIOD]
    assert "is alive" not in find(alive)[0].text
    assert causes(find(FailoverCase(pod(), NOW, node("Unknown"), lease=lease(-4)))) == [Cause.PAST_GRACE_PERIOD]


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_lease_alone_takes_no_node_out(ready: str) -> None:
    """The kubelet may come back, or its clock be wrong: then it lives, and is late."""
    case = FailoverCase(pod(), NOW, node(ready), lease=lease(45))
    assert causes(find(case)) == [Cause.KUBELET_SILENT, Cause.PAST_GRACE_PERIOD]
    silent, late = find(case)
    assert silent.command == "kubectl describe node n1"
    assert "out-of-service" not in silent.text + silent.next
    assert "is alive" not in late.text


def test_a_silent_kubelet_needs_no_end_of_the_grace_period() -> None:
    """Nothing on that machine ends the pod, so the grace period says nothing."""
    going = pod(deletionTimestamp=ago(-20))
    assert causes(find(FailoverCase(going, NOW, node("Unknown")))) == [Cause.KUBELET_SILENT]
    assert stuck(FailoverCase(going, NOW, node("Unknown")))


def test_a_pod_within_its_grace_period_is_left_alone() -> None:
    """Until when is said, and there is no command."""
    case = FailoverCase(pod(deletionTimestamp=ago(-20)), NOW, node(), lease=lease(5))
    [found] = find(case)
    assert found.text == f"it is within its grace period until {format_utc(NOW - -20)} (20 s more)"
    assert (found.next[:8], found.command) == ("nothing:", "")
    assert not stuck(case)


def test_a_living_kubelet_that_does_not_end_a_pod_is_told_with_its_containers() -> None:
    """Those that still run by the pod's status."""
    body = pod_body()
    states: dict[str, JsonObject] = {"main": {"running": {}}, "done": {"terminated": {}}, "proxy": {"running": {}}}
    body["status"]["containerStatuses"] = [{"name": name, "state": state} for name, state in states.items()]
    case = FailoverCase(read_pod_object(body), NOW, node(), lease=lease(3))
    [found] = find(case)
    assert found.text == (
        f"its grace period ended 5 m ago, at {format_utc(NOW - 300)}; the kubelet of n1 is alive (Lease renewed 3 s"
        " ago); still running by its status: main, proxy"
    )
    assert "crictl pods --namespace shop --name db-0" in found.next
    assert found.command == "kubectl -n shop describe pod db-0"
    assert stuck(case)


def test_a_node_that_is_not_ready_although_its_kubelet_lives_is_told() -> None:
    """In the kubelet's own words."""
    sick = node("False", message="container runtime is down")
    found = the(Cause.PAST_GRACE_PERIOD, FailoverCase(pod(), NOW, sick, lease=lease(3)))
    assert "is alive (Lease renewed 3 s ago), but its condition Ready is False since" in found.text
    assert "(container runtime is down)" in found.text


def test_nothing_is_said_of_a_kubelet_of_which_nothing_is_known() -> None:
    """Where the person may read neither the node nor its Lease."""
    case = FailoverCase(pod(), NOW, None, node_checked=False)
    assert "whether the kubelet of n1 is alive is not known" in the(Cause.PAST_GRACE_PERIOD, case).text


# PodGC


def test_a_pod_of_a_deleted_node_is_left_to_podgc() -> None:
    """With the time that this takes, and without a command."""
    case = FailoverCase(pod(), NOW)
    [found] = find(case)
    assert (found.cause, found.text, found.command) == (Cause.ORPHAN, "its node n1 no longer exists", "")
    assert "within about a minute" in found.next
    assert stuck(case)


@pytest.mark.parametrize("ready", ["Unknown", "False", None])
def test_a_node_out_of_service_is_left_to_podgc(ready: str | None) -> None:
    """PodGC takes a node without the condition for not ready, too. Nobody is told to taint the node again."""
    found = find(FailoverCase(pod(), NOW, node(ready, "NoExecute"), lease=lease(400)))
    assert causes(found)[:2] == [Cause.OUT_OF_SERVICE, Cause.KUBELET_SILENT]
    assert "force-deletes it within 20 s" in found[0].next
    assert [finding.command for finding in found[:2]] == ["", ""]


def test_out_of_service_with_another_effect_is_enough_for_podgc() -> None:
    """It evicts no pod, but this one is Terminating already."""
    found = the(Cause.OUT_OF_SERVICE, FailoverCase(pod(), NOW, node("Unknown", "NoSchedule")))
    assert "this effect evicts no pod, but those that are Terminating already are PodGC's" in found.text


def test_out_of_service_does_nothing_on_a_ready_node() -> None:
    """The taint may go once the machine is back."""
    found = the(Cause.OUT_OF_SERVICE, FailoverCase(pod(), NOW, node("True", "NoExecute"), lease=lease(3)))
    assert "but is Ready: PodGC force-deletes nothing there while it is" in found.text
    assert found.command == f"kubectl taint nodes n1 {OUT_OF_SERVICE}-"


# Finalizers


def test_a_finalizer_is_told_with_whose_it_is() -> None:
    """By its domain and by who set it; to remove it by hand is never proposed."""
    owned: JsonObject = {"f:metadata": {"f:finalizers": {".": {}, 'v:"backup.example.com/wait"': {}}}}
    held = pod(finalizers=["backup.example.com/wait"], managedFields=[{"manager": "backup", "fieldsV1": owned}])
    found = the(Cause.FINALIZER, FailoverCase(held, NOW, node(), lease=lease(3)))
    assert found.text == "finalizer backup.example.com/wait, set by backup, keeps the object"
    assert "whether the controller of backup.example.com runs" in found.next
    assert found.command == "kubectl -n shop describe pod db-0"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("batch.kubernetes.io/job-tracking", "the Job controller"),
        ("foregroundDeletion", "the garbage collector"),
        ("mine", "the controller that set it"),
    ],
)
def test_finalizers_of_kubernetes_are_known(name: str, says: str) -> None:
    """And one without a domain is somebody's."""
    assert says in the(Cause.FINALIZER, FailoverCase(pod(finalizers=[name]), NOW, node())).next


@pytest.mark.parametrize(
    ("number", "says"), [(6, "1 other finalizer keeps it"), (20_000, "19995 other finalizers keep it")]
)
def test_few_of_many_finalizers_are_told(number: int, says: str) -> None:
    """Whoever may write a pod may give it thousands."""
    held = pod(finalizers=[f"example.com/x{each}" for each in range(number)])
    told = [each for each in find(FailoverCase(held, NOW, node())) if each.cause is Cause.FINALIZER]
    assert len(told) == 6
    assert told[-1].text == says


def test_finalizers_alone_keep_a_pod_that_the_kubelet_has_ended() -> None:
    """Its grace period is 0 then, and neither kubelet nor PodGC can do more."""
    ended = pod(finalizers=["example.com/x"], deletionGracePeriodSeconds=0)
    for where in (node(), node("False"), None):
        assert causes(find(FailoverCase(ended, NOW, where))) == [Cause.FINALIZER]


@pytest.mark.parametrize("renewed", [None, lease(400), lease(-1192)])
def test_containers_of_a_forced_deletion_may_still_run_where_the_kubelet_is_silent(renewed: NodeLease | None) -> None:
    """A forced deletion sets the grace period to 0, too: that comes before the finalizer."""
    forced = pod(finalizers=["example.com/x"], deletionGracePeriodSeconds=0)
    case = FailoverCase(forced, NOW, node("Unknown"), lease=renewed)
    assert causes(find(case)) == [Cause.KUBELET_SILENT, Cause.FINALIZER]
    assert "its containers may still run on n1" in find(case)[0].text
    assert "out-of-service" not in find(case)[0].command


# Volumes


def claimed(**metadata: Any) -> JsonObject:
    """Make a pod with a claim."""
    body = pod_body(**metadata)
    body["spec"]["volumes"] = [
        {"name": "config", "configMap": {"name": "x"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
    ]
    return body


def volumes(on: str = "n1", mode: str = "ReadWriteOnce", **status: Any) -> dict[str, Any]:
    """Make the pod's claim and an attachment of its volume to a node, and of another volume."""
    claim = {"metadata": {"name": "data-db-0"}, "spec": {"volumeName": "pv-1", "accessModes": [mode]}}
    attached = [
        {
            "metadata": {"name": f"csi-{volume}"},
            "spec": {"attacher": "ebs.example.com", "nodeName": on, "source": {"persistentVolumeName": volume}},
            "status": {"attached": True, **status},
        }
        for volume in ("pv-1", "pv-2")
    ]
    return {
        "claims": (read_claim_object(claim),),
        "attachments": tuple(map(read_attachment_object, attached)),
    }


def test_a_volume_that_is_still_attached_is_told() -> None:
    """After what comes first; it follows by itself."""
    case = FailoverCase(read_pod_object(claimed()), NOW, node("Unknown"), **volumes())
    assert causes(find(case)) == [Cause.KUBELET_SILENT, Cause.VOLUME_ATTACHED]
    found = the(Cause.VOLUME_ATTACHED, case)
    assert found.text == "volume pv-1 (claim data-db-0) is still attached to n1"
    assert "6 m after the pod is gone, and at once if the node is out of service" in found.next
    assert found.command == "kubectl describe volumeattachment csi-pv-1"


def test_a_volume_attached_to_a_deleted_node_is_told() -> None:
    """That node never unmounts it."""
    case = FailoverCase(read_pod_object(claimed()), NOW, None, **volumes())
    assert the(Cause.VOLUME_ATTACHED, case).text.endswith("is still attached to n1, which no longer exists")


def test_a_driver_that_cannot_detach_is_quoted() -> None:
    """Also of a volume that several nodes may attach."""
    refused = {"detachError": {"time": ago(5), "message": "rpc error: volume is busy"}}
    for mode in ("ReadWriteOnce", "ReadWriteMany"):
        case = FailoverCase(read_pod_object(claimed()), NOW, node("Unknown"), **volumes("n1", mode, **refused))
        found = the(Cause.VOLUME_ATTACHED, case)
        assert found.text.endswith("; ebs.example.com cannot detach it: rpc error: volume is busy")
        assert "the log of ebs.example.com" in found.next


def test_a_driver_that_cannot_attach_elsewhere_is_quoted() -> None:
    """There the replacement waits."""
    refused: JsonObject = {"attached": False, "attachError": {"message": "Multi-Attach error"}}
    case = FailoverCase(read_pod_object(claimed()), NOW, node(), lease=lease(3), **volumes("n2", **refused))
    found = the(Cause.VOLUME_NOT_ATTACHED, case)
    assert found.text == "volume pv-1 (claim data-db-0) cannot be attached to n2: Multi-Attach error"


def test_an_attached_volume_is_as_it_should_be_within_the_grace_period_or_if_it_is_shared() -> None:
    """Nobody waits for it."""
    going = read_pod_object(claimed(deletionTimestamp=ago(-20)))
    assert causes(find(FailoverCase(going, NOW, node(), lease=lease(3), **volumes()))) == [Cause.GRACE_PERIOD]
    shared = FailoverCase(read_pod_object(claimed()), NOW, node("Unknown"), **volumes(mode="ReadWriteMany"))
    assert causes(find(shared)) == [Cause.KUBELET_SILENT]


# The replacement


def sibling(name: str = "web-new", created: float = 320, on: str = "", **more: Any) -> JsonObject:
    """Make a Pending pod of the same owner."""
    head: JsonObject = {"deletionTimestamp": None, "creationTimestamp": ago(created)}
    body = pod_body(name, name, **{**head, "ownerReferences": owned_by("ReplicaSet"), **more})
    return {**body, "spec": {"nodeName": on}, "status": {"phase": "Pending"}}


def replaced(*bodies: JsonObject, **more: Any) -> FailoverCase:
    """Make the case of a ReplicaSet's pod with these other pods in its namespace."""
    going = read_pod_object(claimed(name="web-old", ownerReferences=owned_by("ReplicaSet")))
    pending = pending_by_owner(map(read_pod_object, bodies)).get(("shop", "uid-of-web"), ())
    return FailoverCase(going, NOW, node("Unknown"), siblings=pending, **more)


def test_a_replacement_that_cannot_be_scheduled_is_told_in_the_schedulers_words() -> None:
    """The oldest one; others are counted."""
    waiting = sibling()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waiting["status"]["conditions"] = [{**condition, "message": "0/3 nodes are available: 3 Insufficient cpu."}]
    found = the(Cause.REPLACEMENT, replaced(sibling("web-newer", 300), waiting))
    assert found.text == (
        "web-new (and 1 other), which ReplicaSet web created since then, is Pending:"
        " 0/3 nodes are available: 3 Insufficient cpu."
    )
    assert found.command == "kubectl -n shop describe pod web-new"


def test_a_replacement_that_waits_for_the_volume_is_told() -> None:
    """It is on another node, and the volume is where the pod is that goes."""
    waiting = sibling(on="n2")
    waiting["spec"]["volumes"] = claimed()["spec"]["volumes"]
    case = replaced(waiting, **volumes())
    assert causes(find(case)) == [Cause.KUBELET_SILENT, Cause.VOLUME_ATTACHED, Cause.REPLACEMENT]
    assert "it is on n2 and waits for volume pv-1, which is attached elsewhere" in find(case)[-1].text


def test_a_replacement_that_does_not_start_is_told_with_its_containers_reasons() -> None:
    """The kubelet's own words."""
    waiting = sibling(on="n2")
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    waiting["status"]["containerStatuses"] = [{"name": "main", "state": state}]
    found = the(Cause.REPLACEMENT, replaced(waiting))
    assert "it is on n2 and has not started (main: ImagePullBackOff: Back-off pulling image)" in found.text


def test_only_pending_pods_of_the_owner_that_are_younger_are_replacements() -> None:
    """Not those that were there, are Terminating themselves, run, or are another owner's or namespace's."""
    running = {**sibling("d"), "status": {"phase": "Running"}}
    others = (
        # Whoever may create pods there has written the UID of this owner.
        sibling("e", namespace="evil"),
        sibling("a", 9000),
        sibling("b", deletionTimestamp=ago(5)),
        sibling("c", ownerReferences=owned_by("ReplicaSet", "other")),
        running,
    )
    assert causes(find(replaced(*others))) == [Cause.KUBELET_SILENT]


def test_the_replacements_of_one_owner_are_not_compared_with_each_of_its_pods() -> None:
    """Whoever may create pods may have thousands of both."""

    class Unread(tuple[PodObject, ...]):
        def __iter__(self) -> Iterator[PodObject]:
            raise AssertionError

    case = replaced(*(sibling(f"web-{number}") for number in range(100)))
    unread = replace(case, siblings=Unread(case.siblings))
    assert "web-0 (and 99 others)" in the(Cause.REPLACEMENT, unread).text


def test_a_statefulset_cannot_replace_a_pod_that_is_there() -> None:
    """Whatever other pods it has."""
    going = pod(ownerReferences=owned_by("StatefulSet", "db"))
    found = the(Cause.REPLACEMENT, FailoverCase(going, NOW, node("Unknown")))
    assert found.text.startswith("StatefulSet db cannot create its replacement before this pod is gone")


# Foreign input


def test_names_are_quoted_in_commands() -> None:
    """They are the cluster's, and somebody copies the command."""
    named = read_node_object({"metadata": {"name": "n1; reboot"}})
    found = the(Cause.KUBELET_SILENT, FailoverCase(pod(), NOW, named, lease=lease(400)))
    assert "nodes 'n1; reboot' " in found.command


@pytest.mark.parametrize("junk", [None, 1, "x", [], [1], {"x": 1}, True])
def test_fields_of_another_type_count_as_absent(junk: Any) -> None:
    """A page for people in trouble does not fail for them."""
    metadata = dict.fromkeys(("finalizers", "managedFields", "ownerReferences", "labels", "deletionTimestamp"), junk)
    for body in ({"metadata": junk, "spec": junk, "status": junk}, {"metadata": metadata}):
        assert find(FailoverCase(read_pod_object(body), NOW)) == ()
    specs = {"spec": {"taints": junk, "volumes": junk, "accessModes": junk, "source": junk, "renewTime": junk}}
    statuses = {"status": {"conditions": junk, "containerStatuses": junk, "attachError": junk}}
    body = {**specs, **statuses}
    assert read_node_object(body).ready == ""
    assert read_node_lease(body) is None
    assert read_claim_object(body).volume == ""
    assert read_attachment_object(body).attach_error == ""
    assert read_pod_object(body).claims == ()
