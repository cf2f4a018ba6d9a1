"""The admission policy of docs/security.md in a real cluster: which deletions it allows to the controller's account.

The tests need a user that may impersonate others. Deletions are only tried, as dry runs of the API server.
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
    """The kubeconfig of the real cluster; the embedded API server has no admission."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.skip("KUBECONFIG names no cluster")
    return Path(named)


class DeletingAccount:
    """Tries deletions as the user that the policy restricts."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self._cluster = cluster
        self.user = f"system:serviceaccount:{cluster.prefix}:taint-eviction-controller"

    async def refusal(self, pod: Json, **options: Any) -> str:
        """Return the refusal of a pod's deletion; "" if it is allowed."""
        # With a body, the API server reads no option from the query.
        return await self._refusal("DELETE", self._path(pod), {**options, "dryRun": ["All"]})

    async def refusal_of_eviction(self, pod: Json, **options: Any) -> str:
        """Return the refusal of a pod's eviction; "" if it is allowed."""
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
    """An account that only the policy restricts, once the policy is in force."""
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


async def test_the_deletions_and_evictions_that_the_controller_sends_are_allowed(
    cluster: ClusterUnderTest, account: DeletingAccount
) -> None:
    """The API server sets the grace period before it asks the policy: the pod's own, or 0 for a finished pod."""
    pod = (await cluster.create_pod("web", "a")).body
    assert await account.refusal(pod, preconditions=named(pod)) == ""
    assert await account.refusal_of_eviction(pod, preconditions=named(pod)) == ""
    path = f"/api/v1/namespaces/{cluster.prefix}/pods/web/status"
    await cluster.call("PATCH", path, {"status": {"phase": "Succeeded"}}, headers=MERGE)
    assert await account.refusal(pod, preconditions=named(pod)) == ""


async def test_a_pod_can_be_deleted_only_with_its_uid(cluster: ClusterUnderTest, account: DeletingAccount) -> None:
    """A deletion or an eviction of any pod with that name is refused."""
    pod = (await cluster.create_pod("web", "a")).body
    assert "names the UID" in await account.refusal(pod)
    assert "names the UID" in await account.refusal_of_eviction(pod)


async def test_no_grace_period_can_be_shortened(cluster: ClusterUnderTest, account: DeletingAccount) -> None:
    """This also holds for the eviction API."""
    pod = (await cluster.create_pod("web", "a")).body
    assert "never shortens" in await account.refusal(pod, preconditions=named(pod), gracePeriodSeconds=0)
    assert "never shortens" in await account.refusal_of_eviction(pod, preconditions=named(pod), gracePeriodSeconds=0)
