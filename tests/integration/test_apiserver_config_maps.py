"""The embedded API server: ConfigMaps, whose values are strings and whose keys are validated."""

from __future__ import annotations

import pytest
from apiserver_client import CONFIGMAPS, MERGE, STRATEGIC, serving

C = f"{CONFIGMAPS}/c"


@pytest.mark.parametrize("content_type", [STRATEGIC, MERGE])
async def test_a_patch_changes_only_its_own_keys(content_type: str) -> None:
    """Null removes a key from the data, and does nothing if the key is not there."""
    async with serving() as (_, api):
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}})
        for patch, left in (
            ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}),
            ({"a": None, "never": None, "c": "3"}, {"b": "2", "c": "3"}),
        ):
            patched = await api.patch(C, {"data": patch}, content_type)
            assert (patched.code, patched.body["data"]) == (200, left)


async def test_the_second_of_two_patches_for_one_version_gets_a_409() -> None:
    """A patch with a resourceVersion is a compare-and-swap."""
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
async def test_an_invalid_key_is_refused(data: dict[str, str], why: str) -> None:
    """This holds for creating and for patching."""
    async with serving() as (_, api):
        refused = await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "data": data, "binaryData": {"both": "YQ=="}})
        assert (refused.code, refused.body["reason"]) == (422, "Invalid")
        assert why in refused.message
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "binaryData": {"both": "YQ=="}})
        assert why in (await api.patch(C, {"data": data})).message


async def test_the_longest_allowed_key_is_accepted() -> None:
    """A key may have 253 characters."""
    async with serving() as (_, api):
        assert (await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"k" * 253: ""}})).code == 201


@pytest.mark.parametrize("data", [{"a": 1}, {"a": {"b": "c"}}, ["a"], "a"])
async def test_data_that_is_no_map_of_strings_gets_a_400(data: object) -> None:
    """Such data cannot be decoded."""
    async with serving() as (_, api):
        assert (await api.post(CONFIGMAPS, {"metadata": {"name": "c"}, "data": data})).code == 400
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}})
        assert (await api.patch(C, {"data": data})).code == 400
