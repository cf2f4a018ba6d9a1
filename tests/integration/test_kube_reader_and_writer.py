"""Our client and the embedded API server: the requests it sends, and what each answer means."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stage.client import ClientStage, client_stage
from tests.stage.clocks import EPOCH, HandClock
from tests.stage.objects import write_kubeconfig
from tests.stage.waiting import PATIENCE_SECONDS
from tests.unit.builders import at_once

from fake_apiserver import LoggedRequest
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, Pod, PodRef, Taint
from taint_eviction.files import json_lists
from taint_eviction.kube.answers import Outcome, failure_reason
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.kube.api_writer import ApiWriter
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.login.credentials import with_kubeconfig
from taint_eviction.runtime.ports import CallFailed, FailureReason, Page

NOW = Moment(5.0, EPOCH + 5.0)


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A stage for one test."""
    async with client_stage(tmp_path) as made:
        yield made


async def all_pods(at: ClientStage, node_name: str | None) -> list[Page[Pod]]:
    return [page async for page in at.reader.list_pods(node_name)]


def names(pages: list[Page[Pod]]) -> list[str]:
    return [pod.ref.key.name for page in pages for pod in page.objects]


# Reads


async def test_a_node_is_read_with_its_taints(at: ClientStage) -> None:
    """The read is one GET without resourceVersion, so the answer is live."""
    at.server.taint("n1", "k", "v")
    node = await at.reader.read_node("n1")
    assert node is not None
    assert node.taints == (Taint("k", "NoExecute", "v"),)
    assert node.taints_written_at is not None
    [request] = at.server.requests.select(verb="get", resource="nodes")
    assert request.query == {}
    assert request.user_agent.startswith("taint-eviction-controller/")


async def test_reading_an_absent_node_returns_none(at: ClientStage) -> None:
    """A 404 about this node is an answer, not a failed call."""
    assert await at.reader.read_node("gone") is None


async def test_a_404_that_is_not_about_the_node_is_a_failed_call(at: ClientStage) -> None:
    """The 404 of a load balancer or for a wrong path must not look like a deleted node."""
    at.server.faults.add(verb="get", status=404, plain_text=True, message="404 page not found")
    with pytest.raises(CallFailed, match="404 page not found") as failed:
        await at.reader.read_node("n1")
    assert failed.value.reason is FailureReason.NOT_FOUND


async def test_reading_a_pod_with_another_uid_returns_none(at: ClientStage) -> None:
    """The name alone does not identify a pod."""
    ref = at.pod()
    assert (await at.reader.read_pod(ref)) is not None
    assert await at.reader.read_pod(ref._replace(uid="other")) is None
    assert await at.reader.read_pod(PodRef(NamespacedName("default", "gone"), "x")) is None


@pytest.mark.parametrize("about", ["nodes n2", "pods other", "leases n1"])
async def test_an_answer_about_something_else_is_a_failed_call(at: ClientStage, about: str) -> None:
    """A proxy may mix answers up. The node would look clean, and the pod gone."""
    at.server.create("leases", {"metadata": {"name": "n1", "namespace": "default"}, "spec": {}})
    ref, _ = at.pod(), at.pod("other")
    resource, name = about.split()
    namespace = "" if resource == "nodes" else "default"
    text = json.dumps(at.server.get(resource, name, namespace))
    at.server.faults.add(verb="get", status=200, message=text, plain_text=True)
    at.server.faults.add(verb="patch", status=200, message=text, plain_text=True)
    for asked in (at.reader.read_node("n1"), at.reader.read_pod(ref), at.writer.mark(ref, False, NOW)):
        with pytest.raises(CallFailed, match="not about"):
            await asked


async def test_an_answer_to_a_patch_about_another_pod_of_that_name_is_a_failed_call(at: ClientStage) -> None:
    """The API server refuses a patch of another UID. The pod would look gone, and be left until the next list."""
    ref = at.pod()
    other = at.server.get("pods", "web", "default") or {}
    text = json.dumps({**other, "metadata": {**other["metadata"], "uid": "other"}})
    at.server.faults.add(verb="patch", status=200, message=text, plain_text=True)
    with pytest.raises(CallFailed, match="is not about default/web") as failed:
        await at.writer.mark(ref, False, NOW)
    assert (failed.value.reason, failed.value.may_pass) == (FailureReason.NO_ANSWER, True)


async def test_a_list_of_something_else_is_a_failed_call(at: ClientStage) -> None:
    """The nodes, or the pods of the node, would look gone."""
    at.pod("other", "n2")
    pods = json.dumps({"kind": "PodList", "metadata": {}, "items": [at.server.get("pods", "other", "default")]})
    at.server.faults.add(verb="list", status=200, message=pods, plain_text=True)
    with pytest.raises(CallFailed, match="not about a list of nodes"):
        _ = [page async for page in at.reader.list_nodes()]
    for listed in (all_pods(at, "n1"), at.reader.cached_pods("n1")):
        with pytest.raises(CallFailed, match="pods of node n1"):
            await listed


async def test_nodes_are_listed_in_pages(at: ClientStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node is listed once, each page has the UIDs in it, and all pages have the list's version."""
    monkeypatch.setattr("taint_eviction.kube.api_reader._PAGE", 1)
    pages = [page async for page in at.reader.list_nodes()]
    assert [[node.name for node in page.objects] for page in pages] == [["n1"], ["n2"]]
    assert [page.present for page in pages] == [{node.uid for node in page.objects} for page in pages]
    assert pages[0].resource_version == pages[1].resource_version is not None


async def test_the_pods_of_one_node_are_listed_unpaged(at: ClientStage) -> None:
    """The server selects the pods by the name of their node, and no limit is set."""
    at.pod("a"), at.pod("b", "n2")
    assert names(await all_pods(at, "n1")) == ["a"]
    [request] = at.server.requests.select(verb="list", resource="pods")
    assert request.query == {"fieldSelector": "spec.nodeName=n1"}


async def test_the_cached_list_of_a_nodes_pods_asks_for_resource_version_zero(at: ClientStage) -> None:
    """At resourceVersion 0 the server answers from its watch cache, and need not check that its answer is current."""
    at.pod("a"), at.pod("b", "n2")
    assert [pod.ref.key.name for pod in await at.reader.cached_pods("n1")] == ["a"]
    [request] = at.server.requests.select(verb="list", resource="pods")
    assert request.query == {"fieldSelector": "spec.nodeName=n1", "resourceVersion": "0"}


async def test_all_bound_pods_are_listed_in_pages(at: ClientStage) -> None:
    """The server leaves out the pods without a node."""
    at.pod("a"), at.pod("b", "n2"), at.pod("c", "")
    assert names(await all_pods(at, None)) == ["a", "b"]
    [request] = at.server.requests.select(verb="list", resource="pods")
    assert request.query == {"fieldSelector": "spec.nodeName!=", "limit": "500"}


async def test_a_list_whose_continue_token_expires_begins_anew_and_fails_the_third_time(
    at: ClientStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never asked for in one piece: a list of all pods may be long."""
    monkeypatch.setattr("taint_eviction.kube.api_reader._PAGE", 1)
    for name in "ab":
        at.pod(name)

    def forget(request: LoggedRequest) -> None:
        """Compact the store right after an answer, so that its continue token expires."""
        at.server.patch("nodes", "n1", {"metadata": {"labels": {"change": str(request.number)}}})
        at.server.store.compact()

    at.server.requests.subscribe(forget)
    with pytest.raises(CallFailed, match="too old"):
        await all_pods(at, None)
    assert at.server.requests.counts["list", "pods", 410] == 3
    asked = at.server.requests.select(verb="list")
    assert [request.query.get("limit") for request in asked] == ["1"] * 6


async def all_nodes(at: ClientStage) -> list[object]:
    return [page async for page in at.reader.list_nodes()]


async def all_items(at: ClientStage) -> list[object]:
    return [item async for item in list_items(at.calls, ApiRequest("list", "nodes"), lambda node: node)]


@pytest.mark.parametrize("listed", [all_nodes, all_items])
async def test_a_list_that_never_ends_is_a_failed_call(
    at: ClientStage, listed: Callable[[ClientStage], Awaitable[object]]
) -> None:
    """A proxy that answers every request from its cache answers the token to continue, too."""
    page = '{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"again"},"items":[]}'
    fault = at.server.faults.add(verb="list", resource="nodes", status=200, message=page, plain_text=True)
    with pytest.raises(CallFailed, match="the same token to continue it came twice"):
        await listed(at)
    assert fault.hits == 2


async def test_a_redirect_of_a_delete_is_refused(at: ClientStage) -> None:
    """The pod could be deleted on another server, or not at all, and the answer look like success."""
    ref = at.pod()
    elsewhere = f"{at.server.url}/version"
    at.server.faults.add(verb="delete", status=307, headers={"Location": elsewhere})
    with pytest.raises(CallFailed, match="HTTP 307"):
        await at.writer.delete(ref, at_once)
    assert at.server.requests.select(lambda request: request.path.startswith("/version")) == []


async def test_a_list_with_too_many_bytes_is_asked_for_again_in_halves(
    at: ClientStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of as many pods as had arrived; only then a limit is set, and halved until all pages fit."""
    monkeypatch.setattr("taint_eviction.kube.api_calls._MOST_LIST_BYTES", 100_000)
    monkeypatch.setattr("taint_eviction.files.json_lists.CHUNK_BYTES", 10_000)
    monkeypatch.setattr("taint_eviction.kube.api_calls.CHUNK_BYTES", 10_000)
    for number in range(8):
        at.pod(f"p{number}")
        pod = at.server.get("pods", f"p{number}") or {}
        pod["metadata"]["annotations"] = {"note": "x" * 30_000}
        at.server.update("pods", pod)
    pages = await all_pods(at, "n1")
    assert names(pages) == [f"p{number}" for number in range(8)]
    asked = at.server.requests.select(verb="list", resource="pods")
    assert [request.query.get("limit") for request in asked] == [None, "1", *["1"] * 7]


async def test_a_list_that_arrives_too_slowly_is_asked_for_again_in_halves(
    at: ClientStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise large pods of one tenant keep all pods of a node from being listed, for as long as they are there."""
    for number in range(8):
        at.pod(f"p{number}")
    complete = json_lists.read_items

    async def slowly(chunks: AsyncIterator[bytes], take: Callable[[Any], None], most_bytes: int) -> Any:
        """Take no more than three items before the answer breaks off."""
        taken: list[Any] = []

        def take_some(item: Any) -> None:
            taken.append(item)
            if len(taken) > 3:
                raise TimeoutError
            take(item)

        return await complete(chunks, take_some, most_bytes)

    monkeypatch.setattr("taint_eviction.kube.api_calls.read_items", slowly)
    pages = await all_pods(at, "n1")
    assert names(pages) == [f"p{number}" for number in range(8)]
    asked = at.server.requests.select(verb="list", resource="pods")
    assert [request.query.get("limit") for request in asked] == [None, "1", *["1"] * 7]


async def test_an_object_with_too_many_bytes_is_a_failed_call(at: ClientStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is not read to its end."""
    monkeypatch.setattr("taint_eviction.kube.api_calls.MOST_ITEM_BYTES", 100)
    with pytest.raises(CallFailed, match="not read to its end: it has more than 0 MB"):
        await at.reader.read_node("n1")


async def test_a_refusal_with_too_many_bytes_is_a_failed_call(at: ClientStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be decoded in one go, and a refusal needs few words."""
    monkeypatch.setattr("taint_eviction.kube.api_calls._MOST_REFUSAL_BYTES", 100)
    at.server.faults.add(verb="get", status=500, message="x" * 200)
    with pytest.raises(CallFailed, match="not read to its end: it has more than 0 MB"):
        await at.reader.read_node("n1")


async def test_a_malformed_object_in_a_list_is_logged_once_and_skipped(
    at: ClientStage, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod's UID still counts as present, so the pod is not treated as gone; other pods are read."""
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
        "malformed, its last known state stays in force:"
        " Pod default/bad: spec.tolerations[0].tolerationSeconds is not an integer"
    ]


async def test_reading_a_malformed_pod_is_a_failed_call(at: ClientStage) -> None:
    """The eviction is tried again later, since no decision may rest on an object that cannot be read."""
    ref = at.pod()
    pod = at.server.get("pods", "web") or {}
    pod["spec"]["tolerations"] = [{"key": "a", "tolerationSeconds": "soon"}]
    at.server.update("pods", pod)
    with pytest.raises(CallFailed, match=r"Pod default/web: spec\.tolerations\[0\]\.tolerationSeconds"):
        await at.reader.read_pod(ref)


# Writes


async def test_marking_sets_the_condition_and_returns_the_live_pod(at: ClientStage) -> None:
    """The client sends a strategic merge patch of the status, with its own field manager and the server's time."""
    ref = at.pod()
    pod = await at.writer.mark(ref, False, NOW)
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


async def test_marking_again_keeps_the_transition_time(at: ClientStage) -> None:
    """The condition has not changed, so neither does its time."""
    ref = at.pod()
    await at.writer.mark(ref, False, NOW)
    assert await at.writer.mark(ref, True, Moment(99.0, EPOCH + 99.0)) is not None
    assert at.condition()["lastTransitionTime"] == "2030-03-17T17:46:45Z"


async def test_marking_never_changes_a_pod_with_another_uid(at: ClientStage) -> None:
    """A 422 about metadata.uid means that the pod is gone and its name belongs to another pod."""
    ref = at.pod()
    assert await at.writer.mark(ref._replace(uid="other"), False, NOW) is None
    assert at.condition() == {}
    assert at.server.requests.counts["patch", "pods/status", 422] == 1


async def test_marking_an_absent_pod_returns_none(at: ClientStage) -> None:
    """A 404 about the pod means that it is gone."""
    assert await at.writer.mark(PodRef(NamespacedName("default", "gone"), "x"), False, NOW) is None


async def test_a_condition_that_is_refused_is_a_failed_call(at: ClientStage) -> None:
    """Any other 422 says nothing about the pod's identity."""
    ref = at.pod()
    at.server.faults.add(verb="patch", status=422, reason="Invalid", message="pods web is invalid: status: no")
    with pytest.raises(CallFailed, match="status: no") as failed:
        await at.writer.mark(ref, False, NOW)
    assert failed.value.reason is FailureReason.OTHER


async def test_taking_back_sets_the_condition_to_false(at: ClientStage) -> None:
    """The condition keeps its reason."""
    ref = at.pod()
    pod = await at.writer.mark(ref, False, NOW)
    assert pod is not None
    unmarked = await at.writer.unmark(pod, Moment(9.0, EPOCH + 9.0))
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


async def test_taking_back_from_a_pod_that_changed_meanwhile_fails(at: ClientStage) -> None:
    """A later write by somebody else is not overwritten: the server answers 409, and the call fails as a conflict."""
    pod = await at.writer.mark(at.pod(), False, NOW)
    assert pod is not None
    at.server.patch("pods", "web", {"metadata": {"labels": {"changed": "yes"}}})
    with pytest.raises(CallFailed) as failed:
        await at.writer.unmark(pod, NOW)
    assert failed.value.reason is FailureReason.CONFLICT
    assert at.condition()["status"] == "True"


async def test_deleting_asks_for_this_uid_with_the_pods_own_grace(at: ClientStage) -> None:
    """The body contains the precondition and no grace period."""
    ref = at.pod()
    assert await at.writer.delete(ref, at_once)
    [request] = at.server.requests.select(verb="delete")
    assert request.body == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": ref.uid}}


async def test_a_deletion_returns_false_if_the_uid_differs_or_the_pod_is_gone(at: ClientStage) -> None:
    """The server answers 409 (precondition) or 404: the pod is gone, and the pod that has its name now is unchanged."""
    ref = at.pod()
    assert not await at.writer.delete(ref._replace(uid="other"), at_once)
    assert not await at.writer.delete(PodRef(NamespacedName("default", "gone"), "x"), at_once)
    pod = at.server.get("pods", "web") or {}
    assert "deletionTimestamp" not in pod["metadata"]
    assert at.server.requests.counts["delete", "pods", 409] == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"metadata": {"continue": {}}, "items": []}, id="a list"),
        pytest.param({"kind": "Pod", "metadata": {"name": "web", "uid": "other"}}, id="another pod"),
        pytest.param({"kind": "Status", "status": "Failure"}, id="a failure"),
        pytest.param([], id="no object"),
    ],
)
async def test_a_200_that_confirms_nothing_is_no_eviction(
    at: ClientStage, monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    """A proxy may answer anything with a 200: the pod would count as evicted, and stay for ever."""

    async def make(*_: object, **__: object) -> ApiAnswer:
        return ApiAnswer(Outcome.DONE, 200, body, None)

    ref = at.pod()
    monkeypatch.setattr(ApiCalls, "make", make)
    for end in (at.writer.delete, at.writer.evict):
        with pytest.raises(CallFailed, match=r"does not say that default/web .*is being deleted \(HTTP 200\)"):
            await end(ref, at_once)


DELETED = "2026-03-01T12:00:00Z"


@pytest.mark.parametrize(
    ("body", "confirms"),
    [
        ({"kind": "Pod", "metadata": {"uid": "UID", "deletionTimestamp": DELETED}}, {"delete", "evict"}),
        ({"kind": "Pod", "metadata": {"uid": "UID"}}, set()),
        ({"kind": "Status", "status": "Success", "details": {"uid": "UID"}}, {"delete", "evict"}),
        ({"kind": "Status", "status": "Success", "details": {"uid": "other"}}, set()),
        ({"kind": "Status", "status": "Success"}, {"evict"}),
    ],
)
async def test_a_deletion_is_confirmed_by_the_pod_or_its_name_and_an_eviction_by_a_success(
    at: ClientStage, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], confirms: set[str]
) -> None:
    """So the API server answers; a proxy that answers from a cache shows a pod that is not being deleted."""
    ref = at.pod()
    answer = json.loads(json.dumps(body).replace("UID", ref.uid))

    async def make(*_: object, **__: object) -> ApiAnswer:
        return ApiAnswer(Outcome.DONE, 200, answer, None)

    monkeypatch.setattr(ApiCalls, "make", make)
    for name, end in (("delete", at.writer.delete), ("evict", at.writer.evict)):
        if name in confirms:
            assert await end(ref, at_once)
        else:
            with pytest.raises(CallFailed, match="does not say that"):
                await end(ref, at_once)


async def test_an_answer_that_comes_unasked_during_the_last_decision_is_not_taken_for_the_evictions(
    tmp_path: Path,
) -> None:
    """A proxy repeats its last answer on the kept connection: the pod would count as evicted, and stay for ever."""
    answer = b'HTTP/1.1 201 Created\r\nContent-Length: 36\r\n\r\n{"kind":"Status","status":"Success"}'
    arrived, again, repeated, closed = list[bytes](), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            arrived.append(await reader.readuntil(b"\r\n"))
            writer.write(answer)
            await again.wait()
            writer.write(answer)
            await writer.drain()
            repeated.set()
            await reader.read()
        writer.close()
        closed.set()

    async def decide() -> None:
        again.set()
        await repeated.wait()
        for _ in range(5):  # The client reads it in one of the next passes of the loop.
            await asyncio.sleep(0)

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    connection = await with_kubeconfig(str(write_kubeconfig(tmp_path / "config", url)), None, HandClock())
    calls = ApiCalls(connection.api_client(), PATIENCE_SECONDS, lambda *_: None, lambda *_: None)
    writer = ApiWriter(calls, MalformedObjects(lambda _: None))
    try:
        assert await writer.evict(PodRef(NamespacedName("default", "first"), "1"), at_once)
        with pytest.raises(CallFailed, match="not sent: its connection"):
            await writer.evict(PodRef(NamespacedName("default", "second"), "2"), decide)
    finally:
        await connection.close()
        await closed.wait()
        proxy.close()
    assert arrived == [b"POST /api/v1/namespaces/default/pods/first/eviction HTTP/1.1\r\n"]


async def test_another_conflict_is_a_failed_call(at: ClientStage) -> None:
    """A 409 that does not name the UID says nothing about the pod's identity."""
    ref = at.pod()
    message = "Operation cannot be fulfilled on pods web: the object has been modified"
    at.server.faults.add(verb="delete", status=409, message=message)
    with pytest.raises(CallFailed, match="the object has been modified"):
        await at.writer.delete(ref, at_once)


# Errors


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, 7.0),
        ({"status": 429, "details": {"retryAfterSeconds": 3}}, 3.0),
        ({"status": 503}, None),
    ],
)
async def test_the_servers_retry_time_is_passed_on(
    at: ClientStage, fault: dict[str, Any], seconds: float | None
) -> None:
    """The time is in the header or in the details of the Status."""
    at.server.faults.add(verb="get", **fault)
    with pytest.raises(CallFailed) as failed:
        await at.reader.read_node("n1")
    assert (failed.value.reason, failed.value.retry_after_seconds) == (failure_reason(fault["status"]), seconds)


async def test_a_call_that_hangs_ends_with_the_timeout(tmp_path: Path) -> None:
    """The timeout covers connecting, the answer and its body together."""
    async with client_stage(tmp_path, timeout_seconds=0.05) as at:
        at.server.faults.add(verb="get", hang=True)
        with pytest.raises(CallFailed, match=r"no answer from the API server within 0\.05 s") as failed:
            await at.reader.read_node("n1")
        assert failed.value.reason is FailureReason.NO_ANSWER
        assert at.counted == [("get", "nodes", "timeout")]


async def test_an_answer_to_a_read_that_had_none_is_waited_for_twice_as_long(tmp_path: Path) -> None:
    """That of another read is not."""
    async with client_stage(tmp_path, timeout_seconds=0.05) as at:
        at.server.faults.add(verb="get", hang=True)
        for name, seconds in (("n1", "0.05"), ("n1", "0.1"), ("n1", "0.2"), ("n2", "0.05")):
            with pytest.raises(CallFailed, match=rf"within {seconds} s"):
                await at.reader.read_node(name)


async def test_a_cancelled_call_raises_the_cancellation(at: ClientStage) -> None:
    """A cancellation is not a failed call."""
    at.server.faults.add(verb="get", hang=True)
    task = asyncio.create_task(at.reader.read_node("n1"))
    await at.server.requests.wait_for(verb="get")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_server_that_is_down_or_resets_the_connection_is_a_failed_call(at: ClientStage) -> None:
    """The error for a refused connection is a plain sentence without a status code."""
    at.server.faults.add(verb="get", reset=True)
    with pytest.raises(CallFailed) as failed:
        await at.reader.read_node("n1")
    assert failed.value.reason is FailureReason.NO_ANSWER
    at.server.faults.clear()
    await at.server.stop()
    with pytest.raises(CallFailed, match="the API server cannot be reached"):
        await at.reader.read_node("n1")
    assert {code for _, _, code in at.counted} == {"connection"}


async def test_each_answer_is_counted_and_its_date_is_reported(at: ClientStage) -> None:
    """Refusals are counted and dated as well."""
    await at.reader.read_node("n1")
    await at.reader.read_node("gone")
    await at.writer.delete(at.pod(), at_once)
    assert at.counted == [("get", "nodes", "200"), ("get", "nodes", "404"), ("delete", "pods", "200")]
    offset = at.server.clock.now().timestamp() - at.dates[-1]
    assert len(at.dates) == 3
    assert 0.0 <= offset < PATIENCE_SECONDS


@pytest.mark.parametrize("status", [502, 503, 504, 429, 404, 200])
async def test_the_date_of_a_proxys_answer_is_not_used(at: ClientStage, status: int) -> None:
    """Objects are not dated by the proxy's clock; the API server's own refusals contain a Status."""
    at.server.faults.add(verb="get", status=status, html=True, date_ahead_seconds=7200.0, times=1)
    with pytest.raises(CallFailed):
        await at.reader.read_node("n1")
    assert at.dates == []
    at.server.faults.add(verb="get", status=503, date_ahead_seconds=7200.0)
    with pytest.raises(CallFailed):
        await at.reader.read_node("n1")
    assert at.dates[-1] - at.server.clock.now().timestamp() == pytest.approx(7200, abs=PATIENCE_SECONDS)


async def test_no_call_waits_for_a_connection(tmp_path: Path) -> None:
    """Two hundred requests reach the server before the first is answered."""
    async with client_stage(tmp_path) as at:
        fault = at.server.faults.add(verb="get", hang=True)
        tasks = [asyncio.create_task(at.reader.read_node("n1")) for _ in range(200)]
        await at.server.requests.wait_for(verb="get", count=200)
        assert fault.hits == 200
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_closed_connection_is_a_failed_call(tmp_path: Path) -> None:
    """A call that is made while the process ends fails with this error."""
    async with client_stage(tmp_path) as at:
        await at.connection.close()
        with pytest.raises(CallFailed, match="closed"):
            await at.reader.read_node("n1")


async def test_a_401_without_a_newer_token_is_a_failed_call(at: ClientStage) -> None:
    """The request is sent once, since sending it again would not help."""
    at.server.tokens = {"secret"}
    with pytest.raises(CallFailed) as failed:
        await at.reader.read_node("n1")
    assert failed.value.reason is FailureReason.UNAUTHORIZED
    assert at.server.requests.counts["get", "nodes", 401] == 1
