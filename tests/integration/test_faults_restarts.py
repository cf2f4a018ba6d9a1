"""The command in a process of its own, killed (W7) or told to stop at bad moments, and what the next makes of it."""

from __future__ import annotations

import signal
from pathlib import Path

from faults_stage import (
    KEY,
    PROMPT_SECONDS,
    add_nodes,
    add_pod,
    add_pods,
    controlling,
    deleted,
    deletes,
    events_about,
    is_leaving,
    monotonic,
    process,
    tolerates,
    until,
    write_kubeconfig,
)

from taint_eviction.simulation.apiserver import ApiServer, node_object

# Long enough for a restart amid it.
TOLERANCE = 5
# Times in objects are cut off to whole seconds.
CUT_OFF_SECONDS = 1.0


async def test_countdown_goes_on_after_sigkill(tmp_path: Path) -> None:
    """W7: by timeAdded, by managedFields, at once where it is over; from first sight where nothing tells the time."""
    async with ApiServer(seed=1) as server:
        config = write_kubeconfig(tmp_path / "config", server)
        add_nodes(server, "added", "managed", "over")
        untold = node_object("untold", server.clock.timestamp())
        server.create("nodes", untold, managed_fields=False)
        for name, seconds in (("added", TOLERANCE), ("managed", TOLERANCE), ("over", 1), ("untold", 2)):
            add_pod(server, name, name, tolerates(seconds))
        async with process(config) as first:
            await first.synced()
            server.taint("added", KEY, time_added=server.clock.timestamp())
            for node in ("managed", "over", "untold"):
                server.taint(node, KEY)
            tainted_at = monotonic()
            await until(lambda: all(first.log_of(pod, "scheduled") for pod in ("added", "managed", "over", "untold")))
            await first.kill()
        killed_at = monotonic()
        assert deletes(server) == []
        async with process(config) as second:
            await second.synced()
            synced_at = monotonic()
            assert await deleted(server, "over") - tainted_at >= 1.0
            assert deletes(server, "over")[0].arrived_at < synced_at + PROMPT_SECONDS
            gone_at = await deleted(server, "untold")
            assert killed_at + 2.0 <= gone_at < synced_at + 2.0 + PROMPT_SECONDS
            undisturbed = tainted_at + TOLERANCE
            for pod in ("added", "managed"):
                gone_at = await deleted(server, pod)
                assert undisturbed <= gone_at < max(undisturbed + CUT_OFF_SECONDS, synced_at) + PROMPT_SECONDS
            names = ("added", "managed", "over", "untold")
            await until(lambda: all(second.log_of(pod, "evicted") for pod in names))
            told = {pod: second.log_of(pod, "scheduled")[0]["time_source"] for pod in names}
            assert told == {
                "added": "timeAdded", "managed": "managedFields", "over": "managedFields", "untold": "first sight"
            }  # fmt: skip
            assert len(deletes(server)) == 4


async def test_sigkill_amid_many_evictions_leaves_nothing_half_done(tmp_path: Path) -> None:
    """W7, W8: whatever the killed process had sent, the next one completes the rest, with one event an eviction."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 30.0
        config = write_kubeconfig(tmp_path / "config", server)
        add_nodes(server, "n1")
        names = add_pods(server, "web", 60, "n1")
        async with process(config) as first:
            await first.synced()
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


async def test_sigterm_lets_evictions_end_cuts_off_the_rest_and_starts_none(tmp_path: Path) -> None:
    """What ends in the grace period ends, what hangs is cut off, exit code 0; the next process does the rest."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 30.0
        config = write_kubeconfig(tmp_path / "config", server)
        add_nodes(server, "slow", "stuck")
        slow = add_pods(server, "slow", 2, "slow")
        stuck = add_pods(server, "stuck", 6, "stuck")
        uids = {name: (server.get("pods", name) or {})["metadata"]["uid"] for name in (*slow, *stuck)}
        server.faults.add(verb="delete", resource="pods", node="slow", delay_seconds=0.7)
        server.faults.add(verb="delete", resource="pods", node="stuck", hang=True)
        async with process(config, "--grace-period", "1.5", "--workers", "4") as first:
            await first.synced()
            server.taint("slow", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=2)
            server.taint("stuck", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=4)
            told_at = monotonic()
            first.process.terminate()
            assert await first.ended() == 0
            assert monotonic() - told_at < 1.5 + 3.0 + PROMPT_SECONDS
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
    """Whoever asks twice does not want to wait for the grace period."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", hang=True)
        async with process(write_kubeconfig(tmp_path / "config", server), "--grace-period", "60") as run:
            await run.synced()
            server.taint("n1", KEY)
            await server.requests.wait_for(verb="delete", resource="pods")
            run.process.terminate()
            await until(lambda: run.said("stopping"))
            told_at = monotonic()
            run.process.terminate()
            assert await run.ended() == 128 + signal.SIGTERM
            assert monotonic() - told_at < PROMPT_SECONDS
