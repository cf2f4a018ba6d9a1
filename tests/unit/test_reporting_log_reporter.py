"""The log: one line for each effect, for people and for machines."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime_fakes import FakeGate, virtually

from taint_eviction.core.control_state import EVERYTHING, Latch, Pause, PauseScope
from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.events import (
    Block,
    BlockReason,
    BreakerClosed,
    BreakerOpened,
    Cancelled,
    Event,
    Evicted,
    EvictionLoop,
    NodeCleared,
    NodeTainted,
    Paused,
    ReadyOutOfService,
    Refused,
    Resumed,
    Scheduled,
    StrayTaint,
    TaintRewritten,
)
from taint_eviction.core.instants import Moment, TimeSource
from taint_eviction.core.objects import ControllerRef, NamespacedName, PodRef, Taint, Toleration
from taint_eviction.kube.control_state_data import UNKNOWN_EPOCH
from taint_eviction.reporting.log_reporter import LogReporter
from taint_eviction.runtime.leadership import NoElection

REF = PodRef(NamespacedName("shop", "web-0"), "uid-a")
NOW = Moment(1000.0, 1714557600.0)
TAINT = Taint("k", "NoExecute", "v")
VERDICT = TaintVerdict(
    TAINT,
    Toleration("k", "Exists", toleration_seconds=30),
    None,
    start_at=990.0,
    start_source=TimeSource.TIME_ADDED,
    fire_at=1020.0,
)
EVICT = Evict(1020.0, VERDICT, (VERDICT,))
UNTOLERATED = TaintVerdict(TAINT, None, None, 990.0, TimeSource.FIRST_SIGHT, 990.0)
DEFAULTED = TaintVerdict(TAINT, VERDICT.toleration, None, 990.0, TimeSource.TIME_ADDED, 1020.0, by_default=True)
HELD = replace(DEFAULTED, held_seconds=60.0)

DUE = "pod shop/web-0 (uid uid-a) on node n1"


@pytest.mark.parametrize(
    ("effect", "level", "line"),
    [
        (NodeTainted("n1"), "INFO", "node n1 has NoExecute taints: watching its pods"),
        (NodeCleared("n1"), "INFO", "node n1 no longer has NoExecute taints"),
        (
            TaintRewritten("n1", TAINT),
            "WARNING",
            "the value of taint k=v:NoExecute on node n1 has changed: its tolerations start again,"
            " and never end if this repeats",
        ),
        (
            StrayTaint("n1", TAINT),
            "WARNING",
            "node n1 has reported for more than a minute that it is ready, and still has taint k=v:NoExecute, which"
            " evicts pods as any taint does: remove it, or see why the node lifecycle controller does not",
        ),
        (
            ReadyOutOfService("n1"),
            "WARNING",
            "node n1 is ready, but has the taint node.kubernetes.io/out-of-service:"
            " the taint keeps pods away until somebody removes it",
        ),
        (
            Scheduled(REF, "n1", EVICT),
            "INFO",
            f"{DUE} is due at 2024-05-01 10:00:20 UTC: taint k=v:NoExecute is tolerated by [k for 30 s],"
            " since 2024-05-01 09:59:50 UTC (timeAdded)",
        ),
        (
            Scheduled(REF, "n1", Evict(990.0, UNTOLERATED, (UNTOLERATED,)), before_at=1020.0),
            "INFO",
            f"{DUE} is due at 2024-05-01 09:59:50 UTC instead of 2024-05-01 10:00:20 UTC:"
            " taint k=v:NoExecute is not tolerated, since 2024-05-01 09:59:50 UTC (first seen then)",
        ),
        (
            Cancelled(REF, "n1", StayReason.NODE_CLEAN),
            "INFO",
            f"{DUE} is no longer due: its node has no NoExecute taint",
        ),
        (
            Cancelled(REF, "n1", StayReason.TERMINATING, late_seconds=0.025),
            "INFO",
            f"{DUE} is no longer due: it is being deleted already, 0.03 s after its deadline",
        ),
        (
            Cancelled(REF, "n1", StayReason.TERMINATING, late_seconds=-12.3),
            "INFO",
            f"{DUE} is no longer due: it is being deleted already, 12.30 s before its deadline",
        ),
        (Cancelled(REF, "n1", None), "INFO", f"{DUE} is no longer due: it is gone"),
        (
            Evicted(REF, "n1", EVICT, 0.123),
            "INFO",
            f"{DUE} was evicted 0.12 s after its deadline 2024-05-01 10:00:20 UTC: taint k=v:NoExecute is tolerated by"
            " [k for 30 s], since 2024-05-01 09:59:50 UTC (timeAdded)",
        ),
        (
            Refused(REF, "n1", "etcd is away (HTTP 500)", 4, 995.0, 1001.5),
            "WARNING",
            f"{DUE} could not be evicted (attempt 4 since 2024-05-01 09:59:55 UTC), next attempt in 1.5 s:"
            " etcd is away (HTTP 500)",
        ),
        (
            Refused(REF, "n1", "no (HTTP 429)", 1, 1000.0, 1005.0, Block(BlockReason.BUDGET, "web")),
            "WARNING",
            f"{DUE} could not be evicted (attempt 1 since 2024-05-01 10:00:00 UTC), next attempt in 5.0 s:"
            " its PodDisruptionBudget allows no disruption now (web): no (HTTP 429)",
        ),
        (
            Scheduled(REF, "n1", Evict(1080.0, HELD, (HELD,))),
            "INFO",
            f"{DUE} is due at 2024-05-01 10:01:20 UTC: taint k=v:NoExecute is tolerated by default by [k for 30 s],"
            " since 2024-05-01 09:59:50 UTC (timeAdded), and its owner holds it for 60 s",
        ),
        (
            EvictionLoop(REF, "n1", ControllerRef("DaemonSet", "web", "uid-b"), TAINT),
            "WARNING",
            "DaemonSet web recreates its pod shop/web-0 on node n1, and taint k=v:NoExecute evicts it again, 3 times"
            " within 10 minutes: give the DaemonSet a toleration for the taint, without tolerationSeconds, or remove"
            " the taint",
        ),
        (Paused(EVERYTHING, Pause()), "WARNING", "all evictions are paused"),
        (
            Paused(PauseScope("node", "n1"), Pause(NOW.server_epoch, "disk swap")),
            "WARNING",
            "evictions from node n1 are paused (since 2024-05-01 10:00:00 UTC: disk swap)",
        ),
        (Resumed(EVERYTHING), "WARNING", "all evictions are no longer paused"),
        (
            BreakerOpened(Latch(NOW.server_epoch, "5 of 9 nodes newly tainted within 300 s, more than 25 %")),
            "WARNING",
            "the circuit breaker is open: no pod is evicted (since 2024-05-01 10:00:00 UTC:"
            " 5 of 9 nodes newly tainted within 300 s, more than 25 %)",
        ),
        (
            BreakerOpened(Latch(UNKNOWN_EPOCH, "by hand")),
            "WARNING",
            "the circuit breaker is open: no pod is evicted (by hand)",
        ),
        (BreakerClosed(), "WARNING", "the circuit breaker is closed: evictions continue"),
    ],
)
def test_each_effect_is_a_line_in_plain_words(
    caplog: pytest.LogCaptureFixture, effect: Event, level: str, line: str
) -> None:
    """A line has pod, UID, node, taint, toleration, the deadline by the server's clock, and the source of the time."""
    with caplog.at_level(logging.INFO):
        LogReporter(NoElection()).report(effect, NOW)
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == (level, line)


def fields(record: logging.LogRecord, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def test_machines_get_the_same_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    """Readers of JSON logs need not parse sentences."""
    with caplog.at_level(logging.INFO):
        LogReporter(NoElection()).report(Evicted(REF, "n1", EVICT, 0.1234), NOW)
    names = ("pod", "uid", "node", "taint", "toleration", "time_source", "deadline", "late_seconds")
    assert fields(caplog.records[0], *names) == {
        "pod": "shop/web-0",
        "uid": "uid-a",
        "node": "n1",
        "taint": "k=v:NoExecute",
        "toleration": "k for 30 s",
        "time_source": "timeAdded",
        "deadline": "2024-05-01T10:00:20Z",
        "late_seconds": 0.123,
    }


def test_machines_get_a_budgets_refusal_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    """These fields tell a block from another failure, which does not have them."""
    with caplog.at_level(logging.INFO):
        LogReporter(NoElection()).report(
            Refused(REF, "n1", "no", 1, 0.0, 1.0, Block(BlockReason.BUDGET_NOT_READY, "web")), NOW
        )
        LogReporter(NoElection()).report(Refused(REF, "n1", "no", 1, 0.0, 1.0), NOW)
    blocked, failed = caplog.records
    assert fields(blocked, "block", "budget") == {"block": "budget_not_ready", "budget": "web"}
    assert not hasattr(failed, "block")


def test_refusals_of_a_pod_are_logged_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    """The first refusal is logged, and then each at which their number has doubled."""
    with caplog.at_level(logging.INFO):
        for tries in range(1, 101):
            LogReporter(NoElection()).report(Refused(REF, "n1", "no", tries, 0.0, 1.0), NOW)
    assert [record.tries for record in caplog.records] == [1, 2, 4, 8, 16, 32, 64]  # type: ignore[attr-defined]


def test_the_logged_deadline_is_that_of_the_taint_that_decided(caplog: pytest.LogCaptureFixture) -> None:
    """Another taint has an earlier deadline, which does not decide."""
    with caplog.at_level(logging.INFO):
        LogReporter(NoElection()).report(Evicted(REF, "n1", Evict(990.0, VERDICT, (UNTOLERATED, VERDICT)), 0.5), NOW)
    assert "was evicted 0.50 s after its deadline 2024-05-01 10:00:20 UTC: taint k=v:NoExecute is tol" in caplog.text


def test_a_toleration_that_does_not_count_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """People expect the longest toleration to count, but the first one that matches counts."""
    overruled = TaintVerdict(
        TAINT, VERDICT.toleration, Toleration(operator="Exists"), 990.0, TimeSource.TIME_ADDED, 1020.0
    )
    with caplog.at_level(logging.INFO):
        LogReporter(NoElection()).report(Scheduled(REF, "n1", Evict(1020.0, overruled, (overruled,))), NOW)
    assert "is tolerated by [k for 30 s], which comes before [* indefinitely]" in caplog.text


def test_a_dry_run_says_so_in_each_line(caplog: pytest.LogCaptureFixture) -> None:
    """The words keep readers from taking the line for a real eviction."""
    with caplog.at_level(logging.INFO):
        LogReporter(NoElection(), dry_run=True).report(Evicted(REF, "n1", EVICT, 0.0), NOW)
    assert caplog.records[0].getMessage().startswith("dry run: pod shop/web-0")


@given(st.floats(-1e12, 1e12))
def test_any_deadline_can_be_logged(at: float) -> None:
    """Absurd tolerations make absurd deadlines, but no errors."""
    LogReporter(NoElection()).report(Scheduled(REF, "n1", Evict(at, VERDICT, (VERDICT,)), before_at=-at), NOW)


@pytest.mark.parametrize(
    ("effect", "levels"),
    [
        (NodeTainted("n1"), ("INFO", "DEBUG")),
        (NodeCleared("n1"), ("INFO", "DEBUG")),
        (TaintRewritten("n1", TAINT), ("WARNING", "DEBUG")),
        (ReadyOutOfService("n1"), ("WARNING", "DEBUG")),
        (Scheduled(REF, "n1", EVICT), ("INFO", "DEBUG")),
        (Cancelled(REF, "n1", StayReason.NODE_CLEAN), ("INFO", "DEBUG")),
        (Evicted(REF, "n1", EVICT, 0.0), ("INFO", "INFO")),
        (Refused(REF, "n1", "no", 1, 0.0, 1.0), ("WARNING", "WARNING")),
        (Paused(EVERYTHING, Pause(None, "")), ("WARNING", "WARNING")),
        (BreakerClosed(), ("WARNING", "WARNING")),
    ],
)
def test_a_standby_logs_at_debug_what_every_replica_sees(
    caplog: pytest.LogCaptureFixture, effect: Event, levels: tuple[str, str]
) -> None:
    """Its own evictions and refusals, pauses, and the breaker keep the usual level."""
    gate = FakeGate()
    reporter = LogReporter(gate)
    with caplog.at_level(logging.DEBUG):
        for gate.open in (True, False):
            reporter.report(effect, NOW)
    assert tuple(record.levelname for record in caplog.records) == levels


def storm(seconds: dict[float, int], caplog: pytest.LogCaptureFixture, *, refused: int = 0) -> list[str]:
    """Log this many evictions from node-7 in each second, within 0.9 s, and return the lines."""
    reporter = LogReporter(NoElection())
    with caplog.at_level(logging.INFO):
        for second, count in seconds.items():
            for number in range(count):
                now = Moment(1000.0 + second + 0.9 * number / max(1, count - 1), NOW.server_epoch)
                reporter.report(Evicted(REF, "node-7", EVICT, 0.1), now)
                if number < refused:
                    reporter.report(Refused(REF, "node-7", "no", 1, 0.0, 1.0), now)
    return [line for line in caplog.messages if "node-7:" in line or "was evicted" in line]


def test_twenty_evictions_in_a_second_have_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    """Twenty evictions in a second are no storm."""
    lines = storm({0: 20, 2: 20}, caplog)
    assert len(lines) == 40
    assert all("was evicted" in line for line in lines)


def test_a_storm_has_a_line_a_second_for_its_node_and_a_summary_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    """The first twenty lines are about one pod each; in the storm, evictions and refusals are counted."""
    lines = storm({0: 50, 1: 50, 2: 5, 3.5: 1}, caplog, refused=2)
    assert [line for line in lines if "node-7:" in line] == [
        "node-7: 50 pods evicted in 0.9 s, 2 refused (the last: no)",
        "node-7: 50 pods evicted in 0.9 s, 2 refused (the last: no)",
        "node-7: 5 pods evicted in 0.9 s, 2 refused (the last: no)",
        "the storm is over: node-7: 105 pods evicted in 2.9 s, 6 refused (the last: no)",
    ]
    assert sum("was evicted" in line for line in lines) == 19  # 2 of the first 20 lines are about refusals.


def refusals(reporter: LogReporter, tries: int, second: float) -> None:
    """Refuse fifty pods of node-7, all for the ``tries``-th time, within 0.98 s."""
    for number in range(50):
        now = Moment(1000.0 + second + 0.02 * number, NOW.server_epoch)
        reporter.report(Refused(REF, "node-7", f"no {number}", tries, 0.0, 1.0), now)


def test_a_storm_of_refusals_is_a_storm_too(caplog: pytest.LogCaptureFixture) -> None:
    """A webhook that is down refuses every pod; the line quotes the webhook and has the level of a refusal."""
    with caplog.at_level(logging.WARNING):
        reporter = LogReporter(NoElection())
        refusals(reporter, 1, 0.0)
        refusals(reporter, 2, 1.0)
    assert sum("could not be evicted" in line for line in caplog.messages) == 20
    assert "node-7: 0 pods evicted in 1.0 s, 50 refused (the last: no 49)" in caplog.messages


def test_refusals_that_are_not_logged_make_no_storm(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise many pods that a budget refuses again and again would cause a line each second."""
    with caplog.at_level(logging.INFO):
        reporter = LogReporter(NoElection())
        for second in range(3):
            refusals(reporter, 3, float(second))
    assert caplog.messages == []


def test_a_storm_ends_though_nothing_more_happens(caplog: pytest.LogCaptureFixture) -> None:
    """The summary comes from a timer, not with the next effect."""

    @virtually
    async def play() -> None:
        storm({0: 50}, caplog)
        with caplog.at_level(logging.INFO):
            await asyncio.sleep(2.5)

    play()
    assert "the storm is over: node-7: 50 pods evicted in 0.9 s, 0 refused" in caplog.messages


def test_a_breaker_that_is_open_where_none_is_configured_says_what_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    """A manifest was rolled back in the middle of an incident; the next process says so at its start."""
    with caplog.at_level(logging.INFO):
        LogReporter(NoElection(), has_breaker=False).report(BreakerOpened(Latch(NOW.server_epoch, "a wave")), NOW)
    assert caplog.messages == [
        "the circuit breaker is open: no pod is evicted (since 2024-05-01 10:00:00 UTC: a wave), although no breaker is"
        " configured: it holds until taint-eviction breaker reset"
    ]
