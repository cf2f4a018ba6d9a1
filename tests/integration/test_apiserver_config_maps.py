"""The embedded API server: ConfigMaps, whose values are texts and whose keys are checked."""

from __future__ import annotations

import pytest
from apiserver_client import CONFIGMAPS, MERGE, STRATEGIC, serving

C = f"{CONFIGMAPS}/c"


@pytest.mark.parametrize("content_type", [STRATEGIC, MERGE])
async def test_a_patch_changes_its_own_keys_alone(content_type: str) -> None:
    """The data is a map: null takes a key away, also where there is no map yet."""
    async with serving() as (_, api):
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}})
        for patch, left in (
            ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}),
            ({"a": None, "never": None, "c": "3"}, {"b": "2", "c": "3"}),
        ):
            patched = await api.patch(C, {"data": patch}, content_type)
            assert (patched.code, patched.body["data"]) == (200, left)


async def test_of_two_patches_for_one_version_the_second_gets_a_409() -> None:
    """A patch with the resourceVersion it was made for is a compare and swap."""
    async with serving() as (_, api):
        made = await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}})
        version = {"metadata": {"resourceVersion": made.body["metadata"]["resourceVersion"]}}
        assert (await api.patch(C, {**version, "data": {"b": "2"}})).code == 200
        late = await api.patch(C, {**version, "data": {"a": "3"}})
        assert (late.code, late.body["reason"]) == (409, "Conflict")
        assert (await api.get(C)).body["data"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"a b": ""}, "a valid config key must consist of"),
        ({"a\n": ""}, "a valid config key must consist of"),
        ({"": ""}, "a valid config key must consist of"),
        ({"k" * 254: ""}, "must be no more than 253"),
        ({"both": ""}, "duplicate of key present in binaryData"),
    ],
)
async def test_a_key_that_is_none_is_refused(data: dict[str, str], why: str) -> None:
    """At creation and afterwards."""
    async with serving() as (_, api):
        refused = await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "data": data, "binaryData": {"both": "YQ=="}})
        assert (refused.code, refused.body["reason"]) == (422, "Invalid")
        assert why in refused.message
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "binaryData": {"both": "YQ=="}})
        assert why in (await api.patch(C, {"data": data})).message


async def test_the_longest_key_is_taken() -> None:
    """253 characters."""
    async with serving() as (_, api):
        assert (await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"k" * 253: ""}})).code == 201


@pytest.mark.parametrize("data", [{"a": 1}, {"a": {"b": "c"}}, ["a"], "a"])
async def test_what_is_no_map_of_texts_is_a_400(data: object) -> None:
    """It could not even be decoded."""
    async with serving() as (_, api):
        assert (await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "data": data})).code == 400
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}})
        assert (await api.patch(C, {"data": data})).code == 400
