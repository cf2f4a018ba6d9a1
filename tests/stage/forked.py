"""Controllers in processes of their own, forked from one that has imported the command, which takes a second of CPU.

The child has what ``python -m taint_eviction`` has after its imports: its own words, environment, directory and stderr.
It is forked by multiprocessing's fork server, which has run nothing, so neither threads nor event loops are inherited.
"""

import asyncio
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

# What the fork server imports, once for all tests of a worker.
_IMPORTED = [__name__, "taint_eviction.cli.run"]


class ForkedProcess:
    """A process with the part of ``asyncio.subprocess.Process`` that controllers need. Its stderr must be read."""

    def __init__(self, process: multiprocessing.process.BaseProcess, stderr: asyncio.StreamReader) -> None:
        self._process = process
        self.stderr = stderr

    @property
    def pid(self) -> int:
        """The process ID."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; a negative one is the number of a signal. None: it still runs."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing is sent to a process that has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        # No thread may wait for it: the end can be read once only.
        while (code := self.returncode) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return code


async def fork(*words: str, environment: Mapping[str, str], directory: Path) -> ForkedProcess:
    """Run the command with these words in another process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    reads, writes = os.pipe()
    theirs = Connection(writes, readable=False)
    process = context.Process(target=_run, args=(words, dict(environment), str(directory), theirs), daemon=True)
    # The first one waits for the imports, and the event loop of a test has a server to run.
    await asyncio.to_thread(process.start)
    theirs.close()
    stderr = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stderr, loop=loop), os.fdopen(reads, "rb"))
    return ForkedProcess(process, stderr)


def _run(words: Sequence[str], environment: Mapping[str, str], directory: str, stderr: Connection) -> None:
    os.dup2(stderr.fileno(), sys.stderr.fileno())
    stderr.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv[1:] = words
    runpy.run_module("taint_eviction", run_name="__main__", alter_sys=True)
