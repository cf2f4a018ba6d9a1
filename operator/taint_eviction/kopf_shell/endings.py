"""Why a watch ended, in one line."""

import asyncio
from collections.abc import Iterable
from typing import Any

_MOST_CHARACTERS = 300


def one_line(error: BaseException | str) -> str:
    """Put an error, or the message of one, on one line of bounded length."""
    if isinstance(error, BaseException):
        error = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line = " ".join(error.split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"


def refusal(status: int, answer: Any) -> str:
    """Say what the API server answered where it refused: the status, and its own words where it gave any."""
    message = answer.get("message") if isinstance(answer, dict) else None
    return one_line(f"{status}: {message}" if message else f"{status}")


def first_failure(tasks: Iterable[asyncio.Future[Any]]) -> BaseException | None:
    """Return the exception of the first of these tasks that failed, None if none did."""
    for task in tasks:
        if task.done() and not task.cancelled() and (failure := task.exception()) is not None:
            return failure
    return None
