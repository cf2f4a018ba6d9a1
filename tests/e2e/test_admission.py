"""The admission policies of adoption in a real cluster: what they allow, what they refuse, and what they move.

Each test installs a policy under its own names and removes it. The tests need a user that may impersonate others. No
controller runs, and the tests change no pod (they use dry runs of the API server) unless a test says so.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster import STRATEGIC, ClusterUnderTest, Json
from tests.manifests.test_kinds import MANIFESTS

pytestmark = pytest.mark.e2e

JSON_PATCH = {"Content-Type": "application/json-patch+json"}
ADOPTED = "taint-eviction/adopted"
LABEL_PATH = "/metadata/labels/taint-eviction~1adopted"
NOTE_PATH = "/metadata/annotations/taint-eviction~1adopted"
NOT_READY: Json = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
UNREACHABLE: Json = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
MAINTENANCE: Json = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
PATHS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
}


@pytest.fixture
def config() -> Path:
    """The kubeconfig of the real cluster; the embedded API server has no admission."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.skip("KUBECONFIG names no cluster")
    return Path(named)


@contextlib.asynccontextmanager
async def applied(cluster: ClusterUnderTest, *files: str) -> AsyncIterator[None]:
    """Create the objects of these manifests, renamed from the controller to the test's prefix, until the block ends."""
    made: list[str] = []
    # Other clients may create pods meanwhile.
    namespaces = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [cluster.prefix, "kube-system"]}
    ours = {"namespaceSelector": {"matchExpressions": [namespaces]}}
    try:
        for file in files:
            text = (MANIFESTS / file).read_text().replace("taint-eviction-controller", cluster.prefix)
            for document in yaml.safe_load_all(text):
                for subject in document.get("subjects", []):
                    subject["namespace"] = cluster.prefix
                name = f"{cluster.prefix}-{len(made)}" if "Role" in document["kind"] else document["metadata"]["name"]
                if document["kind"] == "ClusterRoleBinding":
                    document["roleRef"]["name"] = made[-1].rpartition("/")[2]
                document["metadata"]["name"] = name
                if document["kind"] == "MutatingAdmissionPolicyBinding":
                    document["spec"]["matchResources"] = ours
                path = PATHS[document["kind"]]
                if await cluster.call("POST", path, document, fine=(404,)) is None:
                    pytest.skip(f"this API server has no {document['kind']} in this version")
                made.append(f"{path}/{name}")
        yield
    finally:
        for path in reversed(made):
            await cluster.call("DELETE", path, fine=(404,))


# ---- the account may do what adoption needs, and no more


class Account:
    """A pod as the controller's account can change it, under the policy. Calls change nothing."""

    def __init__(self, cluster: ClusterUnderTest, pod: Json) -> None:
        self._cluster = cluster
        self._user = {"Impersonate-User": f"system:serviceaccount:{cluster.prefix}:{cluster.prefix}"}
        self._path = f"/api/v1/namespaces/{cluster.prefix}/pods/{pod['metadata']['name']}"
        self.uid = pod["metadata"]["uid"]

    async def patch(self, *operations: Json) -> Json:
        """Try a JSON patch."""
        return await self._try("PATCH", self._path, list(operations), JSON_PATCH)

    async def patch_status(self, status: Json) -> Json:
        """Try a patch of the status."""
        return await self._try("PATCH", f"{self._path}/status", {"status": status}, STRATEGIC)

    async def delete(self, **options: Any) -> Json:
        """Try a DELETE; with a body, the API server reads no option from the query."""
        return await self._try("DELETE", self._path, {**options, "dryRun": ["All"]}, {})

    async def evict(self, **options: Any) -> Json:
        """Try an eviction."""
        metadata = {"name": self._path.rpartition("/")[2], "namespace": self._cluster.prefix}
        eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": metadata, "deleteOptions": options}
        return await self._try("POST", f"{self._path}/eviction", eviction, {})

    async def _try(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Json:
        made: Json = await self._cluster.call(method, f"{path}?dryRun=All", body, headers={**self._user, **headers})
        return made


@pytest.fixture
async def account(cluster: ClusterUnderTest) -> AsyncIterator[Account]:
    """A pod with tolerations that have seconds, a label and an annotation, once the policy is in force."""
    await cluster.create_node("a")
    own = {"labels": {"app": "web"}, "annotations": {"note": "mine"}}
    pod = await cluster.create_pod("web", "a", [{**NOT_READY, "tolerationSeconds": 300}, MAINTENANCE], **own)
    files = ("base/cluster-role.yaml", "components/adopt/cluster-role.yaml", "components/adopt/admission-policy.yaml")
    async with applied(cluster, *files):
        tried = Account(cluster, pod.body)
        async with asyncio.timeout(15):
            while True:
                with contextlib.suppress(AssertionError):
                    await tried.patch()  # the rights are in force
                    try:
                        await tried.delete()
                    except AssertionError as refused:
                        if "UID as a precondition" in str(refused):
                            break
                await asyncio.sleep(0.2)
        yield tried


def remove_seconds(index: int) -> Json:
    """Return the operation that removes the seconds from a toleration."""
    return {"op": "remove", "path": f"/spec/tolerations/{index}/tolerationSeconds"}


ADOPT = (
    {"op": "test", "path": "/spec/tolerations/0/tolerationSeconds", "value": 300},
    remove_seconds(0),
    remove_seconds(1),
    {"op": "add", "path": NOTE_PATH, "value": "{}"},
    {"op": "add", "path": LABEL_PATH, "value": "true"},
)


async def test_the_account_may_adopt_and_give_back(cluster: ClusterUnderTest, account: Account) -> None:
    """Seconds, the annotation and the label may be removed and added, with test operations before."""
    adopted = await account.patch({"op": "test", "path": "/metadata/uid", "value": account.uid}, *ADOPT)
    tolerations = adopted["spec"]["tolerations"]
    assert [t["key"] for t in tolerations if "tolerationSeconds" in t] == [UNREACHABLE["key"]]  # which admission added
    assert adopted["metadata"]["annotations"] == {"note": "mine", ADOPTED: "{}"}
    path = f"/api/v1/namespaces/{cluster.prefix}/pods/web"
    await cluster.call("PATCH", path, list(ADOPT), headers=JSON_PATCH)
    given = await account.patch(
        {"op": "add", "path": "/spec/tolerations/0/tolerationSeconds", "value": 300},
        {"op": "add", "path": "/spec/tolerations/1/tolerationSeconds", "value": 60},
        {"op": "remove", "path": NOTE_PATH},
        {"op": "remove", "path": LABEL_PATH},
    )
    assert given["metadata"]["annotations"] == {"note": "mine"}
    assert given["metadata"]["labels"] == {"app": "web"}


async def test_the_account_may_adopt_a_pod_without_labels_and_annotations(
    cluster: ClusterUnderTest, account: Account
) -> None:
    """The maps may be added with their first key and removed with their last one."""
    await cluster.create_pod("bare", "a", [MAINTENANCE])
    bare = Account(cluster, {"metadata": {"name": "bare", "uid": ""}})
    maps = (
        {"op": "add", "path": "/metadata/labels", "value": {ADOPTED: "true"}},
        {"op": "add", "path": "/metadata/annotations", "value": {ADOPTED: "{}"}},
    )
    await bare.patch(*maps, remove_seconds(0))
    await cluster.call("PATCH", f"/api/v1/namespaces/{cluster.prefix}/pods/bare", list(maps), headers=JSON_PATCH)
    gone = await bare.patch(*({"op": "remove", "path": operation["path"]} for operation in maps))
    assert not gone["metadata"].keys() & {"labels", "annotations"}
    assert account.uid


async def test_tolerations_that_admission_plugins_append_are_allowed(account: Account) -> None:
    """Such plugins append tolerations at the end of the list."""
    pressure = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
    await account.patch(*ADOPT, {"op": "add", "path": "/spec/tolerations/-", "value": pressure})


async def test_the_account_may_still_mark_delete_and_evict(account: Account) -> None:
    """The condition is in another resource; a DELETE and an eviction with the UID are allowed."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    await account.patch_status({"conditions": [condition]})
    await account.delete(preconditions={"uid": account.uid})
    await account.evict(preconditions={"uid": account.uid})


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ([{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}], "tolerations only"),
        ([{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}], "tolerations only"),
        ([*ADOPT, {"op": "replace", "path": "/spec/containers/0/image", "value": "other"}], "tolerations only"),
        ([{"op": "replace", "path": "/metadata/labels/app", "value": "other"}], "of a pod's labels"),
        ([{"op": "remove", "path": "/metadata/labels/app"}], "of a pod's labels"),
        ([{"op": "add", "path": "/metadata/labels/more", "value": ""}], "of a pod's labels"),
        ([{"op": "remove", "path": "/metadata/labels"}], "of a pod's labels"),
        ([{"op": "replace", "path": "/metadata/annotations/note", "value": "other"}], "of a pod's annotations"),
        ([{"op": "remove", "path": "/metadata/annotations/note"}], "of a pod's annotations"),
        ([*ADOPT, {"op": "add", "path": "/metadata/annotations/more", "value": ""}], "of a pod's annotations"),
        ([{"op": "remove", "path": "/metadata/annotations"}], "of a pod's annotations"),
        ([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]}], "neither finalizers nor owners"),
        ([{"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER]}], "neither finalizers nor owners"),
    ],
)
async def test_the_account_may_change_nothing_else_of_a_pod(account: Account, operations: list[Json], why: str) -> None:
    """An image, a deadline, other labels and annotations, finalizers, owners: refused, also beside an adoption."""
    with pytest.raises(AssertionError, match=why):
        await account.patch(*operations)


async def test_the_account_may_not_remove_or_replace_tolerations(account: Account) -> None:
    """The API server itself refuses to remove a toleration, or to change more of it than its seconds."""
    for operation in (
        {"op": "remove", "path": "/spec/tolerations/1"},
        {"op": "replace", "path": "/spec/tolerations/1/key", "value": "other"},
    ):
        with pytest.raises(AssertionError, match="existing toleration can not be modified"):
            await account.patch(operation)


async def test_the_account_may_not_delete_without_the_uid(account: Account) -> None:
    """Neither a DELETE nor an eviction is allowed without the UID, whether its grace period is 0 or the pod's own."""
    for options in ({}, {"gracePeriodSeconds": 0}):
        with pytest.raises(AssertionError, match="delete a pod only with its UID"):
            await account.delete(**options)
    with pytest.raises(AssertionError, match="evict a pod only with its UID"):
        await account.evict()


async def test_the_policy_does_not_affect_other_users(cluster: ClusterUnderTest, account: Account) -> None:
    """Another user may change an image and delete without a UID."""
    path = f"/api/v1/namespaces/{cluster.prefix}/pods/web?dryRun=All"
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]
    await cluster.call("PATCH", path, image, headers=JSON_PATCH)
    await cluster.call("DELETE", path)
    assert account.uid


# ---- at the creation of a pod


@pytest.fixture
async def moving(cluster: ClusterUnderTest) -> AsyncIterator[ClusterUnderTest]:
    """A cluster that moves the seconds of new pods in the test's namespace, once the policy is in force."""
    async with applied(cluster, "components/adopt-at-admission/admission-policy.yaml"):
        async with asyncio.timeout(15):
            while note(await created(cluster, "probe")) is None:  # noqa: ASYNC110 - asked again
                await asyncio.sleep(0.2)
        yield cluster


async def created(cluster: ClusterUnderTest, name: str, *tolerations: Json, **metadata: Any) -> Json:
    """Try to create a pod, and return the pod that would be created."""
    spec = {"containers": [{"name": "main", "image": "pause"}], "tolerations": list(tolerations)}
    body = {"metadata": {"name": name, **metadata}, "spec": spec}
    pod: Json = await cluster.call("POST", f"/api/v1/namespaces/{cluster.prefix}/pods?dryRun=All", body)
    return pod


def note(pod: Json) -> Any:
    """Return the content of a pod's annotation; None if the pod has neither annotation nor label."""
    assert (ADOPTED in pod["metadata"].get("labels", {})) == (ADOPTED in pod["metadata"].get("annotations", {}))
    text = pod["metadata"].get("annotations", {}).get(ADOPTED)
    return None if text is None else json.loads(text)


async def test_the_default_300_s_are_moved(moving: ClusterUnderTest) -> None:
    """The policy runs after DefaultTolerationSeconds, and moves the seconds that this plugin has added."""
    pod = await created(moving, "plain")
    assert [toleration for toleration in pod["spec"]["tolerations"] if "tolerationSeconds" in toleration] == []
    noted = [{**toleration, "occurrence": 0, "seconds": 300} for toleration in (NOT_READY, UNREACHABLE)]
    assert note(pod) == {"by": "admission", "tolerations": noted}
    assert pod["metadata"]["labels"] == {ADOPTED: "admission"}


async def test_other_tolerations_stay_and_an_existing_note_is_overwritten(moving: ClusterUnderTest) -> None:
    """Other keys and tolerations without seconds stay in order; the occurrence distinguishes equal tolerations."""
    mine = {"labels": {"app": "web"}, "annotations": {ADOPTED: "nonsense", "note": "mine"}}
    equal = {"key": NOT_READY["key"], "value": "x", "effect": "NoExecute"}
    given = [UNREACHABLE, {**UNREACHABLE, "tolerationSeconds": 40}, MAINTENANCE, {**equal, "tolerationSeconds": -5}]
    pod = await created(moving, "several", *given, **mine)
    assert pod["spec"]["tolerations"] == [UNREACHABLE, UNREACHABLE, MAINTENANCE, equal]
    noted = [{**UNREACHABLE, "occurrence": 1, "seconds": 40}, {**equal, "occurrence": 0, "seconds": -5}]
    assert note(pod) == {"by": "admission", "tolerations": noted}
    assert pod["metadata"]["annotations"]["note"] == "mine"
    assert pod["metadata"]["labels"] == {"app": "web", ADOPTED: "admission"}


async def test_a_pod_without_seconds_for_the_two_taints_stays_as_it_is(moving: ClusterUnderTest) -> None:
    """This includes pods of DaemonSets, which tolerate both taints indefinitely."""
    given = [NOT_READY, UNREACHABLE, MAINTENANCE]
    pod = await created(moving, "daemon", *given)
    assert pod["spec"]["tolerations"] == given
    assert note(pod) is None


async def test_the_controllers_own_pods_are_exempt(moving: ClusterUnderTest) -> None:
    """Their label exempts them, in any namespace."""
    pod = await created(moving, "own", labels={"app.kubernetes.io/name": moving.prefix})
    assert [toleration["tolerationSeconds"] for toleration in pod["spec"]["tolerations"]] == [300, 300]
    assert note(pod) is None


async def test_pods_of_exempt_namespaces_stay_as_they_are(moving: ClusterUnderTest) -> None:
    """A label exempts a namespace; kube-system is exempt without a label."""
    path = f"/api/v1/namespaces/{moving.prefix}"
    labels = {"metadata": {"labels": {"taint-eviction/adopt-at-admission": "false"}}}
    await moving.call("PATCH", path, labels, headers=STRATEGIC)
    async with asyncio.timeout(15):
        while note(await created(moving, "exempt")) is not None:  # noqa: ASYNC110 - asked again
            await asyncio.sleep(0.2)
    pod = {"metadata": {"generateName": "exempt-"}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
    account = await moving.call("GET", "/api/v1/namespaces/kube-system/serviceaccounts/default", fine=(404,))
    if account is not None:
        assert note(await moving.call("POST", "/api/v1/namespaces/kube-system/pods?dryRun=All", pod)) is None


async def test_mirror_pods_are_exempt(moving: ClusterUnderTest) -> None:
    """The kubelet's mirror of a static pod is created without a note."""
    node = await moving.create_node("a")
    name = node["metadata"]["name"]
    mirror = {"kubernetes.io/config.mirror": "hash"}
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    body = {
        "metadata": {"name": f"static-{name}", "annotations": mirror, "ownerReferences": [owner]},
        "spec": {
            "nodeName": name,
            "containers": [{"name": "main", "image": "pause"}],
            "automountServiceAccountToken": False,
        },
    }
    pod = await moving.call("POST", f"/api/v1/namespaces/{moving.prefix}/pods?dryRun=All", body)
    assert note(pod) is None
