"""What kept pods from leaving: the scenario of a journal has steps for it, and holds when it is replayed."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from taint_eviction.core.control_state import EVERYTHING, Pause, PauseScope
from taint_eviction.core.events import Paused, Resumed
from taint_eviction.core.instants import Moment
from taint_eviction.reporting.journal import Journal
from taint_eviction_ctl.picture.scene import Kind
from taint_eviction_lab.history.record import RunRecord, read_record
from taint_eviction_lab.history.to_scenario import scenario_text
from taint_eviction_lab.picture.of_history import picture_of_record
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

EPOCH = 1_900_000_000.0
TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}
Told = dict[str, Any]


def head(at: float = 0.0, **settings: Any) -> Told:
    """Make the line about the start of the controller."""
    return {"t": EPOCH + at, "what": "journal", "version": 1, **({"settings": settings} if settings else {})}


def node(at: float, name: str = "n1", *taints: Told, **fields: Any) -> Told:
    """Make a line about a node."""
    return {"t": EPOCH + at, "what": "node", "node": name, "uid": name, "taints": list(taints), **fields}


def pod(at: float, name: str, on: str = "n1", **fields: Any) -> Told:
    """Make a line about a pod that existed from the beginning."""
    told = {"pod": f"shop/{name}", "uid": name, "on": on, "tolerations": [], "bound": EPOCH - 60}
    return {"t": EPOCH + at, "what": "pod", **told, **fields}


def about(at: float, what: str, name: str, **fields: Any) -> Told:
    """Make a line about what happened to a pod."""
    return {"t": EPOCH + at, "what": what, "pod": f"shop/{name}", "uid": name, "node": "n1", **fields}


def evicted(at: float, name: str, late: float) -> Told:
    """Make a line about an eviction and how late it was."""
    return about(at, "evicted", name, taint="k=v:NoExecute", due=EPOCH + at - late, late_seconds=late)


def refused(at: float, name: str, tries: int, error: str, **block: str) -> Told:
    """Make a line about an attempt that failed."""
    return about(at, "refused", name, tries=tries, error=error, **block)


def told(at: float, what: str, **fields: Any) -> Told:
    """Make a line about what holds evictions back."""
    return {"t": EPOCH + at, "what": what, **fields}


def recorded(*lines: Told) -> RunRecord:
    """Write a journal with these lines, and read it."""
    return read_record([json.dumps(line).encode() + b"\n" for line in lines], "journal")


def scenario_of(record: RunRecord) -> Told:
    """Return the scenario of a record."""
    found: Told = yaml.safe_load(scenario_text(record))
    return found


def played(record: RunRecord) -> ReplayResult:
    """Replay the scenario of a record, which must hold."""
    result = replay_scenario(read_scenario(scenario_text(record), "incident.yaml"))
    assert result.broken == (), result.broken
    return result


def evictions(result: ReplayResult) -> dict[str, float]:
    """Return when each pod was evicted."""
    return {entry.subject: round(entry.at, 1) for entry in result.timeline if entry.what.value == "evicted"}


def steps(record: RunRecord, action: str) -> list[Any]:
    """List the steps of one kind, each with its second."""
    return [(step["at"], step[action]) for step in scenario_of(record)["timeline"] if action in step]


TAINTED = (node(0), node(10, "n1", TAINT), pod(10, "web"), about(10, "scheduled", "web", due=EPOCH + 10))
BUSY = "apiserver not ready (HTTP 503)"


def test_calls_that_failed_fail_again_for_as_long() -> None:
    """The step has the server's status and words, and the pod goes afterwards, as it did."""
    failures = [refused(10.1 + number * 4, "web", number + 1, BUSY) for number in range(4)]
    record = recorded(head(), *TAINTED, *failures, evicted(25, "web", 15))
    ((at, step),) = steps(record, "refuse")
    assert (step["call"], step["pod"], step["status"], step["message"]) == (
        ["delete", "evict"],
        "shop/web",
        503,
        "apiserver not ready",
    )
    assert (at, round(at + step["for"], 2)) == (9.5, 22.15)
    assert 22 < evictions(played(record))["shop/web"] < 33
    assert "the call that ends the pod is refused" in scenario_of(record)["about"]


def test_a_connection_that_broke_breaks_again() -> None:
    """There was no answer, so the step has no status and no message."""
    record = recorded(head(), *TAINTED, refused(10.1, "web", 1, "cannot connect"), evicted(11, "web", 1))
    ((_, step),) = steps(record, "refuse")
    assert not step.keys() & {"status", "message"}
    played(record)


def test_calls_refused_at_the_end_are_refused_indefinitely() -> None:
    """The journal does not say what came next, so nothing is expected of the pod."""
    record = recorded(head(), *TAINTED, refused(10.1, "web", 1, BUSY), refused(12, "web", 2, BUSY))
    ((_, step),) = steps(record, "refuse")
    assert "for" not in step
    assert scenario_of(record)["expect"] == {"shop/web": {"pods": {"atMost": 1}}}
    assert evictions(played(record)) == {}


def test_calls_that_a_budget_blocked_are_refused() -> None:
    """The record has no budgets, which the scenario says; it uses the eviction API, as the controller did."""
    words = "Cannot evict pod as it would violate the pod's disruption budget. (HTTP 429)"
    block = {"block": "budget", "budget": "web"}
    record = recorded(head(), *TAINTED, refused(10.1, "web", 1, words, **block), evicted(16, "web", 6))
    assert scenario_of(record)["settings"]["evictionMode"] == "evict"
    assert steps(record, "refuse")[0][1]["status"] == 429
    assert "Budgets are missing: what they blocked is refused, too." in scenario_of(record)["about"]
    played(record)
    (row,) = picture_of_record(record).rows
    assert [mark.kind for mark in row.marks] == [Kind.SCHEDULED, Kind.BLOCKED, Kind.EVICTED]
    assert [bar.kind for bar in row.bars] == [Kind.EXISTS, Kind.BLOCKED]


@pytest.mark.parametrize(
    ("scope", "step"),
    [
        ({"scope_kind": "all", "scope": "all evictions"}, {}),
        ({"scope_kind": "node", "node": "n1", "scope": "evictions from node n1"}, {"node": "n1"}),
        (
            {"scope_kind": "namespace", "namespace": "shop", "scope": "evictions in namespace shop"},
            {"namespace": "shop"},
        ),
    ],
)
def test_pauses_begin_and_end_as_they_did(scope: Told, step: Told) -> None:
    """A pause begins early enough to be known when it was known; a pod that was held goes when the pause ends."""
    begun = told(8, "paused", **scope, since=EPOCH + 7, reason="upgrade")
    over = told(40, "resumed", **scope)
    record = recorded(head(), node(0), begun, *TAINTED[1:], over, evicted(40.1, "web", 30.1))
    assert steps(record, "pause") == [(6.0, {**step, "reason": "upgrade"})]
    assert steps(record, "resume") == [(40.0, step)]
    assert 40 <= evictions(played(record))["shop/web"] < 43
    picture = picture_of_record(record)
    assert [(band.text, band.begin, band.end) for band in picture.holds] == [(f"{scope['scope']}: upgrade", 8.0, 40.0)]
    assert Kind.HELD in [bar.kind for bar in picture.rows[0].bars]


@pytest.mark.parametrize(
    "scope",
    [
        EVERYTHING,
        PauseScope("node", "n1"),
        PauseScope("namespace", "shop"),
        PauseScope("selector", "pool in (gpu,web)"),
        PauseScope("selector"),
    ],
)
def test_the_scope_of_a_pause_is_read_as_it_was_written(scope: PauseScope, tmp_path: Path) -> None:
    """The scope has fields of its own; the words beside them are for people."""
    journal = Journal(tmp_path / "journal")
    journal.report(Paused(scope, Pause()), Moment(1.0, EPOCH))
    journal.report(Resumed(scope), Moment(2.0, EPOCH + 1))
    journal.close()
    with (tmp_path / "journal").open("rb") as lines:
        happenings = read_record(lines, "journal").happenings
    assert [(each.what, each.scope) for each in happenings[1:]] == [("paused", scope), ("resumed", scope)]
    assert happenings[1].text("scope") == str(scope)


def test_a_pause_by_labels_holds_nodes_while_they_have_the_labels() -> None:
    """Of the recorded labels, the scenario has those for which a pause asks; the pod goes when its node loses them."""
    scope = {"scope_kind": "selector", "selector": "pool=gpu", "scope": "evictions from nodes that match pool=gpu"}
    tainted = node(10, "n1", TAINT, labels={"pool": "gpu", "rack": "r1"})
    record = recorded(
        head(),
        node(0, labels={"pool": "gpu", "rack": "r1"}),
        told(8, "paused", **scope, since=EPOCH + 7, reason=""),
        tainted,
        *TAINTED[2:],
        node(40, "n1", TAINT, labels={"rack": "r1"}),
        evicted(40.1, "web", 30.1),
        told(60, "resumed", **scope),
    )
    assert scenario_of(record)["given"]["nodes"] == [{"name": "n1", "labels": {"pool": "gpu"}}]
    assert steps(record, "pause") == [(6.0, {"selector": "pool=gpu"})]
    assert steps(record, "label") == [(40.0, {"node": "n1", "labels": {"pool": None}})]
    assert 40 <= evictions(played(record))["shop/web"] < 43
    picture = picture_of_record(record)
    assert [(band.begin, band.end) for band in picture.holds] == [(8.0, 60.0)]
    assert [bar.end for bar in picture.rows[0].bars if bar.kind is Kind.HELD] == [40.0]


def test_a_pause_by_labels_from_the_beginning_is_given() -> None:
    """A pause of all nodes, which is what an unreadable selector is, has the empty one."""
    given = [told(0.2, "paused", scope_kind="selector", **more) for more in ({}, {"selector": "pool"})]
    record = recorded(head(), *given, *TAINTED)
    assert scenario_of(record)["given"]["controlState"] == {"selectors": ["", "pool"]}
    assert evictions(played(record)) == {}
    unreadable = told(0.2, "paused", scope_kind="selector", selector="pool in")
    assert "controlState" not in scenario_of(recorded(head(), unreadable, *TAINTED))["given"]


def test_a_pause_does_not_hold_pods_that_had_gone() -> None:
    """The pause begins after the eviction before it, even if it becomes known later then."""
    others = (*TAINTED, evicted(10.2, "web", 0.2))
    record = recorded(head(), *others, told(11, "paused", scope_kind="all"))
    assert steps(record, "pause") == [(10.25, {})]
    assert evictions(played(record)) == {"shop/web": 10.0}


def test_a_pause_from_the_beginning_is_given() -> None:
    """The controller knew the pause before it did anything."""
    record = recorded(head(), told(0.2, "paused", scope_kind="all"), *TAINTED)
    assert scenario_of(record)["given"]["controlState"] == {"pause": True}
    assert evictions(played(record)) == {}


def test_an_open_breaker_becomes_a_pause() -> None:
    """The settings of the breaker are not in the journal; the scenario says that it pauses evictions instead."""
    opened = told(10.01, "breaker_opened", since=EPOCH + 10, cause="3 of 8 nodes")
    record = recorded(head(), *TAINTED, opened, told(50, "breaker_closed"), evicted(50.1, "web", 40.1))
    assert steps(record, "pause") == [(8.01, {"reason": "the circuit breaker: 3 of 8 nodes"})]
    assert "Where the circuit breaker was open, evictions are paused." in scenario_of(record)["about"]
    assert 50 <= evictions(played(record))["shop/web"] < 53


def test_a_restart_is_a_step() -> None:
    """The restart begins after the last line before it; objects that the new process repeats are no changes."""
    again = (head(30), node(30, "n1", TAINT), pod(30, "late", tolerations=[{"operator": "Exists"}]))
    record = recorded(head(), *TAINTED, evicted(10.1, "web", 0.1), *again, node(31))
    assert steps(record, "restart") == [(10.15, {"after": 18.35})]
    assert [mark.at for mark in picture_of_record(record).steps] == [0.0, 30.0]
    assert "The record does not say when the controller ended" in scenario_of(record)["about"]
    played(record)


def test_holds_of_owners_are_recorded() -> None:
    """The scenario has the annotation, the setting that grants it, and later changes of the annotation."""
    settings = head(honourHolds="forever", defaultUnreachableSeconds=5)
    held = (pod(10, "web", hold=20.0), about(10, "scheduled", "web", due=EPOCH + 30, held_seconds=20.0))
    record = recorded(settings, node(0), node(10, "n1", TAINT), *held, evicted(30.1, "web", 0.1))
    assert scenario_of(record)["settings"] == {
        "defaultTolerationSeconds": None,
        "defaultUnreachableSeconds": 5,
        "honourHolds": "forever",
    }
    assert evictions(played(record)) == {"shop/web": 30.0}
    (row,) = picture_of_record(record).rows
    assert [(round(bar.begin), round(bar.end)) for bar in row.bars if bar.kind is Kind.HELD] == [(10, 30)]

    for_ever = recorded(head(honourHolds="forever"), *TAINTED[:2], *held, pod(20, "web", hold="forever"), node(60))
    assert steps(for_ever, "setHold") == [(20.0, {"pod": "shop/web", "hold": True})]
    assert evictions(played(for_ever)) == {}


def test_the_end_of_a_pod_may_be_seen_before_the_answer() -> None:
    """The watch is often faster than the answer to the call: nobody else deleted the pod."""
    gone = {"t": EPOCH + 10.1, "what": "pod gone", "pod": "shop/web", "uid": "web"}
    record = recorded(head(), *TAINTED, gone, evicted(10.11, "web", 0.11))
    assert steps(record, "delete") == []
    assert evictions(played(record)) == {"shop/web": 10.0}
    (row,) = picture_of_record(record).rows
    assert [round(bar.end, 2) for bar in row.bars if bar.kind is Kind.EXISTS] == [10.1]


def test_who_deleted_a_pod_that_was_due_is_not_known() -> None:
    """The scenario expects nothing, as the controller may be first; before the deadline it was somebody else."""
    gone = {"what": "pod gone", "pod": "shop/web", "uid": "web"}
    due = recorded(head(), *TAINTED, {"t": EPOCH + 15, **gone})
    assert steps(due, "delete") == []
    assert scenario_of(due)["expect"] == {"shop/web": {"pods": {"atMost": 1}}}
    played(due)
    countdown = (*TAINTED[:3], about(10, "scheduled", "web", due=EPOCH + 40))
    before = recorded(head(), *countdown, {"t": EPOCH + 15, **gone})
    assert steps(before, "delete") == [(15.0, {"pod": "shop/web", "force": True})]


def test_an_evicted_pod_is_drawn_until_its_eviction() -> None:
    """The journal has no line about the end of the evicted pod."""
    record = recorded(head(), *TAINTED, evicted(10.1, "web", 0.1), node(60))
    (row,) = picture_of_record(record).rows
    assert [round(bar.end, 1) for bar in row.bars if bar.kind is Kind.EXISTS] == [10.1]


def test_lateness_without_a_reason_in_the_record_is_mentioned() -> None:
    """The reason may be a rule's limit or another leader; the scenario has the eviction in time, and says so."""
    record = recorded(head(), *TAINTED, evicted(40, "web", 30))
    assert "The record does not say why 1 eviction was late" in scenario_of(record)["about"]
    assert evictions(played(record)) == {"shop/web": 10.0}


def test_missing_rules_of_the_policy_are_mentioned() -> None:
    """The journal only counts the rules."""
    record = recorded({**head(), "rules": 2}, *TAINTED, evicted(10.1, "web", 0.1))
    assert "The rules of the policy are missing." in scenario_of(record)["about"]


def test_tolerations_that_a_rule_shortened_are_as_short_in_the_scenario() -> None:
    """The journal has the seconds of pods, and of rules only what they shortened."""
    ceiling = {"ceiling_rule": "drains", "ceiling_seconds": 30}
    record = recorded(
        {**head(), "rules": 1},
        node(0),
        node(10, "n1", TAINT),
        pod(10, "web", tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 300}, {"key": "other"}]),
        about(10, "scheduled", "web", taint="k=v:NoExecute", due=EPOCH + 40, **ceiling),
        pod(20, "web", tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 200}, {"key": "other"}]),
        about(40.1, "evicted", "web", taint="k=v:NoExecute", due=EPOCH + 40, late_seconds=0.1, **ceiling),
    )
    assert "Tolerations that a rule shortened are as short here." in scenario_of(record)["about"]
    assert evictions(played(record)) == {"shop/web": 40.0}


def test_a_log_of_a_storm_says_that_pods_are_missing() -> None:
    """Only the first pods of a storm have lines of their own."""
    storm = {"t": EPOCH + 11, "what": "storm", "node": "node-1", "evicted": 40, "refused": 0}
    log = [evicted(10.1, "web", 0.1), storm]
    assert "So is what became of the pods of a storm" in recorded(*log).missing
    assert "storm" not in recorded(*log[:1]).missing
    assert "storm" not in recorded(head(), *TAINTED, *log).missing
