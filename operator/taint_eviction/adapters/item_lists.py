"""Lists as JSON, item by item, for callers that need other fields than ``api_reader`` reads."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import AnswerTooLong, ApiCalls, ApiRequest
from taint_eviction.runtime.ports import CallFailed

_PAGE = 500
# How often a list is begun.
_ATTEMPTS = 3


async def list_items(calls: ApiCalls, call: ApiRequest, page: int = _PAGE) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the items of a list, page by page; when a page's token has expired, start again from the beginning.

    Fails if that happens too often. A page with too many bytes is asked for again with half as many items.
    """
    attempt, token, limit = 1, "", page
    while True:
        following: dict[str, str | int] = {"continue": token} if token else {}
        items: list[Any] = []
        try:
            request = replace(call, query={**(call.query or {}), "limit": limit, **following})
            answer = await calls.make(request, take=items.append)
        except AnswerTooLong:
            if len(items) <= 1:
                raise
            limit = len(items) // 2
            continue
        if token and answer.outcome is Outcome.EXPIRED and attempt < _ATTEMPTS:
            attempt, token = attempt + 1, ""
            continue
        body = answer.need(Outcome.DONE).body
        if not isinstance(body, dict) or not isinstance(body.get("items"), list | None):
            raise CallFailed(f"the API server's answer is no list of {call.resource}")
        for item in items:
            if isinstance(item, dict):
                yield item
        metadata = body.get("metadata")
        following_token = metadata.get("continue") if isinstance(metadata, dict) else None
        if not isinstance(following_token, str) or not following_token:
            return
        token = following_token
