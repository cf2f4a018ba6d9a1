"""Watches by embedding one Kopf for each scope: the ``Watcher`` port.

``kopf.operator`` and ``kopf.run_tasks`` cancel every task that was created in the event loop after they started. So
each watch starts its Kopf with ``kopf.spawn_tasks`` and cancels exactly the tasks that this returned.

A watch does not restart, does not list by itself and never writes. The listener is called from Kopf's workers, or
directly from the stream for the end of an object (see ``watch_filter``): for each object in the order of the stream,
and not at all once ``watch`` is cancelled.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, cast

import kopf

from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.kopf_shell.api_session import Logins, OpenSession
from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.endings import error_line, first_failure
from taint_eviction.kopf_shell.kopf_log import relay_kopf_log
from taint_eviction.kopf_shell.tuning import OPERATOR_IDENTITY, WatchTuning, operator_settings, resource_of
from taint_eviction.kopf_shell.watch_filter import Known, Wanted, WatchFilter
from taint_eviction.kopf_shell.watch_interceptor import WatchInterceptor
from taint_eviction.runtime.ports import PodsScope, WatchEnded, WatchListener, WatchScope

# Discovery takes a few milliseconds, since it waits for nothing; longer when hundreds of watches start at once.
_MAX_DISCOVERY_SECONDS = 5.0

# For so long the API server is waited for before it is asked again what it offers: all watches wait for that. It is
# longer than a busy API server keeps a request in its queue by default.
_MAX_ASKING_SECONDS = 20.0

Tasks = Collection[asyncio.Task[Any]]


class KopfWatcher:
    """Embeds one Kopf for each call of ``watch``.

    ``url`` is the API server's, ``open_session`` opens sessions to it. ``reinstall_signal_handlers`` is called after
    each start: in the main thread Kopf replaces the SIGINT and SIGTERM handlers by its own, and has no setting against
    that. ``wanted`` and ``known`` hide objects from the listener that it does not want to see or knows already (see
    ``watch_filter``), ``parts`` hides parts of pods.
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
        parts: PodParts = ALL_PARTS,
    ) -> None:
        self._url = url
        self._open_session = open_session
        self._reinstall_signal_handlers = reinstall_signal_handlers
        self._tuning = tuning or WatchTuning()
        self._wanted, self._known, self._parts = wanted, known, parts
        self._discovery = Discovery(url, min(self._tuning.request_seconds, _MAX_ASKING_SECONDS))
        relay_kopf_log()

    async def watch(self, scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        """Watch until cancelled; raise ``WatchEnded`` when the watch ends by itself, and what the listener raised.

        ``since`` counts for pods only. Nodes are always listed: the filter then recognises the next heartbeat of each.
        """
        pods = isinstance(scope, PodsScope)
        watch_filter = WatchFilter("Pod" if pods else "Node", self._wanted, self._known, self._parts)
        interceptor = WatchInterceptor(listener, watch_filter, self._discovery, since if pods else None)
        logins = Logins(self._url, self._open_session, interceptor.listen_in)
        interceptor.on_accepted = logins.note_accepted
        try:
            await self._discovery.ask(logins.open)
            reason = await self._run_kopf(scope, interceptor, logins)
        finally:
            await logins.close()
        if interceptor.bug.done():
            interceptor.bug.result()
        raise WatchEnded(reason)

    async def _run_kopf(self, scope: WatchScope, interceptor: WatchInterceptor, logins: Logins) -> str:
        """Run one Kopf until it ends; return the reason in one line."""
        # In a task of its own, for two reasons. Kopf keeps its settings and credentials in context variables. And a
        # cancellation inside spawn_tasks would leave a running Kopf behind whose tasks are not known.
        spawning = asyncio.create_task(self._spawn(scope, interceptor, logins), name=f"start watching {scope}")
        try:
            tasks = await asyncio.shield(spawning)
            return await self._until_the_end(tasks, interceptor)
        except asyncio.CancelledError:
            interceptor.mute()
            raise
        finally:
            await _finish(_end(spawning, interceptor))

    async def _spawn(self, scope: WatchScope, interceptor: WatchInterceptor, logins: Logins) -> Tasks:
        tasks = await kopf.spawn_tasks(
            registry=_registry(scope, interceptor, logins),
            settings=operator_settings(scope, self._tuning),
            identity=cast(Any, OPERATOR_IDENTITY),
            memo=(),  # Kopf copies it for every object; a tuple is its own copy.
            standalone=True,
            clusterwide=True,
        )
        # There is no await before this line: no signal reaches the handlers of Kopf.
        self._reinstall_signal_handlers()
        return tasks

    async def _until_the_end(self, tasks: Tasks, interceptor: WatchInterceptor) -> str:
        """Wait until a task ends, or until the watch has been silent for too long; return the reason in one line."""
        loop, silence_seconds = asyncio.get_running_loop(), self._tuning.silence_seconds
        while True:
            left = max(0.0, interceptor.alive_at + silence_seconds - loop.time())
            done, _ = await asyncio.wait({*tasks, interceptor.bug}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if done:
                failure = first_failure(done)
                return interceptor.failure or (error_line(failure) if failure is not None else "Kopf ended by itself")
            if loop.time() >= interceptor.alive_at + silence_seconds:
                silence = f"nothing was received for {silence_seconds:g} s"
                return f"{silence}; last: {interceptor.failure}" if interceptor.failure is not None else silence


def _registry(scope: WatchScope, interceptor: WatchInterceptor, logins: Logins) -> kopf.OperatorRegistry:
    """Register the two handlers. They return None: Kopf would write any other value to the object."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="log-in")
    async def log_in(**_context: Any) -> kopf.AiohttpSession | None:
        try:
            return await logins.log_in()
        except Exception as bug:  # Kopf would retry in a minute, and wait until then.
            interceptor.fail(bug)
            return None

    @kopf.on.event("v1", resource_of(scope), registry=registry, id="report")
    async def report(event: kopf.RawEvent, **_context: Any) -> None:
        interceptor.on_event(event)

    return registry


async def _end(spawning: asyncio.Task[Tasks], interceptor: WatchInterceptor) -> None:
    """End an embedded Kopf with all its tasks."""
    tasks = await spawning
    # Not while it is in discovery (see there); it leaves discovery at once, or fails.
    left_discovery = asyncio.create_task(interceptor.discovered.wait())
    await asyncio.wait({left_discovery, *tasks}, timeout=_MAX_DISCOVERY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in (left_discovery, *tasks):
        task.cancel()
    await asyncio.gather(left_discovery, *tasks, return_exceptions=True)


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Let ``work`` finish even if this task is cancelled; raise the cancellation afterwards."""
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
