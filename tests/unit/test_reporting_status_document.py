"""The status of a controller as a document: its parts, the states of pods, and what a query may select."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import click
import orjson
import pytest
from tests.unit.builders import EPOCH, Stage, moment, node, pod, taint, tolerates

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Block, BlockReason, Failed
from taint_eviction.core.instants import Moment
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.objects import MARK_SECONDS, Adoption, NamespacedName, PodRef
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule
from taint_eviction.files.kubernetes_times import format_rfc3339, format_utc
from taint_eviction.kube.taints_and_tolerations import read_tolerations
from taint_eviction.reporting.status_document import (
    BUILT_INS,
    STATES,
    TAKEN_OVER_LATER,
    AdmissionState,
    AdoptionState,
    LeaseSeen,
    ProcessState,
)
from taint_eviction.reporting.status_endpoints import StatusEndpoints
from taint_eviction_ctl.cli.status_views import status_lines

LEADER = ProcessState("1.0", "host_uuid", True, LeaseSeen("kube-system", "lease", "host_uuid"), False, "")
STANDBY = replace(LEADER, leading=False, lease=LeaseSeen("kube-system", "lease", ""))
SINCE = format_rfc3339(EPOCH)
SINCE_UTC = format_utc(EPOCH)


class Ticking:
    """A clock that moves by ``step`` seconds whenever it is read, and otherwise stands still."""

    def __init__(self, at: float, step: float = 0.0) -> None:
        self.at, self._step = at, step

    def now(self) -> Moment:
        """Move the clock, and return its time."""
        self.at += self._step
        return moment(self.at)


def stage(**settings: Any) -> Stage:
    """Make a stage whose controller has these settings."""
    made = Stage()
    made.brain = Controller(**settings)
    return made


def status(on: Stage, process: ProcessState = LEADER, **query: str) -> dict[str, Any]:
    """Return the status as a client gets it."""
    code, document = asyncio.run(StatusEndpoints(on.brain.status, Ticking(on.now), lambda: process).status(query))
    assert code == 200
    told: dict[str, Any] = orjson.loads(orjson.dumps(document))
    return told


def only_pod(on: Stage, process: ProcessState = LEADER) -> Mapping[str, Any]:
    """Return the row of the only pod that waits for its eviction."""
    [told] = status(on, process)["pending"]
    assert isinstance(told, dict)
    return told


def one_due(**settings: Any) -> Stage:
    """Make a stage on which shop/web-0 is due since instant 0."""
    made = stage(**settings)
    made.sees(node(taint()), pod())
    return made


def test_the_status_says_who_answers_and_when() -> None:
    """The document has version, identity, Lease, whether the replica acts, and the API server's time."""
    head = status(Stage().at(3.5))
    names = ("kind", "now", "version", "identity", "leading", "dryRun", "ready", "notReadyBecause", "warnings")
    assert {name: head[name] for name in names} == {
        "kind": "Status",
        "now": format_rfc3339(EPOCH + 3),
        "version": "1.0",
        "identity": "host_uuid",
        "leading": True,
        "dryRun": False,
        "ready": True,
        "notReadyBecause": None,
        "warnings": [],
    }
    assert head["lease"] == {"namespace": "kube-system", "name": "lease", "holder": "host_uuid"}


def test_the_status_says_why_a_replica_is_not_ready_and_who_has_the_lease() -> None:
    """A Lease without a holder has null for it, and a replica that runs alone has no Lease."""
    document = status(Stage(), replace(STANDBY, why_not="the nodes have not been listed yet"))
    assert (document["ready"], document["notReadyBecause"]) == (False, "the nodes have not been listed yet")
    assert document["lease"]["holder"] is None
    assert status(Stage(), replace(LEADER, lease=None))["lease"] is None


def test_a_pod_that_waits_has_a_row_with_taint_toleration_and_deadline() -> None:
    """The deadline is by the API server's clock, and the row has the time until then."""
    on = Stage()
    on.sees(node(taint(value="v")), pod(tolerates(30)))
    on.at(10.25)
    assert only_pod(on) == {
        "namespace": "shop",
        "name": "web-0",
        "uid": "a",
        "node": "n1",
        "taint": "k1=v:NoExecute",
        "toleration": "k1 for 30 s",
        "ceiling": None,
        "owner": None,
        "adoption": None,
        "deadline": format_rfc3339(EPOCH + 30),
        "dueInSeconds": 19.75,
        "state": "waiting",
        "hold": None,
        "blockedBy": None,
        "tries": 0,
        "triedSince": None,
        "error": None,
        "nextTryInSeconds": None,
        "mode": "delete",
        "deletesAt": None,
        "rule": None,
        "outOfService": False,
        "nodeLost": False,
    }


def test_the_status_says_whose_account_it_is_and_whether_the_admission_policy_narrows_it() -> None:
    """None: that is not asked about, or not known."""
    on = Stage()
    assert status(on)["admissionPolicy"] is None
    asked = replace(LEADER, admission=AdmissionState("system:serviceaccount:a:b", False))
    assert status(on, asked)["admissionPolicy"] == {"account": "system:serviceaccount:a:b", "inForce": False}
    unknown = replace(LEADER, admission=AdmissionState("", None))
    assert status(on, unknown)["admissionPolicy"] == {"account": None, "inForce": None}


def fail(on: Stage, block: Block | None) -> None:
    """Let the first attempt fail, to be tried again after 5 s."""
    on.finish(on.take_eviction(), Failed("no (HTTP 429)", on.now + 5, block))


@pytest.mark.parametrize(
    ("state", "hold", "happens"),
    [
        ("due", "limited", lambda on: None),
        ("inFlight", None, lambda on: on.take()),
        ("retrying", None, lambda on: fail(on, None)),
        ("blocked", None, lambda on: fail(on, Block(BlockReason.BUDGET, "web"))),
        ("held", "paused", lambda on: on.brain.order(ControlState(cluster=Pause()), moment(0))),
        ("held", "node_paused", lambda on: on.brain.order(ControlState(nodes={"n1": Pause()}), moment(0))),
        ("held", "namespace_paused", lambda on: on.brain.order(ControlState(namespaces={"shop": Pause()}), moment(0))),
        ("held", "breaker_open", lambda on: on.brain.order(ControlState(latch=Latch(EPOCH, "too many")), moment(0))),
    ],
)
def test_each_state_has_a_name(state: str, hold: str | None, happens: Callable[[Stage], object]) -> None:
    """The pod is in one state, and only that state counts it."""
    on = one_due()
    happens(on)
    told = only_pod(on)
    assert (told["state"], told["hold"] and told["hold"]["reason"]) == (state, hold)
    assert status(on)["counts"] == {name: int(name == state) for name in STATES}


def test_tries_of_a_pod_are_shown() -> None:
    """The row has the number of tries, since when, the next one, the server's words, and the budget."""
    on = one_due()
    fail(on, Block(BlockReason.BUDGET, "web"))
    on.at(2)
    told = only_pod(on)
    assert told["blockedBy"] == {"reason": "budget", "text": BlockReason.BUDGET.text, "budget": "web"}
    names = ("tries", "error", "nextTryInSeconds", "triedSince")
    assert [told[name] for name in names] == [1, "no (HTTP 429)", 3.0, SINCE]


def test_a_pod_that_failed_before_a_pause_is_held() -> None:
    """The row still has the error of the last try."""
    on = one_due()
    fail(on, None)
    on.brain.order(ControlState(cluster=Pause()), moment(0))
    told = only_pod(on)
    assert (told["state"], told["error"]) == ("held", "no (HTTP 429)")


def test_what_holds_a_pod_is_shown_with_since_when_and_why() -> None:
    """A pause without time and reason is shown without them."""
    on = one_due()
    on.brain.order(ControlState(nodes={"n1": Pause(EPOCH, "disk swap")}), moment(0))
    assert only_pod(on)["hold"]["text"] == f"evictions from its node are paused (since {SINCE_UTC}: disk swap)"
    on.brain.order(ControlState(nodes={"n1": Pause()}), moment(0))
    assert only_pod(on)["hold"]["text"] == "evictions from its node are paused"
    on.brain.order(ControlState(latch=Latch(EPOCH, "2 of 3 nodes")), moment(0))
    assert only_pod(on)["hold"]["text"] == f"the circuit breaker is open (since {SINCE_UTC}: 2 of 3 nodes)"


def test_a_standby_does_not_say_that_workers_are_busy() -> None:
    """A standby will never evict the pod itself."""
    hold = only_pod(one_due(), STANDBY)["hold"]
    assert hold["reason"] == "not_leading"


def test_control_state_that_is_not_known_has_no_pauses_and_holds_everything() -> None:
    """The due pod is held until the control state has been read."""
    on = one_due(control_state=None)
    document = status(on)
    assert (document["ordersKnown"], document["pauses"]) == (False, [])
    assert document["pending"][0]["hold"]["reason"] == "orders_unknown"


UNTIL = "2030-03-17T17:47:40Z"


def test_pauses_are_listed_the_widest_first() -> None:
    """A pause has scope and name, and since when, until when, why and by whom, if that is known."""
    on, shop = Stage(), Pause(EPOCH, "", EPOCH + 60, "ann")
    on.brain.order(ControlState(Pause(EPOCH, "upgrade"), {"n1": Pause()}, {"shop": shop}), moment(0))
    assert status(on)["pauses"] == [
        {"scope": "all", "name": None, "since": SINCE, "until": None, "reason": "upgrade", "by": None},
        {"scope": "node", "name": "n1", "since": None, "until": None, "reason": None, "by": None},
        {"scope": "namespace", "name": "shop", "since": SINCE, "until": UNTIL, "reason": None, "by": "ann"},
    ]


ALL = {
    "zone": None,
    "nodes": 3,
    "notReady": 0,
    "newlyNotReady": 0,
    "newlyTainted": 1,
    "counted": 1,
    "sharePercent": 33.3,
    "threshold": "55 %",
    "nodeNames": ["n3"],
}


def criterion(kind: str, counted: int, total: int, opens_above: str, **fields: Any) -> dict[str, Any]:
    """What is said of one threshold of the breaker, which is not exceeded."""
    share = round(100 * counted / total, 1) if total else 0.0
    numbers = {"counted": counted, "total": total, "sharePercent": share, "opensAbove": opens_above}
    said: dict[str, Any] = {"minNodes": None, "exceeded": False, "tooFew": False, "notCounted": []}
    return {"kind": kind, "zone": None, **numbers, **said, **fields}


def test_the_breaker_shows_what_it_counts_and_what_opens_it() -> None:
    """The document counts newly tainted nodes, by the node lifecycle controller and by others, and due pods."""
    policy = BreakerPolicy(True, NodeThreshold(2, 25.0), max_due=100, settle_seconds=0.0)
    on = one_due(breaker=policy)
    on.sees(node(name="n2"), node(taint("node.kubernetes.io/not-ready"), name="n3"), pod(name="b", uid="b", on="n3"))
    assert status(on)["breaker"] == {
        "enabled": True,
        "open": False,
        "since": None,
        "cause": None,
        "newlyTaintedNodes": 1,
        "lifecycleNodes": 1,
        "totalNodes": 3,
        "duePods": 0,
        "unlistedNodes": 2,
        "outOfServiceNodes": 0,
        "opensAt": [
            "more than 2 or 25 % of the nodes newly tainted within 300 s (the share counts from 3 on)",
            "more than 55 % of the nodes lost within that time of each other, and still not ready when a pod is due"
            " because of that (the share counts from 3 on)",
            "more than 100 pods due at once",
        ],
        "criteria": [
            criterion("tainted", 1, 3, "2 or 25 %", minNodes=3, tooFew=True),
            criterion("lost", 1, 3, "55 %", minNodes=3),
            criterion("due", 0, 0, "100"),
        ],
        "zones": [ALL, {**ALL, "zone": "", "threshold": None}],
        "uncounted": [],
    }
    on.brain.order(ControlState(latch=Latch(EPOCH, "3 of 3 nodes")), moment(0))
    on.sees(node(taint("dedicated"), name="n4"))
    on.lists("n4")
    breaker = status(on)["breaker"]
    [left_out] = breaker["uncounted"]
    assert left_out == {
        "reason": "no_eviction",
        "text": "no pod has to leave because of that",
        "count": 1,
        "nodeNames": ["n4"],
    }
    assert (breaker["open"], breaker["since"], breaker["cause"]) == (True, SINCE, "3 of 3 nodes")


def test_the_policy_is_summarized() -> None:
    """The document has the mode, the limits that are set, and the rules, with all that each says."""
    gpu = parse_selector("pool notin (gpu,ai)")
    rule = PolicyRule("db", ("k1",), ("shop",), (), gpu, EvictionMode.DELETE, limit=Limit(at_once=1), pause=True)
    on = one_due(
        eviction_policy=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0, per_node=Limit(2.0, 5), rules=(rule,))
    )
    told = status(on)["policy"]
    assert len(told["rules"][0]) == len(fields(PolicyRule))
    assert told == {
        "mode": "evict-then-delete",
        "evictTimeoutSeconds": 60.0,
        "budgetsOnLostNodes": "respect",
        "limits": {"all": None, "perNode": {"perSecond": 2.0, "burst": 5}, "perNamespace": None},
        "rules": [
            {
                "name": "db",
                "taintKeys": ["k1"],
                "namespaces": ["shop"],
                "podSelector": [],
                "nodeSelector": ["pool NotIn ai gpu"],
                "mode": "delete",
                "evictTimeoutSeconds": None,
                "limit": {"atOnce": 1},
                "paused": True,
                "order": None,
                "tier": None,
                "maxTolerationSeconds": None,
            }
        ],
    }
    told = only_pod(on)
    assert (told["rule"], told["mode"], told["deletesAt"], told["state"]) == ("db", "delete", None, "held")


def test_evict_then_delete_says_when_it_deletes() -> None:
    """The timeout runs from the first refusal, and a pause ends it."""
    on = one_due(eviction_policy=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0))
    assert only_pod(on)["deletesAt"] is None
    on.finish(on.at(7).take_eviction(), Failed("no", 17.0, Block(BlockReason.BUDGET, "web")))
    assert only_pod(on)["deletesAt"] == format_rfc3339(EPOCH + 67)
    on.order(ControlState(cluster=Pause()))
    assert only_pod(on)["deletesAt"] is None


# Queries


def many() -> Stage:
    """Make a stage with three pods due at 30, 10 and 20; the last is in another namespace."""
    on = Stage()
    on.sees(node(taint()))
    for uid, seconds in (("a", 30), ("b", 10)):
        on.sees(pod(tolerates(seconds), name=uid, uid=uid))
    other = pod(tolerates(20), name="c", uid="c")
    on.sees(replace(other, ref=other.ref._replace(key=other.ref.key._replace(namespace="db"))))
    return on


def test_the_next_try_is_shown_as_it_is_scheduled() -> None:
    """The budget is to be asked again after 999 s, but the timeout ends before that, and the pod is deleted."""
    on = one_due(eviction_policy=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 30.0))
    work = on.take_eviction()
    on.send(work)
    on.finish(work, Failed("no disruption allowed", 999, Block(BlockReason.BUDGET, "web")))
    told = only_pod(on.at(10))
    assert (told["state"], told["nextTryInSeconds"]) == ("blocked", 20.0)
    assert told["deletesAt"] == format_rfc3339(EPOCH + 30)
    assert on.next_at() == 30


def test_a_pod_that_was_not_moved_on_since_its_deadline_settles() -> None:
    """Nobody has asked the queue for work since the deadline; the status still shows the present state."""
    on = one_due(breaker=BreakerPolicy(enabled=True, settle_seconds=2.0))
    told = only_pod(on.at(1))
    assert (told["state"], told["hold"]["reason"]) == ("due", "settling")


def test_pods_come_by_deadline_and_up_to_the_limit() -> None:
    """Pods that are not listed are counted, too."""
    document = status(many(), limit="2")
    assert [told["uid"] for told in document["pending"]] == ["b", "c"]
    assert (document["pendingTotal"], document["counts"]["waiting"], document["taintedNodes"]) == (3, 3, 1)


def test_a_namespace_may_be_chosen() -> None:
    """Only the pods of that namespace are listed and counted."""
    document = status(many(), namespace="db")
    assert [told["uid"] for told in document["pending"]] == ["c"]
    assert document["pendingTotal"] == 1


@pytest.mark.parametrize("limit", ["", "-1", "1.5", "many", "1" * 10, "²"])
def test_a_limit_that_is_no_number_of_pods_is_refused(limit: str) -> None:
    """The error says what a limit must be."""
    code, document = asyncio.run(
        StatusEndpoints(Stage().brain.status, Ticking(0.0), lambda: LEADER).status({"limit": limit})
    )
    assert code == 400
    assert document["error"].startswith("limit must be a number of pods")


@pytest.mark.parametrize("token", ["x", "1.0/shop", "soon/shop/web-0", "1.0/shop/web-0/x"])
def test_a_token_that_no_answer_has_given_is_refused(token: str) -> None:
    """The error says what a token must be."""
    code, document = asyncio.run(
        StatusEndpoints(Stage().brain.status, Ticking(0.0), lambda: LEADER).status({"continue": token})
    )
    assert code == 400
    assert document["error"].startswith("continue must be the token of an earlier answer")


def test_a_page_says_where_the_next_one_begins() -> None:
    """The pages have one order, and the last page has no token."""
    on = many()
    first = status(on, limit="2")
    second = status(on, **{"limit": "2", "continue": first["continue"]})
    assert [[told["uid"] for told in page["pending"]] for page in (first, second)] == [["b", "c"], ["a"]]
    assert second["continue"] is None
    assert (second["pendingTotal"], second["counts"]) == (3, first["counts"])


@pytest.mark.parametrize(
    ("seconds", "state", "why_not"),
    [
        (30, {}, None),
        (30, {"stopped_by": Pause()}, "hand-back was ordered"),
        (30, {"policy_problem": "the policy is not in force"}, "the policy is not in force"),
        (30, {"from_seconds": 31.0}, "it tolerates the taint for less than 31 s"),
    ],
)
def test_a_countdown_that_is_not_taken_over_is_the_built_in_controllers(
    seconds: int, state: dict[str, Any], why_not: str | None
) -> None:
    """Whoever reads that it is taken over relies on guards that do not hold it."""
    on = Stage()
    on.sees(node(taint()), pod(tolerates(seconds)))
    adoption = AdoptionState(True, 0, {}, {}, [], [], policy_problem="", stopped_by=None, from_seconds=10.0)
    (told,) = status(on, replace(LEADER, adoption=replace(adoption, **state)))["pending"]
    text = TAKEN_OVER_LATER if why_not is None else f"{BUILT_INS} ({why_not})"
    assert told["adoption"] == {"adopted": False, "text": text}


def test_a_replica_and_a_pod_with_many_tolerations_are_the_built_in_controllers() -> None:
    """The countdowns of both are never taken over."""
    on = Stage()
    own = replace(pod(tolerates(30), uid="1"), labels={"app.kubernetes.io/name": "taint-eviction-controller"})
    raw = [{"key": f"k{number}", "effect": "NoSchedule"} for number in range(70)]
    many, _ = read_tolerations([{"key": taint().key, "operator": "Exists", "tolerationSeconds": 30}, *raw])
    long = replace(pod(tolerates(30), name="long", uid="2"), tolerations=many)
    on.sees(node(taint()), own, long)
    adoption = AdoptionState(True, 0, {}, {}, [], [], policy_problem="", stopped_by=None, from_seconds=10.0)
    told = {each["uid"]: each["adoption"]["text"] for each in status(on, replace(LEADER, adoption=adoption))["pending"]}
    assert told == {
        "1": f"{BUILT_INS} (it is a replica of this controller, or ends anyway)",
        "2": f"{BUILT_INS} (it has too many tolerations)",
    }


def test_beside_a_built_in_controller_each_pod_says_which_controller_evicts_it() -> None:
    """The row has whether the pod is adopted, and why not if its adoption was refused."""
    on = Stage()
    waits = pod(tolerates(30), name="adopted", uid="1")
    adopted = replace(waits, adoption=Adoption((tolerates(MARK_SECONDS),), (0,)))
    refused, none = pod(tolerates(30), name="refused", uid="2"), pod(name="none", uid="3")
    later = pod(tolerates(30), name="later", uid="4")
    on.sees(node(taint()), adopted, refused, none, later)
    assert [each["adoption"] for each in status(on)["pending"] if each["name"] != "adopted"] == [None] * 3
    adoption = AdoptionState(
        enabled=True,
        adopted=1,
        refused={refused.ref: "a webhook says no"},
        not_given_back={adopted.ref: "forbidden"},
        lost_notes=[adopted.ref],
        unexplained=[none.ref],
        policy_problem="no policy",
        stopped_by=Pause(EPOCH, "why"),
        from_seconds=10.0,
    )
    process = replace(LEADER, adoption=adoption)
    told = status(on, process)
    assert {each["name"]: each["adoption"] for each in told["pending"]} == {
        "adopted": {"adopted": True, "text": None},
        "refused": {
            "adopted": False,
            "text": f"{BUILT_INS} (its countdown could not be taken over: a webhook says no)",
        },
        "none": {"adopted": False, "text": BUILT_INS},
        "later": {"adopted": False, "text": f"{BUILT_INS} (hand-back was ordered)"},
    }
    assert told["adoption"] == {
        "enabled": True,
        "adopted": 1,
        "refused": 1,
        "refusedBecause": [{"namespace": "shop", "name": "refused", "text": "a webhook says no"}],
        "notGivenBack": 1,
        "notGivenBackBecause": [{"namespace": "shop", "name": "adopted", "text": "forbidden"}],
        "lostNotesTotal": 1,
        "lostNotes": ["shop/adopted"],
        "unexplainedMarksTotal": 1,
        "unexplainedMarks": ["shop/none"],
        "policyProblem": "no policy",
        "stopped": {"since": SINCE, "reason": "why"},
    }
    assert list(map(click.unstyle, status_lines(told)))[3:10] == [
        "countdowns taken over: those of 1 pod",
        "the countdowns of 1 pod could not be taken over (shop/refused: a webhook says no)",
        "the countdowns of 1 pod cannot be given back (shop/adopted: forbidden)",
        "1 pod without a note, which is written again (shop/adopted)",
        "1 pod with 9223372036854775807 s for a taint, and nobody noted why: not evicted (shop/none)",
        "no policy",
        f"no more are taken over: hand-back was ordered (since {SINCE_UTC}: why)",
    ]
    many = [PodRef(NamespacedName("shop", f"p{number}"), f"{number}") for number in range(500)]
    told = status(on, replace(LEADER, adoption=replace(adoption, unexplained=many)))
    assert len(told["adoption"]["unexplainedMarks"]) == 20
    (line,) = (line for line in map(click.unstyle, status_lines(told)) if "nobody noted why" in line)
    assert line.startswith("500 pods with ")
    assert line.endswith("shop/p19, …)")
