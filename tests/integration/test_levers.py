"""Commands that release evictions say where they act, who leads and which pods they release, before they do so."""

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
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.objects import ZONE_LABEL
from taint_eviction.settings import ControlStateSettings, ElectionSettings
from taint_eviction_ctl.cli import releasing
from taint_eviction_ctl.planning.wording import utc

LEASE = ElectionSettings()
SAVE = "save the pods without an owner (kubectl get pod --output yaml), then "
NAME = LEASE.lease_name
LED = replace(QUICK, election=LEASE, control_state=ControlStateSettings(poll_seconds=0.05))


@dataclass
class Levers:
    """A server with a leading controller, and the flags with which commands find them."""

    server: ApiServer
    config: Path
    port: int

    async def pull(self, *words: str) -> CommandResult:
        """Run a command as a person does, without a terminal."""
        return await invoked(*words, "--kubeconfig", str(self.config), "--port", str(self.port))

    def data(self) -> dict[str, str]:
        """The data of the state ConfigMap."""
        found = self.server.get("configmaps", NAME, LEASE.lease_namespace)
        data: dict[str, str] = (found or {}).get("data") or {}
        return data

    def left(self) -> set[str]:
        """The names of the pods that still exist in the default namespace."""
        return {
            pod["metadata"]["name"] for pod in self.server.list("pods") if pod["metadata"]["namespace"] == "default"
        }


@pytest.fixture
async def levers(tmp_path: Path) -> AsyncIterator[Levers]:
    """All evictions are paused, and those of n3 as well; on n1 and n2 four pods are due, one of them with a budget."""
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
        data = {"format": "1", "pause": "true", "pause-node.n3": "true"}
        server.create("configmaps", {"metadata": {"name": NAME, "namespace": LEASE.lease_namespace}, "data": data})
        async with controlling(server, LED) as controlled:
            application = controlled.application
            await controlled.until(application.gate.may_act)
            await controlled.until(lambda: application.engine.live.controller.guards.control_state is not None)
            own = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
            server.create("pods", {**own, "status": {**own["status"], "podIP": "127.0.0.1"}})
            config = write_kubeconfig(tmp_path / "config", server)
            yield Levers(server, config, controlled.listen.port)


async def test_a_resume_without_a_terminal_counts_the_pods_and_needs_yes(levers: Levers) -> None:
    """The output has the numbers of pods and nodes and the violated budget, and nothing is changed."""
    said = await levers.pull("resume")
    assert (said.code, said.out) == (2, "")
    where, leader, going, refused = said.complaints.splitlines()
    assert levers.server.url in where
    assert 'context "' in where
    assert f"leader: {socket.gethostname()} (Lease " in leader
    assert going == (
        "taint-eviction: 4 pods leave now from 2 nodes (4 have no owner and will not come back: default/a, default/b,"
        " default/c, default/db-0), 1 stays held; 1 budget would be violated (default/db)"
    )
    assert "nothing was changed: without a terminal this needs --yes" in refused
    assert "pause" in levers.data()


async def test_a_resume_with_yes_releases_the_pods_that_it_counted(levers: Levers) -> None:
    """The pod of the paused node and the pod that is not due stay."""
    said = await levers.pull("resume", "--yes")
    assert said.code == 0
    await until(lambda: levers.left() == {"held", "waits"})


async def test_a_resume_of_one_node_counts_no_pods_while_everything_is_paused(levers: Levers) -> None:
    """The pause of all evictions still holds the pods of this node."""
    said = await levers.pull("resume", "--node", "n3", "--yes")
    assert "no pod leaves now: 5 stay held although due" in said.complaints
    assert "all evictions are still paused" in said.out


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 1)])
async def test_a_resume_at_a_terminal_asks_for_confirmation(
    levers: Levers, monkeypatch: pytest.MonkeyPatch, answer: bool, code: int
) -> None:
    """If the person does not agree, nothing changes, and the exit code says so."""
    monkeypatch.setattr(releasing, "_is_asked", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: answer)
    said = await levers.pull("resume")
    assert said.code == code
    assert ("pause" in levers.data()) is not answer


async def test_a_resume_ignores_pauses_that_have_ended(levers: Levers) -> None:
    """A pause that has ended stays in the ConfigMap while the leader cannot remove it, and beside a dry run."""
    levers.server.patch(
        "configmaps", NAME, {"data": {"pause-node.n1": '{"until": "2020-01-01T00:00:00Z"}'}}, LEASE.lease_namespace
    )
    levers.server.faults.add(verb="patch", resource="configmaps", status=503)
    said = await levers.pull("resume")
    assert "4 pods leave now from 2 nodes" in said.complaints


async def test_a_resume_that_cannot_count_pods_says_so_and_succeeds_with_yes(levers: Levers) -> None:
    """The user has no right to get pods/proxy, for example."""
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
async def test_a_resume_does_not_wait_long_for_the_pods_and_budgets_that_it_counts(
    levers: Levers, monkeypatch: pytest.MonkeyPatch, resource: str, said: str
) -> None:
    """Slow lists, as of hundreds of namespaces, must not delay an urgent resume."""
    monkeypatch.setattr(releasing, "_MAX_SECONDS", 1.0)
    levers.server.faults.add(resource=resource, hang=True)
    found = await levers.pull("resume", "--yes")
    assert found.code == 0
    assert said in found.complaints
    assert "pause" not in levers.data()


async def test_a_pause_is_written_although_the_lease_cannot_be_read(levers: Levers) -> None:
    """A pause needs no confirmation, and it may have an end."""
    levers.server.faults.add(resource="leases", verb="get", status=403)
    said = await invoked("pause", "-n", "shop", "--for", "30m", "--kubeconfig", str(levers.config))
    assert said.code == 0
    assert "which replica leads is not known" in said.complaints
    kept = json.loads(levers.data()["pause-namespace.shop"])
    assert kept.keys() == {"since", "until", "by"}
    assert f"until {utc(kept['until'])}, by {kept['by']}" in said.out


async def test_breaker_without_a_verb_shows_the_breaker(levers: Levers) -> None:
    """The command writes nothing."""
    before = levers.data()
    said = await levers.pull("breaker")
    assert said.code == 0
    assert said.out.splitlines()[0] == "circuit breaker: off"
    assert levers.data() == before


async def test_a_reset_of_a_closed_breaker_writes_nothing(levers: Levers) -> None:
    """It needs no --yes, and what the breaker has counted so far still counts."""
    before = levers.data()
    said = await levers.pull("breaker", "reset")
    assert (said.code, said.out) == (0, "the circuit breaker is closed: nothing to do\n")
    assert levers.data() == before


async def test_flags_between_breaker_and_reset_count_for_reset(levers: Levers) -> None:
    """They say which cluster is meant, so the breaker of another one is not reset."""
    said = await invoked("breaker", "--context", "other", "reset", "--yes", "--kubeconfig", str(levers.config))
    assert said.code == 2
    assert 'there is no context "other"' in said.complaints


async def test_an_open_breaker_shows_how_many_pods_each_node_would_lose(tmp_path: Path) -> None:
    """The table has a line per node and taint, and the reset counts the same pods."""
    policy = BreakerPolicy(enabled=True, nodes=NodeThreshold(1, None))
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1", "n2", "n3", "cp")
        for number, node in enumerate(("n1", "n1", "n2")):
            add_pod(server, f"p{number}", node)
        async with controlling(server, replace(LED, breaker=policy)) as controlled:
            await controlled.until(controlled.application.gate.may_act)
            for node in ("n1", "n2"):
                server.taint(node, KEY)
            await controlled.until(lambda: controlled.application.engine.live.controller.breaker.latch)
            own = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
            server.create("pods", {**own, "status": {**own["status"], "podIP": "127.0.0.1"}})
            it = Levers(server, write_kubeconfig(tmp_path / "config", server), controlled.listen.port)
            said = await it.pull("breaker")
            lines = said.out.splitlines()
            assert lines[0].startswith("circuit breaker: OPEN since ")
            assert lines[0].endswith(": 2 of 4 nodes newly tainted within 300 s, more than 1")
            assert lines[1].split() == ["tainted", "2", "of", "4", "50", "%", "opens", "above", "1", "OPEN"]
            rows = [line.split() for line in lines]
            assert ["n1", f"{KEY}:NoExecute", "2", "2", "2"] in rows
            assert ["n2", f"{KEY}:NoExecute", "1", "1", "1"] in rows
            assert said.complaints.startswith(f"taint-eviction: asking {it.server.url} (")
            document = json.loads((await it.pull("breaker", "-o", "json")).out)
            assert [each["leaveNow"] for each in document["nodes"]] == [2, 1]
            said = await it.pull("breaker", "reset")
            assert said.code == 2
            assert said.complaints.startswith(f"taint-eviction: acting on {it.server.url} (")
            named = "default/p0, default/p1, default/p2"
            assert (
                f"3 pods leave now from 2 nodes (3 have no owner and will not come back: {named});" in said.complaints
            )
            said = await it.pull("resume", "node/n1", "--dry-run")
            assert said.out == (
                "if the circuit breaker were reset and only node/n1 were let go, 2 pods would leave now from 1 node"
                " (2 have no owner and will not come back: default/p0, default/p1), 1 would stay held; no budget"
                " would be violated\n"
            )
            assert said.complaints.splitlines()[-1] == (
                f"taint-eviction: nothing was changed; to do it: {SAVE}taint-eviction pause,"
                " then taint-eviction breaker reset, then taint-eviction resume --only node/n1"
            )
            assert (said.code, it.left()) == (0, {"p0", "p1", "p2"})
            said = await it.pull("resume", "--dry-run")
            assert said.out.startswith("if the circuit breaker were reset, 3 pods would leave now from 2 nodes (3 have")
            assert said.complaints.endswith(f"to do it: {SAVE}taint-eviction breaker reset\n")


async def test_resume_only_releases_one_node(levers: Levers) -> None:
    """All other nodes are paused in the same write, so none of their pods is evicted in between."""
    said = await levers.pull("resume", "--only", "node/n2", "--yes")
    assert said.code == 0
    assert "1 pod leaves now from 1 node" in said.complaints
    out = said.out.splitlines()
    assert out[0].startswith("all evictions are no longer paused")
    assert out[1] == "evictions from 3 other nodes are paused instead; nodes that join later are not"
    await until(lambda: levers.left() == {"a", "b", "held", "waits", "db-0"})
    assert levers.data().keys() == {"format", "pause-node.n1", "pause-node.n3", "pause-node.cp"}
    assert len(levers.server.requests.select(verb="patch", resource="configmaps")) == 1


async def test_resume_only_a_namespace_pauses_the_others(levers: Levers) -> None:
    """The controller's own namespace is one of those that are paused."""
    levers.server.create("namespaces", {"metadata": {"name": "shop"}})
    said = await levers.pull("resume", "--only", "-n", "shop", "--yes")
    assert said.code == 0
    assert {key for key in levers.data() if "namespace" in key} >= {
        "pause-namespace.default",
        "pause-namespace.kube-system",
    }
    assert levers.left() == {"a", "b", "c", "held", "waits", "db-0"}


def set_zones(levers: Levers) -> None:
    """Put n1 into zone a, n2 into zone b, and n3 into zone c; cp has no zone."""
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "c")):
        levers.server.patch("nodes", name, {"metadata": {"labels": {ZONE_LABEL: zone}}})


async def test_zones_are_released_one_after_the_other(levers: Levers) -> None:
    """All nodes outside of the zone are paused in the same write, by one pause of labels."""
    set_zones(levers)
    said = await levers.pull("resume", "--only", "zone/b", "--yes")
    assert said.code == 0
    assert (
        "1 pod leaves now from 1 node (1 has no owner and will not come back: default/c), 4 stay held"
        in said.complaints
    )
    out = said.out.splitlines()
    assert out[0].startswith("all evictions are no longer paused")
    assert out[1] == "evictions from nodes outside of zone b are paused instead, also from those that join later"
    assert out[2].startswith("evictions are still paused for nodes outside of zone b (since ")
    await until(lambda: "c" not in levers.left())
    [key] = [key for key in levers.data() if key.startswith("pause-selector.")]
    assert json.loads(levers.data()[key])["selector"] == f"{ZONE_LABEL} notin (b)"
    assert levers.data().keys() == {"format", "pause-node.n3", key}
    assert levers.data()["format"] == "2"
    assert len(levers.server.requests.select(verb="patch", resource="configmaps")) == 1
    assert "evictions of nodes outside of zone b are paused (since " in (await levers.pull("status")).out
    refused = await levers.pull("resume", "--only", "zone/a", "--yes")
    assert (refused.code, refused.complaints.splitlines()[-1]) == (
        2,
        "taint-eviction: no pause ends by that (paused: evictions from nodes outside of zone b,"
        " evictions from node n3); to let zone/a go besides zone/b: taint-eviction resume --only zone/b zone/a",
    )
    said = await levers.pull("resume", "--only", "zone/a", "zone/b", "--yes")
    named = "default/a, default/b, default/db-0"
    assert f"3 pods leave now from 1 node (3 have no owner and will not come back: {named}), 1 stays held" in (
        said.complaints
    )
    assert said.out.splitlines()[0].startswith("evictions are no longer paused for nodes outside of zone b (since ")
    await until(lambda: levers.left() == {"held", "waits"})
    selectors = [json.loads(value)["selector"] for key, value in levers.data().items() if "selector" in key]
    assert selectors == [f"{ZONE_LABEL} notin (a,b)"]


async def after_zone_b(levers: Levers) -> None:
    """Let zone b go: all nodes outside of it are paused, among them those of zone a."""
    set_zones(levers)
    assert (await levers.pull("resume", "--only", "zone/b", "--yes")).code == 0
    await until(lambda: "c" not in levers.left())


async def test_a_dry_run_of_a_further_zone_counts_it_besides_those_that_leave_already(levers: Levers) -> None:
    """The pause of all nodes outside of these would hold it; the command names both zones."""
    await after_zone_b(levers)
    said = await levers.pull("resume", "zone/a", "--dry-run")
    assert (said.code, said.out.partition(" (3 have")[0]) == (
        0,
        "if zone/a were let go besides zone/b, 3 pods would leave now from 1 node",
    )
    does, rest = said.complaints.splitlines()[-2:]
    assert does.endswith(f"nothing was changed; to do it: {SAVE}taint-eviction resume --only zone/b zone/a")
    assert rest == (
        "taint-eviction: all other nodes stay paused, also those without the label; to end that instead: taint-eviction"
        f" resume -l '{ZONE_LABEL} notin (b)'"
    )


async def test_a_dry_run_refuses_what_the_resume_refuses(levers: Levers) -> None:
    """Both name the command that does it."""
    await after_zone_b(levers)
    before = levers.data()
    for more in ((), ("--dry-run",)):
        said = await levers.pull("resume", "--only", "zone/a", "--yes", *more)
        does = " ".join(("taint-eviction resume --only zone/b zone/a", *more))
        assert (said.code, said.out) == (2, "")
        assert said.complaints.endswith(f"to let zone/a go besides zone/b: {does}\n")
    said = await levers.pull("resume", "--only", "node/n3", "--yes", "--dry-run")
    assert (said.code, said.out) == (2, "")
    assert said.complaints.endswith("; to let node/n3 go: taint-eviction resume node/n3 --dry-run\n")
    assert levers.data() == before


async def test_a_resume_of_a_zone_that_an_earlier_step_holds_fails_and_says_what_holds_it(levers: Levers) -> None:
    """The zone has no pause of its own, so nothing would end; its pods are held all the same."""
    await after_zone_b(levers)
    before = levers.data()
    said = await levers.pull("resume", "zone/a", "--yes")
    assert (said.code, said.out) == (2, "")
    own, holds, n3, does = said.complaints.splitlines()[2:]
    assert own == "taint-eviction: evictions from nodes in zone a have no pause of their own"
    assert holds.startswith("taint-eviction: evictions are paused for nodes outside of zone b (since ")
    assert n3 == "taint-eviction: evictions are paused for node n3"
    assert does == (
        "taint-eviction: nothing was changed; to let them go, too: taint-eviction resume --only zone/b zone/a"
    )
    assert levers.data() == before


async def test_the_end_of_a_zones_own_pause_says_that_an_earlier_step_holds_it(levers: Levers) -> None:
    """Two pauses held it; the command that ends the other one is named."""
    await after_zone_b(levers)
    await invoked("pause", "zone/a", "--kubeconfig", str(levers.config))
    said = await levers.pull("resume", "zone/a", "--yes")
    assert (said.code, said.out.partition(" (since")[0]) == (0, "evictions are no longer paused for nodes in zone a")
    assert said.complaints.endswith("to release them, too: taint-eviction resume --only zone/b zone/a\n")


async def test_after_a_second_pause_of_all_only_the_named_zone_goes(levers: Levers) -> None:
    """The pause that an earlier step left ends, too, or it would hold the zone; the later end counts for the others."""
    await after_zone_b(levers)
    await invoked("pause", "--for", "1h", "--kubeconfig", str(levers.config))
    said = await levers.pull("resume", "zone/a", "--dry-run")
    assert said.out.startswith("if only zone/a were let go, 3 pods would leave now from 1 node")
    assert said.complaints.endswith(f"to do it: {SAVE}taint-eviction resume --only zone/a\n")
    assert (await levers.pull("resume", "--only", "zone/a", "--yes")).code == 0
    await until(lambda: levers.left() == {"held", "waits"})
    [pause] = [json.loads(value) for key, value in levers.data().items() if key.startswith("pause-selector.")]
    assert (pause["selector"], "until" in pause) == (f"{ZONE_LABEL} notin (a)", False)


async def test_a_bare_dry_run_says_which_pauses_stay_and_how_to_end_them(levers: Levers) -> None:
    """As the command without --dry-run does."""
    await after_zone_b(levers)
    said = await levers.pull("resume", "--dry-run")
    assert (said.code, said.out) == (0, "no pod leaves now: 4 stay held although due\n")
    outside, n3, every = said.complaints.splitlines()[2:]
    assert outside.startswith("taint-eviction: evictions are paused for nodes outside of zone b (since ")
    assert n3 == "taint-eviction: evictions are paused for node n3"
    assert every == "taint-eviction: to end every pause: taint-eviction resume --all"


async def test_a_dry_run_of_the_end_of_all_pauses_names_them(levers: Levers) -> None:
    """Somebody else may have ordered one of them; the document for programs has them, too."""
    await after_zone_b(levers)
    said = await levers.pull("resume", "--all", "--dry-run")
    ends, outside, n3, fewer, does = said.complaints.splitlines()[2:]
    assert ends == "taint-eviction: this ends 2 pauses:"
    assert outside.startswith("taint-eviction: evictions are paused for nodes outside of zone b (since ")
    assert n3 == "taint-eviction: evictions are paused for node n3"
    selector = f"-l '{ZONE_LABEL} notin (b)'"
    assert fewer == f"taint-eviction: to end fewer, leave out those that stay: taint-eviction resume {selector} node/n3"
    assert does.endswith("taint-eviction resume --all")
    document = json.loads((await levers.pull("resume", "--all", "--dry-run", "-o", "json")).out)
    assert [(each["scope"], each["name"]) for each in document["endsPauses"]] == [
        ("selector", f"{ZONE_LABEL} notin (b)"),
        ("node", "n3"),
    ]


@pytest.mark.parametrize(
    ("words", "supposed", "counts", "does"),
    [
        (("zone/b",), "only zone/b were let go", "1 pod would leave now from 1 node", "resume --only zone/b"),
        (("--only", "zone/b"), "only zone/b were let go", "1 pod would leave now from 1 node", "resume --only zone/b"),
        (("n1", "n2"), "only node/n1 and node/n2 were let go", "4 pods would leave", "resume --only node/n1 node/n2"),
        ((), "the pause of all evictions were ended", "4 pods would leave now from 2 nodes", "resume"),
        (("--all",), "every pause were ended", "5 pods would leave now from 3 nodes", "resume --all"),
    ],
)
async def test_a_dry_run_of_a_resume_counts_as_the_resume_does_and_writes_nothing(
    levers: Levers, words: tuple[str, ...], supposed: str, counts: str, does: str
) -> None:
    """It needs neither a terminal nor --yes, and names the command that does it."""
    set_zones(levers)
    before = levers.data()
    said = await levers.pull("resume", *(f"node/{word}" if word[0] == "n" else word for word in words), "--dry-run")
    assert said.code == 0
    assert said.out.startswith(f"if {supposed}, {counts}")
    assert said.complaints.startswith(f"taint-eviction: asking {levers.server.url} (")
    assert (
        said.complaints.splitlines()[-1]
        == f"taint-eviction: nothing was changed; to do it: {SAVE}taint-eviction {does}"
    )
    assert levers.data() == before
    assert levers.left() == {"a", "b", "c", "held", "waits", "db-0"}


async def test_a_dry_run_of_a_resume_is_a_document_for_programs(levers: Levers) -> None:
    """It has what the sentence has, and all pods."""
    said = await levers.pull("resume", "node/n1", "--dry-run", "-o", "json")
    document = json.loads(said.out)
    assert (said.code, document["kind"], document["leading"]) == (0, "Release", True)
    assert document["supposing"] == "only node/n1 were let go"
    assert [document[name] for name in ("pods", "nodes", "stillHeld", "withoutOwner")] == [3, 1, 2, 3]
    assert document["violatedBudgets"] == [{"namespace": "default", "name": "db"}]
    assert document["commands"] == ["taint-eviction resume --only node/n1"]
    assert {(row["name"], row["node"], row["owner"]) for row in document["pending"]} == {
        ("a", "n1", None),
        ("b", "n1", None),
        ("db-0", "n1", None),
    }


async def test_a_dry_run_of_a_node_with_its_own_pause_names_the_end_of_that_pause(levers: Levers) -> None:
    """While nothing else is paused, --only would pause all other nodes."""
    await levers.pull("resume", "--yes")
    await until(lambda: levers.left() == {"held", "waits"})
    said = await levers.pull("resume", "node/n3", "--dry-run")
    assert said.out.startswith("if only node/n3 were let go, 1 pod would leave now from 1 node")
    assert said.complaints.endswith(f"to do it: {SAVE}taint-eviction resume node/n3\n")


async def test_a_dry_run_of_what_nothing_holds_names_no_command(levers: Levers) -> None:
    """Its pods have left."""
    await levers.pull("resume", "--yes")
    await until(lambda: levers.left() == {"held", "waits"})
    said = await levers.pull("resume", "node/n1", "--dry-run")
    assert said.out == "if only node/n1 were let go, no pod would leave now: 1 would stay held although due\n"
    assert "nothing was changed" not in said.complaints


async def test_a_dry_run_that_cannot_count_pods_fails_with_the_reason(levers: Levers) -> None:
    """Its only purpose is the number."""
    levers.server.faults.add(resource="pods/proxy", status=403)
    said = await levers.pull("resume", "--dry-run")
    assert (said.code, said.out) == (3, "")
    assert "how many pods would leave is not known: " in said.complaints.splitlines()[-1]


async def test_a_resume_of_a_zone_suggests_how_to_release_only_that(levers: Levers) -> None:
    """The suggestion can be given to a shell as it is."""
    set_zones(levers)
    said = await levers.pull("resume", "zone/a", "-l", "pool in (gpu,web)", "--yes")
    assert "to release only that: taint-eviction resume --only zone/a -l 'pool in (gpu,web)'" in said.complaints


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--only",), "--only needs what to release"),
        (("-o", "json", "--yes"), "-o goes with --dry-run"),
        (("--only", "--all", "node/n2"), "--all ends every pause"),
        (
            ("--only", "node/n2", "namespace/default"),
            "--only takes nodes by name, nodes by label (zone/NAME, -l) or namespaces",
        ),
        (("--dry-run", "node/n2", "namespace/default"), "--dry-run takes nodes by name, nodes by label"),
        (("--dry-run", "-l", ""), "-l '' matches all nodes: to release them all, leave -l out"),
        (("--dry-run", "node/n22"), "there is no node n22 in this cluster; did you mean 'n2'?"),
        (("--only", "node/n22"), "there is no node n22 in this cluster; did you mean 'n2'?"),
        (("--only", "zone/b"), "there are no nodes in zone b in this cluster"),
        (("n2",), "'n2' is none of node/NAME, zone/NAME and namespace/NAME"),
    ],
)
async def test_wrong_arguments_of_resume_only_are_refused(
    levers: Levers, words: tuple[str, ...], complaint: str
) -> None:
    """A mistyped name would pause everything and release nothing."""
    before = levers.data()
    said = await levers.pull("resume", *words, "--yes")
    assert said.code == 2
    assert complaint in said.complaints
    assert levers.data() == before


async def test_a_resume_of_one_node_suggests_only_while_everything_is_paused(levers: Levers) -> None:
    """The pause of all evictions also holds the pods of this node."""
    said = await levers.pull("resume", "node/n2", "--yes")
    assert "all evictions are still paused" in said.out
    assert "to release only that: taint-eviction resume --only node/n2" in said.complaints


async def test_pause_takes_nodes_and_namespaces_as_kubectl_does(levers: Levers) -> None:
    """--all stands for the pause of all evictions, and goes with no node or namespace."""
    at = ("--kubeconfig", str(levers.config))
    assert (await invoked("pause", "node/n1", "ns/shop", "no/n2", *at)).code == 0
    assert {"pause-node.n1", "pause-node.n2", "pause-namespace.shop"} <= levers.data().keys()
    assert "all evictions are already paused" in (await invoked("pause", "--all", *at)).out
    assert (await invoked("pause", "--all", "node/n1", *at)).code == 2
    assert (await invoked("pause", "namespace", "bank", "mill", *at)).code == 0
    assert {"pause-namespace.bank", "pause-namespace.mill"} <= levers.data().keys()


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_kind_without_a_name_is_refused(levers: Levers, verb: str) -> None:
    """It must not be understood as everything."""
    before = levers.data()
    for words in (("node",), ("ns/",), ("node", "node/n1")):
        assert (await invoked(verb, *words, "--kubeconfig", str(levers.config))).code == 2
    assert levers.data() == before


async def test_a_resume_that_leaves_pauses_says_how_to_end_them(levers: Levers) -> None:
    """A resume without arguments does not end the pauses of nodes."""
    said = await levers.pull("resume", "--yes")
    assert "evictions are still paused for node n3" in said.out
    assert said.complaints.endswith("taint-eviction: to end every pause: taint-eviction resume --all\n")
    assert "resume --all" not in (await levers.pull("resume", "--all", "--yes")).complaints


async def test_pauses_made_together_are_shown_in_one_line(levers: Levers) -> None:
    """One line per pause would fill the screen."""
    add_nodes(levers.server, *(f"m{number}" for number in range(20)))
    said = await levers.pull("resume", "--only", "node/n2", "--yes")
    [held] = [line for line in said.out.splitlines() if "still paused" in line and "m0" in line]
    assert held.startswith("evictions are still paused for 22 nodes (cp, m0, m1, …)")
    await until(lambda: "c" not in levers.left())
    status = (await levers.pull("status")).out
    assert "evictions of 22 nodes (cp, m0, m1, …) are paused (since " in status
    said = await levers.pull("resume", "--all", "--yes")
    assert "evictions are no longer paused for 22 nodes (cp, m0, m1, …) (since " in said.out
    assert "m7" not in said.out
