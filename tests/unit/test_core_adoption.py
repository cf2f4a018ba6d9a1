"""Whose word counts for a toleration: its mark with a note, or the spec; and what is to be written next."""

from dataclasses import replace

import pytest
from tests.unit.builders import pod, taint, tolerates

from taint_eviction.core.adoption import (
    CountdownChange,
    NotedToleration,
    builtin_seconds,
    known_note,
    may_be_marked,
    note_of,
    noted_places,
    places_to_mark,
    places_to_return,
    unexplained_marks,
    wanted_change,
    with_seconds,
)
from taint_eviction.core.objects import MARK_SECONDS, NO_EXECUTE, Adoption, Pod, Taint, Toleration
from taint_eviction.kube.taints_and_tolerations import read_tolerations

SLOW = Toleration("slow", "Exists", "", "NoExecute", 300)
FAST = Toleration("fast", "Equal", "x", "NoExecute", 5)
FOREVER = Toleration("any", "Exists")
TAINT = Taint("slow", NO_EXECUTE)


def marked(toleration: Toleration) -> Toleration:
    """Return a toleration with the mark."""
    return replace(toleration, toleration_seconds=MARK_SECONDS)


def bare(toleration: Toleration) -> Toleration:
    """Return a toleration without seconds."""
    return replace(toleration, toleration_seconds=None)


def noted(*tolerations: Toleration, seconds: dict[int, int], void: bool = False) -> Pod:
    """Return a pod whose spec has these tolerations, with a note of the seconds at these places."""
    found = pod(*with_seconds(tolerations, seconds))
    return replace(found, adoption=Adoption(tolerations, tuple(seconds), void))


# Whose word counts


def test_a_note_counts_for_a_mark_and_for_nothing_else() -> None:
    """Seconds that somebody has set again stay, and so does a toleration whose seconds somebody has removed."""
    note = note_of((SLOW, FAST, FOREVER), {0: 300, 1: 5})
    assert noted_places((marked(SLOW), FAST, FOREVER), note) == {0: 300}
    assert noted_places((bare(SLOW), marked(FAST)), note) == {1: 5}


def test_equal_tolerations_are_distinguished_by_their_occurrence() -> None:
    """Seconds do not count for equality: a list may contain the same toleration with different seconds."""
    two = (marked(SLOW), FAST, marked(SLOW))
    note = note_of(two, {2: 7})
    assert note == {NotedToleration(bare(SLOW), 1, 2): 7}
    assert noted_places(two, note) == {2: 7}


def test_where_the_count_of_equal_tolerations_has_changed_the_notes_go_to_the_marks_in_order() -> None:
    """Somebody has put an equal toleration with seconds of its own before the two marks."""
    note = note_of((marked(SLOW), marked(SLOW)), {0: 60, 1: 30})
    assert noted_places((SLOW, marked(SLOW), marked(SLOW)), note) == {1: 60, 2: 30}
    assert noted_places((SLOW, SLOW, marked(SLOW)), note) == {2: 60}


def test_a_note_of_an_occurrence_that_there_cannot_be_goes_to_a_mark_in_order() -> None:
    """Anybody may write the annotation."""
    note = {NotedToleration(bare(SLOW), 2, 2): 60}
    assert noted_places((marked(SLOW), marked(SLOW)), note) == {0: 60}


def test_seconds_find_their_toleration_in_any_order() -> None:
    """Others may put tolerations before it."""
    note = note_of((marked(SLOW), marked(FAST)), {0: 300, 1: 5})
    assert noted_places((FOREVER, marked(FAST), marked(SLOW)), note) == {1: 5, 2: 300}


def test_a_mark_without_a_note_is_unexplained() -> None:
    """A tenant may write MaxInt64, too: the pod stays, as its spec says."""
    found = noted(marked(SLOW), marked(FAST), seconds={0: 300})
    assert unexplained_marks(found) == 1
    assert known_note(found) == {NotedToleration(bare(SLOW)): 300}


def test_of_a_long_list_no_mark_is_unexplained_and_seconds_are_set_all_the_same() -> None:
    """Nothing is taken over of such a pod, and its marks are not counted; but what it has noted can be given back."""
    told = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": MARK_SECONDS}
    long, _ = read_tolerations([{"key": f"k{number}", **told} for number in range(70)])
    assert unexplained_marks(replace(pod(), tolerations=long)) == 0
    after = list(with_seconds(long, {3: 7}))
    assert [place for place, each in enumerate(after) if each.toleration_seconds != MARK_SECONDS] == [3]
    assert after[3] == replace(long[3], toleration_seconds=7)


# What the built-in controller does


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ((), 0.0),
        ((SLOW,), 300.0),
        ((bare(SLOW),), None),
        ((marked(SLOW),), None),
        ((replace(SLOW, toleration_seconds=-1),), 0.0),
        ((marked(SLOW), SLOW), None),
        ((Toleration("", "Exists", "", "NoExecute", 20), SLOW), 20.0),
    ],
)
def test_the_built_in_controller_reads_the_first_match(
    tolerations: tuple[Toleration, ...], seconds: float | None
) -> None:
    """MaxInt64 and no seconds mean "for ever"; what nothing tolerates is evicted at once."""
    assert builtin_seconds(tolerations, [TAINT]) == seconds


def test_the_least_finite_first_match_of_several_taints_counts() -> None:
    """A mark on one of them does not help while another one is finite."""
    taints = [TAINT, Taint("fast", NO_EXECUTE, "x")]
    assert builtin_seconds((marked(SLOW), FAST), taints) == 5.0
    assert builtin_seconds((marked(SLOW), marked(FAST)), taints) is None


# What is to be written


def test_all_finite_first_matches_are_marked_in_one_write() -> None:
    """Also those that are not due; a toleration that is never the first match keeps its seconds."""
    found = pod(tolerates(300), tolerates(20), tolerates(1000, "k2"), tolerates(5, "k3"))
    places = places_to_mark(found, [taint(), taint("k2")])
    assert wanted_change(found, places, (), {}) == CountdownChange(frozenset({0, 2}), {}, {0: 300, 2: 1000})


def test_what_is_marked_already_stays_noted() -> None:
    """A taint that joins later is taken over in its turn, beside the first one."""
    found = noted(marked(SLOW), FAST, seconds={0: 300})
    places = places_to_mark(found, [TAINT, Taint("fast", NO_EXECUTE, "x")])
    assert wanted_change(found, places, (), {}) == CountdownChange(frozenset({1}), {}, {0: 300, 1: 5})


def test_each_mark_is_given_back_when_no_taint_has_it_as_its_first_match() -> None:
    """The others stay noted; with the last one, the note goes."""
    found = noted(marked(SLOW), marked(FAST), seconds={0: 300, 1: 5})
    places = places_to_return(found, [TAINT])
    assert wanted_change(found, (), places, {}) == CountdownChange(returns={1: 5}, noted={0: 300})
    assert wanted_change(found, (), places_to_return(found, []), {}) == CountdownChange(returns={0: 300, 1: 5})


def test_a_lost_note_that_is_known_is_written_again() -> None:
    """A mark of unknown origin beside it stays as it is."""
    known = note_of((marked(SLOW),), {0: 300})
    assert wanted_change(pod(marked(SLOW), marked(FAST)), (), (), known) == CountdownChange(noted={0: 300})


def test_a_void_note_is_removed_when_it_is_seen() -> None:
    """Its toleration has other seconds now."""
    assert wanted_change(noted(SLOW, seconds={}, void=True), (), (), {}) == CountdownChange()
    assert wanted_change(noted(marked(SLOW), seconds={0: 300}), (), (), {}) is None


def test_some_pods_are_never_marked() -> None:
    """Those that end anyway, mirror pods, pods without a node, and the controller's own replicas."""
    found = pod(tolerates(300))
    own = {"app.kubernetes.io/name": "taint-eviction-controller"}
    assert may_be_marked(found)
    for never in (
        replace(found, terminating=True),
        replace(found, finished=True),
        replace(found, mirror=True),
        replace(found, node_name=None),
        replace(found, labels=own),
    ):
        assert not may_be_marked(never)
