"""When and why a pod is evicted, decided without a clock."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.builders import epoch, moment, pod, seen, since, taint, tolerates

from taint_eviction.core.decision import (
    Ceiling,
    Decision,
    DecisionPolicy,
    Evict,
    SeenTaint,
    Stay,
    StayReason,
    decide,
)
from taint_eviction.core.instants import FAR_FUTURE_SECONDS, Sighting, TimeSource, sight
from taint_eviction.core.objects import NO_EXECUTE, NOT_READY, OUT_OF_SERVICE, UNREACHABLE, Pod, Toleration


def decided(which: Pod, *taints: SeenTaint, bound_at: float = 0.0) -> Decision:
    """Decide under the default policy on a pod that has been on its node since ``bound_at``."""
    return decide(which, since(bound_at), taints, DecisionPolicy())


def fire_at(which: Pod, *taints: SeenTaint, bound_at: float = 0.0) -> float:
    """Return when a pod that must be evicted is due."""
    decision = decided(which, *taints, bound_at=bound_at)
    assert isinstance(decision, Evict)
    return decision.fire_at


def test_a_taint_that_is_not_tolerated_evicts_from_its_start() -> None:
    """Without a matching toleration the deadline is the start itself."""
    assert fire_at(pod(), seen(taint(), 7)) == 7
    assert fire_at(pod(tolerates(key="other")), seen(taint(), 7)) == 7


def test_a_pod_that_tolerates_the_taint_indefinitely_stays() -> None:
    """The verdict names the toleration without seconds that keeps the pod."""
    decision = decided(pod(tolerates()), seen(taint()))
    assert isinstance(decision, Stay)
    assert decision.reason is StayReason.TOLERATED
    assert decision.verdicts[0].toleration == tolerates()
    assert decision.verdicts[0].fire_at is None


def test_a_pod_that_tolerates_the_taint_for_seconds_is_due_when_they_have_passed() -> None:
    """The seconds run from the start."""
    assert fire_at(pod(tolerates(30)), seen(taint(), 7)) == 37


@pytest.mark.parametrize("seconds", [0, -1, -(2**63)])
def test_zero_or_negative_seconds_mean_at_once(seconds: int) -> None:
    """A tolerance of zero or less never moves a deadline before its start."""
    assert fire_at(pod(tolerates(seconds)), seen(taint(), 7)) == 7


@pytest.mark.parametrize("seconds", [18446744074, 2**63 - 2])
def test_absurd_seconds_are_clamped_to_a_far_future(seconds: int) -> None:
    """Seconds that make Go wrap and Python raise an error mean a very long time, which every date type can hold."""
    at = fire_at(pod(tolerates(seconds)), seen(taint(), 7))
    assert at == pytest.approx(7 + min(seconds, FAR_FUTURE_SECONDS))
    assert datetime.fromtimestamp(0, UTC) + timedelta(seconds=at) > datetime(2060, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "most", "expected"),
    [
        (300, 60, 67),
        (60, 60, 67),
        (30, 60, 37),
        (300, 0, 7),
        (-5, 60, 7),
        (2**63 - 2, 60, 67),
        (300, 2**63 - 1, 307),
        (None, 0, None),
        (2**63 - 1, 0, None),
    ],
)
def test_a_ceiling_shortens_finite_seconds_alone(seconds: int | None, most: int, expected: float | None) -> None:
    """The verdict keeps the pod's own toleration, and names the rule only where that made the deadline earlier."""
    decision = decide(
        pod(tolerates(seconds)), since(0.0), [seen(taint(), 7)], DecisionPolicy(), lambda _: Ceiling("lost", most)
    )
    (verdict,) = decision.verdicts
    assert (verdict.fire_at, verdict.toleration) == (expected, tolerates(seconds))
    shortened = seconds not in (None, 2**63 - 1) and max(seconds or 0, 0) > most
    assert verdict.ceiling == (Ceiling("lost", most) if shortened else None)


def test_each_taint_has_a_ceiling_of_its_own() -> None:
    """What shortens the toleration of one taint has nothing to do with another."""
    which = pod(tolerates(300), tolerates(300, "k2"))
    decision = decide(
        which,
        since(0.0),
        [seen(taint(), 0), seen(taint("k2"), 0)],
        DecisionPolicy(),
        {"k1": None, "k2": Ceiling("two", 20)}.get,
    )
    assert [(each.fire_at, each.ceiling) for each in decision.verdicts] == [(300, None), (20, Ceiling("two", 20))]


def test_a_later_toleration_that_the_ceiling_makes_equal_is_not_named() -> None:
    """It would not have decided otherwise."""
    which = pod(tolerates(300), tolerates(600))
    decision = decide(which, since(0.0), [seen(taint(), 0)], DecisionPolicy(), lambda _: Ceiling("lost", 60))
    assert decision.verdicts[0].overruled is None


def test_a_pod_that_does_not_tolerate_a_taint_has_no_ceiling() -> None:
    """Nothing is shortened."""
    decision = decide(pod(), since(0.0), [seen(taint(), 7)], DecisionPolicy(), lambda _: Ceiling("lost", 60))
    assert (decision.verdicts[0].fire_at, decision.verdicts[0].ceiling) == (7, None)


def test_max_int64_seconds_mean_indefinitely() -> None:
    """As for the built-in controller, which computes with them as with none."""
    assert decided(pod(tolerates(2**63 - 1)), seen(taint(), 7)).reason is StayReason.TOLERATED  # type: ignore[union-attr]


@pytest.mark.parametrize(("taint_at", "bound_at", "expected"), [(100, 3600, 3900), (3600, 100, 3900)])
def test_the_tolerance_starts_when_taint_and_pod_have_met(taint_at: float, bound_at: float, expected: float) -> None:
    """start = max(the taint's time, the pod's time): a pod bound to a node with an old taint has its whole window."""
    assert fire_at(pod(tolerates(300)), seen(taint(), taint_at), bound_at=bound_at) == expected


def test_the_start_names_its_source() -> None:
    """The verdict says where the start comes from: the later one of the taint's and the binding's time."""
    bound = Sighting(5.0, TimeSource.POD_SCHEDULED, None)
    added = SeenTaint(taint(), Sighting(3.0, TimeSource.TIME_ADDED, None))
    decision = decide(pod(tolerates(10)), bound, [added], DecisionPolicy())
    assert isinstance(decision, Evict)
    assert (decision.deciding.start_at, decision.deciding.start_source) == (5.0, TimeSource.POD_SCHEDULED)


def test_the_earliest_deadline_of_several_taints_counts() -> None:
    """W6: each taint has its own start and its own seconds, and the first to run out decides."""
    shop = pod(tolerates(100, "k1"), tolerates(20, "k2"), tolerates(None, "k3"))
    old, young, harmless = seen(taint("k1"), 0), seen(taint("k2"), 50), seen(taint("k3"), 60)
    decision = decided(shop, old, young, harmless)
    assert isinstance(decision, Evict)
    assert (decision.fire_at, decision.deciding.taint.key) == (70, "k2")
    assert [verdict.fire_at for verdict in decision.verdicts] == [100, 70, None]


def test_one_taint_without_toleration_among_tolerated_ones_evicts() -> None:
    """Tolerating all but one taint indefinitely does not help."""
    assert fire_at(pod(tolerates(None, "k1")), seen(taint("k1"), 0), seen(taint("k2"), 9)) == 9


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ((tolerates(10), tolerates(100)), 10),
        ((tolerates(100), tolerates(10)), 100),
        ((tolerates(10), tolerates(None)), 10),
        ((tolerates(None, "other"), tolerates(10), tolerates(100)), 10),
    ],
)
def test_the_first_matching_toleration_counts_not_the_longest(
    tolerations: tuple[Toleration, ...], expected: float
) -> None:
    """For each taint, the order of the pod's tolerations decides."""
    assert fire_at(pod(*tolerations), seen(taint())) == expected


def test_the_first_matching_toleration_counts_even_if_it_is_the_longest() -> None:
    """A later, shorter toleration does not shorten the first one."""
    assert isinstance(decided(pod(tolerates(None), tolerates(0)), seen(taint())), Stay)


@pytest.mark.parametrize(
    ("tolerations", "overruled"),
    [
        ((tolerates(10),), None),
        ((tolerates(10), tolerates(10)), None),
        ((tolerates(0), tolerates(-5)), None),
        ((tolerates(10), tolerates(100)), tolerates(100)),
        ((tolerates(10), tolerates(10), tolerates(None)), tolerates(None)),
        ((tolerates(None), tolerates(3)), tolerates(3)),
        ((tolerates(10), tolerates(100, "other")), None),
    ],
)
def test_a_later_toleration_that_would_have_decided_otherwise_is_named(
    tolerations: tuple[Toleration, ...], overruled: Toleration | None
) -> None:
    """The verdict names the first later match with different seconds, and none if that makes no difference."""
    assert decided(pod(*tolerations), seen(taint())).verdicts[0].overruled == overruled


def test_one_toleration_may_match_several_taints() -> None:
    """A toleration of every key counts from each taint's own start."""
    everything = Toleration("", "Exists", toleration_seconds=10)
    assert fire_at(pod(everything), seen(taint("k1"), 5), seen(taint("k2"), 3)) == 13


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        (pod(on=None), StayReason.NOT_BOUND),
        (pod(mirror=True), StayReason.MIRROR),
        (pod(terminating=True), StayReason.TERMINATING),
        (pod(mirror=True, terminating=True), StayReason.MIRROR),
    ],
)
def test_some_pods_are_never_evicted_whatever_they_tolerate(which: Pod, reason: StayReason) -> None:
    """W13, W15: unbound, mirror and terminating pods stay, each for its own reason."""
    assert decided(which, seen(taint())) == Stay(reason)


def test_finished_pods_are_evicted_unless_the_policy_keeps_them() -> None:
    """W16: eviction is the default, as upstream, and a setting keeps finished pods."""
    done, taints = pod(finished=True), [seen(taint())]
    assert isinstance(decide(done, since(0), taints, DecisionPolicy()), Evict)
    assert decide(done, since(0), taints, DecisionPolicy(evict_finished=False)) == Stay(StayReason.FINISHED)
    assert isinstance(decide(pod(), since(0), taints, DecisionPolicy(evict_finished=False)), Evict)


def test_an_unknown_node_and_a_clean_node_give_different_reasons() -> None:
    """W12: no pod is evicted from either."""
    assert decide(pod(), since(0), None, DecisionPolicy()) == Stay(StayReason.NODE_UNKNOWN)
    assert decide(pod(), since(0), (), DecisionPolicy()) == Stay(StayReason.NODE_CLEAN)


def test_a_pod_without_binding_is_not_bound() -> None:
    """Nothing says since when the pod has been on its node, so no deadline is computed."""
    assert decide(pod(), None, [seen(taint())], DecisionPolicy()) == Stay(StayReason.NOT_BOUND)


def test_an_equal_deadline_names_the_first_taint() -> None:
    """If deadlines are equal, the order of the node's taints decides, so that the decision is always the same."""
    decision = decided(pod(), seen(taint("k1")), seen(taint("k2")))
    assert isinstance(decision, Evict)
    assert decision.deciding.taint.key == "k1"


# Nodes that shut down gracefully


def decided_at_shutdown(which: Pod, *taints: SeenTaint, waits: bool = True) -> Decision:
    """Decide while the kubelet shuts the node down gracefully."""
    return decide(which, since(0), taints, DecisionPolicy(wait_for_shutdown=waits), shutting_down=True)


def test_by_default_a_graceful_shutdown_changes_nothing() -> None:
    """The default is upstream's behavior."""
    decision = decided_at_shutdown(pod(tolerates(30, NOT_READY)), seen(taint(NOT_READY)), waits=False)
    assert isinstance(decision, Evict)
    assert (decision.fire_at, decision.deciding.left_to_kubelet) == (30, False)


def test_a_pod_that_only_not_ready_evicts_is_left_to_a_kubelet_that_shuts_its_node_down() -> None:
    """With the setting on, the taint's verdict has no deadline and says why."""
    decision = decided_at_shutdown(pod(tolerates(30, NOT_READY)), seen(taint(NOT_READY)))
    assert isinstance(decision, Stay)
    assert decision.reason is StayReason.SHUTTING_DOWN
    assert [(verdict.fire_at, verdict.left_to_kubelet) for verdict in decision.verdicts] == [(None, True)]


def test_another_taint_evicts_pods_from_a_node_that_shuts_down_at_its_own_deadline() -> None:
    """The not-ready taint would have evicted the pod earlier."""
    which = pod(tolerates(30, NOT_READY), tolerates(60, UNREACHABLE))
    decision = decided_at_shutdown(which, seen(taint(NOT_READY)), seen(taint(UNREACHABLE)))
    assert isinstance(decision, Evict)
    assert (decision.fire_at, decision.deciding.taint.key) == (60, UNREACHABLE)


def test_a_pod_that_tolerates_not_ready_indefinitely_stays_for_that_reason() -> None:
    """The kubelet's shutdown is not the reason."""
    decision = decided_at_shutdown(pod(tolerates(None, NOT_READY)), seen(taint(NOT_READY)))
    assert isinstance(decision, Stay)
    assert decision.reason is StayReason.TOLERATED


# Default tolerances


def decided_with_defaults(which: Pod, *taints: SeenTaint) -> Decision:
    """Decide under a policy by which all pods tolerate not-ready for 300 s, and unreachable for 0 s."""
    policy = DecisionPolicy(default_not_ready_seconds=300, default_unreachable_seconds=0)
    return decide(which, since(0), taints, policy)


def test_pods_without_a_toleration_have_the_default_one() -> None:
    """The default is the one that the API server gives to new pods; the verdict says that it is a default."""
    decision = decided_with_defaults(pod(), seen(taint(NOT_READY, "any"), 7))
    assert isinstance(decision, Evict)
    assert decision.fire_at == 307
    assert decision.deciding.by_default
    assert decision.deciding.toleration == Toleration(NOT_READY, "Exists", "", NO_EXECUTE, 300)
    assert decision.deciding.overruled is None


def test_a_default_of_zero_seconds_means_at_once() -> None:
    """Such a default is a tolerance like any other."""
    decision = decided_with_defaults(pod(), seen(taint(UNREACHABLE), 7))
    assert isinstance(decision, Evict)
    assert (decision.fire_at, decision.deciding.by_default) == (7, True)


@pytest.mark.parametrize(
    ("toleration", "at"),
    [
        (tolerates(10, NOT_READY), 17),
        (tolerates(0, NOT_READY), 7),
        (tolerates(5000, NOT_READY), 5007),
        (tolerates(None, NOT_READY), None),
        (Toleration("", "Exists", toleration_seconds=20), 27),
    ],
)
def test_a_pods_own_toleration_counts_before_the_default(toleration: Toleration, at: float | None) -> None:
    """It may be shorter or longer than the default."""
    decision = decided_with_defaults(pod(toleration), seen(taint(NOT_READY), 7))
    assert (decision.fire_at if isinstance(decision, Evict) else None) == at
    assert not decision.verdicts[0].by_default


@pytest.mark.parametrize("key", [UNREACHABLE, "other"])
def test_a_toleration_of_another_taint_does_not_replace_the_default(key: str) -> None:
    """Each taint is judged on its own."""
    decision = decided_with_defaults(pod(tolerates(10, key)), seen(taint(NOT_READY), 7))
    assert isinstance(decision, Evict)
    assert decision.fire_at == 307


def test_other_taints_have_no_default() -> None:
    """Without a setting, no taint has a default."""
    for policy in (DecisionPolicy(default_not_ready_seconds=300), DecisionPolicy()):
        decision = decide(pod(), since(0), [seen(taint(UNREACHABLE), 7)], policy)
        assert isinstance(decision, Evict)
        assert (decision.fire_at, decision.deciding.toleration, decision.deciding.by_default) == (7, None, False)


# Held by the owner


def held(hold_seconds: float | None, most: float, *tolerations: Toleration) -> Decision:
    """Decide on a pod that its owner holds, with at most ``most`` seconds, on a node tainted at 7."""
    which = pod(*tolerations, hold_seconds=hold_seconds)
    return decide(which, since(0), [seen(taint(), 7)], DecisionPolicy(max_hold_seconds=most))


@pytest.mark.parametrize(
    ("hold_seconds", "most", "held_seconds"),
    [
        (None, 600, 0),
        (0.0, 600, 0),
        (60.0, 0, 0),
        (60.0, 600, 60),
        (600.0, 600, 600),
        (601.0, 600, 600),
        (float("inf"), 600, 600),
        (float("inf"), 0, 0),
        (60.0, float("inf"), 60),
        (None, float("inf"), 0),
    ],
)
def test_an_owner_may_hold_a_pod_for_a_while(hold_seconds: float | None, most: float, held_seconds: float) -> None:
    """The hold extends the deadline, up to the operators' maximum, which is zero by default."""
    decision = held(hold_seconds, most)
    assert isinstance(decision, Evict)
    assert (decision.fire_at, decision.held_seconds) == (7 + held_seconds, held_seconds)
    assert decision.deciding.fire_at == 7
    assert DecisionPolicy().max_hold_seconds == 0.0


def test_the_hold_begins_with_the_deadline() -> None:
    """The hold is added to the tolerance."""
    decision = held(60.0, 600, tolerates(30))
    assert isinstance(decision, Evict)
    assert decision.fire_at == 7 + 30 + 60


def test_no_owner_holds_a_pod_against_a_machine_that_is_off() -> None:
    """The hold counts against other taints of that node, and against this one while the node is ready."""
    which, policy = pod(hold_seconds=60.0), DecisionPolicy(max_hold_seconds=600)
    taints = [seen(taint(), 7), seen(taint(OUT_OF_SERVICE), 9)]
    off = decide(which, since(0), taints, policy, out_of_service=True)
    assert [each.due_at for each in off.verdicts] == [67, 9]
    assert [each.due_at for each in decide(which, since(0), taints, policy).verdicts] == [67, 69]


def test_a_pod_with_an_infinite_hold_stays_if_the_maximum_is_infinite() -> None:
    """The hold is a reason of its own; a pod that tolerates its taints indefinitely stays for that reason instead."""
    decision = held(float("inf"), float("inf"))
    assert isinstance(decision, Stay)
    assert decision.reason is StayReason.HELD
    assert decision.verdicts[0].fire_at == 7
    assert decided(pod(tolerates(), hold_seconds=float("inf")), seen(taint())).verdicts[0].fire_at is None
    tolerating = held(float("inf"), float("inf"), tolerates())
    assert isinstance(tolerating, Stay)
    assert tolerating.reason is StayReason.TOLERATED


@pytest.mark.parametrize(
    ("now", "object_at", "start", "source"),
    [
        (100.0, 40.0, 41.0, TimeSource.TIME_ADDED),
        (100.0, 99.5, 100.0, TimeSource.FIRST_SIGHT),
        (100.0, 99.0, 100.0, TimeSource.FIRST_SIGHT),
        (100.0, 500.0, 100.0, TimeSource.FIRST_SIGHT),
        (100.0, None, 100.0, TimeSource.FIRST_SIGHT),
    ],
)
def test_a_sighting_is_the_earlier_of_first_sight_and_object_time_plus_one(
    now: float, object_at: float | None, start: float, source: TimeSource
) -> None:
    """W7: object times are truncated, so a second is added; a time in the future does not delay the start."""
    object_time = None if object_at is None else epoch(object_at)
    assert sight(moment(now), object_time, TimeSource.TIME_ADDED) == Sighting(start, source, object_time)


def test_instants_and_epochs_are_converted_both_ways() -> None:
    """A moment relates both clocks exactly."""
    now = moment(50.0)
    assert now.instant_of(epoch(20.0)) == 20.0
    assert now.epoch_of(20.0) == epoch(20.0)


@pytest.mark.parametrize(
    ("bound", "tainted", "later"),
    [
        ((60.0, 59.0), (10.0, 9.0), True),
        ((60.0, 59.0), (10.0, None), True),
        ((11.0, 10.0), (10.0, 9.0), False),
        ((60.0, None), (10.0, 9.0), False),
        ((60.0, 5.0), (10.0, 9.0), False),
    ],
    ids=["later", "the taint has no date", "within a second", "the pod has no date", "only seen later"],
)
def test_a_pod_came_later_than_a_taint_only_where_that_is_sure(
    bound: tuple[float, float | None], tainted: tuple[float, float | None], later: bool
) -> None:
    """Each has its start and its object's date. Such a pod does not count for the circuit breaker."""
    one, other = (Sighting(at, TimeSource.FIRST_SIGHT, date) for at, date in (bound, tainted))
    verdict = decide(pod(), one, [SeenTaint(taint(), other)], DecisionPolicy()).verdicts[0]
    assert verdict.came_later is later
