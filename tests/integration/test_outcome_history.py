"""``history`` and ``explain`` for pods that are gone, over HTTP, from the memory of several replicas."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
from test_status import add_guarded_pod
from tests.stage.controlled import QUICK, Controlled, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, tolerates, write_kubeconfig
from tests.stage.processes import invoked
from tests.stage.waiting import free_port, until

from fake_apiserver import ApiServer, pod_object
from taint_eviction.core.policy import EvictionMode, EvictionPolicy
from taint_eviction.reporting.http_port import Address
from taint_eviction.runtime.leadership import Elector
from taint_eviction.settings import ElectionSettings, Settings
from taint_eviction_ctl.cli import history_sources

LEASE = ElectionSettings()
REAL = replace(QUICK, election=LEASE)
DRY_LEASE = "taint-eviction-controller-dry-run"
DRY_RUN = replace(QUICK, dry_run=True, election=replace(LEASE, lease_name=DRY_LEASE))
LABELS = {"app.kubernetes.io/name": "taint-eviction-controller"}


@contextlib.asynccontextmanager
async def cluster(tmp_path: Path, *nodes: str) -> AsyncIterator[tuple[ApiServer, int, tuple[str, ...]]]:
    """Run an API server with these nodes; yield it, the port of its replicas, and the flags that find both."""
    async with ApiServer(seed=1) as server:
        server.admission.default_toleration_seconds = None
        add_nodes(server, *nodes, "cp")
        port = free_port()
        yield server, port, ("--kubeconfig", str(write_kubeconfig(tmp_path / "config", server)), "--port", str(port))


@contextlib.asynccontextmanager
async def replica(server: ApiServer, settings: Settings, host: str, port: int) -> AsyncIterator[Controlled]:
    """Run a replica in its own pod at ``host``."""
    name = "at-" + host.replace(".", "-")
    pod = pod_object(LEASE.lease_namespace, name, "cp", timestamp=server.clock.timestamp())
    labelled = {**pod["metadata"], "labels": LABELS}
    server.create("pods", {**pod, "metadata": labelled, "status": {"phase": "Running", "podIP": host}})
    async with contextlib.AsyncExitStack() as stack:
        with mock.patch("socket.gethostname", return_value=name):
            listen = Address(host, port)
            controlled = await stack.enter_async_context(controlling(server, settings, listen=listen))
        yield controlled


async def listed(*words: str) -> list[dict[str, Any]]:
    """The outcomes that ``history`` lists."""
    said = await invoked("history", "-o", "json", *words)
    assert said.code == 0, said.complaints
    outcomes: list[dict[str, Any]] = json.loads(said.out)["outcomes"]
    return outcomes


async def test_a_pod_without_an_account_beside_replicas_is_not_believed(tmp_path: Path) -> None:
    """A kubelet's credential may create one in any namespace, with any labels, at any address."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, REAL, "127.0.0.1", port) as real:
        server.patch("pods", "at-127-0-0-1", {"spec": {"serviceAccountName": "a"}}, LEASE.lease_namespace)
        pod = pod_object(LEASE.lease_namespace, "mirror", "n1", timestamp=server.clock.timestamp())
        pod["metadata"]["labels"] = LABELS
        server.create("pods", {**pod, "status": {"phase": "Running", "podIP": "127.0.0.3"}})
        await until(real.application.gate.may_act)
        said = await invoked("history", "-o", "json", *flags)
        assert said.code == 0
        assert "mirror" not in said.complaints


async def test_a_dry_run_beside_the_controller_adds_no_evictions_to_its_answers(tmp_path: Path) -> None:
    """The dry run's evictions are shown only if the dry run itself is asked, and are marked as such."""
    async with cluster(tmp_path, "n1") as (server, port, flags):
        # Only the controller asks the budget; the dry run does not.
        blocked = replace(REAL, policy=EvictionPolicy(EvictionMode.EVICT))
        async with (
            replica(server, blocked, "127.0.0.1", port) as real,
            replica(server, DRY_RUN, "127.0.0.2", port) as dry,
        ):
            await until(lambda: real.application.gate.may_act() and dry.application.gate.may_act())
            server.taint("n1", KEY)
            add_guarded_pod(server, "leaves", "n1")
            at_dry_run = ("--server", f"http://{dry.listen}")

            async def both_remember() -> bool:
                return len(await listed(*at_dry_run)) == len(await listed(*flags)) == 1

            await until(both_remember)
            [told] = await listed(*flags)
            assert (told["outcome"], told["dryRun"]) == ("blocked", False)
            server.delete("pods", "leaves", grace_period_seconds=0)
            await until(lambda: real.application.engine.live.controller.status.pending_count() == 0)
            [told] = await listed(*flags)
            # Which of the two it is depends on whether the watch or the retry is first.
            assert (told["outcome"] in {"deleted", "gone"}, told["dryRun"]) == (True, False)
            explained = await invoked("explain", "default/leaves", *flags)
            assert "was evicted" not in explained.out
            assert " (this replica " in explained.out
            said = await invoked("history", *flags)
            assert "is a dry run: --lease-name or --server asks it" in said.complaints
            for words in (at_dry_run, (*flags, "--lease-name", DRY_LEASE)):
                assert [(each["outcome"], each["dryRun"]) for each in await listed(*words)] == [("evicted", True)]
                assert "evicted (dry run)" in (await invoked("history", *words)).out
                of_dry_run = (await invoked("explain", "default/leaves", *words)).out
                assert "default/leaves would have been evicted (according to a dry run) from node n1" in of_dry_run
                status = json.loads((await invoked("status", *words, "-o", "json")).out)
                assert (status["dryRun"], status["evictedLately"]["total"]) == (True, 1)
            assert json.loads((await invoked("status", *flags, "-o", "json")).out)["dryRun"] is False


async def test_since_takes_any_duration(tmp_path: Path) -> None:
    """This includes the longest duration that flags accept; a value that is no duration is wrong usage."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, REAL, "127.0.0.1", port) as leader:
        await until(leader.application.gate.may_act)
        server.taint("n1", KEY)
        add_pod(server, "leaves", "n1")
        await until(lambda: server.get("pods", "leaves") is None)
        for long in ("1h", "277777h"):
            assert [each["name"] for each in await listed(*flags, "--since", long)] == ["leaves"], long
        said = await invoked("history", "--since", "yesterday", *flags)
        assert (said.code, said.out) == (2, "")


async def test_the_html_page_of_history_has_the_outcomes_of_the_same_filters(tmp_path: Path) -> None:
    """The page shows the same outcomes, the filters, and the replica that answered."""
    page = tmp_path / "page.html"
    async with (
        cluster(tmp_path, "n1", "n2") as (server, port, flags),
        replica(server, REAL, "127.0.0.1", port) as leader,
    ):
        await until(leader.application.gate.may_act)
        for name, node in (("leaves", "n1"), ("other", "n2")):
            server.taint(node, KEY)
            add_pod(server, name, node)
        await until(lambda: all(server.get("pods", name) is None for name in ("leaves", "other")))
        said = await invoked("history", *flags, "--node", "n1", "--since", "1h", "--html", str(page))
        assert (said.code, "default/leaves" in said.out) == (0, True)
        text = page.read_text()
        assert ("default/leaves" in text, "default/other" in text) == (True, False)
        assert "<b>Asked:</b> at most 1000 outcomes of node n1 since " in text
        assert "; answered by at-127-0-0-1_" in text


async def test_a_standby_that_becomes_the_leader_remembers_evictions_of_the_leader_before(tmp_path: Path) -> None:
    """It has seen how these pods disappeared, and shows them together with its own evictions."""
    async with cluster(tmp_path, "n1") as (server, port, flags), contextlib.AsyncExitStack() as stack:
        leader = await stack.enter_async_context(replica(server, REAL, "127.0.0.1", port))
        await until(leader.application.gate.may_act)
        standby = await stack.enter_async_context(replica(server, REAL, "127.0.0.2", port))
        server.taint("n1", KEY)
        await standby.watching_pods_of("n1")
        # Both know the pod before it is evicted.
        add_pod(server, "first", "n1", tolerates(1))
        await until(lambda: server.get("pods", "first") is None)
        at_standby = ("--server", f"http://{standby.listen}")

        async def standby_remembers() -> bool:
            return len(await listed(*at_standby)) == 1

        await until(standby_remembers)
        [seen] = await listed(*at_standby)
        assert (seen["outcome"], seen["call"]) in {("deleted", None), ("gone", None)}
        [told] = await listed(*flags)
        assert (told["outcome"], told["call"], told["toldBy"].startswith("at-127-0-0-1")) == (
            "evicted",
            "delete",
            True,
        )
        await leader.end()
        server.delete("pods", "at-127-0-0-1", LEASE.lease_namespace, grace_period_seconds=0)
        await until(standby.application.gate.may_act)
        add_pod(server, "second", "n1")
        await until(lambda: server.get("pods", "second") is None)
        outcomes = [(each["name"], each["outcome"]) for each in await listed(*flags)]
        assert outcomes == [("second", "evicted"), ("first", "evicted")]
        explained = await invoked("explain", "default/first", *flags)
        assert (explained.code, f"taint {KEY}" in explained.out) == (0, True)


async def test_an_outcome_that_only_the_former_leader_saw_comes_from_the_former_leader(tmp_path: Path) -> None:
    """The former leader still runs as a standby, and keeps nothing; the pod was gone before the leader started."""
    forgetful = replace(REAL, keep_history=False)
    async with (
        cluster(tmp_path, "n1") as (server, port, flags),
        replica(server, forgetful, "127.0.0.1", port) as before,
    ):
        await until(before.application.gate.may_act)
        server.taint("n1", KEY)
        add_pod(server, "early", "n1")
        await until(lambda: server.get("pods", "early") is None)
        async with replica(server, forgetful, "127.0.0.2", port) as leader:
            gate = leader.application.gate
            assert isinstance(gate, Elector)
            holder = {"spec": {"holderIdentity": gate.identity}}
            server.patch("leases", LEASE.lease_name, holder, LEASE.lease_namespace)
            await until(lambda: gate.may_act() and not before.application.gate.may_act())
            assert await listed("--server", f"http://{leader.listen}") == []
            [told] = await listed(*flags)
            assert (told["name"], told["outcome"], told["call"]) == ("early", "evicted", "delete")
            assert told["toldBy"].startswith("at-127-0-0-1")
            explained = (await invoked("explain", "default/early", *flags)).out
            assert "default/early was evicted from node n1" in explained
            assert "told by   at-127-0-0-1\n" in explained


async def test_outcomes_outlive_a_rollout(tmp_path: Path) -> None:
    """All replicas are new, and one of them says what a former one has done."""
    async with cluster(tmp_path, "n1") as (server, port, flags):
        async with replica(server, REAL, "127.0.0.1", port) as before:
            await until(before.application.gate.may_act)
            server.taint("n1", KEY)
            add_pod(server, "early", "n1")
            await until(lambda: server.get("pods", "early") is None)
        server.delete("pods", "at-127-0-0-1", LEASE.lease_namespace, grace_period_seconds=0)
        async with replica(server, REAL, "127.0.0.2", port) as after:
            await until(after.application.gate.may_act)

            async def restored() -> bool:
                return len(await listed("--server", f"http://{after.listen}")) == 1

            await until(restored)
            [told] = await listed(*flags)
            assert (told["name"], told["outcome"], told["call"]) == ("early", "evicted", "delete")
            assert told["toldBy"].startswith("at-127-0-0-1")
            explained = (await invoked("explain", "default/early", *flags)).out
            assert "default/early was evicted from node n1" in explained
            assert "told by   at-127-0-0-1, a former replica; kept by at-127-0-0-2\n" in explained
            history = (await invoked("history", "default/early", *flags)).out
            assert re.search(r"at-127-0-0-2: remembers since .* UTC, with what .*-history has\n", history)
            status = json.loads((await invoked("status", *flags, "-o", "json")).out)
            assert status["evictedLately"]["total"] == 1


async def test_a_pod_that_is_terminating_still_says_after_a_rollout_why_it_was_evicted(tmp_path: Path) -> None:
    """The new leader knows only that it is being deleted; what is remembered says the rest."""
    async with cluster(tmp_path, "n1") as (server, port, flags):
        server.kubelets.finish_after_seconds = 60.0
        async with replica(server, REAL, "127.0.0.1", port) as before:
            await until(before.application.gate.may_act)
            server.taint("n1", KEY)
            add_pod(server, "stuck", "n1")
            await until(lambda: before.metric("pod_deletions_total"))
        server.delete("pods", "at-127-0-0-1", LEASE.lease_namespace, grace_period_seconds=0)
        async with replica(server, REAL, "127.0.0.2", port) as after:

            async def restored() -> bool:
                return len(await listed("--server", f"http://{after.listen}")) == 1

            await until(restored)
            await after.watching_pods_of("n1")
            said = await invoked("explain", "default/stuck", *flags)
            assert said.out.startswith("default/stuck was evicted from node n1 at 20")
            assert f"because   taint {KEY}:NoExecute is not tolerated" in said.out
            assert "it has been Terminating for " in said.out
            assert "told by   at-127-0-0-1, a former replica; kept by at-127-0-0-2\n" in said.out


async def test_a_dry_run_keeps_outcomes_of_its_own(tmp_path: Path) -> None:
    """Beside the Lease that it is told to use; without one it leaves nothing behind."""
    async with cluster(tmp_path, "n1") as (server, port, _):
        server.taint("n1", KEY)
        add_pod(server, "leaves", "n1")
        for settings in (replace(DRY_RUN, election=replace(LEASE, enabled=False)), DRY_RUN):
            assert server.list("configmaps") == []
            async with replica(server, settings, "127.0.0.1", port) as dry:
                await until(lambda: dry.application.gate.may_act() and dry.metric("attempts_total", outcome="dry_run"))
            server.delete("pods", "at-127-0-0-1", LEASE.lease_namespace, grace_period_seconds=0)
        [kept] = server.list("configmaps")
        assert (kept["metadata"]["name"], kept["data"]["dryRun"]) == (f"{DRY_LEASE}-history", "true")


async def test_a_lease_that_an_earlier_installation_left_behind_hides_no_dry_run(tmp_path: Path) -> None:
    """Its holder is gone, and its time is over."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, DRY_RUN, "127.0.0.1", port) as dry:
        await until(dry.application.gate.may_act)
        spec = {"holderIdentity": "gone_x", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
        metadata = {"name": LEASE.lease_name, "namespace": LEASE.lease_namespace}
        server.create("leases", {"metadata": metadata, "spec": spec})
        said = await invoked("status", *flags)
        assert (said.code, "dry run" in said.out.splitlines()[0]) == (0, True)


async def test_compare_counts_a_pod_that_was_gone_before_it_was_listed(tmp_path: Path) -> None:
    """Only the built-in controller's event tells of it; a pod that the dry run has followed is compared anyway."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, DRY_RUN, "127.0.0.1", port) as dry:
        await until(dry.application.gate.may_act)
        server.taint("n1", KEY)
        add_pod(server, "followed", "n1")
        await until(lambda: dry.metric("attempts_total", outcome="dry_run"))
        for name in ("followed", "gone"):
            about = {"kind": "Pod", "namespace": "default", "name": name}
            said = {"reason": "TaintManagerEviction", "message": f"Marking for deletion Pod default/{name}"}
            event = {"metadata": {"name": f"{name}.1"}, "involvedObject": about, **said, "type": "Normal"}
            server.create("events", {**event, "lastTimestamp": server.clock.timestamp()})
        compared = await invoked("compare", *flags)
        gone = "1 more pod was gone before the dry run had listed it, marked for deletion by its events: default/gone"
        assert (compared.code, compared.out.splitlines()[-1]) == (0, gone)
        document = json.loads((await invoked("compare", *flags, "-o", "json")).out)
        assert [each["pod"] for each in document["unlisted"]["pods"]] == ["default/gone"]
        server.faults.add(resource="events", status=403)
        compared = await invoked("compare", *flags)
        assert (
            "not checked: which pods were gone before the dry run had listed them: events: not read: " in compared.out
        )
        too_many = ",".join(["default/a"] * 101)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{dry.listen}/compare?pods={too_many}") as answer,
        ):
            assert answer.status == 400


async def test_a_pod_that_both_controllers_evict_is_listed_once(tmp_path: Path) -> None:
    """The built-in controller's events name neither UID nor taint; alone, such an event says that it names none."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, REAL, "127.0.0.1", port) as leader:
        await until(leader.application.gate.may_act)
        server.taint("n1", KEY)
        add_pod(server, "both", "n1")
        await until(lambda: server.get("pods", "both") is None)
        for name in ("both", "unseen"):
            about = {"kind": "Pod", "namespace": "default", "name": name}
            said = {"reason": "TaintManagerEviction", "message": f"Marking for deletion Pod default/{name}"}
            event = {"metadata": {"name": f"{name}.1"}, "involvedObject": about, **said, "type": "Normal"}
            server.create("events", {**event, "lastTimestamp": server.clock.timestamp()})
        told = {each["name"]: each["outcome"] for each in await listed(*flags)}
        assert told == {"both": "evicted", "unseen": "marked"}
        assert len(await listed(*flags)) == 2
        unseen = await invoked("explain", "default/unseen", *flags)
        assert unseen.out.startswith("default/unseen was marked for deletion by another controller (probably the")
        assert "because   not known: the built-in controller's events name no taint" in unseen.out


async def test_an_event_tells_of_pods_of_its_own_namespace_only(tmp_path: Path) -> None:
    """By events.k8s.io a tenant may create events in its namespace about pods of another one."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, REAL, "127.0.0.1", port) as leader:
        await until(leader.application.gate.may_act)
        for namespace in ("default", "tenant"):
            about = {"kind": "Pod", "namespace": "default", "name": f"by-{namespace}", "uid": namespace}
            said = {"reason": "TaintManagerEviction", "message": f"Marking for deletion Pod default/by-{namespace}"}
            metadata = {"name": "marked.1", "namespace": namespace}
            event = {"metadata": metadata, "involvedObject": about, **said, "type": "Normal"}
            server.create("events", {**event, "lastTimestamp": server.clock.timestamp()})
        assert [each["name"] for each in await listed(*flags)] == ["by-default"]


async def test_events_that_tell_nothing_are_read_up_to_the_bound_as_well(tmp_path: Path) -> None:
    """A tenant may create any number of them with the reason that is looked for."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, REAL, "127.0.0.1", port) as leader:
        await until(leader.application.gate.may_act)
        for number in range(6):
            metadata = {"name": f"nothing.{number}", "namespace": "tenant"}
            event = {"metadata": metadata, "reason": "TaintManagerEviction", "message": "nothing", "type": "Normal"}
            server.create("events", {**event, "involvedObject": {"kind": "Pod", "namespace": "tenant", "name": "web"}})
        for most, problem in ((5, "only 5 of them were read"), (7, None)):
            with mock.patch.object(history_sources, "_MAX_EVENTS", most):
                document = json.loads((await invoked("history", "-A", "-o", "json", *flags)).out)
            assert [each["problem"] for each in document["sources"] if each["name"] == "events"] == [problem]


async def test_where_outcomes_cannot_be_kept_evictions_go_on_and_status_says_so(tmp_path: Path) -> None:
    """The right may be missing, as after an update of the image alone."""
    async with cluster(tmp_path, "n1") as (server, port, flags):
        server.faults.add(resource="configmaps", name=f"{LEASE.lease_name}-history", status=403)
        async with replica(server, REAL, "127.0.0.1", port) as leader:
            await until(leader.application.gate.may_act)
            server.taint("n1", KEY)
            add_pod(server, "leaves", "n1")
            await until(lambda: server.get("pods", "leaves") is None)
            await until(lambda: leader.metric("history_writes_total", result="failed"))
            assert "the last outcomes could not be kept for " in (await invoked("status", *flags)).out
            assert leader.metric("history_unkept_seconds") > 0


async def test_why_a_pod_was_evicted_is_known_when_no_replica_answers(tmp_path: Path) -> None:
    """The ConfigMap says it; where that is gone as well, the event does."""
    async with cluster(tmp_path, "n1") as (server, port, flags):
        async with replica(server, REAL, "127.0.0.1", port) as before:
            await until(before.application.gate.may_act)
            server.taint("n1", KEY)
            add_pod(server, "early", "n1")
            await until(lambda: server.get("pods", "early") is None)
        server.delete("pods", "at-127-0-0-1", LEASE.lease_namespace, grace_period_seconds=0)
        [told] = await listed(*flags)
        assert (told["outcome"], told["node"], told["taint"]) == ("evicted", "n1", f"{KEY}:NoExecute")
        said = await invoked("explain", "default/early", *flags)
        assert said.code == 0
        assert said.out.startswith("default/early was evicted from node n1 at 20")
        assert f"because   taint {KEY}:NoExecute is not tolerated" in said.out
        assert f"ConfigMap kube-system/{LEASE.lease_name}-history, written 20" in said.out
        assert ": remembers since 20" in said.out
        server.delete("configmaps", f"{LEASE.lease_name}-history", LEASE.lease_namespace)
        said = await invoked("explain", "default/early", *flags)
        assert said.code == 0
        assert said.out.startswith("default/early was evicted at 20")
        assert f"because   taint {KEY}:NoExecute is not tolerated" in said.out
        assert "events: the oldest found is of 20" in said.out
        server.faults.add(resource="events", status=403)
        said = await invoked("history", *flags)
        assert (said.code, said.out) == (3, "")
        assert "events: not read: " in said.complaints


async def test_times_are_the_last_of_their_kind_and_are_said_back(tmp_path: Path) -> None:
    """03:12 is the last 03:12 UTC; an end before the beginning is wrong usage."""
    async with cluster(tmp_path, "n1") as (server, port, flags), replica(server, REAL, "127.0.0.1", port) as leader:
        await until(leader.application.gate.may_act)
        said = await invoked("history", *flags, "--since", "03:12", "--until", "2126-01-31T14:00:00Z")
        assert (said.code, said.complaints) == (0, "")
        assert re.match(r"since \d{4}-\d\d-\d\d 03:12:00 UTC until 2126-01-31 14:00:00 UTC\n", said.out)
        said = await invoked("history", *flags, "--since", "5m", "--until", "1h")
        assert (said.code, said.out) == (2, "")
        assert " is before since " in said.complaints
        for nonsense in (("--since", "25:00"), ("--until", "3:1"), ("--since", "5m", "--since-time", "03:12")):
            assert (await invoked("history", *flags, *nonsense)).code == 2
