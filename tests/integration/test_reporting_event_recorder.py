"""Kubernetes events about pods: which of them are posted, aggregated, limited and dropped."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.stage.client import ClientStage, client_stage
from tests.stage.clocks import EPOCH, HandClock
from tests.stage.waiting import PATIENCE_SECONDS

from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.events import Cancelled, Event, Evicted, NodeTainted, Refused, Scheduled, TaintRewritten
from taint_eviction.core.instants import TimeSource
from taint_eviction.core.objects import NamespacedName, PodRef, Taint
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.reporting import event_recorder
from taint_eviction.reporting.event_recorder import EventRecorder, cancelling_deletion, marking_for_deletion
from taint_eviction.reporting.metrics import Metrics
from taint_eviction.reporting.reporters import EventReporter
from taint_eviction.settings import Settings

REASON = "TaintManagerEviction"
TAINT = Taint("k", "NoExecute")
VERDICT = TaintVerdict(TAINT, None, None, 100.0, TimeSource.TIME_ADDED, 100.0)
EVICT = Evict(100.0, VERDICT, (VERDICT,))


class Recording:
    """A running recorder, and its counts."""

    def __init__(self, at: ClientStage) -> None:
        self.at = at
        self.clock = HandClock()
        self.counts: Counter[str] = Counter()
        self.busy = False
        self.recorder = EventRecorder(at.calls, self.clock, "me", self._count, lambda: self.busy)
        self.running = asyncio.create_task(self.recorder.run())

    def _count(self, result: str) -> None:
        self.counts[result] += 1

    def events(self) -> list[dict[str, Any]]:
        """The events on the server."""
        return self.at.server.list("events")

    async def end(self) -> None:
        """Stop the recorder."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@asynccontextmanager
async def recording(directory: Path) -> AsyncIterator[Recording]:
    async with client_stage(directory) as at:
        made = Recording(at)
        yield made
        await made.end()


@pytest.fixture
async def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recording]:
    """A recorder that rests only shortly between its tries."""
    monkeypatch.setattr(event_recorder, "_FIRST_REST_SECONDS", 0.001)
    async with recording(tmp_path) as made:
        yield made


async def test_an_event_is_posted_with_the_pods_uid(on: Recording) -> None:
    """With the UID, ``kubectl describe`` shows the event; component, reason and text are upstream's."""
    ref = on.at.pod()
    on.recorder.post(ref, REASON, marking_for_deletion(ref))
    assert await on.recorder.drain(PATIENCE_SECONDS)
    [event] = on.events()
    at = format_rfc3339(EPOCH + 100.0)
    assert event["involvedObject"] == {
        "kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "web", "uid": ref.uid
    }  # fmt: skip
    assert {key: event[key] for key in ("reason", "message", "type", "count", "firstTimestamp", "lastTimestamp")} == {
        "reason": "TaintManagerEviction",
        "message": "Marking for deletion Pod default/web",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
    }
    assert event["source"] == {"component": "taint-eviction-controller"}
    assert event["reportingComponent"] == "taint-eviction-controller"
    assert event["metadata"]["name"].startswith("web.")
    assert on.counts == {"posted": 1}


async def test_the_same_event_again_increases_the_count_of_the_earlier_one(on: Recording) -> None:
    """Count and lastTimestamp are patched; another message makes another event."""
    ref = on.at.pod()
    for _ in range(3):
        on.recorder.post(ref, REASON, marking_for_deletion(ref))
        on.clock.at += 10.0
    on.recorder.post(ref, REASON, cancelling_deletion(ref))
    assert await on.recorder.drain(PATIENCE_SECONDS)
    told = {event["message"]: (event["count"], event["lastTimestamp"]) for event in on.events()}
    assert told == {
        "Marking for deletion Pod default/web": (3, format_rfc3339(EPOCH + 120.0)),
        "Cancelling deletion of Pod default/web": (1, format_rfc3339(EPOCH + 130.0)),
    }
    assert on.counts == {"posted": 2, "aggregated": 2}


async def test_an_event_is_posted_anew_if_the_earlier_one_no_longer_exists(on: Recording) -> None:
    """On a cluster, events expire after an hour."""
    ref = on.at.pod()
    on.recorder.post(ref, REASON, "x")
    assert await on.recorder.drain(PATIENCE_SECONDS)
    on.at.server.delete("events", on.events()[0]["metadata"]["name"])
    on.recorder.post(ref, REASON, "x")
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert [event["count"] for event in on.events()] == [1]
    assert on.counts == {"posted": 2}


async def test_one_pod_gets_a_burst_of_events_and_then_one_in_five_minutes(on: Recording) -> None:
    """The limit is client-go's; events of other pods are not limited by it."""
    ref = on.at.pod()
    for _ in range(30):
        on.recorder.post(ref, REASON, "x")
    on.recorder.post(ref._replace(uid="other"), REASON, "x")
    assert on.counts["limited"] == 5
    on.clock.at += 299.0
    on.recorder.post(ref, REASON, "x")
    assert on.counts["limited"] == 6
    on.clock.at += 2.0
    on.recorder.post(ref, REASON, "x")
    assert on.counts["limited"] == 6


async def test_events_wait_while_evictions_are_busy(on: Recording) -> None:
    """An event that waited is posted later, with the time at which it happened."""
    on.busy = True
    on.recorder.post(on.at.pod(), REASON, "x")
    assert not await on.recorder.drain(0.2)
    assert on.events() == []
    on.clock.at += 5.0
    on.busy = False
    assert await on.recorder.drain(PATIENCE_SECONDS)
    [event] = on.events()
    assert event["firstTimestamp"] == format_rfc3339(EPOCH + 100.0)


async def test_a_full_queue_drops_the_oldest(on: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Posting an event never blocks."""
    monkeypatch.setattr(event_recorder, "_QUEUE", 2)
    for name in "abcd":
        on.recorder.post(PodRef(NamespacedName("default", name), name), REASON, name)
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert on.counts == {"dropped": 2, "posted": 2}
    assert {event["message"] for event in on.events()} == {"c", "d"}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_refusal_that_may_be_temporary_is_tried_again(on: Recording, status: int) -> None:
    """The event is posted after three refused tries."""
    fault = on.at.server.faults.add(verb="create", resource="events", status=status, times=3)
    on.recorder.post(on.at.pod(), REASON, "x")
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert (fault.hits, on.counts) == (3, {"posted": 1})


async def test_a_try_whose_answer_was_lost_makes_no_second_event(on: Recording) -> None:
    """Each try uses the same name, so the second try finds the event of the first."""
    on.at.server.faults.add(verb="create", resource="events", reset=True, when="after", times=1)
    on.recorder.post(on.at.pod(), REASON, "x")
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert len(on.events()) == 1
    assert on.counts == {"posted": 1}


async def test_permanent_refusals_are_counted_and_logged_only_once(
    on: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """Four refused events give one log line, and the recorder keeps running."""
    on.at.server.faults.add(verb="create", resource="events", status=403, message="no events for you")
    for index in range(4):
        on.recorder.post(PodRef(NamespacedName("default", "p"), str(index)), REASON, "x")
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert on.counts == {"failed": 4}
    assert [record.message for record in caplog.records if "event about" in record.message] == [
        "an event about Pod default/p could not be posted: no events for you (HTTP 403)"
    ]
    assert not on.running.done()


async def test_draining_gives_up_in_time(on: Recording) -> None:
    """A server that hangs does not delay the end of the process."""
    on.at.server.faults.add(verb="create", hang=True)
    on.recorder.post(on.at.pod(), REASON, "x")
    assert not await on.recorder.drain(0.01)


async def test_what_happened_to_a_living_pod_is_posted(on: Recording) -> None:
    """Marking is posted when the deletion is accepted, cancelling if the pod lives on, and nothing if it is gone."""
    ref = on.at.pod()
    reporter, now = EventReporter(on.recorder, Settings()), on.clock.now()
    quiet: list[Event] = [
        NodeTainted("n1"),
        Scheduled(ref, "n1", EVICT),
        Refused(ref, "n1", "no", 1, 0.0, 1.0),
        TaintRewritten("n1", TAINT),
        *(Cancelled(ref, "n1", reason) for reason in (None, StayReason.TERMINATING, StayReason.NODE_UNKNOWN)),
    ]
    for effect in quiet:
        reporter.report(effect, now)
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert on.events() == []
    reporter.report(Evicted(ref, "n1", EVICT, 0.0), now)
    reporter.report(Cancelled(ref, "n1", StayReason.NODE_CLEAN), now)
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert {event["message"] for event in on.events()} == {
        f"Marking for deletion Pod default/web: taint {TAINT} is not tolerated",
        "Cancelling deletion of Pod default/web: its node has no NoExecute taint",
    }


async def test_messages_are_only_upstreams_where_tenants_must_not_learn_taints(on: Recording) -> None:
    """A setting leaves the reason out of the message."""
    reporter, now, ref = EventReporter(on.recorder, Settings(event_reasons=False)), on.clock.now(), on.at.pod()
    reporter.report(Evicted(ref, "n1", EVICT, 0.0), now)
    reporter.report(Cancelled(ref, "n1", StayReason.NODE_CLEAN), now)
    assert await on.recorder.drain(PATIENCE_SECONDS)
    assert {event["message"] for event in on.events()} == {
        "Marking for deletion Pod default/web",
        "Cancelling deletion of Pod default/web",
    }


async def test_long_names_of_pods_make_legal_names_of_events(on: Recording) -> None:
    """Names of events have at most 253 characters, and are unique."""
    ref = PodRef(NamespacedName("default", "p" * 253), "u")
    for message in ("x", "y"):
        on.recorder.post(ref, REASON, message)
    assert await on.recorder.drain(PATIENCE_SECONDS)
    names = {event["metadata"]["name"] for event in on.events()}
    assert len(names) == 2
    assert max(map(len, names)) <= 253


def test_effects_are_counted() -> None:
    """Each effect is counted in its own metric."""
    metrics = Metrics("1.0", Settings())
    ref, now = PodRef(NamespacedName("ns", "p"), "u"), HandClock().now()
    for effect in (
        Evicted(ref, "n1", EVICT, 2.0),
        Refused(ref, "n1", "no", 1, 0.0, 1.0),
        Cancelled(ref, "n1", None),
        TaintRewritten("n1", TAINT),
        NodeTainted("n1"),
    ):
        metrics.report(effect, now)
    names = ("pod_deletions_total", "cancelled_total", "taints_rewritten_total")
    values = [metrics.registry.get_sample_value(f"taint_eviction_controller_{name}") for name in names]
    assert values == [1, 1, 1]
