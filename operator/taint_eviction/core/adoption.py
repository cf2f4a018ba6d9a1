"""The note of the seconds that were taken from a pod's tolerations, and how they are given back.
A countdown is adopted by removing ``tolerationSeconds`` from tolerations: the built-in controller then never ends it.
The removed seconds are noted in an annotation of the pod. A note counts only for a toleration that has no seconds now.
Anybody who may write the annotation may change it, but it grants nothing that the spec could not grant.
This module does not define the JSON of a note (``adapters.adoption_patches``), nor when to adopt and to give back.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from taint_eviction.core.matching import matches
from taint_eviction.core.objects import Taint, Toleration


class AdoptedBy(Enum):
    """Who took the seconds: the controller when a node was tainted, or an admission policy at creation."""

    CONTROLLER = "controller"
    ADMISSION = "admission"


class TolerationKey(NamedTuple):
    """What identifies one toleration of a pod. Its position in the list does not: others may change the list.

    ``toleration`` is without seconds. ``occurrence`` counts equal ones in the pod's order, from 0.
    """

    toleration: Toleration
    occurrence: int


@dataclass(frozen=True, slots=True)
class AdoptionNote:
    """The seconds that were taken from the tolerations of one pod: by the controller, and at the pod's creation."""

    by_controller: Mapping[TolerationKey, int]
    by_admission: Mapping[TolerationKey, int] = field(default_factory=dict)

    @property
    def seconds(self) -> Mapping[TolerationKey, int]:
        """All noted seconds."""
        return {**self.by_admission, **self.by_controller}

    @property
    def by(self) -> AdoptedBy:
        """Who took the seconds: the controller, unless all were taken at creation."""
        at_creation = self.by_admission and not self.by_controller
        return AdoptedBy.ADMISSION if at_creation else AdoptedBy.CONTROLLER


def toleration_keys(tolerations: Sequence[Toleration]) -> Iterator[TolerationKey]:
    """Yield the key of each toleration, in their order."""
    seen: Counter[Toleration] = Counter()
    for toleration in tolerations:
        bare = replace(toleration, toleration_seconds=None)
        yield TolerationKey(bare, seen[bare])
        seen[bare] += 1


def seconds_at(tolerations: Sequence[Toleration], places: Collection[int]) -> dict[TolerationKey, int]:
    """Return the note to write if the seconds of the tolerations at these positions are taken."""
    return {
        key: toleration.toleration_seconds
        for place, (key, toleration) in enumerate(zip(toleration_keys(tolerations), tolerations, strict=True))
        if place in places and toleration.toleration_seconds is not None
    }


def seconds_to_return(tolerations: Sequence[Toleration], noted: Mapping[TolerationKey, int]) -> dict[int, int]:
    """Return the noted seconds by the position of their toleration, for tolerations that have no seconds now."""
    return {
        place: noted[key]
        for place, (key, toleration) in enumerate(zip(toleration_keys(tolerations), tolerations, strict=True))
        if toleration.toleration_seconds is None and key in noted
    }


def with_seconds(tolerations: Sequence[Toleration], noted: Mapping[TolerationKey, int]) -> tuple[Toleration, ...]:
    """Return the tolerations as if the noted seconds had never been taken."""
    returned = seconds_to_return(tolerations, noted)
    return tuple(
        replace(toleration, toleration_seconds=returned[place]) if place in returned else toleration
        for place, toleration in enumerate(tolerations)
    )


def builtin_seconds(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> float | None:
    """Return after how many seconds the built-in controller evicts a pod whose countdown it starts now; None: never.

    That controller restarts the countdown with each change of the pod's tolerations, however old the taint is.
    """
    first = [next((each for each in tolerations if matches(each, taint)), None) for taint in taints]
    if None in first:
        return 0.0
    seconds = [each.toleration_seconds for each in first if each is not None and each.toleration_seconds is not None]
    return float(max(0, min(seconds))) if seconds else None
