"""An API server that is away, comes back, comes back with less, or answers everything with an error (W19, W20, W21)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from tests.stage.controlled import QUICK, QUICK_KOPF, QUICK_WATCH, Controlled, controlling
from tests.stage.objects import (
    KEY,
    add_nodes,
    add_pod,
    condition_of,
    deleted,
    deletes,
    events_about,
    is_leaving,
    tolerates,
)
from tests.stage.waiting import PATIENCE_SECONDS, now

from fake_apiserver import ApiServer, WatchMatch

# Long enough to be armed, and for what is done before it ends, on a machine with other work.
TOLERANCE = 4
# Bookmarks that come many times as often are not late by so much.
STALE_SECONDS = 3.0
IMPATIENT = replace(QUICK, watch=replace(QUICK_WATCH, stale_after_seconds=STALE_SECONDS))
# Kopf's own tries against a server that is away go on indefinitely; the supervisor's need this to have a turn.
GIVING_UP = replace(QUICK_KOPF, silence_seconds=1.0)


async def standing(server: ApiServer) -> None:
    """Set up pods for all that can happen in an outage."""
    add_nodes(server, "short", "long", "untainted", "tainted")
    add_pod(server, "due-meanwhile", "short", tolerates(TOLERANCE))
    add_pod(server, "due-later", "long", tolerates(600))
    add_pod(server, "spared", "untainted", tolerates(600))
    add_pod(server, "doomed", "tainted")
    for node in ("long", "untainted"):
        server.taint(node, KEY)


async def change_behind_its_back(server: ApiServer) -> None:
    """Do what other clients of a server did that this controller could not reach."""
    server.untaint("untainted", KEY)
    server.taint("tainted", KEY)
    server.delete("pods", "due-later", grace_period_seconds=0)


async def put_right_afterwards(running: Controlled) -> None:
    """Wait for what has to follow, and for nothing else."""
    server = running.server
    await deleted(server, "due-meanwhile", "doomed")
    await running.until(lambda: running.metric("pending_evictions") == 0)
    await running.synced()
    assert sorted({request.name for request in deletes(server)}) == ["doomed", "due-meanwhile"]
    assert not is_leaving(server, "spared")
    await running.until(lambda: running.application.engine.readiness() == (True, "ok"))
    # It lives on as before.
    add_pod(server, "newcomer", "tainted")
    await deleted(server, "newcomer")


@pytest.mark.parametrize("tuning", [QUICK_KOPF, GIVING_UP], ids=["Kopf holds on", "Kopf gives up"])
@pytest.mark.parametrize("keep_history", [True, False], ids=["with history", "without history"])
async def test_outage_loses_nothing(tuning: Any, keep_history: bool) -> None:
    """W21: connections refused, then back: what fell due goes at once, what changed or vanished meanwhile is known."""
    async with ApiServer(seed=1) as server:
        await standing(server)
        async with controlling(server, tuning=tuning) as running:
            await running.watching_pods_of("long", "untainted")
            tainted_at = now()
            server.taint("short", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 3)
            await server.stop()
            await change_behind_its_back(server)
            await running.until(lambda: running.metric("retrying_evictions") == 1)
            assert now() - tainted_at >= TOLERANCE
            await server.restart(keep_history=keep_history)
            await put_right_afterwards(running)


async def test_deadline_is_kept_across_an_outage_that_ends_before_it() -> None:
    """W21: timers go on while nobody can be asked; coming back late or early moves no deadline."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1", tolerates(TOLERANCE))
        async with controlling(server) as running:
            tainted_at = now()
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            await server.stop()
            await asyncio.sleep(0.3)
            await server.restart(keep_history=False)
            assert await deleted(server, "web") - tainted_at >= TOLERANCE
            assert len(deletes(server)) == 1


@pytest.mark.parametrize("rewind_version", [False, True], ids=["versions go on", "versions start over"])
async def test_restored_backup_is_believed(rewind_version: bool) -> None:
    """W21: after a restore an older taint, an older toleration and a pod that had gone are the truth again."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        server.taint("n1", KEY)
        add_pod(server, "held", "n1", tolerates())
        add_pod(server, "other", "n2")
        backup = server.store.snapshot()
        async with controlling(server, replace(QUICK, watch=replace(QUICK_WATCH, resync_seconds=0.2))) as running:
            await running.watching_pods_of("n1")
            server.taint("n1", "second")
            await deleted(server, "held")
            await running.until(lambda: server.get("pods", "held") is None)
            server.untaint("n1", KEY)
            server.untaint("n1", "second")
            await running.until(lambda: not running.application.live.controller.tainted_nodes())
            await server.stop()
            server.store.restore(backup, rewind_version=rewind_version)
            await server.start()
            await running.until(lambda: running.application.live.controller.tainted_nodes() == {"n1"})
            server.taint("n2", KEY)
            await deleted(server, "other")
            assert not is_leaving(server, "held")
            # What was deleted before the backup was restored is not thought to be gone indefinitely.
            server.taint("n1", "second")
            await deleted(server, "held")


ERRORS: list[dict[str, Any]] = [
    {"status": 401},
    {"status": 403},
    {"status": 429, "headers": {"Retry-After": "1"}, "plain_text": True},
    {"status": 500},
    {"status": 503},
]


@pytest.mark.parametrize(
    ("error", "tuning"),
    [*((error, QUICK_KOPF) for error in ERRORS), (ERRORS[0], GIVING_UP), (ERRORS[-1], GIVING_UP)],
    ids=lambda value: str(value["status"]) if isinstance(value, dict) else f"silent {value.silence_seconds:g} s",
)
async def test_server_that_answers_everything_with_an_error_is_outlived(error: dict[str, Any], tuning: Any) -> None:
    """W21: 401, 403, 429, 500 and 503 for all requests: the process stays, and nothing is lost when they end."""
    async with ApiServer(seed=1) as server:
        await standing(server)
        async with controlling(server, tuning=tuning) as running:
            await running.watching_pods_of("long", "untainted")
            server.taint("short", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 3)
            server.faults.add(**error)
            server.watches.cut(reset=True)
            await running.until(lambda: not server.watches.select())
            await change_behind_its_back(server)
            await running.until(lambda: running.metric("retrying_evictions") >= 1)
            server.faults.clear()
            await put_right_afterwards(running)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error["status"]))
async def test_refused_watches_are_made_up_for_by_lists(error: dict[str, Any]) -> None:
    """W19, W21: where only watches are refused, each try lists first, and so evictions and cancellations go on."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "web", "n1")
        add_pod(server, "spared", "n2", tolerates(600))
        server.taint("n2", KEY)
        async with controlling(server, tuning=GIVING_UP) as running:
            await running.watching_pods_of("n2")
            server.faults.add(verb="watch", **error)
            server.watches.cut()
            await running.until(lambda: not server.watches.select())
            server.taint("n1", KEY)
            server.untaint("n2", KEY)
            await deleted(server, "web")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            assert len(deletes(server)) == 1


async def test_start_during_an_outage_waits_and_then_does_its_work() -> None:
    """W20: not ready with a reason until nodes, and pods of tainted nodes, are listed; then everything is done."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.taint("n1", KEY)
        uid = add_pod(server, "web", "n1")
        await server.stop()
        async with controlling(server, synced=False) as running:
            await running.until(lambda: running.metric("watch_restarts_total", kind="nodes") >= 2)
            assert await running.probe("/readyz") == (503, "the nodes have not been listed yet")
            assert await running.probe("/healthz") == (200, "ok")
            refusal = server.faults.add(verb="list", resource="pods", status=500)
            await server.start()
            await running.until(lambda: refusal.hits >= 2)
            assert await running.probe("/readyz") == (503, "the pods of some tainted nodes have not been listed yet")
            assert running.metric("synced") == 0
            server.faults.clear()
            await running.until(lambda: running.metric("synced") == 1)
            await running.until(lambda: running.application.live.controller.suspension.control_state is not None)
            assert await running.probe("/readyz") == (200, "ok")
            await deleted(server, "web")
            await running.until(lambda: events_about(server, uid))


@pytest.mark.parametrize("match", [WatchMatch(resource="nodes"), WatchMatch(resource="pods")], ids=lambda m: m.resource)
async def test_readiness_and_ages_tell_of_a_long_silence_and_of_its_end(match: WatchMatch) -> None:
    """W21: a watch silent for longer than it may be makes the process not ready, and its age grows until it speaks."""
    kind = str(match.resource)
    async with ApiServer(seed=1) as server:
        server.watching.bookmark_interval_seconds = 0.05
        add_nodes(server, "n1")
        server.taint("n1", KEY)
        async with controlling(server, IMPATIENT) as running:
            await running.watching_pods_of("n1")
            assert await running.probe("/readyz") == (200, "ok")
            server.watches.hold(match)
            await running.until(lambda: running.metric("watch_age_seconds", kind=kind) > STALE_SECONDS)
            status, text = await running.probe("/readyz")
            assert status == 503
            assert re.fullmatch(rf"the watch of {kind} has been silent for \d+ s", text)
            assert await running.probe("/healthz") == (200, "ok")
            server.watches.calm()
            await running.until(lambda: running.metric("watch_age_seconds", kind=kind) < STALE_SECONDS / 2)
            assert await running.probe("/readyz") == (200, "ok")


async def test_long_outage_makes_it_not_ready_but_not_dead() -> None:
    """W21: readiness goes, liveness stays: being restarted would help nobody."""
    async with ApiServer(seed=1) as server:
        server.watching.bookmark_interval_seconds = 0.05
        add_nodes(server, "n1")
        async with controlling(server, IMPATIENT) as running:
            await server.stop()
            await running.until(lambda: not running.application.engine.readiness()[0])
            assert (await running.probe("/readyz"))[0] == 503
            assert await running.probe("/healthz") == (200, "ok")
            await server.start()
            await running.until(lambda: running.application.engine.readiness()[0])
            assert running.metric("watch_age_seconds", kind="nodes") < STALE_SECONDS


async def test_stale_view_deletes_nothing_without_a_live_read_of_node_and_pod() -> None:
    """W11, W21: with both watches silent each deletion has a live node before it and the live pod in its hands."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "clean", "tainted")
        for node in ("clean", "tainted"):
            add_pod(server, f"on-{node}", node, tolerates(TOLERANCE))
        add_pod(server, "tolerant", "tainted", tolerates(TOLERANCE))
        async with controlling(server, replace(QUICK, node_read_seconds=0.2)) as running:
            for node in ("clean", "tainted"):
                server.taint(node, KEY)
            await running.watching_pods_of("clean", "tainted")
            await running.until(lambda: running.metric("pending_evictions") == 3)
            server.lag("nodes")
            server.lag("pods")
            server.untaint("clean", KEY)
            server.patch("pods", "tolerant", {"spec": {"tolerations": [tolerates(), tolerates(600)]}})
            await deleted(server, "on-tainted")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert [request.name for request in deletes(server)] == ["on-tainted"]
            read = server.requests.select(verb="get", resource="nodes")
            assert {request.name for request in read} == {"clean", "tainted"}
            assert min(request.arrived_at for request in read) < deletes(server)[0].arrived_at
            marked = server.requests.select(verb="patch", resource="pods/status")
            assert {request.name for request in marked} >= {"on-tainted"}
            assert condition_of(server, "tolerant").get("status") != "True"


async def test_server_that_stops_does_not_wait_for_a_client_that_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The embedded server's outage: a watch that was opened just after the connections were reset is cut as well."""
    monkeypatch.setattr("fake_apiserver.server.abort_connections", lambda _runner: None)
    async with (
        ApiServer(seed=1) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/api/v1/nodes?watch=true"),
    ):
        await asyncio.wait_for(server.stop(), PATIENCE_SECONDS)
