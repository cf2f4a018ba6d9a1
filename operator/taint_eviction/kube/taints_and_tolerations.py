"""Taints and tolerations as JSON → the values of ``core.objects``, with equal ones shared.

Thousands of pods have equal tolerations, and thousands of nodes equal taints: one tuple for all of them saves memory,
and most of the time to read them. Raises ``Unreadable`` if an eviction could depend on a field that cannot be read.

A tenant may write a hundred thousand tolerations into one pod. Such a list is neither shared nor made into values: it
stays JSON, compressed, of which an index finds the parts that may concern a taint (``LongTolerations``).
"""

import hashlib
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from heapq import merge
from itertools import chain
from typing import Any, overload
from weakref import WeakValueDictionary

import orjson

from taint_eviction.core.decision import counted_seconds
from taint_eviction.core.matching import SearchableTolerations, canonical_int64
from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration
from taint_eviction.core.text import one_line
from taint_eviction.kube.bounded import Shared
from taint_eviction.kube.json_fields import Unreadable, as_text, is_object, refuse, time_or_complaint

_EFFECTS = frozenset({NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE})
_OPERATORS = frozenset({"", "Equal", "Exists", "Gt", "Lt"})
_TEXTS = ("key", "operator", "value", "effect")
# The bytes of different tuples that are kept, of taints and of tolerations each.
_SHARED_BYTES = 1 << 23
# The bytes of one taint or toleration without its text.
_BYTES_EACH = 400
# A longer list is not made into values.
_LONG = 64
# How many tolerations of a long list are read at a time.
_PART = 512
# The fastest: most lists shrink to a fifth.
_COMPRESSION = 1

_Toleration = dict[str, Any]


def read_taints(raw: list[Any]) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    """Read ``spec.taints`` of a node; return its taints, and a complaint for each part that is left out."""
    found: tuple[tuple[Taint, ...], tuple[str, ...]] = _shared(_shared_taints, _taint_parts(raw))
    return found


def read_tolerations(raw: list[Any]) -> tuple[Sequence[Toleration], tuple[str, ...]]:
    """Read ``spec.tolerations`` of a pod; return its tolerations, and a complaint for each unknown operator."""
    if len(raw) > _LONG:
        return _long_tolerations(raw)
    found: tuple[tuple[Toleration, ...], tuple[str, ...]] = _shared(_shared_tolerations, _toleration_parts(raw))
    return found


def _taint_parts(raw: list[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            (taint.get("key"), taint.get("value"), taint.get("effect"), taint.get("timeAdded"))
            if is_object(taint)
            else refuse(f"spec.taints[{index}] is not an object")
            for index, taint in enumerate(raw)
        ]
    )


def _taints(parts: tuple[Any, ...]) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    taints: list[Taint] = []
    complaints: list[str] = []
    for index, (key, value, effect, time_added) in enumerate(parts):
        path = f"spec.taints[{index}]"
        effect_text = as_text(effect, f"{path}.effect")
        if effect_text not in _EFFECTS:
            complaints.append(
                f"{path}.effect is {one_line(effect_text)!r}, which is an unknown effect: the taint is ignored"
            )
            continue
        try:
            key_text = as_text(key, f"{path}.key") or refuse(f"{path}.key is missing")
            value_text = as_text(value, f"{path}.value")
        except Unreadable as unreadable:
            if effect_text == NO_EXECUTE:
                raise
            complaints.append(f"{unreadable}: the taint is ignored, its effect is only {effect_text}")
            continue
        added_at = time_or_complaint(time_added, f"{path}.timeAdded", complaints)
        taints.append(Taint(key_text, effect_text, value_text, added_at))
    return tuple(taints), tuple(complaints)


def _toleration_parts(raw: list[Any]) -> tuple[Any, ...]:
    # With the type of the seconds: 1, 1.0 and true are equal, but only the first is legal.
    return tuple(
        [
            (
                toleration.get("key"),
                toleration.get("operator"),
                toleration.get("value"),
                toleration.get("effect"),
                seconds := toleration.get("tolerationSeconds"),
                type(seconds),
            )
            if is_object(toleration)
            else refuse(f"spec.tolerations[{index}] is not an object")
            for index, toleration in enumerate(raw)
        ]
    )


def _tolerations(parts: tuple[Any, ...]) -> tuple[tuple[Toleration, ...], tuple[str, ...]]:
    tolerations: list[Toleration] = []
    complaints: list[str] = []
    for index, (key, operator, value, effect, seconds, _) in enumerate(parts):
        path = f"spec.tolerations[{index}]"
        if seconds is not None and type(seconds) is not int:
            refuse(f"{path}.tolerationSeconds is not an integer")
        toleration = Toleration(
            as_text(key, f"{path}.key"),
            as_text(operator, f"{path}.operator"),
            as_text(value, f"{path}.value"),
            as_text(effect, f"{path}.effect"),
            seconds,
        )
        if toleration.operator not in _OPERATORS:
            unknown = f"{path}.operator is {one_line(toleration.operator)!r}, which is unknown"
            complaints.append(f"{unknown}: it matches nothing")
        tolerations.append(toleration)
    return tuple(tolerations), tuple(complaints)


def _size(parts: tuple[Any, ...]) -> int:
    """Estimate the bytes of a tuple of values that are made of these parts."""
    return sum(len(part) for part in chain.from_iterable(parts) if isinstance(part, str)) + _BYTES_EACH * len(parts)


_shared_taints = Shared(_taints, _size, _SHARED_BYTES)
_shared_tolerations = Shared(_tolerations, _size, _SHARED_BYTES)


def _shared(read: Shared[Any, Any], parts: tuple[Any, ...]) -> Any:
    """Read ``parts`` through the cache. Unhashable parts have a wrong type; a read without the cache reports it."""
    if not parts:
        return (), ()
    try:
        return read(parts)
    except TypeError:
        return read.make(parts)


# Long lists


class LongTolerations(SearchableTolerations):
    """A long list of tolerations as compressed JSON in parts. Each read of an element decodes its part.

    ``raw`` must have been checked: each is an object, its texts are strings or null, its seconds an integer or null.
    """

    __slots__ = ("__weakref__", "_index", "_length", "_numbers", "_parts", "_seconds")

    def __init__(self, raw: list[_Toleration]) -> None:
        parts = [raw[at : at + _PART] for at in range(0, len(raw), _PART)]
        self._length = len(raw)
        self._parts = tuple(zlib.compress(orjson.dumps(part), _COMPRESSION) for part in parts)
        self._index, self._numbers = _indexed(raw)
        # What counts instead of the seconds in the parts, by position.
        self._seconds: Mapping[int, int] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> Toleration: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Toleration, ...]: ...
    def __getitem__(self, at: int | slice) -> Toleration | tuple[Toleration, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        place = range(self._length)[at]
        part, index = divmod(place, _PART)
        return self._toleration(place, self._part(part)[index])

    def __iter__(self) -> Iterator[Toleration]:
        return (self._toleration(place, each) for place, each in self._placed())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LongTolerations):
            return False
        return self._parts == other._parts and self._seconds == other._seconds

    def __hash__(self) -> int:
        return hash(self._parts)

    def about(self, taint: Taint) -> Iterator[tuple[int, Toleration]]:
        """Yield, in order, all that may match this taint, with their positions; of equal ones the first."""
        number = canonical_int64(taint.value) if self._numbers else None
        places: list[Iterator[int]] = []
        for effect in ("", taint.effect):
            kind = effect, taint.key
            places += map(self._places, ((effect, ""), kind, (*kind, taint.value)))
            if number is not None:
                places += [self._comparing((*kind, operator, ""), number) for operator in _COMPARING]
        read, part = -1, list[_Toleration]()
        for place in merge(*places):
            at, offset = divmod(place, _PART)
            if at != read:
                read, part = at, self._part(at)
            yield place, self._toleration(place, part[offset])

    def _entries(self, kind: tuple[str, ...]) -> range:
        hashed = hash(kind) & _KINDS
        return range(bisect_left(self._index, hashed), bisect_right(self._index, hashed | _PLACES))

    def _places(self, kind: tuple[str, ...]) -> Iterator[int]:
        """Yield the places of one kind; most callers need the first one or two."""
        index = self._index
        for at in self._entries(kind):
            yield index[at] & _PLACES

    def _comparing(self, kind: tuple[str, ...], number: int) -> Iterator[int]:
        """Yield the places of one kind whose numbers this one exceeds (Gt), or is below (Lt)."""
        index, numbers, exceeds = self._index, self._numbers, kind[2] == "Gt"
        for at in self._entries(kind):
            if numbers[at] < number if exceeds else numbers[at] > number:
                yield index[at] & _PLACES

    def equal_to(self, wanted: Collection[Toleration]) -> Iterator[tuple[int, Toleration, int | None]]:
        """Yield, in their order, the position of each that is one of these but for its seconds, that one, and them."""
        by_texts = {(each.key, each.operator, each.value, each.effect): each for each in wanted}
        keys = {each.key for each in wanted}
        for place, each in self._placed():
            if (each.get("key") or "") in keys and (found := by_texts.get(_texts(each))) is not None:
                yield place, found, self._seconds.get(place, each.get("tolerationSeconds"))

    def with_seconds(self, seconds: Mapping[int, int]) -> "LongTolerations":
        """Return these with other seconds at some positions; both share their parts."""
        changed = copy(self)
        changed._seconds = {**self._seconds, **seconds}
        return changed

    def _toleration(self, place: int, raw: _Toleration) -> Toleration:
        return Toleration(*_texts(raw), self._seconds.get(place, raw.get("tolerationSeconds")))

    def _part(self, at: int) -> list[_Toleration]:
        part: list[_Toleration] = orjson.loads(zlib.decompress(self._parts[at]))
        return part

    def _placed(self) -> Iterator[tuple[int, _Toleration]]:
        return enumerate(chain.from_iterable(map(self._part, range(len(self._parts)))))


# An entry of an index: in its upper half a hash of the taints that a toleration may match, below it its place.
_PLACES = (1 << 32) - 1
_KINDS = _PLACES << 32
_COMPARING = ("Gt", "Lt")
_LEAST, _MOST = -(2**63), 2**63 - 1


def _indexed(raw: list[_Toleration]) -> tuple["array[int]", "array[int]"]:
    """Return an index of the tolerations, sorted; and the numbers of its entries, if any compares numbers (Gt, Lt).

    Of those with equal texts and seconds it has the first: a tenant may write a hundred thousand that differ in nothing
    that counts.
    """
    found = sorted([hash(_kind_of(each)) & _KINDS | place for place, each in enumerate(raw)])
    how_many = Counter([each >> 32 for each in found])
    wholes: set[tuple[Any, ...]] = set()

    def is_first(place: int) -> bool:
        """Return whether no toleration before this one is equal to it; to be asked in their order."""
        each, known = raw[place], len(wholes)
        seconds = each.get("tolerationSeconds")
        wholes.add((_texts(each), seconds if seconds is None else counted_seconds(seconds)))
        return len(wholes) > known

    index = array("Q", [each for each in found if how_many[each >> 32] == 1 or is_first(each & _PLACES)])
    if not any(each.get("operator") in _COMPARING for each in raw):
        return index, array("q")
    return index, array("q", [_number_in(raw[each & _PLACES]) for each in index])


def _kind_of(each: _Toleration) -> tuple[str, ...]:
    """Return the kind of the taints that a toleration may match: by effect and key, and by value or operator."""
    get = each.get
    if (operator := get("operator") or "") == "Exists":
        return get("effect") or "", get("key") or ""
    if operator in _COMPARING:
        return get("effect") or "", get("key") or "", operator, ""
    return get("effect") or "", get("key") or "", get("value") or ""


def _number_in(each: _Toleration) -> int:
    """Return the number of a toleration that compares; in place of none, one that no other exceeds, or is below."""
    number = canonical_int64(each.get("value") or "")
    return number if number is not None else _LEAST if each.get("operator") == "Lt" else _MOST


def _texts(raw: _Toleration) -> tuple[str, str, str, str]:
    return raw.get("key") or "", raw.get("operator") or "", raw.get("value") or "", raw.get("effect") or ""


# Those that some pod has, by a digest of their JSON.
_in_use: WeakValueDictionary[bytes, LongTolerations] = WeakValueDictionary()


def _long_tolerations(raw: list[Any]) -> tuple[LongTolerations, tuple[str, ...]]:
    """Check all fields at once, since there may be a hundred thousand."""
    if {*map(type, raw)} != {dict}:
        refuse("an entry of spec.tolerations is not an object")
    all_texts = {*map(type, chain.from_iterable(map(dict.values, raw)))} <= {str}
    if not all_texts or "tolerationSeconds" in {*chain.from_iterable(raw)}:
        for name in _TEXTS:
            if not {*[type(each.get(name)) for each in raw]} <= {str, type(None)}:
                refuse(f"a {name} in spec.tolerations is not a string")
        if not {*[type(each.get("tolerationSeconds")) for each in raw]} <= {int, type(None)}:
            refuse("a tolerationSeconds in spec.tolerations is not an integer")
    unknown = {*[each.get("operator") or "" for each in raw]} - _OPERATORS
    complaints = (f"operators in spec.tolerations are unknown and match nothing: {len(unknown)}",) if unknown else ()
    # Two lists of one node's pods are read at the same time: what both have needs its memory once.
    digest = hashlib.blake2b(orjson.dumps(raw)).digest()
    found = _in_use.get(digest)
    if found is None:
        found = _in_use[digest] = LongTolerations(raw)
    return found, complaints
