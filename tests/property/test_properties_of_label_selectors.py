"""Label selectors against Kubernetes' own parser, written down once more after its source, token by token."""

import re

from hypothesis import given
from hypothesis import strategies as st

from taint_eviction.core.label_selectors import chooses, complement, contradiction, parse_selector, selector_text

_WORDS = ("a", "b", "in", "notin", "1", "02", "7", "x", "a.b/c", "-", "é", "a/b/c", "9" * 20)
_SYMBOLS = ("=", "==", "!=", "!", "(", ")", ",", ">", "<")
TEXTS = st.lists(st.sampled_from([*_WORDS, *_SYMBOLS, *",,=!"]), max_size=12).flatmap(
    lambda tokens: st.lists(st.sampled_from(["", " ", "\t "]), min_size=len(tokens), max_size=len(tokens)).map(
        lambda spaces: "".join(space + token for space, token in zip(spaces, tokens, strict=True))
    )
)
TERMS = st.sampled_from(
    ["a", "!a", "a=1", "a=", "a!=1", "a in (1,x)", "a notin (,1)", "a>1", "a<3", "b", "!b", "b=x", "b notin (x,1)"]
)
# The opposite of the others is a term, too.
COMPARABLE = TERMS.filter(lambda term: not {">", "<"} & {*term})
VALUES = st.sampled_from(["", "1", "02", "2", "7", "x", "1_0", "9" * 20])
LABELS = st.dictionaries(st.sampled_from(["a", "b", "in", "a.b/c"]), VALUES)

_QUALIFIED = re.compile(
    r"(([a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", re.A
)


class _NotASelector(Exception):
    """Kubernetes refuses the text."""


class _KubernetesParser:
    """``Lexer`` and ``Parser`` of k8s.io/apimachinery/pkg/labels/selector.go; a term is (key, operator, values)."""

    def __init__(self, text: str) -> None:
        self._tokens = [*re.findall(r"==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+", text), "end"]
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) - 1 else ""

    def _next(self) -> str:
        token = self._peek()
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    @staticmethod
    def _is_word(token: str) -> bool:
        return token != "" and token not in _SYMBOLS

    def terms(self) -> list[tuple[str, str, set[str]]]:
        found: list[tuple[str, str, set[str]]] = []
        if self._peek() == "":
            return found
        while True:
            if not (self._is_word(self._peek()) or self._peek() == "!"):
                raise _NotASelector
            found.append(self._term())
            match self._next():
                case "":
                    return found
                case ",":
                    pass
                case _:
                    raise _NotASelector

    def _term(self) -> tuple[str, str, set[str]]:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._next()
        if not self._is_word(key) or not _QUALIFIED.fullmatch(key) or len(key.rpartition("/")[2]) > 63:
            raise _NotASelector
        if absent:
            return key, "absent", set()
        if self._peek() in ("", ","):
            return key, "present", set()
        operator = self._next()
        if operator in ("in", "notin"):
            values = self._set()
        elif operator in ("=", "==", "!=", ">", "<"):
            values = {self._next() if self._peek() not in ("", ",") else ""}
        else:
            raise _NotASelector
        for value in values:
            if len(value) > 63 or (value and not re.fullmatch(r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", value, re.A)):
                raise _NotASelector
            if operator in (">", "<") and not _is_int64(value):
                raise _NotASelector
        return key, operator, values

    def _set(self) -> set[str]:
        if self._next() != "(" or self._peek() == ")":
            raise _NotASelector  # Kubernetes takes () for an empty value; here it is a mistake.
        values: set[str] = set()
        while True:
            token = self._next()
            if self._is_word(token):
                values.add(token)
                if self._peek() not in (",", ")"):
                    raise _NotASelector
            elif token == ",":
                if not values:
                    values.add("")
                if self._peek() == ")":
                    values.add("")
                if self._peek() == ",":
                    self._next()
                    values.add("")
            else:
                raise _NotASelector
            if self._peek() == ")":
                self._next()
                return values


def _is_int64(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None and -(2**63) <= int(text) < 2**63


def _matches(term: tuple[str, str, set[str]], labels: dict[str, str]) -> bool:
    key, operator, values = term
    has = key in labels
    match operator:
        case "present":
            return has
        case "absent":
            return not has
        case "=" | "==" | "in":
            return has and labels[key] in values
        case "!=" | "notin":
            return not has or labels[key] not in values
        case _:
            if not has or not _is_int64(labels[key]):
                return False
            left, right = int(labels[key]), int(min(values))
            return left > right if operator == ">" else left < right


@given(text=TEXTS, labels=LABELS)
def test_a_text_is_a_selector_exactly_when_it_is_one_for_kubernetes(text: str, labels: dict[str, str]) -> None:
    """What it selects is the same, too."""
    try:
        terms = _KubernetesParser(text).terms()
    except _NotASelector:
        terms = None
    try:
        selector = parse_selector(text)
    except ValueError:
        assert terms is None, (text, terms)
        return
    assert terms is not None, text
    assert chooses(selector, labels) == all(_matches(term, labels) for term in terms), (text, labels)


@given(terms=st.lists(TERMS, max_size=5), labels=LABELS)
def test_the_text_of_a_selector_selects_the_same(terms: list[str], labels: dict[str, str]) -> None:
    """It is the same text for any order of the terms."""
    selector = parse_selector(",".join(terms))
    text = selector_text(selector)
    assert chooses(parse_selector(text), labels) == chooses(selector, labels)
    assert selector_text(tuple(reversed(selector))) == text == selector_text(parse_selector(text))


@given(terms=st.lists(TERMS, max_size=5), labels=LABELS)
def test_what_can_match_nothing_matches_nothing(terms: list[str], labels: dict[str, str]) -> None:
    """No labels match a selector of which that is said."""
    selector = parse_selector(",".join(terms))
    assert not (contradiction(selector) and chooses(selector, labels))


@given(terms=st.lists(TERMS, max_size=5))
def test_of_what_is_never_matched_that_is_said(terms: list[str]) -> None:
    """If none of many labels match, the selector can match nothing: the values cover all that the terms tell apart."""
    selector = parse_selector(",".join(terms))
    values = [None, "", "1", "02", "2", "0", "7", "x", "y"]
    found = [{key: value for key, value in (("a", a), ("b", b)) if value is not None} for a in values for b in values]
    assert bool(contradiction(selector)) == (not any(chooses(selector, labels) for labels in found))


@given(st.lists(st.lists(COMPARABLE, max_size=3).map(",".join), max_size=3), LABELS)
def test_the_complement_matches_what_no_selector_matches(texts: list[str], labels: dict[str, str]) -> None:
    """Its selectors are such as people can write, and each of them can match something."""
    selectors = [parse_selector(text) for text in texts]
    others = complement(selectors)
    assert any(chooses(other, labels) for other in others) != any(chooses(each, labels) for each in selectors)
    assert not any(map(contradiction, others))
    assert all({*parse_selector(selector_text(other))} == {*other} for other in others)
