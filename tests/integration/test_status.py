"""``status`` and ``explain`` as people use them: at a URL, or through the API server at the holder of the Lease."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import socket
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner
from test_apiserver_pod_proxy import listening
from tests.stage.controlled import QUICK, Controlled, controlling
from tests.stage.objects import KEY, Json, add_nodes, add_pod, tolerates, write_kubeconfig
from tests.stage.processes import invoked, running_controller, start
from tests.stage.waiting import PATIENCE_SECONDS, free_port, until

from fake_apiserver import ApiServer, pod_object
from fake_apiserver.request_info import RequestInfo
from taint_eviction.cli import cli
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.policy import EvictionMode, EvictionPolicy
from taint_eviction.reporting import pending_pages
from taint_eviction.reporting.status_document import API_VERSION
from taint_eviction.settings import ElectionSettings

LEASE = ElectionSettings()
NOT_READY = "node.kubernetes.io/not-ready"
ELECTED = replace(
    QUICK,
    election=LEASE,
    decisions=DecisionPolicy(default_not_ready_seconds=300),
    policy=EvictionPolicy(EvictionMode.EVICT),
)


@dataclass
class LedCluster:
    """A server with a leading controller, whose pod exists, and the flags with which commands find it."""

    server: ApiServer
    controlled: Controlled
    flags: tuple[str, ...]

    async def explain(self, pod: str) -> list[str]:
        """Return what ``explain`` prints about a pod of the default namespace."""
        said = await invoked("explain", f"default/{pod}", *self.flags)
        assert (said.code, said.complaints) == (0, "")
        return said.out.splitlines()

    async def status(self, *flags: str) -> dict[str, Any]:
        """Return the status as JSON."""
        said = await invoked("status", "-o", "json", *self.flags, *flags)
        assert (said.code, said.complaints) == (0, "")
        document: dict[str, Any] = json.loads(said.out)
        return document


def add_guarded_pod(server: ApiServer, name: str, node: str) -> None:
    """Create a ready pod, and a budget that never allows its eviction."""
    pod = pod_object("default", name, node, timestamp=server.clock.timestamp())
    server.create("pods", {**pod, "metadata": {**pod["metadata"], "labels": {"app": "db"}}})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}
    server.create("poddisruptionbudgets", {"metadata": {"name": "db"}, "spec": spec})


def add_controllers_pod(server: ApiServer) -> None:
    """Create the pod of this process: it has the host's name and the loopback address."""
    pod = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
    server.create("pods", {**pod, "status": {**pod["status"], "podIP": "127.0.0.1"}})


def prepare(server: ApiServer) -> None:
    """Taint nodes whose pods wait, stay, are paused or are blocked; admission adds no default tolerations."""
    server.admission.default_toleration_seconds = None
    add_nodes(server, "n1", "n2", "n3", "cp")
    server.taint("n1", KEY)
    server.taint("n1", "dedicated", effect="NoSchedule")
    server.taint("n2", KEY)
    server.taint("n3", NOT_READY)
    add_pod(server, "waits", "n1", tolerates(600), tolerates(3600, ""))
    add_pod(server, "stays", "n1", tolerates())
    add_guarded_pod(server, "db-0", "n1")
    add_pod(server, "paused", "n2")
    add_pod(server, "defaults", "n3")
    data = {"pause-node.n2": '{"since": "2026-01-01T00:00:00Z", "reason": "disk swap"}'}
    name = {"name": ELECTED.control_state.name, "namespace": LEASE.lease_namespace}
    server.create("configmaps", {"metadata": name, "data": data})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LedCluster]:
    """A cluster whose pods stay in their states for a while."""
    async with ApiServer(seed=1) as server:
        prepare(server)
        async with controlling(server, ELECTED) as controlled:
            application = controlled.application
            await controlled.until(application.gate.may_act)
            await controlled.until(application.engine.live.controller.status.failures)
            add_controllers_pod(server)
            config = write_kubeconfig(tmp_path / "config", server)
            yield LedCluster(server, controlled, ("--kubeconfig", str(config), "--port", str(controlled.listen.port)))


def by_deadline(names: Iterable[str]) -> bool:
    """Return whether all pods are named, most overdue first; either of the two due pods may come first."""
    return list(names) in (["db-0", "paused", "defaults", "waits"], ["paused", "db-0", "defaults", "waits"])


async def test_status_shows_the_state_of_the_leader(cluster: LedCluster) -> None:
    """The command finds the leader by the Lease and asks its pod through the API server."""
    said = await invoked("status", *cluster.flags)
    assert (said.code, said.complaints) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].startswith(f"{socket.gethostname()} leads by Lease ")
    assert " leads by Lease kube-system/taint-eviction-controller: ready, mode evict, version " in lines[0]
    assert lines[1] == "4 pods pending on 3 tainted nodes: 1 blocked, 1 held, 2 waiting"
    assert "evictions of node n2 are paused (since 2026-01-01 00:00:00 UTC: disk swap)" in lines
    first, second = (number for number, line in enumerate(lines) if not line)
    assert lines[first + 1].split() == ["NODE", "TAINT", "PODS", "WAITING", "DUE", "HELD", "GONE", "NEXT"]
    table = lines[second + 1 :]
    assert table[0].split() == ["DUE", "STATE", "POD", "NODE", "WHY"]
    assert by_deadline(row.split("default/")[1].split()[0] for row in table[1:])
    assert "\x1b[" not in said.out
    [asked] = cluster.server.requests.select(resource="pods/proxy")
    assert asked.query == {"limit": "1000"}


async def test_status_at_a_url_is_the_same(cluster: LedCluster) -> None:
    """No API server is needed, and the JSON is the same except for times."""
    said = await invoked("status", "--server", f"http://{cluster.controlled.listen}/", "-o", "json")
    direct = json.loads(said.out)
    through = await cluster.status()
    assert direct["counts"] == {"inFlight": 0, "due": 0, "retrying": 0, "blocked": 1, "held": 1, "waiting": 2}
    changing = {"now", "pending", "groups"}
    assert {name: value for name, value in direct.items() if name not in changing} == {
        name: value for name, value in through.items() if name not in changing
    }
    assert by_deadline(pod["name"] for pod in through["pending"])
    due = [pod["dueInSeconds"] for pod in through["pending"]]
    assert due == sorted(due)


async def test_status_can_be_limited_to_a_namespace_and_a_number(cluster: LedCluster) -> None:
    """Pods that are left out are counted."""
    assert (await cluster.status("-n", "elsewhere"))["pendingTotal"] == 0
    bounded = await cluster.status("--limit", "1", "-n", "default")
    assert (len(bounded["pending"]), bounded["pendingTotal"]) == (1, 4)


async def test_status_reads_all_pages(cluster: LedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads until the last page, or until it has as many pods as were asked for."""
    monkeypatch.setattr(pending_pages, "MAX_PODS", 2)
    document = await cluster.status("--limit", "1001")
    assert by_deadline(pod["name"] for pod in document["pending"])
    assert document["continue"] is None
    assert len((await cluster.status("--limit", "3"))["pending"]) == 3
    asked = [entry.query for entry in cluster.server.requests.select(resource="pods/proxy")]
    assert [int(query["limit"]) for query in asked] == [1001, 999, 3, 1]


async def test_explain_names_an_overruled_toleration(cluster: LedCluster) -> None:
    """It also names a taint that would prevent the pod from being scheduled there again."""
    told = await cluster.explain("waits")
    # The span is rounded to a second, and the first answer may come within that.
    assert re.match(r"default/waits leaves node n1 in (9 m \d+ s|10 m), at ", told[0])
    assert told[1:3] == [
        f"  because   {KEY}:NoExecute is tolerated by [{KEY}:NoExecute for 600 s]",
        "  but       [*:NoExecute for 3600 s] comes later in the pod's list:"
        " only the first toleration that matches counts",
    ]
    assert (
        told[-2]
        == "  again     a new pod like it could not be scheduled there: it does not tolerate dedicated:NoSchedule"
    )


async def test_explain_shows_a_default_toleration(cluster: LedCluster) -> None:
    """The pod has no such toleration of its own."""
    told = await cluster.explain("defaults")
    assert told[1] == (
        f"  because   {NOT_READY}:NoExecute is tolerated by default by [{NOT_READY}:NoExecute for 300 s]:"
        " the pod has no such toleration of its own"
    )


async def test_explain_shows_a_pause(cluster: LedCluster) -> None:
    """The answer contains the start and the reason of the pause."""
    held = "  held      evictions from its node are paused (since 2026-01-01 00:00:00 UTC: disk swap)"
    assert held in await cluster.explain("paused")


async def test_explain_names_the_budget_that_blocks(cluster: LedCluster) -> None:
    """The answer contains the server's message."""
    [told] = [line for line in await cluster.explain("db-0") if line.startswith("  blocked")]
    assert told.startswith("  blocked   its PodDisruptionBudget allows no disruption now (db); tried ")
    assert re.search(r"; tried \d+ times? since ", told)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in told


async def test_explain_says_why_a_pod_stays(cluster: LedCluster) -> None:
    """The exit code is 0, since nothing is wrong."""
    told = await cluster.explain("stays")
    assert told[0] == "default/stays stays on node n1: it tolerates every NoExecute taint of its node indefinitely"


async def test_explain_says_that_a_pod_is_not_known(cluster: LedCluster) -> None:
    """The exit code is 1, and the JSON says so, too."""
    said = await invoked("explain", "default/nobody", *cluster.flags)
    assert (said.code, said.out.splitlines()[0]) == (1, "default/nobody is not known: there is no such pod")
    said = await invoked("explain", "default/nobody", "-o", "json", *cluster.flags)
    assert (said.code, json.loads(said.out)["known"]) == (1, False)


async def test_a_pod_that_is_gone_is_explained_and_listed(cluster: LedCluster) -> None:
    """The pod is found by name, by UID, by node and by taint."""
    uid = add_pod(cluster.server, "leaves", "n1")
    await until(lambda: cluster.server.get("pods", "leaves") is None)
    by_name = "\n".join(await cluster.explain("leaves"))
    assert "default/leaves was evicted from node n1" in by_name
    assert f"taint {KEY}" in by_name
    assert uid in by_name
    for words in (("explain", uid), ("explain", "node/n1"), ("history", "--taint", KEY, "--since", "5m")):
        said = await invoked(*words, *cluster.flags)
        assert (said.code, said.complaints) == (0, "")
        assert "default/leaves" in said.out
    assert (await cluster.status())["evictedLately"]["total"] == 1


async def test_status_watch_prints_one_json_document_per_line(cluster: LedCluster) -> None:
    """An interrupt ends the command with exit code 0."""
    watch = ("status", "--watch", "--interval", "0.05", "-o", "json")
    started = await start(*watch, *cluster.flags, stdout=asyncio.subprocess.PIPE)
    assert started.stdout is not None
    documents = [json.loads(await started.stdout.readline()) for _ in range(2)]
    started.send_signal(signal.SIGINT)
    _, complaints = await started.communicate()
    assert [document["pendingTotal"] for document in documents] == [4, 4]
    assert (started.returncode, complaints) == (0, b"")


@contextlib.asynccontextmanager
async def terminal(*words: str) -> AsyncIterator[bytearray]:
    """Run a command at a terminal; collect what it shows until the end of the block."""
    ours, theirs = pty.openpty()
    shown = bytearray()
    terminal = {"TERM": "xterm", "COLUMNS": "200", "LINES": "30"}
    started = await start(*words, environment=terminal, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            shown.extend(os.read(ours, 2**16))
        except OSError:  # the command has ended
            loop.remove_reader(ours)

    loop.add_reader(ours, read)
    try:
        yield shown
    finally:
        loop.remove_reader(ours)
        started.kill()
        await started.wait()
        os.close(ours)


async def test_a_terminal_shows_the_status_in_place(cluster: LedCluster) -> None:
    """If no controller answers any more, the terminal keeps the last status and says so."""
    async with terminal("status", "--watch", "--interval", "0.05", *cluster.flags) as shown:
        await until(lambda: b"default/waits" in shown)
        cluster.server.delete("pods", socket.gethostname(), LEASE.lease_namespace, grace_period_seconds=0)
        await until(lambda: b"does not answer" in shown)
        last = bytes(shown).rpartition(b"connection lost since ")[2]
        assert b"the last known status:" in last
        assert b"\x1b[32mready" not in last
        assert b"\x1b[1A" in shown


# No answer


async def test_a_url_without_a_listener_exits_3() -> None:
    """The error contains a hint."""
    said = await invoked("status", "--server", f"http://127.0.0.1:{free_port()}")
    assert (said.code, said.out) == (3, "")
    assert said.complaints.endswith("; does a controller --listen there?\n")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [(200, "this is not the answer of a taint-eviction controller"), (404, "/status answers HTTP 404: ")],
)
async def test_a_url_of_another_server_exits_3(code: int, complaint: str) -> None:
    """This holds for answers with 200 and with 404."""
    async with listening(code) as port:
        said = await invoked("status", "--server", f"http://127.0.0.1:{port}")
    assert said.code == 3
    assert complaint in said.complaints


@pytest.mark.parametrize("differences", [None, 7, "text", [None], [{}]])
async def test_a_comparison_that_is_malformed_exits_3(differences: object) -> None:
    """It is the answer of another program."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.json_response({"apiVersion": API_VERSION, "kind": "Comparison", "differences": differences})

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        said = await invoked("compare", "--server", f"http://127.0.0.1:{runner.addresses[0][1]}", "-n", "shop")
    finally:
        await runner.cleanup()
    assert said.code == 3
    assert "this is not the answer of a taint-eviction controller of this version" in said.complaints


async def test_an_api_server_that_is_down_exits_3(tmp_path: Path) -> None:
    """The error names the server."""
    async with ApiServer() as server:
        config = write_kubeconfig(tmp_path / "config", server)
    said = await invoked("status", "--kubeconfig", str(config))
    assert said.code == 3
    assert f"{server.url}: the API server cannot be reached" in said.complaints


def lease(server: ApiServer, holder: str) -> None:
    """Create the Lease."""
    metadata = {"name": LEASE.lease_name, "namespace": LEASE.lease_namespace}
    server.create("leases", {"metadata": metadata, "spec": {"holderIdentity": holder}})


@pytest.mark.parametrize(
    ("holder", "complaint"),
    [
        (None, "there is no Lease kube-system/taint-eviction-controller: is the controller installed there?"),
        ("", "nobody holds the Lease kube-system/taint-eviction-controller: no replica acts now"),
        ("a-host_uuid", "it may use its host's network; ask it with status --server"),
        ("cp-0_uuid", "does it listen on port 8080 (--listen), and not on loopback alone?"),
    ],
)
async def test_a_leader_that_cannot_be_found_exits_3(tmp_path: Path, holder: str | None, complaint: str) -> None:
    """There may be no Lease, no holder, a holder that is no pod, or a pod that does not listen."""
    async with ApiServer() as server:
        if holder is not None:
            lease(server, holder)
        server.create("pods", pod_object(LEASE.lease_namespace, "cp-0", "cp", timestamp=server.clock.timestamp()))
        said = await invoked("status", "--kubeconfig", str(write_kubeconfig(tmp_path / "config", server)))
    assert (said.code, said.out) == (3, "")
    assert complaint in said.complaints


async def test_a_missing_right_is_named(tmp_path: Path) -> None:
    """A user who may read Leases may still lack the right to get pods/proxy."""

    def authorize(info: RequestInfo) -> bool:
        return info.subresource != "proxy"

    async with ApiServer(authorize=authorize) as server:
        lease(server, "cp-0_uuid")
        said = await invoked("status", "--kubeconfig", str(write_kubeconfig(tmp_path / "config", server)))
    assert said.code == 3
    assert "this needs the right to get pods/proxy" in said.complaints


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "/web-0"),
        ("explain", "shop/web-0/x"),
        ("explain",),
        ("status", "--server", "localhost:8080"),
        ("status", "--server", "ftp://localhost"),
        ("status", "--server", "http://localhost?a=b"),
        ("status", "--limit", "-1"),
    ],
)
def test_wrong_arguments_exit_2(words: tuple[str, ...]) -> None:
    """stderr contains a sentence, and stdout is empty."""
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


async def test_a_kubeconfig_that_does_not_exist_exits_2() -> None:
    """The error says what is wrong."""
    said = await invoked("status", "--kubeconfig", "/nowhere")
    assert (said.code, said.out) == (2, "")
    assert said.complaints.startswith("taint-eviction: ")


# The audit log


def lines_of(file: Path) -> list[Json]:
    """Return the complete lines of the audit log."""
    whole, _, _ = file.read_text().rpartition("\n") if file.exists() else ("", "", "")
    return [json.loads(line) for line in whole.splitlines()]


async def test_an_audit_log_has_a_line_for_each_attempt(tmp_path: Path) -> None:
    """This includes attempts that the API server refused; the log can be turned into a scenario."""
    file = tmp_path / "audit"
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        uid = add_pod(server, "web-0", "n1", tolerates(1))
        server.faults.add(verb="delete", resource="pods", status=500, times=1)
        server.taint("n1", KEY)
        config = write_kubeconfig(tmp_path / "config", server)
        async with running_controller(config, "--audit-log", str(file)):
            await until(lambda: len(lines_of(file)) == 2)
    refused, evicted = lines_of(file)
    assert [(line["action"], line["outcome"], line["tries"]) for line in (refused, evicted)] == [
        ("evict", "refused", 1),
        ("evict", "evicted", 2),
    ]
    assert "(HTTP 500)" in refused["answer"]
    assert (evicted["pod"], evicted["uid"], evicted["node"]) == ("default/web-0", uid, "n1")
    assert evicted["taints"][0]["toleration"] == f"{KEY}:NoExecute for 1 s"
    assert evicted["late_seconds"] >= 0
    story = tmp_path / "story.yaml"
    read = await invoked("replay", str(file), "--to-scenario", str(story))
    # Whether the replay agrees with the record depends on how late the second try was.
    assert (read.code in {0, 1}, read.complaints) == (True, ""), read.out
    assert "default/web-0" in yaml.safe_load(story.read_text())["expect"]


async def test_status_reports_a_policy_file_that_is_rejected(tmp_path: Path) -> None:
    """The controller keeps the previous policy, so the person who changed the file must learn about the error."""
    policy = tmp_path / "policy.yaml"
    right = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\n"
    policy.write_text(right + "rules: []\n")
    async with ApiServer(seed=1) as server:
        config = write_kubeconfig(tmp_path / "config", server)
        async with running_controller(config, "--config", str(policy), listen=f"127.0.0.1:{free_port()}") as run:
            policy.write_text(right + "rulez: []\n")
            await run.until(lambda: run.said(f"policy file {policy} is rejected"))
            said = await run.ask("status")
    assert (
        "the policy file is rejected or cannot be read, and the previous policy stays in force: see the log"
        in said.splitlines()
    )


async def test_status_reports_an_audit_log_that_has_ended(tmp_path: Path) -> None:
    """After a disk was full once, nothing more is written: who relies on the log must learn that."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web-0", "n1")
        server.taint("n1", KEY)
        config = write_kubeconfig(tmp_path / "config", server)
        flags = ("--audit-log", "/dev/full")
        async with running_controller(config, *flags, listen=f"127.0.0.1:{free_port()}") as run:
            await run.until(lambda: run.said("the audit log ends here"))
            said = await run.ask("status")
    assert "the audit log has ended, and continues after a restart: /dev/full: No space left" in said


async def test_status_reports_that_the_control_state_can_no_longer_be_read(tmp_path: Path) -> None:
    """The last known control state stays in force, so a person whose resume has no effect learns why."""
    async with ApiServer(seed=1) as server:
        config = write_kubeconfig(tmp_path / "config", server)
        async with running_controller(config, listen=f"127.0.0.1:{free_port()}") as run:

            async def tells_of_it() -> bool:
                return "have not been read" in (await invoked("status", "--server", run.url)).out

            assert not await tells_of_it()
            server.faults.add(verb="get", resource="configmaps", status=500)
            await run.until(tells_of_it)
            said = await run.ask("status")
    assert "what was last read stays in force" in said


async def test_status_reports_a_latch_that_cannot_be_written(tmp_path: Path) -> None:
    """The ConfigMap does not contain this latch, and a restart would lose it."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2", "n3")
        for name in ("n1", "n2", "n3"):
            add_pod(server, f"web-{name}", name)
        config = write_kubeconfig(tmp_path / "config", server)
        server.faults.add(verb="create", resource="configmaps", status=403)
        async with running_controller(
            config, "--breaker", "--breaker-nodes=1", listen=f"127.0.0.1:{free_port()}"
        ) as run:
            for name in ("n1", "n2"):
                server.taint(name, KEY)
            await run.until(lambda: run.said("the state of the breaker cannot be written"))
            said = await run.ask("status")
    assert "pauses or breaker could not be written for" in said


async def test_an_audit_log_may_go_to_stdout(tmp_path: Path) -> None:
    """Log collectors read stdout; the controller's log is on stderr."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web-0", "n1")
        server.taint("n1", KEY)
        config = write_kubeconfig(tmp_path / "config", server)
        words = ("run", "--kubeconfig", str(config), "--no-leader-elect", "--audit-log", "-")
        started = await start(*words, stdout=asyncio.subprocess.PIPE)
        assert started.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = json.loads(await started.stdout.readline())
        started.terminate()
        rest, _ = await started.communicate()
    assert (line["outcome"], line["pod"], rest) == ("evicted", "default/web-0", b"")
