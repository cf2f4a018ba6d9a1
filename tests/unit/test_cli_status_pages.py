"""How ``status`` puts the pages of an answer together."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from taint_eviction_ctl.cli.asking import Document, Unanswered
from taint_eviction_ctl.cli.status import whole_status


def page(*pods: str, more: str | None = None, identity: str = "a") -> Document:
    return {"identity": identity, "pending": list(pods), "continue": more, "pendingTotal": 3}


def whole(limit: int, *pages: Document) -> tuple[Document, list[dict[str, Any]]]:
    """Return the status made of these pages, and the queries that were sent."""
    queries: list[dict[str, Any]] = []

    async def asking(path: str, query: Mapping[str, str | int]) -> Document:
        assert path == "/status"
        queries.append(dict(query))
        return pages[len(queries) - 1]

    return asyncio.run(whole_status(asking, {"limit": limit, "namespace": "shop"})), queries


def test_pages_are_asked_for_by_the_token_of_the_one_before() -> None:
    """A further query asks only for as many pods as are still wanted."""
    document, queries = whole(5, page("x", "y", more="t"), page("z"))
    assert document == page("x", "y", "z")
    assert queries == [
        {"limit": 5, "namespace": "shop"},
        {"limit": 3, "namespace": "shop", "continue": "t"},
    ]


def test_no_page_is_asked_for_that_is_not_wanted() -> None:
    """The document keeps the token of the next page."""
    document, queries = whole(2, page("x", "y", more="t"))
    assert (document["continue"], len(queries)) == ("t", 1)


def test_an_older_controller_has_one_page() -> None:
    """An older controller sends no token."""
    old = page("x")
    del old["continue"]
    assert whole(5, old)[0] == old


def test_pages_of_two_replicas_are_not_mixed() -> None:
    """Each replica orders its pods by its own clock."""
    with pytest.raises(Unanswered, match="another replica has become the leader"):
        whole(5, page("x", more="t"), page("y", identity="b"))


@pytest.mark.parametrize("token", [7, {"a": 1}, ["t"], True])
def test_a_token_that_is_no_text_is_no_answer_of_a_controller(token: Any) -> None:
    """The command says so, and does not send it."""
    with pytest.raises(Unanswered, match="continue is no text"):
        whole(5, {**page("x"), "continue": token})
