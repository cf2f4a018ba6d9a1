"""Which pods ``hand-back`` lists."""

from collections.abc import Callable
from typing import Any, cast

from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction_ctl.cli.giving_back import list_marked


def _pod(number: int) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": f"web-{number}", "uid": f"uid-{number}"}
    return {"metadata": {**metadata, "annotations": {NOTE_ANNOTATION: "[]"}}, "spec": {}}


class ExpiringOnce:
    """Calls that are answered as by an API server that forgets a list when its second page is first asked for."""

    def __init__(self) -> None:
        self._forgot = False

    async def make(self, call: ApiRequest, take: Callable[[Any], None]) -> ApiAnswer:
        if call.resource == "nodes":
            return ApiAnswer(Outcome.DONE, 200, {"items": []}, None)
        is_second = "continue" in (call.query or {})
        if is_second and not self._forgot:
            self._forgot = True
            return ApiAnswer(Outcome.EXPIRED, 410, None, None)
        take(_pod(int(is_second)))
        following = {} if is_second else {"metadata": {"continue": "next"}}
        return ApiAnswer(Outcome.DONE, 200, {"items": [], **following}, None)


async def test_a_pod_that_is_listed_twice_counts_once() -> None:
    """A list starts again if its next page has expired, after some pods have been read."""
    found = await list_marked(cast(ApiCalls, ExpiringOnce()))
    assert [str(each.pod.ref) for each in found.pods] == ["shop/web-0", "shop/web-1"]
