"""The real command in its own process: run to its end, or as a controller whose log lines are read.

stderr of a process is always drained, and a process that still runs at the end of the block is killed.
"""

import asyncio
import contextlib
import inspect
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from click.testing import CliRunner
from tests.stage.forked import ForkedProcess, fork
from tests.stage.objects import Json
from tests.stage.waiting import PATIENCE_SECONDS, until

from taint_eviction.cli import cli

ROOT = Path(__file__).parents[2]
COMMAND = ("-m", "taint_eviction")
LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC [A-Z]+ .*\n", re.MULTILINE)


async def start(
    *words: str,
    program: Sequence[str] = COMMAND,
    environment: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    """Start a command in the project's directory, without the command's own variables of this environment."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, *program, *words),
        cwd=ROOT,
        env={**_environment(), **(environment or {})},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TAINT_EVICTION_")}
    return {**inherited, "PYTHONPATH": str(ROOT / "operator")}


class CommandResult(NamedTuple):
    """The exit code of a command, and its output."""

    code: int
    out: str
    complaints: str


async def invoked(*words: str) -> CommandResult:
    """Run a command in a thread of this process; the output is the same, and no interpreter has to start.

    Lines that a controller in this process logs meanwhile are left out: they are not the command's.
    """
    result = await asyncio.to_thread(CliRunner().invoke, cli, words, catch_exceptions=False)
    return CommandResult(result.exit_code, result.stdout, LOG_LINE.sub("", result.stderr))


async def output_of(*words: str) -> str:
    """Run a command in its own process, as a person does, and return its output; the command must succeed."""
    process = await start(*words, stdout=asyncio.subprocess.PIPE)
    out, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return out.decode()


@dataclass
class RunningController:
    """A ``taint-eviction run`` that listens at ``listen``, and the log lines that it has written."""

    process: asyncio.subprocess.Process | ForkedProcess
    listen: str | None = None
    lines: list[Json] = field(default_factory=list)
    reading: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The URL of its probes, metrics and status."""
        return f"http://{self.listen}"

    async def read(self) -> None:
        """Collect log lines until the process ends."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"message": line.decode(errors="replace").rstrip()})

    def said(self, text: str) -> list[Json]:
        """Return the log lines whose message contains this."""
        return [line for line in self.lines if text in str(line.get("message", ""))]

    def told(self, **fields: str) -> list[Json]:
        """Return the log lines with these fields."""
        return [line for line in self.lines if fields.items() <= line.items()]

    async def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until a condition holds; on a timeout or the end of the process, fail with the last log lines."""
        held: Any = False

        async def holds() -> bool:
            nonlocal held
            running = self.process.returncode is None
            held = await answer if inspect.isawaitable(answer := condition()) else answer
            return bool(held) or not running

        with contextlib.suppress(TimeoutError):
            await until(holds, seconds)
        assert held, self.lines[-10:]

    async def says(self, seconds: float = PATIENCE_SECONDS, **fields: str) -> Json:
        """Wait until the process has logged a line with these fields, and return the first such line."""
        await self.until(lambda: self.told(**fields), seconds)
        return self.told(**fields)[0]

    async def synced(self) -> None:
        """Wait until the process logs that it is synced."""
        await self.until(lambda: any(str(line.get("message", "")).startswith("synced") for line in self.lines))

    async def get(self, path: str) -> tuple[int, str]:
        """Send a request to the probe server; the status is 0 if it does not listen yet."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def leads(self) -> bool:
        """Return whether its metrics say that it leads."""
        _, text = await self.get("/metrics")
        [line] = [line for line in text.splitlines() if line.startswith("leader_election_master_status{")]
        return line.endswith(" 1.0")

    async def ask(self, *words: str) -> str:
        """Run a command that asks this controller and must succeed, and return its output."""
        said = await invoked(*words, "--server", self.url)
        assert said.code == 0, said.complaints
        return said.out

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process and return its exit code."""
        code = await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)
        if self.reading is not None:
            await self.reading
        return code

    async def end(self) -> int:
        """Stop the process gracefully, and return its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """Kill the process; do nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.ended()


async def start_controller(
    config: Path | str, *flags: str, listen: str | None = None, program: Sequence[str] | None = None
) -> RunningController:
    """Start a controller and collect its log lines; the caller must end it.

    ``program``: what a new interpreter runs, ``COMMAND`` for the command; None: the command, without its imports.
    """
    where = () if listen is None else ("--listen", listen)
    words = ("run", "--kubeconfig", str(config), "--log-format", "json", *where, *flags)
    process: asyncio.subprocess.Process | ForkedProcess
    if program is None:
        process = await fork(*words, environment=_environment(), directory=ROOT)
    else:
        process = await start(*words, program=program)
    started = RunningController(process, listen)
    started.reading = asyncio.create_task(started.read())
    return started


@contextlib.asynccontextmanager
async def running_controller(
    config: Path | str,
    *flags: str,
    listen: str | None = None,
    program: Sequence[str] | None = None,
    synced: bool = True,
) -> AsyncIterator[RunningController]:
    """Run a controller without leader election; it is killed at the end of the block, which begins once it is synced.

    ``listen``: the address of its probe server; None: the default. ``program``: as for ``start_controller``. ``synced``
    False: the block begins at its start.
    """
    run = await start_controller(config, "--no-leader-elect", *flags, listen=listen, program=program)
    try:
        if synced:
            await run.synced()
        yield run
    finally:
        await run.kill()
