"""A process finds out whether the admission policy narrows its own account, tells it, and works on in any case."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest
from tests.stage.controlled import Controlled, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, deleted

from fake_apiserver import ApiServer, Fault
from taint_eviction.kube.own_policy import REFUSAL

ACCOUNT = "system:serviceaccount:kube-system:taint-eviction-controller"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """An API server that says whose account it is, and has a pod that a deletion can be tried on."""
    async with ApiServer(seed=1) as made:
        review = {"kind": "SelfSubjectReview", "status": {"userInfo": {"username": ACCOUNT}}}
        made.faults.add(path="selfsubjectreviews", status=201, message=json.dumps(review), plain_text=True)
        add_nodes(made, "n1")
        add_pod(made, "web", "n1")
        pod = made.get("pods", "web") or {}
        made.update("pods", {**pod, "status": {"phase": "Running"}})
        yield made


async def status_of(running: Controlled) -> dict[str, object]:
    """Return the status document."""
    found: dict[str, object] = json.loads((await running.probe("/status"))[1])
    return found


async def test_an_account_that_no_policy_narrows_is_told_by_name(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, in the status and by a metric; pods are evicted all the same, and the try deletes none."""
    caplog.set_level(logging.WARNING)
    said = f"the admission policy is not in force for {ACCOUNT}, which may write more than the controller does"
    async with controlling(server) as running:
        await running.until(lambda: running.metric("admission_policy_missing"))
        status = await status_of(running)
        assert status["admissionPolicy"] == {"account": ACCOUNT, "inForce": False}
        assert status["warnings"] == [said]
        assert server.get("pods", "web") is not None
        server.taint("n1", KEY)
        await deleted(server, "web")
    assert [each.message for each in caplog.records].count(said) == 1


@pytest.mark.parametrize("status", [404, 502])
async def test_a_proxy_that_answers_in_place_of_the_api_server_says_nothing_of_the_policy(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A page of a balancer at the start must not look like an API server that has no such policies."""
    monkeypatch.setattr("taint_eviction.runtime.policy_check._RECHECK_SECONDS", 0.1)
    server.faults.rules.insert(0, Fault(path="selfsubjectreviews", status=status, html=True, times=1))
    async with controlling(server) as running:
        await running.until(lambda: running.metric("admission_policy_missing"))


async def test_a_policy_that_refuses_the_deletion_without_uid_is_in_force(server: ApiServer) -> None:
    """Nothing is told; of the two tries, the second one has no UID."""
    first = server.faults.add(verb="delete", resource="pods", status=200, message="{}", plain_text=True, times=1)
    second = server.faults.add(verb="delete", resource="pods", status=422, message=REFUSAL, times=1)
    async with controlling(server) as running:
        await running.until(lambda: first.hits and second.hits)
        expected = {"account": ACCOUNT, "inForce": True}
        while (status := await status_of(running))["admissionPolicy"] != expected:  # noqa: ASYNC110  # over HTTP
            await asyncio.sleep(0.01)
        assert status["warnings"] == []
        assert running.metric("admission_policy_missing") == 0
