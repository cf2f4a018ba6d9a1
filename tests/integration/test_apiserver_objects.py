"""The embedded API server: creating, reading and updating objects."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest
from apiserver_client import CONFIGMAPS, LEASES, NODES, PODS, STRATEGIC, add_node, add_pod, pod_body, serving

from fake_apiserver import WallClock

NOT_READY = "node.kubernetes.io/not-ready"


async def test_a_created_object_gets_uid_version_and_whole_second_timestamp() -> None:
    """Creating an object completes its metadata as on a real server."""
    async with serving() as (_, api):
        created = await api.post(NODES, {"metadata": {"name": "n1"}})
        metadata = created.body["metadata"]
        assert created.code == 201
        assert created.body["kind"] == "Node"
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f-]{21}", metadata["uid"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
        assert (await api.get(f"{NODES}/n1")).body == created.body


async def test_every_write_gets_the_next_version_of_one_counter() -> None:
    """Versions are global: no two objects share one."""
    async with serving() as (_, api):
        node = await api.post(NODES, {"metadata": {"name": "n1"}})
        pod = await api.post(PODS, pod_body())
        versions = [int(answer.body["metadata"]["resourceVersion"]) for answer in (node, pod)]
        assert versions[1] == versions[0] + 1


async def test_a_missing_object_is_a_404_status_that_names_it() -> None:
    """The Status has the real server's message and details."""
    async with serving() as (_, api):
        missing = await api.get(f"{PODS}/p1")
        assert missing.code == 404
        assert missing.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'pods "p1" not found',
            "reason": "NotFound",
            "details": {"name": "p1", "kind": "pods"},
            "code": 404,
        }


async def test_a_name_that_exists_is_a_409_already_exists() -> None:
    """Creating an object twice is refused."""
    async with serving() as (_, api):
        await api.post(PODS, pod_body())
        again = await api.post(PODS, pod_body())
        assert (again.code, again.body["reason"]) == (409, "AlreadyExists")


async def test_generated_names_begin_with_the_given_prefix() -> None:
    """The server adds five characters to generateName."""
    async with serving() as (_, api):
        body = pod_body() | {"metadata": {"generateName": "web-"}}
        assert re.fullmatch(r"web-\w{5}", (await api.post(PODS, body)).body["metadata"]["name"])


async def test_pods_get_the_two_default_tolerations() -> None:
    """DefaultTolerationSeconds adds 300 s for not-ready and unreachable."""
    async with serving() as (_, api):
        tolerations = (await api.post(PODS, pod_body())).body["spec"]["tolerations"]
        keys = [(t["key"], t["effect"], t["tolerationSeconds"]) for t in tolerations]
        assert keys == [(NOT_READY, "NoExecute", 300), ("node.kubernetes.io/unreachable", "NoExecute", 300)]


async def test_pods_with_tolerations_of_their_own_get_no_default_tolerations() -> None:
    """This pod tolerates every taint."""
    async with serving() as (_, api):
        own = [{"operator": "Exists"}]
        assert (await api.post(PODS, pod_body(tolerations=own))).body["spec"]["tolerations"] == own


async def test_default_tolerations_can_be_switched_off() -> None:
    """Without the admission plugin, a pod has only the tolerations of its manifest."""
    async with serving() as (server, api):
        server.admission.default_toleration_seconds = None
        assert "tolerations" not in (await api.post(PODS, pod_body())).body["spec"]


async def test_the_status_in_a_created_pod_is_ignored() -> None:
    """A new pod is Pending, whatever status the client sends."""
    async with serving() as (_, api):
        created = await api.post(PODS, pod_body() | {"status": {"phase": "Running"}})
        assert created.body["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("toleration", "field"),
    [
        ({"key": "k", "effect": "Never"}, "spec.tolerations[0].effect"),
        ({"key": "k", "tolerationSeconds": 5}, "spec.tolerations[0].effect"),
        ({"operator": "Equal"}, "spec.tolerations[0].operator"),
        ({"key": "k", "operator": "Gt", "value": "5"}, "spec.tolerations[0].operator"),
        ({"key": "k", "operator": "Exists", "value": "v"}, "spec.tolerations[0].operator"),
    ],
)
async def test_invalid_tolerations_get_a_422(toleration: dict[str, object], field: str) -> None:
    """The cause names the field."""
    async with serving() as (_, api):
        refused = await api.post(PODS, pod_body(tolerations=[toleration]))
        assert refused.code == 422
        assert [cause["field"] for cause in refused.body["details"]["causes"]] == [field]


async def test_tolerations_may_be_added_to_a_pod_and_their_seconds_changed() -> None:
    """A real server allows only these two changes of tolerations."""
    async with serving() as (_, api):
        pod = (await api.post(PODS, pod_body(nodeName="n1"))).body
        pod["spec"]["tolerations"][0]["tolerationSeconds"] = 5
        pod["spec"]["tolerations"].append({"key": "k", "operator": "Exists"})
        updated = await api.put(f"{PODS}/p1", pod)
        assert updated.code == 200
        assert updated.body["spec"]["tolerations"][0]["tolerationSeconds"] == 5
        assert len(updated.body["spec"]["tolerations"]) == 3


async def test_tolerations_may_not_be_removed_from_a_pod() -> None:
    """The message is the real server's."""
    async with serving() as (_, api):
        pod = (await api.post(PODS, pod_body(tolerations=[{"key": "k", "operator": "Exists"}]))).body
        pod["spec"]["tolerations"] = pod["spec"]["tolerations"][1:]
        refused = await api.put(f"{PODS}/p1", pod)
        assert refused.code == 422
        assert "existing toleration can not be modified except its tolerationSeconds" in refused.message


async def test_default_tolerations_that_are_removed_are_added_again() -> None:
    """The admission plugin also runs on updates, so a PUT without default tolerations changes nothing."""
    async with serving() as (_, api):
        pod = (await api.post(PODS, pod_body())).body
        updated = await api.put(f"{PODS}/p1", {**pod, "spec": {**pod["spec"], "tolerations": []}})
        assert (updated.code, updated.body) == (200, pod)


async def test_no_manager_owns_what_admission_added() -> None:
    """managedFields contains only fields that the client sent or that have defaults."""
    async with serving() as (_, api):
        pod = (await api.post(PODS, pod_body())).body
        assert "f:tolerations" not in pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
        own = (await api.post(PODS, pod_body("p2", tolerations=[{"key": "k", "operator": "Exists"}]))).body
        assert "f:tolerations" in own["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]


async def test_an_update_cannot_move_a_bound_pod() -> None:
    """spec.nodeName is not one of the fields that may change."""
    async with serving() as (_, api):
        pod = (await api.post(PODS, pod_body(nodeName="n1"))).body
        pod["spec"]["nodeName"] = "n2"
        refused = await api.put(f"{PODS}/p1", pod)
        assert refused.code == 422
        assert "spec: Forbidden: pod updates may not change fields other than" in refused.message


async def test_binding_sets_the_node_and_the_condition_podscheduled() -> None:
    """Schedulers use the binding subresource."""
    async with serving() as (_, api):
        await api.post(PODS, pod_body())
        bound = await api.post(f"{PODS}/p1/binding", {"metadata": {"name": "p1"}, "target": {"name": "n1"}})
        pod = (await api.get(f"{PODS}/p1")).body
        assert bound.code == 201
        assert pod["spec"]["nodeName"] == "n1"
        assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [("PodScheduled", "True")]
        again = await api.post(f"{PODS}/p1/binding", {"metadata": {"name": "p1"}, "target": {"name": "n2"}})
        assert again.code == 409


async def test_an_update_with_a_stale_version_gets_a_409() -> None:
    """Leader election relies on this compare-and-swap."""
    async with serving() as (_, api):
        lease = (await api.post(LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})).body
        assert (await api.put(f"{LEASES}/l", lease | {"spec": {"holderIdentity": "b"}})).code == 200
        stale = await api.put(f"{LEASES}/l", lease | {"spec": {"holderIdentity": "c"}})
        assert (stale.code, stale.body["reason"]) == (409, "Conflict")
        assert "the object has been modified; please apply your changes to the latest version" in stale.message


async def test_leases_need_a_version_to_be_updated_and_configmaps_do_not() -> None:
    """Each kind has its own rule on whether it may be overwritten without a version."""
    async with serving() as (_, api):
        await api.post(LEASES, {"metadata": {"name": "l"}})
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}})
        blind_lease = await api.put(f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
        blind_configmap = await api.put(f"{CONFIGMAPS}/c", {"metadata": {"name": "c"}, "data": {"a": "b"}})
        assert (blind_lease.code, blind_configmap.code) == (422, 200)


async def test_a_put_creates_a_lease_but_not_a_pod() -> None:
    """Of these two kinds, only Leases may be created by an update."""
    async with serving() as (_, api):
        assert (await api.put(f"{LEASES}/l", {"metadata": {"name": "l"}})).code == 201
        assert (await api.put(f"{PODS}/p", pod_body("p"))).code == 404


async def test_a_put_with_another_uid_gets_a_409() -> None:
    """A UID in a PUT is a precondition."""
    async with serving() as (_, api):
        pod = (await api.post(PODS, pod_body())).body
        pod["metadata"] |= {"uid": "other"}
        refused = await api.put(f"{PODS}/p1", pod)
        assert refused.code == 409
        assert "Precondition failed: UID in precondition: other" in refused.message


async def test_the_main_resource_ignores_status_and_the_status_resource_ignores_spec() -> None:
    """Each endpoint writes only its own part."""
    async with serving() as (_, api):
        await api.post(NODES, {"metadata": {"name": "n1"}, "status": {"phase": "Running"}})
        both = {"spec": {"unschedulable": True}, "status": {"phase": "Terminated"}}
        main = (await api.patch(f"{NODES}/n1", both)).body
        assert (main["spec"], main["status"]["phase"]) == ({"unschedulable": True}, "Running")
        both["spec"] = {"unschedulable": False}
        status = (await api.patch(f"{NODES}/n1/status", both)).body
        assert (status["spec"], status["status"]["phase"]) == ({"unschedulable": True}, "Terminated")


async def test_a_write_that_changes_nothing_creates_no_version() -> None:
    """So no watch gets an event."""
    async with serving() as (server, api):
        add_node(server)
        before = server.store.resource_version
        await api.patch(f"{NODES}/n1", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
        assert server.store.resource_version == before


@pytest.mark.parametrize(
    ("taints", "field"),
    [
        ([{"key": "k", "effect": "NoExecute"}, {"key": "k", "effect": "NoExecute", "value": ""}], "metadata.taints[1]"),
        ([{"key": "k", "effect": "Evict"}], "metadata.taints[0].effect"),
        ([{"key": "k"}], "metadata.taints[0].effect"),
    ],
)
async def test_invalid_taints_get_a_422(taints: list[dict[str, str]], field: str) -> None:
    """Taints are unique by key and effect, and their effect must be known."""
    async with serving() as (server, api):
        add_node(server)
        refused = await api.patch(f"{NODES}/n1", {"spec": {"taints": taints}})
        assert refused.code == 422
        # The real server validates nodes twice on updates.
        assert [cause["field"] for cause in refused.body["details"]["causes"]] == [field, field]


async def test_the_last_writer_of_the_taints_owns_them_with_the_time_of_its_write() -> None:
    """managedFields name the manager from the query or the User-Agent, and the last one owns the whole list."""
    async with serving() as (_, api):
        await api.post(NODES, {"metadata": {"name": "n1", "labels": {"a": "b"}}}, headers={"User-Agent": "maker/1"})
        first = {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
        second = {"spec": {"taints": [{"key": "k2", "effect": "NoExecute"}]}}
        await api.patch(f"{NODES}/n1", first, headers={"User-Agent": "first/v1.2 (linux)"})
        node = await api.patch(f"{NODES}/n1", second, params={"fieldManager": "second"})
        entries = {e["manager"]: e for e in node.body["metadata"]["managedFields"]}
        assert set(entries) == {"maker", "second"}
        assert entries["second"]["fieldsV1"] == {"f:spec": {"f:taints": {}}}
        assert entries["second"]["operation"] == "Update"
        assert re.fullmatch(r".*T\d\d:\d\d:\d\dZ", entries["second"]["time"])


async def test_another_write_by_the_same_manager_moves_the_time_of_its_taints() -> None:
    """An entry has the time of its last change of any field, so taints may look younger than they are."""
    moment = [1_000_000.0]
    async with serving(clock=WallClock(source=lambda: moment[0])) as (server, api):
        add_node(server)
        server.taint("n1", "k", manager="me")
        moment[0] += 60
        node = await api.patch(f"{NODES}/n1", {"metadata": {"labels": {"x": "y"}}}, params={"fieldManager": "me"})
        entry = next(e for e in node.body["metadata"]["managedFields"] if e["manager"] == "me")
        assert "f:taints" in entry["fieldsV1"]["f:spec"]
        assert entry["time"] == server.clock.timestamp()


async def test_status_writes_have_their_own_managed_fields_entry() -> None:
    """One manager has one entry for the main resource and another one for the status subresource."""
    async with serving() as (server, api):
        add_node(server)
        server.taint("n1", "k", manager="me")
        node = await api.patch(f"{NODES}/n1/status", {"status": {"phase": "x"}}, params={"fieldManager": "me"})
        mine = [e for e in node.body["metadata"]["managedFields"] if e["manager"] == "me"]
        assert sorted(e.get("subresource", "") for e in mine) == ["", "status"]


async def test_objects_created_without_managed_fields_never_get_any() -> None:
    """An object that was created with no owned field has no owners after later writes, either."""
    async with serving() as (server, api):
        await api.post(NODES, {"metadata": {"name": "bare"}})
        server.create("nodes", {"metadata": {"name": "chosen", "labels": {"a": "b"}}}, managed_fields=False)
        for name in ("bare", "chosen"):
            server.taint(name, "k")
            assert "managedFields" not in (await api.get(f"{NODES}/{name}")).body["metadata"]


async def test_the_date_header_has_the_servers_clock() -> None:
    """If the server's clock is an hour ahead, so are the dates of its answers and its timestamps."""
    async with serving(clock=WallClock(3600)) as (_, api):
        created = await api.post(PODS, pod_body())
        date = parsedate_to_datetime(created.headers["Date"])
        assert timedelta(minutes=50) < date - WallClock().now() < timedelta(minutes=61)
        made = datetime.fromisoformat(created.body["metadata"]["creationTimestamp"])
        assert abs(made - date) <= timedelta(minutes=1)


async def test_only_accepted_tokens_are_allowed() -> None:
    """A token that is removed from the set is refused from the next request on."""
    tokens = {"good"}
    async with serving(tokens=tokens) as (_, api):
        headers = {"Authorization": "Bearer good"}
        assert (await api.request("GET", NODES, headers=headers)).code == 200
        tokens.clear()
        refused = await api.request("GET", NODES, headers=headers)
        assert (refused.code, refused.body["reason"], refused.message) == (401, "Unauthorized", "Unauthorized")
        assert (await api.request("GET", NODES)).code == 401


async def test_an_authorizer_refuses_as_rbac_does() -> None:
    """The 403 names the verb and the resource with its subresource."""
    async with serving(authorize=lambda info: info.resource_name != "pods/status") as (server, api):
        add_pod(server)
        refused = await api.patch(f"{PODS}/p1/status", {"status": {}}, STRATEGIC)
        assert refused.code == 403
        assert 'cannot patch resource "pods/status" in API group "" in the namespace "default"' in refused.message
        assert (await api.get(f"{PODS}/p1")).code == 200


async def test_dry_run_writes_nothing() -> None:
    """The answer is that of a real write."""
    async with serving() as (server, api):
        before = server.store.resource_version
        assert (await api.post(PODS, pod_body(), params={"dryRun": "All"})).code == 201
        assert server.store.resource_version == before
        assert server.get("pods", "p1") is None


async def test_unknown_paths_kinds_and_bodies_are_refused_with_their_codes() -> None:
    """Depending on the error, the answer is a 404, 400 or 415."""
    async with serving() as (_, api):
        assert (await api.get("/apis/apps/v1/deployments")).code == 404
        assert (await api.get(f"{PODS}/p1/logs")).code == 404
        assert (await api.post(PODS, {"kind": "Node", "metadata": {"name": "n"}})).code == 400
        assert (await api.patch(f"{NODES}/n1", {}, "application/apply-patch+yaml")).code == 415
        answer = await api.request("POST", PODS, None, data=b"{nonsense", headers={"Content-Type": "application/json"})
        assert answer.code == 400


async def test_discovery_lists_every_kind_with_its_subresources() -> None:
    """Kopf and kubectl learn from discovery which kinds can be watched and patched."""
    async with serving() as (_, api):
        assert (await api.get("/api")).body["versions"] == ["v1"]
        groups = [group["name"] for group in (await api.get("/apis")).body["groups"]]
        assert groups == ["policy", "storage.k8s.io", "coordination.k8s.io", "rbac.authorization.k8s.io"]
        core = {r["name"]: r for r in (await api.get("/api/v1")).body["resources"]}
        assert {"nodes", "nodes/status", "pods", "pods/status", "pods/eviction", "pods/binding"} <= set(core)
        assert core["pods"]["namespaced"]
        assert not core["nodes"]["namespaced"]
        assert "watch" in core["nodes"]["verbs"]
        assert (await api.get("/version")).body["major"] == "1"


async def test_the_same_seed_gives_the_same_uids() -> None:
    """A run can be repeated with its seed."""
    uids = []
    for _ in range(2):
        async with serving() as (server, _api):
            uids.append(add_pod(server))
    assert uids[0] == uids[1]
