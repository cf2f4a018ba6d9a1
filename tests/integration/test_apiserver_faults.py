"""The embedded API server: the request log, injected faults and outages."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from apiserver_client import LEASES, NODES, PODS, add_node, add_pod, serving
from tests.stage.waiting import now

from fake_apiserver import ApiServer, Fault


async def test_requests_are_recorded_in_kubernetes_terms() -> None:
    """The log has verb, resource with subresource, namespace, name, query, code, user agent and the body of a write."""
    async with serving() as (server, api):
        add_pod(server)
        patch = {"status": {"message": "x"}}
        await api.patch(f"{PODS}/p1/status", patch, headers={"User-Agent": "me/1"}, params={"fieldManager": "m"})
        [entry] = server.requests.select(verb="patch")
        assert (entry.resource, entry.namespace, entry.name, entry.code) == ("pods/status", "default", "p1", 200)
        assert (entry.user_agent, entry.query, entry.body) == ("me/1", {"fieldManager": "m"}, patch)
        assert server.requests.counts["patch", "pods/status", 200] == 1


async def test_the_request_log_distinguishes_the_verbs() -> None:
    """The verbs are list, watch, get, create, delete and deletecollection."""
    async with serving() as (server, api):
        add_pod(server)
        await api.get(PODS)
        await api.get(f"{PODS}/p1")
        await api.delete(f"{PODS}/p1")
        await api.delete(PODS)
        async with api.watch(PODS):
            pass
        await api.post(f"{PODS}/p1/eviction", {})
        seen = [(entry.verb, entry.resource) for entry in server.requests.entries]
        assert seen == [
            ("list", "pods"), ("get", "pods"), ("delete", "pods"), ("deletecollection", "pods"), ("watch", "pods"),
            ("create", "pods/eviction"),
        ]  # fmt: skip


async def test_the_log_is_bounded() -> None:
    """The oldest entries are dropped first; the counts include them."""
    async with serving() as (server, api):
        server.requests.limit = 2
        for _ in range(3):
            await api.get(NODES)
        assert [entry.number for entry in server.requests.entries] == [2, 3]
        assert server.requests.counts["list", "nodes", 200] == 3


async def test_answers_can_be_subscribed_to() -> None:
    """A subscriber gets each request once, when it is answered, until the subscription ends."""
    async with serving() as (server, api):
        seen: list[int | None] = []
        end = server.requests.subscribe(lambda entry: seen.append(entry.code))
        await api.get(NODES)
        end()
        await api.get(NODES)
        assert seen == [200]


async def test_a_fault_before_the_effect_answers_the_request_and_changes_nothing() -> None:
    """The fault has its own headers, and applies to as many requests as it was added for."""
    async with serving() as (server, api):
        add_pod(server)
        fault = server.faults.add(
            Fault(verb="delete", resource="pods", status=429, times=2, headers={"Retry-After": "7"})
        )
        codes = []
        for _ in range(3):
            answer = await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 0})
            codes.append(answer.code)
            if len(codes) < 3:
                assert (answer.headers["Retry-After"], answer.body["reason"]) == ("7", "TooManyRequests")
                assert server.get("pods", "p1") is not None
        assert (codes, fault.hits) == ([429, 429, 200], 2)


async def test_a_fault_can_answer_in_plain_text() -> None:
    """API Priority and Fairness answers its 429 in plain text."""
    async with serving() as (server, api):
        server.faults.add(status=429, plain_text=True, headers={"Retry-After": "1"})
        refused = await api.get(NODES)
        assert (refused.code, refused.body) == (429, "Too many requests, please try again later.\n")
        assert refused.headers["Retry-After"] == "1"


async def test_a_fault_with_a_probability_repeats_with_the_seed() -> None:
    """With the same seed, the fault applies to the same requests."""
    runs = []
    for _ in range(2):
        async with serving() as (server, api):
            server.faults.add(status=500, probability=0.5)
            runs.append([(await api.get(NODES)).code for _ in range(20)])
    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 500}


async def test_a_fault_after_the_effect_loses_only_the_answer() -> None:
    """The client gets a 500 although the pod is deleted."""
    async with serving() as (server, api):
        add_pod(server)
        server.faults.add(verb="delete", when="after", status=500, times=1)
        assert (await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 0})).code == 500
        assert server.get("pods", "p1") is None


@pytest.mark.parametrize(("when", "remains"), [("before", True), ("after", False)])
async def test_a_reset_breaks_the_connection_before_or_after_the_effect(when: str, remains: bool) -> None:
    """The client cannot know whether its deletion had an effect."""
    async with serving() as (server, api):
        add_node(server)
        server.faults.add(verb="delete", reset=True, when=when)
        with pytest.raises(aiohttp.ClientError):
            await api.delete(f"{NODES}/n1")
        assert (server.get("nodes", "n1") is not None) == remains


async def test_a_hanging_request_is_never_answered() -> None:
    """The request is in the log without a code."""
    async with serving() as (server, api):
        server.faults.add(verb="list", hang=True)
        asking = asyncio.create_task(api.get(NODES))
        await server.requests.wait_for(verb="list")
        done, _ = await asyncio.wait([asking], timeout=0.05)
        assert not done
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert [entry.code for entry in server.requests.select(verb="list")] == [None]


async def test_a_fault_with_only_a_delay_leaves_the_answer_as_it_is() -> None:
    """The usual answer comes later."""
    async with serving() as (server, api):
        server.faults.add(path="/api/v1/nodes$", delay_seconds=0.05)
        started = now()
        assert (await api.get(NODES)).code == 200
        assert now() - started >= 0.05


async def test_faults_match_by_the_content_of_a_request() -> None:
    """A fault may match by resource, subresource, node and user agent; other requests are answered as usual."""
    async with serving() as (server, api):
        add_pod(server, "p1", "n1")
        add_pod(server, "p2", "n2")
        server.faults.add(resource="pods", node="n1", status=503)
        assert (await api.get(f"{PODS}/p1")).code == 503
        assert (await api.get(f"{PODS}/p2")).code == 200
        assert (await api.get(PODS, fieldSelector="spec.nodeName=n1")).code == 503
        server.faults.clear()
        server.faults.add(resource="pods/*", user_agent="^bad/", status=500)
        bad = {"User-Agent": "bad/1"}
        assert (await api.patch(f"{PODS}/p1/status", {}, headers=bad)).code == 500
        assert (await api.patch(f"{PODS}/p1/status", {})).code == 200
        assert (await api.request("GET", f"{PODS}/p1", headers=bad)).code == 200


async def test_a_fault_can_refuse_a_watch_request() -> None:
    """Faults apply to watches as to other requests."""
    async with serving() as (server, api):
        server.faults.add(verb="watch", status=403, times=1)
        assert (await api.get(NODES, watch="true")).code == 403


async def test_after_an_outage_the_server_has_the_same_port_and_the_same_objects() -> None:
    """During the outage connections are refused, and open watches break."""
    async with serving() as (server, api):
        add_node(server)
        async with api.watch(NODES) as stream:
            await stream.next()
            await server.stop()
            with pytest.raises(aiohttp.ClientError):
                await stream.line()
        with pytest.raises(aiohttp.ClientConnectionError):
            await api.get(NODES)
        port = server.port
        await server.start()
        assert server.port == port
        assert (await api.get(NODES)).names == ["n1"]


async def test_a_restart_without_history_sends_410_for_old_versions() -> None:
    """A restored etcd has no history, either; with history the watch continues."""
    async with serving() as (server, api):
        version = (await api.get(NODES)).body["metadata"]["resourceVersion"]
        add_node(server)
        await server.restart()
        async with api.watch(NODES, resourceVersion=version) as stream:
            assert (await stream.next())[0] == "ADDED"
        await server.restart(keep_history=False)
        async with api.watch(NODES, resourceVersion=version) as stream:
            assert (await stream.next())[1]["code"] == 410


async def test_a_restored_backup_has_the_old_objects_and_newer_versions() -> None:
    """The objects are those of the backup, and the resourceVersion continues to increase."""
    async with serving() as (server, api):
        add_node(server, "old")
        backup = server.store.snapshot()
        server.delete("nodes", "old")
        add_node(server, "new")
        version = server.store.resource_version
        await server.restart(restore=backup)
        listed = await api.get(NODES)
        assert listed.names == ["old"]
        assert int(listed.body["metadata"]["resourceVersion"]) > version


async def test_a_server_that_is_not_ready_answers_503() -> None:
    """All requests get a 503 until the server is ready."""
    async with serving() as (server, api):
        server.ready = False
        assert (await api.get(NODES)).code == 503
        assert (await api.get("/readyz")).code == 500
        server.ready = True
        assert (await api.get(NODES)).code == 200
        assert (await api.get("/readyz")).code == 200


async def test_only_one_of_two_concurrent_updates_of_a_lease_succeeds() -> None:
    """Both updates have the same resourceVersion."""
    async with serving() as (_, api):
        lease = (await api.post(LEASES, {"metadata": {"name": "l"}, "spec": {}})).body
        rivals = [api.put(f"{LEASES}/l", lease | {"spec": {"holderIdentity": who}}) for who in ("a", "b")]
        assert sorted([answer.code for answer in await asyncio.gather(*rivals)]) == [200, 409]


async def test_the_server_can_be_controlled_over_http() -> None:
    """Benchmarks use this to drive a server in another process."""
    async with serving() as (server, api):
        for name in ("n1", "n2"):
            add_node(server, name)
        tainted = await api.post("/_simulation/taint", {"nodes": None, "key": "k"})
        assert tainted.body == {"nodes": 2}
        assert all(node["spec"]["taints"] for node in server.list("nodes"))
        await api.post("/_simulation/untaint", {"nodes": ["n1"], "key": "k"})
        assert "taints" not in (server.get("nodes", "n1") or {})["spec"]
        await api.post("/_simulation/faults", {"verb": "list", "status": 500, "times": 1})
        assert (await api.get(NODES)).code == 500
        stats = (await api.get("/_simulation/stats")).body
        assert stats["objects"]["nodes"] == 2
        assert (await api.post("/_simulation/faults", {"nonsense": 1})).code == 400
        assert (await api.get("/_simulation/nothing")).code == 404


async def test_starting_twice_and_stopping_twice_is_harmless() -> None:
    """Starting and stopping are idempotent."""
    server = ApiServer()
    await server.start()
    await server.start()
    await server.stop()
    await server.stop()
    assert not server.running
