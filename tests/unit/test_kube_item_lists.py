"""Lists, item by item: what is kept of them, and what is asked for again."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.runtime.ports import CallFailed


class _Item(dict[str, Any]):
    """The JSON of an item, of which can be said whether somebody keeps it."""


class _Calls:
    """Answers a list with ten items, in pages of ``fitting`` items at most: longer ones break off after so many."""

    def __init__(self, fitting: int) -> None:
        self.fitting = fitting
        self.limits: list[object] = []
        self.made: list[weakref.ref[_Item]] = []

    async def make(self, call: ApiRequest, take: Callable[[Any], None]) -> ApiAnswer:
        query: Mapping[str, Any] = call.query or {}
        self.limits.append(query["limit"])
        begin = int(query.get("continue", 0))
        end = min(10, begin + int(query["limit"]))
        for number in range(begin, min(end, begin + self.fitting)):
            item = _Item(number=number)
            self.made.append(weakref.ref(item))
            take(item)
        if end - begin > self.fitting:
            raise CallFailed("it has not arrived within 10 s")
        following = str(end) if end < 10 else ""
        return ApiAnswer(Outcome.DONE, 200, {"items": [], "metadata": {"continue": following}}, None)


async def listed(calls: _Calls) -> list[int]:
    """Return the even numbers in the items."""

    def read(item: Mapping[str, Any]) -> int | None:
        number: int = item["number"]
        return None if number % 2 else number

    found = []
    async for number in list_items(cast("ApiCalls", calls), ApiRequest("list", "pods"), read, 10):
        assert not any(made() for made in calls.made[:-1])
        found.append(number)
    return found


async def test_of_a_page_only_what_is_read_of_its_items_is_kept() -> None:
    """A tenant's pods may have 1.5 MB each, and decoded ten times as much; a page has hundreds."""
    assert await listed(_Calls(10)) == [0, 2, 4, 6, 8]


async def test_a_page_that_breaks_off_is_asked_for_again_with_half_of_what_arrived() -> None:
    """Its items come again, and count once."""
    calls = _Calls(6)
    assert await listed(calls) == [0, 2, 4, 6, 8]
    assert calls.limits == [10, 3, 3, 3, 3]


async def test_a_page_whose_first_item_is_too_long_is_a_failed_call() -> None:
    """Half of one item cannot be asked for."""
    with pytest.raises(CallFailed):
        await listed(_Calls(1))
