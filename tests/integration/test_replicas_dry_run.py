"""A dry run from a shell beside a dry run in the cluster: both decide, and neither prevents the other from deciding."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.stage.replicas import theatre
from tests.stage.waiting import until

from fake_apiserver.status import JsonObject

SHADOW = "taint-eviction-controller-dry-run"


@dataclass
class DryRunStory:
    """What each dry run logged, and the Leases at the end."""

    said: tuple[list[str], list[str]]
    alone: tuple[bool, bool]
    leases: list[JsonObject]
    codes: list[int]


async def play(directory: Path) -> DryRunStory:
    """Run both with one pod that would be evicted."""
    async with theatre(directory) as on:
        on.add_node("a")
        on.add_pod("goes", "a")
        shadow = await on.open("shadow", "--dry-run", f"--leader-elect-resource-name={SHADOW}")
        await until(shadow.leads)
        shell = await on.open("shell", "--dry-run")
        both = (shadow, shell)
        on.taint("a")
        await until(lambda: all(replica.said("dry run: pod default/goes") for replica in both))
        await asyncio.sleep(0.5)
        said = [[line["what"] for line in replica.lines if line.get("pod") == "default/goes"] for replica in both]
        codes = [await replica.end() for replica in both]
        alone = [bool(replica.said("runs without leader election")) for replica in both]
        return DryRunStory((said[0], said[1]), (alone[0], alone[1]), on.server.list("leases"), codes)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> DryRunStory:
    """Run it once for all tests."""
    return asyncio.run(play(tmp_path_factory.mktemp("dry-run")))


def test_both_log_what_they_would_do(story: DryRunStory) -> None:
    """The dry run in a shell is not a standby of the dry run in the cluster, nor the other way round."""
    assert story.said == (["scheduled", "evicted"], ["scheduled", "evicted"])


def test_a_dry_run_without_election_logs_this(story: DryRunStory) -> None:
    """A dry run does not take part in an election unless it is given a Lease."""
    assert story.alone == (False, True)


def test_no_lease_has_a_holder_at_the_end(story: DryRunStory) -> None:
    """The dry run in the cluster releases its Lease when it ends, and there is no other Lease."""
    found = [(lease["metadata"]["name"], lease["spec"]["holderIdentity"]) for lease in story.leases]
    assert (found, story.codes) == ([(SHADOW, "")], [0, 0])
