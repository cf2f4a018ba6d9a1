"""Which pods ``hand-back`` lists."""

from types import SimpleNamespace
from typing import Any, cast

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.cli.giving_back import list_adopted


def _pod(number: int) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": f"web-{number}", "uid": f"uid-{number}"}, "spec": {}}


async def _expiring(call: ApiRequest) -> ApiAnswer:
    """Answer like an API server that no longer knows the list when its second page is asked for."""
    query = call.query or {}
    if call.resource == "nodes":
        return ApiAnswer(Outcome.DONE, 200, {"items": []}, None)
    if "continue" in query:
        return ApiAnswer(Outcome.EXPIRED, 410, None, None)
    if "limit" in query:
        return ApiAnswer(Outcome.DONE, 200, {"items": [_pod(0)], "metadata": {"continue": "next"}}, None)
    return ApiAnswer(Outcome.DONE, 200, {"items": [_pod(0), _pod(1)]}, None)


async def test_a_pod_that_is_listed_twice_counts_once() -> None:
    """A list starts again if its next page has expired, after some pods have been read."""
    found = await list_adopted(cast(ApiCalls, SimpleNamespace(make=_expiring)))
    assert [each.name for each in found] == ["shop/web-0", "shop/web-1"]
