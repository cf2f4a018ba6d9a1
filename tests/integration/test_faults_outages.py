"""An API server that is down, comes back, comes back with old data, or answers only with errors (W19, W20, W21)."""

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

# Long enough for the countdown to start and for the test's steps before it ends, on a machine with other work.
TOLERANCE = 4
# Bookmarks come many times as often, so their silence does not last this long by accident.
STALE_SECONDS = 3.0
IMPATIENT = replace(QUICK, watch=replace(QUICK_WATCH, stale_after_seconds=STALE_SECONDS))
# Kopf retries indefinitely against a server that is down; this timeout gives the supervisor a turn.
GIVING_UP = replace(QUICK_KOPF, silence_seconds=1.0)


async def standing(server: ApiServer) -> None:
    """Create pods for everything that can happen during an outage."""
    add_nodes(server, "short", "long", "untainted", "tainted")
    add_pod(server, "due-meanwhile", "short", tolerates(TOLERANCE))
    add_pod(server, "due-later", "long", tolerates(600))
    add_pod(server, "spared", "untainted", tolerates(600))
    add_pod(server, "doomed", "tainted")
    for node in ("long", "untainted"):
        server.taint(node, KEY)


async def change_behind_its_back(server: ApiServer) -> None:
    """Change the cluster in ways that the controller cannot observe, as other clients would."""
    server.untaint("untainted", KEY)
    server.taint("tainted", KEY)
    server.delete("pods", "due-later", grace_period_seconds=0)


async def put_right_afterwards(running: Controlled) -> None:
    """Wait for the evictions that must follow, and check that there are no others."""
    server = running.server
    await deleted(server, "due-meanwhile", "doomed")
    await running.until(lambda: running.metric("pending_evictions") == 0)
    await running.synced()
    assert sorted({request.name for request in deletes(server)}) == ["doomed", "due-meanwhile"]
    assert not is_leaving(server, "spared")
    await running.until(lambda: running.application.engine.readiness() == (True, "ok"))
    # The controller continues as before.
    add_pod(server, "newcomer", "tainted")
    await deleted(server, "newcomer")


@pytest.mark.parametrize("tuning", [QUICK_KOPF, GIVING_UP], ids=["Kopf holds on", "Kopf gives up"])
@pytest.mark.parametrize("keep_history", [True, False], ids=["with history", "without history"])
async def test_outage_loses_nothing(tuning: Any, keep_history: bool) -> None:
    """W21: after the outage, a pod that became due is evicted at once, and all changes and deletions are observed."""
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


async def test_deadline_is_kept_across_an_outage_that_ends_before_the_deadline() -> None:
    """W21: countdowns continue during the outage, and its end moves no deadline."""
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
async def test_restored_backup_is_treated_as_the_current_state(rewind_version: bool) -> None:
    """W21: after the restore, an older taint, an older toleration and a deleted pod are valid again."""
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
            await running.until(lambda: not running.application.engine.live.controller.tainted_nodes())
            await server.stop()
            server.store.restore(backup, rewind_version=rewind_version)
            await server.start()
            await running.until(lambda: running.application.engine.live.controller.tainted_nodes() == {"n1"})
            server.taint("n2", KEY)
            await deleted(server, "other")
            assert not is_leaving(server, "held")
            # A pod that was deleted before the restore is not regarded as gone indefinitely.
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
async def test_controller_survives_a_server_that_answers_each_request_with_an_error(
    error: dict[str, Any], tuning: Any
) -> None:
    """W21: with 401, 403, 429, 500 and 503, the process keeps running, and nothing is lost after the errors."""
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
async def test_lists_replace_watches_that_are_refused(error: dict[str, Any]) -> None:
    """W19, W21: each try of a watch lists first, so evictions and cancellations continue while watches are refused."""
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


async def test_start_during_an_outage_waits_and_then_evicts() -> None:
    """W20: until nodes and the pods of tainted nodes are listed, the process is not ready and says why."""
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
            await running.until(lambda: running.application.engine.live.controller.guards.control_state is not None)
            assert await running.probe("/readyz") == (200, "ok")
            await deleted(server, "web")
            await running.until(lambda: events_about(server, uid))


@pytest.mark.parametrize("match", [WatchMatch(resource="nodes"), WatchMatch(resource="pods")], ids=lambda m: m.resource)
async def test_readiness_and_ages_show_a_long_silence_and_its_end(match: WatchMatch) -> None:
    """W21: a watch silent for too long makes the process not ready, and its age grows until it gets data again."""
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


async def test_long_outage_fails_readiness_but_not_liveness() -> None:
    """W21: a restart of the controller would not help."""
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


async def test_stale_watches_delete_nothing_without_a_live_read_of_node_and_pod() -> None:
    """W11, W21: with both watches silent, each deletion follows a live read of its node and the live pod."""
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


async def test_server_that_stops_does_not_wait_for_a_watch_opened_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The embedded server also ends a watch that was opened just after its connections were reset."""
    monkeypatch.setattr("fake_apiserver.server.abort_connections", lambda _runner: None)
    async with (
        ApiServer(seed=1) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/api/v1/nodes?watch=true"),
    ):
        await asyncio.wait_for(server.stop(), PATIENCE_SECONDS)
