"""What people read in a status: who acts, what holds evictions back, and which pods wait for their eviction."""

from dataclasses import replace
from typing import Any

import click
import pytest
from rich.console import Console
from tests.unit.builders import EPOCH, Stage, moment, node, pod, taint, tolerates
from tests.unit.test_reporting_status_document import LEADER, SINCE, SINCE_UTC, STANDBY, fail, one_due, stage, status

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.events import Block, BlockReason
from taint_eviction.core.objects import ZONE_LABEL
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule
from taint_eviction.reporting.status_document import ProcessState
from taint_eviction_ctl.cli.breaker_views import criteria_lines
from taint_eviction_ctl.cli.status import MAX_HEAD, for_terminal, screen
from taint_eviction_ctl.cli.status_views import status_lines


def lines(on: Stage, process: ProcessState = LEADER, max_pods: int | None = None) -> list[str]:
    """Return the lines that are printed, without colours."""
    return of(status(on, process), max_pods)


def of(document: dict[str, Any], max_pods: int | None = None, **view: Any) -> list[str]:
    """Return the lines of a status, without colours."""
    return [click.unstyle(line) for line in status_lines(document, max_pods, **view)]


def test_a_calm_cluster_has_three_lines() -> None:
    """The lines name the leader, the number of pods, and the breaker; there is no table."""
    assert lines(Stage()) == [
        "host_uuid leads by Lease kube-system/lease: ready, mode delete, version 1.0",
        "0 pods pending on 0 tainted nodes",
        "circuit breaker: off",
    ]


def test_pauses_by_labels_are_shown_in_words() -> None:
    """More than a few are counted; a selector that only a newer controller knows is shown as it is."""
    on = Stage()
    on.brain.order(ControlState(selectors={"pool=gpu": Pause(), f"{ZONE_LABEL}=a": Pause(), "": Pause()}), moment(0))
    document = status(on)
    assert of(document)[-3:] == [
        "evictions of all nodes are paused",
        "evictions of nodes that match pool=gpu are paused",
        "evictions of nodes in zone a are paused",
    ]
    document["pauses"][0]["name"] = "pool ~ gpu"
    assert "evictions of nodes that match pool ~ gpu are paused" in of(document)
    document["pauses"].append({**document["pauses"][1], "name": "rack"})
    assert of(document)[-1] == (
        f"evictions of nodes of 4 selectors (pool ~ gpu, pool=gpu, {ZONE_LABEL}=a, …) are paused"
    )


@pytest.mark.parametrize(
    ("process", "line"),
    [
        (STANDBY, "host_uuid does not lead, no leader is known: ready, mode delete, version 1.0"),
        (
            replace(LEADER, leading=False, lease=replace(LEADER.lease, holder="other_uuid")),  # type: ignore[type-var]
            "host_uuid does not lead, other_uuid does: ready, mode delete, version 1.0",
        ),
        (replace(LEADER, lease=None), "host_uuid leads: ready, mode delete, version 1.0"),
        (
            replace(LEADER, dry_run=True),
            "host_uuid leads by Lease kube-system/lease: dry run, ready, mode delete, version 1.0",
        ),
    ],
)
def test_the_first_line_says_who_acts(process: ProcessState, line: str) -> None:
    """The line also says if no leader is known, and if this is a dry run."""
    assert lines(Stage(), process)[0] == line


def test_each_pod_has_a_row_with_all_that_keeps_it_on_its_node() -> None:
    """The row says when, in which state, which pod, where, and why."""
    on = one_due(eviction_policy=EvictionPolicy(EvictionMode.EVICT))
    fail(on, Block(BlockReason.BUDGET, "web"))
    on.sees(pod(tolerates(90), name="longer-name", uid="b"))
    on.at(2)
    assert lines(on)[1:] == [
        "2 pods pending on 1 tainted node: 1 blocked, 1 waiting",
        "circuit breaker: off",
        "",
        "  NODE  TAINT  PODS  WAITING  DUE  HELD  GONE  NEXT",
        "  n1    k1     2     1        1    -     -     in 1 m 28 s",
        "",
        "  DUE          STATE    POD               NODE  WHY",
        "  2 s ago      blocked  shop/web-0        n1    k1:NoExecute is not tolerated; its PodDisruptionBudget allows"
        f" no disruption now (web); tried 1 time since {SINCE_UTC}, again in 3 s: no (HTTP 429)",
        "  in 1 m 28 s  waiting  shop/longer-name  n1    k1:NoExecute is tolerated by [k1 for 90 s]",
    ]


def test_pods_that_are_left_out_are_counted() -> None:
    """Pods are left out by the query's limit, or because a screen has no more room."""
    on = one_due()
    on.sees(pod(name="b", uid="b"), pod(name="c", uid="c"))
    assert lines(on, max_pods=1)[-1] == "  … and 2 more pods"
    assert of(status(on, limit="2"))[-1] == "  … and 1 more pod"
    assert of(status(on, limit="0"))[-1] == "  … and 3 more pods"


def headline(on: Stage) -> list[str]:
    """Return the lines between the first two lines and the table."""
    told = lines(on)
    return told[2 : told.index("")]


def test_all_that_holds_evictions_is_in_the_headline() -> None:
    """The lines name the breaker, pauses, and rules that pause."""
    on = one_due(eviction_policy=EvictionPolicy(rules=(PolicyRule("db", pause=True),)))
    control_state = ControlState(
        Pause(EPOCH, "upgrade"), {"n1": Pause(None, "", EPOCH + 60, "ann")}, {}, Latch(EPOCH, "3 of 3 nodes")
    )
    on.brain.order(control_state, moment(0))
    assert headline(on) == [
        f"circuit breaker: OPEN since {SINCE_UTC}: 3 of 3 nodes, although no breaker is configured: only taint-eviction"
        " breaker reset closes it; see taint-eviction breaker",
        f"all evictions are paused (since {SINCE_UTC}: upgrade)",
        "evictions of node n1 are paused (until 2030-03-17 17:47:40 UTC, by ann)",
        "rule db of the policy pauses evictions",
    ]


def test_a_breaker_that_is_closed_says_how_far_it_is_from_opening() -> None:
    """Each threshold has a line with what counts towards it; if nothing does, there are no such lines."""
    breaker = BreakerPolicy(True, NodeThreshold(2), None, max_due=10, settle_seconds=0.0)
    on = one_due(breaker=breaker)
    assert headline(on)[:2] == [
        "circuit breaker: closed",
        "  tainted  1 of 1  100 %  opens above 2",
    ]
    on.brain.evaluate(moment(0))
    assert headline(on)[2].split() == ["due", "1", "pod", "opens", "above", "10"]
    calm = stage(breaker=breaker)
    calm.sees(node())
    assert lines(calm)[2:] == ["circuit breaker: closed"]


def test_a_breaker_that_is_open_says_at_which_threshold_why() -> None:
    """Tainted nodes that do not count are named beside those that do, with the reason."""
    on = stage(breaker=BreakerPolicy(True, NodeThreshold(2), settle_seconds=0.0))
    names = [f"n{number}" for number in range(1, 6)]
    on.sees(*(node(taint(), name=name) for name in names))
    on.sees(*(pod(name=name, uid=name, on=name) for name in names[:3]))
    on.lists(*names)
    on.brain.evaluate(moment(0))
    assert headline(on) == [
        f"circuit breaker: OPEN since {SINCE_UTC}; see taint-eviction breaker",
        "  tainted  3 of 5  60 %  opens above 2     OPEN  2 more tainted nodes do not count: no pod to evict",
        "  lost     0 of 5   0 %  opens above 55 %",
    ]
    assert of(status(on), width=60)[3] == "  tainted  3 of 5  60 %  opens above 2     OPEN"


@pytest.mark.parametrize(("counted", "said"), [(2, "but counts only from 3 on"), (3, "once one of their pods is due")])
def test_a_share_that_does_not_open_the_breaker_says_why(counted: int, said: str) -> None:
    """So few nodes are no surge, and lost nodes whose pods are not due may come back."""
    threshold = NodeThreshold(percent=25.0)
    criterion: dict[str, Any] = {
        "kind": "lost",
        "zone": None,
        "counted": counted,
        "total": 4,
        "sharePercent": 25.0 * counted,
        "opensAbove": str(threshold),
        "minNodes": threshold.min_nodes,
        "exceeded": threshold.exceeded_by(counted, 4),
        "tooFew": threshold.too_few(counted, 4),
        "notCounted": [],
    }
    [line] = criteria_lines({"open": False, "criteria": [criterion]})
    assert click.unstyle(line).endswith(said)


def test_control_state_that_is_not_known_is_mentioned() -> None:
    """Otherwise nobody would understand why no pod is evicted."""
    assert "pauses have not been read yet: nothing is evicted" in headline(one_due(control_state=None))


def test_limits_and_rules_are_mentioned() -> None:
    """The JSON document has them in full."""
    policy = EvictionPolicy(per_node=Limit(2.0), rules=(PolicyRule("a"), PolicyRule("b")))
    assert ": ready, mode delete, limited (perNode), 2 rules, version" in lines(stage(eviction_policy=policy))[0]


def test_that_budgets_on_lost_nodes_are_ignored_is_mentioned() -> None:
    """Where the mode is one that asks budgets."""
    modes = {EvictionMode.EVICT: "mode evict (a DELETE on lost nodes)", EvictionMode.DELETE: "mode delete"}
    for mode, said in modes.items():
        policy = EvictionPolicy(mode, ignores_budgets_on_lost_nodes=True)
        assert f", {said}," in f"{lines(stage(eviction_policy=policy))[0]},"


def test_a_state_of_a_later_version_is_shown_as_it_is() -> None:
    """Commands may be older than the controller."""
    document: dict[str, Any] = status(one_due())
    document["pending"][0]["state"] = "levitating"
    assert "levitating" in of(document)[-1]


def test_a_node_that_is_tainted_without_pods_is_counted() -> None:
    """No pod has to leave such a node."""
    on = Stage()
    on.sees(node(taint()))
    assert lines(on)[1] == "0 pods pending on 1 tainted node"


def test_warnings_come_before_the_breaker() -> None:
    """A status without the field, from an older controller, shows no warnings."""
    warned = replace(LEADER, warnings=("the policy file is rejected",))
    assert lines(Stage(), warned)[2:] == ["the policy file is rejected", "circuit breaker: off"]
    document = status(Stage())
    del document["warnings"]
    assert of(document) == lines(Stage())


def lately(gone: int, per_second: float) -> dict[str, Any]:
    """Return the part of a status about pods that left n1 in a storm."""
    groups = [{"node": "n1", "taint": "k1", "pods": gone}]
    storm = {"gone": gone, "perSecond": per_second}
    return {"withinSeconds": 300, "total": gone, "groups": groups, "moreGroups": 0, "storm": storm}


def test_a_cause_of_many_pods_is_shown_once() -> None:
    """The rows of these pods name the cause by its number; the cause of a single pod stays in its row."""
    on = one_due()
    on.sees(pod(name="b", uid="b"), pod(name="c", uid="c"), pod(tolerates(90), name="d", uid="d"))
    on.brain.order(ControlState(Pause(EPOCH, "upgrade")), moment(0))
    told = lines(on)
    [cause] = [line for line in told if line.startswith("  [1] ")]
    assert cause == "  [1] 3 pods: k1:NoExecute is not tolerated; all evictions are paused"
    assert [line.split()[-1] for line in told[-4:-1]] == ["[1]"] * 3
    assert told[-1].endswith("k1:NoExecute is tolerated by [k1 for 90 s]")


def test_a_budget_that_blocks_several_pods_is_shown_once() -> None:
    """Each pod's row keeps its number of tries and the time of the next one."""
    document: dict[str, Any] = status(one_due())
    [row] = document["pending"]
    block = {"reason": "budget", "text": "its budget allows no disruption now", "budget": "db"}
    tried = {"state": "blocked", "blockedBy": block, "error": "no (HTTP 429)", "triedSince": SINCE, "hold": None}
    document["pending"] = [{**row, **tried, "tries": tries, "nextTryInSeconds": tries + 1.0} for tries in (1, 2)]
    document["pendingTotal"] = 2
    told = of(document)
    assert sum("its budget allows no disruption now (db); no (HTTP 429)" in line for line in told) == 1
    assert [line.split("n1    ")[1] for line in told[-2:]] == [
        "[1] tried 1 time, again in 2 s",
        "[1] tried 2 times, again in 3 s",
    ]


def test_nodes_and_taints_are_counted_before_the_pods() -> None:
    """Nodes whose pods are not listed, and nodes whose pods have all gone, are in the table, too."""
    on = one_due()
    on.sees(node(taint(), name="n2"), pod(tolerates(90), name="b", uid="b", on="n2"))
    document = status(on, limit="0")
    document["evictedLately"] = lately(7, 0.0)
    document["evictedLately"]["groups"].append({"node": "n0", "taint": "k1", "pods": 1200})
    told = of(document)
    assert told[told.index("") + 1 :][:4] == [
        "  NODE  TAINT  PODS  WAITING  DUE  HELD  GONE   NEXT",
        "  n1    k1     1     -        1    -     7",
        "  n2    k1     1     1        -    -     -      in 1 m 30 s",
        "  n0    k1     -     -        -    -     1,200",
    ]
    assert "  … and 2 more nodes" in of(document, max_groups=1)


def test_a_storm_shows_its_progress_and_the_time_that_is_left() -> None:
    """Few pods are no storm."""
    on = Stage()
    on.sees(node(taint()), *(pod(name=f"p{number}", uid=f"p{number}") for number in range(1236)))
    document = status(on, limit="0")
    document["evictedLately"] = lately(764, 190.0)
    assert "in progress: 764 of 2,000, 190/s, about 7 s left" in of(document)
    few = status(one_due())
    few["evictedLately"] = lately(764, 190.0)
    assert not any("going on" in line for line in of(few))


def test_after_a_lost_connection_the_last_state_is_shown_as_past() -> None:
    """The first line says since when the connection is lost."""
    document = status(Stage())
    told = screen(document, "pod a does not answer", Console(width=80, height=24))
    assert [line.plain for line in told[:2]] == [
        f"connection lost since {SINCE_UTC}: pod a does not answer",
        "the last known status:",
    ]
    assert {line.style for line in told[2:]} == {"dim"}


def test_at_80_columns_names_are_shortened_in_the_middle_and_the_reason_stays() -> None:
    """Both ends of a name are needed to tell it from similar names."""
    on = Stage()
    long = "ip-10-12-240-17.eu-central-1.compute.internal"
    on.sees(node(taint(), name=long), pod(name="payments-gateway-7d9c5b8f6-x2x7k", on=long))
    row = of(status(on), width=80)[-1]
    assert row.index("k1:NoExecute is not tolerated") < 56
    assert "…" in row
    assert "x2x7k" in row
    assert long in of(status(on))[-1]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
@pytest.mark.parametrize("pods", [5, 500])
@pytest.mark.parametrize("failures", [None, "pod kube-system/a does not answer: " + "why " * 30])
def test_a_screen_is_never_exceeded(width: int, height: int, pods: int, failures: str | None) -> None:
    """The lines about the leader and its readiness are folded, and the pods fill the rest."""
    on, domain = Stage(), "eu-central-1.compute.internal"
    on.sees(*(node(taint(), name=f"ip-10-12-240-{number}.{domain}") for number in range(40)))
    numbered = [
        (f"payments-gateway-7d9c5b8f6-{number}", f"ip-10-12-240-{number % 40}.{domain}") for number in range(pods)
    ]
    on.sees(*(pod(name=name, uid=name, on=where) for name, where in numbered))
    leader = replace(LEADER, identity="taint-eviction-controller-5d8f7c9b64-zq2wd_11111111-2222-3333-4444-555555555555")
    shown = screen(status(on, leader), failures, Console(width=width, height=height))
    assert max(len(line.plain) for line in shown) <= width
    assert len(shown) < height
    text = " ".join(line.plain for line in shown)
    assert "ready" in text
    listed = sum("shop/" in line.plain for line in shown)
    assert listed == 5 or shown[-1].plain.startswith(f"  … and {pods - listed} more pod")
    assert ("connection lost since" in text) == (failures is not None)


def incident() -> Stage:
    """All that can be said at once: an open breaker, a pause with a long reason, a rule that pauses, pods that wait."""
    rules = (PolicyRule("night", namespaces=("mill",), pause=True),)
    policy = BreakerPolicy(True, NodeThreshold(2), max_due=20)
    on = stage(breaker=policy, eviction_policy=EvictionPolicy(rules=rules))
    domain = "eu-central-1.compute.internal"
    names = [f"ip-10-12-240-{number}.{domain}" for number in range(40)]
    on.sees(*(node(taint(), name=name) for name in names))
    on.sees(*(pod(name=f"payments-gateway-7d9c5b8f6-{n}", uid=f"u{n}", on=names[n % 40]) for n in range(60)))
    on.sees(*(pod(name=f"mill-{n}", uid=f"m{n}", on=names[n], namespace="mill") for n in range(10)))
    on.lists(*names)
    on.brain.evaluate(moment(0))
    why = Pause(EPOCH, "the network of the second rack is being rebuilt, ask the network team", by="kubernetes-admin")
    on.brain.order(ControlState(why, {"n1": why}, {"shop": why}, on.brain.breaker.latch), moment(0))
    return on


POD = replace(LEADER, identity="taint-eviction-controller-5d8f7c9b64-zq2wd_11111111-2222-3333-4444-555555555555")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_screen_of_24_lines_has_at_least_five_pods_in_an_incident(width: int) -> None:
    """What is said before the tables takes six lines at most."""
    warned = replace(POD, warnings=("the policy file is rejected: " + "line 3 " * 20,))
    shown = [line.plain for line in screen(status(incident(), warned), None, Console(width=width, height=24))]
    assert sum("payments" in line or "mill/" in line or "shop/" in line for line in shown) >= 5
    assert shown.index("") <= MAX_HEAD
    assert len(shown) < 24


def test_at_80_columns_a_status_has_six_lines_before_its_tables() -> None:
    """Long reasons are cut, and names shortened."""
    on = stage(breaker=BreakerPolicy(True, NodeThreshold(2)))
    names = [f"n{number}" for number in range(3)]
    on.sees(*(node(taint(), name=name) for name in names), *(pod(name=name, uid=name, on=name) for name in names))
    on.lists(*names)
    on.brain.evaluate(moment(0))
    why = Pause(EPOCH, "the network of the second rack is being rebuilt, ask the network team", by="kubernetes-admin")
    on.brain.order(ControlState(why, latch=on.brain.breaker.latch), moment(0))
    shown = [line.plain for line in for_terminal(status(on, POD), "", Console(width=80, height=24))]
    assert shown.index("") == MAX_HEAD
    assert max(map(len, shown[:MAX_HEAD])) <= 80
