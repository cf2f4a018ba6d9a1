"""Our client uses the embedded API server's eviction API: which evictions are accepted, and what each refusal means."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.stage.client import ClientStage, client_stage
from tests.stage.waiting import until
from tests.unit.builders import at_once

from fake_apiserver import pod_object
from taint_eviction.core.events import Block, BlockReason
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.kube.answers import failure_reason
from taint_eviction.kube.evictions import eviction_body
from taint_eviction.runtime.ports import CallFailed, FailureReason

WEB = {"matchLabels": {"app": "web"}}


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A stage for one test, whose pods need 30 s to terminate."""
    async with client_stage(tmp_path) as made:
        made.server.kubelets.finish_after_seconds = 30.0
        yield made


def add_pod(at: ClientStage, name: str = "web-0", *, ready: bool = True, phase: str = "Running") -> PodRef:
    """Create a pod, by default running and ready."""
    pod = pod_object("default", name, "n1", timestamp=at.server.clock.timestamp())
    pod["status"]["phase"] = phase
    if not ready:
        pod["status"]["conditions"][-1]["status"] = "False"
    return PodRef(NamespacedName("default", name), at.server.create("pods", pod)["metadata"]["uid"])


async def add_budget(at: ClientStage, name: str = "b", **spec: Any) -> None:
    """Create a budget for pods with the label app=web, and wait until the disruption controller has processed it."""
    at.server.create("poddisruptionbudgets", {"metadata": {"name": name}, "spec": {"selector": WEB, **spec}})
    await counted(at, name, observedGeneration=1)


async def counted(at: ClientStage, name: str = "b", **wanted: int) -> None:
    """Wait until the disruption controller has written these values into a budget's status."""

    def status() -> Mapping[str, Any]:
        return (at.server.get("poddisruptionbudgets", name) or {}).get("status") or {}

    await until(lambda: all(status().get(field) == value for field, value in wanted.items()))


def add_counted_budget(at: ClientStage, **status: Any) -> None:
    """Create a budget with this status, which the disruption controller does not update."""
    at.server.budgets.paused = True
    spec = {"selector": WEB, "minAvailable": 1}
    status = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, **status}
    at.server.create("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": spec, "status": status})


async def refused(at: ClientStage, ref: PodRef) -> CallFailed:
    """Ask for an eviction that is refused, and return the refusal; check that the pod is unchanged."""
    before = at.server.get("pods", ref.key.name)
    with pytest.raises(CallFailed) as failed:
        await at.writer.evict(ref, at_once)
    assert at.server.get("pods", ref.key.name) == before
    return failed.value


def is_leaving(at: ClientStage, ref: PodRef) -> bool:
    """Return whether a pod is terminating."""
    return "deletionTimestamp" in (at.server.get("pods", ref.key.name) or {})["metadata"]


# Accepted


async def test_a_pod_without_budget_is_evicted_by_its_uid_with_its_own_grace(at: ClientStage) -> None:
    """The client sends one POST and counts it; the server sets the condition."""
    ref = add_pod(at)
    assert await at.writer.evict(ref, at_once)
    assert is_leaving(at, ref)
    assert at.condition("web-0")["reason"] == "EvictionByEvictionAPI"
    [request] = at.server.requests.select(verb="create", resource="pods/eviction")
    assert (request.body, request.query) == (eviction_body(ref), {})
    assert at.counted == [("create", "pods/eviction", "201")]
    assert (at.server.get("pods", "web-0") or {})["metadata"]["deletionGracePeriodSeconds"] == 30


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_do_not_run_pass_an_exhausted_budget(at: ClientStage, phase: str) -> None:
    """The API server ignores budgets for pods that are pending or finished."""
    ref = add_pod(at, phase=phase)
    await add_budget(at, maxUnavailable=0)
    assert await at.writer.evict(ref, at_once)


async def test_evicting_a_terminating_pod_succeeds(at: ClientStage) -> None:
    """The exhausted budget does not matter, since the pod is going away already."""
    ref = add_pod(at)
    at.server.delete("pods", "web-0")
    await add_budget(at, maxUnavailable=0)
    assert await at.writer.evict(ref, at_once)


async def test_an_unready_pod_is_evicted_if_the_others_meet_the_budget_or_the_budget_always_allows_it(
    at: ClientStage,
) -> None:
    """An unready pod does not count as healthy, so a budget that is met stays met; AlwaysAllow skips this check."""
    sick, _ = add_pod(at, ready=False), add_pod(at, "web-1")
    await add_budget(at, minAvailable=2)
    assert (await refused(at, sick)).block == Block(BlockReason.BUDGET, "b")
    at.server.patch("poddisruptionbudgets", "b", {"spec": {"minAvailable": 1}})
    await counted(at, desiredHealthy=1)
    assert await at.writer.evict(sick, at_once)

    other = add_pod(at, "web-2", ready=False)
    patch = {"spec": {"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    at.server.patch("poddisruptionbudgets", "b", patch)
    assert await at.writer.evict(other, at_once)


# Pods that are gone


async def test_an_eviction_returns_false_if_the_uid_differs_or_the_pod_is_gone(at: ClientStage) -> None:
    """The server answers 409 (precondition) or 404: the pod is gone, and the pod that has its name now is unchanged."""
    ref = add_pod(at)
    before = at.server.get("pods", "web-0")
    assert not await at.writer.evict(ref._replace(uid="other"), at_once)
    assert not await at.writer.evict(PodRef(NamespacedName("default", "gone"), "x"), at_once)
    assert at.server.get("pods", "web-0") == before
    assert [code for *_, code in at.counted] == ["409", "404"]


async def test_an_eviction_with_a_stale_uid_uses_up_the_budget_of_the_pod_that_has_the_name_now(
    at: ClientStage,
) -> None:
    """The server checks the budget before it compares the UID, so the live pod must be read before each eviction."""
    ref, _ = add_pod(at), add_pod(at, "web-1")
    await add_budget(at, maxUnavailable=1)
    assert not await at.writer.evict(ref._replace(uid="other"), at_once)
    assert (await refused(at, ref)).block == Block(BlockReason.BUDGET, "b")


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 404, "plain_text": True, "message": "404 page not found"},
        {"status": 404, "message": "the server could not find the requested resource"},
        {"status": 404, "details": {"name": "web-0", "kind": "poddisruptionbudgets", "group": "policy"}},
        {"status": 404, "details": {"name": "web-0", "kind": "namespaces"}},
        {"status": 409, "message": "the object has been modified", "details": {"name": "b", "kind": "pods"}},
    ],
)
async def test_an_answer_that_is_not_about_the_pod_does_not_mean_that_the_pod_is_gone(
    at: ClientStage, fault: dict[str, Any]
) -> None:
    """Examples are a wrong path, a missing namespace or budget of the same name, and a conflict over a budget."""
    ref = add_pod(at)
    at.server.faults.add(resource="pods/eviction", **fault)
    failed = await refused(at, ref)
    assert (failed.reason, failed.block) == (failure_reason(fault["status"]), None)


# Budgets


async def test_an_exhausted_budget_is_named_with_its_numbers_and_without_a_retry_time(at: ClientStage) -> None:
    """The server answers 429 with a cause; asking uses up nothing of the budget."""
    ref = add_pod(at)
    await add_budget(at, minAvailable=1)
    before = at.server.get("poddisruptionbudgets", "b")
    for _ in range(2):
        failed = await refused(at, ref)
        assert (failed.reason, failed.retry_after_seconds) == (FailureReason.OTHER, None)
        assert failed.block == Block(BlockReason.BUDGET, "b")
        assert str(failed) == (
            "Cannot evict pod as it would violate the pod's disruption budget. "
            "The disruption budget b needs 1 healthy pods and has 1 currently (HTTP 429)"
        )
    assert at.server.get("poddisruptionbudgets", "b") == before


async def test_a_budget_that_allows_one_eviction_allows_the_next_once_the_replacement_is_ready(at: ClientStage) -> None:
    """The second pod is blocked until the disruption controller has counted another ready pod."""
    first, second = add_pod(at), add_pod(at, "web-1")
    await add_budget(at, minAvailable=1)
    assert await at.writer.evict(first, at_once)
    assert (await refused(at, second)).block == Block(BlockReason.BUDGET, "b")
    add_pod(at, "web-2", ready=False)
    await counted(at, expectedPods=3)
    assert (await refused(at, second)).block == Block(BlockReason.BUDGET, "b")
    add_pod(at, "web-3")
    await counted(at, disruptionsAllowed=1)
    assert await at.writer.evict(second, at_once)


async def test_a_budget_that_has_not_been_processed_yet_asks_to_retry_in_ten_seconds(at: ClientStage) -> None:
    """The disruption controller has not seen this generation of the budget, which is new or was just changed."""
    ref = add_pod(at)
    add_counted_budget(at, observedGeneration=0, disruptionsAllowed=1)
    failed = await refused(at, ref)
    assert (failed.reason, failed.retry_after_seconds) == (FailureReason.OTHER, 10.0)
    assert failed.block == Block(BlockReason.BUDGET_NOT_READY, "b")
    at.server.budgets.resume()
    assert (await refused(at, ref)).block == Block(BlockReason.BUDGET, "b")


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ({"disruptionsAllowed": -1}, BlockReason.BUDGET_NEGATIVE, 403),
        (
            {"disruptionsAllowed": 1, "disruptedPods": {f"p{n}": "2026-01-01T00:00:00Z" for n in range(2001)}},
            BlockReason.BUDGET_OVERLOADED,
            403,
        ),
        ({"currentHealthy": 2}, BlockReason.BUDGET, 429),
    ],
)
async def test_unusual_states_of_a_budget_block_too(
    at: ClientStage, status: Any, reason: BlockReason, code: int
) -> None:
    """A 403 about a budget is no missing right, and a budget may refuse although its status looks sufficient."""
    ref = add_pod(at)
    add_counted_budget(at, **status)
    failed = await refused(at, ref)
    assert (failed.reason, failed.block) == (failure_reason(code), Block(reason, "b"))


async def test_two_budgets_for_one_pod_block_without_a_name(at: ClientStage) -> None:
    """The server answers 500 without a reason, whatever the budgets allow."""
    ref = add_pod(at)
    await add_budget(at, "b", maxUnavailable=1)
    await add_budget(at, "c", maxUnavailable=1)
    failed = await refused(at, ref)
    assert (failed.reason, failed.block) == (FailureReason.OTHER, Block(BlockReason.SEVERAL_BUDGETS, ""))


# Refusals that are not blocks


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ({"status": 429, "plain_text": True, "headers": {"Retry-After": "1"}}, 1.0),
        ({"status": 429, "headers": {"Retry-After": "0"}}, None),
        ({"status": 429, "message": 'admission webhook "w" denied the request: not now'}, None),
        ({"status": 403, "message": 'admission webhook "w" denied the request: never'}, None),
        ({"status": 403, "details": {"name": "web-0", "causes": [{"reason": "NamespaceTerminating"}]}}, None),
        ({"status": 500, "message": 'failed calling webhook "w"'}, None),
        ({"status": 504, "details": {"retryAfterSeconds": 10}}, 10.0),
    ],
)
async def test_other_refusals_are_failed_calls_without_a_block(
    at: ClientStage, fault: dict[str, Any], seconds: float | None
) -> None:
    """They come from API Priority and Fairness, webhooks, a terminating namespace, and conflicting budget writes."""
    ref = add_pod(at)
    at.server.faults.add(resource="pods/eviction", **fault)
    failed = await refused(at, ref)
    assert (failed.reason, failed.block, failed.retry_after_seconds) == (failure_reason(fault["status"]), None, seconds)


@pytest.mark.parametrize(
    ("fault", "certain"),
    [
        ({"status": 403}, True),
        ({"status": 409, "message": "the object has been modified"}, True),
        ({"status": 429}, True),
        ({"status": 500}, False),
        ({"status": 504}, False),
    ],
)
async def test_only_a_refusal_with_4xx_says_that_nothing_was_done(
    at: ClientStage, fault: dict[str, Any], certain: bool
) -> None:
    """An API server that answers 5xx may have carried out the call, or may still do so."""
    ref = add_pod(at)
    at.server.faults.add(resource="pods/eviction", **fault)
    assert (await refused(at, ref)).certain is certain


async def test_a_missing_right_is_a_failed_call_without_a_block(at: ClientStage) -> None:
    """The API server answers 403 about the pod."""
    ref = add_pod(at)
    at.server.answerer.authorize = lambda request: request.resource_name != "pods/eviction"
    failed = await refused(at, ref)
    assert (failed.reason, failed.block) == (FailureReason.FORBIDDEN, None)
    assert 'cannot create resource "pods/eviction"' in str(failed)
