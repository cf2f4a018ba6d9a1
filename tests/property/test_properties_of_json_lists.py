"""Lists that are decoded item by item as they arrive, beside the same lists decoded at once."""

import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import any_json

from taint_eviction.files import json_lists
from taint_eviction.files.json_lists import MOST_ITEM_BYTES, TooLong, decode, read_items

names = st.sampled_from(["metadata", "spec", "items", "a", 'x"},{"metadata":{"'])
objects = st.dictionaries(names, any_json | st.lists(st.fixed_dictionaries({"metadata": any_json}), max_size=12))
items = st.lists(
    st.builds(lambda first, rest: {"metadata": first, **rest}, any_json, objects) | objects | any_json, max_size=6
)


async def pieces(text: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(text), size):
        yield text[at : at + size]


async def read(text: bytes, size: int, most_bytes: int = 1 << 30) -> tuple[Any, list[Any]]:
    """Read a body that arrives in pieces of ``size`` bytes; return what is left of it, and the items."""
    taken: list[Any] = []
    return await read_items(pieces(text, size), taken.append, most_bytes), taken


@given(items, st.dictionaries(names, any_json), st.dictionaries(names, any_json), st.integers(1, 99), st.booleans())
async def test_any_list_has_the_same_items(
    listed: list[Any], before: dict[str, Any], after: dict[str, Any], size: int, with_spaces: bool
) -> None:
    """Wherever the pieces end, whatever stands before and after the items, and however it is written."""
    after.pop("items", None)
    body = {**{name: value for name, value in before.items() if name != "items"}, "items": listed, **after}
    text = json.dumps(body, ensure_ascii=False).encode() if with_spaces else orjson.dumps(body)
    left, taken = await read(text, size)
    whole = orjson.loads(text)
    assert taken == whole["items"]
    assert left == {**whole, "items": []}


@given(any_json, st.integers(1, 9))
async def test_any_other_value_is_returned_whole(body: Any, size: int) -> None:
    """A refusal, or the answer of another server."""
    text = orjson.dumps(body)
    assert await read(text, size) == (orjson.loads(text), [])


@given(st.integers(1, 40), st.integers(0, 400))
async def test_a_list_that_is_cut_off_is_no_json(size: int, length: int) -> None:
    """Wherever it is cut; the items before were complete."""
    text = orjson.dumps({"metadata": {}, "items": [{"metadata": {"name": str(number)}} for number in range(20)]})
    assert length < len(text)
    with pytest.raises(ValueError, match=r".*"):
        await read(text[:length], size)


NESTED = b'{"f:a":' * 9000 + b'{"k:{\\"a]\\":\\"}]}\\"}":{}}' + b"}" * 9000
DEEP = b'{"metadata":{"name":"deep","managedFields":[{"manager":"]","fieldsV1":' + NESTED + b'}]},"spec":{"a":[]}}'


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("size", [7, 1 << 20])
async def test_a_pod_with_deeply_nested_managed_fields_hides_no_other(place: int, size: int) -> None:
    """The API server stores 10,000 levels, more than decoders of JSON accept; it is read without these fields."""
    listed = [b'{"metadata":{"name":"a"}}', b'{"metadata":{"name":"b"}}']
    listed.insert(place, DEEP)
    _, taken = await read(b'{"kind":"PodList","metadata":{},"items":[' + b",".join(listed) + b"]}", size)
    deep = taken.pop(place)
    assert [item["metadata"]["name"] for item in taken] == ["a", "b"]
    assert deep == {"metadata": {"name": "deep", "managedFields": []}, "spec": {"a": []}}


def test_other_texts_that_nest_too_deeply_are_no_json() -> None:
    """No field but managedFields can be like that."""
    with pytest.raises(ValueError, match="depth"):
        decode(b"[" * 5000 + b"]" * 5000)


@pytest.mark.parametrize("value", [b"[]", b"{}", b'{"a":1}', b"1", b'{"a":' * 500 + b"{}" + b"}" * 500])
async def test_an_object_with_more_values_than_can_be_stored_is_not_decoded(value: bytes) -> None:
    """16 MB of them would need 500 MB of memory, and the loop would stand still for seconds."""
    text = b'{"metadata":{"a":[' + b",".join([value] * (15_900_000 // (len(value) + 1))) + b"]}}"
    with pytest.raises(TooLong, match="values"):
        decode(text)
    with pytest.raises(TooLong):
        await read(b'{"kind":"PodList","items":[{"metadata":{}},' + text + b"]}", 1 << 18)


@pytest.mark.parametrize("character", [",", "[", "{", ":"])
def test_a_text_of_what_parts_values_is_read_up_to_the_size_that_can_be_stored(character: str) -> None:
    """Nobody may hide a pod by it."""
    text = character * (3 << 19)
    assert decode(orjson.dumps({"metadata": {"name": "a"}, "spec": {"value": text}}))["spec"]["value"] == text


async def test_items_are_taken_before_the_list_ends() -> None:
    """So memory is needed for one item at a time."""
    taken: list[Any] = []
    seen: list[int] = []

    async def arriving() -> AsyncIterator[bytes]:
        yield b'{"kind":"PodList","items":['
        for number in range(5):
            yield orjson.dumps({"metadata": {"name": f"p{number}"}}) + b","
            seen.append(len(taken))
        yield b'{"metadata":{"name":"last"}}]}'

    await read_items(arriving(), taken.append, 1 << 20)
    assert seen == [0, 1, 2, 3, 4]
    assert len(taken) == 6


async def test_a_list_with_more_bytes_than_its_bound_is_broken_off() -> None:
    """It may never end."""
    text = orjson.dumps({"items": [{"metadata": {"name": str(number)}} for number in range(1000)]})
    with pytest.raises(TooLong):
        await read(text, 100, most_bytes=10_000)


async def test_an_item_with_more_bytes_than_its_bound_breaks_the_list_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may never end, either."""
    assert MOST_ITEM_BYTES > 6 * 1_500_000
    monkeypatch.setattr(json_lists, "MOST_ITEM_BYTES", 10_000)
    with pytest.raises(TooLong):
        await read(orjson.dumps({"items": [{"metadata": {"name": "x" * 20_000}}]}), 100)
