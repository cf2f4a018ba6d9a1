"""The command in its own process, killed (W7) or stopped at bad moments, and the process that follows."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.stage.controlled import controlling
from tests.stage.objects import (
    KEY,
    Json,
    add_nodes,
    add_pod,
    add_pods,
    deleted,
    deletes,
    events_about,
    is_leaving,
    tolerates,
    write_kubeconfig,
)
from tests.stage.processes import COMMAND, RunningController, running_controller
from tests.stage.waiting import now, sleep_until

from fake_apiserver import ApiServer, node_object

# Long enough to see all pods and to restart meanwhile, on a machine with other work.
TOLERANCE = 12
SHORT = 6


def told(run: RunningController, pod: str, what: str) -> list[Json]:
    """Return the log lines of one kind about a pod."""
    return run.told(pod=f"default/{pod}", what=what)


async def test_countdown_continues_after_sigkill(tmp_path: Path) -> None:
    """W7: it counts from timeAdded, managedFields or, without a date, first sight; if overdue, it ends at once."""
    names = ("added", "managed", "over", "untold")
    async with ApiServer(seed=1) as server:
        config = write_kubeconfig(tmp_path / "config", server)
        add_nodes(server, "added", "managed", "over")
        untold = node_object("untold", server.clock.timestamp())
        server.create("nodes", untold, managed_fields=False)
        for name, seconds in (("added", TOLERANCE), ("managed", TOLERANCE), ("over", SHORT), ("untold", SHORT)):
            add_pod(server, name, name, tolerates(seconds))
        async with running_controller(config, program=COMMAND) as first:
            server.taint("added", KEY, time_added=server.clock.timestamp())
            for node in ("managed", "over", "untold"):
                server.taint(node, KEY)
            tainted_at = now()
            await first.until(lambda: all(told(first, pod, "scheduled") for pod in names))
            await first.kill()
        killed_at = now()
        assert deletes(server) == []
        await sleep_until(tainted_at + SHORT)
        async with running_controller(config, program=COMMAND) as second:
            gone_at = {pod: await deleted(server, pod) for pod in names}
            assert gone_at["over"] - tainted_at >= SHORT
            assert gone_at["untold"] - killed_at >= SHORT
            assert min(gone_at["added"], gone_at["managed"]) - tainted_at >= TOLERANCE
            await second.until(lambda: all(told(second, pod, "evicted") for pod in names))
            sources = {pod: told(second, pod, "scheduled")[0]["time_source"] for pod in names}
            # The source of each start time shows that no dated countdown began anew.
            assert sources == {
                "added": "timeAdded", "managed": "managedFields", "over": "managedFields", "untold": "first sight"
            }  # fmt: skip
            assert len(deletes(server)) == 4


async def test_sigkill_during_many_evictions_leaves_none_unfinished(tmp_path: Path) -> None:
    """W7, W8: the next process evicts the pods that the killed one did not, with at most one event per eviction."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 30.0
        config = write_kubeconfig(tmp_path / "config", server)
        add_nodes(server, "n1")
        names = add_pods(server, "web", 60, "n1")
        async with running_controller(config) as first:
            server.faults.add(verb="delete", resource="pods", delay_seconds=0.1)
            server.taint("n1", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=30)
            await first.kill()
        assert not all(is_leaving(server, name) for name in names)
        async with controlling(server) as second:
            await deleted(server, *names)
            await second.end()
        assert all(len(deletes(server, name)) <= 2 for name in names)
        uids = [(server.get("pods", name) or {})["metadata"]["uid"] for name in names]
        assert all(len(events_about(server, uid)) <= 1 for uid in uids)


async def test_sigterm_waits_for_evictions_cancels_those_that_hang_and_starts_none(tmp_path: Path) -> None:
    """Calls may end within the grace period, the exit code is 0, and the next process evicts the other pods."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 30.0
        config = write_kubeconfig(tmp_path / "config", server)
        add_nodes(server, "slow", "stuck")
        slow = add_pods(server, "slow", 2, "slow")
        stuck = add_pods(server, "stuck", 6, "stuck")
        uids = {name: (server.get("pods", name) or {})["metadata"]["uid"] for name in (*slow, *stuck)}
        server.faults.add(verb="delete", resource="pods", node="slow", delay_seconds=2.0)
        server.faults.add(verb="delete", resource="pods", node="stuck", hang=True)
        async with running_controller(config, "--grace-period", "8", "--workers", "4") as first:
            server.taint("slow", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=2)
            server.taint("stuck", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=4)
            assert await first.end() == 0
            assert first.said("stopped")
        assert all(is_leaving(server, name) for name in slow)
        assert not any(is_leaving(server, name) for name in stuck)
        assert len(deletes(server)) == 4
        server.faults.clear()
        async with controlling(server) as second:
            await deleted(server, *stuck)
            await second.end()
        assert {name: len(events_about(server, uid)) for name, uid in uids.items()} == dict.fromkeys(uids, 1)
        assert all(len(deletes(server, name)) == 1 for name in slow)


async def test_second_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    """A person who sends SIGTERM twice does not want to wait for the grace period."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", hang=True)
        async with running_controller(write_kubeconfig(tmp_path / "config", server), "--grace-period", "600") as run:
            server.taint("n1", KEY)
            await server.requests.wait_for(verb="delete", resource="pods")
            run.signal(signal.SIGTERM)
            await run.until(lambda: run.said("stopping"))
            assert await run.end() == 128 + signal.SIGTERM
