"""Whether the admission policy is in force is asked by deletions that change nothing."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.adapters.own_policy import REFUSAL, OwnPolicy
from taint_eviction.core.objects import NamespacedName
from taint_eviction.runtime.ports import CallFailed

OWN = NamespacedName("kube-system", "controller-1")


def answer(body: Any = None, refusal: str = "", absent: bool = False) -> ApiAnswer:
    """Return an answer of the API server."""
    if absent:
        return ApiAnswer(Outcome.ABSENT, 404, None, CallFailed("not found"))
    if refusal:
        return ApiAnswer(Outcome.REFUSED, 422, None, CallFailed(refusal))
    return ApiAnswer(Outcome.DONE, 200, body, None)


class AnsweredDeletions:
    """Answers deletions with and without a UID; ``own``: whether this process's own pod exists."""

    def __init__(self, with_uid: ApiAnswer, without: ApiAnswer, own: bool = True) -> None:
        self._answers = {True: with_uid, False: without}
        self._own = own
        self.deletions: list[ApiRequest] = []

    async def make(self, call: ApiRequest) -> ApiAnswer:
        """Answer."""
        metadata = {"namespace": call.namespace or "shop", "name": call.name or "web", "uid": "u"}
        if call.verb == "get":
            return answer({"metadata": metadata}) if self._own else answer(absent=True)
        if call.verb == "list":
            going = {"metadata": {**metadata, "name": "going", "deletionTimestamp": "2026-03-01T12:00:00Z"}}
            return answer({"items": [going, {"metadata": metadata}]})
        self.deletions.append(call)
        return self._answers["preconditions" in cast(Mapping[str, Any], call.body)]


async def asked(calls: AnsweredDeletions) -> bool:
    """Ask."""
    return await OwnPolicy(cast(ApiCalls, calls), OWN).in_force()


DENIED = answer(refusal=f"ValidatingAdmissionPolicy 'x' denied request: {REFUSAL}")


async def test_it_is_in_force_if_only_the_deletion_with_a_uid_is_accepted() -> None:
    """Body and query of both say that they are a dry run: a body replaces the query, and a gateway may drop it."""
    calls = AnsweredDeletions(answer({}), DENIED)
    assert await asked(calls)
    assert [(each.namespace, each.name) for each in calls.deletions] == [OWN, OWN]
    for each in calls.deletions:
        assert each.query == {"dryRun": "All"}
        assert cast(Mapping[str, Any], each.body)["dryRun"] == ["All"]


async def test_it_is_not_in_force_if_both_are_accepted() -> None:
    """That answer is definite."""
    assert not await asked(AnsweredDeletions(answer({}), answer({})))


@pytest.mark.parametrize(
    ("with_uid", "without"),
    [(answer(refusal="forbidden"), DENIED), (answer({}), answer(refusal="a webhook says no")), (DENIED, DENIED)],
)
async def test_any_other_answer_leaves_it_unknown(with_uid: ApiAnswer, without: ApiAnswer) -> None:
    """A gateway that drops bodies makes both look like deletions without a UID."""
    with pytest.raises(CallFailed):
        await asked(AnsweredDeletions(with_uid, without))


async def test_outside_a_cluster_the_first_running_pod_is_asked_about() -> None:
    """There is no pod of this process; pods that are being deleted are passed over."""
    calls = AnsweredDeletions(answer({}), DENIED, own=False)
    assert await asked(calls)
    assert {(each.namespace, each.name) for each in calls.deletions} == {("shop", "web")}
