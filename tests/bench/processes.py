"""Processes that are measured from outside: their usage in /proc, and their answers."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

ROOT = Path(__file__).parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
METRICS_PREFIX = "taint_eviction_controller_"


def now() -> float:
    """Return the time of the monotonic clock, which is the same in all processes of the machine."""
    return time.monotonic()  # noqa: TID251 - a benchmark measures time


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far; memory in MB (10^6 bytes)."""

    cpu_seconds: float
    rss: float
    peak_rss: float

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """Read the usage from /proc."""
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines())
        rss, peak = (int(status[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
        return cls((int(fields[11]) + int(fields[12])) / _TICKS, rss, peak)


class MeasuredProcess:
    """A process of Python or another program in the project's directory, for one block. ``log``: its output."""

    def __init__(self, *arguments: str, program: str = sys.executable) -> None:
        self._arguments = arguments
        self._program = program
        self._directory = tempfile.TemporaryDirectory(prefix="taint-eviction-bench-")
        self.log = Path(self._directory.name) / "log"
        self.started_at = 0.0
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}"}
        environment.pop("KUBECONFIG", None)
        with self.log.open("wb") as log:
            self.started_at = now()
            command = [self._program, *self._arguments]
            self._popen = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, if necessary by SIGKILL."""
        assert self._popen is not None
        self._popen.terminate()
        try:
            self._popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if value is not None and self.log.exists():
            tail = self.log.read_text("utf-8", "replace")[-2000:]
            print(f"--- the end of {' '.join(self._arguments)[:100]}\n{tail}", file=sys.stderr)  # noqa: T201
        self._directory.cleanup()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._popen is not None
        return self._popen.pid

    def usage(self) -> Usage:
        """Return the process's usage; raise if it has ended."""
        assert self._popen is not None
        if self._popen.poll() is not None:
            raise RuntimeError(f"{self._arguments} ended with code {self._popen.returncode}")
        return Usage.of(self.pid)

    async def until(self, true: Callable[[], bool], timeout_seconds: float, every_seconds: float = 0.01) -> float:
        """Wait until a condition is true while the process runs, and return the time; raise ``TimeoutError``."""
        async with asyncio.timeout(timeout_seconds):
            while not true():
                self.usage()
                await asyncio.sleep(every_seconds)
        return now()


class MeasuredController(MeasuredProcess):
    """The real command ``taint-eviction run``, alone and always leading."""

    def __init__(self, kubeconfig: Path, *flags: str) -> None:
        self.port = _free_port()
        fixed = ("--kubeconfig", str(kubeconfig), "--listen", f"127.0.0.1:{self.port}", "--wait-for-api")
        super().__init__("-m", "taint_eviction", "run", *fixed, "--no-leader-elect", *flags)
        self._read = 0
        self._lines: list[str] = []

    @property
    def url(self) -> str:
        """The URL of its probes and metrics."""
        return f"http://127.0.0.1:{self.port}"

    async def until_ready(self, timeout_seconds: float = 120.0) -> float:
        """Wait until /readyz succeeds; return the time."""
        async with aiohttp.ClientSession() as session, asyncio.timeout(timeout_seconds):
            while True:
                self.usage()
                try:
                    async with session.get(f"{self.url}/readyz") as answer:
                        if answer.status == 200:
                            return now()
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.01)

    async def metrics(self) -> dict[str, float]:
        """Scrape the metrics; return values by name with labels, without the prefix."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as answer:
            text = await answer.text()
        rows = (line.rpartition(" ") for line in text.splitlines() if line.startswith(METRICS_PREFIX))
        return {name.removeprefix(METRICS_PREFIX): float(value) for name, _, value in rows}

    def count_lines(self, *parts: str) -> int:
        """Count the log lines so far that contain one of these texts."""
        return sum(1 for line in self.lines() if any(part in line for part in parts))

    def lines(self) -> Sequence[str]:
        """Return all complete log lines so far."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            complete = log.read().rpartition(b"\n")[0]
        if complete:
            self._read += len(complete) + 1
            self._lines += complete.decode("utf-8", "replace").split("\n")
        return self._lines


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
