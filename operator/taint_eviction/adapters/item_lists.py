"""Lists as JSON, item by item, for callers that need other fields than ``api_reader`` reads."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.runtime.ports import CallFailed

_PAGE = 500


async def list_items(calls: ApiCalls, call: ApiRequest, page: int = _PAGE) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the items of a list, page by page; when a page's token has expired, start again from the beginning."""
    token, limit = "", page
    while True:
        paged: dict[str, str | int] = {"limit": limit} if limit else {}
        following: dict[str, str | int] = {"continue": token} if token else {}
        answer = await calls.make(replace(call, query={**(call.query or {}), **paged, **following}))
        if token and answer.outcome is Outcome.EXPIRED:
            token, limit = "", 0
            continue
        body = answer.need(Outcome.DONE).body
        if not isinstance(body, dict) or not isinstance(body.get("items"), list | None):
            raise CallFailed(f"the API server's answer is no list of {call.resource}")
        for item in body.get("items") or ():
            if isinstance(item, dict):
                yield item
        metadata = body.get("metadata") or {}
        token = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
        if not token:
            return
