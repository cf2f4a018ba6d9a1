"""Properties of every decision."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import KEYS, VALUES, any_tolerations, toleration_lists
from tests.unit.builders import pod, seen, since

from taint_eviction.core.decision import Ceiling, Decision, DecisionPolicy, Evict, SeenTaint, Stay, StayReason, decide
from taint_eviction.core.instants import FAR_FUTURE_SECONDS
from taint_eviction.core.matching import matches
from taint_eviction.core.objects import MARK_SECONDS, NO_EXECUTE, Taint, Toleration

NEVER = float("inf")

instants = st.integers(-10_000, 10_000).map(float)
seen_taints = st.builds(
    seen, st.builds(Taint, st.sampled_from(KEYS), st.just(NO_EXECUTE), st.sampled_from(VALUES)), instants
)
taint_lists = st.lists(seen_taints, max_size=4, unique_by=lambda one: one.taint.key)


def decided(tolerations: tuple[Toleration, ...], taints: list[SeenTaint], bound_at: float) -> Decision:
    """Decide on a pod with these tolerations."""
    return decide(pod(*tolerations), since(bound_at), taints, DecisionPolicy())


def leaves_at(tolerations: tuple[Toleration, ...], taints: list[SeenTaint], bound_at: float) -> float:
    """Return when a pod leaves, infinity for never."""
    decision = decided(tolerations, taints, bound_at)
    return decision.fire_at if isinstance(decision, Evict) else NEVER


@given(toleration_lists, taint_lists, instants)
def test_the_deadline_follows_its_definition(
    tolerations: tuple[Toleration, ...], taints: list[SeenTaint], bound_at: float
) -> None:
    """The deadline is the minimum over all taints of max(taint's start, pod's start) + seconds of the first match."""
    deadlines = [NEVER]
    for one in taints:
        seconds: float | None = 0
        for toleration in tolerations:
            if matches(toleration, one.taint):
                seconds = toleration.toleration_seconds
                break
        if seconds is not None and seconds != MARK_SECONDS:
            deadlines.append(max(one.since.start_at, bound_at) + min(max(seconds, 0), FAR_FUTURE_SECONDS))
    assert leaves_at(tolerations, taints, bound_at) == min(deadlines)


ceilings = st.dictionaries(
    st.sampled_from(KEYS), st.builds(Ceiling, st.just("rule"), st.integers(0, 500) | st.just(2**63))
)


@given(toleration_lists, taint_lists, instants, ceilings)
def test_a_ceiling_is_the_least_of_both_for_finite_seconds_alone(
    tolerations: tuple[Toleration, ...], taints: list[SeenTaint], bound_at: float, most: dict[str, Ceiling]
) -> None:
    """Verdict by verdict: one without an end keeps none, any other ends by the ceiling, and never after its own end."""
    own = decided(tolerations, taints, bound_at).verdicts
    shortened = decide(pod(*tolerations), since(bound_at), taints, DecisionPolicy(), most.get).verdicts
    for before, after in zip(own, shortened, strict=True):
        assert (after.taint, after.toleration, after.start_at) == (before.taint, before.toleration, before.start_at)
        ceiling = most.get(after.taint.key)
        if before.fire_at is None or ceiling is None or before.fire_at <= before.start_at + ceiling.seconds:
            assert (after.fire_at, after.ceiling) == (before.fire_at, None)
        else:
            assert (after.fire_at, after.ceiling) == (before.start_at + ceiling.seconds, ceiling)


@given(toleration_lists, taint_lists, instants, st.randoms(use_true_random=False))
def test_the_order_of_taints_does_not_matter(
    tolerations: tuple[Toleration, ...], taints: list[SeenTaint], bound_at: float, rng: Random
) -> None:
    """A node may list its taints in any order without changing when a pod is evicted."""
    shuffled = list(taints)
    rng.shuffle(shuffled)
    assert leaves_at(tolerations, shuffled, bound_at) == leaves_at(tolerations, taints, bound_at)


@given(toleration_lists, any_tolerations, taint_lists, instants)
def test_a_toleration_added_at_the_end_never_hastens(
    tolerations: tuple[Toleration, ...], added: Toleration, taints: list[SeenTaint], bound_at: float
) -> None:
    """W5: a toleration that is appended to a running pod's list can only delay the eviction."""
    assert leaves_at((*tolerations, added), taints, bound_at) >= leaves_at(tolerations, taints, bound_at)


@given(toleration_lists, taint_lists, seen_taints, instants)
def test_a_taint_that_is_added_never_delays(
    tolerations: tuple[Toleration, ...], taints: list[SeenTaint], added: SeenTaint, bound_at: float
) -> None:
    """W6: a second taint can only bring the deadline forward, so removing one never does."""
    assert leaves_at(tolerations, [*taints, added], bound_at) <= leaves_at(tolerations, taints, bound_at)


@given(toleration_lists, taint_lists, instants, st.integers(0, 5_000))
def test_a_later_start_is_never_an_earlier_deadline(
    tolerations: tuple[Toleration, ...], taints: list[SeenTaint], bound_at: float, later: int
) -> None:
    """A pod is never evicted early: a binding that is known later can only delay its eviction."""
    assert leaves_at(tolerations, taints, bound_at + later) >= leaves_at(tolerations, taints, bound_at)


@given(toleration_lists, taint_lists, instants)
def test_a_decision_explains_itself(
    tolerations: tuple[Toleration, ...], taints: list[SeenTaint], bound_at: float
) -> None:
    """A decision has one verdict per taint; the deciding verdict is among them, and no other is earlier."""
    decision = decided(tolerations, taints, bound_at)
    assert [verdict.taint for verdict in decision.verdicts] == [one.taint for one in taints]
    instants_of = [verdict.fire_at for verdict in decision.verdicts if verdict.fire_at is not None]
    match decision:
        case Evict():
            assert decision.deciding in decision.verdicts
            assert decision.fire_at == decision.deciding.fire_at == min(instants_of)
            assert decision.fire_at >= bound_at
        case Stay():
            assert instants_of == []
            assert decision.reason is (StayReason.TOLERATED if taints else StayReason.NODE_CLEAN)
    for verdict in decision.verdicts:
        assert verdict.overruled is None or matches(verdict.overruled, verdict.taint)
