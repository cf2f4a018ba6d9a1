"""Whether a toleration matches a taint."""

import pytest

from taint_eviction.core.matching import canonical_int64, matches
from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration


@pytest.mark.parametrize(
    ("toleration_effect", "taint_effect", "expected"),
    [
        ("", NO_EXECUTE, True),
        ("", NO_SCHEDULE, True),
        (NO_EXECUTE, NO_EXECUTE, True),
        (NO_SCHEDULE, NO_EXECUTE, False),
        (PREFER_NO_SCHEDULE, NO_EXECUTE, False),
        ("noexecute", NO_EXECUTE, False),
    ],
)
def test_the_effect_is_empty_or_equal(toleration_effect: str, taint_effect: str, expected: bool) -> None:
    """An empty effect matches every effect; any other effect matches only itself."""
    assert matches(Toleration("k", "Exists", effect=toleration_effect), Taint("k", taint_effect)) is expected


@pytest.mark.parametrize(
    ("key", "operator", "value", "expected"),
    [
        ("k", "Exists", "", True),
        ("other", "Exists", "", False),
        ("K", "Exists", "", False),
        ("", "Exists", "", True),
        ("", "", "v", False),
        ("", "Equal", "v", False),
        ("", "Gt", "v", False),
        ("", "Lt", "v", False),
        ("", "", "", False),
    ],
)
def test_an_empty_key_matches_every_key_but_only_with_exists(
    key: str, operator: str, value: str, expected: bool
) -> None:
    """The key is equal, or empty together with the operator Exists."""
    assert matches(Toleration(key, operator, value), Taint("k", NO_EXECUTE, "v")) is expected


def test_the_empty_toleration_matches_nothing() -> None:
    """A toleration without any field does not tolerate everything."""
    assert not matches(Toleration(), Taint("", NO_EXECUTE))


@pytest.mark.parametrize("operator", ["", "Equal"])
@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [("v", "v", True), ("", "", True), ("v", "", False), ("", "v", False), ("1", "01", False), ("v", "V", False)],
)
def test_equal_compares_values_as_text(operator: str, mine: str, theirs: str, expected: bool) -> None:
    """The operator may be Equal or empty."""
    assert matches(Toleration("k", operator, mine), Taint("k", NO_EXECUTE, theirs)) is expected


def test_exists_accepts_any_value_even_with_one_of_its_own() -> None:
    """Exists ignores the values."""
    assert matches(Toleration("k", "Exists", "mine"), Taint("k", NO_EXECUTE, "theirs"))


@pytest.mark.parametrize(
    ("theirs", "mine", "greater", "less"),
    [
        ("11", "10", True, False),
        ("10", "10", False, False),
        ("9", "10", False, True),
        ("-1", "0", False, True),
        ("-1", "-2", True, False),
        ("9223372036854775807", "9223372036854775806", True, False),
        ("-9223372036854775808", "9223372036854775807", False, True),
    ],
)
def test_gt_and_lt_compare_the_taints_value_with_the_tolerations(
    theirs: str, mine: str, greater: bool, less: bool
) -> None:
    """Gt matches if the taint's value is greater than the toleration's, Lt if it is less."""
    assert matches(Toleration("k", "Gt", mine), Taint("k", NO_EXECUTE, theirs)) is greater
    assert matches(Toleration("k", "Lt", mine), Taint("k", NO_EXECUTE, theirs)) is less


NOT_CANONICAL = [
    "",
    "-",
    "+5",
    "05",
    "-0",
    "00",
    "-01",
    "5.0",
    "1e3",
    " 5",
    "5 ",
    "5\n",
    "0x5",
    "1_000",
    "٥",
    "²",
    "five",
    "9223372036854775808",
    "-9223372036854775809",
    "1" * 5000,
]


@pytest.mark.parametrize("text", NOT_CANONICAL)
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_gt_and_lt_match_nothing_but_canonical_integers(operator: str, text: str) -> None:
    """Any other text matches neither as the toleration's value nor as the taint's."""
    assert canonical_int64(text) is None
    assert not matches(Toleration("k", operator, text), Taint("k", NO_EXECUTE, "5"))
    assert not matches(Toleration("k", operator, "5"), Taint("k", NO_EXECUTE, text))


@pytest.mark.parametrize("number", [0, 1, -1, 10, -(2**63), 2**63 - 1])
def test_canonical_integers_are_read(number: int) -> None:
    """Every int64 in its usual notation is canonical."""
    assert canonical_int64(str(number)) == number


@pytest.mark.parametrize("operator", ["exists", "In", "Ge", "equal", "GT", " "])
def test_an_unknown_operator_matches_nothing(operator: str) -> None:
    """This applies to a toleration with a key, and to one without."""
    assert not matches(Toleration("k", operator, "v"), Taint("k", NO_EXECUTE, "v"))
    assert not matches(Toleration("", operator), Taint("k", NO_EXECUTE))


def test_the_time_of_a_taint_does_not_matter() -> None:
    """timeAdded has no influence on matching."""
    assert matches(Toleration("k", "Exists"), Taint("k", NO_EXECUTE, "", 1.0))
