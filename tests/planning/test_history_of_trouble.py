"""What kept pods from leaving, from a journal into a scenario: the steps are there, and it holds when it is played."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from taint_eviction.adapters.journal import Journal
from taint_eviction.core.control_state import EVERYTHING, Pause, PauseScope
from taint_eviction.core.effects import Paused, Resumed
from taint_eviction.core.instants import Moment
from taint_eviction.picture.scene import Kind
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
    """Tell that the controller was started."""
    return {"t": EPOCH + at, "what": "journal", "version": 1, **({"settings": settings} if settings else {})}


def node(at: float, name: str = "n1", *taints: Told) -> Told:
    """Tell of a node."""
    return {"t": EPOCH + at, "what": "node", "node": name, "uid": name, "taints": list(taints)}


def pod(at: float, name: str, on: str = "n1", **fields: Any) -> Told:
    """Tell of a pod that was there from the beginning."""
    told = {"pod": f"shop/{name}", "uid": name, "on": on, "tolerations": [], "bound": EPOCH - 60}
    return {"t": EPOCH + at, "what": "pod", **told, **fields}


def about(at: float, what: str, name: str, **fields: Any) -> Told:
    """Tell what became of it."""
    return {"t": EPOCH + at, "what": what, "pod": f"shop/{name}", "uid": name, "node": "n1", **fields}


def evicted(at: float, name: str, late: float) -> Told:
    """Tell of an eviction and how late it was."""
    return about(at, "evicted", name, taint="k=v:NoExecute", due=EPOCH + at - late, late_seconds=late)


def refused(at: float, name: str, tries: int, error: str, **block: str) -> Told:
    """Tell of an attempt that failed."""
    return about(at, "refused", name, tries=tries, error=error, **block)


def told(at: float, what: str, **fields: Any) -> Told:
    """Tell of what holds evictions back."""
    return {"t": EPOCH + at, "what": what, **fields}


def recorded(*lines: Told) -> RunRecord:
    """Write and read a journal in which n1 is tainted at 10."""
    return read_record([json.dumps(line).encode() + b"\n" for line in lines], "journal")


def scenario_of(record: RunRecord) -> Told:
    """Write it as a scenario."""
    found: Told = yaml.safe_load(scenario_text(record))
    return found


def played(record: RunRecord) -> ReplayResult:
    """Play its scenario."""
    result = replay_scenario(read_scenario(scenario_text(record), "incident.yaml"))
    assert result.broken == (), result.broken
    return result


def evictions(result: ReplayResult) -> dict[str, float]:
    """Say who went when."""
    return {entry.subject: round(entry.at, 1) for entry in result.timeline if entry.what.value == "evicted"}


def steps(record: RunRecord, action: str) -> list[Any]:
    """List the steps of one kind, each with its second."""
    return [(step["at"], step[action]) for step in scenario_of(record)["timeline"] if action in step]


TAINTED = (node(0), node(10, "n1", TAINT), pod(10, "web"), about(10, "scheduled", "web", due=EPOCH + 10))
BUSY = "apiserver not ready (HTTP 503)"


def test_calls_that_failed_fail_again_for_as_long() -> None:
    """With the server's status and words; the pod goes after them, as it did."""
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
    """There is no status to answer with."""
    record = recorded(head(), *TAINTED, refused(10.1, "web", 1, "cannot connect"), evicted(11, "web", 1))
    ((_, step),) = steps(record, "refuse")
    assert not step.keys() & {"status", "message"}
    played(record)


def test_what_is_refused_at_the_end_is_refused_for_ever() -> None:
    """Nobody knows how it went on; nothing is expected of it."""
    record = recorded(head(), *TAINTED, refused(10.1, "web", 1, BUSY), refused(12, "web", 2, BUSY))
    ((_, step),) = steps(record, "refuse")
    assert "for" not in step
    assert scenario_of(record)["expect"] == {"shop/web": {"pods": {"atMost": 1}}}
    assert evictions(played(record)) == {}


def test_what_a_budget_blocked_is_refused_and_said_to_be() -> None:
    """The record has no budgets; by the eviction API, as it was."""
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
def test_pauses_are_ordered_and_taken_back(scope: Told, step: Told) -> None:
    """In time to be known when the controller knew them; who was held goes when they are over."""
    begun = told(8, "paused", **scope, since=EPOCH + 7, reason="upgrade")
    over = told(40, "resumed", **scope)
    record = recorded(head(), node(0), begun, *TAINTED[1:], over, evicted(40.1, "web", 30.1))
    assert steps(record, "pause") == [(6.0, {**step, "reason": "upgrade"})]
    assert steps(record, "resume") == [(40.0, step)]
    assert 40 <= evictions(played(record))["shop/web"] < 43
    picture = picture_of_record(record)
    assert [(band.text, band.begin, band.end) for band in picture.holds] == [(f"{scope['scope']}: upgrade", 8.0, 40.0)]
    assert Kind.HELD in [bar.kind for bar in picture.rows[0].bars]


@pytest.mark.parametrize("scope", [EVERYTHING, PauseScope("node", "n1"), PauseScope("namespace", "shop")])
def test_the_scope_of_a_pause_is_read_as_it_was_written(scope: PauseScope, tmp_path: Path) -> None:
    """As a value of its own fields; the words beside it are for people."""
    journal = Journal(tmp_path / "journal")
    journal.report(Paused(scope, Pause()), Moment(1.0, EPOCH))
    journal.report(Resumed(scope), Moment(2.0, EPOCH + 1))
    journal.close()
    with (tmp_path / "journal").open("rb") as lines:
        happenings = read_record(lines, "journal").happenings
    assert [(each.what, each.scope) for each in happenings[1:]] == [("paused", scope), ("resumed", scope)]
    assert happenings[1].text("scope") == str(scope)


def test_a_pause_does_not_hold_those_who_had_gone() -> None:
    """It is ordered after the last eviction before it, though it would be known later then."""
    others = (*TAINTED, evicted(10.2, "web", 0.2))
    record = recorded(head(), *others, told(11, "paused", scope_kind="all"))
    assert steps(record, "pause") == [(10.25, {})]
    assert evictions(played(record)) == {"shop/web": 10.0}


def test_a_pause_from_the_beginning_is_given() -> None:
    """The controller knew it before it did anything."""
    record = recorded(head(), told(0.2, "paused", scope_kind="all"), *TAINTED)
    assert scenario_of(record)["given"]["orders"] == {"pause": True}
    assert evictions(played(record)) == {}


def test_the_breakers_hold_is_a_pause() -> None:
    """Its own settings are not in the journal; that is said."""
    opened = told(10.01, "breaker_opened", since=EPOCH + 10, cause="3 of 8 nodes")
    record = recorded(head(), *TAINTED, opened, told(50, "breaker_closed"), evicted(50.1, "web", 40.1))
    assert steps(record, "pause") == [(8.01, {"reason": "the circuit breaker: 3 of 8 nodes"})]
    assert "Where the circuit breaker was open, evictions are paused." in scenario_of(record)["about"]
    assert 50 <= evictions(played(record))["shop/web"] < 53


def test_a_restart_is_a_step() -> None:
    """From the last line before it; what was written anew is nothing new."""
    again = (head(30), node(30, "n1", TAINT), pod(30, "late", tolerations=[{"operator": "Exists"}]))
    record = recorded(head(), *TAINTED, evicted(10.1, "web", 0.1), *again, node(31))
    assert steps(record, "restart") == [(10.15, {"after": 18.35})]
    assert [mark.at for mark in picture_of_record(record).steps] == [0.0, 30.0]
    assert "The record does not say when the controller ended" in scenario_of(record)["about"]
    played(record)


def test_holds_of_owners_are_recorded() -> None:
    """The annotation and how much of it is granted; and when it is changed."""
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


def test_an_eviction_may_be_seen_before_it_is_told() -> None:
    """The watch is often faster than the answer to the call: nobody else deleted the pod."""
    gone = {"t": EPOCH + 10.1, "what": "pod gone", "pod": "shop/web", "uid": "web"}
    record = recorded(head(), *TAINTED, gone, evicted(10.11, "web", 0.11))
    assert steps(record, "delete") == []
    assert evictions(played(record)) == {"shop/web": 10.0}
    (row,) = picture_of_record(record).rows
    assert [round(bar.end, 2) for bar in row.bars if bar.kind is Kind.EXISTS] == [10.1]


def test_who_deleted_a_pod_that_was_due_is_not_known() -> None:
    """The controller of the scenario may have been first: nothing is expected then. Before its deadline it is clear."""
    gone = {"what": "pod gone", "pod": "shop/web", "uid": "web"}
    due = recorded(head(), *TAINTED, {"t": EPOCH + 15, **gone})
    assert steps(due, "delete") == []
    assert scenario_of(due)["expect"] == {"shop/web": {"pods": {"atMost": 1}}}
    played(due)
    countdown = (*TAINTED[:3], about(10, "scheduled", "web", due=EPOCH + 40))
    before = recorded(head(), *countdown, {"t": EPOCH + 15, **gone})
    assert steps(before, "delete") == [(15.0, {"pod": "shop/web", "force": True})]


def test_what_is_evicted_is_drawn_until_then() -> None:
    """Nobody watches for the end of a pod that has been evicted."""
    record = recorded(head(), *TAINTED, evicted(10.1, "web", 0.1), node(60))
    (row,) = picture_of_record(record).rows
    assert [round(bar.end, 1) for bar in row.bars if bar.kind is Kind.EXISTS] == [10.1]


def test_lateness_without_a_reason_in_the_record_is_told() -> None:
    """Limits of rules, another leader: the scenario has it in time, and says so."""
    record = recorded(head(), *TAINTED, evicted(40, "web", 30))
    assert "The record does not say why 1 eviction was late" in scenario_of(record)["about"]
    assert evictions(played(record)) == {"shop/web": 10.0}


def test_rules_of_the_policy_are_told_to_be_missing() -> None:
    """The journal only counts them."""
    record = recorded({**head(), "rules": 2}, *TAINTED, evicted(10.1, "web", 0.1))
    assert "The rules of the policy are missing." in scenario_of(record)["about"]


def test_a_log_of_a_storm_is_told_to_lack_its_pods() -> None:
    """Only the first of them have lines of their own."""
    storm = {"t": EPOCH + 11, "what": "storm", "node": "node-1", "evicted": 40, "refused": 0}
    log = [evicted(10.1, "web", 0.1), storm]
    assert "So is what became of the pods of a storm" in recorded(*log).missing
    assert "storm" not in recorded(*log[:1]).missing
    assert "storm" not in recorded(head(), *TAINTED, *log).missing
