"""Whether the admission policy is in force is asked by deletions that change nothing."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from taint_eviction.core.objects import NamespacedName
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ADMISSION_SECONDS, ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.kube.own_policy import REFUSAL, OwnPolicy
from taint_eviction.runtime.ports import CallFailed

OWN = NamespacedName("kube-system", "controller-1")


def answer(body: Any = None, refusal: str = "", absent: bool = False) -> ApiAnswer:
    """Return an answer of the API server."""
    if absent:
        return ApiAnswer(Outcome.ABSENT, 404, None, CallFailed("not found", certain=True))
    if refusal:
        return ApiAnswer(Outcome.REFUSED, 422, None, CallFailed(refusal))
    return ApiAnswer(Outcome.DONE, 200, body, None)


class AnsweredDeletions:
    """Answers deletions with and without a UID; ``own``: whether this process's own pod exists; ``beside``: whether
    other pods run in its namespace.
    """

    def __init__(self, with_uid: ApiAnswer, without: ApiAnswer, own: bool = True, beside: bool = False) -> None:
        self._answers = {True: with_uid, False: without}
        self._own, self._beside = own, beside
        self.deletions: list[ApiRequest] = []
        self.max_seconds: list[float | None] = []

    async def make(self, call: ApiRequest, *, max_seconds: float | None = None) -> ApiAnswer:
        """Answer."""
        metadata = {"namespace": call.namespace or "shop", "name": call.name or "web", "uid": "u"}
        if call.verb == "get":
            return answer({"metadata": metadata}) if self._own else answer(absent=True)
        if call.verb == "list":
            if call.namespace and not self._beside:
                return answer({"items": []})
            going = {"metadata": {**metadata, "name": "going", "deletionTimestamp": "2026-03-01T12:00:00Z"}}
            return answer({"items": [going, {"metadata": metadata}]})
        self.deletions.append(call)
        self.max_seconds.append(max_seconds)
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
    # Webhooks that hang are waited for.
    assert calls.max_seconds == [ADMISSION_SECONDS, ADMISSION_SECONDS]
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


async def test_outside_a_cluster_a_pod_of_the_namespace_comes_before_a_tenants() -> None:
    """The owner of the first pod of all may have a webhook, which would answer in place of the policy."""
    calls = AnsweredDeletions(answer({}), DENIED, own=False, beside=True)
    assert await asked(calls)
    assert {each.namespace for each in calls.deletions} == {OWN.namespace}


async def test_a_list_of_pods_that_is_none_leaves_it_unknown() -> None:
    """A proxy may answer anything."""

    class NoList(AnsweredDeletions):
        async def make(self, call: ApiRequest, *, max_seconds: float | None = None) -> ApiAnswer:
            return answer({"items": 5}) if call.verb == "list" else await super().make(call)

    with pytest.raises(CallFailed, match="no pod is running"):
        await asked(NoList(answer({}), DENIED, own=False))


# ---- whose policy


class AnsweredReview:
    """Answers a SelfSubjectReview."""

    def __init__(self, answered: ApiAnswer) -> None:
        self._answered = answered
        self.asked: list[ApiRequest] = []

    async def make(self, call: ApiRequest, *, max_seconds: float | None = None) -> ApiAnswer:
        """Answer."""
        self.asked.append(call)
        return self._answered


def review(username: object) -> ApiAnswer:
    """Return the answer to a review."""
    return answer({"kind": "SelfSubjectReview", "status": {"userInfo": {"username": username, "groups": ["g"]}}})


async def account(answered: ApiAnswer) -> str | None:
    """Ask."""
    return await OwnPolicy(cast(ApiCalls, AnsweredReview(answered)), OWN).account()


async def test_the_api_server_says_whose_account_it_is() -> None:
    """Every user may ask for that; the answer is one line of bounded length."""
    calls = AnsweredReview(review("system:serviceaccount:a:b"))
    assert await OwnPolicy(cast(ApiCalls, calls), OWN).account() == "system:serviceaccount:a:b"
    assert [call.path for call in calls.asked] == ["/apis/authentication.k8s.io/v1/selfsubjectreviews"]
    assert await account(review("a\nb")) == "a b"
    assert len(await account(review("x" * 10_000)) or "") == 253


async def test_an_api_server_without_the_review_has_no_policies_either() -> None:
    """The review came with 1.28, the policies in their stable form with 1.30."""
    assert await account(answer(absent=True)) is None


async def test_a_user_who_may_not_ask_has_no_known_name() -> None:
    """The policy is tried all the same."""
    forbidden = ApiAnswer(Outcome.REFUSED, 403, None, CallFailed("forbidden"), lacks_right=True)
    assert await account(forbidden) == ""


@pytest.mark.parametrize("body", [None, [], {"status": 7}, {"status": {"userInfo": {"username": {}}}}])
async def test_an_answer_that_is_no_review_leaves_it_unknown(body: object) -> None:
    """Proxies answer anything."""
    if body is None:
        assert await account(answer(body)) == ""
        return
    with pytest.raises(CallFailed):
        await account(answer(body))
