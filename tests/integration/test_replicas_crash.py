"""The leader is killed while a hundred pods become due: no eviction by the standby is early, lost or repeated."""

import asyncio
import itertools
import signal
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.stage.replicas import QUICK_ELECTION, ReplicaProcess, Theatre, theatre
from tests.stage.waiting import now, sleep_until, until

from fake_apiserver import LoggedRequest

NODES = 13
# Some pods become due around the death of the leader, and the others long after another replica leads.
TOLERANCES = (1, 2, 3, 4, 17, 18, 19, 20)
KILLED_AFTER_DELETIONS = 8


@dataclass
class CrashStory:
    """What happened in the run."""

    on: Theatre
    leader: ReplicaProcess
    standby: ReplicaProcess
    killed_at: float
    led: tuple[bool, bool]
    readiness: tuple[int, int]

    def deletes(self) -> dict[str, list[LoggedRequest]]:
        """All requests to delete a pod, by pod."""
        found: dict[str, list[LoggedRequest]] = defaultdict(list)
        for entry in self.on.calls(verb="delete", resource="pods"):
            found[entry.name].append(entry)
        return found


async def play(directory: Path) -> CrashStory:
    """Run the replicas with a hundred pods, on nodes that are tainted one after another within a second."""
    async with theatre(directory) as on:
        for node, seconds in itertools.product(range(NODES), TOLERANCES):
            if seconds == TOLERANCES[0]:
                on.add_node(f"node-{node}")
            on.add_pod(f"pod-{node}-{seconds}", f"node-{node}", seconds)
        leader = await on.open("first", *QUICK_ELECTION)
        await until(leader.leads)
        standby = await on.open("second", *QUICK_ELECTION)
        led = (await leader.leads(), await standby.leads())
        readiness = ((await leader.get("/readyz"))[0], (await standby.get("/readyz"))[0])
        begun_at = now() + 0.1
        for node in range(NODES):
            await sleep_until(begun_at + node / NODES)
            on.taint(f"node-{node}")
        await until(lambda: len(on.calls(leader, verb="delete", resource="pods")) >= KILLED_AFTER_DELETIONS)
        leader.signal(signal.SIGKILL)
        killed_at = now()
        await until(on.all_gone)
        await asyncio.sleep(0.5)
        return CrashStory(on, leader, standby, killed_at, led, readiness)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> CrashStory:
    """Run it once for all tests."""
    return asyncio.run(play(tmp_path_factory.mktemp("crash")))


def test_one_replica_leads_and_both_are_ready(story: CrashStory) -> None:
    """leader_election_master_status is 1 for one of them; readiness does not depend on leading."""
    assert (story.led, story.readiness) == ((True, False), (200, 200))


def test_only_the_leader_acts(story: CrashStory) -> None:
    """The standby changes no pod before it leads; the leader had deleted some pods before it was killed."""
    assert len(story.on.calls(story.leader, verb="delete", resource="pods")) >= KILLED_AFTER_DELETIONS
    assert min(entry.arrived_at for entry in story.on.changes(story.standby)) > story.on.won_at(story.standby)


def test_no_pod_is_deleted_early(story: CrashStory) -> None:
    """No deletion is requested before the pod's deadline by the server's time."""
    for name, entries in story.deletes().items():
        assert entries[0].arrived_at >= story.on.due_at[name], name


def test_each_pod_is_deleted_once_and_not_requested_again(story: CrashStory) -> None:
    """Each pod has exactly one successful deletion, and it is the last request for the pod."""
    deletes = story.deletes()
    assert deletes.keys() == story.on.due_at.keys()
    for name, entries in deletes.items():
        assert [entry.code for entry in entries].count(200) == 1, name
        assert entries[-1].code == 200, name


def test_deadlines_do_not_start_anew_with_the_new_leader(story: CrashStory) -> None:
    """The standby has queued the same deadlines, so no pod waits for its whole toleration after the takeover."""
    deletes, won_at = story.deletes(), story.on.won_at(story.standby)
    after = [name for name, due_at in story.on.due_at.items() if due_at > won_at]
    assert after
    for name in after:
        assert deletes[name][-1].arrived_at < won_at + int(name.rpartition("-")[2]), name


def test_taking_over_needs_no_list(story: CrashStory) -> None:
    """The standby has watched nodes and pods from its start; quiet nodes are listed every 20 s, whoever leads."""
    won_at = story.on.won_at(story.standby)
    lists = [entry for entry in story.on.calls(story.standby, verb="list") if entry.arrived_at > won_at]
    assert [entry for entry in lists if entry.path != "/api/v1/nodes"] == []


def test_the_takeover_is_counted_in_the_lease(story: CrashStory) -> None:
    """The Lease has one transition, and the new holder in the end."""
    lease = story.on.lease()
    assert lease["leaseTransitions"] == 1
    assert story.standby.said(f"{lease['holderIdentity']} leads now")
