"""The embedded API server: lists, selectors and pages."""

from __future__ import annotations

import pytest
from apiserver_client import NODES, PODS, add_node, add_pod, serving

ALL_PODS = "/api/v1/pods"


async def test_a_list_has_the_current_version_and_items_without_kind() -> None:
    """Items of a real server's list lack kind and apiVersion, too."""
    async with serving() as (server, api):
        add_node(server)
        listed = await api.get(NODES)
        assert (listed.body["kind"], listed.body["apiVersion"]) == ("NodeList", "v1")
        assert listed.body["metadata"] == {"resourceVersion": str(server.store.resource_version)}
        assert "kind" not in listed.body["items"][0]
        assert listed.names == ["n1"]


async def test_an_empty_list_has_an_empty_array() -> None:
    """The items are neither null nor missing."""
    async with serving() as (_, api):
        assert (await api.get(ALL_PODS)).body["items"] == []


async def test_lists_are_sorted_by_namespace_and_name() -> None:
    """The order of creation does not matter."""
    async with serving() as (server, api):
        for namespace, name in (("b", "a"), ("a", "z"), ("a-b", "m"), ("a", "b")):
            server.create("configmaps", {"metadata": {"name": name, "namespace": namespace}})
        assert (await api.get("/api/v1/configmaps")).names == ["m", "b", "z", "a"]
        assert (await api.get("/api/v1/namespaces/a/configmaps")).names == ["b", "z"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.nodeName=n1", ["p1", "p2"]),
        ("spec.nodeName==n1,metadata.name=p2", ["p2"]),
        ("spec.nodeName!=n1", ["p3", "p4"]),
        ("spec.nodeName!=", ["p1", "p2", "p3"]),
        ("spec.nodeName=", ["p4"]),
        ("status.phase=Running", ["p1", "p2", "p3", "p4"]),
        ("status.phase!=Running", []),
        ("metadata.namespace=default,spec.nodeName=n2", ["p3"]),
        ("metadata.namespace=other", []),
        ("spec.restartPolicy=Always,metadata.name!=p1", ["p2", "p3", "p4"]),
    ],
)
async def test_field_selectors_select_by_equality_and_inequality(selector: str, names: list[str]) -> None:
    """The selectors use indexed fields and others."""
    async with serving() as (server, api):
        for name, node in (("p1", "n1"), ("p2", "n1"), ("p3", "n2"), ("p4", "")):
            add_pod(server, name, node)
        assert (await api.get(ALL_PODS, fieldSelector=selector)).names == names


async def test_an_unknown_field_label_gets_a_400() -> None:
    """The message is the real server's."""
    async with serving() as (_, api):
        refused = await api.get(ALL_PODS, fieldSelector="spec.color=red")
        assert refused.code == 400
        assert refused.message.endswith("field label not supported: spec.color")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["p1"]),
        ("app!=web", ["p2", "p3"]),
        ("app in (web, db)", ["p1", "p2"]),
        ("app notin (web),tier", ["p2"]),
        ("!app", ["p3"]),
        ("app,tier=back", ["p2"]),
    ],
)
async def test_label_selectors_select_by_equality_sets_and_existence(selector: str, names: list[str]) -> None:
    """The table shows the pods that each selector selects."""
    async with serving() as (server, api):
        add_pod(server, "p1", labels={"app": "web", "tier": "front"})
        add_pod(server, "p2", labels={"app": "db", "tier": "back"})
        add_pod(server, "p3", labels={})
        assert (await api.get(ALL_PODS, labelSelector=selector)).names == names


async def test_events_are_found_by_the_uid_of_their_object() -> None:
    """``kubectl describe`` uses this selector."""
    async with serving() as (server, api):
        for name, uid in (("e1", "u1"), ("e2", "u2")):
            server.create("events", {"metadata": {"name": name}, "involvedObject": {"uid": uid, "name": "p"}})
        found = await api.get("/api/v1/events", fieldSelector="involvedObject.uid=u2,involvedObject.name=p")
        assert found.names == ["e2"]


async def test_all_pages_of_one_list_show_the_same_moment() -> None:
    """A write between two pages appears in neither of them."""
    async with serving() as (server, api):
        for name in ("p1", "p2", "p3"):
            add_pod(server, name)
        first = await api.get(ALL_PODS, limit="2")
        assert first.body["metadata"]["remainingItemCount"] == 1
        server.delete("pods", "p3", grace_period_seconds=0)
        add_pod(server, "p4")
        second = await api.get(ALL_PODS, limit="2", **{"continue": first.body["metadata"]["continue"]})
        assert (first.names, second.names) == (["p1", "p2"], ["p3"])
        assert "continue" not in second.body["metadata"]
        assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


async def test_an_expired_continue_token_gets_a_410_with_a_token_to_continue() -> None:
    """The reason is Expired; the list that continues with the token in the answer also shows newer pods."""
    async with serving() as (server, api):
        for name in ("p1", "p2"):
            add_pod(server, name)
        first = await api.get(ALL_PODS, limit="1")
        add_pod(server, "p3")
        server.store.compact()
        gone = await api.get(ALL_PODS, limit="1", **{"continue": first.body["metadata"]["continue"]})
        assert (gone.code, gone.body["reason"]) == (410, "Expired")
        rest = await api.get(ALL_PODS, **{"continue": gone.body["metadata"]["continue"]})
        assert rest.names == ["p2", "p3"]


async def test_a_list_from_the_cache_has_no_pages() -> None:
    """With resourceVersion=0 the limit is ignored, as by the watch cache."""
    async with serving() as (server, api):
        for name in ("p1", "p2"):
            add_pod(server, name)
        assert (await api.get(ALL_PODS, limit="1", resourceVersion="0")).names == ["p1", "p2"]


async def test_a_list_at_a_future_version_gets_a_504() -> None:
    """This happens after etcd was restored from a backup."""
    async with serving() as (server, api):
        refused = await api.get(ALL_PODS, resourceVersion=str(server.store.resource_version + 1))
        assert (refused.code, refused.body["reason"]) == (504, "Timeout")
        assert "Too large resource version" in refused.message


async def test_a_list_can_be_of_an_exact_earlier_version() -> None:
    """The version must be in the history, else the answer is a 410."""
    async with serving() as (server, api):
        add_pod(server, "p1")
        version = str(server.store.resource_version)
        server.delete("pods", "p1", grace_period_seconds=0)
        exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        assert (await api.get(ALL_PODS, **exact)).names == ["p1"]
        server.store.compact()
        assert (await api.get(ALL_PODS, **exact)).code == 410


async def test_a_lagging_cache_shows_an_older_state_to_reads_that_accept_it() -> None:
    """Reads with resourceVersion=0 show the older state; reads without a resourceVersion show the newest."""
    async with serving() as (server, api):
        add_node(server, "n1")
        server.lag("nodes")
        server.taint("n1", "k")
        add_node(server, "n2")
        any_version = {"resourceVersion": "0"}
        assert (await api.get(NODES, **any_version)).names == ["n1"]
        assert "taints" not in (await api.get(f"{NODES}/n1", **any_version)).body["spec"]
        assert (await api.get(f"{NODES}/n2", **any_version)).code == 404
        assert "taints" in (await api.get(f"{NODES}/n1")).body["spec"]
        server.catch_up("nodes")
        assert (await api.get(NODES, **any_version)).names == ["n1", "n2"]


async def test_a_long_list_arrives_completely() -> None:
    """A list that is written in slices has the length that its header announces."""
    async with serving() as (server, api):
        for index in range(300):
            server.create("configmaps", {"metadata": {"name": f"c{index:03}"}, "data": {"x": "y" * 2000}})
        assert (await api.get("/api/v1/configmaps")).names == [f"c{index:03}" for index in range(300)]


async def test_kubectl_gets_tables() -> None:
    """A request with kubectl's Accept header gets rows with cells and partial metadata."""
    async with serving() as (server, api):
        add_node(server)
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
        table = (await api.request("GET", NODES, headers=accept)).body
        assert table["kind"] == "Table"
        assert table["rows"][0]["cells"][:2] == ["n1", "Ready"]
        assert table["rows"][0]["object"]["metadata"]["name"] == "n1"


async def test_deletecollection_deletes_only_what_the_selector_selects() -> None:
    """The pod that is not selected stays."""
    async with serving() as (server, api):
        for name, node in (("p1", "n1"), ("p2", "")):
            add_pod(server, name, node)
        assert (await api.delete(PODS, params={"fieldSelector": "spec.nodeName="})).names == ["p2"]
        assert [pod["metadata"]["name"] for pod in server.list("pods")] == ["p1"]
