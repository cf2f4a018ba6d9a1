"""PodDisruptionBudgets: what deletions violate, and what blocks evictions."""

import pytest
from tests.planning.shop import JsonObject, budget, inventory_of, node, planned, pod, tolerates

from taint_eviction.core.label_selectors import chooses, parse_selector
from taint_eviction.core.policy import EvictionMode
from taint_eviction_ctl.cli.plan_views import print_plan
from taint_eviction_ctl.planning.disruption_budgets import scaled
from taint_eviction_ctl.planning.plan import Plan

WEB = {"matchLabels": {"app": "web"}}
TAINTED = node("node-1", "k=v:NoExecute")


def web(count: int, *, leaving: int, ready: bool = True) -> list[JsonObject]:
    """Write pods of one app, ``leaving`` of them on the tainted node."""
    return [
        pod(f"web-{index}", "node-1" if index < leaving else "node-2", labels={"app": "web"}, ready=ready)
        for index in range(count)
    ]


def with_budget(*objects: JsonObject, mode: EvictionMode = EvictionMode.DELETE) -> Plan:
    """Plan with a tainted and a clean node."""
    return planned(inventory_of(TAINTED, node("node-2"), *objects), mode=mode)


@pytest.mark.parametrize(
    ("spec", "violated"),
    [
        ({"minAvailable": 3}, False),
        ({"minAvailable": 4}, True),
        ({"minAvailable": "60%"}, False),
        ({"minAvailable": "61%"}, True),
        ({"maxUnavailable": 2}, False),
        ({"maxUnavailable": 1}, True),
        ({"maxUnavailable": "21%"}, False),
        ({"maxUnavailable": "20%"}, True),
        ({"minAvailable": "0" * 5_000 + "61%"}, True),
    ],
)
def test_two_of_five_pods_that_leave_may_violate_a_budget(spec: JsonObject, violated: bool) -> None:
    """Numbers count as they are, and percentages are rounded up. The API server stores any number of zeros."""
    plan = with_budget(*web(5, leaving=2), budget("web", WEB, **spec))
    assert bool(plan.broken_budgets) is violated


def test_a_budgets_own_status_counts_while_it_is_current() -> None:
    """The disruption controller knows the owners' scale; an outdated status is not believed."""
    told = budget("web", WEB, minAvailable=1)
    told["metadata"]["generation"] = 2
    told["status"] = {
        "observedGeneration": 2, "currentHealthy": 5, "desiredHealthy": 5, "expectedPods": 5, "disruptionsAllowed": 0,
    }  # fmt: skip
    assert with_budget(*web(5, leaving=1), told).broken_budgets
    told["status"]["observedGeneration"] = 1
    assert not with_budget(*web(5, leaving=1), told).broken_budgets


def test_evictions_are_allowed_until_the_budget_is_spent() -> None:
    """Two pods may go, in the order of their deadlines, and the third is blocked."""
    pods = web(5, leaving=2)
    pods.append(pod("first", "node-1", labels={"app": "web"}))
    pods[0]["spec"]["tolerations"] = [tolerates(60, "k")]
    plan = with_budget(*pods, budget("web", WEB, maxUnavailable=2), mode=EvictionMode.EVICT)
    assert [(pod.ref.key.name, pod.blocked) for pod in plan.leaving] == [
        ("first", False), ("web-1", False), ("web-0", True),
    ]  # fmt: skip
    assert [str(ref) for ref in plan.broken_budgets[0].blocked] == ["shop/web-0"]


def test_two_budgets_for_one_pod_block_its_eviction() -> None:
    """The eviction API does not support two budgets, however much they allow."""
    plan = with_budget(
        *web(1, leaving=1), budget("a", WEB, minAvailable=0), budget("b", minAvailable=0), mode=EvictionMode.EVICT
    )
    assert "more than one budget covers it" in str(plan.leaving[0].verdict and plan.leaving[0].verdict.value)


def test_pods_that_are_not_ready_cost_nothing() -> None:
    """Pods that are not ready do not count as healthy; AlwaysAllow lets them be evicted."""
    unready = web(2, leaving=2, ready=False)
    blocked = budget("web", WEB, minAvailable=2)
    assert with_budget(*unready, blocked, mode=EvictionMode.EVICT).leaving[0].blocked
    blocked["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    assert not with_budget(*unready, blocked, mode=EvictionMode.EVICT).leaving[0].blocked


def test_an_empty_selector_covers_all_pods_and_an_absent_one_none() -> None:
    """The API policy/v1 defines both so."""
    assert with_budget(*web(1, leaving=1), budget("all", {}, minAvailable=1)).broken_budgets
    absent = budget("none", minAvailable=1)
    del absent["spec"]["selector"]
    assert not with_budget(*web(1, leaving=1), absent).broken_budgets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True), ("app=web", True), ("app==web", True), ("app=db", False), ("app!=db", True), ("tier!=x", True),
        ("app in (web, db)", True), ("app notin (web)", False), ("app", True), ("!app", False), ("!tier", True),
        ("app=web,!tier", True), ("size>3", True), ("size<3", False), ("a.b/c=d", False),
        ("app=web,app notin (a,web)", False), ("app=", False), ("app!=", True),
    ],
)  # fmt: skip
def test_selectors_are_read_as_kubectl_reads_them(text: str, expected: bool) -> None:
    """All terms of a selector must hold."""
    assert chooses(parse_selector(text), {"app": "web", "size": "4"}) is expected


@pytest.mark.parametrize("text", ["a b", "=x", "app in web", "app,,b", "a in (x"])
def test_a_text_that_is_no_selector_is_refused(text: str) -> None:
    """The error says that it is about a label selector."""
    with pytest.raises(ValueError, match="a label selector"):
        parse_selector(text)


def test_percentages_round_up() -> None:
    """30 % of 4 is 2."""
    assert scaled("30%", 4) == 2


def test_each_budget_has_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Deletions violate a budget or not; the eviction API is allowed or blocked."""
    cart = pod("cart-0", "node-1", labels={"app": "cart"})
    other = budget("none", {"matchLabels": {"app": "cart"}}, minAvailable=0)
    objects = (*web(2, leaving=2), budget("all", WEB, minAvailable=2), cart, other)
    verdicts = []
    for mode in (EvictionMode.DELETE, EvictionMode.EVICT):
        print_plan(with_budget(*objects, mode=mode), wide=False)
        lines = capsys.readouterr().out.splitlines()
        verdicts += [line.split(maxsplit=4)[4] for line in lines if line.startswith(("  shop/all ", "  shop/none "))]
    told = [verdict.partition(",")[0] for verdict in verdicts]
    assert told == ["will be violated", "not violated", "BLOCKS 2 of them", "allows them"]
