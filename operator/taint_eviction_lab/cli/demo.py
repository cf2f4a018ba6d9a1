"""``taint-eviction demo``: the real controller at work on a small simulated cluster.

Starts the fake API server on loopback, and ``taint-eviction run`` as a process that talks HTTP to it. Shows what the
API server sees and what the controller logs. The story, and what is expected of it, are in ``simulation.demo``.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fake_apiserver import ApiServer, kubeconfig
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.flags import CONTEXT_SETTINGS, flag
from taint_eviction.cli.pictures import html_option, write_page
from taint_eviction.core.sentences import tolerated
from taint_eviction.runtime.clock import read_monotonic
from taint_eviction_lab.cli.demo_views import View, make_view
from taint_eviction_lab.picture.of_demo import picture_of_demo
from taint_eviction_lab.simulation.demo import DemoFact, DemoStory

# The log lines that are shown; the rest of the log is kept for the case that something goes wrong.
_SHOWN = {"scheduled", "cancelled", "evicted", "refused"}
_SOURCES = str(Path(__file__).resolve().parents[2])
_READY_SECONDS = 30.0
_END_SECONDS = 15.0


@click.command(context_settings=CONTEXT_SETTINGS)
@flag(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="A table that updates in a terminal (plain lines when piped), or a JSON object a line.",
)
@html_option
def demo(output: str, html: str | None) -> None:
    """Watch the controller at work, without a cluster.

    For 20 seconds, a node with four pods is tainted, untainted and tainted again.

    Exit codes: 0 all as expected; 1 something was not, or the controller did not start; 2 wrong usage.
    """
    view = _Keeping(make_view(output))
    broken = asyncio.run(_demo(view))
    if html:
        write_page(html, picture_of_demo(view.facts))
    if broken:
        give_up(ExitCode.FAILED, *broken)


class _Keeping:
    """A view that keeps what it shows, for a picture."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.facts: list[DemoFact] = []

    def __enter__(self) -> View:
        self._view.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._view.__exit__(*raised)

    def show(self, fact: DemoFact) -> None:
        """Keep a fact and show it."""
        self.facts.append(fact)
        self._view.show(fact)


async def _demo(view: Any) -> list[str]:
    async with ApiServer() as server:
        server.kubelets.finish_after_seconds = 0.5
        story = DemoStory(server, read_monotonic, view.show)
        with tempfile.TemporaryDirectory() as directory, view:
            config = Path(directory) / "kubeconfig"
            config.write_text(json.dumps(kubeconfig(server)))
            return await _play(story, _Controller(config, story, view))


async def _play(story: DemoStory, controller: "_Controller") -> list[str]:
    story.prepare()
    await controller.start()
    try:
        story.began_at = read_monotonic()
        await story.play()
        broken = story.broken()
    finally:
        code = await controller.stop()
    if code != 0:
        broken.append(f"the controller ended with exit code {code}; the end of its log: {controller.end_of_log()}")
    return broken


class _Controller:
    """``taint-eviction run`` as a child process."""

    def __init__(self, config: Path, story: DemoStory, view: View) -> None:
        self._config = config
        self._story = story
        self._view = view
        self._ready = asyncio.Event()
        self._log: list[str] = []

    async def start(self) -> None:
        """Start it and wait until it logs that it is synced."""
        # It gets the demo's flags, not those in the environment of whoever runs the demo.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TAINT_EVICTION_")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_SOURCES, environment.get("PYTHONPATH")]))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "taint_eviction", "run", "--kubeconfig", str(self._config)),
            *("--log-format", "json", "--no-leader-elect"),
            env=environment,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read())
        waiting = asyncio.create_task(self._ready.wait())
        await asyncio.wait((waiting, self._reading), timeout=_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._ready.is_set():
            raise click.ClickException(f"the controller did not get ready; the end of its log: {self.end_of_log()}")

    async def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            code = await self._process.wait()
        await self._reading
        return code

    def end_of_log(self) -> str:
        """Return the last lines of its log."""
        return " / ".join(self._log[-3:]) or "none"

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for raw in self._process.stderr:
            line = raw.decode(errors="replace").rstrip()
            self._log.append(line)
            try:
                logged = json.loads(line)
            except ValueError:
                continue
            if str(logged.get("message", "")).startswith("synced"):
                self._ready.set()
            if logged.get("what") in _SHOWN:
                self._view.show(self._fact(logged))

    def _fact(self, logged: Mapping[str, Any]) -> DemoFact:
        """Turn a line of the controller's log into a fact."""
        pod = str(logged.get("pod", "")).partition("/")[2]
        return DemoFact(
            self._story.now(), logged["what"], _text(logged), pod, logged.get("node", ""), logged.get("uid", "")
        )


def _text(logged: Mapping[str, Any]) -> str:
    """Shorten a log line: the demo shows pod and node in columns of their own."""
    why = f"taint {tolerated(logged.get('taint'), logged.get('toleration'))}"
    match logged["what"]:
        case "scheduled":
            return f"due at {logged['deadline']}: {why}"
        case "evicted":
            return f"{logged['late_seconds']:.2f} s after its deadline: {why}"
        case _:
            return str(logged.get("message", "")).partition(": ")[2]
