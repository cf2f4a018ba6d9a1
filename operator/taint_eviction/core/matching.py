"""Whether a toleration matches a taint.

Pure predicates on tolerations and taints; ``decision`` chooses among several tolerations, and counts their seconds.

Reference: ``ToleratesTaint`` in k8s.io/api/core/v1, KEP-5471 for Gt and Lt.
"""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration

# A canonical decimal: no leading zeros, no plus sign, no minus zero.
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_LONGEST_INTEGER = len(str(_INT64_MIN))


class SearchableTolerations(Sequence[Toleration]):
    """A list of tolerations that is too long to compare each of them with every taint."""

    __slots__ = ()

    @abstractmethod
    def about(self, taint: Taint) -> Iterator[tuple[int, Toleration]]:
        """Yield, in order, all that may match this taint, with their positions; of equal ones the first."""

    @abstractmethod
    def equal_to(self, wanted: Collection[Toleration]) -> Iterator[tuple[int, Toleration, int | None]]:
        """Yield, in their order, the position of each that is one of these but for its seconds, that one, and them."""

    @abstractmethod
    def with_seconds(self, seconds: Mapping[int, int]) -> "SearchableTolerations":
        """Return these with other seconds at some positions."""


def matching(tolerations: Sequence[Toleration], taint: Taint) -> Iterator[Toleration]:
    """Yield the tolerations that match a taint, in their order; of equal ones in a long list the first."""
    if type(tolerations) is not tuple and isinstance(tolerations, SearchableTolerations):
        # Most callers need the first one or two.
        return (toleration for _, toleration in tolerations.about(taint) if matches(toleration, taint))
    return iter([toleration for toleration in tolerations if matches(toleration, taint)])


def first_match(tolerations: Sequence[Toleration], taint: Taint) -> int | None:
    """Return the position of the first toleration that matches ``taint``; None if none does."""
    if isinstance(tolerations, SearchableTolerations):
        placed: Iterable[tuple[int, Toleration]] = tolerations.about(taint)
    else:
        placed = enumerate(tolerations)
    return next((place for place, each in placed if matches(each, taint)), None)


def matches(toleration: Toleration, taint: Taint) -> bool:
    """Return whether ``toleration`` matches ``taint`` by effect, by key, and by value as its operator compares values.

    An empty effect matches every effect; an empty key every key, but only with operator ``Exists``. An unknown operator
    matches nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key:
        if toleration.key != taint.key:
            return False
    elif toleration.operator != "Exists":
        return False
    return _value_matches(toleration, taint)


def _value_matches(toleration: Toleration, taint: Taint) -> bool:
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Gt" | "Lt":
            mine, theirs = canonical_int64(toleration.value), canonical_int64(taint.value)
            if mine is None or theirs is None:
                return False
            return theirs > mine if toleration.operator == "Gt" else theirs < mine
        case _:
            return False


def canonical_int64(text: str) -> int | None:
    """Parse a canonical decimal int64 (no leading zeros, no ``+``); None for anything else."""
    if len(text) > _LONGEST_INTEGER or not _CANONICAL_INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if _INT64_MIN <= number <= _INT64_MAX else None


# What the scheduler does, for explanations only: any matching toleration counts, and its seconds do not matter.
# Reference: pkg/scheduler/framework/plugins/tainttoleration


def repelling(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints (NoSchedule and NoExecute) that keep such a pod from being scheduled on their node."""
    return _untolerated(tolerations, taints, (NO_SCHEDULE, NO_EXECUTE))


def discouraging(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints (PreferNoSchedule) because of which the scheduler avoids their node for such a pod."""
    return _untolerated(tolerations, taints, (PREFER_NO_SCHEDULE,))


def _untolerated(
    tolerations: Sequence[Toleration], taints: Iterable[Taint], effects: tuple[str, ...]
) -> tuple[Taint, ...]:
    return tuple(
        taint for taint in taints if taint.effect in effects and next(matching(tolerations, taint), None) is None
    )
