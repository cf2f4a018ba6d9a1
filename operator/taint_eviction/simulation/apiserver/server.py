"""The embedded API server: objects, rules and faults behind one Python object, served over HTTP on loopback.

Everything but `start` and `stop` is synchronous and to be called from the loop's thread. What clients can do over
HTTP goes through the same rules here; objects created here keep the status (and uid) that they come with.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from aiohttp import web

from .answering import Answerer, Authorizer, Tokens
from .budgets import Budgets
from .clock import ServerClock
from .connection import abort_connections
from .control import Control
from .defaults import Admission, Identities
from .deletion import DeleteOptions, delete
from .faults import Faults
from .kubelet import Kubelets, NodeChoice, Recreation, Recreations
from .records import Record, Selection
from .registry import Registry, WriteOptions
from .request_log import RequestLog
from .resources import RESOURCES
from .selectors import parse_field_selector, parse_label_selector
from .status import JsonObject
from .store import Snapshot, Store
from .strategic import strategic_merge_patch
from .streaming import WatchSettings
from .watch import WatchHub, WatchMatch

Objects = list[JsonObject]
# aiohttp takes 0 for no limit at all, and then a stop waits for whoever came after the connections were reset.
_SHUTDOWN_SECONDS = 0.01
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class ApiServer:
    """An API server that starts empty, but for the namespaces every cluster has.

    `port` 0 takes a free one and keeps it over restarts. `seed` makes uids and fault probabilities repeatable.
    `watch_queue_limit` is how many events a watcher may fall behind before its watch is ended.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        tokens: Tokens | None = None,
        authorize: Authorizer | None = None,
        clock: ServerClock | None = None,
        seed: int | None = None,
        history_size: int = 10_000,
        watch_queue_limit: int = 100_000,
    ) -> None:
        self.host, self.port = host, port
        self._ssl_context = ssl_context
        self.clock = clock or ServerClock()
        self.store = Store(history_size)
        self.admission = Admission()
        self.registry = Registry(self.store, self.clock, self.admission, Identities(seed))
        self.watches = WatchHub(watch_queue_limit)
        self.watching = WatchSettings()
        self.requests = RequestLog()
        self.faults = Faults(seed)
        self.kubelets = Kubelets(self.registry)
        self.recreations = Recreations(self.registry)
        self.budgets = Budgets(self.registry, expected=self.recreations.expected)
        self.answerer = Answerer(
            self.registry, self.watches, self.clock, self.requests, self.faults, self.watching, tokens, authorize,
            control=Control(self).handle,
        )  # fmt: skip
        self._runner: web.ServerRunner | None = None
        # Watchers hear of a change before anybody reacts to it, so that events come in order.
        for subscriber in (self.watches.publish, self.kubelets.notice, self.recreations.notice, self.budgets.notice):
            self.store.subscribe(subscriber)
        for name in _NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})

    # -- running ------------------------------------------------------------

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

    async def stop(self) -> None:
        """Stops listening and resets every connection, as a machine that loses its power does; idempotent."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        self.kubelets.suspend()
        self.recreations.suspend()
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

    # -- objects ------------------------------------------------------------

    def create(
        self, plural: str, obj: Mapping[str, Any], *, manager: str = "simulation", managed_fields: bool = True
    ) -> JsonObject:
        """Creates a copy of an object, in `default` where it names no namespace; returns it completed."""
        resource, given = RESOURCES[plural], deepcopy(dict(obj))
        namespace = (given.get("metadata") or {}).get("namespace") or ("default" if resource.namespaced else "")
        options = WriteOptions(manager, keep_status=True, track_fields=managed_fields)
        return self.registry.create(resource, namespace, given, options).decode()

    def get(self, plural: str, name: str, namespace: str = "") -> JsonObject | None:
        """The current object, None where there is none; `namespace` "" is `default` for namespaced kinds."""
        record = self.store.get(plural, self._namespace(plural, namespace), name)
        return record.decode() if record is not None else None

    def list(
        self, plural: str, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        """Current objects in key order; `namespace` None means all."""
        resource = RESOURCES[plural]
        fields = parse_field_selector(field_selector, resource)
        selection = Selection(resource, namespace, parse_label_selector(label_selector), fields)
        return [record.decode() for record in self.store.select(selection)]

    def update(self, plural: str, obj: Mapping[str, Any], *, manager: str = "simulation") -> JsonObject:
        """Replaces an object whole, spec and status at once, whatever its resourceVersion; raises 404."""
        metadata = obj["metadata"]
        record = self._record(plural, metadata["name"], metadata.get("namespace", ""))
        return self.registry.replace(record, deepcopy(dict(obj)), self._options(manager)).decode()

    def patch(
        self, plural: str, name: str, patch: Mapping[str, Any], namespace: str = "", *, manager: str = "simulation"
    ) -> JsonObject:
        """A strategic merge patch of the whole object, status included; raises 404."""
        record = self._record(plural, name, namespace)

        def change(obj: JsonObject) -> JsonObject:
            return strategic_merge_patch(obj, deepcopy(dict(patch)))

        return self.registry.patch(record, change, self._options(manager)).decode()

    def delete(
        self, plural: str, name: str, namespace: str = "", *, grace_period_seconds: int | None = None
    ) -> JsonObject:
        """As a client deletes: pods gracefully; returns the object or Status. Raises 404."""
        record = self._record(plural, name, namespace)
        return delete(self.registry, record, DeleteOptions(grace_period_seconds))

    def taint(
        self,
        node: str,
        key: str,
        value: str = "",
        effect: str = "NoExecute",
        *,
        time_added: str | None = None,
        manager: str = "kubectl-taint",
    ) -> JsonObject:
        """Sets a taint, in place of one with the same key and effect; `time_added` RFC 3339, None leaves it out."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        if time_added is not None:
            taint["timeAdded"] = time_added

        def change(taints: Objects) -> Objects:
            return [*(t for t in taints if (t["key"], t["effect"]) != (key, effect)), taint]

        return self._change_taints(node, change, manager)

    def untaint(self, node: str, key: str, effect: str | None = None, *, manager: str = "kubectl-taint") -> JsonObject:
        """Takes the taints of a key off a node, of all effects where None is given; idempotent."""

        def change(taints: Objects) -> Objects:
            return [t for t in taints if t["key"] != key or effect not in {None, t["effect"]}]

        return self._change_taints(node, change, manager)

    def _change_taints(self, node: str, change: Callable[[Objects], Objects], manager: str) -> JsonObject:
        record = self._record("nodes", node, "")

        def changed(obj: JsonObject) -> JsonObject:
            spec = obj.setdefault("spec", {})
            if taints := change(spec.get("taints") or []):
                spec["taints"] = taints
            else:
                spec.pop("taints", None)
            return obj

        return self.registry.patch(record, changed, self._options(manager)).decode()

    def recreate_when_gone(
        self,
        namespace: str,
        name: str,
        *,
        node: NodeChoice = None,
        after_seconds: float = 0.0,
        times: int | None = None,
        template: JsonObject | None = None,
    ) -> Recreation:
        """Each time pod namespace/name is gone, creates it again with a new uid, and binds it if a node is chosen.

        `template` None takes the pod that went; `times` None means for ever, see also `recreations.drop`.
        """
        recreation = Recreation(namespace, name, node, after_seconds, times, deepcopy(template))
        return self.recreations.add(recreation)

    @staticmethod
    def _options(manager: str) -> WriteOptions:
        return WriteOptions(manager, keep_status=True)

    @staticmethod
    def _namespace(plural: str, namespace: str) -> str:
        return (namespace or "default") if RESOURCES[plural].namespaced else ""

    def _record(self, plural: str, name: str, namespace: str) -> Record:
        return self.registry.get(RESOURCES[plural], self._namespace(plural, namespace), name)
