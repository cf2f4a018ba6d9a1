"""``taint-eviction demo``: the real controller at work on a little cluster of its own, before one's eyes.

Starts the embedded API server on loopback and ``taint-eviction run`` in a process of its own, which talks HTTP to it.
Shows what the API server sees and what the controller's log says. Knows no rule of taints: the story and what must
come of it are in ``simulation.demo``.
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

from taint_eviction.cli.demo_views import View, make_view
from taint_eviction.cli.pictures import html_option, write_page
from taint_eviction.picture.of_demo import picture_of_demo
from taint_eviction.runtime.clock import read_monotonic
from taint_eviction.simulation.apiserver import ApiServer, kubeconfig
from taint_eviction.simulation.demo import DemoFact, DemoStory

EXIT_BROKEN = 1

# The controller's own words that are shown; the rest of its log is kept for the case that something goes wrong.
_SHOWN = {"scheduled", "cancelled", "evicted", "refused"}
_SOURCES = str(Path(__file__).resolve().parents[2])
_READY_SECONDS = 30.0
_END_SECONDS = 15.0


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    show_envvar=True,
    help="A view that updates in a terminal (plain lines when piped), or one fact a line as JSON.",
)
@html_option
def demo(output: str, html: str | None) -> None:
    """Watch the controller at work: 20 seconds, no cluster needed.

    A node with four pods is tainted, untainted and tainted again. Exit code 1 if anything went otherwise than it
    should.
    """
    view = _Keeping(make_view(output))
    broken = asyncio.run(_demo(view))
    if html:
        write_page(html, picture_of_demo(view.facts))
    for sentence in broken:
        click.echo(f"taint-eviction demo: {sentence}", err=True)
    sys.exit(EXIT_BROKEN if broken else 0)


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
        """Keep it and show it."""
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
        broken.append(f"the controller ended with exit code {code}; its last words: {controller.last_words()}")
    return broken


class _Controller:
    """``taint-eviction run`` in a process of its own."""

    def __init__(self, config: Path, story: DemoStory, view: View) -> None:
        self._config = config
        self._story = story
        self._view = view
        self._ready = asyncio.Event()
        self._log: list[str] = []

    async def start(self) -> None:
        """Start it and wait until it says that it is synced."""
        # Its flags are the demo's, not those of whoever runs the demo.
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
            raise click.ClickException(f"the controller did not get ready; its last words: {self.last_words()}")

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

    def last_words(self) -> str:
        """Return the end of its log."""
        return " / ".join(self._log[-3:]) or "none"

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for raw in self._process.stderr:
            line = raw.decode(errors="replace").rstrip()
            self._log.append(line)
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if str(told.get("message", "")).startswith("synced"):
                self._ready.set()
            if told.get("what") in _SHOWN:
                self._view.show(self._fact(told))

    def _fact(self, told: Mapping[str, Any]) -> DemoFact:
        """Make a fact of a line of the controller's log."""
        pod = str(told.get("pod", "")).partition("/")[2]
        return DemoFact(self._story.now(), told["what"], _text(told), pod, told.get("node", ""), told.get("uid", ""))


def _text(told: Mapping[str, Any]) -> str:
    """Shorten a line of the controller's log: the demo shows pod and node in columns of their own."""
    toleration = told.get("toleration")
    why = f"taint {told.get('taint')} is " + (f"tolerated by [{toleration}]" if toleration else "not tolerated")
    match told["what"]:
        case "scheduled":
            return f"due at {told['deadline']}: {why}"
        case "evicted":
            return f"{told['late_seconds']:.2f} s after its deadline: {why}"
        case _:
            return str(told.get("message", "")).partition(": ")[2]
