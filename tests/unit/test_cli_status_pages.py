"""How ``status`` puts pages together."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from taint_eviction.cli.asking import Document, Unanswered
from taint_eviction.cli.status import whole_status


def page(*pods: str, more: str | None = None, identity: str = "a") -> Document:
    return {"identity": identity, "pending": list(pods), "continue": more, "pendingTotal": 3}


def whole(limit: int, *pages: Document) -> tuple[Document, list[dict[str, Any]]]:
    """Return what is made of these pages, and the queries that were asked."""
    queries: list[dict[str, Any]] = []

    async def asking(path: str, query: Mapping[str, str | int]) -> Document:
        assert path == "/status"
        queries.append(dict(query))
        return pages[len(queries) - 1]

    return asyncio.run(whole_status(asking, {"limit": limit, "namespace": "shop"})), queries


def test_pages_are_asked_for_by_the_token_of_the_one_before() -> None:
    """And only for what is still wanted."""
    document, queries = whole(5, page("x", "y", more="t"), page("z"))
    assert document == page("x", "y", "z")
    assert queries == [
        {"limit": 5, "namespace": "shop"},
        {"limit": 3, "namespace": "shop", "continue": "t"},
    ]


def test_no_more_is_asked_for_than_was_wanted() -> None:
    """What follows is still named."""
    document, queries = whole(2, page("x", "y", more="t"))
    assert (document["continue"], len(queries)) == ("t", 1)


def test_a_controller_of_before_has_one_page() -> None:
    """It knows no token."""
    old = page("x")
    del old["continue"]
    assert whole(5, old)[0] is old


def test_pages_of_two_replicas_are_not_mixed() -> None:
    """Their orders are by clocks of their own."""
    with pytest.raises(Unanswered, match="another replica has become the leader"):
        whole(5, page("x", more="t"), page("y", identity="b"))
