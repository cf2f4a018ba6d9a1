"""The last outcomes are kept in a ConfigMap, and restored by the next leader."""

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.stage.client import ClientStage, client_stage
from tests.stage.clocks import HandClock
from tests.stage.waiting import until
from tests.unit.builders import Stage, node, pod, ref, taint
from tests.unit.runtime_fakes import FakeGate

from fake_apiserver.faults import Fault
from taint_eviction.core.events import Evicted
from taint_eviction.core.objects import NamespacedName
from taint_eviction.reporting.outcome_keeper import OutcomeKeeper
from taint_eviction.reporting.outcome_memory import OutcomeMemory

KEY = NamespacedName("kube-system", "taint-eviction-controller-history")


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A server without the ConfigMap."""
    async with client_stage(tmp_path) as made:
        yield made


@dataclass
class Keeping:
    """A process that keeps outcomes, its clock, and the results that were counted."""

    keeper: OutcomeKeeper
    memory: OutcomeMemory
    gate: FakeGate
    clock: HandClock
    counted: list[str] = field(default_factory=list)

    def evicts(self, *names: str) -> None:
        """Remember evictions of pods; their names are their UIDs."""
        on = Stage()
        on.sees(node(taint()), pod())
        decision = on.take_eviction().decision
        for name in names:
            self.memory.report(Evicted(ref(name, name), "n1", decision, 0.0), self.clock.now())

    @property
    def known(self) -> list[str]:
        """The pods whose outcomes are remembered, the newest first."""
        return [each.ref.uid for each in self.memory.newest()]

    async def writes(self) -> bool:
        """Write what is new, as at the end of the process."""
        return await self.keeper.drain(10.0)


def process(at: ClientStage, name: str = "replica-1", *, reasons: bool = True, dry_run: bool = False) -> Keeping:
    """Make a process that leads."""
    gate, clock, counted = FakeGate(), HandClock(), list[str]()
    memory = OutcomeMemory(clock.at)
    keeper = OutcomeKeeper(
        at.calls,
        clock,
        gate,
        memory,
        KEY,
        identity=name,
        reasons=reasons,
        dry_run=dry_run,
        counted=counted.append,
    )
    return Keeping(keeper, memory, gate, clock, counted)


def kept(at: ClientStage) -> dict[str, Any]:
    """The ConfigMap."""
    found = at.server.get("configmaps", KEY.name, KEY.namespace)
    assert found is not None
    return found


def rows(at: ClientStage) -> list[dict[str, Any]]:
    """The outcomes in the ConfigMap."""
    text = gzip.decompress(base64.b64decode(kept(at)["binaryData"]["outcomes.jsonl.gz"]))
    return [json.loads(line) for line in text.splitlines()]


def requests(at: ClientStage) -> list[str]:
    """The verbs of the requests about the ConfigMap."""
    return [entry.verb for entry in at.server.requests.select(resource="configmaps")]


async def test_what_one_process_keeps_the_next_one_restores(at: ClientStage) -> None:
    """It continues: what it writes has both."""
    first = process(at)
    first.evicts("a", "b")
    assert await first.writes()
    second = process(at, "replica-2")
    second.clock.at += 10.0
    assert await second.writes()
    assert second.known == ["b", "a"]
    assert second.counted == []  # There was nothing new to write.
    second.evicts("c")
    assert await second.writes()
    assert [(row["uid"], row["toldBy"]) for row in rows(at)] == [
        ("c", "replica-2"),
        ("b", "replica-1"),
        ("a", "replica-1"),
    ]
    assert kept(at)["data"]["since"] == "2030-03-17T17:48:20Z"
    assert kept(at)["data"]["writer"] == "replica-2"
    assert requests(at) == ["get", "create", "get", "patch"]


async def test_a_late_write_of_a_former_leader_erases_nothing(at: ClientStage) -> None:
    """Its version is not the newest, so it reads and merges; the outcomes of both are kept."""
    before, after = process(at), process(at, "replica-2")
    before.evicts("a")
    await before.writes()
    after.evicts("b")
    await after.writes()
    before.evicts("c")
    assert await before.writes()
    assert {row["uid"] for row in rows(at)} == {"a", "b", "c"}
    assert requests(at)[-3:] == ["patch", "get", "patch"]


async def test_two_processes_that_create_it_at_once_keep_the_outcomes_of_both(at: ClientStage) -> None:
    """The one that comes second reads what the first has created."""
    both = process(at), process(at, "replica-2")
    for name, each in zip("ab", both, strict=True):
        each.evicts(name)
    assert all(await asyncio.gather(*(each.writes() for each in both)))
    assert {row["uid"] for row in rows(at)} == {"a", "b"}


async def test_a_process_that_does_not_lead_reads_and_writes_nothing(at: ClientStage) -> None:
    """A standby remembers, too, and the leader's word counts."""
    standby = process(at)
    standby.gate.open = False
    standby.evicts("a")
    assert not await standby.writes()
    assert requests(at) == []


async def test_a_leader_that_was_a_standby_reads_again(at: ClientStage) -> None:
    """Another leader has written meanwhile."""
    first, second = process(at), process(at, "replica-2")
    first.evicts("a")
    await first.writes()
    second.evicts("b")
    await second.writes()
    first.gate.term += 1
    await first.writes()
    assert set(first.known) == {"a", "b"}


async def test_it_is_written_once_a_minute_while_there_is_something_new(at: ClientStage) -> None:
    """The first reading comes at once."""
    one = process(at)
    running = asyncio.create_task(one.keeper.run())
    try:
        await until(lambda: requests(at) == ["get"])
        one.evicts("a")
        await asyncio.sleep(1.2)
        assert requests(at) == ["get"]
        one.clock.at += 60.0
        await until(lambda: requests(at) == ["get", "create"])
        one.clock.at += 60.0
        await asyncio.sleep(1.2)
        assert requests(at) == ["get", "create"]
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_failed_write_is_counted_seen_and_made_again(at: ClientStage, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody may have taken the right away; that ends when it is there again."""
    one = process(at)
    one.evicts("a")
    at.server.faults.add(verb="create", resource="configmaps", status=403, times=1)
    with caplog.at_level(logging.INFO):
        assert not await one.writes()
        one.clock.at += 60.0
        assert (one.counted, one.keeper.unkept_seconds()) == (["failed"], 60.0)
        assert await one.writes()
    assert (one.counted, one.keeper.unkept_seconds()) == (["failed", "written"], 0.0)
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith(f"the last outcomes cannot be kept in ConfigMap {KEY}: ")
    assert said[1] == f"the last outcomes are kept in ConfigMap {KEY} again"


async def test_nothing_is_written_before_what_is_there_was_read(at: ClientStage) -> None:
    """Otherwise a leader that cannot read would erase what the leaders before it have kept."""
    first = process(at)
    first.evicts("a")
    await first.writes()
    second = process(at, "replica-2")
    second.evicts("b")
    fault: Fault = at.server.faults.add(verb="get", resource="configmaps", status=500)
    assert not await second.writes()
    assert (second.counted, second.keeper.restored_from()) == (["failed"], None)
    at.server.faults.remove(fault)
    assert await second.writes()
    assert {row["uid"] for row in rows(at)} == {"a", "b"}
    assert second.keeper.restored_from() == str(KEY)


async def test_a_write_that_hangs_keeps_the_end_of_the_process_for_a_bounded_time(at: ClientStage) -> None:
    """The Lease is released after that."""
    one = process(at)
    one.evicts("a")
    at.server.faults.add(resource="configmaps", hang=True)
    assert not await asyncio.wait_for(one.keeper.drain(0.2), 5.0)


async def test_a_write_whose_answer_was_lost_is_merged_with_itself(at: ClientStage) -> None:
    """The version that this process knows is not the newest any more."""
    one = process(at)
    one.evicts("a")
    await one.writes()
    one.evicts("b")
    at.server.faults.add(verb="patch", resource="configmaps", when="after", reset=True, times=1)
    assert not await one.writes()
    assert await one.writes()
    assert [row["uid"] for row in rows(at)] == ["b", "a"]


async def test_what_cannot_be_read_is_dropped_with_one_line(at: ClientStage, caplog: pytest.LogCaptureFixture) -> None:
    """The leader goes on, and writes its own."""
    first = process(at)
    first.evicts("a")
    await first.writes()
    spoilt = {"binaryData": {"outcomes.jsonl.gz": base64.b64encode(b"nonsense").decode()}}
    at.server.patch("configmaps", KEY.name, spoilt, KEY.namespace)
    second = process(at, "replica-2")
    second.evicts("b")
    assert await second.writes()
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert (
        line == f"the outcomes in ConfigMap {KEY} are dropped: binaryData.outcomes.jsonl.gz is not compressed by gzip"
    )
    assert [row["uid"] for row in rows(at)] == ["b"]


async def test_one_outcome_that_cannot_be_read_is_dropped_and_the_others_are_restored(
    at: ClientStage, caplog: pytest.LogCaptureFixture
) -> None:
    """The log counts them."""
    first = process(at)
    first.evicts("a", "b")
    await first.writes()
    lines = [json.dumps({**row, "time": "never"} if row["uid"] == "a" else row) for row in rows(at)]
    packed = base64.b64encode(gzip.compress("".join(f"{line}\n" for line in lines).encode())).decode()
    at.server.patch("configmaps", KEY.name, {"binaryData": {"outcomes.jsonl.gz": packed}}, KEY.namespace)
    second = process(at, "replica-2")
    await second.writes()
    assert second.known == ["b"]
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line == f"1 outcomes in ConfigMap {KEY} cannot be read, and are dropped"


async def test_a_config_map_that_somebody_deletes_is_written_again(at: ClientStage) -> None:
    """The next write creates it, with all that is remembered."""
    one = process(at)
    one.evicts("a")
    await one.writes()
    at.server.delete("configmaps", KEY.name, KEY.namespace)
    one.evicts("b")
    assert await one.writes()
    assert [row["uid"] for row in rows(at)] == ["b", "a"]


async def test_without_reasons_no_taint_key_is_written_and_a_dry_run_says_what_it_is(at: ClientStage) -> None:
    """Also where a former leader has written them."""
    first = process(at)
    first.evicts("a")
    await first.writes()
    assert rows(at)[0]["taint"] == str(taint())
    second = process(at, "replica-2", reasons=False, dry_run=True)
    second.evicts("b")
    await second.writes()
    assert [row["taint"] for row in rows(at)] == [None, None]
    assert kept(at)["data"]["dryRun"] == "true"
