"""Leaders that are frozen or cut off: whoever has lost the Lease changes nothing, whoever gets it misses nothing."""

import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.stage.replicas import QUICK_ELECTION, ReplicaProcess, Theatre, theatre
from tests.stage.waiting import now, sleep_until, until

# What was sent just before may still be arriving.
_ON_THE_WIRE_SECONDS = 2.0
# Another leads by then.
WOKEN_AFTER_SECONDS = 17
# How long each write of the Lease takes in the story of the frozen leader.
RENEWAL_SECONDS = 0.2


@dataclass
class OutageStory:
    """What happened to ``first``, which led, and ``second``."""

    on: Theatre
    first: ReplicaProcess
    second: ReplicaProcess
    at: dict[str, float] = field(default_factory=dict)
    leads: dict[str, tuple[bool, bool]] = field(default_factory=dict)

    def mark(self, instant: str) -> None:
        """Remember when something was done."""
        self.at[instant] = now()

    async def note(self, instant: str) -> None:
        """Remember what both say about leading."""
        self.leads[instant] = (await self.first.leads(), await self.second.leads())

    def assert_each_went_once_and_never_early(self) -> None:
        """Look at all pods that were due."""
        for name, due_at in self.on.due_at.items():
            entries = self.on.calls(verb="delete", resource="pods", name=name)
            assert [entry.code for entry in entries] == [200], name
            assert entries[0].arrived_at >= due_at, name


async def both(on: Theatre) -> OutageStory:
    """Open both; ``first`` leads."""
    first = await on.open("first", *QUICK_ELECTION)
    await until(first.leads)
    return OutageStory(on, first, await on.open("second", *QUICK_ELECTION))


def begun(on: Theatre, replica: ReplicaProcess) -> set[str]:
    """Name the pods that it has marked and not deleted so far."""
    entries = on.changes(replica)
    marked = {entry.name for entry in entries if entry.resource == "pods/status"}
    return marked - {entry.name for entry in entries if entry.verb == "delete"}


def renewing(on: Theatre, replica: ReplicaProcess) -> bool:
    """Tell whether a renewal of the Lease is on its way."""
    return any(entry.code is None for entry in on.calls(replica, verb="update"))


async def freeze(directory: Path) -> OutageStory:
    """Freeze the leader in the middle of evictions and of a renewal; wake it when another leads and pods come due."""
    async with theatre(directory) as on:
        nodes = [f"node-{number}" for number in range(10)]
        for node in nodes:
            on.add_node(node)
            for seconds in (1, 3, 5, WOKEN_AFTER_SECONDS, WOKEN_AFTER_SECONDS + 1):
                on.add_pod(f"{node}-{seconds}", node, seconds)
        story = await both(on)
        # So that at any time pods are marked and not yet deleted, and that a renewal can be met on its way.
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
    """Cut the leader off, then mend; cut both off, then mend."""
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
    """Ask its metrics."""
    return not await replica.leads()


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> tuple[OutageStory, OutageStory]:
    """Play both, once and at the same time."""

    async def play() -> tuple[OutageStory, OutageStory]:
        return await asyncio.gather(freeze(tmp_path_factory.mktemp("freeze")), part(tmp_path_factory.mktemp("part")))

    return asyncio.run(play())


@pytest.fixture(scope="module")
def frozen(stories: tuple[OutageStory, OutageStory]) -> OutageStory:
    """The story of the frozen leader."""
    return stories[0]


@pytest.fixture(scope="module")
def parted(stories: tuple[OutageStory, OutageStory]) -> OutageStory:
    """The story of the cut lines."""
    return stories[1]


def test_a_frozen_leader_was_in_the_middle_of_evictions_and_of_a_renewal(frozen: OutageStory) -> None:
    """It had marked pods that it had not deleted when it was stopped; the renewal was answered while it slept."""
    before = [entry for entry in frozen.on.changes(frozen.first) if entry.arrived_at < frozen.at["frozen"]]
    marked = {entry.name for entry in before if entry.resource == "pods/status"}
    assert marked - {entry.name for entry in before if entry.verb == "delete"}
    renewals = frozen.on.calls(frozen.first, verb="update", resource="leases")
    assert [entry.code for entry in renewals if entry.arrived_at < frozen.at["frozen"]][-1] == 200


def test_a_frozen_leader_that_wakes_changes_no_pod(frozen: OutageStory) -> None:
    """Neither what it was about to do, nor what is due when it wakes."""
    assert frozen.on.changes(frozen.first, since=frozen.at["frozen"] + _ON_THE_WIRE_SECONDS) == []
    assert frozen.first.said("no longer leads")
    soon = [due_at for due_at in frozen.on.due_at.values() if 0.0 < due_at - frozen.at["woken"] < 2.0]
    assert len(soon) >= 3


def test_the_other_one_completes_what_a_frozen_leader_has_begun(frozen: OutageStory) -> None:
    """Every pod is deleted once, and none before its deadline."""
    frozen.assert_each_went_once_and_never_early()
    assert frozen.leads["in the end"] == (False, True)


def test_a_leader_without_the_api_server_gives_up_before_another_leads(parted: OutageStory) -> None:
    """The renew deadline is shorter than the lease: never do two believe that they may act."""
    assert parted.at["first gave up"] < parted.on.won_at(parted.second) < float("inf")


def test_a_leader_that_was_cut_off_is_a_standby_afterwards(parted: OutageStory) -> None:
    """It finds the other one leading, and changes no pod until it leads again."""
    assert parted.leads["first mended"] == (False, True)
    assert [
        entry
        for entry in parted.on.changes(parted.first, since=parted.at["first cut off"] + _ON_THE_WIRE_SECONDS)
        if entry.arrived_at < parted.at["both mended"]
    ] == []


def test_with_both_cut_off_nobody_leads(parted: OutageStory) -> None:
    """Neither says so, and nothing changes though pods are due."""
    assert parted.leads["both cut off"] == (False, False)
    since = parted.at["both cut off"] + _ON_THE_WIRE_SECONDS
    assert [entry for entry in parted.on.changes(since=since) if entry.arrived_at < parted.at["both mended"]] == []


def test_after_both_were_cut_off_exactly_one_leads_and_acts(parted: OutageStory) -> None:
    """And misses nothing of what was tainted meanwhile."""
    assert sorted(parted.leads["both mended"]) == [False, True]
    actors = {parted.on.callers[entry.number] for entry in parted.on.changes(since=parted.at["both mended"])}
    assert len(actors) == 1
    parted.assert_each_went_once_and_never_early()
