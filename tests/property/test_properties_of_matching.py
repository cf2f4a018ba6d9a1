"""Matching of tolerations and taints, against a table that was written by hand."""

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import KEYS, OPERATORS, VALUES, any_taints, any_tolerations

from taint_eviction.core.adoption import note_of, noted_places, with_seconds
from taint_eviction.core.decision import counted_seconds
from taint_eviction.core.matching import (
    SearchableTolerations,
    canonical_int64,
    first_match,
    matches,
    matching,
    repelling,
)
from taint_eviction.core.objects import MARK_SECONDS, NO_EXECUTE, NO_SCHEDULE, Taint, Toleration
from taint_eviction.kube.taints_and_tolerations import read_tolerations

# The number that each value means for Gt and Lt; None if it is no canonical integer.
NUMBERS: dict[str, int | None] = {
    "": None,
    "v": None,
    "0": 0,
    "1": 1,
    "-1": -1,
    "01": None,
    "+1": None,
    "-0": None,
    "10": 10,
    "9223372036854775807": 9223372036854775807,
    "9223372036854775808": None,
}


def accepted(operator: str, mine: str, theirs: str) -> bool:
    """Return whether an operator accepts a taint's value according to the table."""
    numbers = NUMBERS[mine], NUMBERS[theirs]
    table = {
        "": mine == theirs,
        "Equal": mine == theirs,
        "Exists": True,
        "Gt": None not in numbers and (numbers[1] or 0) > (numbers[0] or 0),
        "Lt": None not in numbers and (numbers[1] or 0) < (numbers[0] or 0),
    }
    return table.get(operator, False)


def expected(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint according to the table."""
    keys = {taint.key, ""} if toleration.operator == "Exists" else {taint.key}
    return (
        toleration.effect in {"", taint.effect}
        and toleration.key in keys
        and accepted(toleration.operator, toleration.value, taint.value)
    )


def test_every_combination_is_as_in_the_table() -> None:
    """The test tries every combination of a few effects, keys, operators and values."""
    taints = [Taint("k1", NO_EXECUTE, value) for value in VALUES]
    combinations = product(("", *KEYS), OPERATORS, VALUES, ("", NO_EXECUTE, NO_SCHEDULE), taints)
    for key, operator, value, effect, taint in combinations:
        toleration = Toleration(key, operator, value, effect)
        assert matches(toleration, taint) is expected(toleration, taint), (toleration, taint)


@given(any_tolerations, any_taints)
def test_matching_is_as_in_the_table(toleration: Toleration, taint: Taint) -> None:
    """Random tolerations, with any ``tolerationSeconds``, match random taints as the table says."""
    assert matches(toleration, taint) is expected(toleration, taint)


@given(st.integers(-(2**70), 2**70))
def test_a_number_is_read_only_if_it_fits_into_64_bits(number: int) -> None:
    """``Gt`` and ``Lt`` read a canonical number if and only if it is a signed 64-bit integer."""
    assert canonical_int64(str(number)) == (number if -(2**63) <= number < 2**63 else None)


@given(st.text(max_size=30) | st.from_regex(r"[+-]?[0-9_. ]{1,22}", fullmatch=True))
def test_a_text_that_is_read_as_an_integer_is_its_canonical_spelling(text: str) -> None:
    """A text with leading zeros, a plus sign, spaces or underscores is no integer."""
    number = canonical_int64(text)
    assert number is None or str(number) == text


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_exactly_one_of_gt_equal_and_lt_matches(mine: int, theirs: int) -> None:
    """For any two integers, the operator that matches is the one that compares them rightly."""
    taint = Taint("k", NO_EXECUTE, str(theirs))
    holding = [operator for operator in ("Gt", "Equal", "Lt") if matches(Toleration("k", operator, str(mine)), taint)]
    assert holding == ["Gt" if theirs > mine else "Lt" if theirs < mine else "Equal"]


def as_json(toleration: Toleration) -> dict[str, str | int]:
    """Return a toleration as the API server writes it: without empty fields."""
    texts = {"key": toleration.key, "operator": toleration.operator, "value": toleration.value}
    told: dict[str, str | int] = {name: text for name, text in {**texts, "effect": toleration.effect}.items() if text}
    seconds = toleration.toleration_seconds
    return told if seconds is None else {**told, "tolerationSeconds": seconds}


@given(st.lists(any_tolerations, min_size=1, max_size=8), st.integers(65, 1200), st.data())
def test_of_a_long_list_the_same_tolerations_match_in_the_same_order(
    kinds: list[Toleration], length: int, data: st.DataObject
) -> None:
    """Of those that differ in nothing that counts the first. Only those parts are read that have one that may match."""
    rare = data.draw(st.dictionaries(st.integers(0, length - 1), st.sampled_from(kinds), max_size=6))
    usual = data.draw(any_tolerations)
    tolerations = [rare.get(place, usual) for place in range(length)]
    found, _ = read_tolerations([as_json(each) for each in tolerations])
    taint = data.draw(any_taints)
    assert isinstance(found, SearchableTolerations)
    assert list(found) == tolerations
    expected: dict[Toleration, Toleration] = {}
    for each in tolerations:
        if matches(each, taint):
            expected.setdefault(replace(each, toleration_seconds=counted_seconds(each.toleration_seconds)), each)
    assert list(matching(found, taint)) == list(expected.values())
    assert repelling(found, [taint]) == repelling(tolerations, [taint])


def test_of_too_long_a_list_no_note_counts() -> None:
    """To look through tens of thousands of tolerations takes too long, and this controller marks none of 65."""
    marked = Toleration("k1", "Exists", "", NO_EXECUTE, MARK_SECONDS)
    for more, places in ((999, {0: 60}), (1000, {})):
        tolerations = (marked, *[Toleration(f"k{number}", "Exists") for number in range(2, more + 2)])
        found, _ = read_tolerations([as_json(each) for each in tolerations])
        assert noted_places(found, note_of((marked,), {0: 60})) == places


@given(st.lists(any_tolerations, min_size=1, max_size=4), st.integers(65, 1000), st.data())
def test_a_note_says_of_a_long_list_what_it_says_of_the_same_tolerations_in_a_short_one(
    kinds: list[Toleration], length: int, data: st.DataObject
) -> None:
    """Each position, each occurrence, the seconds that count, and the first match of a taint."""
    rare = data.draw(st.dictionaries(st.integers(0, length - 1), st.sampled_from(kinds), max_size=6))
    marks = data.draw(st.sets(st.sampled_from(sorted({0, length - 1, *rare}))))
    usual, taint = data.draw(any_tolerations), replace(data.draw(any_taints), effect=NO_EXECUTE)
    tolerations = tuple(
        replace(each, toleration_seconds=MARK_SECONDS) if place in marks else each
        for place, each in enumerate(rare.get(place, usual) for place in range(length))
    )
    found, _ = read_tolerations([as_json(each) for each in tolerations])
    note = note_of(tolerations, dict.fromkeys(marks, 60))
    places = noted_places(tolerations, note)
    assert note_of(found, dict.fromkeys(marks, 60)) == note
    assert noted_places(found, note) == places
    assert tuple(with_seconds(found, places)) == with_seconds(tolerations, places)
    first = [next(matching(with_seconds(each, places), taint), None) for each in (found, tolerations)]
    assert first[0] == first[1]
    assert first_match(found, taint) == first_match(tolerations, taint)
