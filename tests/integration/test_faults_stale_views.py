"""What the controller observes late, twice, wrongly or never: lagging watches (W11), untaints (W14), gaps (W21)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.stage.controlled import QUICK, QUICK_KOPF, QUICK_WATCH, Controlled, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, add_pods, deleted, deletes, is_leaving, tolerates
from tests.stage.waiting import PATIENCE_SECONDS, now, until

from fake_apiserver import MALFORMED_LINE, ApiServer, StatusError, WatchMatch
from fake_apiserver.resources import RESOURCES

NODES = WatchMatch(resource="nodes")
PODS = WatchMatch(resource="pods")
# Long enough for the test's steps before it ends, on a machine with other work.
TOLERANCE = 5
OFTEN = replace(QUICK, watch=replace(QUICK_WATCH, resync_seconds=0.1))


async def test_pod_bound_right_after_its_nodes_startup_taint_was_removed_is_not_evicted() -> None:
    """W11: the node watch lags and the pod watch does not; one live read of the node serves all pods."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.taint("n1", "startup")
        # However slowly the pods arrive, one read serves all of them.
        async with controlling(server, replace(QUICK, node_read_seconds=PATIENCE_SECONDS)) as running:
            await running.watching_pods_of("n1")
            server.lag("nodes")
            server.untaint("n1", "startup")
            names = add_pods(server, "web", 30, "n1")
            await server.requests.wait_for(verb="get", resource="nodes")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert len(server.requests.select(verb="get", resource="nodes")) == 1
            assert deletes(server) == []
            assert not any(is_leaving(server, name) for name in names)


async def test_pod_of_a_node_that_was_deleted_meanwhile_is_not_evicted() -> None:
    """W11, W12: the live read finds no node, so its pods are not evicted, whether they are due now or later."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "later", "n1", tolerates(TOLERANCE))
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            server.lag("nodes")
            server.delete("nodes", "n1")
            add_pod(server, "now", "n1")
            await server.requests.wait_for(verb="get", resource="nodes", name="n1")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert deletes(server) == []


async def test_node_recreated_with_its_name_starts_clean() -> None:
    """W12: countdowns of the old node's taint do not evict pods of the new node, even if the watch reports it late."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1", tolerates(TOLERANCE))
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            server.lag("nodes")
            server.delete("nodes", "n1")
            add_nodes(server, "n1")
            await server.requests.wait_for(verb="get", resource="nodes", name="n1")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert deletes(server) == []


async def test_eviction_waits_for_a_live_read_of_the_node() -> None:
    """W11: nothing is deleted while the node cannot be read; once it can be read, the due pod is evicted."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        async with controlling(server) as running:
            server.faults.add(verb="get", resource="nodes", status=500)
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("attempts_total", outcome="refused") >= 3)
            assert deletes(server) == []
            assert server.requests.select(verb="patch", resource="pods/status") == []
            server.faults.clear()
            await deleted(server, "web")


async def test_untaint_during_a_thousand_slow_deletes_saves_all_pods_without_a_delete() -> None:
    """W14: once the controller has seen the untaint, it begins no eviction, and the other pods live."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 30.0
        add_nodes(server, "n1")
        names = add_pods(server, "web", 1000, "n1")
        server.faults.add(verb="delete", resource="pods", delay_seconds=0.1)
        async with controlling(server, replace(QUICK, grace_seconds=PATIENCE_SECONDS)) as running:
            server.taint("n1", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=60)
            server.untaint("n1", KEY)
            await running.until(lambda: not running.application.engine.live.controller.tainted_nodes())
            sent, in_flight = len(deletes(server)), running.application.engine.driver.in_flight
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert len(deletes(server)) - sent <= in_flight
            gone = [name for name in names if is_leaving(server, name)]
            assert len(gone) == len(deletes(server)) < 1000


async def test_delete_whose_connection_broke_after_an_untaint_is_not_sent_again() -> None:
    """W14: aiohttp by itself would send the DELETE again, although the eviction is cancelled."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        broken = server.faults.add(verb="delete", resource="pods", times=1, delay_seconds=2.0, reset=True)
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await running.until(lambda: broken.hits)
            server.untaint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert len(deletes(server)) == 1
            assert not is_leaving(server, "web")


# Watches


def cut(server: ApiServer) -> None:
    server.watches.cut()


def reset(server: ApiServer) -> None:
    server.watches.cut(reset=True)


def internal_error(server: ApiServer) -> None:
    server.watches.send_error(StatusError(500, "etcdserver: leader changed"))


def too_old(server: ApiServer) -> None:
    server.watches.send_error(StatusError(410, "too old resource version", reason="Expired"))


def garbage(server: ApiServer) -> None:
    server.watches.send_line(MALFORMED_LINE)


async def disturbed_gap(running: Controlled, disturb: Callable[[ApiServer], None]) -> None:
    """Make many changes while no watch can report them."""
    server = running.server
    server.faults.add(verb="watch", status=503)
    disturb(server)
    await until(lambda: not server.watches.select())
    server.untaint("untainted", KEY)
    server.taint("tainted", KEY)
    server.delete("pods", "vanishes", grace_period_seconds=0)
    server.delete("nodes", "deleted")
    server.patch("pods", "hastened", {"spec": {"tolerations": [tolerates(0)]}})
    server.faults.clear()


@pytest.mark.parametrize("disturb", [cut, reset, internal_error, too_old, garbage])
async def test_after_any_gap_the_state_is_that_of_the_lists(disturb: Callable[[ApiServer], None]) -> None:
    """W21: the lists show taints set and removed, pods and nodes that were deleted, and changed tolerations."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "untainted", "tainted", "deleted", "steady")
        add_pod(server, "spared", "untainted", tolerates(600))
        add_pod(server, "goes", "tainted")
        add_pod(server, "orphan", "deleted", tolerates(600))
        add_pod(server, "vanishes", "steady", tolerates(600))
        add_pod(server, "hastened", "steady", tolerates(600))
        for node in ("untainted", "deleted", "steady"):
            server.taint(node, KEY)
        async with controlling(server) as running:
            await running.watching_pods_of("untainted", "deleted", "steady")
            await running.until(lambda: running.metric("pending_evictions") == 4)
            await disturbed_gap(running, disturb)
            await deleted(server, "goes", "hastened")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            assert sorted(request.name for request in deletes(server)) == ["goes", "hastened"]
            await running.synced()
            add_pod(server, "latecomer", "tainted")
            await deleted(server, "latecomer")


@pytest.mark.parametrize("match", [NODES, PODS])
async def test_frozen_watch_is_opened_anew(match: WatchMatch) -> None:
    """W21: a watch that stays open and silent is noticed by its silence, and the changes that it hid are found."""
    async with ApiServer(seed=1) as server:
        server.watching.bookmark_interval_seconds = 0.1
        add_nodes(server, "n1", "n2")
        server.taint("n1", KEY)
        async with controlling(server, tuning=replace(QUICK_KOPF, inactivity_seconds=0.5)) as running:
            await running.watching_pods_of("n1")
            server.watches.freeze(match)
            add_pod(server, "web", "n1")
            add_pod(server, "other", "n2")
            server.taint("n2", KEY)
            await deleted(server, "web", "other")


async def test_events_that_a_watch_lost_are_found_by_the_next_list() -> None:
    """W21: every few minutes (here a tenth of a second), a fresh list replaces the known state."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        server.taint("n1", KEY)
        add_pod(server, "vanishes", "n1", tolerates(600))
        async with controlling(server, OFTEN) as running:
            await running.watching_pods_of("n1")
            await running.until(lambda: running.metric("pending_evictions") == 1)
            server.watches.drop_next(100)
            server.delete("pods", "vanishes", grace_period_seconds=0)
            add_pod(server, "missed", "n1")
            add_pod(server, "other", "n2")
            server.taint("n2", KEY)
            await deleted(server, "missed", "other")
            await running.until(lambda: running.metric("pending_evictions") == 0)


async def test_repeated_watch_events_change_nothing() -> None:
    """W21: a repeated event causes no second eviction and no second Kubernetes event."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        async with controlling(server) as running:
            server.watches.duplicate_next(10)
            server.taint("n1", KEY)
            await deleted(server, "web")
            await running.until(lambda: server.list("events"))
            await running.end()
            assert len(deletes(server)) == len(server.list("events")) == 1


async def test_list_that_fails_when_a_node_becomes_tainted_is_repeated() -> None:
    """W19: upstream logs such an error and then ignores the pods."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        async with controlling(server, replace(QUICK, call_timeout_seconds=0.5)) as running:
            kinds = ({"status": 500}, {"status": 403}, {"status": 429}, {"reset": True}, {"hang": True})
            for kind in kinds:
                server.faults.add(verb="list", resource="pods", times=1, **kind)
            server.taint("n1", KEY)
            await deleted(server, "web")
            assert running.metric("watch_restarts_total", kind="pods") >= 1


# Malformed objects


async def test_malformed_objects_are_logged_and_counted_and_others_are_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pods and a node of the wrong shape, in lists and in watches, are named once each; other pods are evicted."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "bad")
        add_pod(server, "listed", "n1")
        add_pod(server, "bad-listed", "n1")
        deform(server, "pods", "bad-listed")
        deform(server, "nodes", "bad")
        server.taint("n1", KEY)
        async with controlling(server, OFTEN) as running:
            await running.watching_pods_of("n1")
            await deleted(server, "listed")
            add_pod(server, "bad-watched", "n1", tolerates(600))
            await running.until(lambda: running.metric("pending_evictions") == 1)
            deform(server, "pods", "bad-watched")
            await running.until(lambda: running.metric("malformed_objects_total", kind="Pod") == 2)
            add_pod(server, "watched", "n1")
            await deleted(server, "watched")
            lists = len(server.requests.select(verb="list"))
            await running.until(lambda: len(server.requests.select(verb="list")) > lists + 3)
            assert running.metric("malformed_objects_total", kind="Node") == 1
            assert running.metric("malformed_objects_total", kind="Pod") == 2
            # The last known state of the malformed pod stays.
            assert running.metric("pending_evictions") == 1
    for name in ("bad-listed", "bad-watched", "Node bad"):
        assert [name in record.getMessage() for record in caplog.records].count(True) == 1, name


def deform(server: ApiServer, plural: str, name: str) -> None:
    """Store a malformed object, without validation."""
    body = server.get(plural, name) or {}
    body["spec"] |= {"tolerations": "all"} if plural == "pods" else {"taints": 7}
    server.store.commit(RESOURCES[plural], body)


async def test_line_that_is_not_json_restarts_the_watch_and_loses_no_eviction() -> None:
    """W21: countdowns continue while the watches are restarted."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1", tolerates(TOLERANCE))
        async with controlling(server) as running:
            tainted_at = now()
            server.taint("n1", KEY)
            await running.watching_pods_of("n1")
            await running.until(lambda: running.metric("pending_evictions") == 1)
            for _ in range(3):
                server.watches.send_line(MALFORMED_LINE)
                await running.until(lambda: not server.watches.select())
                await running.until(lambda: len(server.watches.select()) == 2)
            assert await deleted(server, "web") - tainted_at >= TOLERANCE
            assert running.metric("watch_restarts_total", kind="nodes") >= 3
