"""Matching against a table of its own."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import KEYS, OPERATORS, VALUES, any_taints, any_tolerations

from taint_eviction.core.matching import canonical_int64, matches
from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration

# For each value, the number that it is for Gt and Lt, by hand.
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
    """Say by the table whether an operator accepts a taint's value."""
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
    """Say by the table whether a toleration matches a taint."""
    keys = {taint.key, ""} if toleration.operator == "Exists" else {taint.key}
    return (
        toleration.effect in {"", taint.effect}
        and toleration.key in keys
        and accepted(toleration.operator, toleration.value, taint.value)
    )


def test_every_combination_is_as_in_the_table() -> None:
    """All effects, keys, operators and values of a small world, each with each."""
    taints = [Taint("k1", NO_EXECUTE, value) for value in VALUES]
    combinations = product(("", *KEYS), OPERATORS, VALUES, ("", NO_EXECUTE, NO_SCHEDULE), taints)
    for key, operator, value, effect, taint in combinations:
        toleration = Toleration(key, operator, value, effect)
        assert matches(toleration, taint) is expected(toleration, taint), (toleration, taint)


@given(any_tolerations, any_taints)
def test_matching_is_as_in_the_table(toleration: Toleration, taint: Taint) -> None:
    """The same on any pair, seconds and all."""
    assert matches(toleration, taint) is expected(toleration, taint)


@given(st.integers(-(2**70), 2**70))
def test_exactly_the_int64_are_integers(number: int) -> None:
    """A number is read if and only if 64 bits hold it."""
    assert canonical_int64(str(number)) == (number if -(2**63) <= number < 2**63 else None)


@given(st.text(max_size=30) | st.from_regex(r"[+-]?[0-9_. ]{1,22}", fullmatch=True))
def test_what_is_read_is_written_back_the_same(text: str) -> None:
    """Whatever is taken for an integer is its one canonical spelling."""
    number = canonical_int64(text)
    assert number is None or str(number) == text


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_gt_equal_and_lt_divide_the_integers_among_them(mine: int, theirs: int) -> None:
    """Of two integers exactly one of the three holds."""
    taint = Taint("k", NO_EXECUTE, str(theirs))
    holding = [operator for operator in ("Gt", "Equal", "Lt") if matches(Toleration("k", operator, str(mine)), taint)]
    assert holding == ["Gt" if theirs > mine else "Lt" if theirs < mine else "Equal"]
