"""How a watch by Kopf ends: by the server, by a bug or by a cancellation; afterwards no task is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kopf_watching import QUICK, Recorder, running, tasks_left, watcher_of, watching
from tests.stage.processes import ROOT
from tests.stage.waiting import PATIENCE_SECONDS

from fake_apiserver import MALFORMED_LINE, ApiServer, StatusError, populate
from taint_eviction.kopf_shell.tuning import WatchTuning
from taint_eviction.kopf_shell.watcher import KopfWatcher
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchEnded

# Long enough to start a watch on a machine with other work.
IMPATIENT = WatchTuning(silence_seconds=2.0, retry_seconds=(0.01,))


async def reason_of_the_end(watcher: KopfWatcher, recorder: Recorder, disturb: Callable[[], object]) -> str:
    """Start a watch of nodes, disturb it once it is up, and return why it ended."""
    async with running(watcher.watch(NodesScope(), recorder)) as task:
        await recorder.until(lambda: recorder.listed)
        disturb()
        with pytest.raises(WatchEnded) as ended:
            await asyncio.wait_for(task, PATIENCE_SECONDS)
    return str(ended.value)


@pytest.mark.parametrize(
    ("code", "message"), [(429, "too many requests"), (500, "etcdserver: leader changed"), (403, "forbidden")]
)
async def test_an_error_event_ends_the_watch_with_the_servers_message(code: int, message: str) -> None:
    """The reason is one line: the code and the message."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        error = StatusError(code, message)
        reason = await reason_of_the_end(watcher, Recorder(), lambda: server.watches.send_error(error))
        assert reason == f"ERROR event {code}: {message}"


async def test_a_malformed_line_ends_the_watch() -> None:
    """The filter reads each line before Kopf does, and ends the watch."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        reason = await reason_of_the_end(watcher, Recorder(), lambda: server.watches.send_line(MALFORMED_LINE))
        assert reason.startswith("JSONDecodeError: ")
        assert "\n" not in reason


async def test_versions_that_go_back_end_the_watch() -> None:
    """One that is too high would hide all changes of the node until the next periodic list."""
    too_high = b'{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"9999999999999999999"}}}\n'
    async with ApiServer() as server, watcher_of(server) as watcher:

        def disturb() -> None:
            server.watches.send_line(too_high)
            server.create("nodes", {"metadata": {"name": "n1"}})

        reason = await reason_of_the_end(watcher, Recorder(), disturb)
        assert reason == "the versions of its events went back: a proxy, or a restored storage"


@pytest.mark.parametrize("status", [403, 404, 500])
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_refusal_ends_the_watch_after_the_retries(verb: str, status: int) -> None:
    """The reason contains the status and the server's message, and the watcher can watch again."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        fault = server.faults.add(verb=verb, resource="nodes", status=status, message="not now")
        with pytest.raises(WatchEnded, match=f"^{status}: not now$"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
        assert fault.hits == (1 if status == 404 else 1 + len(QUICK.retry_seconds))
        assert not list(tasks_left())
        server.faults.clear()
        async with watching(watcher, NodesScope()):
            pass


async def test_a_server_that_refuses_connections_does_not_end_the_watch() -> None:
    """Kopf retries until the server is back, and the watch continues at its version."""
    async with ApiServer() as server, watcher_of(server) as watcher, watching(watcher, NodesScope()) as told:
        await server.stop()
        server.create("nodes", {"metadata": {"name": "n1"}})
        await server.start()
        await told.until(lambda: told.told == [("ADDED", "n1")])
        assert told.listed == 1


async def test_a_server_that_stays_down_ends_the_watch_by_silence() -> None:
    """Kopf would retry indefinitely; the reason contains the last error."""
    async with ApiServer() as server, watcher_of(server, IMPATIENT) as watcher:
        recorder = Recorder()
        async with running(watcher.watch(NodesScope(), recorder)) as task:
            await recorder.until(lambda: recorder.listed)
            await server.stop()
            with pytest.raises(WatchEnded, match=r"^nothing was received for 2 s; last: ClientConnectorError: .*"):
                await asyncio.wait_for(task, PATIENCE_SECONDS)


async def test_a_list_that_never_ends_ends_the_watch() -> None:
    """Kopf would ask for the same page again and again."""
    page = '{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"again"},"items":[]}'
    async with ApiServer() as server, watcher_of(server) as watcher:
        fault = server.faults.add(verb="list", resource="nodes", status=200, message=page, plain_text=True)
        with pytest.raises(WatchEnded, match="the same token to continue it came twice"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
        assert fault.hits == 2
        assert not list(tasks_left())


async def test_streams_that_open_and_bring_nothing_are_heard_and_are_no_progress() -> None:
    """A proxy may keep back what they bring, and an idle API server sends nothing: a list tells them apart."""
    tuning = WatchTuning(inactivity_seconds=1.2, retry_seconds=(0.01,))
    async with (
        ApiServer() as server,
        watcher_of(server, tuning) as watcher,
        watching(watcher, NodesScope()) as recorder,
    ):
        server.lag("nodes")
        server.create("nodes", {"metadata": {"name": "n1"}})
        await recorder.until(lambda: recorder.heard >= 3)
        assert (recorder.told, recorder.progress) == ([], [])


async def test_a_list_that_is_never_answered_ends_the_watch_by_silence() -> None:
    """A watch either starts or ends, so its caller does not wait indefinitely."""
    async with ApiServer() as server, watcher_of(server, IMPATIENT) as watcher:
        server.faults.add(verb="list", resource="nodes", hang=True)
        with pytest.raises(WatchEnded, match=r"^nothing was received for 2 s$"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)


async def test_a_discovery_that_is_never_answered_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """All watches wait for it, so a minute would be a minute in which nobody sees a new taint."""
    monkeypatch.setattr("taint_eviction.kopf_shell.watcher._MAX_ASKING_SECONDS", 0.2)
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.faults.add(path=r"^/api/v1/?$", hang=True, times=1)
        with pytest.raises(WatchEnded, match="TimeoutError"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS / 2)
        async with watching(watcher, NodesScope()):
            pass


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_request_that_hangs_is_made_again_soon_and_then_waited_for(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees a new taint until then; but a proxy may keep back each stream until the first bookmark."""
    monkeypatch.setattr("taint_eviction.kopf_shell.watch_interceptor._MAX_ANSWER_SECONDS", 0.2)
    async with ApiServer() as server, watcher_of(server) as watcher:
        hangs = server.faults.add(verb=verb, resource="nodes", hang=True, times=1)
        late = server.faults.add(verb=verb, resource="nodes", delay_seconds=0.5)
        async with watching(watcher, NodesScope()) as told:
            server.create("nodes", {"metadata": {"name": "n1"}})
            await told.until(lambda: ("ADDED", "n1") in told.told)
        assert (hangs.hits, late.hits, told.listed) == (1, 1, 1)


async def test_a_proxy_may_keep_back_each_stream_for_nearly_as_long_as_one_may_be_inactive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream that was given up first does not count: the second one has the whole time."""
    monkeypatch.setattr("taint_eviction.kopf_shell.watch_interceptor._MAX_ANSWER_SECONDS", 0.5)
    tuning = WatchTuning(inactivity_seconds=1.5, silence_seconds=6.0, retry_seconds=(0.01,))
    async with ApiServer() as server, watcher_of(server, tuning) as watcher:
        late = server.faults.add(verb="watch", resource="nodes", delay_seconds=1.2)
        async with watching(watcher, NodesScope()):
            assert late.hits == 2


async def test_a_stream_that_is_never_answered_ends_the_watch_as_soon_as_it_was_silent_for_so_long() -> None:
    """The silence counts from the last sign of life, here the list, and not from when somebody looked."""
    async with ApiServer() as server, watcher_of(server, IMPATIENT) as watcher:
        server.faults.add(verb="watch", resource="nodes", hang=True)
        began_at = asyncio.get_running_loop().time()
        with pytest.raises(WatchEnded, match=r"^nothing was received for 2 s$"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
        assert asyncio.get_running_loop().time() - began_at < 2 * IMPATIENT.silence_seconds


@pytest.mark.parametrize("line", ["\n", '{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'])
async def test_streams_that_end_at_once_and_bring_nothing_end_the_watch(line: str) -> None:
    """Kopf would open the next one without a pause, thousands in a second, and the watch would look alive."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        fault = server.faults.add(verb="watch", resource="nodes", status=200, message=line, plain_text=True)
        with pytest.raises(WatchEnded, match="3 streams in a row ended at once and brought nothing"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
        assert fault.hits == 3
        assert not list(tasks_left())


async def test_streams_that_bring_something_and_end_at_once_are_opened_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one that was cut is followed at once; then each begins a second after the one before."""
    monkeypatch.setattr("taint_eviction.kopf_shell.watch_interceptor._SHORT_SECONDS", 0.2)
    line = '{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"99999"}}}\n'
    loop, recorder = asyncio.get_running_loop(), Recorder()
    async with ApiServer() as server, watcher_of(server) as watcher:
        fault = server.faults.add(verb="watch", resource="nodes", status=200, message=line, plain_text=True)
        async with running(watcher.watch(NodesScope(), recorder)):
            began_at = loop.time()
            await recorder.until(lambda: fault.hits >= 5)
            assert loop.time() - began_at >= 3 * 0.2
            assert recorder.listed == 1


async def test_a_stream_that_is_always_refused_with_429_ends_the_watch_by_silence() -> None:
    """Kopf lists again each time, but a list without a stream does not count as received data."""
    async with ApiServer() as server, watcher_of(server, IMPATIENT) as watcher:
        server.faults.add(verb="watch", resource="nodes", status=429, message="slow down")
        with pytest.raises(WatchEnded, match=r"^nothing was received for 2 s(; last: 429: slow down)?$"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
        assert len(server.requests.select(verb="list", resource="nodes")) > 1


@pytest.mark.parametrize("seconds", ["1000000000", "1e9", "nan", "Wed, 21 Oct 2099 07:28:00 GMT"])
@pytest.mark.parametrize("as_header", [True, False])
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_nobody_decides_for_how_long_a_watch_waits(verb: str, as_header: bool, seconds: str) -> None:
    """Not even the API server: it would see no new taint meanwhile."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        said: dict[str, Any] = {"headers": {"Retry-After": seconds}}
        if not as_header:
            said = {"details": {"retryAfterSeconds": 1e9 if seconds == "1e9" else seconds}}
        fault = server.faults.add(verb=verb, resource="nodes", status=429, times=1, **said)
        recorder = Recorder()
        async with running(watcher.watch(NodesScope(), recorder)):
            await recorder.until(lambda: recorder.listed)
            server.create("nodes", {"metadata": {"name": "new"}})
            await recorder.until(lambda: "new" in (name for _, name in recorder.told))
        assert fault.hits == 1


async def test_a_failed_discovery_ends_the_watch_and_is_repeated_later() -> None:
    """A refusal is not stored as the result of discovery."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.faults.add(path="^/api/v1$", status=503, message="not yet")
        with pytest.raises(WatchEnded, match=r"^503: not yet$"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
        server.faults.clear()
        async with watching(watcher, NodesScope()):
            pass


@pytest.mark.parametrize(
    "answer", ["{}", "null", '{"versions":[]}', '{"resources":[{"name":"nodes"},{"name":"pods"}]}']
)
@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis"])
async def test_no_answer_to_discovery_ends_all_later_watches(path: str, answer: str) -> None:
    """A gateway may answer with JSON of its own while the API server starts."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.faults.add(path=f"^{path}$", status=200, message=answer, plain_text=True)
        with contextlib.suppress(WatchEnded):
            async with watching(watcher, NodesScope()):
                pass
        server.faults.clear()
        async with watching(watcher, NodesScope()):
            pass


class Log(logging.Handler):
    """Records what reaches the root logger; pytest's own handlers also get what loggers do not propagate."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def test_the_end_of_a_watch_does_not_flood_the_log(request: pytest.FixtureRequest) -> None:
    """Each line is short and has no traceback, and Kopf's own loggers write nothing."""
    log = Log()
    logging.getLogger().addHandler(log)
    request.addfinalizer(lambda: logging.getLogger().removeHandler(log))
    async with ApiServer() as server, watcher_of(server) as watcher:
        server.faults.add(verb="watch", resource="nodes", status=500)
        for _ in range(3):
            with pytest.raises(WatchEnded):
                await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
    assert {record.name for record in log.records} <= {"taint_eviction.kopf_shell.kopf"}
    assert len(log.records) <= 2, [record.getMessage() for record in log.records]
    assert all(record.exc_info is None and "\n" not in record.getMessage() for record in log.records)


class Buggy(Recorder):
    """A listener that fails at the first event."""

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        super().on_event(event_type, body)
        raise ZeroDivisionError("ours")


async def test_a_bug_of_the_listener_is_raised_by_the_watch() -> None:
    """Kopf would log the bug and continue; here the listener gets no further event."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=3, pods=0)
        buggy = Buggy()
        with pytest.raises(ZeroDivisionError, match="ours"):
            await asyncio.wait_for(watcher.watch(NodesScope(), buggy), PATIENCE_SECONDS)
        assert len(buggy.events) == 1
        assert not list(tasks_left())


async def test_a_connector_with_a_limit_raises_a_value_error() -> None:
    """With a limit, the 101st watch would wait for a connection indefinitely, so this is a bug of the caller."""
    async with ApiServer() as server, watcher_of(server, connector=aiohttp.TCPConnector()) as watcher:
        with pytest.raises(ValueError, match="must not limit connections"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)


async def test_a_cancelled_watch_leaves_no_task_and_does_not_affect_others() -> None:
    """The cancellation ends all tasks of one watch and none of another."""
    async with ApiServer() as server, watcher_of(server) as watcher, watching(watcher, NodesScope()) as other:
        others = sorted(tasks_left())
        async with watching(watcher, PodsScope("n1")):
            assert len(sorted(tasks_left())) > len(others)
        assert sorted(tasks_left()) == others
        server.create("nodes", {"metadata": {"name": "n1"}})
        await other.until(lambda: other.told == [("ADDED", "n1")])


@pytest.mark.parametrize("discovered", [False, True])
async def test_cancelling_a_watch_at_any_step_of_its_start_leaves_no_task(discovered: bool) -> None:
    """A cancellation inside spawn_tasks could leave a running Kopf, and one inside discovery could leave its tasks."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        if discovered:
            async with watching(watcher, NodesScope()):
                pass
        for steps in range(100):
            task = asyncio.create_task(watcher.watch(NodesScope(), Recorder()))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,), timeout=PATIENCE_SECONDS)
            assert task.cancelled(), steps
            assert not list(tasks_left()), steps


async def test_a_watch_that_is_cancelled_twice_ends_cleanly() -> None:
    """The second cancellation does not interrupt the end of Kopf."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        recorder = Recorder()
        task = asyncio.create_task(watcher.watch(NodesScope(), recorder))
        await recorder.until(lambda: recorder.listed)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,), timeout=PATIENCE_SECONDS)
        assert task.cancelled()
        assert not list(tasks_left())


async def test_a_cancelled_watch_does_not_deliver_its_queued_events() -> None:
    """Kopf's workers still have events in their queues."""
    async with ApiServer() as server, watcher_of(server) as watcher:
        populate(server.registry, nodes=50, pods=0)
        recorder = Recorder()
        task = asyncio.create_task(watcher.watch(NodesScope(), recorder))
        await recorder.until(lambda: recorder.events)
        task.cancel()
        await asyncio.wait((task,), timeout=PATIENCE_SECONDS)
        assert len(recorder.events) < 50


async def test_our_signal_handlers_are_installed_again_after_each_start() -> None:
    """Kopf installs its own handlers; a SIGTERM right after the start of a watch calls ours."""
    received = asyncio.Event()
    loop = asyncio.get_running_loop()

    def install() -> None:
        loop.add_signal_handler(signal.SIGTERM, received.set)

    async with ApiServer() as server, watcher_of(server, reinstall=install) as watcher:
        async with watching(watcher, NodesScope()) as told:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(received.wait(), PATIENCE_SECONDS)
            server.create("nodes", {"metadata": {"name": "n1"}})
            await told.until(lambda: told.told == [("ADDED", "n1")])
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)


OUTLIVE = """
import asyncio, sys
import kopf
from kopf_watching import Recorder, running, watcher_of, watching
from taint_eviction.kopf_shell import watcher as shell
from taint_eviction.runtime.ports import NodesScope
from fake_apiserver import ApiServer

original = shell.operator_settings

def impatient(scope, tuning):
    # The shell's settings; "kopf" puts back what Kopf has by default, but short.
    settings = original(scope, tuning)
    if sys.argv[1] == "kopf":
        settings.process.ultimate_exiting_timeout = 0.1
    return settings

shell.operator_settings = impatient

async def main():
    async with ApiServer() as server, watcher_of(server) as watcher:
        async with watching(watcher, NodesScope()):
            pass
        await asyncio.sleep(0.5)

asyncio.run(main())
print("alive")
"""


@pytest.mark.parametrize(("settings", "exit_code"), [("ours", 0), ("kopf", -signal.SIGKILL)])
def test_the_process_survives_the_end_of_a_watch(settings: str, exit_code: int) -> None:
    """Kopf's own setting kills the process; the second case shows that this test would notice it."""
    path = os.pathsep.join(str(place) for place in (Path(__file__).parent, ROOT, ROOT / "operator"))
    ended = subprocess.run(
        [sys.executable, "-c", OUTLIVE, settings],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == exit_code, ended.stderr
