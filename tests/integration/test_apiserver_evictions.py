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
    """Wait until the stand-in disruption controller has written this into the budget's status."""

    def status() -> dict[str, Any]:
        budget = server.get("poddisruptionbudgets", "b") or {}
        return budget.get("status") or {}

    await until(lambda: all(status().get(name) == value for name, value in wanted.items()))
    return status()


def _add_web_pods(server: ApiServer, *names: str) -> None:
    for name in names:
        add_pod(server, name, labels={"app": "web"})


async def test_a_pod_without_budget_is_evicted() -> None:
    """The answer is 201, the pod has the condition of the eviction API, and it is terminating."""
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
async def test_a_budgets_status_contains_how_many_disruptions_it_allows(
    spec: dict[str, Any], desired: int, allowed: int
) -> None:
    """Budgets contain numbers or percentages; percentages are rounded up."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1", "p2", "p3")
        await api.post(BUDGETS, _budget(**spec))
        status = await _status(server, observedGeneration=1)
        assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)
        assert (status["currentHealthy"], status["expectedPods"]) == (3, 3)


async def test_an_exhausted_budget_gets_a_429_that_names_it_without_a_retry_time() -> None:
    """The cause contains the numbers, and there is no Retry-After header."""
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


async def test_a_budget_that_is_not_computed_yet_gets_a_429_with_ten_seconds_to_wait() -> None:
    """The disruption controller has not seen the newest spec yet."""
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
    """The second pod can be evicted only after the first one's replacement is ready."""
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


async def test_more_than_one_budget_gets_a_500_without_reason() -> None:
    """The eviction subresource does not support two budgets for one pod."""
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
async def test_the_refusal_of_an_exhausted_budget_names_its_cause(status: dict[str, Any], cause: str) -> None:
    """The budget's condition counts if the numbers do not explain the refusal, or cannot be trusted."""
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
async def test_a_budget_with_an_invalid_status_gets_a_403_about_the_budget(status: dict[str, Any], why: str) -> None:
    """The 403 is not about the pod, since no right is missing."""
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
async def test_unready_pods_are_evicted_if_the_others_suffice_or_the_policy_allows_it(
    spec: dict[str, Any], code: int
) -> None:
    """The table shows the answer for each budget."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1", "p2")
        server.patch("pods", "p1", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        await api.post(BUDGETS, _budget(**spec))
        await _status(server, observedGeneration=1)
        assert (await _evict(api)).code == code


async def test_a_failed_eviction_that_used_up_the_budget_is_forgotten_after_two_minutes() -> None:
    """The server checks the budget before the UID; the disruption controller waits two minutes for the pod's end."""
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
    """Evicting a pod that does not run disrupts nothing."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        server.patch("pods", "p1", {"status": {"phase": phase}})
        await api.post(BUDGETS, _budget(maxUnavailable=0))
        await _status(server, observedGeneration=1)
        assert (await _evict(api)).code == 201


async def test_terminating_pods_pass_an_exhausted_budget() -> None:
    """These pods are going away already."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        server.kubelets.freeze("n1")
        server.delete("pods", "p1")
        await api.post(BUDGETS, _budget(maxUnavailable=0))
        await _status(server, observedGeneration=1)
        assert (await _evict(api)).code == 201


async def test_an_eviction_with_another_uid_gets_a_409_and_does_not_change_the_pod() -> None:
    """deleteOptions.preconditions apply to evictions, too."""
    async with serving() as (server, api):
        add_pod(server)
        refused = await _evict(api, delete_options={"preconditions": {"uid": "other"}})
        assert (refused.code, refused.body["reason"]) == (409, "Conflict")
        pod = (await api.get(f"{PODS}/p1")).body
        assert "DisruptionTarget" not in {c["type"] for c in pod["status"]["conditions"]}


@pytest.mark.parametrize("how", ["query", "body"])
async def test_a_dry_run_eviction_is_accepted_and_changes_nothing(how: str) -> None:
    """Dry run may be set in the query or in the delete options."""
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


async def test_an_eviction_of_a_missing_pod_gets_a_404() -> None:
    """The answer is the same as for a DELETE."""
    async with serving() as (_, api):
        assert (await _evict(api)).code == 404


async def test_the_name_in_the_body_must_be_that_of_the_url() -> None:
    """Another name, or none, gets a 400."""
    async with serving() as (server, api):
        add_pod(server)
        assert (await api.post(f"{PODS}/p1/eviction", {"metadata": {"name": "p2"}})).code == 400
        assert (await api.post(f"{PODS}/p1/eviction", {})).code == 400


@pytest.mark.parametrize(("selector", "code"), [({}, 429), (None, 201)])
async def test_an_empty_selector_covers_every_pod_and_an_absent_one_covers_none(selector: object, code: int) -> None:
    """This is the meaning in policy/v1; in v1beta1, an empty selector covers no pod."""
    async with serving() as (server, api):
        _add_web_pods(server, "p1")
        await api.post(BUDGETS, _budget(maxUnavailable=0, selector=selector))
        await _status(server, disruptionsAllowed=0)
        assert (await _evict(api)).code == code
