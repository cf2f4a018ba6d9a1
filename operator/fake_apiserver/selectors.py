"""Label and field selectors as they stand in queries and in PodDisruptionBudgets.

A selector is parsed once and then asked for each object. Reference: k8s.io/apimachinery/pkg/labels and /fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .resources import ResourceType
from .status import bad_request

_SET_TERM = re.compile(r"^(?P<key>[\w./-]+)\s+(?P<operator>in|notin)\s*\(\s*(?P<values>[^()]*?)\s*\)$")
_EQUALITY_TERM = re.compile(r"^(?P<key>[\w./-]+)\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[\w.-]*)$")
_EXISTS_TERM = re.compile(r"^(?P<absent>!?)\s*(?P<key>[\w./-]+)$")
_TERM_COMMA = re.compile(r",(?![^()]*\))")
_FIELD_TERM = re.compile(r"^(?P<field>[\w.\[\]'/-]+?)(?P<operator>==|!=|=)(?P<value>.*)$")


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """One term of a label selector; `values` is empty for (Not)Exists."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
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
        return self._compares(found)

    def _compares(self, found: str | None) -> bool:
        try:
            left, right = int(found or ""), int(next(iter(self.values), ""))
        except ValueError:
            return False
        return left > right if self.operator == "Gt" else left < right


LabelSelector = tuple[LabelTerm, ...]
"""All terms must hold; the empty one matches everything."""


def labels_match(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return all(requirement.matches(labels) for requirement in selector)


def parse_label_selector(text: str) -> LabelSelector:
    """Of a query; raises a 400 for anything that is none."""
    terms = [term.strip() for term in _TERM_COMMA.split(text)] if text.strip() else []
    return tuple(_label_term(term) for term in terms)


def _label_term(term: str) -> LabelTerm:
    if found := _SET_TERM.match(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return LabelTerm(found["key"], "In" if found["operator"] == "in" else "NotIn", values)
    if found := _EQUALITY_TERM.match(term):
        operator = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}[found["operator"]]
        return LabelTerm(found["key"], operator, frozenset([found["value"]]))
    if found := _EXISTS_TERM.match(term):
        return LabelTerm(found["key"], "DoesNotExist" if found["absent"] else "Exists")
    raise bad_request(f"unable to parse requirement: {term!r} is not a label selector")


def selector_of(spec: Mapping[str, Any] | None) -> LabelSelector | None:
    """Of a LabelSelector object: an empty one matches everything; None where it is absent, which matches nothing."""
    if spec is None:
        return None
    terms = [LabelTerm(key, "In", frozenset([value])) for key, value in (spec.get("matchLabels") or {}).items()]
    terms += [
        LabelTerm(e["key"], e["operator"], frozenset(e.get("values") or [])) for e in spec.get("matchExpressions") or []
    ]
    return tuple(terms)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    field: str
    equal: bool
    value: str


FieldSelector = tuple[FieldTerm, ...]


def parse_field_selector(text: str, resource: ResourceType) -> FieldSelector:
    """Of a query; raises the real server's 400 for a field that this kind has no label for."""
    terms: list[FieldTerm] = []
    for part in re.split(r"(?<!\\),", text) if text else []:
        if not part:
            continue
        found = _FIELD_TERM.match(part)
        if found is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        if not _is_supported(found["field"], resource):
            raise bad_request(f"field label not supported: {found['field']}")
        value = re.sub(r"\\(.)", r"\1", found["value"])
        terms.append(FieldTerm(found["field"], found["operator"] != "!=", value))
    return tuple(terms)


def _is_supported(label: str, resource: ResourceType) -> bool:
    if label == "metadata.name" or (label == "metadata.namespace" and resource.namespaced):
        return True
    return label in resource.kept_fields or label in resource.other_fields


def field_text(value: object) -> str:
    """How a field selector sees a JSON value: absent is "", booleans are `true` and `false`."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_at(obj: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """What stands at a path of an object; None where any step is missing."""
    found: Any = obj
    for step in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(step)
    return found


def fields_match(selector: FieldSelector, value_of: Callable[[str], str]) -> bool:
    return all((value_of(term.field) == term.value) == term.equal for term in selector)
