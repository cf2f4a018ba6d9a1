"""The embedded API server: deletion, grace periods, finalizers, kubelets and pods that are recreated."""

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


async def test_a_wrong_uid_gets_a_409_and_deletes_nothing() -> None:
    """The message is that of a real server: it has the kind where other messages have the plural."""
    async with serving() as (server, api):
        uid = add_pod(server)
        refused = await api.delete(f"{PODS}/p1", {"preconditions": {"uid": "other"}})
        assert (refused.code, refused.body["reason"]) == (409, "Conflict")
        assert refused.message == (
            'Operation cannot be fulfilled on Pod "p1": the UID in the precondition (other) does not match the UID in '
            f"record ({uid}). The object might have been deleted and then recreated"
        )
        assert "deletionTimestamp" not in (await api.get(f"{PODS}/p1")).body["metadata"]


async def test_a_stale_version_in_the_preconditions_gets_a_409() -> None:
    """A deletion with the current version is accepted."""
    async with serving() as (server, api):
        add_pod(server)
        current = (await api.get(f"{PODS}/p1")).body["metadata"]["resourceVersion"]
        assert (await api.delete(f"{PODS}/p1", {"preconditions": {"resourceVersion": "1"}})).code == 409
        assert (await api.delete(f"{PODS}/p1", {"preconditions": {"resourceVersion": current}})).code == 200


async def test_a_bound_pod_terminates_gracefully_and_its_kubelet_ends_it() -> None:
    """The answer is 200 with the pod; the watch sends MODIFIED with the deletion time, and DELETED at the end."""
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
async def test_grace_period_zero_deletes_at_once(how: str) -> None:
    """The grace period may be in the body or in the query."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.freeze("n1")
        options: dict[str, Any] = {"body": {"gracePeriodSeconds": 0}} if how == "body" else {}
        query = {"gracePeriodSeconds": "0"} if how == "query" else {}
        assert (await api.delete(f"{PODS}/p1", params=query, **options)).code == 200
        assert (await api.get(f"{PODS}/p1")).code == 404


@pytest.mark.parametrize(("node", "phase"), [("", "Pending"), ("n1", "Succeeded"), ("n1", "Failed")])
async def test_pods_that_no_kubelet_runs_are_deleted_at_once(node: str, phase: str) -> None:
    """No kubelet runs unbound and finished pods, so there is nothing to wait for."""
    async with serving() as (server, api):
        server.kubelets.freeze("n1")
        add_pod(server, "p1", node)
        server.patch("pods", "p1", {"status": {"phase": phase}})
        assert (await api.delete(f"{PODS}/p1")).code == 200
        assert (await api.get(f"{PODS}/p1")).code == 404


async def test_a_second_delete_changes_nothing_unless_it_is_shorter() -> None:
    """The answer is 200 each time; a shorter grace period counts from the first deletion."""
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


async def test_pods_of_a_frozen_kubelet_stay_terminating_until_it_thaws() -> None:
    """The kubelet of an unreachable node does not see the deletion."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.freeze("n1")
        await api.delete(f"{PODS}/p1")
        assert "deletionTimestamp" in (await api.get(f"{PODS}/p1")).body["metadata"]
        async with api.watch(PODS, resourceVersion=await _pod_watch(api)) as stream:
            server.kubelets.thaw("n1")
            await _until_deleted(stream)


async def test_finalizers_keep_a_terminating_pod_until_the_last_is_removed() -> None:
    """The kubelet sets the grace period to zero, and the patch that empties the finalizers removes the pod."""
    async with serving() as (server, api):
        add_pod(server, finalizers=["example.com/hold"])
        async with api.watch(PODS, resourceVersion=await _pod_watch(api)) as stream:
            await api.delete(f"{PODS}/p1")
            grace = [(await stream.next())[1]["metadata"]["deletionGracePeriodSeconds"] for _ in range(2)]
            assert grace == [30, 0]
            answer = await api.patch(f"{PODS}/p1", {"metadata": {"finalizers": None}})
            assert answer.code == 200
            await _until_deleted(stream)


async def test_a_deleted_node_with_a_finalizer_is_marked_and_one_without_is_gone() -> None:
    """Nodes have no grace period; the answer is a Status for the removed node, and the node itself for the other."""
    async with serving() as (server, api):
        add_node(server, "n1")
        gone = await api.delete(f"{NODES}/n1")
        assert (gone.body["kind"], gone.body["status"]) == ("Status", "Success")
        assert (gone.body["details"]["kind"], gone.body["details"]["name"]) == ("nodes", "n1")
        server.create("nodes", {"metadata": {"name": "n2", "finalizers": ["f/1"]}})
        held = await api.delete(f"{NODES}/n2")
        assert (held.body["kind"], held.body["metadata"]["deletionGracePeriodSeconds"]) == ("Node", 0)


async def test_new_finalizers_are_refused_while_deleting() -> None:
    """New finalizers could block a deletion indefinitely."""
    async with serving() as (server, api):
        server.create("nodes", {"metadata": {"name": "n1", "finalizers": ["f/1"]}})
        await api.delete(f"{NODES}/n1")
        assert (await api.patch(f"{NODES}/n1", {"metadata": {"finalizers": ["f/2"]}})).code == 422


async def test_dry_run_deletes_nothing() -> None:
    """A dry run neither marks nor removes the pod."""
    async with serving() as (server, api):
        add_pod(server)
        before = server.store.resource_version
        assert (await api.delete(f"{PODS}/p1", {"dryRun": ["All"]})).code == 200
        assert server.store.resource_version == before


async def test_a_recreated_pod_has_the_same_name_and_another_uid() -> None:
    """The new pod is first created unbound and then bound, as a pod of a StatefulSet is."""
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
    """The server recreates the pod twice and not a third time."""
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


async def test_pods_become_running_if_kubelets_start_them() -> None:
    """The kubelet sets a bound pod to Running and Ready by a write to its status."""
    async with serving() as (server, api):
        server.kubelets.start_after_seconds = 0.0
        async with api.watch(PODS) as stream:
            await api.post(PODS, pod_body(nodeName="n1"))
            await stream.next()
            pod = (await stream.next())[1]
            assert pod["status"]["phase"] == "Running"
            assert "Ready" in {c["type"] for c in pod["status"]["conditions"]}


async def test_kubelets_wait_while_the_server_is_down() -> None:
    """A kubelet that finishes a pod meanwhile reports it when the server is back."""
    async with serving() as (server, api):
        add_pod(server)
        server.kubelets.finish_after_seconds = 0.0
        server.delete("pods", "p1")
        await server.stop()
        version = str(server.store.resource_version)
        await server.start()
        async with api.watch(PODS, resourceVersion=version) as stream:
            await _until_deleted(stream)
