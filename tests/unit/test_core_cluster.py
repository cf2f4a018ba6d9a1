"""What is known of the cluster: the order of observations, first sightings, and what lists prove."""

import pytest
from tests.unit.builders import EPOCH, Stage, epoch, moment, no_schedule, node, pod, ref, since, taint, tolerates

from taint_eviction.core.facts import NodeGone, NodeSeen, NodesHeard, NodesSwept, PodSeen, PodsSwept
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.instants import Moment, TimeSource
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.objects import Node, Pod, Taint
from taint_eviction.core.pods import KnownPods, PodRecord


class Cluster:
    """The known nodes and pods, with one memory of what is gone."""

    def __init__(self) -> None:
        self.gone = GoneObjects()
        self.nodes = KnownNodes(self.gone)
        self.pods = KnownPods(self.gone)


def put_node(cluster: Cluster, which: Node, at: float, after_gap: bool = False) -> None:
    """Observe a node as a watch shows it, or as its list after a gap does."""
    cluster.nodes.upsert(NodeSeen(which, after_gap), moment(at))


def ask_node(cluster: Cluster, which: Node, asked_at: float) -> None:
    """Observe a node as a live read shows it, or a list beside a standing watch."""
    cluster.nodes.upsert(NodeSeen(which, asked_at=asked_at), moment(asked_at))


def hear(cluster: Cluster, version: int | None, at: float) -> None:
    """Observe how far the watch has come."""
    cluster.nodes.hear(NodesHeard(version), moment(at))


def start_of(cluster: Cluster, which: Taint, name: str = "n1") -> float:
    """Return since when a taint has been on a node."""
    return cluster.nodes.known[name].sightings[which].start_at


def put_pod(
    cluster: Cluster, which: Pod, at: float = 0.0, asked_at: float | None = None
) -> tuple[PodRecord, list[PodRecord]] | None:
    """Observe a pod."""
    return cluster.pods.upsert(PodSeen(which, asked_at), moment(at))


# Sightings of taints


def test_a_taint_that_is_watched_starts_when_it_is_seen() -> None:
    """Without an object time, the first sighting is the start."""
    cluster = Cluster()
    put_node(cluster, node(), 10)
    put_node(cluster, node(taint()), 20.4)
    assert start_of(cluster, taint()) == 20.4


def test_a_sighting_lasts_as_long_as_the_taint() -> None:
    """Later observations of the node do not move the start, whatever else they change."""
    cluster = Cluster()
    put_node(cluster, node(taint()), 10)
    put_node(cluster, node(taint("k2"), taint(), no_schedule("k3")), 50)
    assert (start_of(cluster, taint()), start_of(cluster, taint("k2"))) == (10, 50)


def test_after_a_restart_the_countdown_goes_on_from_time_added() -> None:
    """W7: the start is timeAdded plus the second that was truncated."""
    cluster, added = Cluster(), taint(added_at=-100)
    put_node(cluster, node(added, written_at=-5), 0)
    sighting = cluster.nodes.known["n1"].sightings[added]
    assert (sighting.start_at, sighting.source) == (-99, TimeSource.TIME_ADDED)


def test_after_a_restart_the_countdown_goes_on_from_managed_fields() -> None:
    """W7: kubectl taint sets no timeAdded, but the field manager's entry has a time."""
    cluster = Cluster()
    put_node(cluster, node(taint(), written_at=-100), 0)
    sighting = cluster.nodes.known["n1"].sightings[taint()]
    assert (sighting.start_at, sighting.source) == (-99, TimeSource.MANAGED_FIELDS)


def test_a_taint_without_any_object_time_starts_at_its_first_sighting() -> None:
    """Nodes that were created with the taint may have no entry in managedFields for it."""
    cluster = Cluster()
    put_node(cluster, node(taint()), 33)
    assert start_of(cluster, taint()) == 33


def test_a_taint_that_was_seen_absent_starts_anew() -> None:
    """The taint is removed and set again while the node is watched: the second start does not depend on the first."""
    cluster = Cluster()
    put_node(cluster, node(taint(), written_at=10), 10)
    put_node(cluster, node(written_at=20), 20)
    put_node(cluster, node(taint(), written_at=20), 30)
    assert start_of(cluster, taint()) == 21


def test_another_value_or_time_added_is_another_taint() -> None:
    """A sighting belongs to key, value, effect and timeAdded."""
    cluster = Cluster()
    put_node(cluster, node(taint(value="v1")), 10)
    put_node(cluster, node(taint(value="v2")), 20)
    assert start_of(cluster, taint(value="v2")) == 20
    put_node(cluster, node(taint(value="v2", added_at=30)), 30.5)
    assert start_of(cluster, taint(value="v2", added_at=30)) == 30.5


def test_a_write_of_anything_else_while_watching_moves_nothing() -> None:
    """The manager's later time is noted, but the start stays: writing a label must not give a pod a new window."""
    cluster = Cluster()
    put_node(cluster, node(taint(), written_at=10), 10)
    put_node(cluster, node(taint(), written_at=500), 500)
    sighting = cluster.nodes.known["n1"].sightings[taint()]
    assert (sighting.start_at, sighting.object_time) == (10, epoch(500))


def test_a_later_object_time_after_a_gap_starts_anew() -> None:
    """The taint may have been removed and set again unseen; with a new start no pod is evicted too early."""
    cluster = Cluster()
    put_node(cluster, node(taint(), written_at=10), 10)
    put_node(cluster, node(taint(), written_at=500), 700, after_gap=True)
    assert start_of(cluster, taint()) == 501


def test_a_gap_in_which_nothing_was_written_moves_nothing() -> None:
    """A fresh list with the same object time proves that the taint stayed."""
    cluster = Cluster()
    put_node(cluster, node(taint(), written_at=10), 10)
    put_node(cluster, node(taint(), written_at=500), 500)
    put_node(cluster, node(taint(), written_at=500), 700, after_gap=True)
    assert start_of(cluster, taint()) == 10


def test_an_answer_beside_a_standing_watch_moves_nothing() -> None:
    """A label that the taint's manager writes gives no pod a new window, whether the node is read live or listed."""
    cluster = Cluster()
    put_node(cluster, node(taint(), version=7, written_at=10), 10)
    hear(cluster, 8, 50)
    ask_node(cluster, node(taint(), version=8, written_at=50), 60)
    assert (start_of(cluster, taint()), cluster.nodes.known["n1"].node.resource_version) == (10, 8)


def test_an_answer_does_not_hide_from_a_list_after_a_gap_that_the_taint_may_be_another() -> None:
    """A live read does not change what the watch last showed, so the list after the gap has a later time."""
    cluster = Cluster()
    put_node(cluster, node(taint(), written_at=10), 10)
    ask_node(cluster, node(taint(), written_at=50), 60)
    put_node(cluster, node(taint(), written_at=50), 70, after_gap=True)
    assert start_of(cluster, taint()) == 51


def test_an_answer_ahead_of_the_watch_waits_for_the_watch_if_the_taint_may_be_another() -> None:
    """W11: an answer does not tell whether the taint was set again or a label written; the watch shows it later."""
    cluster = Cluster()
    put_node(cluster, node(taint(), version=5, written_at=10), 10)
    ask_node(cluster, node(taint(), version=7, written_at=50), 60)
    assert not cluster.nodes.knows("n1", "uid-n1", 7)
    put_node(cluster, node(version=6, written_at=50), 62)
    put_node(cluster, node(taint(), version=7, written_at=50), 62)
    assert (start_of(cluster, taint()), cluster.nodes.knows("n1", "uid-n1", 7)) == (51, True)


@pytest.mark.parametrize("shown", [(), (taint("k2"),), (taint(added_at=50),)])
def test_an_answer_ahead_of_the_watch_counts_where_it_shows_another_taint(shown: tuple[Taint, ...]) -> None:
    """W11: the taint was removed, or set again at another time, so what the watch shows afterwards is older."""
    cluster = Cluster()
    put_node(cluster, node(taint(), version=5), 10)
    ask_node(cluster, node(*shown, version=7), 60)
    put_node(cluster, node(taint(), version=6), 62)
    assert [seen.taint for seen in cluster.nodes.taints_on("n1") or ()] == list(shown)


def test_an_answer_ahead_of_the_watch_removes_a_taint_that_it_lacks() -> None:
    """W11: one of two taints is certainly gone; what has happened to the other is shown by the watch."""
    cluster = Cluster()
    put_node(cluster, node(taint(), taint("k2"), version=5), 10)
    ask_node(cluster, node(taint(), version=8), 60)
    assert [seen.taint for seen in cluster.nodes.taints_on("n1") or ()] == [taint()]
    assert (start_of(cluster, taint()), cluster.nodes.is_behind(node(version=8))) == (10, True)
    # The late event is from before the answer, in which k2 is absent: k2 gets no start from before the answer.
    put_node(cluster, node(taint(), taint("k2"), version=6, written_at=11), 62)
    assert start_of(cluster, taint("k2")) >= 60
    put_node(cluster, node(taint("k2"), version=7), 62)
    put_node(cluster, node(taint(), version=8), 62)
    assert (start_of(cluster, taint()), len(cluster.nodes.taints_on("n1") or ())) == (62, 1)


def test_the_watch_is_behind_an_answer_that_shows_more_of_the_same_node() -> None:
    """The controller does not wait for the watch if the node is unknown, or known with another UID."""
    cluster = Cluster()
    put_node(cluster, node(version=5), 10)
    hear(cluster, 7, 20)
    assert [cluster.nodes.is_behind(node(version=version)) for version in (None, 5, 7, 8)] == [
        False,
        False,
        False,
        True,
    ]
    assert not cluster.nodes.is_behind(node(version=8, uid="another"))
    assert not cluster.nodes.is_behind(node(version=8, name="n2"))


def test_the_watch_has_come_as_far_as_any_version_that_it_has_passed() -> None:
    """A filtered heartbeat, or another node's event, shows that the watch has no older event of this node left."""
    cluster = Cluster()
    put_node(cluster, node(version=5), 10)
    assert [cluster.nodes.knows("n1", "uid-n1", version) for version in (5, 6)] == [True, False]
    hear(cluster, 9, 20)
    assert [cluster.nodes.knows("n1", "uid-n1", version) for version in (9, 10)] == [True, False]
    assert not cluster.nodes.knows("n1", "another", 9)
    assert not cluster.nodes.knows("n2", "uid-n2", 9)


def test_after_a_gap_nothing_is_known_of_how_far_the_watch_has_come() -> None:
    """The API server's storage may have been restored, so that a new version may have a lower number."""
    cluster = Cluster()
    put_node(cluster, node(version=5), 10)
    hear(cluster, 900, 20)
    cluster.nodes.upsert(NodeSeen(node(version=5), after_gap=True, asked_at=30), moment(31))
    assert not cluster.nodes.knows("n1", "uid-n1", 6)


# What was seen beats what is dated


def test_a_taint_starts_no_earlier_than_the_watch_was_last_heard() -> None:
    """The taint's date is wrong: an anchor is hours ahead, or kube-controller-manager's clock is behind."""
    cluster = Cluster()
    put_node(cluster, node(), 0)
    hear(cluster, 7, 100)
    put_node(cluster, node(taint(added_at=-7200)), 103)
    sighting = cluster.nodes.known["n1"].sightings[taint(added_at=-7200)]
    assert (sighting.start_at, sighting.source) == (100, TimeSource.LAST_ABSENT)


def test_a_taint_starts_no_earlier_than_a_live_read_that_lacked_it() -> None:
    """The instant of the request counts, because the answer may have been on its way for long."""
    cluster = Cluster()
    put_node(cluster, node(), 0)
    cluster.nodes.upsert(NodeSeen(node(), asked_at=100), moment(109))
    put_node(cluster, node(), 110)
    put_node(cluster, node(taint(), written_at=-7200), 120)
    assert start_of(cluster, taint()) == 100


def test_a_read_of_one_node_says_nothing_about_another() -> None:
    """Only the watch shows all nodes."""
    cluster = Cluster()
    put_node(cluster, node(), 0)
    cluster.nodes.upsert(NodeSeen(node(name="n2"), asked_at=100), moment(100))
    put_node(cluster, node(taint(), written_at=50), 120)
    assert start_of(cluster, taint()) == 51


def test_a_taints_date_counts_if_it_is_later_than_the_taint_was_last_seen_absent() -> None:
    """The taint was set while the watch was silent or broken, and its countdown has been running since."""
    cluster = Cluster()
    put_node(cluster, node(), 0)
    hear(cluster, 7, 20)
    put_node(cluster, node(taint(), written_at=50), 700, after_gap=True)
    assert start_of(cluster, taint()) == 51


def test_an_unknown_node_was_not_seen_without_its_taint() -> None:
    """W7, W12: neither the first sight of a node, nor its predecessor, says anything about the time before that."""
    cluster = Cluster()
    hear(cluster, 7, 100)
    put_node(cluster, node(taint(), written_at=50), 103)
    put_node(cluster, node(taint(), uid="new", written_at=60), 104)
    assert start_of(cluster, taint()) == 61


def test_an_object_time_that_came_later_is_noted_too() -> None:
    """A taint first seen without a time, dated by a later write, and set again in a gap starts anew."""
    cluster = Cluster()
    put_node(cluster, node(taint()), 10)
    put_node(cluster, node(taint(), written_at=50), 50)
    assert start_of(cluster, taint()) == 10
    put_node(cluster, node(taint(), written_at=500), 700, after_gap=True)
    assert start_of(cluster, taint()) == 501


def test_a_first_object_time_after_a_gap_starts_anew() -> None:
    """No time was known before the gap, so a time after it shows that somebody wrote the taints during the gap."""
    cluster = Cluster()
    put_node(cluster, node(taint()), 10)
    put_node(cluster, node(taint(), written_at=500), 700, after_gap=True)
    assert start_of(cluster, taint()) == 501


def test_a_new_start_is_never_before_the_old_one() -> None:
    """A correction of the anchor may make object times look older than what this process saw itself."""
    cluster = Cluster()
    cluster.nodes.upsert(NodeSeen(node(taint(), written_at=10)), Moment(10, EPOCH + 10))
    sharpened = Moment(60, EPOCH + 160)
    cluster.nodes.upsert(NodeSeen(node(taint(), written_at=50), after_gap=True), sharpened)
    assert start_of(cluster, taint()) >= 10


def test_a_corrected_anchor_does_not_move_a_start() -> None:
    """The starts of sightings are on the monotonic clock."""
    cluster, added = Cluster(), taint(added_at=0)
    cluster.nodes.upsert(NodeSeen(node(added)), Moment(100, EPOCH + 100))
    cluster.nodes.upsert(NodeSeen(node(added), after_gap=True), Moment(101, EPOCH + 131))
    assert start_of(cluster, added) == 1


def test_a_node_of_another_uid_starts_clean() -> None:
    """W12: the same name and the same taint on a new node is a new sighting."""
    cluster = Cluster()
    put_node(cluster, node(taint(), uid="old"), 10)
    put_node(cluster, node(taint(), uid="new"), 50)
    assert start_of(cluster, taint()) == 50


def test_only_no_execute_taints_have_sightings() -> None:
    """Taints with other effects have no sighting, and their removal is no change."""
    cluster = Cluster()
    change = cluster.nodes.upsert(NodeSeen(node(no_schedule(), taint("k2"))), moment(1))
    assert change is not None
    assert list(cluster.nodes.known["n1"].sightings) == [taint("k2")]
    assert list(cluster.nodes.tainted()) == ["n1"]
    assert cluster.nodes.upsert(NodeSeen(node(taint("k2"))), moment(2)) is None


def test_a_rewritten_value_is_reported() -> None:
    """The change names a taint whose value changes while its key stays, but not a first or a second taint."""
    cluster = Cluster()
    put_node(cluster, node(taint(value="v1")), 1)
    change = cluster.nodes.upsert(NodeSeen(node(taint(value="v2"), taint("k2", "x"))), moment(2))
    assert change is not None
    assert change.rewritten == (taint(value="v2"),)


def test_clean_nodes_and_unknown_nodes_are_told_apart() -> None:
    """The taints are an empty tuple for a clean node, and None for an unknown node."""
    cluster = Cluster()
    put_node(cluster, node(), 1)
    assert cluster.nodes.taints_on("n1") == ()
    assert cluster.nodes.taints_on("n2") is None
    assert cluster.nodes.taints_on(None) is None


# Bindings of pods


def test_a_binding_is_sighted_once() -> None:
    """W7: the first source of the time stays, whatever later observations of the pod say."""
    cluster = Cluster()
    put_pod(cluster, pod(bound_at=-60), 0)
    put_pod(cluster, pod(bound_at=-5, marked=True), 10)
    bound = cluster.pods.known[ref().key].bound
    assert bound is not None
    assert (bound.start_at, bound.source) == (-59, TimeSource.POD_SCHEDULED)


def test_a_binding_starts_no_earlier_than_the_pod_was_known_to_be_elsewhere() -> None:
    """The API server that bound the pod has a clock that is behind: the date is from before the pod was seen absent."""
    cluster = Cluster()
    cluster.pods.upsert(PodSeen(pod(bound_at=-3600), absent_at=70), moment(72))
    bound = cluster.pods.known[ref().key].bound
    assert bound is not None
    assert (bound.start_at, bound.source) == (70, TimeSource.LAST_ABSENT)


def test_a_recreated_pod_has_a_binding_of_its_own() -> None:
    """W4: the UID is compared first, though node and tolerations are equal."""
    cluster = Cluster()
    put_pod(cluster, pod(tolerates(5), uid="a"), 0)
    change = put_pod(cluster, pod(tolerates(5), uid="b"), 30)
    assert change is not None
    known, [before] = change
    assert known.bound is not None
    assert (before.pod.ref.uid, known.pod.ref.uid, known.bound.start_at) == ("a", "b", 30)


def test_a_binding_starts_when_the_pod_is_bound_not_when_it_is_seen() -> None:
    """A pod that waits unbound has no sighting of its binding until it has a node."""
    cluster = Cluster()
    put_pod(cluster, pod(on=None), 0)
    assert cluster.pods.known[ref().key].bound is None
    put_pod(cluster, pod(on="n1"), 40)
    bound = cluster.pods.known[ref().key].bound
    assert bound is not None
    assert bound.start_at == 40


def test_a_pod_is_listed_under_the_node_it_is_bound_to() -> None:
    """W2: if the pod moves, it is listed under the new node only, as of then; nothing is left of it once it is gone."""
    cluster = Cluster()
    put_pod(cluster, pod(on="n1"), at=0)
    put_pod(cluster, pod(on="n2"), at=9)
    assert cluster.pods.known[ref().key].bound == since(9)
    put_pod(cluster, pod(uid="b", on="n2"))
    assert cluster.pods.on_node("n1") == []
    assert [known.pod.ref.uid for known in cluster.pods.on_node("n2")] == ["b"]
    cluster.pods.mark_gone(ref(uid="a"), moment(1))
    assert cluster.pods.on_node("n2") != []
    cluster.pods.mark_gone(ref(uid="b"), moment(1))
    assert cluster.pods.on_node("n1") == cluster.pods.on_node("n2") == []


# Order


def test_an_observation_with_a_lower_version_is_dropped() -> None:
    """This applies to observations with the same name, even if the UID differs."""
    cluster = Cluster()
    put_pod(cluster, pod(tolerates(9), version=7))
    assert put_pod(cluster, pod(version=6)) is None
    assert put_pod(cluster, pod(uid="before", version=5)) is None
    put_node(cluster, node(taint(), version=7), 0)
    put_node(cluster, node(version=6), 1)
    put_node(cluster, node(uid="before", version=5), 1)
    assert cluster.nodes.taints_on("n1") != ()
    assert cluster.nodes.known["n1"].node.uid == "uid-n1"


def test_an_observation_with_the_same_version_is_not_dropped() -> None:
    """A list after a gap repeats what is known, and may show a later start of a taint."""
    cluster = Cluster()
    put_node(cluster, node(taint(), version=7, written_at=0), 5)
    put_node(cluster, node(taint(), version=7, written_at=20), 30, after_gap=True)
    assert start_of(cluster, taint()) == 21


def test_versions_are_compared_as_numbers() -> None:
    """Version 10 comes after version 9."""
    cluster = Cluster()
    put_pod(cluster, pod(version=9))
    assert put_pod(cluster, pod(tolerates(1), version=10)) is not None


def test_without_versions_the_last_observation_counts() -> None:
    """If an observation has no numeric version, its order is unknown."""
    cluster = Cluster()
    put_pod(cluster, pod(version=9))
    assert put_pod(cluster, pod(tolerates(1))) is not None
    assert put_pod(cluster, pod(tolerates(2), version=3)) is not None


def test_an_answer_with_a_lower_version_means_that_storage_went_back() -> None:
    """A newer version that was seen before the request no longer exists: the answer is right."""
    cluster = Cluster()
    put_pod(cluster, pod(tolerates(9), version=100), at=10)
    assert put_pod(cluster, pod(version=50), at=21, asked_at=20) is not None


def test_an_answer_that_the_watch_has_overtaken_is_dropped() -> None:
    """An observation after the request was sent has a higher version, so it is newer than the answer."""
    cluster = Cluster()
    put_pod(cluster, pod(tolerates(9), version=100), at=20.5)
    assert put_pod(cluster, pod(version=50), at=21, asked_at=20) is None


def test_an_observation_at_the_instant_of_the_request_is_no_older_than_the_answer() -> None:
    """Clocks are not finer, so neither a lower version counts, nor a pod that is in the answer or missing."""
    cluster = Cluster()
    put_pod(cluster, pod(tolerates(9), version=100), at=20)
    assert put_pod(cluster, pod(version=50), at=21, asked_at=20) is None
    cluster.pods.mark_gone(ref(), moment(30))
    assert put_pod(cluster, pod(version=101), at=31, asked_at=30) is None
    put_pod(cluster, pod(name="p2", uid="2", version=110), at=40)
    assert absent(cluster, PodsSwept("n1", frozenset(), 40, 109)) == []


def test_not_found_counts_for_a_node_seen_no_later_than_the_request() -> None:
    """Unlike the absence from a list, the answer is about this very node."""
    cluster = Cluster()
    put_node(cluster, node(), 5)
    assert cluster.nodes.drop(NodeGone("n1", asked_at=5), moment(6)) is not None


def test_a_late_observation_does_not_bring_a_deleted_pod_back() -> None:
    """W2: a UID that is gone stays gone for observations that are older than its end."""
    cluster = Cluster()
    put_pod(cluster, pod(version=5))
    cluster.pods.mark_gone(ref(), moment(10))
    assert put_pod(cluster, pod(version=6), at=11) is None
    assert put_pod(cluster, pod(version=6), at=11, asked_at=9) is None


def test_a_pod_that_was_never_known_can_be_gone_too() -> None:
    """A deletion that arrives before the first sight of its pod is remembered."""
    cluster = Cluster()
    cluster.pods.mark_gone(ref(), moment(10))
    assert put_pod(cluster, pod(version=6), at=11) is None


def test_a_fresh_answer_brings_a_pod_back() -> None:
    """A list that was requested after the deletion contains the pod: the storage was restored."""
    cluster = Cluster()
    put_pod(cluster, pod(version=5))
    cluster.pods.mark_gone(ref(), moment(10))
    assert put_pod(cluster, pod(version=5), at=13, asked_at=12) is not None
    assert put_pod(cluster, pod(tolerates(3), version=6), at=14) is not None


def test_a_late_observation_does_not_bring_a_deleted_node_back() -> None:
    """W12: the deletion of a node is remembered with its UID."""
    cluster = Cluster()
    put_node(cluster, node(taint(), version=5), 0)
    assert cluster.nodes.drop(NodeGone("n1", "uid-n1"), moment(1)) is not None
    put_node(cluster, node(taint(), version=5), 2)
    assert cluster.nodes.taints_on("n1") is None


def test_a_late_observation_of_a_nodes_predecessor_is_dropped() -> None:
    """W12: this applies without versions too, and if the deletion did not name a UID."""
    cluster = Cluster()
    put_node(cluster, node(taint(), uid="old"), 0)
    put_node(cluster, node(uid="new"), 1)
    put_node(cluster, node(taint(), uid="old"), 2)
    assert (cluster.nodes.taints_on("n1"), cluster.nodes.known["n1"].node.uid) == ((), "new")
    cluster.nodes.drop(NodeGone("n1"), moment(3))
    put_node(cluster, node(taint(), uid="new"), 4)
    assert cluster.nodes.taints_on("n1") is None


def test_tainted_nodes_are_those_with_a_no_execute_taint() -> None:
    """Clean nodes and nodes with a NoSchedule taint do not belong to them."""
    cluster = Cluster()
    for which in (node(taint()), node(no_schedule(), name="n2"), node(name="n3")):
        put_node(cluster, which, 0)
    assert list(cluster.nodes.tainted()) == ["n1"]


def test_a_pod_is_gone_if_its_end_was_seen_or_another_pod_has_its_name() -> None:
    """A pod that is known, or was only released, is not gone."""
    cluster = Cluster()
    put_pod(cluster, pod())
    record = cluster.pods.known[ref().key]
    assert not cluster.pods.is_gone(record)
    cluster.pods.detach(record)
    assert not cluster.pods.is_gone(record)
    put_pod(cluster, pod(uid="b"))
    assert cluster.pods.is_gone(record)
    successor = cluster.pods.known[ref().key]
    cluster.pods.mark_gone(ref(uid="b"), moment(1))
    assert cluster.pods.is_gone(successor)


def test_a_node_that_was_never_known_can_be_gone_too() -> None:
    """A deletion that arrives before the first sight of its node is remembered, as for pods."""
    cluster = Cluster()
    cluster.nodes.drop(NodeGone("n1", "uid-n1"), moment(1))
    put_node(cluster, node(taint(), version=5), 2)
    assert cluster.nodes.taints_on("n1") is None


def test_a_node_is_gone_only_with_its_own_uid() -> None:
    """W12: the late deletion of its predecessor does not affect a recreated node."""
    cluster = Cluster()
    put_node(cluster, node(taint(), uid="new"), 5)
    assert cluster.nodes.drop(NodeGone("n1", "old"), moment(6)) is None
    assert cluster.nodes.taints_on("n1")


def test_not_found_means_gone_unless_the_node_was_seen_since_the_request() -> None:
    """An answer that is older than the last sight of the node proves nothing."""
    cluster = Cluster()
    put_node(cluster, node(), 5)
    assert cluster.nodes.drop(NodeGone("n1", asked_at=4), moment(6)) is None
    assert cluster.nodes.drop(NodeGone("n1", asked_at=5.5), moment(6)) is not None
    assert cluster.nodes.drop(NodeGone("n1", asked_at=7), moment(8)) is None


def test_the_memory_of_gone_objects_is_bounded() -> None:
    """If there are too many of them, the oldest are forgotten first."""
    cluster = Cluster()
    for number in range(20_500):
        cluster.pods.mark_gone(ref(uid=str(number)), moment(number))
    assert put_pod(cluster, pod(uid="499")) is not None
    assert put_pod(cluster, pod(uid="500")) is None


# What lists prove


def absent(cluster: Cluster, fact: PodsSwept) -> list[str]:
    """List the UIDs of the pods that a list proves to be gone."""
    return sorted(known.pod.ref.uid for known in cluster.pods.absent(fact))


def test_a_list_proves_that_older_pods_which_it_lacks_are_gone() -> None:
    """W21: this applies to pods of the listed node, or to all bound pods; never to unbound ones."""
    cluster = Cluster()
    for uid, name, on in [("1", "p1", "n1"), ("2", "p2", "n1"), ("3", "p3", "n2"), ("4", "p4", None)]:
        put_pod(cluster, pod(name=name, uid=uid, on=on), at=0)
    assert absent(cluster, PodsSwept("n1", frozenset({"2"}), 5, None)) == ["1"]
    assert absent(cluster, PodsSwept(None, frozenset({"2"}), 5, None)) == ["1", "3"]
    assert absent(cluster, PodsSwept("n9", frozenset(), 5, None)) == []


def test_a_list_does_not_prove_that_newer_pods_are_gone() -> None:
    """W21: a pod seen since the request stays if its version is above the list's, or if the order is unknown."""
    cluster = Cluster()
    put_pod(cluster, pod(name="p1", uid="newer", version=11), at=6)
    put_pod(cluster, pod(name="p2", uid="older", version=10), at=6)
    put_pod(cluster, pod(name="p3", uid="unordered"), at=6)
    assert absent(cluster, PodsSwept("n1", frozenset(), 5, 10)) == ["older"]
    assert absent(cluster, PodsSwept("n1", frozenset(), 5, None)) == []


def test_a_list_of_nodes_proves_that_older_nodes_which_it_lacks_are_gone() -> None:
    """W21: nodes are compared by UID, so a recreated node does not hide that the old one is gone."""
    cluster = Cluster()
    put_node(cluster, node(name="n1", uid="old"), 0)
    put_node(cluster, node(name="n2"), 0)
    gone = cluster.nodes.absent(NodesSwept(frozenset({"new", "uid-n2"}), 5, None))
    assert [known.node.uid for known in gone] == ["old"]


def test_a_pod_that_was_seen_unbound_is_bound_anew() -> None:
    """The pod was not on its node at that instant, whatever its conditions say later."""
    on = Stage()
    on.sees(node(taint()), pod(tolerates(30), bound_at=-50))
    assert on.deadlines() == {"a": 30}
    on.at(10).sees(pod(tolerates(30), on=None))
    on.at(20).sees(pod(tolerates(30)))
    assert on.deadlines() == {"a": 50}
