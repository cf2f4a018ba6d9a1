"""``status --watch`` without answers: the last state must not look like the present one."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from taint_eviction_ctl.cli import status
from taint_eviction_ctl.cli.asking import Document, Unanswered
from taint_eviction_lab.simulation.virtual_clock import virtual_now
from taint_eviction_lab.simulation.virtual_loop import run_virtually


def watched(monkeypatch: pytest.MonkeyPatch, *answer_seconds: float, until: float = 30.0) -> list[tuple[float, str]]:
    """Watch answers that take this long each, every 2 s; return what is shown when: "" for an answer, else why not."""
    shown: list[tuple[float, str]] = []
    takes = iter(answer_seconds)

    async def asking(_: str, __: Mapping[str, str | int]) -> Document:
        seconds = next(takes, 0.0)
        try:
            async with asyncio.timeout(10.0):
                await asyncio.sleep(seconds)
        except TimeoutError:
            raise Unanswered("no answer within 10 s") from None
        return {"identity": "a", "pending": [], "continue": None}

    def show(_: Document, failures: str | None) -> None:
        shown.append((virtual_now(), failures or ""))

    async def run() -> None:
        query: dict[str, Any] = {"limit": 10}
        try:
            async with asyncio.timeout(until):
                await status.show_repeatedly(asking, query, {"interval": 2.0, "output": "table"})
        except TimeoutError:
            pass
        assert len(asyncio.all_tasks()) == 1

    monkeypatch.setattr(status, "_view", lambda _: (nullcontext(), show))
    run_virtually(run(), 0.0)
    return shown


def test_answers_are_shown_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer does not mean yet that the connection is lost."""
    assert watched(monkeypatch, 0, 1, 0, until=7.5) == [(0.0, ""), (3.0, ""), (5.0, ""), (7.0, "")]


def test_a_call_that_hangs_is_shown_before_it_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message comes after three seconds, then the reason for the failure; the next answer is shown as usual."""
    assert watched(monkeypatch, 0, 60, 0, until=15) == [
        (0.0, ""),
        (5.0, "no answer for 3 s"),
        (12.0, "no answer within 10 s"),
        (14.0, ""),
    ]


def test_a_late_answer_replaces_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends two seconds after the message that there is no answer."""
    assert watched(monkeypatch, 0, 5, until=8) == [(0.0, ""), (5.0, "no answer for 3 s"), (7.0, "")]
