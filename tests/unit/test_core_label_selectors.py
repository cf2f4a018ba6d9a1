"""Label selectors: what is typed, and which labels it chooses."""

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
def test_a_selector_chooses_as_kubectl_does(text: str, chosen: bool) -> None:
    """All terms must hold; an absent label is unequal to every value, neither more nor less than any."""
    assert chooses(parse_selector(text), LABELS) is chosen


@pytest.mark.parametrize("text", ["=", "a=b=c", "app in web", "app>x", "app>", "-a", "a b", "app,,tier", "a in (b"])
def test_what_is_no_selector_is_refused_with_what_would_be(text: str) -> None:
    """The words for it are those of a selector."""
    with pytest.raises(ValueError, match="a label selector"):
        parse_selector(text)


def test_an_operator_that_is_not_known_holds_for_nothing() -> None:
    """Neither for a label that is there nor for one that is not."""
    assert not Requirement("app", "Near", frozenset(["web"])).matches(LABELS)
    assert not Requirement("absent", "Near").matches(LABELS)


@pytest.mark.parametrize(
    ("key", "operator", "values"),
    [("app", "In", ["a"]), ("app", "NotIn", ["a", ""]), ("example.com/app", "Exists", []), ("a", "DoesNotExist", [])],
)
def test_a_term_is_made_as_it_is_told(key: str, operator: str, values: list[str]) -> None:
    """With the values as a set."""
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
def test_a_term_that_says_nothing_is_refused(key: str, operator: str, values: list[str], wrong: str) -> None:
    """With what is wrong with it."""
    with pytest.raises(ValueError, match=wrong):
        requirement(key, operator, values)
