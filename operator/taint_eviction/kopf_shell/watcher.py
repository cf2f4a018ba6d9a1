"""Watches by embedding one Kopf for each scope: the ``Watcher`` door.

An embedded Kopf is started with ``kopf.spawn_tasks`` and ended here, by cancelling its own tasks and no others;
``kopf.operator`` and ``kopf.run_tasks`` would cancel every task that was created in the loop since.

Does not restart anything, does not list for itself, and never writes. The listener is told from Kopf's workers, or of
endings as they are read (see ``sieve``), per object in the order of the stream, and nothing more once ``watch`` was
cancelled.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, cast

import kopf

from taint_eviction.kopf_shell.api_session import Logins, OpenSession
from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.endings import first_failure, one_line
from taint_eviction.kopf_shell.kopf_log import relay_kopf_log
from taint_eviction.kopf_shell.sieve import Known, Sieve, Wanted
from taint_eviction.kopf_shell.tap import Tap
from taint_eviction.kopf_shell.tuning import OPERATOR_IDENTITY, WatchTuning, operator_settings, resource_of
from taint_eviction.runtime.ports import PodsScope, WatchEnded, WatchListener, WatchScope

# It takes a few milliseconds, as there is nothing to wait for; with hundreds of watches that start at once, longer.
_LONGEST_DISCOVERY_SECONDS = 5.0

Tasks = Collection[asyncio.Task[Any]]


class KopfWatcher:
    """Embeds one Kopf for each call of ``watch``.

    ``url`` is the API server's, ``open_session`` opens sessions towards it. ``reinstall_signal_handlers`` is called
    after each start: in the main thread Kopf puts its own SIGINT and SIGTERM handlers over ours, and there is no way to
    tell it not to. ``wanted`` and ``known`` may keep objects from the listener that it does not care for or knows
    already (see ``sieve``); they have no effect without ``tuning.straining``.
    """

    def __init__(
        self,
        url: str,
        open_session: OpenSession,
        *,
        reinstall_signal_handlers: Callable[[], None],
        tuning: WatchTuning | None = None,
        wanted: Wanted | None = None,
        known: Known | None = None,
    ) -> None:
        self._url = url
        self._open_session = open_session
        self._reinstall_signal_handlers = reinstall_signal_handlers
        self._tuning = tuning or WatchTuning()
        self._wanted, self._known = wanted, known
        self._discovery = Discovery(url, self._tuning.request_seconds)
        relay_kopf_log()

    async def watch(self, scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        """Watch until cancelled; raise ``WatchEnded`` when the watch ends by itself, and what the listener raised.

        ``since`` counts for pods only. Nodes are listed all the same: what the sieve has seen of them in a list, it
        need not tell again with the next heartbeat of each.
        """
        sieve = Sieve(self._wanted, self._known) if self._tuning.straining else None
        tap = Tap(listener, sieve, self._discovery, since if isinstance(scope, PodsScope) else None)
        logins = Logins(self._url, self._open_session, tap.listen_in, self._tuning.logins)
        tap.on_accepted = logins.note_accepted
        try:
            await self._discovery.ask(logins.open)
            reason = await self._run_kopf(scope, tap, logins)
        finally:
            await logins.close()
        if tap.bug.done():
            tap.bug.result()
        raise WatchEnded(reason)

    async def _run_kopf(self, scope: WatchScope, tap: Tap, logins: Logins) -> str:
        """Run one Kopf until it ends, and say why it did."""
        # A task of its own, for two reasons. Kopf keeps its settings and credentials in context variables. And being
        # cancelled inside spawn_tasks would leave a whole running Kopf behind that nobody knows.
        spawning = asyncio.create_task(self._spawn(scope, tap, logins), name=f"start watching {scope}")
        try:
            tasks = await asyncio.shield(spawning)
            return await self._until_the_end(tasks, tap)
        except asyncio.CancelledError:
            tap.mute()
            raise
        finally:
            await _see_through(_end(spawning, tap))

    async def _spawn(self, scope: WatchScope, tap: Tap, logins: Logins) -> Tasks:
        tasks = await kopf.spawn_tasks(
            registry=_registry(scope, tap, logins),
            settings=operator_settings(scope, self._tuning),
            identity=cast(Any, OPERATOR_IDENTITY),
            memo=(),  # copied for every object, and a tuple is its own copy
            standalone=True,
            clusterwide=True,
        )
        # No await between the two: a signal that comes in between finds our handlers.
        self._reinstall_signal_handlers()
        return tasks

    async def _until_the_end(self, tasks: Tasks, tap: Tap) -> str:
        """Wait for the first task that ends, or for silence, and say why in one line."""
        while True:
            tap.alive = False
            done, _ = await asyncio.wait(
                {*tasks, tap.bug}, timeout=self._tuning.silence_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                failure = first_failure(done)
                return tap.trouble or (one_line(failure) if failure is not None else "Kopf ended by itself")
            if not tap.alive:
                after = f"nothing was heard for {self._tuning.silence_seconds:g} s"
                return f"{after}; last: {tap.trouble}" if tap.trouble is not None else after


def _registry(scope: WatchScope, tap: Tap, logins: Logins) -> kopf.OperatorRegistry:
    """Register the only two handlers there are. What they return must be None, or Kopf would write it to the object."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="log-in")
    async def log_in(**_context: Any) -> kopf.AiohttpSession | None:
        try:
            return await logins.log_in()
        except Exception as bug:  # Kopf would try again in a minute, the rest of it waiting
            tap.fail(bug)
            return None

    @kopf.on.event("v1", resource_of(scope), registry=registry, id="tell")
    async def tell(event: kopf.RawEvent, **_context: Any) -> None:
        tap.on_event(event)

    return registry


async def _end(spawning: asyncio.Task[Tasks], tap: Tap) -> None:
    """End an embedded Kopf with all its tasks."""
    tasks = await spawning
    # Not before it has left discovery, see there; it is through at once, or has failed.
    left_discovery = asyncio.create_task(tap.discovered.wait())
    await asyncio.wait(
        {left_discovery, *tasks}, timeout=_LONGEST_DISCOVERY_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    for task in (left_discovery, *tasks):
        task.cancel()
    await asyncio.gather(left_discovery, *tasks, return_exceptions=True)


async def _see_through(work: Coroutine[Any, Any, None]) -> None:
    """Let ``work`` finish even while being cancelled, and be cancelled then."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()
