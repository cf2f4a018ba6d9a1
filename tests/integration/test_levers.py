"""Levers say where they act, who leads and what they would set going, before they do it."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.stage.controlled import QUICK, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, tolerates, write_kubeconfig
from tests.stage.processes import CommandResult, invoked
from tests.stage.waiting import until

from fake_apiserver import ApiServer, pod_object
from taint_eviction.cli import releasing
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.settings import ElectionSettings

LEASE = ElectionSettings()
NAME = LEASE.lease_name
LED = replace(QUICK, election=LEASE)


@dataclass
class Levers:
    """A server with a leading controller, and the flags by which commands find it."""

    server: ApiServer
    config: Path
    port: int

    async def pull(self, *words: str) -> CommandResult:
        """Run a verb as a person does, without a terminal."""
        return await invoked(*words, "--kubeconfig", str(self.config), "--port", str(self.port))

    def data(self) -> dict[str, str]:
        """What the state ConfigMap says."""
        found = self.server.get("configmaps", NAME, LEASE.lease_namespace)
        data: dict[str, str] = (found or {}).get("data") or {}
        return data

    def left(self) -> set[str]:
        """The pods of the default namespace that nobody has deleted."""
        return {
            pod["metadata"]["name"] for pod in self.server.list("pods") if pod["metadata"]["namespace"] == "default"
        }


@pytest.fixture
async def levers(tmp_path: Path) -> AsyncIterator[Levers]:
    """All evictions are paused; three pods of two nodes are due, one of a paused node; one waits, one has a budget."""
    async with ApiServer(seed=1) as server:
        server.admission.default_toleration_seconds = None
        add_nodes(server, "n1", "n2", "n3", "cp")
        for node in ("n1", "n2", "n3"):
            server.taint(node, KEY)
        for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("held", "n3")):
            add_pod(server, name, node)
        add_pod(server, "waits", "n1", tolerates(600))
        pod = pod_object("default", "db-0", "n1", timestamp=server.clock.timestamp())
        server.create("pods", {**pod, "metadata": {**pod["metadata"], "labels": {"app": "db"}}})
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}
        server.create("poddisruptionbudgets", {"metadata": {"name": "db"}, "spec": spec})
        data = {"pause": "true", "pause-node.n3": "true"}
        server.create("configmaps", {"metadata": {"name": NAME, "namespace": LEASE.lease_namespace}, "data": data})
        async with controlling(server, LED) as controlled:
            application = controlled.application
            await controlled.until(application.gate.may_act)
            await controlled.until(lambda: application.live.controller.suspension.control_state is not None)
            own = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
            server.create("pods", {**own, "status": {**own["status"], "podIP": "127.0.0.1"}})
            config = write_kubeconfig(tmp_path / "config", server)
            yield Levers(server, config, controlled.listen.port)


async def test_a_resume_without_a_terminal_counts_and_needs_yes(levers: Levers) -> None:
    """It says how many pods leave from how many nodes and which budget that violates, and changes nothing."""
    said = await levers.pull("resume")
    assert (said.code, said.out) == (2, "")
    where, leader, going, refused = said.complaints.splitlines()
    assert levers.server.url in where
    assert 'context "' in where
    assert f"leader: {socket.gethostname()}_" in leader
    assert going == "taint-eviction: 4 pods leave now from 2 nodes; 1 budget would be violated (default/db)"
    assert "nothing was changed: without a terminal this needs --yes" in refused
    assert "pause" in levers.data()


async def test_a_resume_with_yes_lets_go_what_it_counted(levers: Levers) -> None:
    """The paused node's pod and the one that waits stay."""
    said = await levers.pull("resume", "--yes")
    assert said.code == 0
    await until(lambda: levers.left() == {"held", "waits"})


async def test_a_resume_of_one_node_counts_nothing_while_all_is_paused(levers: Levers) -> None:
    """The wider pause still holds its pods."""
    said = await levers.pull("resume", "--node", "n3", "--yes")
    assert "no pod is due: none leaves at once" in said.complaints
    assert "all evictions are still paused" in said.out


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 1)])
async def test_at_a_terminal_somebody_is_asked(
    levers: Levers, monkeypatch: pytest.MonkeyPatch, answer: bool, code: int
) -> None:
    """Whoever does not agree changes nothing, and the exit code says so."""
    monkeypatch.setattr(releasing, "_is_asked", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: answer)
    said = await levers.pull("resume")
    assert said.code == code
    assert ("pause" in levers.data()) is not answer


async def test_a_pause_that_has_ended_holds_nothing_of_what_is_counted(levers: Levers) -> None:
    """It stands in the ConfigMap for as long as the leader cannot remove it, and beside a dry run."""
    levers.server.patch(
        "configmaps", NAME, {"data": {"pause-node.n1": '{"until": "2020-01-01T00:00:00Z"}'}}, LEASE.lease_namespace
    )
    levers.server.faults.add(verb="patch", resource="configmaps", status=503)
    said = await levers.pull("resume")
    assert "4 pods leave now from 2 nodes" in said.complaints


async def test_a_resume_that_cannot_count_says_so_and_is_done_with_yes(levers: Levers) -> None:
    """As when the right to get pods/proxy is missing."""
    levers.server.faults.add(resource="pods/proxy", status=403)
    said = await levers.pull("resume", "--yes")
    assert said.code == 0
    assert "how many pods would leave is not known: pod kube-system/" in said.complaints
    assert "pause" not in levers.data()


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ("pods/proxy", "how many pods would leave is not known: the leader has not named them within 1 s"),
        ("poddisruptionbudgets", "which budgets would be violated is not known: they could not be listed within 1 s"),
    ],
)
async def test_a_release_does_not_wait_long_for_what_it_would_set_going(
    levers: Levers, monkeypatch: pytest.MonkeyPatch, resource: str, said: str
) -> None:
    """The lists of hundreds of namespaces, each slow, must not keep anybody from a resume that is urgent."""
    monkeypatch.setattr(releasing, "_MAX_SECONDS", 1.0)
    levers.server.faults.add(resource=resource, hang=True)
    found = await levers.pull("resume", "--yes")
    assert found.code == 0
    assert said in found.complaints
    assert "pause" not in levers.data()


async def test_a_pause_is_written_though_the_lease_cannot_be_read(levers: Levers) -> None:
    """Holding asks nobody, and ends by itself if told so."""
    levers.server.faults.add(resource="leases", verb="get", status=403)
    said = await invoked("pause", "-n", "shop", "--for", "30m", "--kubeconfig", str(levers.config))
    assert said.code == 0
    assert "who leads is not known" in said.complaints
    kept = json.loads(levers.data()["pause-namespace.shop"])
    assert kept.keys() == {"since", "until", "by"}
    assert f"until {kept['until']}, by {kept['by']}" in said.out


async def test_breaker_without_a_verb_shows_it(levers: Levers) -> None:
    """And writes nothing."""
    before = levers.data()
    said = await levers.pull("breaker")
    assert said.code == 0
    assert said.out.splitlines()[0] == "circuit breaker: off"
    assert levers.data() == before


async def test_breaker_flags_before_reset_are_refused(levers: Levers) -> None:
    """They would count for nothing, and the breaker of another cluster would be closed."""
    said = await invoked("breaker", "--context", "other", "reset", "--yes", "--kubeconfig", str(levers.config))
    assert said.code == 2
    assert "write the flags after reset" in said.complaints


async def test_an_open_breaker_tells_what_each_node_would_lose(tmp_path: Path) -> None:
    """By node and taint, with counts against thresholds; the reset counts the same pods."""
    policy = BreakerPolicy(enabled=True, nodes=NodeThreshold(1, None))
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2", "n3", "cp")
        for number, node in enumerate(("n1", "n1", "n2")):
            add_pod(server, f"p{number}", node)
        async with controlling(server, replace(LED, breaker=policy)) as controlled:
            await controlled.until(controlled.application.gate.may_act)
            for node in ("n1", "n2"):
                server.taint(node, KEY)
            await controlled.until(lambda: controlled.application.live.controller.breaker.latch)
            own = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
            server.create("pods", {**own, "status": {**own["status"], "podIP": "127.0.0.1"}})
            it = Levers(server, write_kubeconfig(tmp_path / "config", server), controlled.listen.port)
            said = await it.pull("breaker")
            lines = said.out.splitlines()
            assert lines[0].startswith("the circuit breaker is open (since ")
            assert lines[1].startswith("it opens at more than 1 of the nodes newly tainted")
            rows = [line.split() for line in lines]
            assert ["n1", f"{KEY}:NoExecute", "2", "2", "2"] in rows
            assert ["n2", f"{KEY}:NoExecute", "1", "1", "1"] in rows
            document = json.loads((await it.pull("breaker", "-o", "json")).out)
            assert [each["leaveNow"] for each in document["nodes"]] == [2, 1]
            said = await it.pull("breaker", "reset")
            assert said.code == 2
            assert "3 pods leave now from 2 nodes; no budget would be violated" in said.complaints


async def test_one_node_alone_is_let_go(levers: Levers) -> None:
    """Instead of everything, every other node is paused, in one write: nothing goes in between."""
    said = await levers.pull("resume", "--only", "node/n2", "--yes")
    assert said.code == 0
    assert "1 pod leaves now from 1 node" in said.complaints
    out = said.out.splitlines()
    assert out[0].startswith("all evictions are no longer paused")
    assert out[1] == "evictions from 3 other nodes are paused instead; nodes that join later are not"
    await until(lambda: levers.left() == {"a", "b", "held", "waits", "db-0"})
    assert levers.data().keys() == {"pause-node.n1", "pause-node.n3", "pause-node.cp"}
    assert len(levers.server.requests.select(verb="patch", resource="configmaps")) == 1


async def test_one_namespace_alone_is_let_go(levers: Levers) -> None:
    """Others are paused; that of the controller is one of these."""
    levers.server.create("namespaces", {"metadata": {"name": "shop"}})
    said = await levers.pull("resume", "--only", "-n", "shop", "--yes")
    assert said.code == 0
    assert {key for key in levers.data() if "namespace" in key} >= {
        "pause-namespace.default",
        "pause-namespace.kube-system",
    }
    assert levers.left() == {"a", "b", "c", "held", "waits", "db-0"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--only",), "--only takes what is to go"),
        (("--only", "--all", "node/n2"), "--all ends every pause"),
        (("--only", "node/n2", "namespace/default"), "--only takes nodes or namespaces, not both"),
        (("--only", "node/n22"), "there is no node n22 in this cluster; did you mean 'n2'?"),
        (("n2",), "'n2' is neither node/NAME nor namespace/NAME"),
    ],
)
async def test_what_is_to_go_alone_must_be_clear(levers: Levers, words: tuple[str, ...], complaint: str) -> None:
    """A mistyped name would pause everything and let nothing go."""
    before = levers.data()
    said = await levers.pull("resume", *words, "--yes")
    assert said.code == 2
    assert complaint in said.complaints
    assert levers.data() == before


async def test_who_resumes_one_node_of_all_is_told_how(levers: Levers) -> None:
    """The wider pause holds it as well."""
    said = await levers.pull("resume", "node/n2", "--yes")
    assert "all evictions are still paused" in said.out
    assert "to let only that go: taint-eviction resume --only node/n2" in said.complaints


async def test_scopes_are_written_as_kubectl_writes_objects(levers: Levers) -> None:
    """Of pause, too; --all is what is paused without them."""
    at = ("--kubeconfig", str(levers.config))
    assert (await invoked("pause", "node/n1", "ns/shop", "no/n2", *at)).code == 0
    assert {"pause-node.n1", "pause-node.n2", "pause-namespace.shop"} <= levers.data().keys()
    assert "all evictions are already paused" in (await invoked("pause", "--all", *at)).out
    assert (await invoked("pause", "--all", "node/n1", *at)).code == 2
    assert (await invoked("pause", "namespace", "bank", "mill", *at)).code == 0
    assert {"pause-namespace.bank", "pause-namespace.mill"} <= levers.data().keys()


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_kind_without_a_name_is_no_scope(levers: Levers, verb: str) -> None:
    """Least of all everything."""
    before = levers.data()
    for words in (("node",), ("ns/",), ("node", "node/n1")):
        assert (await invoked(verb, *words, "--kubeconfig", str(levers.config))).code == 2
    assert levers.data() == before


async def test_a_resume_that_leaves_pauses_says_how_to_end_them(levers: Levers) -> None:
    """Those of single nodes are not ended by it."""
    said = await levers.pull("resume", "--yes")
    assert "evictions are still paused for node n3" in said.out
    assert said.complaints.endswith("taint-eviction: to end every pause: taint-eviction resume --all\n")
    assert "resume --all" not in (await levers.pull("resume", "--all", "--yes")).complaints


async def test_pauses_that_were_made_together_are_told_together(levers: Levers) -> None:
    """A line each would push everything else off the screen."""
    add_nodes(levers.server, *(f"m{number}" for number in range(20)))
    said = await levers.pull("resume", "--only", "node/n2", "--yes")
    [held] = [line for line in said.out.splitlines() if "still paused" in line and "m0" in line]
    assert held.startswith("evictions are still paused for 22 nodes (cp, m0, m1, …)")
    await until(lambda: "c" not in levers.left())
    status = (await levers.pull("status")).out
    assert "evictions of 22 nodes (cp, m0, m1, …) are paused (since " in status
