"""Leaders that are frozen or cut off: without the Lease a replica changes nothing, and the next misses nothing."""

import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.stage.replicas import QUICK_ELECTION, ReplicaProcess, Theatre, theatre
from tests.stage.waiting import now, sleep_until, until

# Requests sent just before may still arrive.
_ON_THE_WIRE_SECONDS = 2.0
# Another replica leads by then.
WOKEN_AFTER_SECONDS = 17
# The duration of each write of the Lease in the run with the frozen leader.
RENEWAL_SECONDS = 0.2


@dataclass
class OutageStory:
    """What happened to ``first``, which led, and to ``second``."""

    on: Theatre
    first: ReplicaProcess
    second: ReplicaProcess
    at: dict[str, float] = field(default_factory=dict)
    leads: dict[str, tuple[bool, bool]] = field(default_factory=dict)

    def mark(self, instant: str) -> None:
        """Record the time of an instant."""
        self.at[instant] = now()

    async def note(self, instant: str) -> None:
        """Record which replica says that it leads."""
        self.leads[instant] = (await self.first.leads(), await self.second.leads())

    def assert_each_went_once_and_never_early(self) -> None:
        """Check all pods that were due."""
        for name, due_at in self.on.due_at.items():
            entries = self.on.calls(verb="delete", resource="pods", name=name)
            assert [entry.code for entry in entries] == [200], name
            assert entries[0].arrived_at >= due_at, name


async def both(on: Theatre) -> OutageStory:
    """Start both replicas; ``first`` leads."""
    first = await on.open("first", *QUICK_ELECTION)
    await until(first.leads)
    return OutageStory(on, first, await on.open("second", *QUICK_ELECTION))


def begun(on: Theatre, replica: ReplicaProcess) -> set[str]:
    """Return the names of pods that a replica has marked and not deleted so far."""
    entries = on.changes(replica)
    marked = {entry.name for entry in entries if entry.resource == "pods/status"}
    return marked - {entry.name for entry in entries if entry.verb == "delete"}


def renewing(on: Theatre, replica: ReplicaProcess) -> bool:
    """Return whether a renewal of the Lease is in progress."""
    return any(entry.code is None for entry in on.calls(replica, verb="update"))


async def freeze(directory: Path) -> OutageStory:
    """Freeze the leader during evictions and a renewal; wake it when another replica leads and pods become due."""
    async with theatre(directory) as on:
        nodes = [f"node-{number}" for number in range(10)]
        for node in nodes:
            on.add_node(node)
            for seconds in (1, 3, 5, WOKEN_AFTER_SECONDS, WOKEN_AFTER_SECONDS + 1):
                on.add_pod(f"{node}-{seconds}", node, seconds)
        story = await both(on)
        # These delays ensure that at any time some pods are marked and not deleted, and that renewals are in progress.
        on.server.faults.add(verb="patch", resource="pods/status", delay_seconds=0.3)
        on.server.faults.add(verb="update", resource="leases", delay_seconds=RENEWAL_SECONDS)
        begun_at = now()
        for number, node in enumerate(nodes):
            await sleep_until(begun_at + number / len(nodes))
            on.taint(node)
        await sleep_until(begun_at + 1.1)
        await until(lambda: bool(begun(on, story.first)) and renewing(on, story.first))
        story.first.signal(signal.SIGSTOP)
        story.mark("frozen")
        await until(lambda: on.won_at(story.second) < now())
        await sleep_until(begun_at + WOKEN_AFTER_SECONDS)
        story.mark("woken")
        story.first.signal(signal.SIGCONT)
        await until(on.all_gone)
        await asyncio.sleep(0.5)
        await story.note("in the end")
        return story


async def part(directory: Path) -> OutageStory:
    """Cut off the leader, and reconnect it; cut off both replicas, and reconnect them."""
    async with theatre(directory) as on:
        for node in ("node-1", "node-2"):
            on.add_node(node)
            for number in range(5):
                on.add_pod(f"{node}-{number}", node, 1)
        story = await both(on)
        story.first.line.cut()
        story.mark("first cut off")
        on.taint("node-1")
        await until(lambda: not_leading(story.first))
        story.mark("first gave up")
        await until(on.all_gone)
        story.first.line.mend()
        await until(lambda: story.first.said("the lease: ") or story.first.said("did not answer"))
        await asyncio.sleep(1.0)
        await story.note("first mended")
        for replica in (story.first, story.second):
            replica.line.cut()
        story.mark("both cut off")
        on.taint("node-2")
        await until(lambda: not_leading(story.second))
        await sleep_until(on.due_at["node-2-0"] + 0.5)
        await story.note("both cut off")
        story.mark("both mended")
        for replica in (story.first, story.second):
            replica.line.mend()
        await until(on.all_gone)
        await asyncio.sleep(0.5)
        await story.note("both mended")
        return story


async def not_leading(replica: ReplicaProcess) -> bool:
    """Return whether a replica's metrics say that it does not lead."""
    return not await replica.leads()


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> tuple[OutageStory, OutageStory]:
    """Run both, once for all tests and at the same time."""

    async def play() -> tuple[OutageStory, OutageStory]:
        return await asyncio.gather(freeze(tmp_path_factory.mktemp("freeze")), part(tmp_path_factory.mktemp("part")))

    return asyncio.run(play())


@pytest.fixture(scope="module")
def frozen(stories: tuple[OutageStory, OutageStory]) -> OutageStory:
    """The run with the frozen leader."""
    return stories[0]


@pytest.fixture(scope="module")
def parted(stories: tuple[OutageStory, OutageStory]) -> OutageStory:
    """The run with the cut connections."""
    return stories[1]


def test_the_leader_is_frozen_during_evictions_and_a_renewal(frozen: OutageStory) -> None:
    """It had marked pods without deleting them, and its renewal was answered while it was frozen."""
    before = [entry for entry in frozen.on.changes(frozen.first) if entry.arrived_at < frozen.at["frozen"]]
    marked = {entry.name for entry in before if entry.resource == "pods/status"}
    assert marked - {entry.name for entry in before if entry.verb == "delete"}
    renewals = frozen.on.calls(frozen.first, verb="update", resource="leases")
    assert [entry.code for entry in renewals if entry.arrived_at < frozen.at["frozen"]][-1] == 200


def test_a_frozen_leader_that_wakes_changes_no_pod(frozen: OutageStory) -> None:
    """It neither continues what it had begun, nor evicts the pods that are due when it wakes."""
    assert frozen.on.changes(frozen.first, since=frozen.at["frozen"] + _ON_THE_WIRE_SECONDS) == []
    assert frozen.first.said("no longer leads")
    soon = [due_at for due_at in frozen.on.due_at.values() if 0.0 < due_at - frozen.at["woken"] < 2.0]
    assert len(soon) >= 3


def test_the_other_replica_completes_what_a_frozen_leader_has_begun(frozen: OutageStory) -> None:
    """Each pod is deleted once, and none before its deadline."""
    frozen.assert_each_went_once_and_never_early()
    assert frozen.leads["in the end"] == (False, True)


def test_a_leader_without_the_api_server_stops_leading_before_another_leads(parted: OutageStory) -> None:
    """The renew deadline is shorter than the lease duration, so two replicas never lead at the same time."""
    assert parted.at["first gave up"] < parted.on.won_at(parted.second) < float("inf")


def test_a_leader_that_was_cut_off_becomes_a_standby(parted: OutageStory) -> None:
    """It finds the other replica leading, and changes no pod until it leads again."""
    assert parted.leads["first mended"] == (False, True)
    assert [
        entry
        for entry in parted.on.changes(parted.first, since=parted.at["first cut off"] + _ON_THE_WIRE_SECONDS)
        if entry.arrived_at < parted.at["both mended"]
    ] == []


def test_no_replica_leads_while_both_are_cut_off(parted: OutageStory) -> None:
    """Neither says that it leads, and nothing changes although pods are due."""
    assert parted.leads["both cut off"] == (False, False)
    since = parted.at["both cut off"] + _ON_THE_WIRE_SECONDS
    assert [entry for entry in parted.on.changes(since=since) if entry.arrived_at < parted.at["both mended"]] == []


def test_exactly_one_replica_leads_and_acts_after_both_were_cut_off(parted: OutageStory) -> None:
    """Pods whose node was tainted meanwhile are evicted, too."""
    assert sorted(parted.leads["both mended"]) == [False, True]
    actors = {parted.on.callers[entry.number] for entry in parted.on.changes(since=parted.at["both mended"])}
    assert len(actors) == 1
    parted.assert_each_went_once_and_never_early()
