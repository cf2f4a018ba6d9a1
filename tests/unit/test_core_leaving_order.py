"""The order in which the pods of a node leave: who waits for whom, and until when at most."""

import dataclasses

import pytest
from tests.unit.builders import NOTHING_ORDERED, Stage, epoch, moment, node, pod, ref, taint, tolerates

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.events import Done, Failed
from taint_eviction.core.facts import NodeSeen, PodGone, PodsSwept
from taint_eviction.core.guards import WaitReason
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.objects import OUT_OF_SERVICE, ControllerRef, NamespacedName, Node, Pod, Readiness
from taint_eviction.core.policy import EvictionPolicy, Limit, PolicyRule
from taint_eviction.core.tiers import Order, Tier, tier_of

TIERS = EvictionPolicy(order=Order.TIERS)
CSI = ControllerRef("DaemonSet", "csi", "d1")
CRITICAL = 2_000_001_000


def ready(status: str = "True", since: float = 0.0, *taints: str, version: int | None = None) -> Node:
    """A node that carries taints, by default ``k1``."""
    keys = taints or ("k1",)
    return dataclasses.replace(
        node(*(taint(key) for key in keys), version=version), ready=Readiness(status, epoch(since))
    )


def plugin(seconds: int | None = 0, name: str = "csi", **more: object) -> Pod:
    """The pod of a storage plugin."""
    return pod(tolerates(seconds), name=name, uid=name, controller=CSI, priority=CRITICAL, **more)  # type: ignore[arg-type]


def workload(seconds: int | None = 0, name: str = "web", **more: object) -> Pod:
    """The pod of a workload."""
    return pod(tolerates(seconds), name=name, uid=name, **more)  # type: ignore[arg-type]


def stage(*pods: Pod, policy: EvictionPolicy = TIERS) -> Stage:
    """A ready node that is tainted at 0, with these pods, which have been listed."""
    stage = Stage(eviction=policy)
    stage.sees(ready(), *pods)
    listed(stage, *pods)
    return stage


def listed(stage: Stage, *pods: Pod) -> None:
    """Tell that the node's pods have been listed."""
    stage.observe(PodsSwept("n1", frozenset(each.ref.uid for each in pods), stage.now, None))


def begun(stage: Stage) -> list[str]:
    """Begin all that may go now, and return the pods' names."""
    stage.evaluate()
    return [work.ref.key.name for work in stage.take()]


def first_at(stage: Stage, name: str, until: float, each: float = 1.0) -> float | None:
    """Return when a pod begins to be evicted, None: not until then. All others never end."""
    while stage.now <= until:
        if name in begun(stage):
            return stage.now
        stage.at(stage.now + each)
    return None


def slept_until_begun(stage: Stage, name: str) -> float:
    """Sleep as the driver does, until a pod begins to be evicted; return when that is."""
    while name not in begun(stage):
        wakes_at = stage.next_at()
        assert wakes_at is not None
        assert wakes_at > stage.now
        stage.at(wakes_at)
    return stage.now


@pytest.mark.parametrize(
    ("controller", "priority", "tier"),
    [
        (None, 0, Tier.WORKLOADS),
        (ControllerRef("StatefulSet", "db", "s"), CRITICAL - 1000 - 1, Tier.WORKLOADS),
        (CSI, 0, Tier.DAEMONSETS),
        (None, CRITICAL - 1000, Tier.CRITICAL_WORKLOADS),
        (CSI, CRITICAL, Tier.CRITICAL_DAEMONSETS),
    ],
)
def test_owner_and_priority_make_the_tier(controller: ControllerRef | None, priority: int, tier: Tier) -> None:
    """A DaemonSet, and a priority of at least 2,000,000,000."""
    assert tier_of(pod(controller=controller, priority=priority)) is tier


def test_without_the_order_all_go_at_once() -> None:
    """This is the default."""
    assert begun(stage(plugin(), workload(), policy=EvictionPolicy())) == ["csi", "web"]


def test_later_tiers_wait_until_the_earlier_pod_is_gone() -> None:
    """An accepted deletion is not the end of a pod."""
    at = stage(plugin(), workload())
    [work] = at.take()
    assert work.ref.key.name == "web"
    at.finish(work, Done())
    assert begun(at.at(5)) == []
    at.at(20).observe(PodGone(work.ref))
    assert begun(at) == ["csi"]


def test_each_of_the_four_tiers_waits_for_all_earlier_ones() -> None:
    """Workloads, DaemonSets, critical workloads, critical DaemonSets."""
    pods = [
        plugin(),
        workload(name="dns", priority=CRITICAL),
        workload(name="logs", controller=CSI),
        workload(),
    ]
    at, order = stage(*pods), []
    for _ in pods:
        [work] = at.take()
        order.append(work.ref.key.name)
        at.finish(work, Done())
        at.at(at.now + 1).observe(PodGone(work.ref))
        at.evaluate()
    assert order == ["web", "logs", "dns", "csi"]


def test_a_pod_that_will_be_due_within_the_wait_is_waited_for() -> None:
    """Its toleration ends after 9 minutes."""
    at = stage(plugin(), workload(540))
    assert begun(at) == []
    assert begun(at.at(539)) == []
    assert begun(at.at(540)) == ["web"]


def test_a_pod_that_will_be_due_later_is_not_waited_for() -> None:
    """Its toleration ends after 11 minutes."""
    assert begun(stage(plugin(), workload(660))) == ["csi"]


def test_a_pod_that_tolerates_the_taint_is_not_waited_for() -> None:
    """It stays."""
    assert begun(stage(plugin(), workload(None))) == ["csi"]


def test_a_later_tier_that_is_due_first_waits_for_a_tier_between() -> None:
    """The wait for a tier does not depend on other tiers."""
    at = stage(plugin(), workload(60, controller=CSI))
    assert begun(at) == []
    assert first_at(at, "web", 100) == 60


def test_pods_of_other_nodes_are_not_waited_for() -> None:
    """The order is that of one node."""
    at = stage(plugin())
    at.sees(dataclasses.replace(ready(), name="n2", uid="n2"), workload(60, on="n2"))
    assert begun(at) == ["csi"]


@pytest.mark.parametrize(
    ("tier", "ends_at"), [(Tier.WORKLOADS, 600), (Tier.DAEMONSETS, 1200), (Tier.CRITICAL_WORKLOADS, 1800)]
)
def test_the_wait_for_each_tier_ends_ten_minutes_later_than_that_for_the_one_before(tier: Tier, ends_at: float) -> None:
    """A pod that never ends holds nobody up for ever."""
    controller = CSI if tier is Tier.DAEMONSETS else None
    priority = CRITICAL if tier is Tier.CRITICAL_WORKLOADS else 0
    at = stage(plugin(), workload(controller=controller, priority=priority))
    assert begun(at) == ["web"]
    assert slept_until_begun(at, "csi") == ends_at


def test_the_wait_is_a_setting() -> None:
    """So is how soon an earlier pod must be due."""
    at = stage(plugin(), workload(70), policy=EvictionPolicy(order=Order.TIERS, order_wait_seconds=60.0))
    assert begun(at) == ["csi"]
    at = stage(plugin(), workload(50), policy=EvictionPolicy(order=Order.TIERS, order_wait_seconds=60.0))
    assert first_at(at, "csi", 100) == 60


def test_grace_periods_are_added_to_the_wait() -> None:
    """The pod of the first tier may take 40 minutes, so the wait for the second ends that much later."""
    agent = workload(name="logs", controller=CSI)
    at = stage(plugin(), agent, workload(terminating=True, deletion=(0.0, 2400.0)))
    assert begun(at.at(2399)) == []
    at.at(2400).observe(PodGone(workload().ref))
    assert begun(at) == ["logs"]
    assert first_at(at, "csi", 9000) == 1200 + 2400


def test_grace_periods_count_up_to_an_hour_in_all() -> None:
    """A grace period of ten hours holds nobody up for ten hours."""
    at = stage(plugin(), workload(terminating=True, deletion=(0.0, 36000.0)))
    assert first_at(at, "csi", 9000) == 600 + 3600


def test_a_terminating_pod_counts_until_30_seconds_after_its_grace_period() -> None:
    """Then its node does not end it, or something holds it."""
    at = stage(plugin(), workload(terminating=True, deletion=(-10.0, 20.0)))
    assert begun(at) == []
    assert at.next_at() == 50
    assert begun(at.at(49.9)) == []
    assert begun(at.at(50)) == ["csi"]


def test_a_deletion_that_does_not_say_when_it_ends_counts_for_30_seconds() -> None:
    """That is bounded, too."""
    at = stage(plugin(), workload(terminating=True))
    assert first_at(at, "csi", 100) == 30


def test_pods_that_were_created_after_the_waiting_one_was_due_do_not_count() -> None:
    """A ReplicaSet may send new ones for ever."""
    at = stage(plugin())
    at.sees(workload(name="old", created_at=-100), workload(name="new", created_at=5))
    assert begun(at.at(6)) == ["old", "new"]
    at.observe(PodGone(workload(name="old").ref))
    assert begun(at) == ["csi"]


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_has_not_been_ready_for_a_minute_has_no_order(status: str) -> None:
    """Without a kubelet nothing is unmounted."""
    at = stage(plugin(), workload())
    assert begun(at) == ["web"]
    at.at(30).sees(ready(status, 30))
    assert begun(at.at(89)) == []
    assert first_at(at, "csi", 600) == 90


def test_a_node_that_changes_from_false_to_unknown_has_been_unready_since_the_first() -> None:
    """The date of its condition moves then."""
    at = stage(plugin(), workload())
    begun(at)
    at.at(30).sees(ready("False", 30))
    at.at(70).sees(ready("Unknown", 70))
    assert first_at(at, "csi", 600) == 90


def test_a_node_that_is_ready_again_has_an_order_again() -> None:
    """A blip changes nothing."""
    at = stage(plugin(), workload())
    begun(at)
    at.at(30).sees(ready("False", 30))
    at.at(60).sees(ready("True", 60))
    assert first_at(at, "csi", 700) == 600


def test_nobody_waits_on_a_node_that_is_out_of_service() -> None:
    """The machine is off."""
    at = Stage(eviction=TIERS)
    at.sees(ready("Unknown", 0, OUT_OF_SERVICE), plugin(), workload())
    assert begun(at) == ["csi", "web"]


def test_a_blocked_pod_of_an_earlier_tier_is_waited_for() -> None:
    """Its namespace is paused, and the plugin is bound to let it end."""
    at = stage(plugin(namespace="kube-system"), workload())
    at.order(ControlState(namespaces={"shop": Pause()}))
    assert first_at(at, "csi", 700) == 600


def test_the_time_in_which_a_pod_is_blocked_itself_does_not_count() -> None:
    """The pod waits for 100 s, is paused for 1000 s, and waits for the rest."""
    at = stage(plugin(namespace="kube-system"), workload())
    assert begun(at) == ["web"]
    at.at(100).order(ControlState(namespaces={"kube-system": Pause()}))
    assert begun(at.at(1099)) == []
    at.at(1100).order(NOTHING_ORDERED)
    assert first_at(at, "csi", 5000) == 1600


def test_blocks_that_overlap_count_once() -> None:
    """A pause of everything from 100 to 300, and one of the node from 200 to 400."""
    at = stage(plugin(), workload())
    begun(at)
    at.at(100).order(ControlState(Pause()))
    at.at(200).order(ControlState(Pause(), {"n1": Pause()}))
    at.at(300).order(ControlState(nodes={"n1": Pause()}))
    at.at(400).order(NOTHING_ORDERED)
    assert first_at(at, "csi", 5000) == 900


def test_a_pause_from_before_the_start_counts_since_it_was_ordered() -> None:
    """A new process has not seen its beginning."""
    at = Stage(eviction=TIERS, control_state=None)
    pods = plugin(bound_at=-500), workload(bound_at=-500)
    at.at(1000).sees(dataclasses.replace(ready(), taints=(taint(added_at=-1),)), *pods)
    listed(at, *pods)
    at.order(ControlState(Pause(epoch(100))))
    begun(at)
    at.at(1100).order(NOTHING_ORDERED)
    assert first_at(at, "csi", 5000) == pytest.approx(1600, abs=1)


def test_a_new_process_continues_the_wait() -> None:
    """The pod has been due for 550 s when the process sees it."""
    at = Stage(eviction=TIERS)
    pods = plugin(bound_at=-500), workload(bound_at=-500)
    at.at(550).sees(dataclasses.replace(ready(), taints=(taint(added_at=-1),)), *pods)
    listed(at, plugin(), workload())
    assert begun(at) == ["web"]
    assert first_at(at, "csi", 5000) == pytest.approx(600, abs=1)


def test_a_wait_that_would_be_over_when_the_pod_becomes_known_begins_then() -> None:
    """The pod has been due for 600 s: it was blocked for a time that nobody knows any more, or nobody was there."""
    at = Stage(eviction=TIERS)
    pods = plugin(bound_at=-500), workload(bound_at=-500, created_at=100)
    at.at(600).sees(dataclasses.replace(ready(), taints=(taint(added_at=-1),)), *pods)
    listed(at, *pods)
    assert begun(at) == ["web"]
    at.at(900).sees(*pods)
    assert first_at(at, "csi", 2000) == 1200


def test_a_deadline_that_moves_into_the_past_begins_a_wait() -> None:
    """The seconds are shortened when the pods have been there for long; an hour of another pod changes nothing."""
    at = stage(plugin(3600), workload(3600), workload(3600, "db"))
    at.at(2000).sees(plugin(60), workload(60))
    assert begun(at) == ["web"]
    at.at(2100).sees(plugin(70), workload(3600, "db"))
    assert first_at(at, "csi", 3000) == 2700


def test_until_the_pods_have_been_listed_there_may_be_some_of_earlier_tiers() -> None:
    """A new process may see the plugin's pod first."""
    at = Stage(eviction=TIERS)
    at.sees(ready(), plugin())
    assert begun(at) == []
    wait = at.explain("csi").pending
    assert wait is not None
    assert wait.tier_wait is not None
    assert wait.tier_wait.ref is None
    listed(at.at(3), plugin())
    assert begun(at) == ["csi"]


def test_a_list_that_never_ends_holds_nobody_up_for_ever() -> None:
    """The wait for the first tier is over."""
    at = Stage(eviction=TIERS)
    at.sees(ready(), plugin())
    assert first_at(at, "csi", 700) == 600


def test_a_pod_that_waits_takes_no_room_in_a_limit() -> None:
    """The second eviction of the minute is that of a workload on another node."""
    policy = dataclasses.replace(TIERS, total=Limit(1 / 60, 2))
    at = stage(plugin(), workload(), policy=policy)
    at.sees(dataclasses.replace(ready(), name="n2", uid="n2"), workload(name="other", on="n2"))
    assert begun(at) == ["web", "other"]


def test_a_pod_that_waits_takes_no_turn_of_its_node() -> None:
    """Five plugins are passed over, and the next workload of their node goes in its turn."""
    plugins = [plugin(name=f"csi-{number}") for number in range(5)]
    at = stage(*plugins, *(workload(name=f"a-{number}") for number in range(3)))
    at.sees(dataclasses.replace(ready(), name="n2", uid="n2"))
    at.sees(*(workload(name=f"b-{number}", on="n2") for number in range(3)))
    assert begun(at) == ["a-0", "b-0", "a-1", "b-1", "a-2", "b-2"]


def test_an_eviction_in_flight_stops_for_an_earlier_tier() -> None:
    """A workload's toleration is shortened before the plugin's DELETE is sent."""
    at = stage(plugin(), workload(None))
    [work] = at.take()
    assert at.decide_again(work)
    at.at(1).sees(workload(60))
    assert not at.decide_again(work)


def test_a_pod_in_line_waits_for_an_earlier_tier_that_comes_to_be_due() -> None:
    """A limit kept the plugin's pod back, and then a workload's toleration ends soon."""
    at = stage(plugin(), plugin(name="second"), workload(None), policy=dataclasses.replace(TIERS, total=Limit(0.1, 1)))
    [work] = at.take()
    at.send(work)
    at.at(1).sees(workload(60))
    assert begun(at.at(50)) == []
    assert begun(at.at(60)) == ["web"]


def test_a_rule_names_another_tier_for_its_pods() -> None:
    """A workload that serves others leaves with the plugins."""
    rules = (PolicyRule("nfs", pod_selector=parse_selector("app=nfs"), tier=Tier.CRITICAL_DAEMONSETS),)
    server = workload(name="nfs", labels={"app": "nfs"})
    at = stage(server, workload(), policy=dataclasses.replace(TIERS, rules=rules))
    assert begun(at) == ["web"]
    at.observe(PodGone(workload().ref))
    assert begun(at) == ["nfs"]


def test_the_rule_names_the_tier_of_a_pod_that_is_being_deleted() -> None:
    """No taint decides on it any more."""
    rules = (PolicyRule("nfs", ("k1",), pod_selector=parse_selector("app=nfs"), tier=Tier.CRITICAL_DAEMONSETS),)
    server = workload(name="nfs", labels={"app": "nfs"}, terminating=True, deletion=(0.0, 30.0))
    at = stage(server, plugin(), workload(controller=CSI), policy=dataclasses.replace(TIERS, rules=rules))
    assert begun(at) == ["web"]
    at.observe(PodGone(workload().ref))
    assert begun(at) == ["csi"]


def test_a_rule_lets_its_pods_go_without_waiting() -> None:
    """``order: none`` for some, while the others wait."""
    rules = (PolicyRule("free", namespaces=("free",), order=Order.NONE),)
    at = stage(
        plugin(), plugin(name="gpu", namespace="free"), workload(), policy=dataclasses.replace(TIERS, rules=rules)
    )
    assert begun(at) == ["gpu", "web"]


def test_a_rule_lets_its_pods_alone_wait() -> None:
    """``order: tiers`` for some, while the others do not: whatever rule an earlier pod has, it is waited for."""
    rules = (PolicyRule("storage", namespaces=("storage",), order=Order.TIERS),)
    at = stage(plugin(), plugin(name="nfs", namespace="storage"), workload(), policy=EvictionPolicy(rules=rules))
    assert begun(at) == ["csi", "web"]


def test_a_policy_that_ends_the_order_releases_all() -> None:
    """The file is read again."""
    at = stage(plugin(), workload())
    assert begun(at) == ["web"]
    at.change_policy(EvictionPolicy())
    assert begun(at) == ["csi"]


def test_a_policy_that_begins_the_order_holds_what_has_not_begun() -> None:
    """The pause ends after the file was read."""
    at = stage(plugin(), workload(), policy=EvictionPolicy())
    at.order(ControlState(Pause()))
    at.change_policy(TIERS)
    at.order(NOTHING_ORDERED)
    assert begun(at) == ["web"]


def test_another_pod_of_the_name_is_another_pod() -> None:
    """The pod that is waited for is replaced by one that was created later."""
    at = stage(plugin(), workload())
    assert begun(at) == ["web"]
    at.at(20).sees(dataclasses.replace(workload(created_at=20), ref=workload().ref._replace(uid="next")))
    assert sorted(begun(at)) == ["csi", "web"]


def test_the_wait_for_a_pod_that_is_due_soon_ends_in_time() -> None:
    """It becomes a reason to wait only while the pod waits for another tier, whose pod then goes."""
    at = stage(plugin(), workload(name="dns", priority=CRITICAL), workload(1700, name="logs", controller=CSI))
    [work] = at.take()
    assert work.ref.key.name == "dns"
    assert begun(at.at(1100)) == []
    at.at(1199).observe(PodGone(work.ref))
    assert begun(at) == []
    assert begun(at.at(1200)) == ["csi"]


def test_a_node_that_is_untainted_forgets_the_order() -> None:
    """Nobody is due any more."""
    at = stage(plugin(), workload())
    begun(at)
    at.at(5).observe(NodeSeen(dataclasses.replace(ready(), taints=())))
    assert begun(at) == []


def test_what_is_told_names_for_whom_a_pod_waits_and_until_when() -> None:
    """The oldest pod of the first tier that it waits for, how many more, and the end of the longest wait."""
    at = stage(
        plugin(), workload(created_at=-50), workload(name="old", created_at=-90), workload(name="logs", controller=CSI)
    )
    begun(at)
    pending = at.explain("csi").pending
    assert pending is not None
    assert pending.wait_reason is WaitReason.EARLIER_TIER
    wait = pending.tier_wait
    assert wait is not None
    assert (str(wait.ref), wait.tier, wait.others, wait.until) == ("shop/old", Tier.WORKLOADS, 1, 1200)
    # The DaemonSet's pod waits, too.
    assert at.brain.status.waiting_counts(moment(0))[WaitReason.EARLIER_TIER] == 2


def test_pods_that_wait_count_as_due() -> None:
    """The breaker counts what is due together; a place in the queue is no guard."""
    at = stage(plugin(), workload())
    begun(at)
    assert at.brain.status.due_count() == 1
    at.order(ControlState(nodes={"n1": Pause()}))
    assert at.brain.status.due_count() == 0


def test_a_dry_run_counts_what_it_has_reported_as_gone() -> None:
    """The pod is still there, and stays."""
    at = Stage(eviction=TIERS, dry_run=True)
    at.sees(ready(), plugin(), workload())
    listed(at, plugin(), workload())
    [work] = at.take()
    at.finish(work, Done())
    assert begun(at) == ["csi"]
    assert at.brain.pods.known[NamespacedName("shop", "web")].deleted


def test_a_shortened_grace_period_is_news_for_those_who_wait() -> None:
    """A kubelet shortens it when all containers have ended, and a finalizer keeps the pod."""
    at = stage(plugin(), workload(terminating=True, deletion=(0, 3600), version=1))
    assert not at.brain.knows_pod(ref("web", "web"), 2, True)
    at.at(5).sees(workload(terminating=True, deletion=(0, 5), version=2))
    assert at.brain.knows_pod(ref("web", "web"), 2, True)
    assert begun(at.at(34)) == []
    assert begun(at.at(35)) == ["csi"]


def test_without_an_order_a_pod_that_is_being_deleted_is_no_news() -> None:
    """Nobody waits for it."""
    at = stage(workload(terminating=True, deletion=(0, 3600), version=1), policy=EvictionPolicy())
    assert at.brain.knows_pod(ref("web", "web"), 2, True)
    assert not at.brain.knows_pod(ref("web", "web"), 2, False)


def test_who_waits_is_not_kept_by_its_failures() -> None:
    """A pod that failed, and waits now for one that somebody deletes, is not reported as one that fails."""
    at = stage(plugin(), workload(None))
    at.evaluate()
    [work] = at.take()
    at.finish(work, Failed("no answer", 5.0))
    assert len(at.brain.status.failures(unblocked_at=moment(at.now))) == 1
    at.sees(workload(None, terminating=True, deletion=(0, 3600)))
    assert begun(at.at(5)) == []
    assert at.brain.status.failures(unblocked_at=moment(at.now)) == []
    assert len(at.brain.status.failures()) == 1
