"""Lists as JSON, item by item, for callers that need other fields than ``api_reader`` reads."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.files.list_pages import EndlessList, ListPages
from taint_eviction.runtime.ports import CallFailed

_PAGE = 500
# How often a list is begun.
_ATTEMPTS = 3


async def list_items(calls: ApiCalls, call: ApiRequest, page: int = _PAGE) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the items of a list, page by page; when a page's token has expired, start again from the beginning.

    Fails if that happens too often, or the list does not end. A page of which only some items arrived is asked for
    again with half as many.
    """
    attempt, token, limit, pages = 1, "", page, ListPages()
    while True:
        following: dict[str, str | int] = {"continue": token} if token else {}
        items: list[Any] = []
        try:
            request = replace(call, query={**(call.query or {}), "limit": limit, **following})
            answer = await calls.make(request, take=items.append)
        except CallFailed:
            if len(items) <= 1:
                raise
            limit = len(items) // 2
            continue
        if token and answer.outcome is Outcome.EXPIRED and attempt < _ATTEMPTS:
            attempt, token = attempt + 1, ""
            pages.begin_again()
            continue
        body = answer.need(Outcome.DONE).body
        if not isinstance(body, dict) or not isinstance(body.get("items"), list | None):
            raise CallFailed(f"the API server's answer is no list of {call.resource}")
        for item in items:
            if isinstance(item, dict):
                yield item
        metadata = body.get("metadata")
        try:
            token = pages.following(metadata.get("continue") if isinstance(metadata, dict) else None)
        except EndlessList as error:
            raise CallFailed(str(error)) from None
        if not token:
            return
