"""``taint-eviction demo``: the built-in controller and this one, side by side in two small simulated clusters.

Starts two fake API servers on loopback. ``taint-eviction run`` talks HTTP to one of them, as a process of its own; the
model of the built-in controller runs here, on the same clock, and talks HTTP to the other one. ``simulation.demo`` has
the steps and the expectations.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from fake_apiserver import ApiServer, kubeconfig
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.core.objects import NamespacedName
from taint_eviction.runtime.clock import read_monotonic
from taint_eviction_ctl.cli.flags import output_flag, verb
from taint_eviction_ctl.cli.pictures import html_option, write_page
from taint_eviction_lab.built_in.live import LiveBuiltIn
from taint_eviction_lab.built_in.version import MEASURED, BuiltInVersion, read_version
from taint_eviction_lab.cli.demo_views import DemoTable, View, make_view
from taint_eviction_lab.picture.of_demo import picture_of_demo
from taint_eviction_lab.simulation.demo import (
    API,
    CACHE,
    DB,
    NAMESPACE,
    QUEUE,
    SHOPS,
    WEB,
    DemoCluster,
    DemoFact,
    DemoPod,
    DemoStory,
    Side,
    with_lateness,
)

_SOURCES = str(Path(__file__).resolve().parents[2])
_READY_SECONDS = 30.0
_END_SECONDS = 15.0
_FLAGS = ("--log-format", "json", "--no-leader-elect", "--breaker", "--breaker-settle", "0.5s")


def _read_built_in(_: click.Context, __: click.Parameter, value: str) -> BuiltInVersion:
    try:
        return read_version(value)
    except ValueError as expected:
        raise click.BadParameter(f"{value!r} is not {expected}") from expected


@verb()
@output_flag(
    "table",
    "json",
    "yaml",
    text="A table that updates in a terminal (plain lines when piped), or one document after the other for programs.",
)
@click.option(
    "--built-in",
    metavar="VERSION",
    default=str(MEASURED),
    show_default=True,
    callback=_read_built_in,
    help="Which Kubernetes the model of the built-in controller stands for: 1.32 to 1.38. 1.32 also forgets pods.",
)
@html_option
def demo(output: str, built_in: BuiltInVersion, html: str | None) -> None:
    """Watch the built-in controller and this one side by side, without a cluster.

    For 27 seconds, the same happens in two small clusters: taints, a restart, a shortened toleration, a webhook that
    fails, and a surge of taints by mistake. In one of them a model of the built-in controller evicts, in the other the
    controller of this project.

    Exit codes: 0 everything went as expected; 1 something did not, or the controller did not start; 2 wrong usage.
    """
    run = _Demo(built_in, output)
    broken = asyncio.run(run.run())
    if html:
        write_page(html, picture_of_demo(run.facts, run.pods, run.name, run.verdict))
    if broken:
        give_up(ExitCode.FAILED, *broken)


class _Demo:
    """One run of the demo; the ``pods`` of each cluster, the ``facts`` and the ``verdict`` are kept for a picture."""

    def __init__(self, version: BuiltInVersion, output: str) -> None:
        self.name = f"model of built-in {version}"
        self.facts: list[DemoFact] = []
        self.verdict: list[str] = []
        self._version = version
        self._began_at = read_monotonic()
        pods: tuple[DemoPod, ...] = (WEB, CACHE, DB, API, *((QUEUE,) if version.keeps_key else ()), *SHOPS)
        self.pods = pods
        self._view: View = make_view(output, DemoTable(f"built-in {version} (model)", pods, self.now))

    def now(self) -> float:
        """Return the story's second."""
        return read_monotonic() - self._began_at

    async def run(self) -> list[str]:
        """Perform the demo; return what differed from the expectations."""
        async with ApiServer() as own, ApiServer() as other:
            for server in (own, other):
                server.kubelets.finish_after_seconds = 0.3
            here = DemoCluster(own, Side.OWN, self.pods, self.now, self._report)
            there = DemoCluster(other, Side.BUILT_IN, self.pods, self.now, self._report)
            self._story = DemoStory(here, there, self.now, self._report, self._version.keeps_key)
            here.prepare()
            there.prepare()
            built_in = LiveBuiltIn(other, self._version, _BuiltInTelling(self.now, self._report))
            with tempfile.TemporaryDirectory() as directory, self._view:
                config = Path(directory) / "kubeconfig"
                config.write_text(json.dumps(kubeconfig(own)))
                return await self._perform(_Controller(config, own, self.now, self._report), built_in)

    def _report(self, fact: DemoFact) -> None:
        fact = with_lateness(self._story, fact)
        self.facts.append(fact)
        self._view.show(fact)

    async def _perform(self, controller: "_Controller", built_in: LiveBuiltIn) -> list[str]:
        await controller.start()
        await built_in.start()
        try:
            self._began_at = read_monotonic()
            await self._play(controller, built_in)
            broken = self._story.broken()
        finally:
            await built_in.stop()
            code = await controller.stop()
        if code != 0:
            broken.append(f"the controller ended with exit code {code}; the end of its log: {controller.end_of_log()}")
        self.verdict = self._story.verdict(str(self._version))
        self._view.conclude(self.verdict, not broken)
        return broken

    async def _play(self, controller: "_Controller", built_in: LiveBuiltIn) -> None:
        story = self._story
        await self._until(1)
        story.do("taint")
        await self._until(5)
        story.do("restart")
        await built_in.restart()
        await controller.stop()
        await controller.start()
        await self._until(10)
        story.do("shorten")
        await self._until(16)
        story.do("refuse")
        await self._until(17.2)
        story.do("allow")
        if story.keeps_key:
            # So that the model notices the end of the old pod and the start of the new one together.
            await self._until(17.6)
            story.do("behind")
            built_in.fall_behind(2.0)
        await self._until(22.5)
        story.do("wave")
        await self._until(27)

    async def _until(self, second: float) -> None:
        await asyncio.sleep(max(0.0, second - self.now()))


class _BuiltInTelling:
    """The model's reports, as facts of the demo."""

    def __init__(self, now: Callable[[], float], report: Callable[[DemoFact], None]) -> None:
        self._now = now
        self._report = report

    def armed(self, key: NamespacedName, fire_at: float) -> None:
        """Show that a timer was set."""
        due_at = self._now() + fire_at - asyncio.get_running_loop().time()
        self._tell(key, "due", f"counts down for {key.name}, {due_at - self._now():.0f} s", due_at)

    def cancelled(self, key: NamespacedName) -> None:
        """Show that a timer was cancelled."""
        self._tell(key, "not due", "")

    def gave_up(self, key: NamespacedName, why: str) -> None:
        """Show that the model gave up a pod."""
        self._tell(key, "gave up", f"{key.name} is refused five times within 50 ms: given up")

    def event(self, key: NamespacedName, message: str) -> None:
        """Show nothing: other facts show the same."""

    def _tell(self, key: NamespacedName, what: str, text: str, due_at: float | None = None) -> None:
        if key.namespace == NAMESPACE:
            self._report(DemoFact(self._now(), Side.BUILT_IN, what, text, key.name, due_at=due_at))


class _Controller:
    """``taint-eviction run`` as a child process, which can be restarted; its log becomes facts."""

    def __init__(
        self, config: Path, server: ApiServer, now: Callable[[], float], report: Callable[[DemoFact], None]
    ) -> None:
        self._config = config
        self._server = server
        self._now = now
        self._report = report
        self._log: list[str] = []

    async def start(self) -> None:
        """Start a process and wait until it logs that it is synced."""
        # It gets the demo's flags, not those in the user's environment.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TAINT_EVICTION_")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_SOURCES, environment.get("PYTHONPATH")]))
        self._ready = asyncio.Event()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "taint_eviction", "run", "--kubeconfig", str(self._config), *_FLAGS),
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
        """Stop the process and return its exit code."""
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
        """Return the last lines of the process's log."""
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
            if (fact := self._fact(logged)) is not None:
                self._report(fact)

    def _fact(self, logged: Mapping[str, Any]) -> DemoFact | None:
        """Turn a line of the controller's log into a fact; None for one that the demo does not show."""
        namespace, _, pod = str(logged.get("pod", "")).partition("/")
        if namespace != NAMESPACE:
            pod = ""
        at, what = self._now(), logged.get("what")
        if what == "breaker_opened":
            return DemoFact(at, Side.OWN, "stopped", "stops evicting until a person has looked")
        if not pod:
            return None
        match what:
            case "scheduled":
                # The log has whole seconds, cut off: the deadline is half a second later on average.
                left = datetime.fromisoformat(logged["deadline"]) - self._server.clock.now()
                due_at = at + left.total_seconds() + 0.5
                if due_at < at + 1.0:
                    return None
                text = f"counts down for {pod}, about {due_at - at:.0f} s"
                return DemoFact(at, Side.OWN, "due", text, pod, logged.get("uid", ""), due_at)
            case "cancelled":
                return DemoFact(at, Side.OWN, "not due", "", pod)
            case "refused":
                return DemoFact(at, Side.OWN, "refused", f"{pod} is refused: goes on trying", pod)
            case _:
                return None
