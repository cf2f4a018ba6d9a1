"""Plans with a policy: which rule says by which call a pod would go, and which pods are paused."""

import json
from pathlib import Path

import pytest
from tests.planning.shop import (
    NOON,
    NOON_TEXT,
    SHOP,
    JsonObject,
    budget,
    inventory_of,
    node,
    planned,
    pod,
    run,
    tolerates,
)

from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.policy import EvictionMode, PolicyRule
from taint_eviction_ctl.cli.plan_views import print_plan
from taint_eviction_ctl.picture.of_plan import picture_of_plan
from taint_eviction_ctl.planning.changes import Changes
from taint_eviction_ctl.planning.document import plan_document
from taint_eviction_ctl.planning.holding import add_holders
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.rehearsal import Conditions
from taint_eviction_ctl.planning.wording import notes, summary, why

DELETE, EVICT, EVICT_THEN_DELETE = EvictionMode
TAINTED = node("node-1", "k=v:NoExecute")
WEB = {"matchLabels": {"app": "web"}}
HEAD = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules:\n"
TAINT = ("--taint", "*=maintenance=now:NoExecute", "-l", "pool=web")


def web(name: str, *tolerations: JsonObject, **labels: str) -> JsonObject:
    """Write a pod of one app on the tainted node."""
    return pod(name, "node-1", *tolerations, owner="ReplicaSet/web", labels={"app": "web", **labels})


def with_rules(*rules: PolicyRule, mode: EvictionMode = DELETE, budgets: tuple[JsonObject, ...] = ()) -> Plan:
    """Plan for three pods: the first two leave at once, the last in a minute and for another taint."""
    other = node("node-1", "k=v:NoExecute", "other=v:NoExecute")
    tolerant = (tolerates(None, "k"), tolerates(60, "other"))
    ever = tolerates(None, "other")
    pods = (web("a", ever, tier="gold"), web("b", ever), web("c", *tolerant))
    return planned(inventory_of(other, *pods, *budgets), None, *rules, mode=mode)


def modes(plan: Plan) -> dict[str, EvictionMode]:
    """Return by which call each pod would go."""
    return {pod.ref.key.name: pod.handling.mode for pod in plan.leaving if pod.handling is not None}


@pytest.mark.parametrize(
    ("rule", "evicted"),
    [
        (PolicyRule("all", mode=EVICT), "abc"),
        (PolicyRule("taint", taint_keys=("k",), mode=EVICT), "ab"),
        (PolicyRule("taints", taint_keys=("oth*",), mode=EVICT), "c"),
        (PolicyRule("namespace", namespaces=("shop",), mode=EVICT), "abc"),
        (PolicyRule("elsewhere", namespaces=("team-*",), mode=EVICT), ""),
        (PolicyRule("labels", pod_selector=parse_selector("tier=gold"), mode=EVICT), "a"),
        (PolicyRule("nothing said"), ""),
    ],
)
def test_a_rule_says_how_the_pods_that_it_matches_go(rule: PolicyRule, evicted: str) -> None:
    """A rule matches by the taint that decides, the namespace and the labels; other pods go as without rules."""
    assert "".join(name for name, mode in modes(with_rules(rule)).items() if mode is EVICT) == evicted


def test_the_mode_applies_where_no_rule_says_otherwise() -> None:
    """The mode is the base of the policy."""
    plan = with_rules(PolicyRule("gold", pod_selector=parse_selector("tier=gold"), mode=DELETE), mode=EVICT)
    assert modes(plan) == {"a": DELETE, "b": EVICT, "c": EVICT}
    assert plan.mode is EVICT


def test_a_paused_pod_would_be_held() -> None:
    """The pod is due, but no call would be made, so that it breaks no budget."""
    paused = PolicyRule("freeze", pod_selector=parse_selector("tier=gold"), pause=True)
    plan = with_rules(paused, budgets=(budget("web", WEB, minAvailable=1),))
    assert [(pod.ref.key.name, pod.paused_by) for pod in plan.leaving] == [("a", "freeze"), ("b", ""), ("c", "")]
    assert not plan.broken_budgets
    assert with_rules(budgets=(budget("web", WEB, minAvailable=1),)).broken_budgets
    told = "2 of 3 pods on 1 node will leave: 1 at once, 1 within 1 m (1 blocked by rule freeze); "
    assert summary(held(plan)).startswith(f"{told}1 will leave when it no longer pauses them")
    (row,) = [row for row in picture_of_plan(plan).rows if row.pod == "shop/a"]
    assert row.outcome == "held"
    assert row.why == "k=v:NoExecute is not tolerated; paused by rule freeze"


def test_a_paused_pod_is_still_there_when_changes_are_made_later() -> None:
    """The pod was due before, but no call was made: an untaint lets it stay."""
    changes = Changes(untaints=(("node-1", "k", ""),))
    inventory = inventory_of(TAINTED, web("a"))
    paused = PolicyRule("freeze", pause=True)
    assert not planned(inventory, changes, paused, at=NOON + 600).leaving
    (leaving,) = planned(inventory, changes, at=NOON + 600).leaving
    assert leaving.leaves_at == NOON


def test_a_paused_pod_does_not_use_up_a_budget() -> None:
    """The eviction API is not asked about it, so another pod may go."""
    paused = PolicyRule("freeze", pod_selector=parse_selector("tier=gold"), pause=True)
    plan = with_rules(paused, mode=EVICT, budgets=(budget("web", WEB, maxUnavailable=1),))
    assert {pod.ref.key.name: pod.blocked for pod in plan.leaving} == {"a": False, "b": False, "c": True}


def test_a_deletion_leaves_less_of_a_budget_to_evictions() -> None:
    """A pod that goes by a DELETE counts as gone when the eviction API is asked about the next pod."""
    gold = PolicyRule("gold", pod_selector=parse_selector("tier=gold"), mode=DELETE)
    plan = with_rules(gold, mode=EVICT, budgets=(budget("web", WEB, maxUnavailable=1),))
    assert {pod.ref.key.name: pod.blocked for pod in plan.leaving} == {"a": False, "b": True, "c": True}
    (each,) = plan.budgets
    assert (each.leaving, each.asking, each.violation) == (3, 2, None)


def test_a_deletion_after_evictions_may_violate_their_budget() -> None:
    """Evictions that the budget allowed count, too, and those that it blocked do not."""
    late = PolicyRule("late", taint_keys=("other",), mode=DELETE)
    plan = with_rules(late, mode=EVICT, budgets=(budget("web", WEB, maxUnavailable=1),))
    (each,) = plan.broken_budgets
    assert [str(ref) for ref in each.blocked] == ["shop/b"]
    assert each.violation is not None
    assert (each.violation.at - plan.now.at, each.violation.lowest) == (60.0, 1)
    told = "2 of 3 pods on 1 node will leave: 1 at once, 1 within 1 m (1 blocked by budgets); 1 will leave when these"
    assert summary(held(plan)) == f"{told} allow it; 1 budget will be violated"


def test_a_rule_that_deletes_after_a_time_is_noted() -> None:
    """The note depends on the rule's mode, not on the mode of other pods."""
    said = "a blocked pod is deleted once budgets have refused it for the evict timeout"
    blocking = (budget("web", WEB, minAvailable=3),)
    assert said in notes(with_rules(PolicyRule("all", mode=EVICT_THEN_DELETE), budgets=blocking))
    assert said not in notes(with_rules(PolicyRule("all", mode=EVICT), mode=EVICT_THEN_DELETE, budgets=blocking))


def test_the_time_at_which_blocked_pods_are_deleted_is_shown() -> None:
    """The pods are deleted at their deadline plus the evict timeout, the rule's or the policy's."""
    blocking = (budget("web", WEB, minAvailable=3),)
    rule = PolicyRule("gold", pod_selector=parse_selector("tier=gold"), evict_timeout_seconds=60.0)
    plan = with_rules(rule, mode=EVICT_THEN_DELETE, budgets=blocking)
    times = {pod.ref.key.name: pod.deleted_at and pod.deleted_at - plan.now.at for pod in plan.leaving}
    assert times == {"a": 60.0, "b": 300.0, "c": 360.0}
    assert with_rules(mode=EVICT, budgets=blocking).leaving[0].deleted_at is None
    assert with_rules(mode=EVICT_THEN_DELETE).leaving[0].deleted_at is None


def of_two_taints(*rules: PolicyRule, budgets: tuple[JsonObject, ...] = ()) -> Plan:
    """Plan for a pod that is due at once by one taint, and in a minute by another."""
    other = node("node-1", "k=v:NoExecute", "other=v:NoExecute")
    return planned(inventory_of(other, web("a", tolerates(60, "other")), *budgets), None, *rules)


def test_a_pod_that_one_rule_pauses_leaves_by_another() -> None:
    """The pod leaves when the other taint is due, because of that taint, and by that rule's call."""
    paused = PolicyRule("freeze", taint_keys=("k",), pause=True)
    plan = of_two_taints(paused, PolicyRule("other", taint_keys=("other",), mode=EVICT))
    (leaving,) = plan.leaving
    assert leaving.leaves_at == plan.now.at + 60
    assert (leaving.paused_by, modes(plan)) == ("", {"a": EVICT})
    assert why(leaving.forecast) == "other=v:NoExecute is tolerated by [other:NoExecute for 60 s]"
    (leaving,) = of_two_taints(paused, PolicyRule("never", pause=True)).leaving
    assert (leaving.leaves_at, leaving.paused_by) == (plan.now.at, "freeze")


def test_a_pod_that_a_budget_blocks_for_one_taint_is_deleted_for_another() -> None:
    """The other taint is due by a rule that deletes, or whose patience with budgets is over."""
    blocking = (budget("web", WEB, minAvailable=1),)
    asks = PolicyRule("asks", taint_keys=("k",), mode=EVICT)
    for rule, seconds in (
        (PolicyRule("deletes", mode=DELETE), 60.0),
        (PolicyRule("hasty", mode=EVICT_THEN_DELETE, evict_timeout_seconds=20.0), 60.0),
        (PolicyRule("patient", mode=EVICT_THEN_DELETE, evict_timeout_seconds=90.0), 90.0),
        (PolicyRule("for ever", mode=EVICT), None),
    ):
        plan = of_two_taints(asks, rule, budgets=blocking)
        (leaving,) = plan.leaving
        assert leaving.blocked
        assert leaving.leaves_at == plan.now.at
        assert leaving.deleted_at == (seconds and plan.now.at + seconds)


def test_no_plan_promises_which_of_several_due_pods_goes() -> None:
    """A budget allows the pod that asks first."""
    said = "of several pods that are due together, a budget may allow other ones than shown here"
    assert said in notes(with_rules(mode=EVICT, budgets=(budget("web", WEB, maxUnavailable=1),)))
    assert said not in notes(with_rules(mode=EVICT, budgets=(budget("web", WEB, maxUnavailable=3),)))


# A ceiling


def test_a_ceiling_makes_pods_leave_sooner_and_is_named() -> None:
    """Pods that tolerate the taint indefinitely stay; the reason and the document name the rule."""
    other = node("node-1", "other=v:NoExecute")
    pods = (web("ever", tolerates(None, "other")), web("long", tolerates(300, "other")))
    short = web("short", tolerates(20, "other"))
    rule = PolicyRule("leave", taint_keys=("other",), max_toleration_seconds=60)
    plan = planned(inventory_of(other, *pods, short), None, rule)
    leaves = {pod.ref.key.name: (pod.leaves_at or 0.0) - NOON for pod in plan.leaving}
    assert leaves == {"short": 20.0, "long": 60.0}
    why_long = "other=v:NoExecute is tolerated by [other:NoExecute for 300 s], but rule leave allows at most 60 s"
    assert [why(pod.forecast) for pod in plan.leaving][1] == why_long
    verdicts = {pod["name"]: pod["verdicts"][0] for pod in plan_document(plan)["pods"]}
    assert verdicts["long"]["ceiling"] == {"rule": "leave", "seconds": 60}
    assert verdicts["short"]["ceiling"] is verdicts["ever"]["ceiling"] is None


# The command


def test_the_command_shows_what_rules_do(tmp_path: Path) -> None:
    """Rules are in the summary, beside each pod, and in the document for machines."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        HEAD + '  - {name: web, match: {podSelector: "app=web"}, pause: true}\n  - {name: rest, mode: evict}'
    )
    arguments = (SHOP, "--now", NOON_TEXT, *TAINT, "--config", str(file))
    shown = run(*arguments).stdout
    assert "(5 blocked by rule web, 1 blocked by budgets); 6 would leave when all of that ends" in shown.splitlines()[0]
    assert "; 3 are blocked by rule web, and would leave when it no longer pauses them" in shown.splitlines()[1]
    assert "violated" not in shown.splitlines()[0]
    assert "is not tolerated; paused by rule web" in shown
    document = json.loads(run(*arguments, "-o", "json").stdout)
    pods = {pod["name"]: pod for pod in document["pods"]}
    assert document["counts"]["paused"] == 8
    assert (pods["web-0"]["rule"], pods["web-0"]["paused"]) == ("web", "paused by rule web")
    assert (pods["db-0"]["rule"], pods["db-0"]["mode"]) == ("rest", "evict")
    assert "paused" not in pods["db-0"]


def test_a_rule_of_some_nodes_applies_to_their_pods_alone(tmp_path: Path) -> None:
    """The labels are those of the nodes in the input, and also decide on pods of nodes that a change taints."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        HEAD + "  - {name: web, match: {nodeSelector: pool=web}, pause: true}\n  - {name: rest, mode: evict}"
    )
    arguments = (
        SHOP,
        "--now",
        NOON_TEXT,
        "--taint",
        "*=maintenance=now:NoExecute",
        "--config",
        str(file),
        "-o",
        "json",
    )
    document = json.loads(run(*arguments).stdout)
    nodes = [item["metadata"] for item in json.loads(Path(SHOP).read_text())["items"] if item["kind"] == "Node"]
    web = {node["name"] for node in nodes if node["labels"].get("pool") == "web"}
    found = {(pod["node"] in web, pod["rule"]) for pod in document["pods"] if "rule" in pod}
    assert found == {(True, "web"), (False, "rest")}


def test_without_a_policy_nothing_is_said_of_rules() -> None:
    """The document has no fields about rules."""
    document = json.loads(run(SHOP, "--now", NOON_TEXT, *TAINT, "-o", "json").stdout)
    assert document["counts"]["paused"] == 0
    assert not any(pod.keys() & {"rule", "mode", "paused"} for pod in document["pods"])


def test_a_policy_that_is_wrong_exits_2_with_all_problems(tmp_path: Path) -> None:
    """The messages are those of run, and nothing is planned."""
    file = tmp_path / "policy.yaml"
    file.write_text(HEAD + "  - {name: a, mode: kill}\n  - {name: b, pause: maybe}\n")
    result = run(SHOP, "--config", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"taint-eviction: {file}:4: mode must be one of delete, evict, evict-then-delete, not 'kill'",
        f"taint-eviction: {file}:5: pause must be true or false, not 'maybe'",
        f"taint-eviction: {file}:5: rule 'b' never applies: rule 'a' in line 4 matches all that it matches,"
        " and the first that matches applies",
    ]


# What holds the pods of a plan


def held(plan: Plan, control_state: ControlState | None = None) -> Plan:
    """Return the plan with what its policy and a control state hold."""
    [policy] = {id(pod.forecast.eviction): pod.forecast.eviction for pod in plan.leaving}.values()
    add_holders(plan, Conditions(DecisionPolicy(), policy, control_state=control_state or ControlState()))
    return plan


def holders(plan: Plan) -> dict[str, list[str]]:
    """Return the reasons by pod."""
    return {pod.ref.key.name: [holder.reason for holder in pod.holders] for pod in plan.leaving}


def test_a_plan_names_every_guard_that_holds_a_pod() -> None:
    """The guards are those of a controller, and a pod leaves only when all of them have ended."""
    night = PolicyRule("night", pod_selector=parse_selector("tier=gold"), pause=True)
    ordered = ControlState(Pause(), {"node-1": Pause()}, {"bank": Pause()}, Latch(NOON, "many"))
    plan = held(with_rules(night), ordered)
    assert holders(plan)["a"] == ["breaker_open", "paused", "rule_paused", "node_paused"]
    assert holders(plan)["b"] == ["breaker_open", "paused", "node_paused"]
    assert summary(plan) == (
        "0 of 3 pods on 1 node will leave now (2 blocked by the circuit breaker, the pause of all evictions and a"
        " pause of their node, 1 blocked by the circuit breaker, the pause of all evictions, rule night and a"
        " pause of their node); 3 will leave when all of that ends: 2 at once, 1 within 1 m"
    )


def test_a_plan_says_one_thing_about_pods_that_an_open_breaker_holds() -> None:
    """None leaves now, and all leave when it is reset."""
    plan = held(with_rules(), ControlState(latch=Latch(NOON, "x")))
    assert summary(plan) == (
        "0 of 3 pods on 1 node will leave now (3 blocked by the circuit breaker);"
        " 3 will leave when it is reset: 2 at once, 1 within 1 m"
    )


def test_a_pause_that_ends_before_a_pod_leaves_does_not_hold_it() -> None:
    """The last of the three pods leaves in a minute."""
    assert all(holders(held(with_rules(), ControlState(Pause(None, "", NOON + 61)))).values())
    ends_before = held(with_rules(), ControlState(Pause(None, "", NOON + 59)))
    assert holders(ends_before) == {"a": ["paused"], "b": ["paused"], "c": []}
    assert summary(ends_before) == (
        "1 of 3 pods on 1 node will leave: 1 within 1 m (2 blocked by the pause of all evictions);"
        " 2 will leave when it ends"
    )


def test_a_pod_that_is_held_goes_when_that_ends() -> None:
    """It is known when a pause ends by itself, and not when people end it."""

    def goes(control_state: ControlState) -> list[float | None]:
        plan = held(with_rules(), control_state)
        return [None if pod.goes_at is None else plan.now.epoch_of(pod.goes_at) - NOON for pod in plan.leaving]

    assert goes(ControlState(Pause(None, "", NOON + 59))) == [59, 59, 60]
    assert goes(ControlState(Pause())) == [None, None, None]


def test_a_pause_by_labels_holds_the_nodes_that_have_them() -> None:
    """All others leave; the summary has the nodes in words."""
    without = held(with_rules(), ControlState(selectors={"!pool": Pause()}))
    assert set(map(tuple, holders(without).values())) == {("selector_paused",)}
    assert "blocked by the pause of nodes that match !pool" in summary(without)
    assert not any(holders(held(with_rules(), ControlState(selectors={"pool": Pause()}))).values())


def test_what_holds_only_some_pods_is_beside_each_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """What holds all of them is in the summary alone."""
    print_plan(held(with_rules(), ControlState(namespaces={"shop": Pause(None, "", NOON + 59)})), wide=False)
    assert capsys.readouterr().out.count("blocked by a pause of their namespace") == 3
    print_plan(held(with_rules(), ControlState(latch=Latch(NOON, "x"))), wide=False)
    assert capsys.readouterr().out.count("blocked by the circuit breaker") == 1
