"""Plays hostile objects and answers: a controller over HTTP, with pods of others beside them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

from kubernetes.aio.client import Configuration
from tests.fuzz.answers import AnswerCase
from tests.fuzz.fields import FieldCase, as_sent, spoil
from tests.fuzz.proxy import HostileProxy, Rule, hostile_proxy
from tests.stage.controlled import QUICK, QUICK_KOPF, QUICK_WATCH, Controlled, controlling, plain_connection
from tests.stage.objects import KEY, add_nodes, add_pod, deleted, deletes, is_leaving, tolerates
from tests.stage.waiting import until

from fake_apiserver import ApiServer
from fake_apiserver.watch import WatchMatch
from taint_eviction.files.json_lists import decode
from taint_eviction.kube.kubernetes_objects import MalformedObject, read_pod
from taint_eviction.login.credentials import Connection
from taint_eviction.login.token_sources import FixedAuthorization

# From this number of tainted nodes on all pods are watched together.
_WHOLE_CLUSTER_FROM = 5
SETTINGS = replace(QUICK, watch=replace(QUICK_WATCH, whole_cluster_from=_WHOLE_CLUSTER_FROM))
# Answers that never end must not last long.
IMPATIENT = replace(SETTINGS, call_timeout_seconds=1.0)
IMPATIENT_KOPF = replace(QUICK_KOPF, silence_seconds=2.0, inactivity_seconds=1.0, request_seconds=1.0)
BATCH = 100


def batches(cases: Sequence[FieldCase]) -> Iterator[list[FieldCase]]:
    """Return the cases in batches of one kind of object."""
    for kind in ("pods", "nodes"):
        of_kind = [case for case in cases if case.plural == kind]
        for at in range(0, len(of_kind), BATCH):
            yield of_kind[at : at + BATCH]


def connection_at(url: str) -> Connection:
    """Return a connection without credentials."""
    return plain_connection(Configuration(host=url), FixedAuthorization(None))


async def play_fields(cases: Sequence[FieldCase]) -> None:
    """Play a batch of hostile fields of one kind of object; raise ``AssertionError`` with the cases that go wrong.

    Of each hostile pod there are two: one tolerates the taint for ever and must stay, the other does not tolerate it
    and must go, unless it cannot be read. Each hostile node has a pod that must stay. Pods of others go in any case.
    Every second object is hostile in lists, the others become so when a watch shows a change of them.
    """
    async with ApiServer(seed=1) as server, hostile_proxy(server) as proxy:
        add_nodes(server, "n1", "n2")
        stage = _Fields(server, dict(enumerate(cases)))
        proxy.cases |= stage.spoilt(odd=True)
        for name, node in (("web-1", "n1"), ("web-2", "n2")):
            add_pod(server, name, node)
        async with controlling(server, SETTINGS, connection=connection_at(proxy.url)) as running:
            for node in ("n1", "n2", *stage.nodes):
                server.taint(node, KEY)
            await _others_go(running, "web-1", "web-2")
            proxy.cases |= stage.spoilt(odd=False)
            stage.touch()
            for name, node in (("web-3", "n1"), ("web-4", "n2")):
                add_pod(server, name, node)
            await _others_go(running, "web-3", "web-4")
            await stage.check()


class _Fields:
    """The hostile objects of a batch."""

    def __init__(self, server: ApiServer, cases: dict[int, FieldCase]) -> None:
        self._server = server
        self._cases = cases
        self._staying: dict[str, FieldCase] = {}
        self._going: dict[str, FieldCase] = {}
        self.nodes = [f"hostile-{number}" for number, case in cases.items() if case.plural == "nodes"]
        for number, case in cases.items():
            stays, goes = f"stays-{number}", f"goes-{number}"
            if case.plural == "nodes":
                add_nodes(server, f"hostile-{number}")
                add_pod(server, stays, f"hostile-{number}", tolerates())
                self._staying[stays] = case
                continue
            add_pod(server, stays, "n1", tolerates(key="other"), tolerates())
            add_pod(server, goes, "n1", tolerates(key="other"))
            if case.path != ("spec", "tolerations"):
                self._staying[stays] = case
            if self._must_go(goes, case):
                self._going[goes] = case

    def _must_go(self, name: str, case: FieldCase) -> bool:
        """Return whether the pod can be read and does not say that it may stay."""
        body = self._server.get("pods", name) or {}
        spoil(body, case)
        try:
            pod = read_pod(decode(as_sent(body))).value
        except MalformedObject:
            return False
        tolerates_all = any(each.operator == "Exists" and each.key in ("", KEY) for each in pod.tolerations)
        return not (tolerates_all or pod.mirror or pod.terminating)

    def spoilt(self, *, odd: bool) -> dict[tuple[str, str], FieldCase]:
        """Return the cases of every second object, by plural and name."""
        return {
            (case.plural, name): case
            for number, case in self._cases.items()
            if number % 2 == odd
            for name in self._names(number, case)
        }

    @staticmethod
    def _names(number: int, case: FieldCase) -> list[str]:
        return [f"hostile-{number}"] if case.plural == "nodes" else [f"stays-{number}", f"goes-{number}"]

    def touch(self) -> None:
        """Let watches show each object once more."""
        for number, case in self._cases.items():
            for name in self._names(number, case):
                if self._server.get(case.plural, name) is not None:
                    self._server.patch(case.plural, name, {"metadata": {"labels": {"touched": "yes"}}})

    async def check(self) -> None:
        """Wait until those that must go are gone, and check that the others are not."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: all(is_leaving(self._server, name) for name in self._going))
        left = {name: case for name, case in self._going.items() if not is_leaving(self._server, name)}
        assert not left, f"not evicted: {_told(left)}"
        gone = {
            name: case
            for name, case in self._staying.items()
            if deletes(self._server, name) or is_leaving(self._server, name)
        }
        assert not gone, f"evicted: {_told(gone)}"


async def _others_go(running: Controlled, *names: str) -> None:
    leaving = asyncio.create_task(deleted(running.server, *names))
    await asyncio.wait((leaving, running.running), return_when=asyncio.FIRST_COMPLETED)
    if running.running.done():
        leaving.cancel()
        running.running.result()
    await leaving


def _told(cases: dict[str, FieldCase]) -> str:
    return "; ".join(f"{name}: {case}" for name, case in sorted(cases.items()))


# Answers


async def play_answers(cases: Sequence[AnswerCase]) -> None:
    """Play hostile answers one after the other to one controller; raise ``AssertionError`` with the case that went
    wrong. While requests about one node or pod get the answer, pods of another node go; once it ends, its own do.
    """
    async with _answering() as (server, proxy, running):
        for number, case in enumerate(cases):
            try:
                await _play_answer(server, proxy, running, case, number)
            except (TimeoutError, AssertionError) as error:
                raise AssertionError(f"{case}: {type(error).__name__} {error}") from error


@contextlib.asynccontextmanager
async def _answering() -> AsyncIterator[tuple[ApiServer, HostileProxy, Controlled]]:
    async with ApiServer(seed=1) as server, hostile_proxy(server) as proxy:
        add_nodes(server, "n1")
        async with controlling(server, IMPATIENT, IMPATIENT_KOPF, connection=connection_at(proxy.url)) as running:
            yield server, proxy, running


async def _play_answer(
    server: ApiServer, proxy: HostileProxy, running: Controlled, case: AnswerCase, number: int
) -> None:
    hostile, calm = f"hostile-{number}", f"calm-{number}"
    stays, goes, other = f"stays-{number}", f"goes-{number}", f"web-{number}"
    add_nodes(server, hostile, calm)
    add_pod(server, stays, hostile, tolerates())
    add_pod(server, goes, hostile)
    add_pod(server, other, calm)
    rule = Rule(case.request.fits(hostile, goes), case.answer, case.times)
    proxy.rules.append(rule)
    if case.request.of_all_nodes:
        server.watches.cut(WatchMatch(resource="nodes"))
    server.taint(hostile, KEY)
    server.taint(calm, KEY)
    if not case.request.of_all_nodes:
        await _others_go(running, other)
    await running.until(lambda: rule.hits or is_leaving(server, goes))
    await asyncio.sleep(0.2)
    proxy.rules.remove(rule)
    await _others_go(running, other, goes)
    assert not deletes(server, stays)
    assert not is_leaving(server, stays)
    for node in (hostile, calm):
        server.delete("nodes", node)
