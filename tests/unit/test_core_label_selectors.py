"""Label selectors: the text that people write, and the labels that it selects."""

import pytest

from taint_eviction.core.label_selectors import Requirement, chooses, parse_selector, requirement

LABELS = {"app": "web", "tier": "gold", "size": "5", "empty": ""}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", True),
        (" ", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web , tier=gold", True),
        ("app=db", False),
        ("app=web,tier=silver", False),
        ("absent=", False),
        ("empty=", True),
        ("app!=web", False),
        ("app!=db", True),
        ("absent!=db", True),
        ("app in (db, web)", True),
        ("app in (db)", False),
        ("absent in (db)", False),
        ("app notin (db,web)", False),
        ("app notin (db)", True),
        ("absent notin (db)", True),
        ("app", True),
        ("absent", False),
        ("!app", False),
        ("! absent", True),
        ("size>4", True),
        ("size>5", False),
        ("size>6", False),
        ("size<6", True),
        ("size<5", False),
        ("size<4", False),
        ("size>-1", True),
        ("app>4", False),
        ("app<4", False),
        ("empty>-1", False),
        ("empty<1", False),
        ("absent>-1", False),
        ("absent<1", False),
    ],
)
def test_a_selector_selects_as_in_kubectl(text: str, chosen: bool) -> None:
    """All terms must match. An absent label is unequal to every value, and neither greater nor less than any."""
    assert chooses(parse_selector(text), LABELS) is chosen


@pytest.mark.parametrize("text", ["=", "a=b=c", "app in web", "app>x", "app>", "-a", "a b", "app,,tier", "a in (b"])
def test_text_that_is_no_selector_is_refused(text: str) -> None:
    """The error says what a label selector looks like."""
    with pytest.raises(ValueError, match="a label selector"):
        parse_selector(text)


def test_an_unknown_operator_matches_nothing() -> None:
    """It matches neither a present label nor an absent one."""
    assert not Requirement("app", "Near", frozenset(["web"])).matches(LABELS)
    assert not Requirement("absent", "Near").matches(LABELS)


@pytest.mark.parametrize(
    ("key", "operator", "values"),
    [("app", "In", ["a"]), ("app", "NotIn", ["a", ""]), ("example.com/app", "Exists", []), ("a", "DoesNotExist", [])],
)
def test_a_term_has_the_given_key_operator_and_values(key: str, operator: str, values: list[str]) -> None:
    """The values become a set."""
    assert requirement(key, operator, values) == Requirement(key, operator, frozenset(values))


@pytest.mark.parametrize(
    ("key", "operator", "values", "wrong"),
    [
        ("", "In", ["a"], "no label's key"),
        ("-a", "In", ["a"], "no label's key"),
        ("app", "In", ["a", "-"], "no label's value"),
        ("app", "Gt", ["1"], "must be one of In, NotIn, Exists, DoesNotExist"),
        ("app", "In", [], "needs values"),
        ("app", "NotIn", [], "needs values"),
        ("app", "Exists", ["a"], "takes no values"),
        ("app", "DoesNotExist", ["a"], "takes no values"),
    ],
)
def test_an_invalid_term_is_refused(key: str, operator: str, values: list[str], wrong: str) -> None:
    """The error says what is wrong with it."""
    with pytest.raises(ValueError, match=wrong):
        requirement(key, operator, values)
