"""The embedded API server: a cluster, served over HTTP on loopback, with faults.

Everything but `start`, `stop` and `restart` is synchronous and to be called from the loop's thread.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable

from aiohttp import web

from .answering import Answerer, Authorizer, Tokens
from .clock import WallClock
from .cluster import FakeCluster
from .connection import abort_connections
from .control import Control
from .defaults import Identities
from .faults import Faults
from .node_lifecycle import NodeLifecycleSettings
from .request_log import RequestLog
from .resources import ResourceType
from .store import Snapshot
from .streaming import StreamSettings
from .watch import WatchHub, WatchMatch

# aiohttp takes 0 for no limit at all, and then a stop waits for clients that came after the connections were reset.
_SHUTDOWN_SECONDS = 0.01
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class ApiServer(FakeCluster):
    """An API server that starts empty, but for the namespaces every cluster has.

    `port` 0 takes a free one and keeps it over restarts. `seed` makes uids and fault probabilities repeatable.
    `custom` are kinds besides those of every cluster, made by `custom_resource`. `watch_queue_limit` is how many events
    a watcher may fall behind before its watch is ended.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        tokens: Tokens | None = None,
        authorize: Authorizer | None = None,
        clock: WallClock | None = None,
        seed: int | None = None,
        history_size: int = 10_000,
        watch_queue_limit: int = 100_000,
        custom: Iterable[ResourceType] = (),
        node_lifecycle: NodeLifecycleSettings | None = None,
    ) -> None:
        self.host, self.port = host, port
        self._ssl_context = ssl_context
        self.watches = WatchHub(watch_queue_limit)
        # Watchers hear of a change before anybody reacts to it, so that events come in order.
        super().__init__(
            clock=clock, identities=Identities(seed), recorder=self.watches.publish, history_size=history_size,
            custom=custom, node_lifecycle=node_lifecycle,
        )  # fmt: skip
        self.watching = StreamSettings()
        self.requests = RequestLog()
        self.faults = Faults(seed)
        self.answerer = Answerer(
            self.registry, self.watches, self.clock, self.requests, self.faults, self.watching, tokens, authorize,
            control=Control(self).handle, before_read=self._write_leases,
        )  # fmt: skip
        self._runner: web.ServerRunner | None = None
        for name in _NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        """Known once the server was started."""
        return f"{'https' if self._ssl_context else 'http'}://{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        return self._runner is not None

    async def start(self) -> None:
        """Listens, on the same port as before if it ran before; idempotent."""
        if self._runner is not None:
            return
        server = web.Server(self.answerer.handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        site = web.TCPSite(runner, self.host, self.port, ssl_context=self._ssl_context, reuse_address=True)
        await site.start()
        self._runner = runner
        self.port = runner.addresses[0][1]
        self.kubelets.resume()
        self.recreations.resume()
        if self.node_lifecycle is not None:
            self.node_lifecycle.resume()

    async def stop(self) -> None:
        """Stops listening and resets every connection, as a machine that loses its power does; idempotent."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        self.kubelets.suspend()
        self.recreations.suspend()
        if self.node_lifecycle is not None:
            self.node_lifecycle.suspend()
        abort_connections(runner)
        await runner.cleanup()

    async def restart(self, *, keep_history: bool = True, restore: Snapshot | None = None) -> None:
        """Stop and start; without history older versions get 410, with `restore` the objects are those of a backup."""
        await self.stop()
        if restore is not None:
            self.store.restore(restore)
        elif not keep_history:
            self.store.compact()
        await self.start()

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def ready(self) -> bool:
        """False answers 503 to everything."""
        return self.answerer.ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        self.answerer.ready = ready

    @property
    def tokens(self) -> Tokens | None:
        return self.answerer.tokens

    @tokens.setter
    def tokens(self, tokens: Tokens | None) -> None:
        self.answerer.tokens = tokens

    def lag(self, plural: str) -> None:
        """Lets one kind's watch cache fall behind: its watches and its reads with resourceVersion=0, not the others."""
        self.store.lag(plural)
        self.watches.hold(WatchMatch(resource=plural))

    def catch_up(self, plural: str) -> None:
        """Ends `lag`: watches get in order what they missed."""
        self.store.catch_up(plural)
        self.watches.calm(WatchMatch(resource=plural))
