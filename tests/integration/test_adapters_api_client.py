"""Our client against the embedded API server: what is asked, and what each answer means."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from adapters_stage import EPOCH, Stage, stage

from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, Pod, PodRef, Taint
from taint_eviction.runtime.ports import CallFailed, ClusterReader, ClusterWriter, Page
from taint_eviction.simulation.apiserver import LoggedRequest

NOW = Moment(5.0, EPOCH + 5.0)


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage for one test."""
    async with stage(tmp_path) as made:
        yield made


async def all_pods(at: Stage, node_name: str | None) -> list[Page[Pod]]:
    return [page async for page in at.client.list_pods(node_name)]


def names(pages: list[Page[Pod]]) -> list[str]:
    return [pod.ref.key.name for page in pages for pod in page.objects]


async def test_it_stands_behind_both_doors(at: Stage) -> None:
    """The client is a reader and a writer of the cluster (a static type check, run for good measure)."""
    reader: ClusterReader = at.client
    writer: ClusterWriter = at.client
    assert (reader, writer) == (at.client, at.client)


# Reads


async def test_a_node_is_read_with_its_taints(at: Stage) -> None:
    """One GET, without resourceVersion, so the answer is live."""
    at.server.taint("n1", "k", "v")
    node = await at.client.read_node("n1")
    assert node is not None
    assert node.taints == (Taint("k", "NoExecute", "v"),)
    assert node.taints_written_at is not None
    [request] = at.server.requests.select(verb="get", resource="nodes")
    assert request.query == {}
    assert request.user_agent.startswith("taint-eviction-controller/")


async def test_an_absent_node_is_none(at: Stage) -> None:
    """Not found is an answer."""
    assert await at.client.read_node("gone") is None


async def test_somebody_elses_404_is_no_answer_about_the_node(at: Stage) -> None:
    """A load balancer's or a wrong path's 404 must not look like a deleted node."""
    at.server.faults.add(verb="get", status=404, plain_text=True, message="404 page not found")
    with pytest.raises(CallFailed, match="404 page not found") as failed:
        await at.client.read_node("n1")
    assert failed.value.status == 404


async def test_a_pod_of_another_uid_is_none(at: Stage) -> None:
    """The name alone is nobody."""
    ref = at.pod()
    assert (await at.client.read_pod(ref)) is not None
    assert await at.client.read_pod(ref._replace(uid="other")) is None
    assert await at.client.read_pod(PodRef(NamespacedName("default", "gone"), "x")) is None


async def test_nodes_are_listed_in_pages(at: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node once, each page with the UIDs in it and the list's version."""
    monkeypatch.setattr("taint_eviction.adapters.api_client._PAGE", 1)
    pages = [page async for page in at.client.list_nodes()]
    assert [[node.name for node in page.objects] for page in pages] == [["n1"], ["n2"]]
    assert [page.present for page in pages] == [{node.uid for node in page.objects} for page in pages]
    assert pages[0].resource_version == pages[1].resource_version is not None


async def test_the_pods_of_one_node_are_listed_unpaged(at: Stage) -> None:
    """By the server's index on the node's name, and without a limit."""
    at.pod("a"), at.pod("b", "n2")
    assert names(await all_pods(at, "n1")) == ["a"]
    [request] = at.server.requests.select(verb="list", resource="pods")
    assert request.query == {"fieldSelector": "spec.nodeName=n1"}


async def test_what_the_watch_cache_has_of_a_node_is_asked_for_as_such(at: Stage) -> None:
    """The same list at resourceVersion 0, so that the server need not make sure that it is new."""
    at.pod("a"), at.pod("b", "n2")
    assert [pod.ref.key.name for pod in await at.client.cached_pods("n1")] == ["a"]
    [request] = at.server.requests.select(verb="list", resource="pods")
    assert request.query == {"fieldSelector": "spec.nodeName=n1", "resourceVersion": "0"}


async def test_all_bound_pods_are_listed_in_pages(at: Stage) -> None:
    """Those without a node are left out by the server."""
    at.pod("a"), at.pod("b", "n2"), at.pod("c", "")
    assert names(await all_pods(at, None)) == ["a", "b"]
    [request] = at.server.requests.select(verb="list", resource="pods")
    assert request.query == {"fieldSelector": "spec.nodeName!=", "limit": "500"}


async def test_a_list_whose_token_expires_is_begun_anew(at: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """410 in the middle: from the start, and after three times in one piece."""
    monkeypatch.setattr("taint_eviction.adapters.api_client._PAGE", 1)
    for name in "ab":
        at.pod(name)

    def forget(request: LoggedRequest) -> None:
        """Let the version that an answer's token is for be forgotten right after it."""
        at.server.patch("nodes", "n1", {"metadata": {"labels": {"change": str(request.number)}}})
        at.server.store.compact()

    at.server.requests.subscribe(forget)
    pages = await all_pods(at, None)
    assert at.server.requests.counts["list", "pods", 410] == 3
    assert names(pages) == ["a", "a", "a", "a", "b"]
    asked = at.server.requests.select(lambda request: "continue" not in request.query, verb="list")
    assert [request.query.get("limit") for request in asked] == ["1", "1", "1", None]


async def test_a_malformed_object_in_a_list_is_named_once_and_skipped(
    at: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Its UID still counts as present, so that it is not swept as gone; the others are read."""
    bad, good = at.pod("bad"), at.pod("good")
    pod = at.server.get("pods", "bad") or {}
    pod["spec"]["tolerations"] = [{"key": "a", "tolerationSeconds": "soon"}]
    at.server.update("pods", pod)
    with caplog.at_level(logging.WARNING):
        [page] = await all_pods(at, "n1")
        await all_pods(at, "n1")
    assert [pod.ref for pod in page.objects] == [good]
    assert page.present == {bad.uid, good.uid}
    assert at.malformed == ["Pod"]
    assert [record.message for record in caplog.records] == [
        "malformed, so what was last known of it stays:"
        " Pod default/bad: spec.tolerations[0].tolerationSeconds is not a whole number"
    ]


async def test_reading_a_malformed_pod_is_a_failed_call(at: Stage) -> None:
    """So the eviction is tried again later: never decided on something misread."""
    ref = at.pod()
    pod = at.server.get("pods", "web") or {}
    pod["spec"]["tolerations"] = [{"key": "a", "tolerationSeconds": "soon"}]
    at.server.update("pods", pod)
    with pytest.raises(CallFailed, match=r"Pod default/web: spec\.tolerations\[0\]\.tolerationSeconds"):
        await at.client.read_pod(ref)


# Writes


async def test_marking_sets_the_condition_and_returns_the_live_pod(at: Stage) -> None:
    """By a strategic merge on the status, in the name of this controller, dated by the server's time."""
    ref = at.pod()
    pod = await at.client.mark(ref, False, NOW)
    assert pod is not None
    assert pod.marked
    assert at.condition() == {
        "lastProbeTime": None,
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": "2030-03-17T17:46:45Z",
    }
    [request] = at.server.requests.select(verb="patch")
    assert (request.resource, request.content_type) == ("pods/status", "application/strategic-merge-patch+json")
    assert request.query == {"fieldManager": "taint-eviction-controller"}


async def test_marking_again_keeps_the_transition_time(at: Stage) -> None:
    """The condition has not changed, so neither does its time."""
    ref = at.pod()
    await at.client.mark(ref, False, NOW)
    assert await at.client.mark(ref, True, Moment(99.0, EPOCH + 99.0)) is not None
    assert at.condition()["lastTransitionTime"] == "2030-03-17T17:46:45Z"


async def test_marking_never_touches_another_uid(at: Stage) -> None:
    """422 about metadata.uid: the pod is gone, its name belongs to another."""
    ref = at.pod()
    assert await at.client.mark(ref._replace(uid="other"), False, NOW) is None
    assert at.condition() == {}
    assert at.server.requests.counts["patch", "pods/status", 422] == 1


async def test_marking_an_absent_pod_is_none(at: Stage) -> None:
    """404: gone."""
    assert await at.client.mark(PodRef(NamespacedName("default", "gone"), "x"), False, NOW) is None


async def test_a_condition_that_is_refused_is_a_failed_call(at: Stage) -> None:
    """Another 422 says nothing about who the pod is."""
    ref = at.pod()
    at.server.faults.add(verb="patch", status=422, reason="Invalid", message="pods web is invalid: status: no")
    with pytest.raises(CallFailed, match="status: no") as failed:
        await at.client.mark(ref, False, NOW)
    assert failed.value.status == 422


async def test_taking_back_sets_the_condition_to_false(at: Stage) -> None:
    """On the version that was read, with the reason kept."""
    ref = at.pod()
    pod = await at.client.mark(ref, False, NOW)
    assert pod is not None
    unmarked = await at.client.unmark(pod, Moment(9.0, EPOCH + 9.0))
    assert unmarked is not None
    assert not unmarked.marked
    assert at.condition() == {
        "lastProbeTime": None,
        "type": "DisruptionTarget",
        "status": "False",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deletion called off",
        "lastTransitionTime": "2030-03-17T17:46:49Z",
    }


async def test_taking_back_from_a_pod_that_changed_meanwhile_fails(at: Stage) -> None:
    """Somebody else's later word is not overwritten: 409, to be decided again on a fresh read."""
    pod = await at.client.mark(at.pod(), False, NOW)
    assert pod is not None
    at.server.patch("pods", "web", {"metadata": {"labels": {"changed": "yes"}}})
    with pytest.raises(CallFailed) as failed:
        await at.client.unmark(pod, NOW)
    assert failed.value.status == 409
    assert at.condition()["status"] == "True"


async def test_deleting_asks_for_this_uid_with_the_pods_own_grace(at: Stage) -> None:
    """The body holds the precondition and no grace period."""
    ref = at.pod()
    assert await at.client.delete(ref)
    [request] = at.server.requests.select(verb="delete")
    assert request.body == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": ref.uid}}


async def test_deleting_another_uid_or_nobody_is_false(at: Stage) -> None:
    """409 by the precondition and 404: the pod is gone, and whoever has its name now is untouched."""
    ref = at.pod()
    assert not await at.client.delete(ref._replace(uid="other"))
    assert not await at.client.delete(PodRef(NamespacedName("default", "gone"), "x"))
    pod = at.server.get("pods", "web") or {}
    assert "deletionTimestamp" not in pod["metadata"]
    assert at.server.requests.counts["delete", "pods", 409] == 1


async def test_another_conflict_is_a_failed_call(at: Stage) -> None:
    """A 409 that does not name the UID says nothing about who the pod is."""
    ref = at.pod()
    message = "Operation cannot be fulfilled on pods web: the object has been modified"
    at.server.faults.add(verb="delete", status=409, message=message)
    with pytest.raises(CallFailed, match="the object has been modified"):
        await at.client.delete(ref)


# What goes wrong


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, 7.0),
        ({"status": 429, "details": {"retryAfterSeconds": 3}}, 3.0),
        ({"status": 503}, None),
    ],
)
async def test_the_servers_advice_to_wait_is_passed_on(at: Stage, fault: dict[str, Any], seconds: float | None) -> None:
    """By header or by the Status' details."""
    at.server.faults.add(verb="get", **fault)
    with pytest.raises(CallFailed) as failed:
        await at.client.read_node("n1")
    assert (failed.value.status, failed.value.retry_after_seconds) == (fault["status"], seconds)


async def test_a_call_that_hangs_ends_with_the_timeout(tmp_path: Path) -> None:
    """Connect, answer and body together have so long and no longer."""
    async with stage(tmp_path, timeout_seconds=0.05) as at:
        at.server.faults.add(verb="get", hang=True)
        with pytest.raises(CallFailed, match=r"no answer of the API server within 0\.05 s") as failed:
            await at.client.read_node("n1")
        assert failed.value.status is None
        assert at.counted == [("get", "nodes", "timeout")]


async def test_a_cancelled_call_is_cancelled(at: Stage) -> None:
    """Being cancelled is not a failure of the world's, and is passed on."""
    at.server.faults.add(verb="get", hang=True)
    task = asyncio.create_task(at.client.read_node("n1"))
    await at.server.requests.wait_for(verb="get")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_server_that_is_away_or_cuts_off_is_a_failed_call(at: Stage) -> None:
    """Resets and refused connections: a plain sentence without a status."""
    at.server.faults.add(verb="get", reset=True)
    with pytest.raises(CallFailed) as failed:
        await at.client.read_node("n1")
    assert failed.value.status is None
    at.server.faults.clear()
    await at.server.stop()
    with pytest.raises(CallFailed, match="the API server cannot be reached"):
        await at.client.read_node("n1")
    assert {code for _, _, code in at.counted} == {"connection"}


async def test_calls_are_counted_and_dates_are_heard(at: Stage) -> None:
    """Each answer, refusals included."""
    await at.client.read_node("n1")
    await at.client.read_node("gone")
    await at.client.delete(at.pod())
    assert at.counted == [("get", "nodes", "200"), ("get", "nodes", "404"), ("delete", "pods", "200")]
    offset = at.server.clock.now().timestamp() - at.dates[-1]
    assert len(at.dates) == 3
    assert 0.0 <= offset < 5.0


async def test_no_call_waits_for_a_connection(tmp_path: Path) -> None:
    """Two hundred at once are all on the wire before the first is answered."""
    async with stage(tmp_path) as at:
        fault = at.server.faults.add(verb="get", hang=True)
        tasks = [asyncio.create_task(at.client.read_node("n1")) for _ in range(200)]
        await at.server.requests.wait_for(verb="get", count=200)
        assert fault.hits == 200
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_closed_connection_is_a_failed_call(tmp_path: Path) -> None:
    """Whoever still calls while the process ends is told so."""
    async with stage(tmp_path) as at:
        await at.connection.close()
        with pytest.raises(CallFailed, match="closed"):
            await at.client.read_node("n1")


async def test_a_401_with_nothing_newer_to_offer_is_a_failed_call(at: Stage) -> None:
    """Asked once: there is no use in asking again."""
    at.server.tokens = {"secret"}
    with pytest.raises(CallFailed) as failed:
        await at.client.read_node("n1")
    assert failed.value.status == 401
    assert at.server.requests.counts["get", "nodes", 401] == 1
