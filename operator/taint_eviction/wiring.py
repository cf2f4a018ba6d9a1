"""The one place where the object graph is built: brain, body and skins of a running controller.

Builds and starts; decides nothing.
"""

import asyncio
import contextlib
import logging
import random
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp

from taint_eviction import __version__
from taint_eviction.adapters.api_calls import ApiCalls
from taint_eviction.adapters.api_client import ApiClient
from taint_eviction.adapters.audit import AuditLog
from taint_eviction.adapters.builtin_controller import BuiltinController
from taint_eviction.adapters.clock_sharpening import sharpen
from taint_eviction.adapters.credentials import USER_AGENT, Connection
from taint_eviction.adapters.event_recorder import EventRecorder
from taint_eviction.adapters.journal import Journal
from taint_eviction.adapters.lease import KubernetesLease
from taint_eviction.adapters.log_teller import LogTeller
from taint_eviction.adapters.loop_lag import measure_loop_lag
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.adapters.metrics import CONTENT_TYPE, Metrics, Readings
from taint_eviction.adapters.observations import Observations, matters_to
from taint_eviction.adapters.policy_file_follower import PolicyFileFollower
from taint_eviction.adapters.probe_server import Address, ProbeServer
from taint_eviction.adapters.sessions import make_session
from taint_eviction.adapters.state_config_map import StateConfigMap
from taint_eviction.adapters.status_document import LeaseSeen, ProcessState
from taint_eviction.adapters.status_endpoints import StatusEndpoints
from taint_eviction.adapters.tellers import BreakerEventTeller, EventTeller, MetricsTeller
from taint_eviction.core.effects import Eviction, Work
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName
from taint_eviction.kopf_shell.tuning import WatchTuning
from taint_eviction.kopf_shell.watcher import KopfWatcher
from taint_eviction.runtime.assembly import Doors, assemble
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.leadership import Elector, NoElection
from taint_eviction.runtime.ports import Gate, Teller
from taint_eviction.settings import Settings

logger = logging.getLogger(__name__)

# A loop that wakes twice a second and has not for so long is dead, or as good as.
_LONGEST_BEAT_SECONDS = 30.0
_LONGEST_EXPIRED_SECONDS = 20.0

_LOOK_SECONDS = 0.05

# How long events may still be posted at stop.
_DRAIN_SECONDS = 3.0
# They are read every other second.
_ORDERS_OLD_SECONDS = 10.0


class Application:
    """A controller, ready to run in one event loop.

    ``listen`` is where probes and metrics are served, None for nowhere. ``reinstall_signal_handlers`` puts the caller's
    signal handlers back after somebody else has replaced them. ``tuning`` is how Kopf is set, None for its defaults.
    ``policy_file`` is followed while it runs, None: the policy stays as the settings have it.
    """

    def __init__(
        self,
        connection: Connection,
        clock: ServerClock,
        settings: Settings,
        *,
        listen: Address | None = None,
        reinstall_signal_handlers: Callable[[], None] = lambda: None,
        tuning: WatchTuning | None = None,
        journal: Journal | None = None,
        audit: AuditLog | None = None,
        policy_file: Path | None = None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._settings = settings
        self.metrics = Metrics(__version__, settings.dry_run, settings.election.lease_name)
        self.calls = ApiCalls(
            connection.api_client(may_act=self._may_act, may_evict=self._may_evict),
            settings.call_timeout_seconds,
            clock.heard_date,
            self.metrics.called,
        )
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._recorder = EventRecorder(self.calls, clock, self._identity, self.metrics.event, self._is_busy)
        self.elector = self._make_elector()
        malformed = MalformedObjects(self.metrics.malformed)
        builtin = BuiltinController(clock, self.metrics.builtin_active, expected=settings.dry_run)
        observations = Observations(malformed, builtin.look)
        client = ApiClient(self.calls, malformed, builtin.look)
        self._state = NamespacedName(settings.election.lease_namespace, settings.orders.name)
        doors = Doors(
            clock=clock,
            reader=client,
            writer=client,
            watcher=lambda controller: KopfWatcher(
                connection.url,
                self._open_watch_session,
                reinstall_signal_handlers=reinstall_signal_handlers,
                tuning=tuning,
                wanted=matters_to(controller),
                known=observations.known_to(controller),
            ),
            interpret=observations.interpret,
            gate=self._gate(),
            tellers=[*self._tellers(), *([] if journal is None else [journal])],
            orders=StateConfigMap(self.calls, *self._state) if settings.orders.enabled else None,
            restarted=self.metrics.watch_restarted,
            heard=(lambda _fact, _now: None) if journal is None else journal.observed,
            began=self._began,
            attempted=(lambda _work, _outcome, _now: None) if audit is None else audit.attempted,
        )
        assembled = assemble(doors, settings, random.Random())
        self.live, self.driver, self.engine = assembled.live, assembled.driver, assembled.engine
        self._orders = assembled.orders
        self._policy = None
        if policy_file is not None:
            self._policy = PolicyFileFollower(
                policy_file, settings.policy, self.live.change_policy, self.metrics.policy_read
            )
        self._probes = self._make_probes(listen) if listen is not None else None
        self.metrics.read_from(self._readings())

    # Building

    def _make_elector(self) -> Elector | None:
        election = self._settings.election
        if not election.enabled:
            return None
        store = KubernetesLease(self.calls, election.lease_namespace, election.lease_name)
        return Elector(self._identity, store, self._clock, election, chance=random.Random())

    def _gate(self) -> Gate:
        return self.elector or NoElection()

    def _may_act(self) -> bool:
        return self._gate().may_act()

    def _may_evict(self) -> bool:
        return self.live.controller.dispatch.brakes.whole() is None

    def _began(self, work: Work, now: Moment) -> None:
        if isinstance(work, Eviction) and work.tries == 0:
            self.metrics.began(now.at - work.decision.fire_at)

    def _is_busy(self) -> bool:
        return self.driver.saturated

    def _tellers(self) -> list[Teller]:
        dry_run = self._settings.dry_run
        tellers: list[Teller] = [LogTeller(dry_run), MetricsTeller(self.metrics)]
        if not dry_run:
            tellers.append(BreakerEventTeller(self._recorder, self._gate(), self._state))
        if not dry_run or self._settings.dry_run_events:
            tellers.append(EventTeller(self._recorder, dry_run=dry_run))
        return tellers

    def _open_watch_session(
        self, *, listen_in: aiohttp.ClientMiddlewareType, response_class: type[aiohttp.ClientResponse]
    ) -> aiohttp.ClientSession:
        middlewares = (listen_in, *self._connection.middlewares)
        return make_session(self._connection.connector, middlewares, USER_AGENT, response_class=response_class)

    def _make_probes(self, listen: Address) -> ProbeServer:
        probes = {"/healthz": self._liveness, "/readyz": self.engine.readiness}
        endpoints = StatusEndpoints(self.live.controller, self._clock, self._process_state)
        documents = {"/status": endpoints.status, "/explain": endpoints.explain}
        return ProbeServer(listen, probes, documents, self.metrics.render, CONTENT_TYPE)

    def _process_state(self) -> ProcessState:
        election, (ready, why_not) = self._settings.election, self.engine.readiness()
        lease = None
        if self.elector is not None:
            lease = LeaseSeen(election.lease_namespace, election.lease_name, self.elector.holder)
        leading, dry_run = self._may_act(), self._settings.dry_run
        warnings = tuple(self._warnings())
        return ProcessState(__version__, self._identity, leading, lease, dry_run, "" if ready else why_not, warnings)

    def _warnings(self) -> Iterator[str]:
        if self._policy is not None and self._policy.invalid:
            yield "the policy file is rejected, and the policy before stays: see the log"
        if self._orders is not None and (age := self._orders.age_seconds()) > _ORDERS_OLD_SECONDS:
            yield f"pauses and breaker have not been read for {age:.0f} s: what was known of them stays in force"

    def _readings(self) -> Readings:
        controller = self.live.controller

        def longest_blocked() -> float:
            now = self._clock.now().at
            return max((now - trouble.since_at for trouble in controller.troubles()), default=0.0)

        def newly_tainted() -> dict[str, float]:
            wave = controller.wave(self._clock.now())
            return {"node-lifecycle-controller": wave.lifecycle_nodes, "others": wave.nodes}

        return Readings(
            pending=controller.pending_count,
            retrying=lambda: len(controller.troubles()),
            longest_blocked_seconds=longest_blocked,
            synced=self.engine.synced,
            watch_ages=self.engine.silences,
            clock_offset_seconds=self._clock.host_offset_seconds,
            leading=self._gate().may_act,
            due=controller.due_count,
            blocked=lambda: Counter(
                each.block.reason.value for each in controller.troubles() if each.block is not None
            ),
            breaker_open=lambda: controller.dispatch.brakes.breaker.latch is not None,
            newly_tainted=newly_tainted,
            pauses=controller.dispatch.brakes.pauses,
            orders_age_seconds=lambda: 0.0 if self._orders is None else self._orders.age_seconds(),
            policy_invalid=lambda: self._policy is not None and self._policy.invalid,
        )

    def _liveness(self) -> tuple[bool, str]:
        """Say whether the loop still turns; an API server that is away is no reason to be restarted."""
        if (age := self.engine.beat_age_seconds()) > _LONGEST_BEAT_SECONDS:
            return False, f"the driving loop has not turned for {age:.0f} s"
        if self.elector is not None and (expired := self.elector.expired_seconds()) > _LONGEST_EXPIRED_SECONDS:
            return False, f"believes to lead though its lease expired {expired:.0f} s ago"
        return True, "ok"

    # Running

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then end in good order; a bug of our own is raised."""
        running = asyncio.create_task(self._run_all(), name="controller")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            await self._stop()
        finally:
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            if self.elector is not None:
                await self.elector.release()
            if self._probes is not None:
                await self._probes.stop()
            await self._connection.close()

    async def _stop(self) -> None:
        logger.info("stopping: %d evictions in flight", self.driver.in_flight)
        if not await self.driver.stop(self._settings.grace_seconds):
            logger.warning("some evictions were cut off; whoever takes over completes them")
        await self._recorder.drain(_DRAIN_SECONDS)

    async def _run_all(self) -> None:
        if self._probes is not None:
            await self._probes.start()
        async with asyncio.TaskGroup() as group:
            # Until the second is known, nothing is dated; nothing else waits for it.
            sharpening = group.create_task(sharpen(self.calls, self._clock), name="clock")
            if self.elector is not None:
                group.create_task(self._stand(self.elector), name="elector")
            group.create_task(self._recorder.run(), name="events")
            if self._policy is not None:
                group.create_task(self._policy.run(), name="policy")
            group.create_task(measure_loop_lag(self._clock, self.metrics.loop_lagged), name="lag")
            await sharpening
            group.create_task(self.engine.run(), name="engine")
            group.create_task(self._tell_synced(), name="synced")

    async def _stand(self, elector: Elector) -> None:
        """Stand for election once the deadlines are known, so that who has just started never wins against a standby.

        But not for ever: a list that keeps failing, of one node's pods, must not keep everybody from acting.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.election.lease_duration_seconds):
                await self._until_synced()
        await elector.run()

    async def _until_synced(self) -> None:
        # Many events can make it true; looking now and then is simpler, and what waits for it can.
        while not self.engine.synced():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    async def _tell_synced(self) -> None:
        await self._until_synced()
        tainted = len(self.live.controller.tainted_nodes())
        pending = self.live.controller.pending_count()
        logger.info("synced: %d tainted nodes, %d pods with a deadline", tainted, pending)
