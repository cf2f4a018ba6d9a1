"""Label selectors: parsed from text, and matched against the labels of objects.
This module does not read selectors from JSON (``planning.reading``) or policy files (``files.policy_file``).

Reference: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GREATER, LESS = "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"
OPERATORS = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)

_KEY = r"(?P<key>[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?)"
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\(\s*(?P<values>[A-Za-z0-9._, -]*?)\s*\)", re.ASCII)
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[A-Za-z0-9._-]*)", re.ASCII)
_LABEL_KEY = re.compile(_KEY, re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_EXISTENCE = re.compile(rf"(?P<absent>!?)\s*{_KEY}", re.ASCII)
# Commas between terms, not those inside parentheses.
_COMMA = re.compile(r",(?![^()]*\))")
_EQUALITIES = {"=": IN, "==": IN, "!=": NOT_IN, ">": GREATER, "<": LESS}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector; ``values`` is empty for Exists and DoesNotExist, one integer for Gt and Lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

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
        try:
            left, right = int(found or ""), int(next(iter(self.values), ""))
        except ValueError:
            return False
        return left > right if self.operator == GREATER else left < right


LabelSelector = tuple[Requirement, ...]
"""All terms must match; the empty selector selects everything."""


def chooses(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether the selector selects an object with these labels."""
    return all(term.matches(labels) for term in selector)


def requirement(key: str, operator: str, values: Collection[str] = ()) -> Requirement:
    """Make a term of ``matchExpressions``; raise ``ValueError`` if it is invalid."""
    if not _LABEL_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no label's key")
    for value in values:
        if not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"{value!r} is no label's value")
    if operator not in OPERATORS:
        raise ValueError(f"the operator must be one of {', '.join(OPERATORS)}, not {operator!r}")
    if operator in (IN, NOT_IN) and not values:
        raise ValueError(f"the operator {operator} needs values")
    if operator in (EXISTS, DOES_NOT_EXIST) and values:
        raise ValueError(f"the operator {operator} takes no values")
    return Requirement(key, operator, frozenset(values))


def parse_selector(text: str) -> LabelSelector:
    """Parse a selector in the syntax of ``kubectl -l``; raise ``ValueError`` with the valid syntax."""
    terms = [term.strip() for term in _COMMA.split(text)] if text.strip() else []
    return tuple(_requirement(term) for term in terms)


def _requirement(term: str) -> Requirement:
    if found := _SET.fullmatch(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], IN if found["operator"] == "in" else NOT_IN, values)
    found = _EQUALITY.fullmatch(term)
    if found and (found["operator"] not in (">", "<") or _INTEGER.fullmatch(found["value"])):
        return Requirement(found["key"], _EQUALITIES[found["operator"]], frozenset([found["value"]]))
    if found := _EXISTENCE.fullmatch(term):
        return Requirement(found["key"], DOES_NOT_EXIST if found["absent"] else EXISTS)
    raise ValueError(
        "a label selector (key=value, key!=value, key in (a,b), key notin (a,b), key, !key, key>1; commas between them)"
    )
