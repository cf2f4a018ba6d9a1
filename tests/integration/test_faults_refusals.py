"""What the API server refuses: deletions (W8), conditions (W9), and taking conditions back (W10)."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import Any

import pytest
from tests.stage.controlled import QUICK, Controlled, controlling
from tests.stage.objects import (
    KEY,
    add_nodes,
    add_pod,
    add_pods,
    condition_of,
    deleted,
    deletes,
    events_about,
    tolerates,
)
from tests.stage.waiting import PATIENCE_SECONDS, until

from fake_apiserver import ApiServer
from taint_eviction.settings import RetrySettings

MARKING = f"Marking for deletion Pod default/web: taint {KEY}:NoExecute is not tolerated"

# Each fault answers the first DELETEs, as many as the test says, and then lets them through.
REFUSALS: dict[str, dict[str, Any]] = {
    "forbidden": {"status": 403, "message": "not allowed"},
    "a server error": {"status": 500},
    "denied by a webhook": {"status": 400, "message": 'admission webhook "w" denied the request: not now'},
    "a conflict of versions": {"status": 409, "message": "the object has been modified"},
    "too many requests": {"status": 429},
    "unavailable": {"status": 503},
    "unauthorized": {"status": 401},
    "a load balancer's 404": {"status": 404, "plain_text": True, "message": "404 page not found"},
    "a reset before the effect": {"reset": True},
}


async def evicted_and_told_once(running: Controlled, uid: str) -> None:
    """Wait for the eviction of the pod ``web`` and its event, and check that there is only one."""
    server = running.server
    await deleted(server, "web")
    await running.until(lambda: running.metric("pod_deletions_total") == 1)
    await running.until(lambda: events_about(server, uid))
    await running.end()
    assert events_about(server, uid) == [MARKING]


async def evicted_and_told_at_most_once(running: Controlled, uid: str) -> None:
    """Wait for the eviction of the pod ``web``; if calls time out, its answer may come too late to be counted."""
    server = running.server
    await deleted(server, "web")
    await running.until(lambda: running.metric("pending_evictions") == 0)
    await running.end()
    assert running.metric("pod_deletions_total") <= 1
    assert events_about(server, uid) in ([], [MARKING])


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_refused_delete_is_repeated_until_it_is_accepted(refusal: str) -> None:
    """W8: after seven refusals, more than upstream has tries, the pod is evicted and has one count and one event."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        fault = server.faults.add(verb="delete", resource="pods", times=7, **REFUSALS[refusal])
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await evicted_and_told_once(running, uid)
            assert fault.hits == 7
            assert running.metric("attempts_total", outcome="refused") >= 3


async def test_hanging_delete_times_out_and_is_repeated() -> None:
    """W8: a DELETE without answer ends with the timeout of a call, and a later DELETE succeeds."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", times=2, hang=True)
        async with controlling(server, replace(QUICK, call_timeout_seconds=0.5)) as running:
            server.taint("n1", KEY)
            await evicted_and_told_at_most_once(running, uid)
            assert running.metric("api_calls_total", verb="delete", resource="pods", code="timeout") >= 2


async def test_no_sequence_of_errors_ends_an_eviction() -> None:
    """W8: one DELETE gets each kind of error in turn, and the pod is evicted in the end."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        kinds = [*REFUSALS.values(), {"hang": True}, {"delay_seconds": 0.05, "status": 504}]
        faults = [server.faults.add(verb="delete", resource="pods", times=1, **kind) for kind in kinds]
        async with controlling(server, replace(QUICK, call_timeout_seconds=0.5)) as running:
            server.taint("n1", KEY)
            await evicted_and_told_at_most_once(running, uid)
            assert [fault.hits for fault in faults] == [1] * len(kinds)


async def test_waits_between_refused_deletes_are_at_least_half_of_the_backoff() -> None:
    """W8: the backoff is exponential, capped and has jitter, so each wait is at least half of its bound."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", times=6, status=500)
        async with controlling(server, replace(QUICK, retry=RetrySettings(0.05, 0.4))):
            server.taint("n1", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=7)
            arrived = [request.arrived_at for request in deletes(server)]
    waits = [later - earlier for earlier, later in itertools.pairwise(arrived)]
    bounds = [0.05, 0.1, 0.2, 0.4, 0.4, 0.4]
    assert all(wait >= bound / 2 for wait, bound in zip(waits, bounds, strict=True)), waits


async def test_retry_time_of_the_server_is_honoured() -> None:
    """W8: after a 429 with Retry-After 1, the next try comes after a second, however short our own backoff is."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", times=1, status=429, headers={"Retry-After": "1"})
        async with controlling(server, replace(QUICK, retry=RetrySettings(0.05, 2.0))):
            server.taint("n1", KEY)
            await deleted(server, "web")
            first, second = deletes(server)
            assert second.arrived_at - first.arrived_at >= 1.0


async def test_delete_whose_answer_was_lost_is_not_repeated_and_not_reported_twice() -> None:
    """W8: a DELETE that took effect before its connection was reset leaves a terminating pod: the eviction ends."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 30.0
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", times=1, reset=True, when="after")
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await deleted(server, "web")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert len(deletes(server)) == 1
            assert running.metric("pod_deletions_total") <= 1
            assert len(events_about(server, uid)) <= 1


async def test_eviction_of_a_pod_that_is_gone_ends_and_is_not_counted() -> None:
    """W8: a 404 ends the eviction, since somebody else deleted the pod."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 0.0
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", times=2, status=500)
        async with controlling(server, replace(QUICK, retry=RetrySettings(0.3, 0.3))) as running:
            await running.synced()
            server.taint("n1", KEY)
            await server.requests.wait_for(verb="delete", resource="pods")
            server.watches.hold()
            server.delete("pods", "web", grace_period_seconds=0)
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert running.metric("pod_deletions_total") == 0
            assert events_about(server, uid) == []


async def test_eviction_of_a_pod_with_another_uid_ends_and_is_not_counted() -> None:
    """W2, W8: the watch lags, so the pod's successor is not known, but it survives the DELETE for its predecessor."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "web", "n1")
        # The condition cannot be set, and the pod cannot be read in time, so only the DELETE shows the other UID.
        server.faults.add(verb="patch", resource="pods/status", status=500)
        async with controlling(server) as running:
            delay = server.faults.add(verb="get", resource="nodes", delay_seconds=0.2)
            slow = server.faults.add(verb="delete", resource="pods", times=1, delay_seconds=0.3)
            server.taint("n1", KEY)
            await running.until(lambda: slow.hits)
            server.faults.remove(delay)
            server.watches.hold()
            server.delete("pods", "web", grace_period_seconds=0)
            successor = add_pod(server, "web", "n2")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert [request.code for request in deletes(server)] == [409]
            assert (server.get("pods", "web") or {})["metadata"]["uid"] == successor
            assert running.metric("pod_deletions_total") == 0
            assert events_about(server, successor) == []


async def test_long_refusal_shows_in_gauges_and_log_with_the_servers_message(caplog: pytest.LogCaptureFixture) -> None:
    """W8: the gauges of retries and of the longest block rise and fall again; the log names the pod and the message."""
    caplog.set_level(logging.INFO)
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        words = 'admission webhook "guard.example" denied the request: on holiday'
        refusal = server.faults.add(verb="delete", resource="pods", status=400, message=words)
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("longest_blocked_seconds") > 0.4)
            assert running.metric("retrying_evictions") == 1
            assert running.metric("pending_evictions") == 1
            told = [record for record in caplog.records if words in record.getMessage()]
            # One line for the 1st, 2nd, 4th, 8th… failure, not one per try.
            assert 3 <= len(told) < refusal.hits
            assert all("default/web" in record.getMessage() for record in told)
            server.faults.clear()
            await deleted(server, "web")
            await running.until(lambda: running.metric("pending_evictions") == 0)
            assert running.metric("retrying_evictions") == 0
            assert running.metric("longest_blocked_seconds") == 0


async def test_refused_and_hanging_pods_take_no_worker_from_untried_pods() -> None:
    """W8: 20 pods are evicted while 40 others are retried, whose deletion is first refused and then hangs."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pods(server, "stuck", 40, "n1")
        fresh = add_pods(server, "fresh", 20, "n2")
        refusal = server.faults.add(verb="delete", resource="pods", node="n1", status=500)
        async with controlling(server, replace(QUICK, workers=8, grace_seconds=0.1)) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("retrying_evictions") == 40)
            server.faults.add(verb="delete", resource="pods", node="n1", hang=True)
            server.faults.remove(refusal)
            await running.until(lambda: running.application.engine.driver.in_flight >= 4)
            server.taint("n2", KEY)
            await deleted(server, *fresh)
            assert running.metric("retrying_evictions") >= 40


async def test_deletions_without_an_answer_give_back_their_workers() -> None:
    """With 20 workers, 60 deletions hang for as long as a call may take; a pod that is due later is still evicted."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pods(server, "stuck", 60, "n1")
        server.faults.add(verb="delete", resource="pods", node="n1", hang=True)
        server.taint("n2", KEY)
        # No call ends during the test.
        hanging = replace(QUICK, call_timeout_seconds=2 * PATIENCE_SECONDS, grace_seconds=0.1)
        async with controlling(server, hanging) as running:
            await running.watching_pods_of("n2")
            server.taint("n1", KEY)
            await server.requests.wait_for(verb="delete", resource="pods", count=20)
            add_pod(server, "web", "n2")
            await deleted(server, "web")
            await server.requests.wait_for(verb="delete", resource="pods", count=61)
            assert running.application.engine.driver.in_flight == 60


@pytest.mark.parametrize(
    ("refusal", "tries"), [({"status": 403}, 1), ({"status": 422}, 1), ({"status": 500}, 3)], ids=str
)
async def test_condition_that_is_always_refused_does_not_block_the_eviction(
    refusal: dict[str, Any], tries: int
) -> None:
    """W9: if the DisruptionTarget condition cannot be set, the pod is read once and deleted nevertheless."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        server.faults.add(verb="patch", resource="pods/status", **refusal)
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await evicted_and_told_once(running, uid)
            assert len(server.requests.select(verb="patch", resource="pods/status")) == tries
            assert len(server.requests.select(verb="get", resource="pods")) == 1
            assert len(deletes(server)) == 1


async def test_condition_that_is_never_answered_does_not_block_the_eviction() -> None:
    """W9: after three tries that end with the timeout of a call, the pod is deleted nevertheless."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        server.faults.add(verb="patch", resource="pods/status", hang=True)
        async with controlling(server, replace(QUICK, call_timeout_seconds=0.5)) as running:
            server.taint("n1", KEY)
            await evicted_and_told_at_most_once(running, uid)
            assert len(server.requests.select(verb="patch", resource="pods/status")) >= 3


@pytest.mark.parametrize(
    "refusal", [{"status": 503}, {"status": 429, "headers": {"Retry-After": "1"}}, {"reset": True}], ids=str
)
async def test_condition_that_is_refused_once_is_set_before_the_pod_is_deleted(refusal: dict[str, Any]) -> None:
    """Jobs and the disruption controller use the condition, so a refusal that may be temporary is tried again first."""
    async with ApiServer(seed=1) as server:
        server.kubelets.finish_after_seconds = 30.0
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        server.faults.add(verb="patch", resource="pods/status", times=1, **refusal)
        async with controlling(server):
            server.taint("n1", KEY)
            await deleted(server, "web")
            assert condition_of(server, "web")["status"] == "True"
            assert len(server.requests.select(verb="patch", resource="pods/status")) == 2
            assert server.requests.select(verb="get", resource="pods") == []


async def test_condition_is_taken_back_when_a_refused_eviction_is_cancelled() -> None:
    """W10: after an untaint, DisruptionTarget is False with our reason, and the pod lives."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        uid = add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", status=500)
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("attempts_total", outcome="refused") >= 3)
            assert condition_of(server, "web")["status"] == "True"
            server.untaint("n1", KEY)
            await running.until(lambda: condition_of(server, "web")["status"] == "False")
            assert condition_of(server, "web")["reason"] == "DeletionByTaintManager"
            await running.until(lambda: events_about(server, uid))
            await running.end()
            assert running.metric("pending_evictions") == 0
            assert running.metric("cancelled_total") == 1
            assert events_about(server, uid) == [
                "Cancelling deletion of Pod default/web: its node has no NoExecute taint"
            ]


async def test_taking_back_is_repeated_until_it_succeeds() -> None:
    """W10: the patch is refused, throttled and cut off, and succeeds in the end."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", status=500)
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("attempts_total", outcome="refused") >= 1)
            for kind in ({"status": 500}, {"status": 429}, {"reset": True}, {"status": 409}):
                server.faults.add(verb="patch", resource="pods/status", times=1, **kind)
            server.untaint("n1", KEY)
            await running.until(lambda: condition_of(server, "web")["status"] == "False")


async def test_condition_of_somebody_else_stays() -> None:
    """W10: the eviction API's DisruptionTarget stays on a pod whose countdown is cancelled before any try."""
    theirs = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "x"}
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1", tolerates(600))
        server.patch("pods", "web", {"status": {"conditions": [theirs]}})
        before = server.get("pods", "web")
        async with controlling(server) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 1)
            server.untaint("n1", KEY)
            await running.until(lambda: running.metric("cancelled_total") == 1)
            await running.end()
            assert server.get("pods", "web") == before


async def test_condition_that_somebody_else_has_overwritten_is_not_taken_back() -> None:
    """W10: only a condition with our own reason is taken back, although the controller had set one here before."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        server.faults.add(verb="delete", resource="pods", status=500)
        async with controlling(server, replace(QUICK, retry=RetrySettings(0.3, 0.3))) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("attempts_total", outcome="refused") == 1)
            theirs = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            server.patch("pods", "web", {"status": {"conditions": [theirs]}})
            server.untaint("n1", KEY)
            await running.until(lambda: running.metric("cancelled_total") == 1)
            await until(lambda: server.requests.select(verb="get", resource="pods"))
            await running.end()
            assert condition_of(server, "web")["reason"] == "PreemptionByScheduler"
            assert condition_of(server, "web")["status"] == "True"
