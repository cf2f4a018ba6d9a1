"""The policy file: the rules of an eviction policy, versioned and read strictly.

``read_policy`` raises ``Malformed`` with all problems of a file at once. manifests/POLICY.md documents the format.
Flags set what applies to all pods; ``core.policy`` defines what rules mean.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from taint_eviction.core.label_selectors import (
    IN,
    OPERATORS,
    LabelSelector,
    Requirement,
    contradiction,
    parse_selector,
    requirement,
)
from taint_eviction.core.policy import UNLIMITED, EvictionMode, EvictionPolicy, Limit, PolicyRule
from taint_eviction.core.tiers import Order, Tier
from taint_eviction.files.marked_yaml import Malformed, Marked, Reading, described, load, read_text

API_VERSION, KIND = "taint-eviction/v1", "EvictionPolicy"

TOP = ("apiVersion", "kind", "rules")
RULE = ("name", "match", "maxTolerationSeconds", "mode", "evictTimeout", "limits", "pause", "order", "tier")
MATCH = ("taintKeys", "namespaces", "podSelector", "nodeSelector")
LIMITS = ("evictionsPerSecond", "burst", "concurrency")
_SELECTOR = ("matchLabels", "matchExpressions")
_EXPRESSION = ("key", "operator", "values")
_TIMEOUT, _CEILING = "evictTimeout", "maxTolerationSeconds"

# Each pod is matched against one rule after the other.
_MAX_RULES = 1000

_TAINT_KEYS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*\*?|\*", re.ASCII)
_NAMESPACES = re.compile(r"[a-z0-9][a-z0-9-]*\*?|\*", re.ASCII)


def read_policy_file(path: Path, base: EvictionPolicy) -> EvictionPolicy:
    """Return ``base`` with the rules of a file; raise ``Malformed`` with all its problems, or if it cannot be read."""
    return read_policy(read_text(path), str(path), base)


def read_policy(text: str, file: str, base: EvictionPolicy) -> EvictionPolicy:
    """Return ``base`` with the rules in ``text``; raise ``Malformed`` with all problems, which name ``file``."""
    reading = PolicyReading(file)
    rules = reading.policy(load(text, file))
    if reading.problems:
        raise Malformed(reading.problems)
    return replace(base, rules=rules)


class PolicyReading(Reading):
    """Reads a policy, or the ``rules`` of another file."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        # The rules whose match has no problem, with their lines.
        self._matching: list[tuple[PolicyRule, int]] = []

    def policy(self, at: Marked) -> tuple[PolicyRule, ...]:
        """Read the whole document, and return its rules."""
        top = self.fields(at, TOP, "a policy")
        if not isinstance(at.value, dict):
            return ()
        for key, right in (("apiVersion", API_VERSION), ("kind", KIND)):
            if key not in top:
                self.problem(at.line, f"a policy lacks {key!r}; write {key}: {right}")
            elif top[key].value != right:
                self.problem(top[key].line, f"{key} must be {right}, not {described(top[key])}")
        self.only(top, ("rules",), at.line, "a policy")
        return self.rules(top["rules"]) if "rules" in top else ()

    def rules(self, at: Marked) -> tuple[PolicyRule, ...]:
        """Read a list of rules."""
        items = self.items(at, "rules")
        if len(items) > _MAX_RULES:
            self.problem(at.line, f"there may be at most {_MAX_RULES} rules, not {len(items)}")
            return ()
        rules = tuple(self._rule(item) for item in items)
        self._check_names(zip(rules, items, strict=True))
        self._check_order()
        return rules

    def _check_names(self, rules: Iterable[tuple[PolicyRule, Marked]]) -> None:
        lines: dict[str, int] = {}
        for rule, at in rules:
            if rule.name in lines:
                self.problem(at.line, f"there is a rule {rule.name!r} already, in line {lines[rule.name]}")
            elif rule.name:
                lines[rule.name] = at.line

    def _check_order(self) -> None:
        for index, (rule, line) in enumerate(self._matching):
            for earlier, earlier_line in self._matching[:index]:
                if earlier.covers(rule):
                    what = f"rule {earlier.name!r} in line {earlier_line} matches all that it matches"
                    self.problem(line, f"rule {rule.name!r} never applies: {what}, and the first that matches applies")
                    break

    def _rule(self, at: Marked) -> PolicyRule:
        so_far = len(self.problems)
        fields = self.fields(at, RULE, "a rule")
        if isinstance(at.value, dict):
            self.only(fields, ("name",), at.line, "a rule")
        match = self.fields(fields["match"], MATCH, "match") if "match" in fields else {}
        rule = PolicyRule(
            name=self._name(fields["name"]) if "name" in fields else "",
            taint_keys=self._patterns(match.get("taintKeys"), "taintKeys", _TAINT_KEYS, "the key of a taint"),
            namespaces=self._patterns(match.get("namespaces"), "namespaces", _NAMESPACES, "a namespace's name"),
            pod_selector=self._selector(match.get("podSelector"), "podSelector"),
            node_selector=self._selector(match.get("nodeSelector"), "nodeSelector"),
        )
        of_all_taints = False
        if len(self.problems) == so_far:
            self._matching.append((rule, at.line))
            of_all_taints = not rule.taint_keys
        return replace(
            rule,
            mode=self._mode(fields["mode"]) if "mode" in fields else None,
            evict_timeout_seconds=self.seconds(fields[_TIMEOUT], _TIMEOUT, 1.0) if _TIMEOUT in fields else None,
            limit=self._limit(fields["limits"]) if "limits" in fields else UNLIMITED,
            pause=self.boolean(fields["pause"], "pause") if "pause" in fields else False,
            order=self._order(fields["order"]) if "order" in fields else None,
            tier=self._tier(fields["tier"]) if "tier" in fields else None,
            max_toleration_seconds=self._ceiling(fields[_CEILING], of_all_taints) if _CEILING in fields else None,
        )

    def _ceiling(self, at: Marked, of_all_taints: bool) -> int:
        if of_all_taints:
            what = f"{_CEILING} shortens tolerations of the taints that the rule names: give its match taintKeys"
            self.problem(at.line, what)
        return self.whole_number(at, _CEILING, 0)

    def _name(self, at: Marked) -> str:
        name = self.text(at, "name")
        # It becomes part of logs and metrics.
        if isinstance(at.value, str) and not (name.strip() and name.isprintable()):
            self.problem(at.line, f"name must be a line of text, not {described(at)}")
        return name

    def _mode(self, at: Marked) -> EvictionMode | None:
        modes = {mode.value: mode for mode in EvictionMode}
        return modes.get(self.text(at, "mode", modes))

    def _order(self, at: Marked) -> Order | None:
        orders = {order.value: order for order in Order}
        return orders.get(self.text(at, "order", orders))

    def _tier(self, at: Marked) -> Tier | None:
        tiers = {tier.word: tier for tier in Tier}
        return tiers.get(self.text(at, "tier", tiers))

    def _limit(self, at: Marked) -> Limit:
        fields = self.fields(at, LIMITS, "limits")
        if "burst" in fields and "evictionsPerSecond" not in fields:
            self.problem(at.key_lines["burst"], "burst has no effect without evictionsPerSecond")
        counts = {name: self.whole_number(fields[name], name, 1) for name in LIMITS[1:] if name in fields}
        rate = fields.get("evictionsPerSecond")
        return Limit(
            None if rate is None else self.number(rate, "evictionsPerSecond"),
            counts.get("burst"),
            counts.get("concurrency"),
        )

    # What a rule matches

    def _patterns(self, at: Marked | None, field: str, right: re.Pattern[str], what: str) -> tuple[str, ...]:
        if at is None:
            return ()
        if at.value in (None, []):
            self.problem(at.line, f"{field} is empty; leave it out to match all")
        names = []
        for item in self.items(at, field):
            names.append(self.text(item, f"an item of {field}"))
            if isinstance(item.value, str) and not right.fullmatch(item.value):
                self.problem(item.line, f"{described(item)} is not {what}, or the beginning of one followed by *")
        return tuple(names)

    def _selector(self, at: Marked | None, field: str) -> LabelSelector:
        """Read a label selector that something can match."""
        if at is None:
            return ()
        selector = self._terms(at, field)
        if why := contradiction(selector):
            self.problem(at.line, f"{field} {why}")
        return selector

    def _terms(self, at: Marked, field: str) -> LabelSelector:
        """Read the terms of a label selector: as ``kubectl -l`` takes it, or as an object."""
        if isinstance(at.value, str):
            try:
                return parse_selector(at.value)
            except ValueError as expected:
                self.problem(at.line, f"{at.value!r} is not {expected}")
                return ()
        fields = self.fields(at, _SELECTOR, field)
        labels = fields.get("matchLabels")
        terms = [] if labels is None else self._labels(labels)
        for item in self.items(fields.get("matchExpressions"), "matchExpressions"):
            terms += self._expression(item)
        return tuple(terms)

    def _labels(self, at: Marked) -> list[Requirement]:
        if not isinstance(at.value, dict):
            self.problem(at.line, f"matchLabels must be a mapping of labels, not {described(at)}")
            return []
        return [
            term
            for key, value in at.value.items()
            for term in self._requirement(at.key_lines[key], key, IN, [self.text(value, f"the label {key!r}")])
        ]

    def _expression(self, at: Marked) -> list[Requirement]:
        fields = self.fields(at, _EXPRESSION, "an item of matchExpressions")
        if not isinstance(at.value, dict) or not self.only(fields, ("key", "operator"), at.line, "matchExpressions"):
            return []
        so_far = len(self.problems)
        key, operator = self.text(fields["key"], "key"), self.text(fields["operator"], "operator", OPERATORS)
        values = [self.text(item, "an item of values") for item in self.items(fields.get("values"), "values")]
        return self._requirement(at.line, key, operator, values) if len(self.problems) == so_far else []

    def _requirement(self, line: int, key: str, operator: str, values: list[str]) -> list[Requirement]:
        try:
            return [requirement(key, operator, values)]
        except ValueError as error:
            self.problem(line, str(error))
            return []
