"""Embedded Kopfs that often start and end, and our own bugs: no task is left over, and a bug ends the process."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.stage.controlled import QUICK, QUICK_WATCH, Controlled, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, deleted, tolerates, write_kubeconfig
from tests.stage.processes import running_controller
from tests.stage.waiting import PATIENCE_SECONDS

from fake_apiserver import ApiServer
from taint_eviction.runtime import health
from taint_eviction.settings import ElectionSettings

# The driving loop runs every half second, or a bit later on a machine with other work.
BEAT_SECONDS = 3.0
NO_LINGER = replace(QUICK, watch=replace(QUICK_WATCH, linger_seconds=0.0))
ELECTED = replace(QUICK, election=ElectionSettings(retry_period_seconds=0.1))

OTHERS = {
    "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
    "annotations": {"kopf.zalando.org/last-handled-configuration": '{"spec":{}}'},
}
OUR_WRITES = {
    ("patch", "pods/status"),
    ("delete", "pods"),
    ("create", "events"),
    ("patch", "events"),
    ("create", "leases"),
    ("update", "leases"),
    ("patch", "leases"),
    ("create", "configmaps"),  # The control state and the outcomes, where there are none.
    ("patch", "configmaps"),  # The outcomes, once a minute.
    ("create", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),  # A question, which changes nothing.
}


async def flap(running: Controlled, node: str) -> None:
    """Taint a node, wait until its pods are watched, untaint it, and wait until they are no longer watched."""
    server = running.server
    server.taint(node, KEY)
    await running.watching_pods_of(node)
    server.untaint(node, KEY)
    await running.until(lambda: not server.watches.select(resource="pods", node=node))


async def test_thirty_flapping_taints_leave_no_task_behind() -> None:
    """Each taint starts a Kopf and each untaint ends it; no more tasks are left than before, and none at the end."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, *(f"n{number}" for number in range(6)))
        add_pod(server, "web", "n0", tolerates(600))
        own = asyncio.all_tasks()
        async with controlling(server, NO_LINGER) as running:
            before = tasks_since(own)
            for _ in range(5):
                await asyncio.gather(*(flap(running, f"n{number}") for number in range(6)))
            await running.until(lambda: not tasks_since(own) - before)
            await running.end()
        assert not tasks_since(own)


def tasks_since(own: set[asyncio.Task[Any]]) -> Counter[str]:
    """Count tasks by function, without the server's connections and tasks that end half a second later."""
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks() - own)
    passing = {"worker", "Queue.get", "SimulatedProcess._tell_synced"}
    return Counter(name for name in names if "RequestHandler" not in name and name not in passing)


async def test_taint_removed_while_its_watch_starts_leaves_no_task_behind() -> None:
    """A watch may be ended at any moment of its start, also while the API server delays its answer."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        own = asyncio.all_tasks()
        async with controlling(server, NO_LINGER) as running:
            before = tasks_since(own)
            server.faults.add(verb="watch", resource="pods", hang=True)
            for hits in range(1, 4):
                server.taint("n1", KEY)
                await server.requests.wait_for(verb="watch", resource="pods", count=hits)
                server.untaint("n1", KEY)
                await running.until(lambda: not running.application.engine.live.controller.watched_nodes())
            await running.until(lambda: not tasks_since(own) - before)


async def test_stop_during_the_start_of_watches_leaves_no_task_behind() -> None:
    """The controller is stopped while several Kopfs start."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, *(f"n{number}" for number in range(6)))
        own = asyncio.all_tasks()
        server.faults.add(verb="list", resource="pods", delay_seconds=0.05)
        async with controlling(server, NO_LINGER) as running:
            for number in range(6):
                server.taint(f"n{number}", KEY)
            await server.requests.wait_for(verb="list", resource="pods", count=2)
            await running.end()
        assert not tasks_since(own)


async def test_signal_handlers_stay_ours_although_kopf_installs_its_own() -> None:
    """After watches have started and ended, SIGTERM still calls our handler."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        async with controlling(
            server, NO_LINGER, reinstall_signal_handlers=lambda: loop.add_signal_handler(signal.SIGTERM, told.set)
        ) as running:
            for _ in range(3):
                await flap(running, "n1")
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
                told.clear()
                assert not running.running.done()
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)


async def test_only_conditions_deletions_events_and_leases_are_written() -> None:
    """The server's request log has no other writes, although objects have finalizers of other Kopf operators."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 0.01
        server.create("nodes", {"metadata": {"name": "n1", **OTHERS}})
        add_nodes(server, "n2")
        for name in ("goes", "stays", "changes"):
            add_pod(server, name, "n1", *([] if name == "goes" else [tolerates()]), **OTHERS)
        for node in ("n1", "n2"):
            add_pod(server, f"on-{node}", node)
        async with controlling(server, replace(ELECTED, watch=NO_LINGER.watch)) as running:
            server.faults.add(verb="delete", resource="pods", times=2, status=500)
            server.taint("n1", KEY)
            await running.watching_pods_of("n1")
            server.patch("pods", "changes", {"metadata": {"labels": {"changed": "yes"}}})
            await flap(running, "n2")
            await deleted(server, "goes", "on-n1")
            server.patch("pods", "goes", {"metadata": {"labels": {"changed": "yes"}}})
            server.untaint("n1", KEY)
            await running.until(lambda: not server.watches.select(resource="pods"))
            await running.until(lambda: len(server.list("events")) >= 2)
            await running.end()
        written = {
            (request.verb, request.resource)
            for request in server.requests.entries
            if request.verb not in {"get", "list", "watch"}
        }
        assert written <= OUR_WRITES
        assert {("patch", "pods/status"), ("delete", "pods"), ("create", "events"), ("update", "leases")} <= written
        marked = {request.name for request in server.requests.select(verb="patch", resource="pods/status")}
        assert marked <= {"goes", "on-n1", "on-n2"}
        for name in ("goes", "stays", "changes"):
            metadata = (server.get("pods", name) or {})["metadata"]
            assert metadata["finalizers"] == OTHERS["finalizers"]
            assert metadata["annotations"] == OTHERS["annotations"]
        assert (server.get("nodes", "n1") or {})["metadata"]["finalizers"] == OTHERS["finalizers"]


# Our own bugs


def failing(*_: object, **__: object) -> None:
    raise ZeroDivisionError("ours")


@pytest.mark.parametrize(
    "broken",
    [
        "reporting.log_reporter.LogReporter.report",
        "core.controller.Controller.observe",
        "runtime.node_reads.NodeReads.read",
        "reporting.event_recorder.format_rfc3339",
    ],
)
async def test_our_own_bug_ends_the_controller(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever an unexpected exception is raised, the run ends with it and does not continue with a broken part."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        async with controlling(server) as running:
            monkeypatch.setattr(f"taint_eviction.{broken}", failing)
            server.taint("n1", KEY)
            await asyncio.wait((running.running,), timeout=PATIENCE_SECONDS)
            with pytest.raises((ExceptionGroup, ZeroDivisionError)) as raised:
                running.running.result()
            found = raised.value
            while isinstance(found, ExceptionGroup):
                [found] = found.exceptions
            assert isinstance(found, ZeroDivisionError)


BUGGY = """
import sys
from taint_eviction.reporting import log_reporter
from taint_eviction.cli import main

def failing(self, effect, now):
    raise ZeroDivisionError("ours")

log_reporter.LogReporter.report = failing
main()
"""


async def test_process_with_a_bug_exits_1_and_logs_it(tmp_path: Path) -> None:
    """Kubernetes then restarts the process; the log contains the exception."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        script = tmp_path / "buggy.py"
        script.write_text(BUGGY)
        async with running_controller(write_kubeconfig(tmp_path / "config", server), program=(str(script),)) as buggy:
            server.taint("n1", KEY)
            assert await buggy.ended() == 1
            assert buggy.said("a bug ends the controller")
            assert any("ZeroDivisionError" in str(line) for line in buggy.lines)


async def test_stuck_driving_loop_fails_the_liveness_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe reports a loop that no longer runs, although the process still answers probes."""
    monkeypatch.setattr(health, "_MAX_BEAT_SECONDS", BEAT_SECONDS)
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        async with controlling(server) as running:
            assert await running.probe("/healthz") == (200, "ok")
            stuck = asyncio.Event()

            async def wait_too_long(seconds: float) -> None:
                await stuck.wait()
                patch.undo()

            patch = pytest.MonkeyPatch()
            patch.setattr(running.application.engine.driver, "_wait", wait_too_long)
            await running.until(lambda: running.application.engine.driver.beat_age_seconds() > BEAT_SECONDS)
            status, text = await running.probe("/healthz")
            assert status == 503
            assert re.fullmatch(r"the driving loop has not run for \d+ s", text)
            stuck.set()


async def test_api_server_that_is_down_does_not_fail_the_liveness_probe(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart of the controller would not help."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(health, "_MAX_BEAT_SECONDS", BEAT_SECONDS)
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        async with controlling(server) as running:
            await server.stop()
            await running.until(lambda: running.application.engine.silences()["nodes"] > BEAT_SECONDS + 1)
            assert await running.probe("/healthz") == (200, "ok")
