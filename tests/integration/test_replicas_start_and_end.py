"""Replicas at their start and at their end.

A replica that has just started takes part in the election once it knows the deadlines, but does not wait indefinitely.
A replica that is stopped releases the Lease as soon as all its work has ended; here with the default durations.
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

# The delay of deletions in progress when the leader is stopped, and of a list before the election.
DELETION_SECONDS = 3.0
LIST_SECONDS = 1.0
# The default.
LONG_LEASE_SECONDS = ElectionSettings().lease_duration_seconds


@dataclass
class EndStory:
    """What happened to ``first``, which led and was stopped, and to ``second``."""

    on: Theatre
    first: ReplicaProcess
    second: ReplicaProcess
    told_at: float
    codes: tuple[int, int]
    table: str | None


async def play(directory: Path) -> EndStory:
    """Stop the leader while five deletions are in progress, then stop the other replica."""
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
    """Return the Lease as kubectl prints it; None if there is no kubectl."""
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
    """Run one replica with --no-leader-elect."""
    async with theatre(directory) as on:
        on.add_node("node-1")
        on.add_pod("pod", "node-1")
        replica = await on.open("alone", "--no-leader-elect")
        on.taint("node-1")
        await until(lambda: on.is_gone("pod"))
        return on, replica


@dataclass
class Start:
    """What one replica did; ``status`` is that of its readiness probe after the first pod was deleted."""

    on: Theatre
    replica: ReplicaProcess
    status: int

    def first_at(self, verb: str, resource: str) -> float:
        """Return the time of the first such request, without the list of one node that precedes the start."""
        entries = self.on.calls(self.replica, verb=verb, resource=resource)
        return min(entry.arrived_at for entry in entries if entry.query.get("limit") != "1")


async def start(directory: Path, slow: str, **fault: object) -> Start:
    """Start one replica with two tainted nodes, while some lists are slow."""
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
    """Run all, once and at the same time."""

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
    """The run with the leader that is stopped."""
    return stories[0]


def test_both_replicas_end_with_exit_code_0(story: EndStory) -> None:
    """Their logs contain no errors."""
    assert story.codes == (0, 0)
    for replica in (story.first, story.second):
        assert [line for line in replica.lines if line.get("levelname") in {"ERROR", "CRITICAL"}] == []


def test_another_replica_leads_before_the_lease_would_have_expired(story: EndStory) -> None:
    """It need not wait for the expiry, because the Lease was released."""
    [entry] = story.on.calls(story.second, verb="delete", resource="pods")
    assert (entry.name, entry.code) == ("later", 200)
    *_, renewed, _ = story.on.calls(story.first, verb="update", resource="leases")
    assert story.on.won_at(story.second) < renewed.arrived_at + LONG_LEASE_SECONDS


def test_the_lease_is_released_after_all_work_has_ended(story: EndStory) -> None:
    """Slow deletions in progress are answered first; then the Lease has no holder."""
    released = story.on.calls(story.first, verb="update", resource="leases")[-1]
    assert (released.code, released.body["spec"]["holderIdentity"]) == (200, "")
    assert released.body["spec"]["leaseDurationSeconds"] == 1
    deletes = story.on.calls(story.first, verb="delete", resource="pods")
    assert [entry.code for entry in deletes] == [200] * 5
    assert all(entry.arrived_at + DELETION_SECONDS <= released.arrived_at for entry in deletes)
    assert story.on.changes(story.first, since=released.arrived_at) == []


def test_nothing_begins_after_sigterm(story: EndStory) -> None:
    """The pod that becomes due meanwhile is left to the other replica."""
    assert [entry.name for entry in story.on.changes(story.first, since=story.told_at)] == []


def test_the_lease_has_no_holder_at_the_end_and_counts_its_transitions(story: EndStory) -> None:
    """As in client-go, the first holder is no transition, but the change to the second is."""
    lease = story.on.lease()
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("", 1)


@needs_kubectl
def test_kubectl_reads_the_lease(story: EndStory) -> None:
    """The times in the Lease have a format that kubectl accepts."""
    assert story.table is not None
    assert 'holderIdentity: ""' in story.table
    assert "leaseTransitions: 1" in story.table


def test_without_leader_election_the_lease_is_not_used(stories: Stories) -> None:
    """With --no-leader-elect the replica evicts alone."""
    on, replica = stories[1]
    assert on.calls(replica, resource="leases") == []
    assert on.won_at(replica) == float("inf")


def test_a_replica_takes_part_in_the_election_only_once_it_knows_the_deadlines(stories: Stories) -> None:
    """A standby that knows them should win first, and the winner must know what to do."""
    _, _, story, _ = stories
    assert story.on.won_at(story.replica) >= story.first_at("list", "nodes") + LIST_SECONDS
    assert story.status == 200


def test_a_hanging_list_does_not_prevent_the_election(stories: Stories) -> None:
    """The replica waits for the list at first, then leads with what it knows, and evicts the pods of the other node."""
    _, _, _, story = stories
    # A busy machine records the first request late, but not as late as this.
    assert story.on.won_at(story.replica) - story.first_at("get", "/version") >= LEASE_SECONDS / 2
    assert [entry.name for entry in story.on.calls(verb="delete", resource="pods")] == ["pod-of-node-1"]
    assert story.status == 503
