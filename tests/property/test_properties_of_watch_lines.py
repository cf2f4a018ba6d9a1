"""Malformed data from a watch, down to its bytes, breaks nothing and changes no deadline.

The bytes pass through the real watch interceptor and watch filter to the core (``played_watches``).
"""

import asyncio
import contextlib
import random
from typing import Any, cast

import aiohttp
import orjson
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run
from tests.property.outside import any_json, node_json, pod_json, rngs, spoilt, tolerates_json
from tests.property.played_watches import EVENTS, TOLERATED, ReadSession, WatchedBrain, on_stage

from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchEnded

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


def line(event_type: Any, body: Any) -> bytes:
    """Return an event as a line of a watch."""
    return orjson.dumps({"type": event_type, "object": body}) + b"\n"


def in_pieces(content: bytes, rng: random.Random) -> list[bytes]:
    """Cut content at random places."""
    cuts = sorted(rng.randrange(len(content) + 1) for _ in range(rng.randrange(4)))
    return [content[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]


def spoilt_line(kind: str, rng: random.Random, value: Any) -> bytes:
    """Return a malformed event of a known object: with a wrong field, cut off, or two events in one line."""
    body = node_json(5, "k1") if kind == "nodes" else pod_json(5, "stays", TOLERATED)
    match rng.randrange(8):
        case 0:
            return line("MODIFIED", body)[: rng.randrange(1, 60)] + b"\n"
        case 1:
            return (line("MODIFIED", body).rstrip() * 2) + b"\n"
        case 2:
            return line(value if value not in EVENTS else "SYNC", body)
        case 3:
            return line("MODIFIED", value)
        case 4:
            return rng.choice(GARBAGE) + b"\n"
        case 5:
            nobody = {rng.choice(["name", "uid"]): None if isinstance(value, str) else value}
            return line("DELETED", {**body, "metadata": {**body["metadata"], **nobody}})
        case _:
            return line(rng.choice(EVENTS[:2]), spoilt(body, rng, value))


kinds = st.sampled_from(["nodes", "pods"])


def assert_deadlines_stay(stage: WatchedBrain) -> None:
    """Assert that one pod is due at its time, or up to 10 s later if the taint's time can no longer be read."""
    assert stage.due_at(289.9) == set()
    assert stage.due_at(301.0) == {"leaves"}
    assert stage.due_at(3600.0 * 24 * 365) == set()


async def assert_still_understood(stage: WatchedBrain) -> None:
    """Assert that both pods become due by a second taint that nobody tolerates, on the same stream or on the next."""
    if "nodes" in stage.ended:
        await stage.watch(NodesScope(), [node_json(90, "k1")])
    await stage.stream("nodes", [line("MODIFIED", node_json(100, "k1", "k2"))])
    if "pods" in stage.ended:
        pods = [pod_json(91, "stays", TOLERATED), pod_json(92, "leaves", tolerates_json("k1", 300))]
        await stage.watch(PodsScope("n1"), pods)
    await stage.stream("pods", [line("MODIFIED", pod_json(101, "stays", tolerates_json("k3")))])
    assert stage.due_at(1.0) == {"stays", "leaves"}


@given(kinds, rngs, st.lists(any_json, min_size=1, max_size=4))
def test_malformed_events_change_no_deadline(kind: str, rng: random.Random, values: list[Any]) -> None:
    """After malformed events, the last known state of the node and its pods still counts."""

    async def play(stage: WatchedBrain) -> None:
        content = b"".join(spoilt_line(kind, rng, value) for value in values)
        await stage.stream(kind, in_pieces(content, rng))
        assert_deadlines_stay(stage)

    on_stage(play)


@given(kinds, rngs, st.lists(any_json, min_size=1, max_size=4))
def test_a_line_after_malformed_events_is_read(kind: str, rng: random.Random, values: list[Any]) -> None:
    """Malformed events do not make the controller miss a taint that arrives after them."""

    async def play(stage: WatchedBrain) -> None:
        content = b"".join(spoilt_line(kind, rng, value) for value in values)
        await stage.stream(kind, in_pieces(content, rng))
        await assert_still_understood(stage)

    on_stage(play)


@given(kinds, rngs, any_json)
def test_a_malformed_list_changes_no_deadline(kind: str, rng: random.Random, value: Any) -> None:
    """A list of any shape, or with malformed items, changes no deadline."""

    async def play(stage: WatchedBrain) -> None:
        known = node_json(5, "k1") if kind == "nodes" else pod_json(5, "stays", TOLERATED)
        page = {"kind": "List", "metadata": {"continue": value}, "items": [known, value]}
        await stage.show_list(kind, value)
        await stage.show_list(kind, spoilt(page, rng, value))
        await stage.show_list(kind, {**page, "items": [value, spoilt(known, rng, value)]})
        assert_deadlines_stay(stage)

    on_stage(play)


@given(st.lists(st.binary(max_size=40) | st.sampled_from(GARBAGE), max_size=6), rngs)
def test_any_bytes_change_no_deadline(lines: list[bytes], rng: random.Random) -> None:
    """Random bytes, pages of proxies and incomplete events change no deadline."""

    async def play(stage: WatchedBrain) -> None:
        for kind in ("nodes", "pods"):
            await stage.stream(kind, in_pieces(b"\n".join(lines), rng))
        assert_deadlines_stay(stage)

    on_stage(play)


@given(rngs)
def test_how_a_stream_is_cut_into_pieces_does_not_matter(rng: random.Random) -> None:
    """Events are read as a whole, wherever the network cuts the stream."""

    async def play(stage: WatchedBrain) -> None:
        content = b"".join(line("MODIFIED", pod_json(version, "stays", tolerates_json("k3"))) for version in (7, 8))
        await stage.stream("pods", in_pieces(content, rng))
        assert stage.due_at(1.0) == {"stays"}

    on_stage(play)


@given(any_json | st.fixed_dictionaries({"resources": any_json | st.lists(st.fixed_dictionaries({"name": any_json}))}))
@example({"resources": None})
@example({"resources": [{"name": {}}, 7]})
@example({"groups": 7, "resources": {"a": "b"}})
def test_any_answer_about_resources_ends_a_watch_at_worst(found: Any) -> None:
    """A malformed answer to discovery ends a watch at worst; the process goes on."""

    async def run() -> None:
        discovery = Discovery("http://api", 1.0)
        session = ReadSession(lambda _answer: found)
        with contextlib.suppress(WatchEnded):
            await discovery.ask(lambda: cast(aiohttp.ClientSession, session))

    asyncio.run(run())
