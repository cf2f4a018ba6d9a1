"""Why a watch ended, in one line."""

import asyncio
from collections.abc import Iterable
from typing import Any

from taint_eviction.core.text import one_line


def error_line(error: BaseException) -> str:
    """Return the type and the message of an exception on one line of bounded length."""
    return one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def refusal(status: int, answer: Any) -> str:
    """Return the HTTP status of a refusal with the API server's message, if the answer has one."""
    message = answer.get("message") if isinstance(answer, dict) else None
    return one_line(f"{status}: {message}" if message else f"{status}")


def first_failure(tasks: Iterable[asyncio.Future[Any]]) -> BaseException | None:
    """Return the exception of the first of these tasks that failed; None if no task failed."""
    for task in tasks:
        if task.done() and not task.cancelled() and (failure := task.exception()) is not None:
            return failure
    return None
