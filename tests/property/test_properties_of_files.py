"""Files that people write: whatever their content, reading succeeds or names each problem with its line.

Reading never raises another exception, and never reports a problem without a line.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.stage.catalogue import scenario_files
from tests.unit.builders import pod

from taint_eviction.core.label_selectors import chooses
from taint_eviction.core.policy import EvictionPolicy, PolicyRule
from taint_eviction.files.marked_yaml import Malformed, Problem
from taint_eviction.files.policy_file import LIMITS, MATCH, RULE, read_policy
from taint_eviction_lab.simulation.scenario import read_scenario

SCENARIOS = [path.read_text(encoding="utf-8") for path in scenario_files()]
POLICY = """\
apiVersion: taint-eviction/v1
kind: EvictionPolicy
rules:
  - name: databases
    match:
      taintKeys: [node.kubernetes.io/unreachable, example.com/*]
      namespaces: [shop, team-*]
      podSelector:
        matchLabels: {app: db}
        matchExpressions:
          - {key: tier, operator: In, values: [gold]}
    mode: evict-then-delete
    evictTimeout: 10m
    limits: {evictionsPerSecond: 0.5, burst: 1, concurrency: 2}
    pause: false
  - name: batch
    match: {podSelector: "workload=batch,!checkpointed", nodeSelector: "pool in (gpu,tpu)"}
    pause: true
"""

# Odd YAML that people and attackers write.
ODD = (
    *("", " ", "\t", "-", "- ", ":", "? ", "---", "...", "#", "'", '"', "[", "]", "{", "}", ",", "&a", "*a", "<<: *a"),
    *("null", "~", "yes", "no", ".nan", ".inf", "-.inf", "1e999", "0", "-1", "0x", "0b", "1_0", "1:30", "9" * 40),
    *("!!int ''", "!!float x", "!!bool maybe", "!!timestamp x", "!!binary x", "!!map x", "!x y", "%YAML 1.9"),
    *('"\\uD800"', '"\\UFFFFFFFF"', "\x00", "\ufeff", "é", "=", "<<", "*", "a b", "a\nb", "|", ">", "@", "`"),
)
WORDS = (*RULE, *MATCH, *LIMITS, "matchLabels", "matchExpressions", "key", "operator", "values", "In", "apiVersion")

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(ODD)
    | st.sampled_from(WORDS)
    | st.text(max_size=10)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner),
    max_leaves=8,
)
rngs = st.integers(0, 2**32).map(random.Random)


def problems(read: Callable[[str, str], object], text: str) -> tuple[Problem, ...]:
    """Return the problems of a text, none if it can be read; each is one line and names a line of the file."""
    found: tuple[Problem, ...] = ()
    try:
        read(text, "f.yaml")
    except Malformed as malformed:
        found = malformed.problems or (Problem("nothing is said", 0, ""),)
    lines = len(text.splitlines()) + 1
    assert all(1 <= problem.line <= lines and len(str(problem).splitlines()) == 1 for problem in found), found
    return found


def policy(text: str, file: str) -> EvictionPolicy:
    """Read a policy."""
    return read_policy(text, file, EvictionPolicy())


def with_other_lines(text: str, rng: random.Random) -> str:
    """Remove, repeat, overwrite, indent, dedent or corrupt some lines."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        line = lines[at]
        cut = rng.randrange(len(line) + 1)
        lines[at : at + 1] = rng.choice(
            [
                [],
                [line, line],
                [lines[other]],
                [f"  {line}"],
                [line.removeprefix("  ")],
                [line[:cut] + rng.choice(ODD) + line[cut:]],
                [f"{line.partition(':')[0]}: {rng.choice(ODD)}"],
            ]
        )
        lines = lines or [""]
    return "\n".join(lines)


def with_another_value(document: Any, rng: random.Random, value: Any) -> Any:
    """Replace some part of a document by ``value``."""
    if not document or not isinstance(document, dict | list) or rng.random() < 0.1:
        return value
    if isinstance(document, list):
        at = rng.randrange(len(document))
        return [*document[:at], with_another_value(document[at], rng, value), *document[at + 1 :]]
    key = rng.choice(sorted(document))
    return {**document, key: with_another_value(document[key], rng, value)}


def written(document: Any) -> str:
    """Write a document as YAML."""
    return yaml.safe_dump(document)


@given(st.text() | st.lists(st.sampled_from((*ODD, *WORDS, "\n", "\n  ", ": "))).map("".join))
@example("\x85a: [")
@example("a: |\n\u2028")
def test_any_text_is_a_policy_or_malformed(text: str) -> None:
    """Any characters, and pieces of YAML in any order, are read as a policy or reported as malformed."""
    problems(policy, text)


@given(values)
def test_any_value_is_a_policy_or_malformed(value: Any) -> None:
    """Any value is tried twice: as the whole document, and as its ``rules``."""
    problems(policy, written(value))
    problems(policy, written({"apiVersion": "taint-eviction/v1", "kind": "EvictionPolicy", "rules": value}))


@given(rngs)
def test_a_policy_with_other_lines_is_a_policy_or_malformed(rng: random.Random) -> None:
    """A policy whose lines were edited by mistake is read as a policy or reported as malformed."""
    problems(policy, with_other_lines(POLICY, rng))


@given(rngs, values)
def test_a_policy_with_another_value_is_a_policy_or_malformed(rng: random.Random, value: Any) -> None:
    """A policy with any value in any place is read as a policy or reported as malformed."""
    problems(policy, written(with_another_value(yaml.safe_load(POLICY), rng, value)))


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4, unique=True), st.data())
def test_each_rule_of_an_accepted_policy_can_match_a_pod_first(names: list[str], data: st.DataObject) -> None:
    """No single earlier rule of an accepted policy matches all pods of a later rule."""
    patterns = st.none() | st.lists(st.sampled_from(["*", "a", "a*", "ab", "ab*", "b"]), min_size=1, max_size=2)
    labels = st.none() | st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"))
    written_rules = []
    for name in names:
        match = {"taintKeys": data.draw(patterns), "namespaces": data.draw(patterns)}
        drawn = {field: data.draw(labels.map(_selector)) for field in ("podSelector", "nodeSelector")}
        chosen = {field: selector for field, selector in drawn.items() if selector is not None}
        given_only = {key: value for key, value in match.items() if value is not None}
        written_rules.append({"name": name, "match": {**given_only, **chosen}})
    text = written({"apiVersion": "taint-eviction/v1", "kind": "EvictionPolicy", "rules": written_rules})
    found = problems(policy, text)
    assert all("never applies" in problem.what for problem in found)
    if not found:
        read = policy(text, "f.yaml").rules
        assert all(_is_not_covered_by_one(read[:index], rule) for index, rule in enumerate(read))


def _selector(labels: dict[str, str] | None) -> dict[str, Any] | None:
    return None if labels is None else {"matchLabels": labels}


def _is_not_covered_by_one(before: tuple[PolicyRule, ...], rule: PolicyRule) -> bool:
    """Return whether each earlier rule leaves some pod to this rule, by trying a small set of pods and nodes."""
    names, values = ["a", "ab", "abc", "ac", "b", "c"], ("", "1", "2")
    labels = [{label: value for label, value in (("x", x), ("y", y)) if value} for x in values for y in values]

    def matched(one: PolicyRule) -> set[tuple[str, str, int, int]]:
        on = [number for number, each in enumerate(labels) if EvictionPolicy(rules=(one,)).on(each).rules]
        named = [
            (key, space)
            for key in names
            for space in names
            if replace(one, pod_selector=()).matches(key, pod(namespace=space))
        ]
        chosen = [number for number, each in enumerate(labels) if chooses(one.pod_selector, each)]
        return {(*name, number, node) for name in named for number in chosen for node in on}

    own = matched(rule)
    # A rule that matches none of these pods needs no comparison.
    return not own or all(not own <= matched(earlier) for earlier in before)


@given(st.sampled_from(SCENARIOS), rngs)
def test_a_scenario_with_other_lines_is_a_scenario_or_malformed(text: str, rng: random.Random) -> None:
    """Any scenario file whose lines were edited by mistake is read as a scenario or reported as malformed."""
    problems(read_scenario, with_other_lines(text, rng))


@given(st.sampled_from(SCENARIOS), rngs, values)
def test_a_scenario_with_another_value_is_a_scenario_or_malformed(text: str, rng: random.Random, value: Any) -> None:
    """Any scenario file with any value in any place is read as a scenario or reported as malformed."""
    problems(read_scenario, written(with_another_value(yaml.safe_load(text), rng, value)))
