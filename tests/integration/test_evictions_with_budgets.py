"""The whole controller in the modes evict and evict-then-delete, with an API server that enforces budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.stage.controlled import QUICK, Controlled, controlling
from tests.stage.objects import KEY, Json, add_nodes, condition_of, deletes, events_about, is_leaving, tolerates
from tests.stage.waiting import now

from fake_apiserver import ApiServer, LoggedRequest, pod_object
from taint_eviction.core.events import Block, BlockReason
from taint_eviction.core.policy import EvictionMode, EvictionPolicy
from taint_eviction.core.status import Pending

EVICT = replace(QUICK, policy=EvictionPolicy(mode=EvictionMode.EVICT))
THEN_DELETE = EvictionPolicy(mode=EvictionMode.EVICT_THEN_DELETE, evict_timeout_seconds=1.0)
EXHAUSTED = Block(BlockReason.BUDGET, "web")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry a pod that a budget blocks first after 0.05 s, not after 5 s."""
    monkeypatch.setattr("taint_eviction.runtime.backoff._FIRST_BLOCKED_SECONDS", 0.05)


def add_pod(server: ApiServer, name: str, node: str = "n1", *tolerations: Json) -> str:
    """Create a pod that is ready, labelled by its name without its number, and return its UID."""
    pod = pod_object("default", name, node, timestamp=server.clock.timestamp())
    pod["spec"]["tolerations"] = list(tolerations)
    return str(server.create("pods", pod)["metadata"]["uid"])


def add_budget(server: ApiServer, app: str = "web", name: str | None = None, **spec: Any) -> None:
    """Create a budget for the pods of an application, by default with the application's name."""
    selector = {"matchLabels": {"app": app}}
    server.create("poddisruptionbudgets", {"metadata": {"name": name or app}, "spec": {"selector": selector, **spec}})


def free(server: ApiServer) -> None:
    """Let the budget allow all evictions."""
    server.patch("poddisruptionbudgets", "web", {"spec": {"minAvailable": 0}})


def asked(server: ApiServer, name: str | None = None) -> list[LoggedRequest]:
    """Return the eviction requests that have arrived, for one pod or for all."""
    wanted = {} if name is None else {"name": name}
    return server.requests.select(verb="create", resource="pods/eviction", **wanted)


def written(server: ApiServer) -> set[tuple[str, str]]:
    """Return the verbs and resources of all writes to pods."""
    changing = {"create", "patch", "update", "delete"}
    return {(r.verb, r.resource) for r in server.requests.entries if r.verb in changing and "pods" in r.resource}


def pending(running: Controlled, name: str) -> Pending | None:
    """Return the pending eviction of a pod in the default namespace, if any."""
    now = running.clock.now()
    waiting = running.application.engine.live.controller.status.pending(now)
    return next((found for found in waiting if found.record.pod.ref.key.name == name), None)


def block_of(running: Controlled, name: str) -> Block | None:
    """Return the budget that blocks a pod, as the controller reports it."""
    found = pending(running, name)
    return None if found is None or found.failures is None else found.failures.block


async def let_go(running: Controlled, name: str) -> None:
    """Wait until a pod has no pending eviction, and no request of the controller is under way."""
    await running.until(lambda: pending(running, name) is None and running.application.engine.driver.in_flight == 0)


def counting(server: ApiServer) -> Callable[[], int]:
    """Return a function that returns the smallest number of ready pods of ``web`` from now on."""
    worst = [99]

    def count(_: object) -> None:
        pods = server.list("pods", label_selector="app=web")
        serving = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        ready = [c for pod in serving for c in pod["status"].get("conditions") or [] if c["type"] == "Ready"]
        worst[0] = min(worst[0], sum(c["status"] == "True" for c in ready))

    server.store.subscribe(count)
    return lambda: worst[0]


# Evictions that no budget forbids


async def test_eviction_is_one_request_after_live_reads_of_node_and_pod() -> None:
    """The controller writes no condition, since the API server does; it counts the eviction and posts an event."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.kubelets.finish_after_seconds = 30.0
        uid = add_pod(server, "web-0")
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pod_deletions_total") == 1)
            await running.until(lambda: events_about(server, uid))
        assert written(server) == {("create", "pods/eviction")}
        [request] = asked(server)
        assert request.body["deleteOptions"] == {"preconditions": {"uid": uid}}
        reads = [r.resource for r in server.requests.entries if r.verb == "get" and r.number < request.number]
        assert reads[-2:] == ["nodes", "pods"]
        assert condition_of(server, "web-0")["reason"] == "EvictionByEvictionAPI"
        assert events_about(server, uid) == [
            f"Marking for deletion Pod default/web-0: taint {KEY}:NoExecute is not tolerated"
        ]


async def test_eviction_whose_answer_was_lost_is_not_requested_again() -> None:
    """The controller sees the terminating pod, and counts and posts its eviction once."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.kubelets.finish_after_seconds = 30.0
        uid = add_pod(server, "web-0")
        server.faults.add(resource="pods/eviction", times=1, reset=True, when="after")
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pod_deletions_total") == 1)
            await running.until(lambda: events_about(server, uid))
        assert len(asked(server)) == 1
        assert len(events_about(server, uid)) == 1


# Budgets


@pytest.mark.usefixtures("impatient")
async def test_budget_of_two_of_three_pods_allows_one_eviction_at_a_time() -> None:
    """Each pod waits until the pod before it is ready again on another node, and two pods are ready at all times."""
    names = ("web-0", "web-1", "web-2")
    async with ApiServer(seed=1) as server:
        server.kubelets.start_after_seconds = 0.1
        add_nodes(server, "n1", "n2")
        before = {add_pod(server, name) for name in names}
        add_budget(server, minAvailable=2)
        for name in names:
            server.recreate_when_gone("default", name, node="n2")
        fewest = counting(server)
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await running.until(lambda: running.metric("pod_deletions_total") == 3)
            await running.until(lambda: len(server.list("pods", field_selector="spec.nodeName=n2")) == 3)
        assert fewest() == 2
        assert not before & {pod["metadata"]["uid"] for pod in server.list("pods")}
        assert [request.code for request in asked(server)].count(201) == 3
        assert written(server) <= {("create", "pods/eviction"), ("create", "pods"), ("create", "pods/binding")}


async def test_exhausted_budget_is_asked_again_after_five_seconds() -> None:
    """Each pod is shown as blocked by the budget; once the budget allows it, the next request evicts the pod."""
    names = ("web-0", "web-1", "web-2")
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        for name in names:
            add_pod(server, name)
        add_budget(server, minAvailable=3)
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await running.until(lambda: all(block_of(running, name) == EXHAUSTED for name in names))
            assert not any(is_leaving(server, name) for name in names)
            free(server)
            await running.until(lambda: all(is_leaving(server, name) for name in names))
        for name in names:
            assert [request.code for request in asked(server, name)] == [429, 201]
            first, second = asked(server, name)
            assert second.arrived_at - first.arrived_at >= 5.0


async def test_retry_time_of_a_budget_that_is_not_processed_yet_is_honoured() -> None:
    """A 429 with Retry-After 1 and such a cause is retried no sooner than after a second."""
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web is still being processed by the server.",
    }
    details = {"causes": [cause], "retryAfterSeconds": 1}
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web-0")
        server.faults.add(resource="pods/eviction", times=1, status=429, details=details, headers={"Retry-After": "1"})
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await running.until(lambda: block_of(running, "web-0") == Block(BlockReason.BUDGET_NOT_READY, "web"))
            await running.until(lambda: is_leaving(server, "web-0"))
        first, second = asked(server)
        assert second.arrived_at - first.arrived_at >= 1.0


@pytest.mark.usefixtures("impatient")
async def test_two_budgets_block_only_their_pod_until_one_budget_is_deleted() -> None:
    """The API server names neither budget; a pod of the same node with one budget is evicted at once."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web-0")
        add_pod(server, "db-0")
        add_budget(server, maxUnavailable=1)
        add_budget(server, name="second", maxUnavailable=1)
        add_budget(server, "db", maxUnavailable=1)
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await running.until(lambda: block_of(running, "web-0") == Block(BlockReason.SEVERAL_BUDGETS, ""))
            await running.until(lambda: is_leaving(server, "db-0"))
            assert not is_leaving(server, "web-0")
            server.delete("poddisruptionbudgets", "second")
            await running.until(lambda: is_leaving(server, "web-0"))
        assert {request.code for request in asked(server, "web-0")[:-1]} == {500}


@pytest.mark.usefixtures("impatient")
async def test_many_blocked_pods_do_not_delay_others() -> None:
    """A blocked pod uses no worker: with two workers and thirty blocked pods, a pod without budget is evicted."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        for number in range(30):
            add_pod(server, f"web-{number}")
        add_pod(server, "db-0", "n2")
        add_budget(server, maxUnavailable=0)
        async with controlling(server, replace(EVICT, workers=2)) as running:
            server.taint("n1", KEY)
            await running.until(lambda: len({request.name for request in asked(server)}) == 30)
            server.taint("n2", KEY)
            await running.until(lambda: is_leaving(server, "db-0"))
        assert {request.name for request in asked(server) if request.code == 201} == {"db-0"}


async def test_missing_right_to_evict_is_no_block_and_is_tried_again() -> None:
    """A 403 about the pod is an ordinary failure with the ordinary backoff."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web-0")
        server.answerer.authorize = lambda request: request.resource_name != "pods/eviction"
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await server.requests.wait_for(resource="pods/eviction", count=3)
            found = pending(running, "web-0")
            assert found is not None
            assert found.failures is not None
            assert found.failures.block is None
            server.answerer.authorize = None
            await running.until(lambda: is_leaving(server, "web-0"))


# Evictions that are no longer wanted


@pytest.mark.usefixtures("impatient")
async def test_untainting_the_node_of_a_blocked_pod_ends_its_requests() -> None:
    """The pod stays although its budget now allows the eviction; requests for a blocked pod elsewhere continue."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "web-0")
        add_pod(server, "db-0", "n2")
        add_budget(server, maxUnavailable=0)
        add_budget(server, "db", maxUnavailable=0)
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            server.taint("n2", KEY)
            await running.until(lambda: block_of(running, "web-0") and block_of(running, "db-0"))
            server.untaint("n1", KEY)
            await let_go(running, "web-0")
            free(server)
            times = len(asked(server, "web-0"))
            others = len(asked(server, "db-0"))
            await running.until(lambda: len(asked(server, "db-0")) > others + 5)
            assert len(asked(server, "web-0")) == times
            assert not is_leaving(server, "web-0")
            assert condition_of(server, "web-0") == {}


@pytest.mark.usefixtures("impatient")
async def test_no_eviction_is_requested_for_a_blocked_pods_successor_on_a_clean_node() -> None:
    """W2: the blocked pod was another pod with the same name."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "web-0")
        add_pod(server, "db-0")
        add_budget(server, maxUnavailable=0)
        add_budget(server, "db", maxUnavailable=0)
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await running.until(lambda: block_of(running, "web-0") and block_of(running, "db-0"))
            server.delete("pods", "web-0", grace_period_seconds=0)
            add_pod(server, "web-0", "n2")
            await let_go(running, "web-0")
            free(server)
            times, others = len(asked(server, "web-0")), len(asked(server, "db-0"))
            await running.until(lambda: len(asked(server, "db-0")) > others + 5)
            assert len(asked(server, "web-0")) == times
        assert not is_leaving(server, "web-0")


async def test_eviction_that_arrives_late_never_affects_the_successor() -> None:
    """W2: the pod is replaced during the request; the UID precondition gives a 409, and no other request is sent."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "web-0")
        server.faults.add(resource="pods/eviction", times=1, delay_seconds=0.2)
        async with controlling(server, EVICT) as running:
            server.taint("n1", KEY)
            await server.requests.wait_for(resource="pods/eviction")
            server.delete("pods", "web-0", grace_period_seconds=0)
            add_pod(server, "web-0", "n2")
            await running.until(lambda: asked(server)[0].code == 409)
            await running.until(lambda: running.application.engine.driver.in_flight == 0)
            assert running.metric("pod_deletions_total") == 0
        assert len(asked(server)) == 1
        assert not is_leaving(server, "web-0")


# Evict, then delete


async def test_evict_then_delete_deletes_the_pod_after_the_evict_timeout() -> None:
    """After a second of refusals by the budget, the controller sets its own condition and deletes the pod."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.kubelets.finish_after_seconds = 30.0
        uid = add_pod(server, "web-0", "n1", tolerates(1))
        add_budget(server, minAvailable=1)
        async with controlling(server, replace(QUICK, policy=THEN_DELETE)) as running:
            tainted_at = now()
            server.taint("n1", KEY)
            await running.until(lambda: block_of(running, "web-0") == EXHAUSTED)
            await running.until(lambda: is_leaving(server, "web-0"))
            await running.until(lambda: events_about(server, uid))
            assert running.metric("pod_deletions_total") == 1
        [refused], [deletion] = asked(server), deletes(server)
        # A second of tolerance, and one for the budget.
        assert refused.arrived_at - tainted_at >= 1.0
        assert deletion.arrived_at - tainted_at >= 2.0
        assert deletion.body["preconditions"] == {"uid": uid}
        assert condition_of(server, "web-0")["reason"] == "DeletionByTaintManager"


@pytest.mark.usefixtures("impatient")
async def test_evict_then_delete_evicts_if_the_budget_allows_it_in_time() -> None:
    """No DELETE is sent for a pod that its budget allows to be evicted before the timeout."""
    patient = replace(THEN_DELETE, evict_timeout_seconds=60.0)
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web-0")
        add_budget(server, minAvailable=1)
        async with controlling(server, replace(QUICK, policy=patient)) as running:
            server.taint("n1", KEY)
            await running.until(lambda: block_of(running, "web-0") == EXHAUSTED)
            free(server)
            await running.until(lambda: is_leaving(server, "web-0"))
        assert not deletes(server)


async def test_evict_then_delete_waits_for_the_whole_timeout_however_overdue_the_pod_is() -> None:
    """Two pods have been due for an hour: one is evicted, and the other is refused and deleted a second later."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.clock.offset_seconds = -3600
        add_pod(server, "web-0")
        add_pod(server, "db-0")
        server.taint("n1", KEY)
        server.clock.offset_seconds = 0
        add_budget(server, maxUnavailable=0)
        async with controlling(server, replace(QUICK, policy=THEN_DELETE)) as running:
            await running.until(lambda: is_leaving(server, "web-0") and is_leaving(server, "db-0"))
        assert [request.code for request in asked(server, "db-0")] == [201]
        [refused] = asked(server, "web-0")
        assert refused.code == 429
        [deleted] = deletes(server)
        assert (deleted.name, deleted.arrived_at >= refused.arrived_at + 1.0) == ("web-0", True)
