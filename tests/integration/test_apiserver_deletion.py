"""The embedded API server: deletion, grace periods, finalizers, kubelets and pods that come back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from apiserver_client import NODES, PODS, Api, Stream, add_node, add_pod, pod_body, serving


async def _pod_watch(api: Api) -> str:
    version: str = (await api.get(PODS)).body["metadata"]["resourceVersion"]
    return version


async def _until_deleted(stream: Stream) -> dict[str, Any]:
    while True:
        kind, pod = await stream.next()
        if kind == "DELETED":
            return dict(pod)


async def test_a_wrong_uid_is_a_409_and_deletes_nothing() -> None:
    """With the real server's words; the kind stands where the plural usually does."""
    async with serving() as (server, api):
        uid = add_pod(server)
        refused = await api.delete(f"{PODS}/p1", {"preconditions": {"uid": "other"}})
        assert (refused.code, refused.body["reason"]) == (409, "Conflict")
        assert refused.message == (
            'Operation cannot be fulfilled on Pod "p1": the UID in the precondition (other) does not match the UID in '
            f"record ({uid}). The object might have been deleted and then recreated"
        )
        assert "deletionTimestamp" not in (await api.get(f"{PODS}/p1")).body["metadata"]


async def test_a_stale_version_in_the_preconditions_is_a_409() -> None:
    """And the current one is let through."""
    async with serving() as (server, api):
        add_pod(server)
        current = (await api.get(f"{PODS}/p1")).body["metadata"]["resourceVersion"]
        assert (await api.delete(f"{PODS}/p1", {"preconditions": {"resourceVersion": "1"}})).code == 409
        assert (await api.delete(f"{PODS}/p1", {"preconditions": {"resourceVersion": current}})).code == 200


async def test_a_bound_pod_is_deleted_gracefully_and_ended_by_its_kubelet() -> None:
    """200 with the pod, MODIFIED with the deadline, and DELETED when the kubelet is done."""
    async with serving() as (server, api):
        uid = add_pod(server)
        async with api.watch(PODS, resourceVersion=await _pod_watch(api)) as stream:
            answer = await api.delete(f"{PODS}/p1", {"preconditions": {"uid": uid}})
            metadata = answer.body["metadata"]
            assert (answer.code, answer.body["kind"]) == (200, "Pod")
            assert metadata["deletionGracePeriodSeconds"] == 30
            until = datetime.fromisoformat(metadata["deletionTimestamp"]) - server.clock.now()
            assert timedelta(0) < until <= timedelta(seconds=30)
            kind, pod = await stream.next()
            assert (kind, pod["metadata"]["deletionTimestamp"]) == ("MODIFIED", metadata["deletionTimestamp"])
            await _until_deleted(stream)
        assert (await api.get(f"{PODS}/p1")).code == 404


@pytest.mark.parametrize("how", ["body", "query"])
async def test_grace_zero_deletes_at_once(how: str) -> None:
    """In the body or in the query."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.freeze("n1")
        options: dict[str, Any] = {"body": {"gracePeriodSeconds": 0}} if how == "body" else {}
        query = {"gracePeriodSeconds": "0"} if how == "query" else {}
        assert (await api.delete(f"{PODS}/p1", params=query, **options)).code == 200
        assert (await api.get(f"{PODS}/p1")).code == 404


@pytest.mark.parametrize(("node", "phase"), [("", "Pending"), ("n1", "Succeeded"), ("n1", "Failed")])
async def test_pods_that_no_kubelet_runs_are_deleted_at_once(node: str, phase: str) -> None:
    """Unbound and finished pods have nothing to wait for."""
    async with serving() as (server, api):
        server.kubelets.freeze("n1")
        add_pod(server, "p1", node)
        server.patch("pods", "p1", {"status": {"phase": phase}})
        assert (await api.delete(f"{PODS}/p1")).code == 200
        assert (await api.get(f"{PODS}/p1")).code == 404


async def test_a_second_delete_changes_nothing_unless_it_is_shorter() -> None:
    """200 both times; only a shorter grace period counts, from the first deletion on."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.freeze("n1")
        first = (await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 20})).body["metadata"]
        again = await api.delete(f"{PODS}/p1")
        longer = await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 25})
        assert (again.code, longer.code) == (200, 200)
        assert again.body["metadata"] == longer.body["metadata"] == first
        shorter = (await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 5})).body["metadata"]
        before, after = (datetime.fromisoformat(m["deletionTimestamp"]) for m in (first, shorter))
        assert (shorter["deletionGracePeriodSeconds"], before - after) == (5, timedelta(seconds=15))


async def test_pods_of_a_frozen_node_stay_terminating_until_it_thaws() -> None:
    """An unreachable node's kubelet hears of nothing."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.freeze("n1")
        await api.delete(f"{PODS}/p1")
        assert "deletionTimestamp" in (await api.get(f"{PODS}/p1")).body["metadata"]
        async with api.watch(PODS, resourceVersion=await _pod_watch(api)) as stream:
            server.kubelets.thaw("n1")
            await _until_deleted(stream)


async def test_finalizers_hold_a_pod_until_the_last_is_taken_off() -> None:
    """The kubelet's end leaves it with a grace period of zero, and the patch that empties the finalizers removes it."""
    async with serving() as (server, api):
        add_pod(server, finalizers=["example.com/hold"])
        async with api.watch(PODS, resourceVersion=await _pod_watch(api)) as stream:
            await api.delete(f"{PODS}/p1")
            grace = [(await stream.next())[1]["metadata"]["deletionGracePeriodSeconds"] for _ in range(2)]
            assert grace == [30, 0]
            answer = await api.patch(f"{PODS}/p1", {"metadata": {"finalizers": None}})
            assert answer.code == 200
            await _until_deleted(stream)


async def test_a_node_with_a_finalizer_is_marked_and_one_without_is_gone() -> None:
    """Nodes have no grace period; the answer is the node or a Status."""
    async with serving() as (server, api):
        add_node(server, "n1")
        gone = await api.delete(f"{NODES}/n1")
        assert (gone.body["kind"], gone.body["status"]) == ("Status", "Success")
        assert (gone.body["details"]["kind"], gone.body["details"]["name"]) == ("nodes", "n1")
        server.create("nodes", {"metadata": {"name": "n2", "finalizers": ["f/1"]}})
        held = await api.delete(f"{NODES}/n2")
        assert (held.body["kind"], held.body["metadata"]["deletionGracePeriodSeconds"]) == ("Node", 0)


async def test_new_finalizers_are_refused_while_deleting() -> None:
    """They could hold an object indefinitely."""
    async with serving() as (server, api):
        server.create("nodes", {"metadata": {"name": "n1", "finalizers": ["f/1"]}})
        await api.delete(f"{NODES}/n1")
        assert (await api.patch(f"{NODES}/n1", {"metadata": {"finalizers": ["f/2"]}})).code == 422


async def test_dry_run_deletes_nothing() -> None:
    """Neither marks nor removes."""
    async with serving() as (server, api):
        add_pod(server)
        before = server.store.resource_version
        assert (await api.delete(f"{PODS}/p1", {"dryRun": ["All"]})).code == 200
        assert server.store.resource_version == before


async def test_a_recreated_pod_has_the_same_name_and_another_uid() -> None:
    """A stand-in for a StatefulSet: created unbound, then bound."""
    async with serving() as (server, api):
        uid = add_pod(server, labels={"app": "db"})
        server.recreate_when_gone("default", "p1", node="n2", times=1)
        async with api.watch(PODS, resourceVersion=await _pod_watch(api)) as stream:
            await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 0})
            await _until_deleted(stream)
            kind, created = await stream.next()
            assert (kind, "nodeName" in created["spec"]) == ("ADDED", False)
            assert created["metadata"]["uid"] != uid
            assert created["metadata"]["labels"] == {"app": "db"}
            assert (await stream.next())[1]["spec"]["nodeName"] == "n2"


async def test_a_pod_is_recreated_as_often_as_asked() -> None:
    """Twice means twice."""
    async with serving() as (server, api):
        add_pod(server)
        server.recreate_when_gone("default", "p1", node="n1", times=2)
        seen: list[str] = []
        async with api.watch(PODS, resourceVersion=await _pod_watch(api)) as stream:
            for _ in range(3):
                server.delete("pods", "p1", grace_period_seconds=0)
                await _until_deleted(stream)
                if len(seen) < 2:
                    await stream.next()
                    seen.append((await stream.next())[1]["metadata"]["uid"])
        assert len(set(seen)) == 2
        assert server.get("pods", "p1") is None


async def test_pods_start_to_run_where_kubelets_are_told_to_start_them() -> None:
    """Bound pods become Running and Ready by a status write."""
    async with serving() as (server, api):
        server.kubelets.start_after_seconds = 0.0
        async with api.watch(PODS) as stream:
            await api.post(PODS, pod_body(nodeName="n1"))
            await stream.next()
            pod = (await stream.next())[1]
            assert pod["status"]["phase"] == "Running"
            assert "Ready" in {c["type"] for c in pod["status"]["conditions"]}


async def test_kubelets_wait_while_the_server_is_down() -> None:
    """What ended meanwhile is told when the server is back."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.finish_after_seconds = 0.0
        server.delete("pods", "p1")
        await server.stop()
        version = str(server.store.resource_version)
        await server.start()
        async with api.watch(PODS, resourceVersion=version) as stream:
            await _until_deleted(stream)
