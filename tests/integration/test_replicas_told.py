"""Two replicas see the same; the leader alone tells it: in events, in counters, and in the log at INFO."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.stage.objects import KEY
from tests.stage.replicas import QUICK_ELECTION, ReplicaProcess, theatre
from tests.stage.waiting import until


@dataclass
class ToldStory:
    """What was told: messages of events, counters by replica, and what each log says of pods."""

    events: list[str]
    cancelled: tuple[float, float]
    pending: tuple[float, float]
    logs: tuple[list[str], list[str]]


async def sample(replica: ReplicaProcess, name: str) -> float:
    """Return a metric without labels."""
    _, text = await replica.get("/metrics")
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return next(sample.value for sample in samples if sample.name == f"taint_eviction_controller_{name}")


async def play(directory: Path) -> ToldStory:
    """One pod goes, another one would have to but for the taint that is taken back."""
    async with theatre(directory) as on:
        on.add_node("a")
        on.add_pod("goes", "a")
        on.add_pod("stays", "a", 600)
        leader = await on.open("first", *QUICK_ELECTION)
        await until(leader.leads)
        standby = await on.open("second", *QUICK_ELECTION)
        both = (leader, standby)
        on.taint("a")

        async def pending(replica: ReplicaProcess) -> float:
            return await sample(replica, "pending_evictions")

        async def both_know() -> bool:
            return on.is_gone("goes") and [await pending(replica) for replica in both] == [1, 1]

        async def none_is_left() -> bool:
            return [await pending(replica) for replica in both] == [0, 0]

        await until(both_know)
        counted = (await pending(leader), await pending(standby))
        on.server.untaint("a", KEY)
        await until(none_is_left)
        await until(lambda: len(on.server.list("events")) >= 2)
        await asyncio.sleep(0.5)
        told = [sorted({line["what"] for line in replica.lines if "pod" in line}) for replica in both]
        return ToldStory(
            sorted(event["message"] for event in on.server.list("events")),
            (await sample(leader, "cancelled_total"), await sample(standby, "cancelled_total")),
            counted,
            (told[0], told[1]),
        )


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> ToldStory:
    """Play it, once."""
    return asyncio.run(play(tmp_path_factory.mktemp("told")))


def test_each_event_is_posted_once(story: ToldStory) -> None:
    """Nothing of what the leader has told is told again by the standby."""
    assert [event.partition(": ")[0] for event in story.events] == [
        "Cancelling deletion of Pod default/stays",
        "Marking for deletion Pod default/goes",
    ]


def test_the_leader_alone_counts(story: ToldStory) -> None:
    """A sum over the replicas is right: to the standby the pod that went was called off, too."""
    assert story.cancelled == (1, 0)


def test_each_keeps_the_state_of_its_own_view(story: ToldStory) -> None:
    """How many pods are pending is asked of a process, leading or not."""
    assert story.pending == (1, 1)


def test_the_standby_says_nothing_of_pods(story: ToldStory) -> None:
    """Whoever reads both logs at INFO finds each line once."""
    assert story.logs == (["cancelled", "evicted", "scheduled"], [])
