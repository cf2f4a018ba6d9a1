"""The admission policy of docs/security.md in a real cluster: what it lets the controller's account delete.

It needs a user that may impersonate others. Tried deletions are dry runs of the API server.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster import MERGE, ClusterUnderTest, Json

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs/security.md"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@pytest.fixture
def config() -> Path:
    """Give the kubeconfig of the real cluster; the embedded API server has no admission."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.skip("KUBECONFIG names no cluster")
    return Path(named)


class DeletingAccount:
    """Tries deletions as the user whom the policy restricts."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self._cluster = cluster
        self.user = f"system:serviceaccount:{cluster.prefix}:taint-eviction-controller"

    async def refusal(self, pod: Json, **options: Any) -> str:
        """Return how the deletion of a pod is refused; "" if it is not."""
        # With a body, the API server reads no option from the query.
        return await self._refusal("DELETE", self._path(pod), {**options, "dryRun": ["All"]})

    async def refusal_of_eviction(self, pod: Json, **options: Any) -> str:
        """Return how the eviction of a pod is refused; "" if it is not."""
        metadata = {"name": pod["metadata"]["name"], "namespace": self._cluster.prefix}
        body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": metadata, "deleteOptions": options}
        return await self._refusal("POST", f"{self._path(pod)}/eviction?dryRun=All", body)

    def _path(self, pod: Json) -> str:
        return f"/api/v1/namespaces/{self._cluster.prefix}/pods/{pod['metadata']['name']}"

    async def _refusal(self, method: str, path: str, body: Json) -> str:
        try:
            await self._cluster.call(method, path, body, headers={"Impersonate-User": self.user})
        except AssertionError as refused:
            return str(refused)
        return ""


@pytest.fixture
async def account(cluster: ClusterUnderTest) -> AsyncIterator[DeletingAccount]:
    """Give an account that may do everything but for the policy, once that is in force."""
    tried = DeletingAccount(cluster)
    [text] = re.findall(r"^```yaml\n(apiVersion: admissionregistration.*?)^```$", PAGE.read_text(), re.M | re.S)
    text = text.replace("system:serviceaccount:kube-system:taint-eviction-controller", tried.user)
    policy, binding = yaml.safe_load_all(text.replace("taint-eviction-controller-deletes", f"{cluster.prefix}-deletes"))
    rights: Json = {
        "metadata": {"name": cluster.prefix},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": tried.user}],
    }
    made = [(POLICIES, policy), (POLICIES.replace("policies", "policybindings"), binding), (RIGHTS, rights)]
    try:
        for path, body in made:
            await cluster.call("POST", path, body)
        await cluster.create_node("a")
        probe = (await cluster.create_pod("probe", "a")).body
        async with asyncio.timeout(15):
            while "names the UID" not in await tried.refusal(probe):  # noqa: ASYNC110 - asked again
                await asyncio.sleep(0.2)
        yield tried
    finally:
        for path, body in made:
            with contextlib.suppress(AssertionError):
                await cluster.call("DELETE", f"{path}/{body['metadata']['name']}")


def named(pod: Json) -> Json:
    """Return the precondition with which the controller deletes a pod."""
    return {"uid": pod["metadata"]["uid"]}


async def test_what_the_controller_sends_passes(cluster: ClusterUnderTest, account: DeletingAccount) -> None:
    """The API server fills in the grace period before the policy is asked: the pod's own, or 0 for a finished one."""
    pod = (await cluster.create_pod("web", "a")).body
    assert await account.refusal(pod, preconditions=named(pod)) == ""
    assert await account.refusal_of_eviction(pod, preconditions=named(pod)) == ""
    path = f"/api/v1/namespaces/{cluster.prefix}/pods/web/status"
    await cluster.call("PATCH", path, {"status": {"phase": "Succeeded"}}, headers=MERGE)
    assert await account.refusal(pod, preconditions=named(pod)) == ""


async def test_a_pod_goes_only_by_its_uid(cluster: ClusterUnderTest, account: DeletingAccount) -> None:
    """Neither a deletion nor an eviction that takes any pod of that name passes."""
    pod = (await cluster.create_pod("web", "a")).body
    assert "names the UID" in await account.refusal(pod)
    assert "names the UID" in await account.refusal_of_eviction(pod)


async def test_no_pod_goes_by_force(cluster: ClusterUnderTest, account: DeletingAccount) -> None:
    """Nor is a grace period shortened by the eviction API."""
    pod = (await cluster.create_pod("web", "a")).body
    assert "never shortens" in await account.refusal(pod, preconditions=named(pod), gracePeriodSeconds=0)
    assert "never shortens" in await account.refusal_of_eviction(pod, preconditions=named(pod), gracePeriodSeconds=0)
