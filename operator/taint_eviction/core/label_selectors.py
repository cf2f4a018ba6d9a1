"""Label selectors: parsed from text, written as text, and matched against the labels of objects.
This module does not read selectors from JSON (``planning.reading``) or policy files (``files.policy_file``).

The syntax, and what matches, are those of ``kubectl -l``, with one exception: ``key in ()`` is refused here, while
Kubernetes takes it for ``key=``. Parsing takes time in proportion to the length.

Reference: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
and k8s.io/apimachinery/pkg/labels.
"""

import itertools
import math
import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GREATER, LESS = "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"
OPERATORS = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_LABEL_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_DOMAIN_PART}(\.{_DOMAIN_PART})*/)?{_NAME}", re.ASCII)
_LABEL_VALUE = re.compile(rf"({_NAME})?", re.ASCII)
# What a term has between keys and values; all but white space and symbols is a word.
_TOKEN = re.compile(r"[=!]=|[=!(),<>]|[^ \t\r\n=!(),<>]+")
_INTEGER = re.compile(r"[0-9]{1,63}", re.ASCII)
_MAX_INTEGER = 2**63 - 1
_SETS = {"in": IN, "notin": NOT_IN}
_OPPOSITES = {IN: NOT_IN, NOT_IN: IN, EXISTS: DOES_NOT_EXIST, DOES_NOT_EXIST: EXISTS}
_EQUALITIES = {"=": IN, "==": IN, "!=": NOT_IN, ">": GREATER, "<": LESS}
_MAX_COMPLEMENT = 100
# All terms of these selectors together: anybody who reaches the port may ask for them, and they are found in one go.
_MAX_COMPLEMENT_TERMS = 1000
_SYNTAX = (
    "a label selector (key=value, key!=value, key in (a,b), key notin (a,b), key, !key, key>1; commas between them)"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector; ``values`` is empty for Exists and DoesNotExist, one integer for Gt and Lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """Return the term as ``kubectl -l`` takes it; equal terms give the same text."""
        values = sorted(self.values)
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "Gt" | "Lt":
                return f"{self.key}{'>' if self.operator == GREATER else '<'}{values[0]}"
            case "NotIn":
                return f"{self.key}!=" if values == [""] else f"{self.key} notin ({','.join(values)})"
            case _:
                return f"{self.key}={values[0]}" if len(values) == 1 else f"{self.key} in ({','.join(values)})"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the term matches these labels; an unknown operator matches none."""
        found = labels.get(self.key)
        match self.operator:
            case "In":
                return found is not None and found in self.values
            case "NotIn":
                return found is None or found not in self.values
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
            case "Gt" | "Lt":
                return self._compares(found)
            case _:
                return False

    def _compares(self, found: str | None) -> bool:
        left, right = _integer(found or ""), _integer(next(iter(self.values), ""))
        if left is None or right is None:
            return False
        return left > right if self.operator == GREATER else left < right


LabelSelector = tuple[Requirement, ...]
"""All terms must match; the empty selector selects everything."""


def chooses(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether the selector selects an object with these labels."""
    return all(term.matches(labels) for term in selector)


def selector_text(selector: LabelSelector) -> str:
    """Return the selector as ``kubectl -l`` takes it; the order of terms does not matter."""
    return ",".join(sorted(set(map(str, selector))))


def contradiction(selector: LabelSelector) -> str:
    """Return why no labels can match the selector, as a sentence without its subject; "" if some can."""
    terms: dict[str, list[Requirement]] = {}
    for term in selector:
        terms.setdefault(term.key, []).append(term)
    impossible = next((each for each in terms.values() if not _can_match(each)), None)
    return "" if impossible is None else f"can match nothing: {' and '.join(map(str, impossible))}"


def complement(selectors: Sequence[LabelSelector]) -> list[LabelSelector]:
    """Return the selectors that together match all that none of these matches; raise ``ValueError`` where there are no
    such selectors, or too many.
    """
    count = math.prod(map(len, selectors))
    if count > _MAX_COMPLEMENT or count * len(selectors) > _MAX_COMPLEMENT_TERMS:
        needed = f"{count} selectors with {count * len(selectors)} terms"
        raise ValueError(f"{needed} would be needed for all that these do not match")
    found: dict[LabelSelector, None] = {}
    for terms in itertools.product(*selectors):
        if incomparable := next((term for term in terms if term.operator not in _OPPOSITES), None):
            raise ValueError(f"no selector matches all that {incomparable} does not")
        opposite: dict[tuple[str, str], Requirement] = {}
        for term in terms:
            key = term.key, _OPPOSITES[term.operator]
            known = opposite.get(key, Requirement(*key, term.values)).values
            # One term says what several would: in none of these values, or in each of these sets.
            values = known | term.values if key[1] == NOT_IN else known & term.values
            opposite[key] = Requirement(*key, values)
        selector = tuple(opposite.values())
        if not contradiction(selector):
            found[selector] = None
    return list(found)


def _can_match(terms: list[Requirement]) -> bool:
    """Return whether some value of their key, or its absence, matches all of these terms."""
    key = terms[0].key
    if all(term.matches({}) for term in terms):
        return True
    if any(term.operator == DOES_NOT_EXIST for term in terms):
        return False
    sets = [term.values for term in terms if term.operator == IN]
    if sets:
        return any(all(term.matches({key: value}) for term in terms) for value in frozenset.intersection(*sets))
    # What is written with zeros before it is another value, but the same integer: only the bounds exclude one.
    least = max((_bound(term) + 1 for term in terms if term.operator == GREATER), default=0)
    most = min((_bound(term) - 1 for term in terms if term.operator == LESS), default=_MAX_INTEGER)
    return least <= most


def _bound(term: Requirement) -> int:
    return _integer(next(iter(term.values))) or 0


def _integer(text: str) -> int | None:
    """Return the integer that Kubernetes reads from a label's value; None if it reads none."""
    found = int(text) if _INTEGER.fullmatch(text) else None
    return None if found is None or found > _MAX_INTEGER else found


def requirement(key: str, operator: str, values: Collection[str] = ()) -> Requirement:
    """Make a term of ``matchExpressions``; raise ``ValueError`` if it is invalid."""
    if operator not in OPERATORS:
        raise ValueError(f"the operator must be one of {', '.join(OPERATORS)}, not {operator!r}")
    return _requirement(key, operator, values)


def _requirement(key: str, operator: str, values: Iterable[str] = ()) -> Requirement:
    if not _LABEL_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no label's key")
    found = frozenset(values)
    for value in found:
        if not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"{value!r} is no label's value")
        if operator in (GREATER, LESS) and _integer(value) is None:
            raise ValueError(f"{value!r} is no integer")
    if operator in (IN, NOT_IN) and not found:
        raise ValueError(f"the operator {operator} needs values")
    if operator in (EXISTS, DOES_NOT_EXIST) and found:
        raise ValueError(f"the operator {operator} takes no values")
    return Requirement(key, operator, found)


def parse_selector(text: str) -> LabelSelector:
    """Parse a selector in the syntax of ``kubectl -l``; raise ``ValueError`` with the valid syntax."""
    tokens = deque(_TOKEN.findall(text))
    terms: list[Requirement] = []
    try:
        while tokens:
            terms.append(_term(tokens))
            if tokens and (tokens.popleft() != "," or not tokens):
                raise ValueError("a comma is missing between terms, or a term after the last comma")
    except IndexError:
        raise ValueError(f"{_SYNTAX}: it is cut off") from None
    except ValueError as error:
        raise ValueError(f"{_SYNTAX}: {error}") from None
    return tuple(terms)


def _term(tokens: deque[str]) -> Requirement:
    if tokens[0] == "!":
        tokens.popleft()
        return _requirement(tokens.popleft(), DOES_NOT_EXIST)
    present = _requirement(tokens.popleft(), EXISTS)
    if not tokens or tokens[0] == ",":
        return present
    operator = tokens.popleft()
    if operator in _SETS:
        return _requirement(present.key, _SETS[operator], _values(tokens))
    if operator not in _EQUALITIES:
        raise ValueError(f"{operator!r} is no operator")
    return _requirement(present.key, _EQUALITIES[operator], [tokens.popleft() if tokens and tokens[0] != "," else ""])


def _values(tokens: deque[str]) -> list[str]:
    """Read the values in parentheses."""
    if tokens.popleft() != "(" or tokens[0] == ")":
        raise ValueError("values in parentheses are missing")
    values, value = [], ""
    while (token := tokens.popleft()) != ")":
        if token != "," and value:
            raise ValueError("a comma is missing between values")
        values += [value] if token == "," else []
        value = "" if token == "," else token
    return [*values, value]
