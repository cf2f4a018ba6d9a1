"""Replicas in simulations: frozen processes, the Lease between replicas, and events that watches repeat."""

import asyncio

import pytest
from tests.simulation.scenario_texts import played

from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_lab.simulation.freezing import FREEZER, Freezer
from taint_eviction_lab.simulation.lease import SimulatedLease
from taint_eviction_lab.simulation.virtual_clock import virtual_now
from taint_eviction_lab.simulation.virtual_loop import run_virtually


def test_a_frozen_process_runs_its_timers_at_the_thaw_in_their_order_but_not_cancelled_ones() -> None:
    """A frozen process behaves as on a suspended machine; other processes go on meanwhile."""
    told: list[str] = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        told.append(f"{seconds:g} at {virtual_now():g}")

    async def main() -> None:
        freezer = Freezer()
        token = FREEZER.set(freezer)
        mine = [asyncio.create_task(sleeper(seconds)) for seconds in (2, 1, 3)]
        handle = asyncio.get_running_loop().call_later(2, told.append, "cancelled")
        FREEZER.reset(token)
        free = asyncio.create_task(sleeper(1.5))
        await asyncio.sleep(0.5)
        freezer.freeze()
        await asyncio.sleep(9.5)
        handle.cancel()
        freezer.thaw()
        await asyncio.gather(*mine, free)

    run_virtually(main())
    assert told == ["1.5 at 1.5", "1 at 10", "2 at 10", "3 at 10"]


def test_a_lease_is_swapped_by_version() -> None:
    """The second writer with the same version gets a conflict, and its record is not stored."""
    lease = SimulatedLease()
    first = lease.swap(LeaseRecord("a", 15, 0.0, 0.0, 0))
    with pytest.raises(CallFailed, match="modified"):
        lease.swap(LeaseRecord("b", 15, 0.0, 0.0, 0))
    assert lease.record == first


def test_events_that_are_repeated_change_nothing() -> None:
    """Although every event arrives several times, also after the pod is gone, the pod is deleted once."""
    text = """
        about: Every event comes three times.
        given:
          nodes: [node-1]
          pods: [{name: web-0, nodeName: node-1, tolerations: [a for 5]}]
        timeline:
          - {at: 1, repeat: {watch: all, for: 60}}
          - {at: 10, taint: "node-1 a:NoExecute"}
          - {at: 12, relist: {watch: all}}
          - {at: 13, delay: {call: delete, back: 2, times: 1}}
        expect:
          web-0: {evicted: 15, deletes: 1}
        """
    assert not played(text).broken
