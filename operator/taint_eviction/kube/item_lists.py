"""Lists, page by page and item by item: ``api_reader`` reads nodes and pods of them, others other fields."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from taint_eviction.core.text import JsonObject
from taint_eviction.files.list_pages import EndlessList, ListPages, PageSize
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.runtime.ports import CallFailed

_PAGE = 500
# How often a list is begun if its continue token expires (after 5 minutes); then it has failed.
_ATTEMPTS = 3

ReadT = TypeVar("ReadT")


class PageTaker(Protocol):
    """Takes the items of one page as they arrive. ``taken``: how many."""

    taken: int

    def take(self, item: Any) -> None:
        """Take the next item."""
        ...


TakerT = TypeVar("TakerT", bound=PageTaker)


async def list_pages(
    calls: ApiCalls, call: ApiRequest, size: PageSize, taker: Callable[[], TakerT]
) -> AsyncGenerator[tuple[TakerT, JsonObject], None]:
    """Yield for each page of a list what has taken its items, and its body without these; when a page's token has
    expired, start again from the beginning. What was yielded stays valid then: it only names more objects than exist.

    Fails if that happens too often, or the list does not end. A page of which only some items arrived is asked for
    again with half as many.
    """
    attempt, token, pages = 1, "", ListPages()
    while True:
        following: dict[str, str | int] = {"continue": token} if token else {}
        page = taker()
        try:
            request = replace(call, query={**(call.query or {}), **size.query, **following})
            answer = await calls.make(request, take=page.take)
        except CallFailed:
            # With half as many objects it gets on, however large they are and however slowly they come.
            if not size.broke_off(page.taken):
                raise
            continue
        if token and answer.outcome is Outcome.EXPIRED and attempt < _ATTEMPTS:
            attempt, token = attempt + 1, ""
            pages.begin_again()
            continue
        body = answer.need(Outcome.DONE).body
        if not isinstance(body, dict) or not isinstance(body.get("items"), list | None):
            raise CallFailed(f"the API server's answer is not a list of {call.resource}")
        size.arrived()
        yield page, body
        metadata = body.get("metadata")
        try:
            token = pages.following(metadata.get("continue") if isinstance(metadata, dict) else None)
        except EndlessList as error:
            raise CallFailed(str(error)) from None
        if not token:
            return


async def list_items(
    calls: ApiCalls, call: ApiRequest, read: Callable[[JsonObject], ReadT | None], page: int = _PAGE
) -> AsyncGenerator[ReadT, None]:
    """Yield what ``read`` makes of the items of a list, page by page (``list_pages``).

    ``read`` is called with each item as it arrives, so that memory is needed for what it returns; None leaves the item
    out. It changes nothing itself, since an item may come again, and raises no ``ValueError``.
    """
    async for items, _ in list_pages(calls, call, PageSize(page, page), lambda: _ItemsRead(read)):
        for item in items.read:
            yield item


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
