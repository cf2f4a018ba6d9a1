"""A countdown taken over: the mark on a pod, the note beside it, whose word counts, and what is to be written next.

The mark is MaxInt64 as ``tolerationSeconds``: the built-in controller then cancels its timer for good. The note keeps
what the seconds were. A mark with a note counts as the noted seconds; everything else counts as the spec says. So
anybody who may write the annotation may change it, but it grants nothing that the spec could not grant.

    no mark --(late before the built-in one's timer)--> mark and note --(no taint needs it)--> no mark, no note

Each arrow is one write. ``wanted_change`` says which one a pod needs now; ``countdowns`` says when it is late. This
module does not define the JSON of a note (``kube.adoption_patches``).

Reference: ``getMinTolerationTime`` in pkg/controller/tainteviction: MaxInt64 means "for ever", as no seconds do.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from taint_eviction.core.matching import SearchableTolerations, first_match, matching
from taint_eviction.core.objects import MARK_SECONDS, NO_EXECUTE, Pod, Taint, Toleration

# The controller's own pods, of all replicas: the controller must not take over its own countdown.
_OWN_LABEL = ("app.kubernetes.io/name", "taint-eviction-controller")


# Of a pod with more tolerations than these, no note counts: this controller marks none of so many, but an owner may
# append a hundred thousand.
_MOST_TOLERATIONS = 1000


class NotedToleration(NamedTuple):
    """What identifies one toleration in a note. Its position does not: others may put tolerations before it.

    ``toleration`` is without seconds; ``occurrence`` counts the equal ones before it, ``among`` all equal ones.
    """

    toleration: Toleration
    occurrence: int = 0
    among: int = 1


Note = Mapping[NotedToleration, int]


@dataclass(frozen=True, slots=True)
class CountdownChange:
    """What one write changes of a pod, by position in its list of tolerations.

    ``marks``: these become marks. ``returns``: these marks become the seconds again. ``noted``: the complete note
    after the write, empty: the annotation goes.
    """

    marks: frozenset[int] = frozenset()
    returns: Mapping[int, int] = field(default_factory=dict)
    noted: Mapping[int, int] = field(default_factory=dict)


# Whose word counts


def is_finite(toleration: Toleration) -> bool:
    """Return whether a toleration ends: it has seconds, and they are not the mark."""
    return toleration.toleration_seconds not in (None, MARK_SECONDS)


def noted_places(tolerations: Sequence[Toleration], note: Note, *, of_any_number: bool = False) -> dict[int, int]:
    """Return the noted seconds by the position of their mark; none of too many tolerations, unless ``of_any_number``.

    Where the number of equal tolerations has changed, the notes go to the marks in order.
    """
    if not note or (len(tolerations) > _MOST_TOLERATIONS and not of_any_number):
        return {}
    equal: dict[Toleration, list[int]] = defaultdict(list)
    marks: set[int] = set()
    for place, each, seconds in _equal_to(tolerations, {noted.toleration for noted in note}):
        equal[each].append(place)
        if seconds == MARK_SECONDS:
            marks.add(place)
    by_toleration: dict[Toleration, list[NotedToleration]] = defaultdict(list)
    for noted in sorted(note, key=lambda noted: noted.occurrence):
        by_toleration[noted.toleration].append(noted)
    found: dict[int, int] = {}
    for toleration, noteds in by_toleration.items():
        places = equal.get(toleration, [])
        marked = [place for place in places if place in marks]
        if all(noted.among == len(places) and noted.occurrence < noted.among for noted in noteds):
            pairs = [(places[noted.occurrence], noted) for noted in noteds]
        else:
            pairs = list(zip(marked, noteds, strict=False))
        found |= {place: note[noted] for place, noted in pairs if place in marks}
    return found


def note_of(tolerations: Sequence[Toleration], noted: Mapping[int, int]) -> dict[NotedToleration, int]:
    """Return the note that says these seconds of the tolerations at these positions."""
    if not noted:
        return {}
    bare = {place: _bare(tolerations[place]) for place in sorted(noted)}
    equal: dict[Toleration, list[int]] = defaultdict(list)
    for place, each, _ in _equal_to(tolerations, {*bare.values()}):
        equal[each].append(place)
    return {
        NotedToleration(each, bisect_left(equal[each], place), len(equal[each])): noted[place]
        for place, each in bare.items()
    }


def with_seconds(tolerations: Sequence[Toleration], seconds: Mapping[int, int]) -> Sequence[Toleration]:
    """Return the tolerations with other seconds at some positions."""
    if isinstance(tolerations, SearchableTolerations):
        return tolerations.with_seconds(seconds)
    return tuple(
        replace(each, toleration_seconds=seconds[place]) if place in seconds else each
        for place, each in enumerate(tolerations)
    )


def _equal_to(
    tolerations: Sequence[Toleration], wanted: Collection[Toleration]
) -> Iterator[tuple[int, Toleration, int | None]]:
    """Yield the position of each toleration that is one of these but for its seconds, that one, and its seconds."""
    if isinstance(tolerations, SearchableTolerations):
        yield from tolerations.equal_to(wanted)
        return
    for place, each in enumerate(tolerations):
        if (bare := _bare(each)) in wanted:
            yield place, bare, each.toleration_seconds


def _bare(toleration: Toleration) -> Toleration:
    return replace(toleration, toleration_seconds=None)


# What the built-in controller does


def first_matches(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> dict[Taint, int | None]:
    """Return, for each NoExecute taint, the position of the first toleration that matches; None if none does."""
    return {taint: first_match(tolerations, taint) for taint in taints if taint.effect == NO_EXECUTE}


def builtin_seconds(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> float | None:
    """Return after how many seconds the built-in controller evicts a pod whose countdown it starts now; None: never."""
    least = None
    for taint in taints:
        if taint.effect == NO_EXECUTE:
            first = next(matching(tolerations, taint), None)
            seconds = 0 if first is None else first.toleration_seconds
            if seconds is not None and seconds != MARK_SECONDS:
                least = seconds if least is None else min(least, seconds)
    return None if least is None else float(max(0, least))


# What is to be written


def has_countdown(pod: Pod) -> bool:
    """Return whether the built-in controller's countdown for a pod is to be taken over, if that is possible."""
    own = pod.labels.get(_OWN_LABEL[0]) == _OWN_LABEL[1]
    return pod.node_name is not None and not (pod.mirror or pod.terminating or pod.finished or own)


def may_be_marked(pod: Pod) -> bool:
    """Return whether the countdowns of a pod may be taken over; those of very long lists of tolerations may not."""
    return has_countdown(pod) and isinstance(pod.spec_tolerations, tuple)


def places_to_mark(pod: Pod, taints: Iterable[Taint]) -> frozenset[int]:
    """Return the tolerations that keep the built-in one's timer running: all are marked, also those not due."""
    places = first_matches(pod.spec_tolerations, taints).values()
    return frozenset(place for place in places if place is not None and is_finite(pod.spec_tolerations[place]))


def places_to_return(pod: Pod, taints: Iterable[Taint]) -> frozenset[int]:
    """Return the marks with a note that are the first match of none of these taints any more."""
    noted = () if pod.adoption is None else pod.adoption.noted
    return frozenset(noted) - {*first_matches(pod.spec_tolerations, taints).values()}


def lost_notes(pod: Pod, known: Note) -> dict[int, int]:
    """Return the seconds of marks whose note is gone, as far as the note was ``known``."""
    noted = () if pod.adoption is None else pod.adoption.noted
    places = noted_places(pod.spec_tolerations, known)
    return {place: seconds for place, seconds in places.items() if place not in noted}


def known_note(pod: Pod) -> Note:
    """Return the note of a pod, as far as it counts."""
    noted = () if pod.adoption is None else pod.adoption.noted
    return note_of(pod.spec_tolerations, {place: _seconds(pod, place) for place in noted})


def unexplained_marks(pod: Pod) -> int:
    """Count the marks without a note: the spec says "for ever", and nobody can tell who wrote that."""
    if not isinstance(pod.spec_tolerations, tuple):
        return 0
    noted = () if pod.adoption is None else pod.adoption.noted
    marks: int = sum(each.toleration_seconds == MARK_SECONDS for each in pod.spec_tolerations)
    return marks - len(noted)


def wanted_change(pod: Pod, marks: Iterable[int], returns: Iterable[int], known: Note) -> CountdownChange | None:
    """Return the one write that a pod needs, None if it needs none.

    ``marks`` and ``returns``: what is to be taken over and given back now. In the same write, a lost note that is
    ``known`` is written again, and a void one is removed.
    """
    noted = () if pod.adoption is None else pod.adoption.noted
    before = {place: _seconds(pod, place) for place in noted}
    given = {place: before[place] for place in returns if place in before}
    taken = {place: _seconds(pod, place) for place in marks if is_finite(pod.spec_tolerations[place])}
    lost = lost_notes(pod, known)
    void = pod.adoption is not None and pod.adoption.void
    if not (given or taken or lost or void):
        return None
    kept = {place: seconds for place, seconds in before.items() if place not in given}
    return CountdownChange(frozenset(taken), given, kept | lost | taken)


def _seconds(pod: Pod, place: int) -> int:
    seconds: int | None = pod.tolerations[place].toleration_seconds
    return MARK_SECONDS if seconds is None else seconds
