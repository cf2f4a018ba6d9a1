"""Watches on a stage: bytes and lists go the real way, through tap and sieve to the brain.

Kopf between the two is played: it ends at what is no JSON or no event, and shows its handler the rest.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import aiohttp
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import EPOCH, node_json, pod_json, tolerates_json
from yarl import URL

from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.adapters.observations import Observations, matters_to
from taint_eviction.core.controller import Controller
from taint_eviction.core.effects import Eviction
from taint_eviction.core.facts import NodesHeard
from taint_eviction.core.instants import Moment
from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.responses import RewrittenResponse
from taint_eviction.kopf_shell.watch_filter import WatchFilter
from taint_eviction.kopf_shell.watch_interceptor import WatchInterceptor
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchScope

URL_OF = {
    "nodes": URL("http://api/api/v1/nodes?watch=true"),
    "pods": URL("http://api/api/v1/pods?fieldSelector=spec.nodeName%3D&watch=true"),
}
EVENTS = ("ADDED", "MODIFIED", "DELETED")
TOLERATED = tolerates_json("k1")


class ReadAnswer(RewrittenResponse):
    """An answer with this content."""

    def __init__(self, content: Any) -> None:
        self.status = 200
        self.reason = "OK"
        self.content = content

    async def read(self) -> bytes:
        """Read it."""
        return bytes(await self.content.read())


class PlayedRequest:
    """As much of a request as is looked at."""

    def __init__(self, url: URL) -> None:
        self.url = url


class ReadSession:
    """A session in which every answer is read like this."""

    def __init__(self, read: Callable[[RewrittenResponse], Any]) -> None:
        self._read = read

    async def __aenter__(self) -> "ReadSession":
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    @contextlib.asynccontextmanager
    async def get(self, _url: str, **_options: object) -> AsyncIterator[RewrittenResponse]:
        """Answer."""
        answer = ReadAnswer(Chunks([b"{}"]))
        answer.rewrite = lambda _status, _found: self._read(answer)
        yield answer


class Chunks:
    """A stream in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def read(self) -> bytes:
        """Give all of it."""
        return b"".join(self._pieces)

    async def iter_chunked(self, _most: int) -> AsyncIterator[bytes]:
        """Give one after the other."""
        for piece in self._pieces:
            yield piece


class WatchedBrain:
    """A brain that knows a tainted node and two pods on it, and watches of both kinds.

    One pod tolerates the taint indefinitely, the other for 300 s from 10 s before the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.brain = Controller()
        self._observations = Observations(MalformedObjects(lambda _kind: None))
        self.taps: dict[str, WatchInterceptor] = {}
        self.ended: list[str] = []

    async def begin(self) -> None:
        """List and watch both kinds."""
        await self.watch(NodesScope(), [node_json(1, "k1")])
        pods = [pod_json(2, "stays", TOLERATED), pod_json(3, "leaves", tolerates_json("k1", 300))]
        await self.watch(PodsScope("n1"), pods)

    async def watch(self, scope: WatchScope, items: list[Any]) -> Any:
        """Watch anew, behind a list with these items, and return what Kopf sees of it."""
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
        """Let Kopf list."""
        answer = ReadAnswer(Chunks([]))
        await self._ask(kind, URL_OF[kind].without_query_params("watch"), answer)
        assert answer.rewrite is not None
        seen = answer.rewrite(200, page)
        items = seen.get("items") if isinstance(seen, dict) else None
        for item in items if isinstance(items, list) else ():
            self.told(kind, {"type": None, "object": item})
        return seen

    async def stream(self, kind: str, pieces: list[bytes]) -> None:
        """Let the stream of a watch bring these bytes."""
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
        """Play Kopf: show the handler an event; return whether the watch goes on."""
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
        """Let Kopf's handler be given an event."""
        if isinstance(event["object"], dict):
            self.taps[kind].on_event(event)

    def observe(self, scope: WatchScope, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Let the brain hear of an object, as a watch's listener does."""
        fact = self._observations.interpret(scope, event_type, body)
        if fact is not None:
            self.brain.observe(fact, self.moment)

    @property
    def moment(self) -> Moment:
        """What time it is."""
        return Moment(self.now, EPOCH + self.now)

    def due_at(self, now: float) -> set[str]:
        """List the pods that are due."""
        self.now = now
        self.brain.evaluate(self.moment)
        works = self.brain.attempts.take_due(self.moment, 10, 10)
        return {work.ref.key.name for work in works if isinstance(work, Eviction)}

    def assert_sound(self) -> None:
        """Nothing that was told was too much for whoever listens."""
        for interceptor in self.taps.values():
            if interceptor.bug.done():
                interceptor.bug.result()
            assert interceptor.failure is None or (len(interceptor.failure) <= 300 and "\n" not in interceptor.failure)


class _Listener:
    def __init__(self, stage: WatchedBrain, scope: WatchScope) -> None:
        self._stage, self._scope = stage, scope

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Pass it on."""
        self._stage.observe(self._scope, event_type, body)

    def on_listed(self) -> None:
        """Do nothing."""

    def on_heard(self) -> None:
        """Do nothing."""

    def on_progress(self, version: int | None) -> None:
        """Let the brain know, as a watch's listener does."""
        if isinstance(self._scope, NodesScope):
            self._stage.brain.observe(NodesHeard(version), self._stage.moment)


def on_stage(play: Callable[[WatchedBrain], Any]) -> None:
    """Play something on a stage that is set, and see that it is sound at the end."""

    async def run() -> None:
        stage = WatchedBrain()
        await stage.begin()
        await play(stage)
        stage.assert_sound()

    asyncio.run(run())
