"""Lists, item by item, for callers that need other fields than ``api_reader`` reads."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from taint_eviction.core.text import JsonObject
from taint_eviction.files.list_pages import EndlessList, ListPages, PageSize
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.runtime.ports import CallFailed

_PAGE = 500
# How often a list is begun.
_ATTEMPTS = 3

ReadT = TypeVar("ReadT")


async def list_items(
    calls: ApiCalls, call: ApiRequest, read: Callable[[JsonObject], ReadT | None], page: int = _PAGE
) -> AsyncGenerator[ReadT, None]:
    """Yield what ``read`` makes of the items of a list, page by page; when a page's token has expired, start again
    from the beginning.

    ``read`` is called with each item as it arrives, so that memory is needed for what it returns; None leaves the item
    out. It changes nothing itself, since an item may come again, and raises no ``ValueError``.

    Fails if that happens too often, or the list does not end. A page of which only some items arrived is asked for
    again with half as many.
    """
    attempt, token, pages, size = 1, "", ListPages(), PageSize(page, page)
    while True:
        following: dict[str, str | int] = {"continue": token} if token else {}
        items = _ItemsRead(read)
        try:
            request = replace(call, query={**(call.query or {}), **size.query, **following})
            answer = await calls.make(request, take=items.take)
        except CallFailed:
            if not size.broke_off(items.taken):
                raise
            continue
        if token and answer.outcome is Outcome.EXPIRED and attempt < _ATTEMPTS:
            attempt, token = attempt + 1, ""
            pages.begin_again()
            continue
        body = answer.need(Outcome.DONE).body
        if not isinstance(body, dict) or not isinstance(body.get("items"), list | None):
            raise CallFailed(f"the API server's answer is no list of {call.resource}")
        size.arrived()
        for item in items.read:
            yield item
        metadata = body.get("metadata")
        try:
            token = pages.following(metadata.get("continue") if isinstance(metadata, dict) else None)
        except EndlessList as error:
            raise CallFailed(str(error)) from None
        if not token:
            return


class _ItemsRead(Generic[ReadT]):
    """The items of one page as they are read; their JSON is not kept."""

    def __init__(self, read: Callable[[JsonObject], ReadT | None]) -> None:
        self.taken = 0
        self.read: list[ReadT] = []
        self._read = read

    def take(self, item: Any) -> None:
        self.taken += 1
        found = self._read(item) if isinstance(item, dict) else None
        if found is not None:
            self.read.append(found)
