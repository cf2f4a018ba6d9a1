"""Label selectors: parsed from what people type, and asked whether they choose an object.

Not here: how a selector is spelled in JSON (``planning.reading``).

Reference: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GREATER, LESS = "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"
OPERATORS = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)

_KEY = r"(?P<key>[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?)"
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\(\s*(?P<values>[A-Za-z0-9._, -]*?)\s*\)", re.ASCII)
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[A-Za-z0-9._-]*)", re.ASCII)
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

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Tell whether it holds for these labels; an unknown operator holds for none."""
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
"""All terms must hold; the empty one chooses everything."""


def chooses(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Tell whether the selector chooses an object with these labels."""
    return all(requirement.holds(labels) for requirement in selector)


def parse_selector(text: str) -> LabelSelector:
    """Read a selector as ``kubectl -l`` takes it; raise ``ValueError`` with what is right instead."""
    terms = [term.strip() for term in _COMMA.split(text)] if text.strip() else []
    return tuple(_requirement(term) for term in terms)


def _requirement(term: str) -> Requirement:
    if found := _SET.fullmatch(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], IN if found["operator"] == "in" else NOT_IN, values)
    if found := _EQUALITY.fullmatch(term):
        return Requirement(found["key"], _EQUALITIES[found["operator"]], frozenset([found["value"]]))
    if found := _EXISTENCE.fullmatch(term):
        return Requirement(found["key"], DOES_NOT_EXIST if found["absent"] else EXISTS)
    raise ValueError(
        "a label selector (key=value, key!=value, key in (a,b), key notin (a,b), key, !key; with commas between them)"
    )
