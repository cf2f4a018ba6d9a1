"""The pages of one list, as the API server's ``continue`` tokens lead through them: bounded, whatever it answers."""

import asyncio
from typing import Any

# With 500 objects each, six times as many as the largest clusters have; with fewer where pages were too long.
_MOST_PAGES = 10_000
# A token expires 5 to 10 minutes after its list has begun; then the list is begun again, twice at most.
_MOST_SECONDS = 1800.0
# Real ones have less than 600: they contain the name of an object.
_MOST_CHARACTERS = 1024

# After so many whole pages, the next ones have twice as many objects.
_WHOLE_PAGES = 8


class EndlessList(ValueError):
    """A list that does not end; the message says how that is known."""


class ListPages:
    """Follows one list from page to page, from now on."""

    def __init__(self) -> None:
        self._ends_at = asyncio.get_running_loop().time() + _MOST_SECONDS
        self._tokens: set[str] = set()

    def following(self, token: Any) -> str:
        """Return the token of the next page, "" after the last one; raise ``EndlessList`` if there are too many.

        ``token``: the ``continue`` of a page, None if it has none. Nobody knows what follows one that is no text.
        """
        if token is None or token == "":
            return ""
        if not isinstance(token, str):
            raise EndlessList("the API server's list continues with a token that is no text")
        if len(token) > _MOST_CHARACTERS:
            raise EndlessList(f"the API server's list continues with a token of {len(token)} characters")
        if token in self._tokens:
            raise EndlessList("the API server's list does not end: the same token to continue it came twice")
        if len(self._tokens) >= _MOST_PAGES or asyncio.get_running_loop().time() > self._ends_at:
            raise EndlessList(f"the API server's list does not end: it has more than {len(self._tokens)} pages")
        self._tokens.add(token)
        return token

    def begin_again(self) -> None:
        """Note that the list begins anew, since its token has expired. Its time does not."""
        self._tokens.clear()


class PageSize:
    """How many objects a page of one list has at most. ``limit`` None: the API server need not divide it.

    A page that breaks off is asked for again with half as many as had arrived: it is too long, or comes too slowly. Or
    the connection was cut by chance, perhaps after two of thousands; so pages grow again, up to ``most``.
    """

    def __init__(self, limit: int | None, most: int) -> None:
        self._limit = limit
        self._most = most
        self._whole = 0

    @property
    def query(self) -> dict[str, int]:
        """The parameter of the request that says so."""
        return {} if self._limit is None else {"limit": self._limit}

    def broke_off(self, arrived: int) -> bool:
        """Note that a page broke off after so many objects; return whether it can have fewer.

        A server that heeds no limit may send more than it was asked for.
        """
        most = arrived if self._limit is None else min(arrived, self._limit)
        if most <= 1:
            return False
        self._limit, self._whole = most // 2, 0
        return True

    def arrived(self) -> None:
        """Note that a page arrived as a whole."""
        self._whole += 1
        if self._limit is not None and self._whole % _WHOLE_PAGES == 0:
            self._limit = min(2 * self._limit, self._most)
