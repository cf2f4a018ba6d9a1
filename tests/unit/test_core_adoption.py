"""Which seconds of tolerations are noted when they are taken away, and which are given back."""

from dataclasses import replace

from taint_eviction.core.adoption import TolerationKey, builtin_seconds, seconds_at, seconds_to_return, with_seconds
from taint_eviction.core.objects import NO_EXECUTE, Taint, Toleration

SLOW = Toleration("slow", "Exists", "", "NoExecute", 300)
FAST = Toleration("fast", "Equal", "x", "NoExecute", 5)
FOREVER = Toleration("any", "Exists")
TAINT = Taint("slow", NO_EXECUTE)
UNTOLERATED = Taint("nobody", NO_EXECUTE)


def bare(*tolerations: Toleration) -> tuple[Toleration, ...]:
    """Return tolerations without their seconds."""
    return tuple(replace(toleration, toleration_seconds=None) for toleration in tolerations)


def test_only_existing_seconds_of_named_tolerations_are_noted() -> None:
    """A toleration without seconds has none to take, and a toleration whose place is not named keeps its seconds."""
    assert seconds_at((FAST, FOREVER, SLOW), {1, 2}) == {TolerationKey(bare(SLOW)[0], 0): 300}


def test_equal_tolerations_are_distinguished_by_their_occurrence() -> None:
    """Seconds do not count for equality: a list may contain the same toleration with different seconds."""
    other = replace(SLOW, toleration_seconds=7)
    noted = seconds_at((SLOW, FAST, other), {2})
    assert noted == {TolerationKey(bare(SLOW)[0], 1): 7}
    assert seconds_to_return(bare(SLOW, FAST, other), noted) == {2: 7}


def test_a_note_counts_only_for_tolerations_without_seconds() -> None:
    """Seconds that somebody has set again stay; the other tolerations get theirs back."""
    noted = seconds_at((SLOW, FAST), {0, 1})
    again = replace(SLOW, toleration_seconds=60)
    assert with_seconds((again, *bare(FAST)), noted) == (again, FAST)


def test_seconds_find_their_toleration_in_any_order() -> None:
    """Admission plugins and people may append tolerations, and the order may change."""
    noted = seconds_at((SLOW, FAST), {0, 1})
    assert with_seconds((FOREVER, *bare(FAST, SLOW)), noted) == (FOREVER, FAST, SLOW)


def test_seconds_of_a_missing_toleration_are_not_returned() -> None:
    """A note can add no toleration."""
    assert seconds_to_return((FOREVER,), seconds_at((SLOW,), {0})) == {}


def test_the_built_in_controller_counts_the_first_toleration_that_matches() -> None:
    """A toleration that does not match has no effect, wherever it is in the list."""
    assert builtin_seconds((FAST, SLOW), [TAINT]) == 300.0


def test_the_built_in_controller_evicts_at_once_if_one_taint_is_not_tolerated() -> None:
    """It does not matter for how long the pod tolerates the other taints."""
    assert builtin_seconds((SLOW,), [TAINT, UNTOLERATED]) == 0.0


def test_the_built_in_controller_never_evicts_a_pod_that_tolerates_without_seconds() -> None:
    """Therefore it does not evict a pod whose countdown is adopted."""
    assert builtin_seconds(bare(SLOW), [TAINT]) is None


def test_the_built_in_controller_evicts_when_the_first_of_several_tolerations_ends() -> None:
    """A negative number of seconds counts as zero."""
    fast = Taint("fast", NO_EXECUTE, "x")
    assert builtin_seconds((SLOW, FAST), [TAINT, fast]) == 5.0
    assert builtin_seconds((replace(SLOW, toleration_seconds=-1),), [TAINT]) == 0.0
