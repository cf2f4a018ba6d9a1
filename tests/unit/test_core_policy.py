"""How pods are evicted: modes, limits and rules, and the problems that they may have."""

import math
from dataclasses import replace

import pytest
from tests.unit.builders import pod, seen, since, taint, tolerates

from taint_eviction.core.decision import Ceiling, DecisionPolicy, Evict, decide
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.objects import OUT_OF_SERVICE
from taint_eviction.core.policy import (
    UNLIMITED,
    EvictionMode,
    EvictionPolicy,
    Handling,
    Limit,
    PolicyRule,
    first_unpaused,
)
from taint_eviction.settings import Settings


def test_by_default_pods_are_deleted_without_any_limit() -> None:
    """This is what Kubernetes' own controller does."""
    policy = EvictionPolicy()
    assert policy.handling("k1", pod(), 0.0) == Handling(None, EvictionMode.DELETE, 300.0)
    assert policy.total == policy.per_node == policy.per_namespace == UNLIMITED == Limit()
    assert Settings(policy=policy).problems() == []


# Rules


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (PolicyRule("all"), True),
        (PolicyRule("key", taint_keys=("k1",)), True),
        (PolicyRule("key", taint_keys=("k",)), False),
        (PolicyRule("key", taint_keys=("k*",)), True),
        (PolicyRule("key", taint_keys=("*",)), True),
        (PolicyRule("key", taint_keys=("x", "k1")), True),
        (PolicyRule("key", taint_keys=("x", "y*")), False),
        (PolicyRule("key", taint_keys=("k1*",)), True),
        (PolicyRule("key", taint_keys=("k12*",)), False),
        (PolicyRule("space", namespaces=("shop",)), True),
        (PolicyRule("space", namespaces=("sho",)), False),
        (PolicyRule("space", namespaces=("sh*",)), True),
        (PolicyRule("space", namespaces=("bank",)), False),
        (PolicyRule("labels", pod_selector=parse_selector("app=web")), True),
        (PolicyRule("labels", pod_selector=parse_selector("app=web,tier")), False),
        (PolicyRule("two", taint_keys=("k1",), namespaces=("bank",)), False),
        (PolicyRule("two", taint_keys=("k2",), namespaces=("shop",)), False),
        (PolicyRule("three", ("k*",), ("shop",), parse_selector("!tier")), True),
        (PolicyRule("three", ("k*",), ("shop",), parse_selector("app!=web")), False),
    ],
)
def test_a_rule_matches_if_all_its_conditions_do(rule: PolicyRule, matches: bool) -> None:
    """Conditions are names, prefixes with a star, and labels; an empty condition matches everything."""
    assert rule.matches("k1", pod(labels={"app": "web"})) is matches
    policy = EvictionPolicy(rules=(rule,))
    assert policy.handling("k1", pod(labels={"app": "web"}), 0.0).rule == (rule if matches else None)


def test_a_rule_applies_on_the_nodes_that_it_selects() -> None:
    """A policy that selects no nodes is the same for all."""
    gpu, others = (
        PolicyRule("gpu", node_selector=parse_selector("pool=gpu")),
        PolicyRule("others", node_selector=parse_selector("pool!=gpu")),
    )
    policy = EvictionPolicy(rules=(gpu, others))
    on_gpu, elsewhere = policy.on({"pool": "gpu"}), policy.on({})
    assert (on_gpu.rules, elsewhere.rules) == ((gpu,), (others,))
    everywhere = EvictionPolicy(rules=(PolicyRule("all"),))
    assert everywhere.on({"pool": "gpu"}) is everywhere


def test_the_first_rule_that_matches_counts() -> None:
    """A later rule does not count, even if it is more specific."""
    first = PolicyRule("first", namespaces=("sh*",), mode=EvictionMode.EVICT)
    second = PolicyRule("second", namespaces=("shop",), mode=EvictionMode.EVICT_THEN_DELETE, evict_timeout_seconds=1.0)
    policy = EvictionPolicy(rules=(first, second))
    assert policy.handling("k1", pod(), 0.0) == Handling(first, EvictionMode.EVICT, 300.0)
    assert EvictionPolicy(rules=(second, first)).handling("k1", pod(), 0.0).rule is second


def test_the_ceiling_is_that_of_the_first_rule_that_matches() -> None:
    """A rule before it without a ceiling keeps it away; whether the node is out of service changes nothing."""
    first = PolicyRule("first", ("k1",), ("bank",))
    second = PolicyRule("second", ("k1", OUT_OF_SERVICE), max_toleration_seconds=60)
    third = PolicyRule("third", ("*",), max_toleration_seconds=5)
    policy = EvictionPolicy(rules=(first, second, third))
    bank, shop = pod(namespace="bank"), pod(namespace="shop")
    for each in (policy, replace(policy, out_of_service=True)):
        assert each.ceiling(bank, "k1") is None
        assert each.ceiling(shop, "k1") == Ceiling("second", 60)
        assert each.ceiling(shop, OUT_OF_SERVICE) == Ceiling("second", 60)
        assert each.ceiling(shop, "k2") == Ceiling("third", 5)
    assert EvictionPolicy().ceiling(shop, "k1") is None


def test_a_rule_inherits_what_it_does_not_set() -> None:
    """Mode and timeout are inherited separately; a timeout of zero is a value."""
    base = EvictionPolicy(EvictionMode.EVICT, 60.0)
    timeout = PolicyRule("timeout", evict_timeout_seconds=0.0)
    mode = PolicyRule("mode", mode=EvictionMode.DELETE)
    for rule, expected in [
        (PolicyRule("nothing"), (EvictionMode.EVICT, 60.0)),
        (timeout, (EvictionMode.EVICT, 0.0)),
        (mode, (EvictionMode.DELETE, 60.0)),
    ]:
        handling = EvictionPolicy(base.mode, base.evict_timeout_seconds, rules=(rule,)).handling("k1", pod(), 0.0)
        assert (handling.mode, handling.evict_timeout_seconds, handling.rule) == (*expected, rule)
    assert base.handling("k1", pod(), 0.0) == Handling(None, EvictionMode.EVICT, 60.0)


def test_modes_are_spelled_as_people_write_them() -> None:
    """Flags and files use these values."""
    assert [mode.value for mode in EvictionMode] == ["delete", "evict", "evict-then-delete"]


# Limits


@pytest.mark.parametrize(
    ("limit", "tokens"),
    [
        (Limit(), math.inf),
        (Limit(at_once=3), math.inf),
        (Limit(0.25), 1.0),
        (Limit(1.0), 1.0),
        (Limit(1.5), 2.0),
        (Limit(20.0), 20.0),
        (Limit(20.0, 3), 3.0),
        (Limit(0.5, 3), 3.0),
    ],
)
def test_a_limit_saves_tokens_up_to_its_burst(limit: Limit, tokens: float) -> None:
    """The default burst is one second's tokens, and at least one."""
    assert limit.max_tokens == tokens


SOONEST_FIRST = (
    (
        PolicyRule("now", mode=EvictionMode.DELETE),
        PolicyRule("alike", mode=EvictionMode.DELETE, evict_timeout_seconds=9.0),
    ),
    (PolicyRule("few at once", limit=Limit(at_once=2)),),
    (PolicyRule("one at once", limit=Limit(at_once=1)),),
    (PolicyRule("fast", limit=Limit(2.0, 4)), PolicyRule("as much", limit=Limit(2.0, 4, None))),
    (PolicyRule("small burst", limit=Limit(2.0, 3, 9)),),
    (PolicyRule("fewer at once", limit=Limit(2.0, 3, 8)),),
    (PolicyRule("a second's worth", limit=Limit(2.0)), PolicyRule("as much said", limit=Limit(2.0, 2))),
    (PolicyRule("slow", limit=Limit(1.0, 100)),),
    (PolicyRule("hasty", mode=EvictionMode.EVICT_THEN_DELETE, evict_timeout_seconds=1.0, limit=Limit(0.1)),),
    (PolicyRule("patient", mode=EvictionMode.EVICT_THEN_DELETE),),
    (PolicyRule("for ever", mode=EvictionMode.EVICT, evict_timeout_seconds=0.0),),
    (PolicyRule("paused", pause=True), PolicyRule("alike", mode=EvictionMode.EVICT, limit=Limit(0.1), pause=True)),
)


def test_a_rule_that_evicts_a_pod_sooner_comes_first() -> None:
    """The order is by mode, then by timeout, then by limit; a paused rule is last, whatever its other values."""

    def urgency(rule: PolicyRule) -> tuple[float, ...]:
        return EvictionPolicy(rules=(rule,)).handling("k1", pod(), 0.0).urgency

    assert EvictionPolicy().handling("k1", pod(), 0.0).urgency == urgency(SOONEST_FIRST[0][0])
    for alike in SOONEST_FIRST:
        assert len({urgency(rule) for rule in alike}) == 1
    hastes = [urgency(rule) for rule, *_ in SOONEST_FIRST]
    assert hastes == sorted(hastes)
    assert len(set(hastes)) == len(hastes)


@pytest.mark.parametrize(
    ("limit", "problems"),
    [
        (Limit(), []),
        (Limit(0.001, 1, 1), []),
        (Limit(at_once=1), []),
        (Limit(0.0), ["x: evictions per second must be more than 0, not 0; to evict no pods, pause"]),
        (Limit(-1.5), ["x: evictions per second must be more than 0, not -1.5; to evict no pods, pause"]),
        (Limit(math.inf), ["x: evictions per second must be more than 0, not inf; to evict no pods, pause"]),
        (Limit(math.nan), ["x: evictions per second must be more than 0, not nan; to evict no pods, pause"]),
        (Limit(1.0, 0), ["x: the burst must be at least 1, not 0"]),
        (Limit(burst=2), ["x: a burst has no effect without evictions per second"]),
        (Limit(at_once=0), ["x: evictions at once must be at least 1, not 0; to evict no pods, pause"]),
    ],
)
def test_each_problem_of_a_limit_is_reported(limit: Limit, problems: list[str]) -> None:
    """The problem begins with the limit's name."""
    assert limit.problems("x") == problems


def test_all_problems_of_a_policy_are_reported_at_once() -> None:
    """Each limit is named, and a negative timeout is a problem too."""
    bad = Limit(at_once=0)
    policy = EvictionPolicy(evict_timeout_seconds=-1.0, total=bad, per_node=bad, per_namespace=bad)
    said = "evictions at once must be at least 1, not 0; to evict no pods, pause"
    assert Settings(policy=policy).problems() == [
        "the evict timeout must not be negative, as -1 s is",
        f"all evictions: {said}",
        f"evictions per node: {said}",
        f"evictions per namespace: {said}",
    ]
    assert Settings(policy=EvictionPolicy(evict_timeout_seconds=0.0)).problems() == []


# The effective taint


def test_a_pod_that_a_rule_pauses_is_evicted_because_of_the_next_due_taint() -> None:
    """A later taint does not decide, although its rule is faster."""
    keys = ("paused", "asks", "deletes")
    which = pod(*(tolerates(20 * number, key) for number, key in enumerate(keys)), bound_at=0)
    decision = decide(which, since(0), [seen(taint(key)) for key in keys], DecisionPolicy())
    assert isinstance(decision, Evict)
    rules = (PolicyRule("paused", ("paused",), pause=True), PolicyRule("asks", ("asks",), mode=EvictionMode.EVICT))
    gone = first_unpaused(decision, which, EvictionPolicy(rules=rules))
    assert (gone.fire_at, gone.deciding.taint.key) == (20, "asks")
