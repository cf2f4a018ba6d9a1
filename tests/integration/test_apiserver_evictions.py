"""The embedded API server: evictions and disruption budgets."""

from __future__ import annotations

from typing import Any

import pytest
from apiserver_client import BUDGETS, PODS, Api, HttpAnswer, add_pod, serving
from tests.stage.waiting import until

from fake_apiserver import ApiServer


def _budget(name: str = "b", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


async def _evict(api: Api, name: str = "p1", **options: Any) -> HttpAnswer:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    if "delete_options" in options:
        body["deleteOptions"] = options.pop("delete_options")
    return await api.post(f"{PODS}/{name}/eviction", body, **options)


async def _status(server: ApiServer, **wanted: Any) -> dict[str, Any]:
    """Waits until the stand-in disruption controller has written this into the budget's status."""

    def status() -> dict[str, Any]:
        budget = server.get("poddisruptionbudgets", "b") or {}
        return budget.get("status") or {}

    await until(lambda: all(status().get(name) == value for name, value in wanted.items()))
    return status()


def _add_web_pods(server: ApiServer, *names: str) -> None:
    for name in names:
        add_pod(server, name, labels={"app": "web"})


async def test_a_pod_without_budget_is_evicted() -> None:
    """201, and the pod has the condition of the Eviction API and is on its way out."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.freeze("n1")
        evicted = await _evict(api)
        assert (evicted.code, evicted.body["status"]) == (201, "Success")
        pod = (await api.get(f"{PODS}/p1")).body
        assert "deletionTimestamp" in pod["metadata"]
        condition = next(c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget")
        assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 2, 1),
        ({"minAvailable": "50%"}, 2, 1),
        ({"maxUnavailable": 2}, 1, 2),
        ({"maxUnavailable": "34%"}, 1, 2),
        ({"minAvailable": 4}, 4, 0),
    ],
)
async def test_budgets_say_how_many_disruptions_they_allow(spec: dict[str, Any], desired: int, allowed: int) -> None:
    """Numbers and percentages, percentages rounded up."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1", "p2", "p3")
        await api.post(BUDGETS, _budget(**spec))
        status = await _status(server, observedGeneration=1)
        assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)
        assert (status["currentHealthy"], status["expectedPods"]) == (3, 3)


async def test_an_exhausted_budget_is_a_429_that_names_it_and_advises_no_time() -> None:
    """The cause has the numbers; there is no Retry-After."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        await api.post(BUDGETS, _budget(minAvailable=1))
        await _status(server, observedGeneration=1)
        refused = await _evict(api)
        assert (refused.code, refused.body["reason"]) == (429, "TooManyRequests")
        assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
        assert refused.body["details"] == {
            "causes": [
                {
                    "reason": "DisruptionBudget",
                    "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
                }
            ]
        }
        assert "Retry-After" not in refused.headers


async def test_a_budget_that_is_not_computed_yet_is_a_429_that_advises_ten_seconds() -> None:
    """While the disruption controller has not seen the newest spec."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        server.budgets.paused = True
        await api.post(BUDGETS, _budget(maxUnavailable=1))
        refused = await _evict(api)
        assert (refused.code, refused.headers["Retry-After"]) == (429, "10")
        assert refused.body["details"]["retryAfterSeconds"] == 10
        assert "is still being processed by the server" in refused.body["details"]["causes"][0]["message"]
        server.budgets.resume()
        assert (await _evict(api)).code == 201


async def test_an_eviction_uses_up_the_budget_until_the_pod_is_replaced() -> None:
    """The second one waits for the first pod's successor."""
    async with serving() as (server, api):
        server.kubelets.start_after_seconds = 0.0
        _add_web_pods(server, "p1", "p2")
        await api.post(BUDGETS, _budget(maxUnavailable=1))
        await _status(server, disruptionsAllowed=1)
        server.recreate_when_gone("default", "p1", node="n2", after_seconds=0.05)
        assert (await _evict(api, "p1")).code == 201
        assert (await _evict(api, "p2")).code == 429
        await _status(server, disruptionsAllowed=1, currentHealthy=2)
        assert (await _evict(api, "p2")).code == 201


async def test_more_than_one_budget_is_a_500_without_reason() -> None:
    """The eviction subresource does not support it."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        for name in ("b", "c"):
            await api.post(BUDGETS, _budget(name, maxUnavailable=1))
        refused = await _evict(api)
        assert refused.code == 500
        assert refused.message == (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )


_TOO_BIG = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
_UNSURE = "The disruption budget b does not allow evicting pods currently"
_SYNC_FAILED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"currentHealthy": 2}, _UNSURE),
        ({"currentHealthy": 2, "conditions": [{**_SYNC_FAILED, "reason": "Other"}]}, f"{_UNSURE} (Other): no scale"),
        ({"conditions": [_SYNC_FAILED]}, f"{_UNSURE} because it failed sync: no scale"),
        ({"conditions": [{**_SYNC_FAILED, "reason": "Other"}]},
         "The disruption budget b needs 1 healthy pods and has 1 currently"),
    ],
)  # fmt: skip
async def test_an_exhausted_budget_tells_what_it_knows(status: dict[str, Any], cause: str) -> None:
    """What its condition says where its numbers do not explain it, or cannot be trusted."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        server.budgets.paused = True
        counted = {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0}
        server.create("poddisruptionbudgets", {**_budget(minAvailable=1), "status": {**counted, **status}})
        refused = await _evict(api)
        assert (refused.code, refused.body["details"]["causes"][0]["message"]) == (429, cause)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"disruptionsAllowed": -1}, "pdb disruptions allowed is negative"),
        ({"disruptionsAllowed": 1, "disruptedPods": {f"x{n}": "2026-01-01T00:00:00Z" for n in range(2001)}}, _TOO_BIG),
    ],
)
async def test_a_budget_out_of_order_is_a_403_in_its_own_name(status: dict[str, Any], why: str) -> None:
    """Not in the pod's: nobody lacks a right."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        server.budgets.paused = True
        server.create("poddisruptionbudgets", {**_budget(), "status": {"observedGeneration": 1, **status}})
        refused = await _evict(api)
        assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
        assert refused.message == f'poddisruptionbudget.policy "b" is forbidden: {why}'
        assert refused.body["details"] == {"name": "b", "group": "policy", "kind": "poddisruptionbudget"}


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"minAvailable": 1}, 201),
        ({"minAvailable": 2}, 429),
        ({"minAvailable": 0}, 201),
        ({"minAvailable": 2, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}, 429),
        ({"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, 201),
    ],
)
async def test_pods_that_are_not_ready_go_where_they_are_not_missed(spec: dict[str, Any], code: int) -> None:
    """Where the others suffice, or by the budget's own policy; nothing is taken from the budget then."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1", "p2")
        server.patch("pods", "p1", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        await api.post(BUDGETS, _budget(**spec))
        await _status(server, observedGeneration=1)
        assert (await _evict(api)).code == code


async def test_an_eviction_that_fails_after_the_budget_paid_is_forgotten_after_two_minutes() -> None:
    """The budget is asked before the UID; the disruption controller waits so long for the pod to go."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1", "p2")
        await api.post(BUDGETS, _budget(maxUnavailable=1))
        await _status(server, disruptionsAllowed=1)
        assert (await _evict(api, delete_options={"preconditions": {"uid": "other"}})).code == 409
        assert (await _status(server, disruptionsAllowed=0))["disruptedPods"].keys() == {"p1"}
        server.clock.offset_seconds += 100
        server.budgets.recompute("default")
        assert (await _evict(api, "p2")).code == 429
        server.clock.offset_seconds += 20
        server.budgets.recompute("default")
        assert "disruptedPods" not in await _status(server, disruptionsAllowed=1)
        assert (await _evict(api, "p2")).code == 201


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_do_not_run_pass_an_exhausted_budget(phase: str) -> None:
    """Their going disrupts nothing."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        server.patch("pods", "p1", {"status": {"phase": phase}})
        await api.post(BUDGETS, _budget(maxUnavailable=0))
        await _status(server, observedGeneration=1)
        assert (await _evict(api)).code == 201


async def test_terminating_pods_pass_an_exhausted_budget() -> None:
    """They are going anyway."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        server.kubelets.freeze("n1")
        server.delete("pods", "p1")
        await api.post(BUDGETS, _budget(maxUnavailable=0))
        await _status(server, observedGeneration=1)
        assert (await _evict(api)).code == 201


async def test_an_eviction_with_another_uid_is_a_409_and_leaves_the_pod_alone() -> None:
    """deleteOptions.preconditions hold for evictions too."""
    async with serving() as (server, api):
        add_pod(server)
        refused = await _evict(api, delete_options={"preconditions": {"uid": "other"}})
        assert (refused.code, refused.body["reason"]) == (409, "Conflict")
        pod = (await api.get(f"{PODS}/p1")).body
        assert "DisruptionTarget" not in {c["type"] for c in pod["status"]["conditions"]}


@pytest.mark.parametrize("how", ["query", "body"])
async def test_a_dry_run_eviction_asks_the_budget_and_changes_nothing(how: str) -> None:
    """In the query or in the delete options."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        await api.post(BUDGETS, _budget(maxUnavailable=1))
        await _status(server, disruptionsAllowed=1)
        before = server.store.resource_version
        if how == "query":
            answer = await _evict(api, params={"dryRun": "All"})
        else:
            answer = await _evict(api, delete_options={"dryRun": ["All"]})
        assert answer.code == 201
        assert server.store.resource_version == before


async def test_an_eviction_of_a_missing_pod_is_a_404() -> None:
    """Like a DELETE."""
    async with serving() as (_, api):
        assert (await _evict(api)).code == 404


async def test_the_name_in_the_body_must_be_that_of_the_url() -> None:
    """400 otherwise."""
    async with serving() as (server, api):
        add_pod(server)
        assert (await api.post(f"{PODS}/p1/eviction", {"metadata": {"name": "p2"}})).code == 400
        assert (await api.post(f"{PODS}/p1/eviction", {})).code == 400


@pytest.mark.parametrize(("selector", "code"), [({}, 429), (None, 201)])
async def test_an_empty_selector_covers_every_pod_and_an_absent_one_none(selector: object, code: int) -> None:
    """As in policy/v1; in v1beta1 an empty one covered none."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        await api.post(BUDGETS, _budget(maxUnavailable=0, selector=selector))
        await _status(server, disruptionsAllowed=0)
        assert (await _evict(api)).code == code
