"""Clocks that disagree: the present is the API server's time, and a running countdown uses a monotonic clock."""

from __future__ import annotations

import datetime
import logging
import re
import time
from dataclasses import replace

import freezegun
import pytest
from tests.stage.controlled import QUICK, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, deleted, deletes, tolerates
from tests.stage.waiting import now

from fake_apiserver import ApiServer, WallClock
from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.runtime.clock import ServerClock

# A deadline that moves by an hour is either over at once, or not reached before the test fails.
HOUR = 3600.0
# Long enough for the countdown to start before it ends, on a machine with other work.
TOLERANCE = 4


class SteppedWall:
    """A host's wall clock that can be set."""

    def __init__(self, offset_seconds: float = 0.0) -> None:
        self.offset_seconds = offset_seconds

    def read(self) -> float:
        """Return the time."""
        return time.time() + self.offset_seconds  # noqa: TID251 - this is a host's clock


@pytest.mark.parametrize("offset_seconds", [HOUR, -HOUR], ids=["host ahead", "host behind"])
async def test_host_clock_an_hour_off_moves_no_deadline(
    offset_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds for a taint older than the process and for a new one; the offset is logged and measured."""
    async with ApiServer(seed=1, clock=WallClock(-offset_seconds)) as server:
        add_nodes(server, "before", "added", "after")
        for node in ("before", "added", "after"):
            add_pod(server, node, node, tolerates(2 if node != "after" else 1))
        before_at = now()
        server.taint("before", KEY)
        server.taint("added", KEY, time_added=server.clock.timestamp())
        async with controlling(server, sharpening=True) as running:
            after_at = now()
            server.taint("after", KEY)
            assert await deleted(server, "after") - after_at >= 1.0
            for pod in ("before", "added"):
                assert await deleted(server, pod) - before_at >= 2.0
            assert running.metric("clock_offset_seconds") == pytest.approx(offset_seconds, abs=1.1)
            direction = "ahead of" if offset_seconds > 0 else "behind"
            assert re.search(rf"this host's clock is (3599|3600|3601) s {direction} the API server's", caplog.text)


async def test_one_misdated_answer_of_a_proxy_ends_no_toleration_and_does_not_disable_the_breaker() -> None:
    """After a 502 dated two hours ahead, ten nodes count as newly tainted, and no pod is evicted."""
    settings = replace(QUICK, breaker=BreakerPolicy(enabled=True, settle_seconds=0.0))
    async with ApiServer(seed=1) as server:
        names = [f"n{number}" for number in range(10)]
        add_nodes(server, *names)
        for name in names:
            add_pod(server, name, name, tolerates(300))
        async with controlling(server, settings) as running:
            proxy = server.faults.add(
                resource="configmaps", status=502, html=True, date_ahead_seconds=2 * HOUR, times=1
            )
            await running.until(lambda: proxy.hits)
            added = server.clock.timestamp()
            for name in names:
                server.taint(name, KEY, time_added=added)
            await running.until(lambda: running.metric("pending_evictions") == 10)
            now = running.clock.now()
            pending = list(running.application.engine.live.controller.status.pending(now))
            assert all(-HOUR < pod.decision.fire_at - now.at - 300 <= 1 for pod in pending)
            assert running.metric("newly_tainted_nodes", by="others") == 10
            assert deletes(server) == []


@pytest.mark.parametrize("step_seconds", [HOUR, -HOUR], ids=["forward", "back"])
async def test_host_clock_stepped_during_a_countdown_moves_no_deadline(
    step_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """An NTP daemon, a person or a resumed machine steps the clock; the countdown gets neither shorter nor longer."""
    caplog.set_level(logging.INFO)
    wall = SteppedWall()
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "armed", "n1", tolerates(TOLERANCE))
        add_pod(server, "later", "n2", tolerates(1))
        async with controlling(server, clock=ServerClock(wall=wall.read)) as running:
            armed_at = now()
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            wall.offset_seconds = step_seconds
            later_at = now()
            server.taint("n2", KEY)
            assert await deleted(server, "armed") - armed_at >= TOLERANCE
            assert await deleted(server, "later") - later_at >= 1.0
            assert len(deletes(server)) == 2
            assert running.metric("clock_offset_seconds") == pytest.approx(step_seconds, abs=1.1)


async def test_whole_process_stepped_by_freezegun_moves_no_deadline() -> None:
    """All readers of the host's wall clock in this process see a day pass, but the server's clock does not."""
    real = time.time  # noqa: TID251 - the server's clock continues
    async with ApiServer(seed=1, clock=WallClock(source=real)) as server:
        add_nodes(server, "n1")
        add_pod(server, "armed", "n1", tolerates(TOLERANCE))
        async with controlling(server) as running:
            tainted_at = now()
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            tomorrow = datetime.datetime.fromtimestamp(real(), datetime.UTC) + datetime.timedelta(days=1)
            others = ["tests.stage", "fake_apiserver"]
            with freezegun.freeze_time(tomorrow, real_asyncio=True, ignore=others):
                late = await deleted(server, "armed") - tainted_at
            assert late >= TOLERANCE
            assert len(deletes(server)) == 1


@pytest.mark.parametrize("step_seconds", [HOUR, -HOUR], ids=["forward", "back"])
async def test_server_clock_stepped_during_a_countdown_evicts_nothing_early(step_seconds: float) -> None:
    """Countdowns use the monotonic clock, so a control plane that corrects its time shortens no toleration."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "armed", "n1", tolerates(TOLERANCE))
        async with controlling(server) as running:
            tainted_at = now()
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            server.clock.offset_seconds = step_seconds
            server.watches.cut()
            server.patch("nodes", "n1", {"metadata": {"labels": {"written": "again"}}})
            assert await deleted(server, "armed") - tainted_at >= TOLERANCE
