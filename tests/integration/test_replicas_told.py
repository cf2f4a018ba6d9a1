"""Two replicas observe the same; only the leader reports it in events, in counters, and in the log at INFO."""

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
    """The messages of events, counters by replica, and the kinds of log lines about pods by replica."""

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
    """One pod is evicted, and the eviction of another is cancelled by an untaint."""
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
    """Run it once for all tests."""
    return asyncio.run(play(tmp_path_factory.mktemp("told")))


def test_each_event_is_posted_once(story: ToldStory) -> None:
    """The standby posts no events about what the leader has posted."""
    assert [event.partition(": ")[0] for event in story.events] == [
        "Cancelling deletion of Pod default/stays",
        "Marking for deletion Pod default/goes",
    ]


def test_only_the_leader_counts(story: ToldStory) -> None:
    """A sum over replicas stays right, although to the standby the eviction of the deleted pod looks cancelled, too."""
    assert story.cancelled == (1, 0)


def test_each_replica_reports_its_own_pending_evictions(story: ToldStory) -> None:
    """The gauge is a fact about one process, whether it leads or not."""
    assert story.pending == (1, 1)


def test_the_standby_logs_nothing_about_pods(story: ToldStory) -> None:
    """A person who reads the logs of both at INFO finds each line once."""
    assert story.logs == (["cancelled", "evicted", "scheduled"], [])
