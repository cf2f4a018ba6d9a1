"""The embedded API server: lists, selectors and pages."""

from __future__ import annotations

import pytest
from apiserver_client import NODES, PODS, add_node, add_pod, serving

ALL_PODS = "/api/v1/pods"


async def test_a_list_carries_the_version_of_the_moment_and_items_without_kind() -> None:
    """Items of a real list lack kind and apiVersion."""
    async with serving() as (server, api):
        add_node(server)
        listed = await api.get(NODES)
        assert (listed.body["kind"], listed.body["apiVersion"]) == ("NodeList", "v1")
        assert listed.body["metadata"] == {"resourceVersion": str(server.store.resource_version)}
        assert "kind" not in listed.body["items"][0]
        assert listed.names == ["n1"]


async def test_an_empty_list_has_an_empty_array() -> None:
    """Not null, and not missing."""
    async with serving() as (_, api):
        assert (await api.get(ALL_PODS)).body["items"] == []


async def test_lists_come_in_the_order_of_their_keys() -> None:
    """Namespace first, then name, whatever the order of creation."""
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
async def test_field_selectors_select(selector: str, names: list[str]) -> None:
    """Equality and inequality, over indexed fields and others."""
    async with serving() as (server, api):
        for name, node in (("p1", "n1"), ("p2", "n1"), ("p3", "n2"), ("p4", "")):
            add_pod(server, name, node)
        assert (await api.get(ALL_PODS, fieldSelector=selector)).names == names


async def test_an_unknown_field_label_is_a_400() -> None:
    """With the real server's words."""
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
async def test_label_selectors_select(selector: str, names: list[str]) -> None:
    """Equality, sets and existence."""
    async with serving() as (server, api):
        add_pod(server, "p1", labels={"app": "web", "tier": "front"})
        add_pod(server, "p2", labels={"app": "db", "tier": "back"})
        add_pod(server, "p3", labels={})
        assert (await api.get(ALL_PODS, labelSelector=selector)).names == names


async def test_events_are_found_by_the_uid_of_what_they_are_about() -> None:
    """What kubectl describe asks for."""
    async with serving() as (server, api):
        for name, uid in (("e1", "u1"), ("e2", "u2")):
            server.create("events", {"metadata": {"name": name}, "involvedObject": {"uid": uid, "name": "p"}})
        found = await api.get("/api/v1/events", fieldSelector="involvedObject.uid=u2,involvedObject.name=p")
        assert found.names == ["e2"]


async def test_pages_of_one_list_show_one_moment() -> None:
    """What is written between two pages is seen by neither."""
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


async def test_an_expired_continue_token_is_a_410_with_a_token_to_go_on() -> None:
    """Reason Expired; the token in the answer continues inconsistently."""
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


async def test_a_list_from_the_cache_knows_no_pages() -> None:
    """resourceVersion=0 ignores the limit, as the watch cache does."""
    async with serving() as (server, api):
        for name in ("p1", "p2"):
            add_pod(server, name)
        assert (await api.get(ALL_PODS, limit="1", resourceVersion="0")).names == ["p1", "p2"]


async def test_a_version_from_the_future_is_a_504() -> None:
    """As after a restored etcd."""
    async with serving() as (server, api):
        refused = await api.get(ALL_PODS, resourceVersion=str(server.store.resource_version + 1))
        assert (refused.code, refused.body["reason"]) == (504, "Timeout")
        assert "Too large resource version" in refused.message


async def test_a_list_can_be_of_an_exact_earlier_version() -> None:
    """As long as the history reaches back."""
    async with serving() as (server, api):
        add_pod(server, "p1")
        version = str(server.store.resource_version)
        server.delete("pods", "p1", grace_period_seconds=0)
        exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        assert (await api.get(ALL_PODS, **exact)).names == ["p1"]
        server.store.compact()
        assert (await api.get(ALL_PODS, **exact)).code == 410


async def test_a_lagging_cache_shows_the_past_to_those_who_accept_it() -> None:
    """Reads with resourceVersion=0 and watches of that kind lag behind; reads of the newest version do not."""
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


async def test_a_long_list_arrives_whole() -> None:
    """Lists that are written in slices have the length that they announce."""
    async with serving() as (server, api):
        for index in range(300):
            server.create("configmaps", {"metadata": {"name": f"c{index:03}"}, "data": {"x": "y" * 2000}})
        assert (await api.get("/api/v1/configmaps")).names == [f"c{index:03}" for index in range(300)]


async def test_kubectl_gets_tables() -> None:
    """Rows with cells and partial metadata, where the Accept header asks for them."""
    async with serving() as (server, api):
        add_node(server)
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
        table = (await api.request("GET", NODES, headers=accept)).body
        assert table["kind"] == "Table"
        assert table["rows"][0]["cells"][:2] == ["n1", "Ready"]
        assert table["rows"][0]["object"]["metadata"]["name"] == "n1"


async def test_deletecollection_deletes_what_the_selector_shows() -> None:
    """And nothing else."""
    async with serving() as (server, api):
        for name, node in (("p1", "n1"), ("p2", "")):
            add_pod(server, name, node)
        assert (await api.delete(PODS, params={"fieldSelector": "spec.nodeName="})).names == ["p2"]
        assert [pod["metadata"]["name"] for pod in server.list("pods")] == ["p1"]
