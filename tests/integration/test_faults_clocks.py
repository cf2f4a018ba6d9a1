"""Clocks that disagree: now is the API server's time, and what already runs, runs on a clock that nobody can step."""

from __future__ import annotations

import datetime
import logging
import re
import time

import freezegun
import pytest
from faults_stage import (
    KEY,
    PROMPT_SECONDS,
    add_nodes,
    add_pod,
    controlling,
    deleted,
    deletes,
    monotonic,
    tolerates,
)

from taint_eviction.runtime.clock import ServerClock
from taint_eviction.simulation.apiserver import ApiServer
from taint_eviction.simulation.apiserver import ServerClock as ApiServerClock

HOUR = 3600.0
CUT_OFF_SECONDS = 1.0


class SteppedWall:
    """A host's wall clock that can be set."""

    def __init__(self, offset_seconds: float = 0.0) -> None:
        self.offset_seconds = offset_seconds

    def read(self) -> float:
        """Read it."""
        return time.time() + self.offset_seconds  # noqa: TID251 - this is a host's clock


@pytest.mark.parametrize("offset_seconds", [HOUR, -HOUR], ids=["host ahead", "host behind"])
async def test_host_clock_an_hour_off_moves_no_deadline(
    offset_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither that of a taint that was there before the start nor that of a new one; it is told and measured."""
    async with ApiServer(seed=1, clock=ApiServerClock(-offset_seconds)) as server:
        add_nodes(server, "before", "added", "after")
        for node in ("before", "added", "after"):
            add_pod(server, node, node, tolerates(2 if node != "after" else 1))
        before_at = monotonic()
        server.taint("before", KEY)
        server.taint("added", KEY, time_added=server.clock.timestamp())
        async with controlling(server, sharpening=True) as running:
            after_at = monotonic()
            server.taint("after", KEY)
            assert 1.0 <= await deleted(server, "after") - after_at < 1.0 + PROMPT_SECONDS
            for pod in ("before", "added"):
                late = await deleted(server, pod) - before_at
                assert 2.0 <= late < 2.0 + CUT_OFF_SECONDS + PROMPT_SECONDS
            assert running.metric("clock_offset_seconds") == pytest.approx(offset_seconds, abs=1.1)
            direction = "ahead of" if offset_seconds > 0 else "behind"
            assert re.search(rf"this host's clock is (3599|3600|3601) s {direction} the API server's", caplog.text)


@pytest.mark.parametrize("step_seconds", [HOUR, -HOUR], ids=["forward", "back"])
async def test_host_clock_stepped_while_armed_moves_no_deadline(
    step_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """By an NTP daemon, an operator, a resumed machine: the tolerance that runs is neither cut nor lengthened."""
    caplog.set_level(logging.INFO)
    wall = SteppedWall()
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "armed", "n1", tolerates(1))
        add_pod(server, "later", "n2", tolerates(1))
        async with controlling(server, clock=ServerClock(wall=wall.read)) as running:
            armed_at = monotonic()
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            wall.offset_seconds = step_seconds
            later_at = monotonic()
            server.taint("n2", KEY)
            assert 1.0 <= await deleted(server, "armed") - armed_at < 1.0 + PROMPT_SECONDS
            assert 1.0 <= await deleted(server, "later") - later_at < 1.0 + PROMPT_SECONDS
            assert len(deletes(server)) == 2
            assert running.metric("clock_offset_seconds") == pytest.approx(step_seconds, abs=1.1)


async def test_whole_process_stepped_by_freezegun_moves_no_deadline() -> None:
    """Every reader of the host's wall clock in this process sees a day pass; the server's clock does not."""
    real = time.time  # noqa: TID251 - the server's clock goes on
    async with ApiServer(seed=1, clock=ApiServerClock(source=real)) as server:
        add_nodes(server, "n1")
        add_pod(server, "armed", "n1", tolerates(1))
        async with controlling(server) as running:
            tainted_at = monotonic()
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            tomorrow = datetime.datetime.fromtimestamp(real(), datetime.UTC) + datetime.timedelta(days=1)
            others = ["faults_stage", "taint_eviction.simulation"]
            with freezegun.freeze_time(tomorrow, real_asyncio=True, ignore=others):
                late = await deleted(server, "armed") - tainted_at
            assert 1.0 <= late < 1.0 + PROMPT_SECONDS
            assert len(deletes(server)) == 1


@pytest.mark.parametrize("step_seconds", [HOUR, -HOUR], ids=["forward", "back"])
async def test_servers_clock_stepped_while_armed_kills_nothing_early(step_seconds: float) -> None:
    """Sightings and waiting live on the monotonic clock: a control plane that corrects its time cuts no tolerance."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "armed", "n1", tolerates(1))
        async with controlling(server) as running:
            tainted_at = monotonic()
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            server.clock.offset_seconds = step_seconds
            server.watches.cut()
            server.patch("nodes", "n1", {"metadata": {"labels": {"written": "again"}}})
            assert 1.0 <= await deleted(server, "armed") - tainted_at < 1.0 + PROMPT_SECONDS
