"""Watches in a test: bytes and lists pass through the real watch interceptor and watch filter to the core.

This module plays Kopf between the two: the watch ends at a line that is no JSON or no event, and Kopf's handler
receives all other lines.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import aiohttp
import orjson
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import EPOCH, node_json, pod_json, tolerates_json
from yarl import URL

from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Eviction
from taint_eviction.core.facts import NodesHeard
from taint_eviction.core.instants import Moment
from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.responses import RewrittenResponse
from taint_eviction.kopf_shell.watch_filter import WatchFilter
from taint_eviction.kopf_shell.watch_interceptor import WatchInterceptor
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.observations import Observations, matters_to
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchEnded, WatchScope

URL_OF = {
    "nodes": URL("http://api/api/v1/nodes?watch=true"),
    "pods": URL("http://api/api/v1/pods?fieldSelector=spec.nodeName%3D&watch=true"),
}
EVENTS = ("ADDED", "MODIFIED", "DELETED")
TOLERATED = tolerates_json("k1")


class ReadAnswer(RewrittenResponse):
    """A response with the given content."""

    def __init__(self, content: Any) -> None:
        self.status = 200
        self.reason = "OK"
        self.content = content


class PlayedRequest:
    """The part of a request that the interceptor reads."""

    def __init__(self, url: URL) -> None:
        self.url = url


class ReadSession:
    """A session that passes each response to one function."""

    def __init__(self, read: Callable[[RewrittenResponse], Any]) -> None:
        self._read = read

    async def __aenter__(self) -> "ReadSession":
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    @contextlib.asynccontextmanager
    async def get(self, _url: str, **_options: object) -> AsyncIterator[RewrittenResponse]:
        """Yield a response."""
        answer = ReadAnswer(Chunks([b"{}"]))
        answer.rewrite = lambda _status, _found: self._read(answer)
        yield answer


class Chunks:
    """A response body that arrives in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def iter_chunked(self, _most: int) -> AsyncIterator[bytes]:
        """Yield the pieces one after another."""
        for piece in self._pieces:
            yield piece


class WatchedBrain:
    """A controller core that knows a tainted node and two pods on it, with a watch of nodes and one of pods.

    One pod tolerates the taint indefinitely, the other for 300 s, counted from 10 s before the test starts.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.brain = Controller()
        self._observations = Observations(MalformedObjects(lambda _kind: None))
        self.taps: dict[str, WatchInterceptor] = {}
        self.ended: list[str] = []

    async def begin(self) -> None:
        """List and watch nodes and pods."""
        await self.watch(NodesScope(), [node_json(1, "k1")])
        pods = [pod_json(2, "stays", TOLERATED), pod_json(3, "leaves", tolerates_json("k1", 300))]
        await self.watch(PodsScope("n1"), pods)

    async def watch(self, scope: WatchScope, items: list[Any]) -> Any:
        """Start a new watch after a list with these items, and return the list as Kopf sees it."""
        listener = _Listener(self, scope)
        watch_filter = WatchFilter(
            "Node" if isinstance(scope, NodesScope) else "Pod",
            matters_to(self.brain),
            self._observations.known_to(self.brain),
        )
        self.taps[scope.kind] = WatchInterceptor(listener, watch_filter, Discovery("http://api", 1.0))
        return await self.show_list(
            scope.kind, {"kind": f"{type(scope).__name__[:-6]}List", "metadata": {}, "items": items}
        )

    async def show_list(self, kind: str, page: Any) -> Any:
        """Let Kopf list objects, and return the list as Kopf sees it; None: the list seems to have no end."""
        answer = ReadAnswer(Chunks([orjson.dumps(page)]))
        await self._ask(kind, URL_OF[kind].without_query_params("watch"), answer)
        try:
            seen = await answer.json()
        except aiohttp.ClientPayloadError:
            return None
        items = seen.get("items") if isinstance(seen, dict) else None
        for item in items if isinstance(items, list) else ():
            self.told(kind, {"type": None, "object": item})
        return seen

    async def stream(self, kind: str, pieces: list[bytes]) -> None:
        """Let a watch receive these bytes."""
        answer = ReadAnswer(Chunks(pieces))
        await self._ask(kind, URL_OF[kind], answer)
        rest = b""
        async for chunk in answer.content.iter_chunked(1 << 20):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line and not self._read(kind, line):
                    self.ended.append(kind)
                    return
        if rest and not self._read(kind, rest):
            self.ended.append(kind)

    async def _ask(self, kind: str, url: URL, answer: ReadAnswer) -> None:
        async def send(_request: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
            return answer

        await self.taps[kind].listen_in(cast(aiohttp.ClientRequest, PlayedRequest(url)), send)

    def _read(self, kind: str, line: bytes) -> bool:
        """Play Kopf: pass an event to the handler, and return whether the watch continues."""
        try:
            event = json.loads(line.decode("utf-8"))
            event_type, body = event["type"], event["object"]
        except (ValueError, RecursionError, KeyError, TypeError):
            return False
        if event_type == "ERROR" or not isinstance(body, dict):
            return False
        if event_type in EVENTS:
            self.told(kind, event)
        return True

    def told(self, kind: str, event: Mapping[str, Any]) -> None:
        """Pass an event to Kopf's handler."""
        if isinstance(event["object"], dict):
            self.taps[kind].on_event(event)

    def observe(self, scope: WatchScope, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Let the core observe an object, as the listener of a watch does."""
        fact = self._observations.interpret(scope, event_type, body)
        if fact is not None:
            self.brain.observe(fact, self.moment)

    @property
    def moment(self) -> Moment:
        """The current time."""
        return Moment(self.now, EPOCH + self.now)

    def due_at(self, now: float) -> set[str]:
        """Return the names of the pods that are due at ``now``."""
        self.now = now
        self.brain.evaluate(self.moment)
        works = self.brain.attempts.take_due(self.moment, 10, 10)
        return {work.ref.key.name for work in works if isinstance(work, Eviction)}

    def assert_sound(self) -> None:
        """Assert that no interceptor met a bug, and that each watch's failure is one short line."""
        for interceptor in self.taps.values():
            if interceptor.bug.done():
                with contextlib.suppress(WatchEnded):  # A list without an end is the API server's fault.
                    interceptor.bug.result()
            assert interceptor.failure is None or (len(interceptor.failure) <= 300 and "\n" not in interceptor.failure)


class _Listener:
    def __init__(self, stage: WatchedBrain, scope: WatchScope) -> None:
        self._stage, self._scope = stage, scope

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Pass the event to the core."""
        self._stage.observe(self._scope, event_type, body)

    def on_listed(self) -> None:
        """Do nothing."""

    def on_heard(self) -> None:
        """Do nothing."""

    def on_progress(self, version: int | None) -> None:
        """Report the progress of the node watch to the core, as the listener of a watch does."""
        if isinstance(self._scope, NodesScope):
            self._stage.brain.observe(NodesHeard(version), self._stage.moment)


def on_stage(play: Callable[[WatchedBrain], Any]) -> None:
    """Run a test on a ``WatchedBrain`` that has begun, and check the brain at the end."""

    async def run() -> None:
        stage = WatchedBrain()
        await stage.begin()
        await play(stage)
        stage.assert_sound()

    asyncio.run(run())
