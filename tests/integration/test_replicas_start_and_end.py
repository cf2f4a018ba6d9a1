"""Replicas at their start and at their end.

A replica that has just started stands for election once it knows the deadlines, but does not wait indefinitely. A
replica that is told to stop releases the Lease as soon as all its work has ended; here with the default spans.
"""

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_apiserver_clients import KUBECTL, needs_kubectl
from tests.stage.replicas import LEASE, LEASE_SECONDS, QUICK_ELECTION, ReplicaProcess, Theatre, theatre
from tests.stage.waiting import now, until

from fake_apiserver import kubeconfig
from taint_eviction.settings import ElectionSettings

# How long deletions take that are under way when the leader is told to stop, and a list before the election.
DELETION_SECONDS = 3.0
LIST_SECONDS = 1.0
# By default.
LONG_LEASE_SECONDS = ElectionSettings().lease_duration_seconds


@dataclass
class EndStory:
    """What happened to ``first``, which led and was told to stop, and to ``second``."""

    on: Theatre
    first: ReplicaProcess
    second: ReplicaProcess
    told_at: float
    codes: tuple[int, int]
    table: str | None


async def play(directory: Path) -> EndStory:
    """Stop the leader while five deletions are under way, then the other one."""
    async with theatre(directory) as on:
        for node in ("node-1", "node-2"):
            on.add_node(node)
        for number in range(5):
            on.add_pod(f"in-flight-{number}", "node-1")
        on.add_pod("later", "node-2")
        first = await on.open("first")
        await until(first.leads)
        second = await on.open("second")
        slow = on.server.faults.add(verb="delete", resource="pods", delay_seconds=DELETION_SECONDS)
        on.taint("node-1")
        await until(lambda: len(on.calls(first, verb="delete", resource="pods")) == 5)
        first.signal(signal.SIGTERM)
        await first.until(lambda: first.said("stopping"))
        told_at = now()
        on.server.faults.remove(slow)
        on.taint("node-2")
        first_code = await first.ended()
        await until(lambda: on.is_gone("later"))
        return EndStory(on, first, second, told_at, (first_code, await second.end()), await table(on, directory))


async def table(on: Theatre, directory: Path) -> str | None:
    """Ask kubectl for the Lease; None if there is none."""
    if KUBECTL is None:
        return None
    config = directory / "kubectl.kubeconfig"
    config.write_text(json.dumps(kubeconfig(on.server)))
    on.server.tokens = None  # without TLS kubectl sends no token
    process = await asyncio.create_subprocess_exec(
        *(KUBECTL, "--kubeconfig", str(config), "get", "lease", "-n", "kube-system", "-o", "yaml", LEASE),
        env={**os.environ, "HOME": str(directory)},
        stdout=asyncio.subprocess.PIPE,
    )
    return (await process.communicate())[0].decode()


async def alone(directory: Path) -> tuple[Theatre, ReplicaProcess]:
    """One with --no-leader-elect."""
    async with theatre(directory) as on:
        on.add_node("node-1")
        on.add_pod("pod", "node-1")
        replica = await on.open("alone", "--no-leader-elect")
        on.taint("node-1")
        await until(lambda: on.is_gone("pod"))
        return on, replica


@dataclass
class Start:
    """What one replica did; ``status`` is its readiness when a pod had gone."""

    on: Theatre
    replica: ReplicaProcess
    status: int

    def first_at(self, verb: str, resource: str) -> float:
        """When it first asked for something; the look at one node before the start is none."""
        entries = self.on.calls(self.replica, verb=verb, resource=resource)
        return min(entry.arrived_at for entry in entries if entry.query.get("limit") != "1")


async def start(directory: Path, slow: str, **fault: object) -> Start:
    """Start one with two tainted nodes, while some lists are slow."""
    async with theatre(directory) as on:
        for node in ("node-1", "node-2"):
            on.add_node(node)
            on.add_pod(f"pod-of-{node}", node)
            on.taint(node)
        on.server.faults.add(verb="list", resource=slow, **fault)
        replica = await on.open("one", *QUICK_ELECTION, ready=False)
        await until(lambda: on.is_gone("pod-of-node-1"))
        status, _ = await replica.get("/readyz")
        return Start(on, replica, status)


Stories = tuple[EndStory, tuple[Theatre, ReplicaProcess], Start, Start]


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Stories:
    """Play them, once and at the same time."""

    async def play_all() -> Stories:
        return await asyncio.gather(
            play(tmp_path_factory.mktemp("end")),
            alone(tmp_path_factory.mktemp("alone")),
            start(tmp_path_factory.mktemp("slow"), "nodes", delay_seconds=LIST_SECONDS),
            start(tmp_path_factory.mktemp("stuck"), "pods", node="node-2", hang=True),
        )

    return asyncio.run(play_all())


@pytest.fixture(scope="module")
def story(stories: Stories) -> EndStory:
    """The story of the leader that is told to stop."""
    return stories[0]


def test_both_end_well(story: EndStory) -> None:
    """Exit code 0, and no error in the logs."""
    assert story.codes == (0, 0)
    for replica in (story.first, story.second):
        assert [line for line in replica.lines if line.get("levelname") in {"ERROR", "CRITICAL"}] == []


def test_another_acts_before_the_lease_would_have_expired(story: EndStory) -> None:
    """It need not be waited out, because it was released."""
    [entry] = story.on.calls(story.second, verb="delete", resource="pods")
    assert (entry.name, entry.code) == ("later", 200)
    *_, renewed, _ = story.on.calls(story.first, verb="update", resource="leases")
    assert story.on.won_at(story.second) < renewed.arrived_at + LONG_LEASE_SECONDS


def test_the_lease_is_released_after_the_last_work_was_answered(story: EndStory) -> None:
    """What was in flight is seen through: deletions that take their time, then the Lease is nobody's."""
    released = story.on.calls(story.first, verb="update", resource="leases")[-1]
    assert (released.code, released.body["spec"]["holderIdentity"]) == (200, "")
    assert released.body["spec"]["leaseDurationSeconds"] == 1
    deletes = story.on.calls(story.first, verb="delete", resource="pods")
    assert [entry.code for entry in deletes] == [200] * 5
    assert all(entry.arrived_at + DELETION_SECONDS <= released.arrived_at for entry in deletes)
    assert story.on.changes(story.first, since=released.arrived_at) == []


def test_nothing_is_begun_after_sigterm(story: EndStory) -> None:
    """The pod that came due meanwhile is left to the other one."""
    assert [entry.name for entry in story.on.changes(story.first, since=story.told_at)] == []


def test_the_lease_is_nobodys_in_the_end_and_counts_its_transitions(story: EndStory) -> None:
    """From nobody to the first is none, as in client-go; then one to the second."""
    lease = story.on.lease()
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("", 1)


@needs_kubectl
def test_kubectl_reads_the_lease(story: EndStory) -> None:
    """With times that its client accepts."""
    assert story.table is not None
    assert 'holderIdentity: ""' in story.table
    assert "leaseTransitions: 1" in story.table


def test_without_leader_election_no_lease_is_touched(stories: Stories) -> None:
    """--no-leader-elect: it acts at once, alone."""
    on, replica = stories[1]
    assert on.calls(replica, resource="leases") == []
    assert on.won_at(replica) == float("inf")


def test_it_does_not_stand_before_it_knows_the_deadlines(stories: Stories) -> None:
    """A standby that does know them comes first, and who wins has something to act by."""
    _, _, story, _ = stories
    assert story.on.won_at(story.replica) >= story.first_at("list", "nodes") + LIST_SECONDS
    assert story.status == 200


def test_a_list_that_hangs_keeps_nobody_from_acting_for_long(stories: Stories) -> None:
    """After a lease duration it stands with what it knows: the pods of the other node go."""
    _, _, _, story = stories
    waited = story.on.won_at(story.replica) - story.first_at("get", "/version")
    assert waited >= LEASE_SECONDS - 0.1
    assert [entry.name for entry in story.on.calls(verb="delete", resource="pods")] == ["pod-of-node-1"]
    assert story.status == 503
