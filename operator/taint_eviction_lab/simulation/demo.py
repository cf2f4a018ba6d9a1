"""The demo's story: a little cluster, what is done to its nodes and when, and what must have come of it.

Told from the API server's side: what arrived there and what became of the pods. What the controller says it plans is
added by whoever runs it (``cli.demo``).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fake_apiserver import ApiServer, LoggedRequest, node_object

TAINT = "maintenance=now:NoExecute"
_KEY, _VALUE = "maintenance", "now"

# A deadline counts as met when the DELETE arrives within so many seconds of it.
_IN_TIME_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DemoFact:
    """One thing that happened, ``at`` seconds since the demo began. ``pod`` and ``node`` are "" where none is meant."""

    at: float
    what: str
    text: str
    pod: str = ""
    node: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class DemoPod:
    """A pod of the demo; ``seconds`` None means that it tolerates the taint indefinitely, 0 not at all."""

    name: str
    seconds: int | None
    about: str
    recreated: bool = False

    def body(self) -> dict[str, Any]:
        """Write the pod as Kubernetes has it."""
        toleration: dict[str, Any] = {"key": _KEY, "operator": "Exists", "effect": "NoExecute"}
        if self.seconds:
            toleration["tolerationSeconds"] = self.seconds
        return {
            "metadata": {"name": self.name, "namespace": "demo"},
            "spec": {
                "nodeName": "node-a",
                "containers": [{"name": "main", "image": "pause"}],
                "tolerations": [] if self.seconds == 0 else [toleration],
            },
        }


PODS = (
    DemoPod("web", 0, "does not tolerate the taint"),
    DemoPod("db-0", 3, "tolerates it for 3 s; its StatefulSet recreates it under the same name", recreated=True),
    DemoPod("cache", 8, "tolerates it for 8 s"),
    DemoPod("agent", None, "tolerates it indefinitely"),
)


@dataclass
class DemoStory:
    """Plays the story on an embedded API server; ``tell`` is given each fact as it happens."""

    server: ApiServer
    clock: Callable[[], float]
    report: Callable[[DemoFact], None]
    began_at: float = 0.0
    _deletes: list[tuple[float, str, str]] = field(default_factory=list)
    _tainted_at: list[float] = field(default_factory=list)

    def now(self) -> float:
        """Return the seconds since the story began."""
        return self.clock() - self.began_at

    def prepare(self) -> None:
        """Create nodes and pods."""
        self.began_at = self.clock()
        for name in ("node-a", "node-b"):
            self.server.create("nodes", node_object(name, self.server.clock.timestamp()))
        for pod in PODS:
            self.server.create("pods", pod.body())
            if pod.recreated:
                self.server.recreate_when_gone("demo", pod.name, node=self._next_home, after_seconds=0.3)
        self.server.store.subscribe(self._changed)
        self.server.requests.subscribe(self._answered)

    async def play(self) -> None:
        """Taint, untaint, taint again; about 17 seconds."""
        await self._step(1, self._taint)
        await self._step(6, self._untaint)
        await self._step(8, self._taint)
        await self._step(17.5, lambda: None)

    def broken(self) -> list[str]:
        """Say what went otherwise than it should have, a sentence each; empty if nothing did."""
        expected = {"web": [0.0], "db-0": [3.0, 3.0], "cache": [8.0], "agent": []}
        found = []
        for pod, tolerances in expected.items():
            deletes = [(at, uid) for at, name, uid in self._deletes if name == pod]
            if len(deletes) != len(tolerances):
                found.append(f"{pod} was evicted {len(deletes)} times, not {len(tolerances)}")
            if len({uid for _, uid in deletes}) != len(deletes):
                found.append(f"{pod} was asked to go twice with the same UID")
            for (at, _), started_at, seconds in zip(deletes, self._starts(pod), tolerances, strict=False):
                if not -0.05 <= at - started_at - seconds <= _IN_TIME_SECONDS:
                    found.append(f"{pod} was evicted {at - started_at:.2f} s after the taint, not {seconds:g} s")
        return found

    def _starts(self, pod: str) -> list[float]:
        """Return when the tolerances began that ran out: ``cache`` outlived the first taint."""
        return self._tainted_at[1:] if pod == "cache" else self._tainted_at

    def _next_home(self, _: dict[str, Any]) -> str:
        return "node-a" if len(self._tainted_at) < 2 else "node-b"

    async def _step(self, at: float, act: Callable[[], None]) -> None:
        await asyncio.sleep(max(0.0, at - self.now()))
        act()

    def _taint(self) -> None:
        self._tainted_at.append(self.now())
        self.report(DemoFact(self.now(), "tainted", TAINT, node="node-a"))
        self.server.taint("node-a", _KEY, _VALUE)

    def _untaint(self) -> None:
        self.report(DemoFact(self.now(), "untainted", f"{TAINT} removed", node="node-a"))
        self.server.untaint("node-a", _KEY)

    def _changed(self, change: Any) -> None:
        record = change.new
        if record.resource.plural != "pods" or record.namespace != "demo":
            return
        if change.type == "ADDED":
            self.report(DemoFact(self.now(), "created", "recreated under its name", record.name, uid=record.uid))
        elif change.type == "DELETED":
            self.report(DemoFact(self.now(), "gone", "it has ended", record.name, record.node_name or "", record.uid))

    def _answered(self, request: LoggedRequest) -> None:
        if (request.verb, request.resource, request.namespace) == ("delete", "pods", "demo") and request.code == 200:
            uid = (request.body or {}).get("preconditions", {}).get("uid", "")
            self._deletes.append((self.now(), request.name, uid))
            self.report(DemoFact(self.now(), "deleted", "the API server was asked to delete it", request.name, uid=uid))
