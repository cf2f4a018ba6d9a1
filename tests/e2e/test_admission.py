"""What the controller's account may write, in a real cluster: its own calls pass, and all others are refused.

Each build of the manifests is installed (without its Deployment) as it is, with prefix, suffix and another namespace
around it, and from the chart, and removed. An installation that is there already is left alone: its test is skipped.
The tests need a user that may impersonate others. They change no pod (they use dry runs of the API server), but for the
last test, in which the real command runs with the account's own token.
"""

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import string
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster import MERGE, STRATEGIC, ClusterUnderTest, Json
from tests.manifests.test_kinds import MANIFESTS, needs_kubectl
from tests.stage.processes import RunningController, output_of, running_controller
from tests.stage.waiting import free_port

from taint_eviction.settings import history_name

pytestmark = [pytest.mark.e2e, needs_kubectl]

CONTROLLER = "taint-eviction-controller"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
NOTE = "taint-eviction/seconds"
NOTE_PATH = "/metadata/annotations/taint-eviction~1seconds"
MARK = 2**63 - 1
NOT_READY: Json = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
UNREACHABLE = "node.kubernetes.io/unreachable"
MEMORY_PRESSURE: Json = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
MAINTENANCE: Json = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}
# The kinds that say what the account may do; the others run it.
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
OWN_NAMESPACE = "taint-eviction"  # of overlays/own-namespace and overlays/managed


# ---- what is installed


def built(resources: str, directory: Path, **around: str) -> list[Json]:
    """Return the objects of a build, with another kustomization around it; its fields are ``around``."""
    if around:
        relative = os.path.relpath(MANIFESTS / resources, directory)
        (directory / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [relative], **around}))
    path = directory if around else MANIFESTS / resources
    done = subprocess.run(["kubectl", "kustomize", str(path)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def installation(name: str, test: str, directory: Path) -> list[Json]:
    """Return what is tried under a name; ``test`` is the name of the test's own namespace, and a prefix."""
    if name in CHARTS:
        command = ["helm", "template", "release", str(MANIFESTS / "chart"), "--namespace", test, *CHARTS[name]]
        return [document for document in yaml.safe_load_all(subprocess.check_output(command)) if document]
    overlay, *around = KUSTOMIZATIONS[name]
    fields = {"namespace": test, "namePrefix": f"{test}-", "nameSuffix": f"-{test}"}
    return built(overlay, directory, **{field: fields[field] for field in around})


EVERYTHING = ("namespace", "namePrefix", "nameSuffix")
# The build, and what a kustomization around it sets.
KUSTOMIZATIONS = {
    "base": ("base",),
    "static-pod": ("overlays/static-pod",),
    "namePrefix": ("base", "namePrefix"),
    "nameSuffix": ("base", "nameSuffix"),
    "namespace": ("base", "namespace"),
    "all three": ("base", *EVERYTHING),
    "own-namespace": ("overlays/own-namespace",),
    "managed": ("overlays/managed",),
    "managed, all three": ("overlays/managed", *EVERYTHING),
    "dry-run": ("overlays/dry-run",),
}
CHARTS = {"chart": [], "chart, adopting": ["--set", "adoption.enabled=true"]}
NAMES = [*KUSTOMIZATIONS, *CHARTS]
ADOPTING = {"managed", "managed, all three", "chart, adopting"}


@dataclass
class Installed:
    """An installation in a cluster, and its account."""

    cluster: ClusterUnderTest
    name: str
    documents: list[Json]

    def one(self, kind: str) -> Json:
        """Return the first object of a kind."""
        return next(document for document in self.documents if document["kind"] == kind)

    @property
    def namespace(self) -> str:
        """The namespace of its Lease and its ConfigMap."""
        found: str = self.one("ConfigMap")["metadata"]["namespace"]
        return found

    @property
    def lease(self) -> str:
        """The name of its Lease and its ConfigMap."""
        found: str = self.one("ConfigMap")["metadata"]["name"]
        return found

    @property
    def user(self) -> str:
        """The user name of its account at the API server."""
        if self.name == "static-pod":
            return CONTROLLER
        return f"system:serviceaccount:{self.namespace}:{self.one('ServiceAccount')['metadata']['name']}"

    @property
    def flags(self) -> list[str]:
        """The flags of its container, but for those that say where it listens."""
        pod = self.one("Deployment")["spec"]["template"]["spec"]
        [container] = pod["containers"]
        values = {
            variable["name"]: pod["serviceAccountName"]
            for variable in container["env"]
            if variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.serviceAccountName"
        }
        words = [re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], word) for word in container["args"]]
        return [word for word in words if word != "run" and "listen" not in word]

    async def refusal(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Json | None = None,
        *,
        fine: tuple[int, ...] = (),
        query: str = "",
    ) -> str:
        """Try a call as the account, without its effect; return "" if the API server accepts it, else its words."""
        as_account = {"Impersonate-User": self.user, **(headers or {})}
        try:
            await self.cluster.call(method, f"{path}?dryRun=All{query}", body, fine=fine, headers=as_account)
        except AssertionError as refused:
            return str(refused)
        return ""


def paths(documents: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield the path of each object that says what the account may do."""
    for document in documents:
        metadata = document["metadata"]
        if path := PATHS.get(document["kind"]):
            yield f"{path.format(namespace=metadata.get('namespace'))}/{metadata['name']}", document


@pytest.fixture
def config() -> Path:
    """The kubeconfig of the real cluster; the embedded API server has no admission."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.skip("KUBECONFIG names no cluster")
    return Path(named)


@pytest.fixture(params=NAMES)
async def installed(
    request: pytest.FixtureRequest, cluster: ClusterUnderTest, tmp_path: Path
) -> AsyncIterator[Installed]:
    """An installation, once its policy is in force, until the test ends."""
    if request.param in CHARTS and shutil.which("helm") is None:
        pytest.skip("helm is not installed")
    made = Installed(cluster, request.param, installation(request.param, cluster.prefix, tmp_path))
    for path, _ in paths(made.documents):
        if await cluster.call("GET", path, fine=(404,)) is not None:
            pytest.skip(f"{path} is there already")
    async with contextlib.AsyncExitStack() as stack:
        if made.namespace not in {cluster.prefix, "kube-system"}:
            await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": made.namespace}})
            stack.push_async_callback(gone, cluster, f"/api/v1/namespaces/{made.namespace}")
        for path, document in paths(made.documents):
            await cluster.call("PATCH", f"{path}?fieldManager={cluster.prefix}", document, headers=APPLY)
            stack.push_async_callback(cluster.call, "DELETE", path, fine=(404,))
        await cluster.create_node("a")
        await cluster.create_pod("web", "a", [{**NOT_READY, "tolerationSeconds": 300}], labels={"app": "web"})
        # Outside a cluster, the controller asks about the first running pod.
        web = f"/api/v1/namespaces/{cluster.prefix}/pods/web/status"
        await cluster.call("PATCH", web, {"status": {"phase": "Running"}}, headers=MERGE)
        yield made


async def gone(cluster: ClusterUnderTest, path: str) -> None:
    """Delete a namespace, and wait until a test may create it again."""
    await cluster.call("DELETE", path)
    await cluster.eventually(path, lambda found: found is None)


@pytest.fixture
async def unbounded(installed: Installed, cluster: ClusterUnderTest) -> AsyncIterator[Installed]:
    """An installation whose account RBAC allows everything, so that only the policy refuses."""
    rights = {
        "metadata": {"name": cluster.prefix},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": installed.user}],
    }
    bindings = PATHS["ClusterRoleBinding"]
    await cluster.call("POST", bindings, rights)
    await in_force(installed)
    yield installed
    await cluster.call("DELETE", f"{bindings}/{cluster.prefix}")


async def in_force(installed: Installed, wanted: bool = True) -> None:
    """Wait until the API server applies the policy; not ``wanted``: until it does not."""
    path = f"/api/v1/namespaces/{installed.cluster.prefix}/pods/web"

    async def applied() -> bool:
        return "is deleted only with its UID" in await installed.refusal("DELETE", path, {"dryRun": ["All"]})

    async with asyncio.timeout(30):
        while await applied() is not wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


# ---- the calls


def noted(*seconds: int) -> str:
    """Return the content of an annotation; the policy does not read it."""
    return json.dumps(seconds)


def replace(path: str, value: Any) -> Json:
    """Return an operation of a JSON patch."""
    return {"op": "replace", "path": path, "value": value}


def add(path: str, value: Any) -> Json:
    """Return an operation of a JSON patch."""
    return {"op": "add", "path": path, "value": value}


def append(toleration: Json) -> Json:
    """Return the operation that appends a toleration."""
    return add("/spec/tolerations/-", toleration)


def seconds(index: int, value: int) -> Json:
    """Return the operation that sets the seconds of a toleration."""
    return add(f"/spec/tolerations/{index}/tolerationSeconds", value)


# As many annotations as the API server lets a pod have.
SHORT_KEYS = ["".join(each) for each in itertools.islice(itertools.product(string.ascii_letters, repeat=3), 40_000)]
REMOVE_NOTE = {"op": "remove", "path": NOTE_PATH}
CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "it goes"}


class TriedCalls:
    """The calls that are tried, on pods of several kinds."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self._cluster = installed.cluster
        self._pods: dict[str, Json] = {}

    async def prepare(self) -> None:
        """Create the pods."""
        create, marked = self._cluster.create_pod, {**NOT_READY, "tolerationSeconds": MARK}
        maintenance = {**MAINTENANCE, "tolerationSeconds": 60}
        own: Json = {"labels": {"app": "a"}, "annotations": {"mine": "1"}}
        with_note = {"annotations": {"mine": "1", NOTE: noted(300, 60)}}
        made = {
            "plain": await create("plain", "a", [{**NOT_READY, "tolerationSeconds": 300}, maintenance], **own),
            "bare": await create("bare", "a", [{**NOT_READY, "tolerationSeconds": 300}]),
            "twice": await create("twice", "a", [{**MAINTENANCE, "tolerationSeconds": value} for value in (300, 60)]),
            "adopted": await create("adopted", "a", [marked, {**MAINTENANCE, "tolerationSeconds": MARK}], **with_note),
            "note lost": await create("note-lost", "a", [marked, maintenance], **own),
            "note void": await create("note-void", "a", [NOT_READY, maintenance], **with_note),
            "finished": await create("finished", "a", [maintenance]),
            "leaving": await create("leaving", "a", [maintenance], finalizers=["example.com/keep"]),
            "large": await create(
                *("large", "a", [marked]),
                labels={f"{number:05}-{'x' * 50}": "y" * 60 for number in range(5000)},
                annotations={NOTE: noted(300), **{f"a{number}": "z" * 5000 for number in range(50)}},
            ),
            "annotated": await create(
                *("annotated", "a", [{**NOT_READY, "tolerationSeconds": 300}]),
                annotations=dict.fromkeys(SHORT_KEYS, ""),
            ),
            "many tolerations": await create(
                "many", "a", [{**MAINTENANCE, "key": f"k{number}", "tolerationSeconds": 9} for number in range(5000)]
            ),
        }
        self._pods = {name: {"name": pod.name, "uid": pod.uid} for name, pod in made.items()}
        succeeded = {"status": {"phase": "Succeeded"}}
        await self._cluster.call("PATCH", f"{self.path('finished')}/status", succeeded, headers=MERGE)
        waiting = {"status": {"conditions": [{**CONDITION, "status": "False"}, {"type": "Ready", "status": "True"}]}}
        await self._cluster.call("PATCH", f"{self.path('plain')}/status", waiting, headers=STRATEGIC)
        await self._cluster.call("DELETE", self.path("leaving"))

    def path(self, pod: str) -> str:
        """Return the path of a pod."""
        return f"/api/v1/namespaces/{self._cluster.prefix}/pods/{self._pods[pod]['name']}"

    def uid(self, pod: str) -> Json:
        """Return the precondition with a pod's UID."""
        return {"preconditions": {"uid": self._pods[pod]["uid"]}}

    async def delete(self, pod: str, **options: Any) -> str:
        """Try a DELETE; with a body, the API server reads no option from the query."""
        return await self._installed.refusal("DELETE", self.path(pod), {**options, "dryRun": ["All"]})

    async def evict(self, pod: str, **options: Any) -> str:
        """Try an eviction."""
        metadata = {"name": self._pods[pod]["name"], "namespace": self._cluster.prefix}
        body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": metadata, "deleteOptions": options}
        return await self._installed.refusal("POST", f"{self.path(pod)}/eviction", body)

    async def patch(self, pod: str, *operations: Json) -> str:
        """Try a JSON patch of a pod."""
        return await self._installed.refusal("PATCH", self.path(pod), list(operations), JSON_PATCH)

    async def status(self, pod: str, *operations: Json) -> str:
        """Try a JSON patch of a pod's status."""
        return await self._installed.refusal("PATCH", f"{self.path(pod)}/status", list(operations), JSON_PATCH)

    async def condition(self, pod: str, status: str) -> str:
        """Try the patch with which the controller sets or resets the condition."""
        uid = self._pods[pod]["uid"]
        body = {"metadata": {"uid": uid}, "status": {"conditions": [{**CONDITION, "status": status}]}}
        return await self._installed.refusal("PATCH", f"{self.path(pod)}/status", body, STRATEGIC)

    async def apply_condition(self, pod: str) -> str:
        """Try a server-side apply of the condition, as another manager."""
        body = {"apiVersion": "v1", "kind": "Pod", "status": {"conditions": [CONDITION]}}
        path, query = f"{self.path(pod)}/status", "&fieldManager=another&force=true"
        return await self._installed.refusal("PATCH", path, body, APPLY, query=query)

    async def write(self, method: str, kind: str, namespace: str, name: str) -> str:
        """Try to create, patch or delete a Lease or a ConfigMap."""
        api = "/apis/coordination.k8s.io/v1" if kind == "leases" else "/api/v1"
        path, content = f"{api}/namespaces/{namespace}/{kind}", {"metadata": {"name": name}}
        if method == "POST":  # that it exists already is found out after admission
            return await self._installed.refusal("POST", path, content, fine=(409,))
        return await self._installed.refusal(method, f"{path}/{name}", content if method == "PATCH" else None, MERGE)

    async def allowed(self) -> dict[str, str]:
        """Try all that the controller does; return the refusal of each call."""
        own = (self._installed.namespace, self._installed.lease)
        managers = [{"apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "m", "operation": "Apply"}]
        found = {
            "condition": await self.condition("plain", "True"),
            "first condition": await self.condition("bare", "True"),
            "condition reset": await self.condition("plain", "False"),
            "condition of a pod that leaves": await self.condition("leaving", "False"),
            "condition of a finished pod": await self.condition("finished", "True"),
            "condition of a pod with many tolerations": await self.condition("many tolerations", "True"),
            "condition of a large pod": await self.condition("large", "True"),
            "condition of a pod with many annotations": await self.condition("annotated", "True"),
            "deletion of a large pod": await self.delete("large", **self.uid("large")),
            "giving back to a large pod": await self.patch("large", seconds(0, 300), REMOVE_NOTE),
            "deletion": await self.delete("plain", **self.uid("plain")),
            "deletion of a finished pod": await self.delete("finished", **self.uid("finished")),
            "deletion of a pod with many tolerations": await self.delete(
                "many tolerations", **self.uid("many tolerations")
            ),
            "deletion with more time": await self.delete("plain", **self.uid("plain"), gracePeriodSeconds=60),
            "eviction": await self.evict("plain", **self.uid("plain")),
            "giving back": await self.patch("adopted", seconds(0, 300), seconds(1, 60), REMOVE_NOTE),
            "giving back one": await self.patch("adopted", seconds(0, -5), replace(NOTE_PATH, noted(60))),
            "removal of a void note": await self.patch("note void", REMOVE_NOTE),
            "removal of a note": await self.patch("adopted", REMOVE_NOTE),
            "appended by DefaultTolerationSeconds": await self.patch(
                "plain", append({**NOT_READY, "key": UNREACHABLE, "tolerationSeconds": 300})
            ),
            "appended by PodTolerationRestriction": await self.patch("plain", append(MEMORY_PRESSURE)),
            "appended by ExtendedResourceToleration, beside giving back": await self.patch(
                "adopted", seconds(0, 300), append({**MEMORY_PRESSURE, "key": "example.com/device"})
            ),
            "owners of fields": await self.patch("adopted", replace("/metadata/managedFields", managers)),
            "creation of the ConfigMap": await self.write("POST", "configmaps", *own),
            "change of the ConfigMap": await self.write("PATCH", "configmaps", *own),
            "creation of the history": await self.write("POST", "configmaps", own[0], f"{own[1]}-history"),
            "creation of the Lease": await self.write("POST", "leases", *own),
        }
        return found

    async def marking(self) -> dict[str, str]:
        """Try all that adoption does in addition; return the refusal of each call."""
        notes = add("/metadata/annotations", {NOTE: noted(300)})
        return {
            "marking": await self.patch("plain", seconds(0, MARK), seconds(1, MARK), add(NOTE_PATH, noted(300, 60))),
            "marking equal tolerations": await self.patch(
                "twice", seconds(0, MARK), seconds(1, MARK), add("/metadata/annotations", {NOTE: noted(300, 60)})
            ),
            "marking one": await self.patch("plain", seconds(1, MARK), add(NOTE_PATH, noted(60))),
            "marking a pod without annotations": await self.patch("bare", seconds(0, MARK), notes),
            "marking one more": await self.patch("adopted", replace(NOTE_PATH, noted(300, 60, 1))),
            "a lost note": await self.patch("note lost", add(NOTE_PATH, noted(300))),
        }

    async def refused(self) -> dict[str, str]:
        """Try what nobody may do with this account; return the refusal of each call."""
        namespace, lease, own = self._installed.namespace, self._installed.lease, self._cluster.prefix
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}
        ready = {"type": "Ready", "status": "False"}
        not_ready, maintenance = {**NOT_READY, "tolerationSeconds": 300}, {**MAINTENANCE, "tolerationSeconds": 60}
        anything, unscheduled = {"operator": "Exists"}, {**MAINTENANCE, "effect": "NoSchedule"}
        return {
            "deletion without UID": await self.delete("plain"),
            "deletion without UID or time": await self.delete("plain", gracePeriodSeconds=0),
            "deletion of a finished pod without UID": await self.delete("finished"),
            "deletion at once": await self.delete("plain", **self.uid("plain"), gracePeriodSeconds=0),
            "deletion of a leaving pod at once": await self.delete(
                "leaving", **self.uid("leaving"), gracePeriodSeconds=0
            ),
            "eviction without UID": await self.evict("plain"),
            "eviction at once": await self.evict("plain", **self.uid("plain"), gracePeriodSeconds=0),
            "eviction with the same time": await self.evict("plain", **self.uid("plain"), gracePeriodSeconds=1),
            "phase": await self.status("plain", replace("/status/phase", "Succeeded")),
            "address": await self.status("plain", add("/status/podIP", "10.0.0.9")),
            "another condition": await self.status("plain", add("/status/conditions/-", {**ready, "type": "Other"})),
            "a changed condition": await self.status("plain", replace("/status/conditions/1", ready)),
            "a long message": await self.status("plain", replace("/status/conditions/0/message", "x" * 1025)),
            "a long reason": await self.status(
                "bare", add("/status/conditions", [{**CONDITION, "reason": "x" * 1025}])
            ),
            "a long status": await self.status("plain", replace("/status/conditions/0/status", "x" * 1025)),
            "its condition twice": await self.status("plain", add("/status/conditions/-", CONDITION)),
            "its condition by one more manager": await self.apply_condition("plain"),
            "no conditions": await self.status("plain", {"op": "remove", "path": "/status/conditions"}),
            "label by status": await self.status("plain", add("/metadata/labels/more", "1")),
            "annotation by status": await self.status("plain", add("/metadata/annotations/more", "1")),
            "note by status": await self.status("adopted", REMOVE_NOTE),
            "finalizer by status": await self.status("plain", add("/metadata/finalizers", ["example.com/a"])),
            "end of a finalizer by status": await self.status("leaving", replace("/metadata/finalizers", [])),
            "image": await self.patch("plain", replace("/spec/containers/0/image", "other")),
            "image beside giving back": await self.patch(
                "adopted", seconds(0, 300), replace("/spec/containers/0/image", "other")
            ),
            "deadline": await self.patch("plain", add("/spec/activeDeadlineSeconds", 1)),
            "label": await self.patch("plain", replace("/metadata/labels/app", "other")),
            "no labels": await self.patch("plain", {"op": "remove", "path": "/metadata/labels"}),
            "annotation": await self.patch("plain", replace("/metadata/annotations/mine", "2")),
            "no annotations": await self.patch("adopted", {"op": "remove", "path": "/metadata/annotations"}),
            "finalizer": await self.patch("plain", add("/metadata/finalizers", ["example.com/a"])),
            "owner": await self.patch("plain", add("/metadata/ownerReferences", [owner])),
            "shorter": await self.patch("plain", seconds(0, 1)),
            "shorter, with a note": await self.patch("note void", seconds(1, 1)),
            "longer": await self.patch("plain", seconds(0, 301)),
            "seconds for a mark without a note": await self.patch("note lost", seconds(0, 300)),
            "another order": await self.patch("plain", replace("/spec/tolerations", [maintenance, not_ready])),
            "a toleration in front": await self.patch("plain", add("/spec/tolerations/0", anything)),
            "a scheduler's toleration in front": await self.patch("plain", add("/spec/tolerations/0", unscheduled)),
            "a toleration appended": await self.patch("plain", append(anything)),
            "a toleration with seconds appended": await self.patch("plain", append({**maintenance, "key": "other"})),
            "unreachable appended without seconds": await self.patch(
                "plain", append({**NOT_READY, "key": UNREACHABLE})
            ),
            "unreachable appended for all effects": await self.patch(
                "plain", append({"key": UNREACHABLE, "operator": "Exists"})
            ),
            "unreachable appended for a value": await self.patch(
                "plain", append({"key": UNREACHABLE, "value": "x", "effect": "NoExecute", "tolerationSeconds": 300})
            ),
            "a duplicate dropped": await self.patch("twice", {"op": "remove", "path": "/spec/tolerations/0"}),
            "swapped seconds": await self.patch("twice", seconds(0, 60), seconds(1, 300)),
            "no seconds": await self.patch("plain", {"op": "remove", "path": "/spec/tolerations/0/tolerationSeconds"}),
            "no seconds for a mark": await self.patch(
                "adopted", {"op": "remove", "path": "/spec/tolerations/0/tolerationSeconds"}
            ),
            "mark without a note": await self.patch("plain", seconds(0, MARK)),
            "marking a pod with many annotations": await self.patch(
                "annotated", seconds(0, MARK), add(NOTE_PATH, noted(300))
            ),
            "note without a mark": await self.patch("plain", add(NOTE_PATH, noted(300))),
            "another ConfigMap": await self.write("POST", "configmaps", namespace, "aws-auth"),
            "a ConfigMap elsewhere": await self.write("POST", "configmaps", "default", lease),
            "a changed ConfigMap": await self.write("PATCH", "configmaps", own, "kube-root-ca.crt"),
            "end of the ConfigMap": await self.write("DELETE", "configmaps", namespace, lease),
            "another history": await self.write("POST", "configmaps", namespace, "history"),
            "a history elsewhere": await self.write("POST", "configmaps", "default", f"{lease}-history"),
            "a Lease with the name of the history": await self.write("POST", "leases", namespace, f"{lease}-history"),
            "another Lease": await self.write("POST", "leases", namespace, "kube-scheduler"),
            "a Lease elsewhere": await self.write("POST", "leases", "default", lease),
            "end of a heartbeat": await self.write("DELETE", "leases", "kube-node-lease", f"{own}-a"),
        }


REFUSED = re.compile(r"ValidatingAdmissionPolicy '[^']+' with binding '[^']+' denied request: ")


async def test_the_account_may_write_what_the_controller_writes_and_nothing_else(unbounded: Installed) -> None:
    """Each call that the controller makes is accepted; each other one is refused by the policy, not by RBAC."""
    calls = TriedCalls(unbounded)
    await calls.prepare()
    allowed, marking, refused = await calls.allowed(), await calls.marking(), await calls.refused()
    if unbounded.name in ADOPTING:
        allowed |= marking
    else:
        refused |= marking
    assert {name: words for name, words in allowed.items() if words} == {}
    assert {name: words for name, words in refused.items() if not REFUSED.search(words)} == {}
    assert (
        "taint-eviction-controller: a pod is deleted only with its UID as a precondition"
        in (refused["deletion without UID"])
    )


@pytest.mark.parametrize("installed", ["managed"], indirect=True)
async def test_a_right_that_is_left_behind_is_still_narrow(
    installed: Installed, cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    """After a move to own-namespace and its deletion, a new account of that name may give back, and change no image."""
    await in_force(installed)
    account: Json = installed.one("ServiceAccount")
    for path, document in paths(built("overlays/own-namespace", tmp_path)):
        await cluster.call("DELETE", path)
        if document["kind"] == "ServiceAccount":
            await cluster.call("POST", path.rpartition("/")[0], {"metadata": {"name": account["metadata"]["name"]}})
    marked = {**NOT_READY, "tolerationSeconds": MARK}
    await cluster.create_pod("marked", "a", [marked], annotations={NOTE: noted(300)})
    path = f"/api/v1/namespaces/{cluster.prefix}/pods/marked"
    image = [replace("/spec/containers/0/image", "other")]
    async with asyncio.timeout(30):
        while "-adopt' denied request" not in await installed.refusal("PATCH", path, image, JSON_PATCH):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await installed.refusal("PATCH", path, [seconds(0, 300), REMOVE_NOTE], JSON_PATCH) == ""
    assert "forbidden" in await installed.refusal("DELETE", path, {"dryRun": ["All"]})


@pytest.mark.parametrize("installed", ["base", "managed"], indirect=True)
async def test_nobody_else_is_concerned(unbounded: Installed, cluster: ClusterUnderTest) -> None:
    """Another user may delete without a UID, change an image and write any Lease."""
    path = f"/api/v1/namespaces/{cluster.prefix}/pods/web?dryRun=All"
    await cluster.call("PATCH", path, [replace("/spec/containers/0/image", "other")], headers=JSON_PATCH)
    await cluster.call("DELETE", path)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.prefix}/leases?dryRun=All"
    await cluster.call("POST", leases, {"metadata": {"name": "any"}})
    assert unbounded.user


# ---- the controller with its own account


@pytest.mark.parametrize("installed", [name for name in NAMES if name not in {"static-pod", "dry-run"}], indirect=True)
async def test_the_controller_leads_writes_and_evicts(
    installed: Installed, cluster: ClusterUnderTest, config: Path, tmp_path: Path
) -> None:
    """With its rights, its policy and the flags of its pod, it holds the Lease, ends a pause and evicts a pod.

    The pod has a mark and a note, so a built-in controller that is on leaves it alone: the two do not race for it.
    """
    where = ("--leader-elect-resource-namespace", installed.namespace)
    own = await asyncio.to_thread(write_own_kubeconfig, config, tmp_path, await token_of(installed))
    flags = ("--leader-elect", *installed.flags, *where)
    async with running_controller(own, *flags, listen=f"127.0.0.1:{free_port()}") as running:
        await running.until(running.leads)
        # A policy that was just created may not refuse the first tries.
        await running.until(lambda: knows_it_is_narrowed(running, installed.user))
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{installed.namespace}/leases/{installed.lease}"
        assert (await cluster.call("GET", lease))["spec"]["holderIdentity"]
        state = f"/api/v1/namespaces/{installed.namespace}/configmaps/{installed.lease}"
        named = ("--state-namespace", installed.namespace, "--state-name", installed.lease)
        pause = ("pause", "--for", "2s", "--namespace", cluster.prefix)
        await output_of(*pause, "--kubeconfig", str(config), *named)
        await cluster.eventually(state, pauses)
        await cluster.taint("a", MAINTENANCE["key"])
        note = json.dumps([{**MAINTENANCE, "seconds": 1}])
        marked = {**MAINTENANCE, "tolerationSeconds": MARK}
        pod = await cluster.create_pod("pod", "a", [marked], annotations={NOTE: note})
        await cluster.evicted(pod)
        assert (pod.condition("DisruptionTarget") or {})["status"] == "True"
        await cluster.eventually(state, lambda found: not pauses(found))
        assert [line for line in running.lines if re.search("denied|forbidden", str(line))] == []
        assert await running.end() == 0
    # It has kept what it did, under the name that the Role and the policy allow.
    history = f"/api/v1/namespaces/{installed.namespace}/configmaps/{history_name(installed.lease)}"
    assert (await cluster.call("GET", history))["binaryData"]
    async with running_controller(own, *flags, listen=f"127.0.0.1:{free_port()}") as running:
        await running.until(running.leads)
        await running.until(lambda: running.said(" outcomes that "))
        assert pod.name in await running.ask("history")
    await cluster.call("DELETE", history)
    await cluster.call("DELETE", lease)


async def admission_policy(running: RunningController) -> Json:
    """Return what a process says of its admission policy."""
    found: Json = json.loads((await running.get("/status"))[1])["admissionPolicy"]
    return found


async def knows_it_is_narrowed(running: RunningController, user: str) -> bool:
    """Return whether a process says that the policy narrows it, and that it is this user."""
    return await admission_policy(running) == {"account": user, "inForce": True}


@pytest.mark.parametrize("installed", ["base"], indirect=True)
async def test_a_policy_that_names_another_account_is_noticed_by_the_process(
    installed: Installed, cluster: ClusterUnderTest, config: Path, tmp_path: Path
) -> None:
    """It says so with its own name, and works on; once the binding names it, the policy is in force."""
    name = installed.one("ValidatingAdmissionPolicyBinding")["metadata"]["name"]
    path = f"{PATHS['ValidatingAdmissionPolicyBinding']}/{name}"

    async def bind(account: str) -> None:
        await cluster.call("PATCH", path, {"spec": {"paramRef": {"name": account}}}, headers=MERGE)

    await in_force(installed)
    await bind("default")
    await in_force(installed, False)
    own = await asyncio.to_thread(write_own_kubeconfig, config, tmp_path, await token_of(installed))
    async with running_controller(own, listen=f"127.0.0.1:{free_port()}") as running:
        problem = f"the admission policy is not in force for {installed.user}"
        await running.until(lambda: running.said(problem))
        assert await admission_policy(running) == {"account": installed.user, "inForce": False}
        assert problem in (await running.get("/status"))[1]
        assert "taint_eviction_controller_admission_policy_missing 1.0" in (await running.get("/metrics"))[1]
        await bind(installed.one("ServiceAccount")["metadata"]["name"])
        await running.until(lambda: running.said(f"the admission policy is in force for {installed.user}"))
        assert "taint_eviction_controller_admission_policy_missing 0.0" in (await running.get("/metrics"))[1]
        assert await running.end() == 0


def pauses(config_map: Json) -> list[str]:
    """Return the keys of the pauses in the state ConfigMap."""
    return [key for key in config_map.get("data") or {} if key.startswith("pause")]


@pytest.mark.parametrize("installed", ["base", "namespace"], indirect=True)
async def test_an_operator_pauses_and_resumes_and_creates_nothing(
    installed: Installed, cluster: ClusterUnderTest, config: Path, tmp_path: Path
) -> None:
    """The Role of the page on security suffices: the manifests bring the ConfigMap that these commands write."""
    page = (MANIFESTS.parent / "docs/security.md").read_text()
    [text] = re.findall(r"^```yaml\n(.*?kind: Role\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    namespace, name = installed.namespace, f"{cluster.prefix}-operator"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    made = {
        "serviceaccounts": {"metadata": {"name": name}},
        "roles": yaml.safe_load(text) | {"metadata": {"name": name, "namespace": namespace}},
        "rolebindings": {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]},
    }
    apis = {"serviceaccounts": "/api/v1"}
    paths = {
        kind: f"{apis.get(kind, '/apis/rbac.authorization.k8s.io/v1')}/namespaces/{namespace}/{kind}" for kind in made
    }
    try:
        for kind, body in made.items():
            await cluster.call("POST", paths[kind], body)
        token = await token_of(installed, name)
        own = await asyncio.to_thread(write_own_kubeconfig, config, tmp_path, token)
        where = ("--kubeconfig", str(own), "--state-namespace", namespace, "--state-name", installed.lease)
        state = f"/api/v1/namespaces/{namespace}/configmaps/{installed.lease}"
        await output_of("pause", *where)
        assert pauses(await cluster.call("GET", state)) == ["pause"]
        await output_of("resume", "--yes", *where)
        assert not pauses(await cluster.call("GET", state))
        bearer = {"Impersonate-User": f"system:serviceaccount:{namespace}:{name}"}
        created = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
        with pytest.raises(AssertionError, match="cannot create resource"):
            await cluster.call("POST", created, {"metadata": {"name": "aws-auth"}}, headers=bearer)
    finally:
        for path in paths.values():
            await cluster.call("DELETE", f"{path}/{name}", fine=(404,))


async def token_of(installed: Installed, account: str | None = None) -> str:
    """Return a token of an account in the controller's namespace; None: of the controller's own."""
    name = account or installed.one("ServiceAccount")["metadata"]["name"]
    path = f"/api/v1/namespaces/{installed.namespace}/serviceaccounts/{name}/token"
    made = await installed.cluster.call("POST", path, {"spec": {"expirationSeconds": 3600}})
    token: str = made["status"]["token"]
    return token


def write_own_kubeconfig(config: Path, directory: Path, token: str) -> Path:
    """Write a kubeconfig with the account's token, and return its path."""
    document = yaml.safe_load(config.read_text())
    document["users"] = [{"name": CONTROLLER, "user": {"token": token}}]
    for context in document["contexts"]:
        context["context"]["user"] = CONTROLLER
    path = directory / "own.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path
