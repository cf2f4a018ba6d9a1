"""Tokens that rotate, without a network."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.stage.clocks import EPOCH, HandClock

from taint_eviction.core.instants import Moment
from taint_eviction.login.token_sources import (
    CredentialsError,
    FixedAuthorization,
    Renewed,
    RenewedAuthorization,
    TokenFile,
)
from taint_eviction_lab.simulation.virtual_loop import run_virtually


class LoopClock(HandClock):
    """A clock that shows the loop's time."""

    def now(self) -> Moment:
        """Return the loop's time."""
        self.at = asyncio.get_running_loop().time()
        return super().now()


async def slow_start() -> None:
    """Let the loop turn some times."""
    for _ in range(5):
        await asyncio.sleep(0)


class Renewal:
    """Give numbered credentials that live for ``life_seconds``; fail or wait where a test says so."""

    def __init__(self, clock: HandClock, life_seconds: float | None = None) -> None:
        self.clock = clock
        self.life_seconds = life_seconds
        self.count = 0
        self.failing = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> Renewed:
        """Renew."""
        await self.gate.wait()
        self.count += 1
        if self.failing:
            raise CredentialsError("the plugin failed")
        return self.made(f"new {self.count}")

    def made(self, value: str) -> Renewed:
        """Return credentials made now."""
        expires = None if self.life_seconds is None else EPOCH + self.clock.at + self.life_seconds
        return Renewed(value, expires)


async def test_a_fixed_token_never_changes() -> None:
    """It stays the same after a refusal, too: there is no other token."""
    source = FixedAuthorization("Bearer x")
    assert await source.authorization() == await source.authorization("Bearer x") == "Bearer x"
    await source.close()


@pytest.mark.parametrize("content", ["", "  \n", None, "t\xf6ken"])
async def test_a_token_file_that_never_was_readable_is_an_error(tmp_path: Path, content: str | None) -> None:
    """The error has the path of the file, which is missing, empty or binary."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content, "latin-1")
    with pytest.raises(CredentialsError, match=str(file)):
        await TokenFile(file, HandClock()).authorization()


async def test_a_token_file_that_vanishes_leaves_the_last_token_in_use(tmp_path: Path) -> None:
    """The file may come back; until then the API server decides."""
    (tmp_path / "token").write_text("one")
    clock = HandClock()
    source = TokenFile(tmp_path / "token", clock)
    await source.authorization()
    (tmp_path / "token").unlink()
    clock.at += 60.0
    assert await source.authorization() == "Bearer one"


async def test_a_failure_that_lasts_is_logged_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file is read every 3 s, and credentials are renewed every 5 s; the counts have each failure."""
    (tmp_path / "token").write_text("one")
    clock = HandClock()

    async def refused() -> Renewed:
        raise CredentialsError("the identity provider is away")

    file = TokenFile(tmp_path / "token", clock)
    renewed = RenewedAuthorization(refused, Renewed("first", EPOCH + 10_000.0), clock)
    await file.authorization()
    (tmp_path / "token").unlink()
    for _ in range(20):
        clock.at += 6.0
        assert await file.authorization() == "Bearer one"
        with contextlib.suppress(CredentialsError):
            await renewed.authorization("first")
    texts = [each.getMessage() for each in caplog.records]
    assert [sum(word in text for text in texts) for word in ("the last token", "cannot be renewed")] == [2, 2]
    assert (file.failures, renewed.failures) == (20, 20)


@pytest.mark.parametrize(
    ("life", "kept_until", "renewed_at"), [(30.0, 23.9, 24.0), (3600.0, 3539.9, 3540.0), (None, 1e9, None)]
)
async def test_credentials_are_renewed_a_while_before_they_expire(
    life: float | None, kept_until: float, renewed_at: float | None
) -> None:
    """They are renewed a minute before, or a fifth of a short life before; those without an end are kept."""
    clock = HandClock()
    renewal = Renewal(clock, life)
    source = RenewedAuthorization(renewal, renewal.made("first"), clock)
    clock.at = 100.0 + kept_until
    assert await source.authorization() == "first"
    if renewed_at is not None:
        clock.at = 100.0 + renewed_at
        assert await source.authorization() == "first"
        await slow_start()
        assert await source.authorization() == "new 1"


async def test_a_renewal_that_hangs_delays_no_call_while_the_credentials_are_good() -> None:
    """The renewal runs once, beside the calls, until the credentials have all but expired."""
    clock = HandClock()
    renewal = Renewal(clock, 300.0)
    source = RenewedAuthorization(renewal, renewal.made("first"), clock)
    renewal.gate.clear()
    for left in (60.0, 30.0, 5.1):
        clock.at = 400.0 - left
        asked = asyncio.create_task(source.authorization())
        await slow_start()
        assert asked.done()
        assert asked.result() == "first"
    clock.at = 395.0
    waiting = asyncio.create_task(source.authorization())
    await slow_start()
    assert not waiting.done()
    renewal.gate.set()
    assert await waiting == "new 1"
    assert renewal.count == 1


def test_a_renewal_that_hangs_is_cut_off_and_tried_again_while_the_credentials_are_good() -> None:
    """A plugin that hung once costs nothing: another run ends before the credentials expire."""

    async def main() -> None:
        clock = LoopClock()
        clock.now()
        renewal = Renewal(clock, 300.0)
        source = RenewedAuthorization(renewal, renewal.made("first"), clock)
        await asyncio.sleep(240.0)
        renewal.gate.clear()
        for failures, after in ((0, 24.9), (1, 0.2), (1, 5.0)):
            assert await source.authorization() == "first"
            await asyncio.sleep(after)
            assert source.failures == failures
        renewal.gate.set()
        assert await source.authorization() == "first"
        await slow_start()
        assert (await source.authorization(), renewal.count) == ("new 1", 1)

    run_virtually(main())


async def test_a_bug_in_a_renewal_is_not_lost() -> None:
    """The next call raises the error, which ends the process."""
    clock = HandClock()

    async def broken() -> Renewed:
        raise ZeroDivisionError("a bug")

    source = RenewedAuthorization(broken, Renewed("first", EPOCH + 200.0), clock)
    clock.at += 90.0
    assert await source.authorization() == "first"
    await slow_start()
    with pytest.raises(ZeroDivisionError):
        await source.authorization()


async def test_one_renewal_serves_all_waiting_calls_even_if_the_first_gives_up() -> None:
    """A call that is cancelled does not cancel the renewal for the others."""
    clock = HandClock()
    renewal = Renewal(clock, 30.0)
    source = RenewedAuthorization(renewal, renewal.made("first"), clock)
    clock.at += 30.0
    renewal.gate.clear()
    waiting = [asyncio.create_task(source.authorization()) for _ in range(3)]
    await asyncio.wait(waiting, timeout=0)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    renewal.gate.set()
    assert await asyncio.gather(*waiting[1:]) == ["new 1", "new 1"]
    assert renewal.count == 1


async def test_a_token_that_was_refused_before_is_not_renewed_again() -> None:
    """A late 401 for the last token gets the present token."""
    clock = HandClock()
    renewal = Renewal(clock)
    source = RenewedAuthorization(renewal, renewal.made("first"), clock)
    clock.at += 60.0
    assert await source.authorization("first") == "new 1"
    assert await source.authorization("first") == "new 1"
    assert renewal.count == 1


async def test_a_certificate_that_is_refused_is_renewed_too() -> None:
    """A call without a token that gets a 401 had used a certificate from the plugin."""
    clock = HandClock()
    renewal = Renewal(clock)
    source = RenewedAuthorization(renewal, Renewed(None, None), clock)
    clock.at += 60.0
    assert await source.authorization() is None
    assert await source.authorization("") == "new 1"


async def test_a_renewal_that_fails_is_not_repeated_at_once() -> None:
    """The renewal is repeated every few seconds; the old credentials serve until they expire."""
    clock = HandClock()
    renewal = Renewal(clock, 100.0)
    source = RenewedAuthorization(renewal, renewal.made("first"), clock)
    renewal.failing = True
    clock.at += 90.0
    for _ in range(3):
        assert await source.authorization() == "first"
        await slow_start()
    assert (renewal.count, source.failures) == (1, 1)
    clock.at += 20.0
    for _ in range(3):
        with pytest.raises(CredentialsError, match="the plugin failed"):
            await source.authorization()
    assert (renewal.count, source.failures) == (2, 2)
    renewal.failing = False
    clock.at += 5.0
    assert await source.authorization() == "new 3"


async def test_closing_cuts_off_a_renewal() -> None:
    """No task is left running."""
    clock = HandClock()
    renewal = Renewal(clock, 30.0)
    source = RenewedAuthorization(renewal, renewal.made("first"), clock)
    clock.at += 30.0
    renewal.gate.clear()
    waiting = asyncio.create_task(source.authorization())
    await asyncio.wait([waiting], timeout=0)
    await source.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [task for task in asyncio.all_tasks() if task.get_name() == "renew credentials"] == []
