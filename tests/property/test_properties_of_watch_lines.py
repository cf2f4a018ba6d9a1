"""What a watch brings, down to its bytes: nothing of it breaks anything, and what is malformed changes nothing.

It goes the real way: through tap and sieve to the brain. Kopf between the two is played: it ends at what is no JSON or
no event, and shows its handler the rest.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import aiohttp
import orjson
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import EPOCH, any_json, chances, node_json, pod_json, spoilt, tolerates_json
from yarl import URL

from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.adapters.observations import Observations, matters_to
from taint_eviction.core.controller import Controller
from taint_eviction.core.effects import Eviction
from taint_eviction.core.instants import Moment
from taint_eviction.kopf_shell.answers import Answer
from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.sieve import Sieve
from taint_eviction.kopf_shell.tap import Tap
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchEnded, WatchScope

URL_OF = {
    "nodes": URL("http://api/api/v1/nodes?watch=true"),
    "pods": URL("http://api/api/v1/pods?fieldSelector=spec.nodeName%3D&watch=true"),
}
EVENTS = ("ADDED", "MODIFIED", "DELETED")
TOLERATED = tolerates_json("k1")
GARBAGE = (
    b"",
    b"{",
    b"null",
    b"7",
    b'"ADDED"',
    b"[]",
    b"{}",
    b'{"type":"ADDED"}',
    b'{"type":"ADDED","object":null}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}',
    b'{"type":"BOOKMARK","object":{}}',
    b'{"type":"ERROR","object":{"code":410,"message":"too old"}}',
    b'{"type":"ERROR","object":[]}',
    b'{"type":"ERROR"',
    b'{"type":"MODIFIED","object":' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"type":"MODIFIED","object":' + b'{"metadata":' * 300 + b"1" + b"}" * 300 + b"}",
    b'{"type":"MODIFIED","object":{"metadata":{"uid":"\xff\xfe"}}}',
    b'{"type":"MODIFIED","object":{"metadata":{"uid":"\\ud800","resourceVersion":"1"}}}',
    b"\x00\xff\x1b[31m",
    b"<html>502 Bad Gateway</html>",
    b"x" * 300_000,
)


class PlayedAnswer(Answer):
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


class PlayedSession:
    """A session in which every answer is read like this."""

    def __init__(self, read: Callable[[Answer], Any]) -> None:
        self._read = read

    async def __aenter__(self) -> "PlayedSession":
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    @contextlib.asynccontextmanager
    async def get(self, _url: str, **_options: object) -> AsyncIterator[Answer]:
        """Answer."""
        answer = PlayedAnswer(Chunks([b"{}"]))
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


class Stage:
    """A brain that knows a tainted node and two pods on it, and watches of both kinds.

    One pod tolerates the taint for ever, the other for 300 s from 10 s before the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.brain = Controller()
        self._observations = Observations(MalformedObjects(lambda _kind: None))
        self.taps: dict[str, Tap] = {}
        self.ended: list[str] = []

    async def begin(self) -> None:
        """List and watch both kinds."""
        await self.watch(NodesScope(), [node_json(1, "k1")])
        pods = [pod_json(2, "stays", TOLERATED), pod_json(3, "leaves", tolerates_json("k1", 300))]
        await self.watch(PodsScope("n1"), pods)

    async def watch(self, scope: WatchScope, items: list[Any]) -> Any:
        """Watch anew, behind a list with these items, and return what Kopf sees of it."""
        listener = _Listener(self, scope)
        sieve = Sieve(matters_to(self.brain), self._observations.known_to(self.brain))
        self.taps[scope.kind] = Tap(listener, sieve, Discovery("http://api", 1.0))
        return await self.show_list(
            scope.kind, {"kind": f"{type(scope).__name__[:-6]}List", "metadata": {}, "items": items}
        )

    async def show_list(self, kind: str, page: Any) -> Any:
        """Let Kopf list."""
        answer = PlayedAnswer(Chunks([]))
        await self._ask(kind, URL_OF[kind].without_query_params("watch"), answer)
        assert answer.rewrite is not None
        seen = answer.rewrite(200, page)
        items = seen.get("items") if isinstance(seen, dict) else None
        for item in items if isinstance(items, list) else ():
            self.told(kind, {"type": None, "object": item})
        return seen

    async def stream(self, kind: str, pieces: list[bytes]) -> None:
        """Let the stream of a watch bring these bytes."""
        answer = PlayedAnswer(Chunks(pieces))
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

    async def _ask(self, kind: str, url: URL, answer: PlayedAnswer) -> None:
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
        self.brain.look(self.moment)
        works = self.brain.take_due(self.moment, 10, 10)
        return {work.ref.key.name for work in works if isinstance(work, Eviction)}

    def assert_sound(self) -> None:
        """Nothing that was told was too much for whoever listens."""
        for tap in self.taps.values():
            if tap.bug.done():
                tap.bug.result()
            assert tap.trouble is None or (len(tap.trouble) <= 300 and "\n" not in tap.trouble)


class _Listener:
    def __init__(self, stage: Stage, scope: WatchScope) -> None:
        self._stage, self._scope = stage, scope

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Pass it on."""
        self._stage.observe(self._scope, event_type, body)

    def on_listed(self) -> None:
        """Do nothing."""

    def on_heard(self) -> None:
        """Do nothing."""


def on_stage(play: Callable[[Stage], Any]) -> None:
    """Play something on a stage that is set, and see that it is sound at the end."""

    async def run() -> None:
        stage = Stage()
        await stage.begin()
        await play(stage)
        stage.assert_sound()

    asyncio.run(run())


def line(event_type: Any, body: Any) -> bytes:
    """Write an event."""
    return orjson.dumps({"type": event_type, "object": body}) + b"\n"


def in_pieces(content: bytes, chance: random.Random) -> list[bytes]:
    """Cut it anywhere."""
    cuts = sorted(chance.randrange(len(content) + 1) for _ in range(chance.randrange(4)))
    return [content[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]


def spoilt_line(kind: str, chance: random.Random, value: Any) -> bytes:
    """Write an event of an object that is known, with something in it that cannot be meant, or cut, or run together."""
    body = node_json(5, "k1") if kind == "nodes" else pod_json(5, "stays", TOLERATED)
    match chance.randrange(8):
        case 0:
            return line("MODIFIED", body)[: chance.randrange(1, 60)] + b"\n"
        case 1:
            return (line("MODIFIED", body).rstrip() * 2) + b"\n"
        case 2:
            return line(value if value not in EVENTS else "SYNC", body)
        case 3:
            return line("MODIFIED", value)
        case 4:
            return chance.choice(GARBAGE) + b"\n"
        case 5:
            nobody = {chance.choice(["name", "uid"]): None if isinstance(value, str) else value}
            return line("DELETED", {**body, "metadata": {**body["metadata"], **nobody}})
        case _:
            return line(chance.choice(EVENTS[:2]), spoilt(body, chance, value))


kinds = st.sampled_from(["nodes", "pods"])


def assert_deadlines_stay(stage: Stage) -> None:
    """One pod leaves at its time; at most 10 s later where it can't be read any more when the taint was added."""
    assert stage.due_at(289.9) == set()
    assert stage.due_at(301.0) == {"leaves"}
    assert stage.due_at(3600.0 * 24 * 365) == set()


async def assert_still_understood(stage: Stage) -> None:
    """A second taint, which nobody tolerates: what is not gone leaves, on the same stream or on the next."""
    if "nodes" in stage.ended:
        await stage.watch(NodesScope(), [node_json(90, "k1")])
    await stage.stream("nodes", [line("MODIFIED", node_json(100, "k1", "k2"))])
    if "pods" in stage.ended:
        pods = [pod_json(91, "stays", TOLERATED), pod_json(92, "leaves", tolerates_json("k1", 300))]
        await stage.watch(PodsScope("n1"), pods)
    await stage.stream("pods", [line("MODIFIED", pod_json(101, "stays", tolerates_json("k3")))])
    assert stage.due_at(1.0) == {"stays", "leaves"}


@given(kinds, chances, st.lists(any_json, min_size=1, max_size=4))
def test_what_is_malformed_changes_no_deadline(kind: str, chance: random.Random, values: list[Any]) -> None:
    """What was last known stays, of the node and of the pods."""

    async def play(stage: Stage) -> None:
        content = b"".join(spoilt_line(kind, chance, value) for value in values)
        await stage.stream(kind, in_pieces(content, chance))
        assert_deadlines_stay(stage)

    on_stage(play)


@given(kinds, chances, st.lists(any_json, min_size=1, max_size=4))
def test_a_line_after_what_is_malformed_is_understood(kind: str, chance: random.Random, values: list[Any]) -> None:
    """And nobody who is to leave by it is forgotten for what came before."""

    async def play(stage: Stage) -> None:
        content = b"".join(spoilt_line(kind, chance, value) for value in values)
        await stage.stream(kind, in_pieces(content, chance))
        await assert_still_understood(stage)

    on_stage(play)


@given(kinds, chances, any_json)
def test_a_malformed_list_changes_no_deadline(kind: str, chance: random.Random, value: Any) -> None:
    """Of any shape, or with something in it that cannot be meant; other items are seen all the same."""

    async def play(stage: Stage) -> None:
        known = node_json(5, "k1") if kind == "nodes" else pod_json(5, "stays", TOLERATED)
        page = {"kind": "List", "metadata": {"continue": value}, "items": [known, value]}
        await stage.show_list(kind, value)
        await stage.show_list(kind, spoilt(page, chance, value))
        await stage.show_list(kind, {**page, "items": [value, spoilt(known, chance, value)]})
        assert_deadlines_stay(stage)

    on_stage(play)


@given(st.lists(st.binary(max_size=40) | st.sampled_from(GARBAGE), max_size=6), chances)
def test_any_bytes_change_no_deadline(lines: list[bytes], chance: random.Random) -> None:
    """Binary waste, pages of proxies, halves of events."""

    async def play(stage: Stage) -> None:
        for kind in ("nodes", "pods"):
            await stage.stream(kind, in_pieces(b"\n".join(lines), chance))
        assert_deadlines_stay(stage)

    on_stage(play)


@given(chances)
def test_how_a_stream_is_cut_into_pieces_does_not_matter(chance: random.Random) -> None:
    """Events are whole, wherever the network cuts."""

    async def play(stage: Stage) -> None:
        content = b"".join(line("MODIFIED", pod_json(version, "stays", tolerates_json("k3"))) for version in (7, 8))
        await stage.stream("pods", in_pieces(content, chance))
        assert stage.due_at(1.0) == {"stays"}

    on_stage(play)


@given(any_json | st.fixed_dictionaries({"resources": any_json | st.lists(st.fixed_dictionaries({"name": any_json}))}))
@example({"resources": None})
@example({"resources": [{"name": {}}, 7]})
@example({"groups": 7, "resources": {"a": "b"}})
def test_any_answer_about_resources_ends_a_watch_at_worst(found: Any) -> None:
    """The process goes on."""

    async def run() -> None:
        discovery = Discovery("http://api", 1.0)
        session = PlayedSession(lambda answer: discovery.keep("/", answer, found))
        with contextlib.suppress(WatchEnded):
            await discovery.ask(lambda: cast(aiohttp.ClientSession, session))

    asyncio.run(run())
