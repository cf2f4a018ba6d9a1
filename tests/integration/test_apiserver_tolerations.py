"""The embedded API server: which changes JSON patches may make to the tolerations of a running pod.

The answers were compared with those of a real API server 1.36.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from apiserver_client import JSON_PATCH, PODS, Api, HttpAnswer, pod_body, serving

FIRST = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
SECONDS = "/spec/tolerations/0/tolerationSeconds"
REFUSED = "the server rejected our request due to an error in our request"
MODIFIED = 'Pod "p1" is invalid: spec.tolerations: Forbidden: existing toleration can not be modified except its'


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A server with one pod, which tolerates a for 300 s, b for 60 s, and then a again for 30 s."""
    async with serving() as (server, api):
        server.admission.default_toleration_seconds = None
        second = {"key": "b", "value": "x", "effect": "NoExecute", "tolerationSeconds": 60}
        tolerations = [FIRST | {"tolerationSeconds": 300}, second, FIRST | {"tolerationSeconds": 30}]
        await api.post(PODS, pod_body(nodeName="n1", tolerations=tolerations))
        yield api


async def patch(api: Api, *operations: dict[str, Any]) -> HttpAnswer:
    """Patch the pod."""
    return await api.patch(f"{PODS}/p1", list(operations), JSON_PATCH)


async def test_seconds_may_be_removed_changed_and_set_again(api: Api) -> None:
    """Each change is a write that increases the generation."""
    changes: list[tuple[dict[str, Any], int | None]] = [
        ({"op": "remove", "path": SECONDS}, None),
        ({"op": "add", "path": SECONDS, "value": 300}, 300),
        ({"op": "replace", "path": SECONDS, "value": -5}, -5),
        ({"op": "add", "path": SECONDS, "value": None}, None),
    ]
    for number, (operation, seconds) in enumerate(changes):
        answer = await patch(api, operation)
        assert (answer.code, answer.body["metadata"]["generation"]) == (200, number + 2)
        expected = FIRST if seconds is None else FIRST | {"tolerationSeconds": seconds}
        assert answer.body["spec"]["tolerations"][0] == expected


async def test_seconds_that_are_missing_cannot_be_removed(api: Api) -> None:
    """The whole patch is refused."""
    assert (await patch(api, {"op": "remove", "path": SECONDS})).code == 200
    again = await patch(api, {"op": "remove", "path": SECONDS}, {"op": "add", "path": "/metadata/labels", "value": {}})
    assert (again.code, again.body["reason"], again.message, again.body["details"]) == (422, "Invalid", REFUSED, {})


async def test_tolerations_may_be_added_anywhere(api: Api) -> None:
    """A toleration may be added before others, too, so its place in the list does not identify it."""
    new = {"key": "new", "operator": "Exists"}
    for place in ("-", "0"):
        assert (await patch(api, {"op": "add", "path": f"/spec/tolerations/{place}", "value": new})).code == 200
    tolerations = (await api.get(f"{PODS}/p1")).body["spec"]["tolerations"]
    assert [each["key"] for each in tolerations] == ["new", "a", "b", "a", "new"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/spec/tolerations/1/key", "value": "other"},
        {"op": "replace", "path": "/spec/tolerations/1/value", "value": "y"},
        {"op": "add", "path": "/spec/tolerations/1/operator", "value": "Equal"},
        {"op": "remove", "path": "/spec/tolerations/1"},
        {"op": "remove", "path": "/spec/tolerations"},
    ],
)
async def test_other_fields_of_a_toleration_cannot_change_and_no_toleration_can_be_removed(
    api: Api, operation: dict[str, Any]
) -> None:
    """The message is the real server's."""
    refused = await patch(api, operation)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert refused.message.startswith(MODIFIED)


async def test_one_of_two_equal_tolerations_may_be_removed(api: Api) -> None:
    """The real server only checks that each old toleration has an equal one among the new ones."""
    assert (await patch(api, {"op": "remove", "path": "/spec/tolerations/2"})).code == 200


async def test_an_invalid_toleration_is_refused_on_update_too(api: Api) -> None:
    """The error is found twice, as by a real server."""
    refused = await patch(api, {"op": "remove", "path": "/spec/tolerations/1/effect"})
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [
        "spec.tolerations[1].effect",
        "spec.tolerations",
    ]
    new = {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "q", "operator": "Foo"}}
    causes = (await patch(api, new)).body["details"]["causes"]
    assert [cause["field"] for cause in causes] == 2 * ["spec.tolerations[3].operator"]


@pytest.mark.parametrize(("seconds", "kind"), [("5", "string"), (1.5, "number 1.5"), (2**63, f"number {2**63}")])
async def test_seconds_are_int64(api: Api, seconds: object, kind: str) -> None:
    """A bad number gets a 422 in a patch and a 400 in a whole object."""
    why = f"json: cannot unmarshal {kind} into Go struct field Toleration.spec.tolerations.tolerationSeconds of type"
    refused = await patch(api, {"op": "add", "path": SECONDS, "value": seconds})
    assert (refused.code, why in refused.message) == (422, True)
    pod = (await api.get(f"{PODS}/p1")).body
    pod["spec"]["tolerations"][0]["tolerationSeconds"] = seconds
    for answer in (await api.put(f"{PODS}/p1", pod), await api.post(PODS, pod)):
        assert (answer.code, answer.message.startswith(f'Pod in version "v1" cannot be handled as a Pod: {why}')) == (
            400,
            True,
        )


@pytest.mark.parametrize(
    ("path", "value"),
    [("/metadata/uid", "other"), ("/metadata/resourceVersion", "1"), ("/metadata/annotations/a~1b", None)],
)
async def test_a_test_operation_that_fails_gets_a_422_without_details(api: Api, path: str, value: object) -> None:
    """The answer is not a 409, even for the resourceVersion; no operation of the patch is applied."""
    refused = await patch(api, {"op": "test", "path": path, "value": value}, {"op": "remove", "path": SECONDS})
    assert (refused.code, refused.message, refused.body["details"]) == (422, REFUSED, {})
    assert "tolerationSeconds" in (await api.get(f"{PODS}/p1")).body["spec"]["tolerations"][0]


async def test_a_missing_member_tests_as_null_and_can_be_replaced(api: Api) -> None:
    """The JSON patch library of the real server does the same."""
    absent = {"op": "test", "path": "/metadata/annotations", "value": None}
    answer = await patch(api, absent, {"op": "replace", "path": "/metadata/annotations", "value": {"a": "b"}})
    assert (answer.code, answer.body["metadata"]["annotations"]) == (200, {"a": "b"})


async def test_a_member_of_a_missing_map_cannot_be_added(api: Api) -> None:
    """A client that adds the first annotation must add the map."""
    assert (await patch(api, {"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"})).code == 422
    assert (await patch(api, {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}})).code == 200
    assert (await patch(api, {"op": "remove", "path": "/metadata/annotations/a~1b"})).code == 200
    assert "annotations" not in (await api.get(f"{PODS}/p1")).body["metadata"]


async def test_all_annotations_together_may_have_256_kib(api: Api) -> None:
    """Keys and values count; one byte more is refused."""
    most = "x" * (256 * 1024 - len("a/b"))
    for text, code in ((most, 200), (most + "x", 422)):
        answer = await patch(api, {"op": "add", "path": "/metadata/annotations", "value": {"a/b": text}})
        assert answer.code == code
    assert answer.message == 'Pod "p1" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes'
    long = {"metadata": {"name": "p2", "annotations": {"a/b": most + "x"}}, "spec": pod_body()["spec"]}
    assert (await api.post(PODS, long)).code == 422


async def test_admission_adds_its_tolerations_to_a_patch_of_others(api: Api) -> None:
    """So the patched pod may have more changes than the patch."""
    async with serving() as (server, other):
        server.admission.default_toleration_seconds = None
        await other.post(PODS, pod_body(tolerations=[FIRST | {"tolerationSeconds": 300}]))
        server.admission.default_toleration_seconds = 300
        tolerations = (await patch(other, {"op": "remove", "path": SECONDS})).body["spec"]["tolerations"]
        assert (tolerations[0], len(tolerations)) == (FIRST, 3)
