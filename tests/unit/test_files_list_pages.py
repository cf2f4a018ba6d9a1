"""A list ends, whatever the API server names as the token of its next page."""

import asyncio

import pytest
from tests.unit.runtime_fakes import until, virtually

from taint_eviction.files.list_pages import EndlessList, ListPages, PageSize


@virtually
async def test_the_last_page_has_no_token() -> None:
    """It may be empty."""
    pages = ListPages()
    assert pages.following("a") == "a"
    assert [pages.following(token) for token in (None, "")] == [""] * 2


@pytest.mark.parametrize("token", [7, 0, False, {"a": 1}, {}, ["a"]])
@virtually
async def test_a_token_that_is_no_text_ends_no_list(token: object) -> None:
    """What has arrived may be a part: hand-back said that no pod is adopted."""
    with pytest.raises(EndlessList, match="a token that is no text"):
        ListPages().following(token)


@pytest.mark.parametrize("tokens", [["a", "a"], ["a", "b", "a"]])
@virtually
async def test_the_same_token_twice_is_an_error(tokens: list[str]) -> None:
    """It would lead in a circle."""
    pages = ListPages()
    for token in tokens[:-1]:
        pages.following(token)
    with pytest.raises(EndlessList, match="came twice"):
        pages.following(tokens[-1])


@virtually
async def test_a_list_that_begins_again_may_come_by_the_same_tokens() -> None:
    """An API server may make equal ones, and a list begins again three times at most."""
    pages = ListPages()
    pages.following("a")
    pages.begin_again()
    assert pages.following("a") == "a"


@virtually
async def test_a_list_has_ten_thousand_pages_at_most() -> None:
    """Each with another token."""
    pages = ListPages()
    for number in range(10_000):
        pages.following(str(number))
    with pytest.raises(EndlessList, match="more than 10000 pages"):
        pages.following("more")


@virtually
async def test_a_list_ends_within_half_an_hour() -> None:
    """Each page may take as long as any request."""
    pages = ListPages()
    await until(1799)
    pages.following("a")
    await until(1801)
    with pytest.raises(EndlessList, match="more than 1 pages"):
        pages.following("b")
    assert asyncio.get_running_loop().time() > 1800


@virtually
async def test_a_token_longer_than_any_object_has_is_an_error() -> None:
    """It would be part of the next request."""
    with pytest.raises(EndlessList, match="2000 characters"):
        ListPages().following("x" * 2000)


def test_a_page_that_breaks_off_after_one_object_cannot_have_fewer() -> None:
    """Its list has failed."""
    size = PageSize(500, 500)
    assert not size.broke_off(1)
    assert size.query == {"limit": 500}


def test_pages_that_break_off_become_smaller_although_the_server_heeds_no_limit() -> None:
    """Nine objects arrive each time: thousands of requests were made in a minute, and none was the last."""
    size, limits = PageSize(500, 500), list[int]()
    while size.broke_off(9) and len(limits) < 100:
        limits.append(size.query["limit"])
    assert limits == [4, 2, 1]


def test_pages_grow_again_after_one_that_broke_off() -> None:
    """A connection that is cut after three of 5,000 nodes must not cost 5,000 requests."""
    size, limits = PageSize(500, 500), []
    assert size.broke_off(3)
    for _ in range(80):
        limits.append(size.query["limit"])
        size.arrived()
    assert limits == [each for each in (1, 2, 4, 8, 16, 32, 64, 128, 256, 500) for _ in range(8)]


def test_a_list_without_pages_stays_without_until_it_breaks_off() -> None:
    """The API server has an index of the pods of a node, which it uses for whole lists only."""
    size = PageSize(None, 500)
    size.arrived()
    assert size.query == {}
    assert size.broke_off(400)
    assert size.query == {"limit": 200}
