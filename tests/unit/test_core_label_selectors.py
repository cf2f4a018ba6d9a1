"""Label selectors: the text that people write, and the labels that it selects."""

import re

import pytest

from taint_eviction.core.label_selectors import (
    Requirement,
    chooses,
    contradiction,
    parse_selector,
    requirement,
    selector_text,
)

LABELS = {"app": "web", "tier": "gold", "size": "5", "empty": "", "apart": "1_0", "huge": "9223372036854775808"}


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
        ("size>004", True),
        ("size<9223372036854775807", True),
        ("app>4", False),
        ("app<4", False),
        ("empty>0", False),
        ("empty<1", False),
        ("absent>0", False),
        ("absent<1", False),
        ("apart<4", False),
        ("huge>4", False),
        ("app in(web)", True),
        ("empty in (,db)", True),
        ("in notin (notin)", True),
    ],
)
def test_a_selector_selects_as_in_kubectl(text: str, chosen: bool) -> None:
    """All terms must match. An absent label is unequal to every value, and neither greater nor less than any."""
    assert chooses(parse_selector(text), LABELS) is chosen


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("=", "'=' is no label's key"),
        ("a=b=c", "a comma is missing between terms"),
        ("!a=b", "a comma is missing between terms"),
        ("app,", "or a term after the last comma"),
        ("app,,tier", "',' is no label's key"),
        ("app in web", "values in parentheses are missing"),
        ("app in ()", "values in parentheses are missing"),
        ("app in (a b)", "a comma is missing between values"),
        ("app in (b", "it is cut off"),
        ("app in", "it is cut off"),
        ("!", "it is cut off"),
        ("app>x", "'x' is no integer"),
        ("app>-1", "'-1' is no label's value"),
        ("app>", "'' is no integer"),
        ("app>9223372036854775808", "'9223372036854775808' is no integer"),
        ("app>=1", "'=' is no label's value"),
        ("-a", "'-a' is no label's key"),
        ("a/b/c", "'a/b/c' is no label's key"),
        ("A.b/c", "'A.b/c' is no label's key"),
        ("a..b/c", "'a..b/c' is no label's key"),
        ("a b", "'b' is no operator"),
        (f"a={'b' * 64}", f"'{'b' * 64}' is no label's value"),
        (f"{'a' * 64}", f"'{'a' * 64}' is no label's key"),
        (f"{'a' * 254}/b", "is no label's key"),
    ],
)
def test_text_that_is_no_selector_is_refused(text: str, why: str) -> None:
    """The error says what a label selector looks like, and what is wrong with this one."""
    with pytest.raises(ValueError, match=f"a label selector .*{re.escape(why)}"):
        parse_selector(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("", ""),
        ("b=1, a==1", "a=1,b=1"),
        ("a in (x)", "a=x"),
        ("a in (y, x,)", "a in (,x,y)"),
        ("a!=x", "a notin (x)"),
        ("a notin (,)", "a!="),
        ("a=", "a="),
        ("! a , b,b", "!a,b"),
        ("a > 5, a<09", "a<09,a>5"),
    ],
)
def test_a_selector_has_one_text(text: str, same: str) -> None:
    """Selectors that differ in white space, in the order of terms, or in the form of one are the same."""
    assert selector_text(parse_selector(text)) == same
    assert selector_text(parse_selector(same)) == same


@pytest.mark.parametrize(
    ("text", "impossible"),
    [
        ("a=1,b=2", ""),
        ("a=1,a in (1,2)", ""),
        ("a,a!=1", ""),
        ("a!=1,a notin (2)", ""),
        ("!a,a!=1", ""),
        ("a>5,a<7,a!=6", ""),
        ("a in (5,6),a>5", ""),
        ("a<1", ""),
        ("b,a=1,a=2", "a=1 and a=2"),
        ("a=1,a!=1", "a=1 and a notin (1)"),
        ("a,!a", "a and !a"),
        ("a=,!a", "a= and !a"),
        ("a>5,a<6", "a>5 and a<6"),
        ("a>9223372036854775807", "a>9223372036854775807"),
        ("a<0", "a<0"),
        ("a in (1,x),a>1", "a in (1,x) and a>1"),
        ("a>1,!a", "a>1 and !a"),
    ],
)
def test_a_selector_that_no_labels_can_match_is_found(text: str, impossible: str) -> None:
    """What is said names the terms that exclude each other."""
    assert contradiction(parse_selector(text)) == (impossible and f"can match nothing: {impossible}")


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
