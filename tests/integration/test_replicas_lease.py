"""The Lease on the server: what others have written on it stays, and what is no Lease is the world's fault."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.stage.client import ClientStage, client_stage

from taint_eviction.adapters.lease import KubernetesLease
from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import ElectionSettings, Settings

MINE = LeaseRecord("me", 15, 1.9e9, 1.9e9 + 0.25, 3)


def lease(on: ClientStage) -> dict[str, Any]:
    """The Lease on the server."""
    found = on.server.get("leases", "l", "kube-system")
    assert found is not None
    return found


async def test_what_was_written_is_read(tmp_path: Path) -> None:
    """All of it, in the spelling of client-go: microseconds, whole seconds."""
    async with client_stage(tmp_path) as on:
        store = KubernetesLease(on.calls, "kube-system", "l")
        assert await store.read() is None
        created = await store.write(MINE)
        assert await store.read() == created
        assert lease(on)["spec"] == {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-03-17T17:46:40.000000Z",
            "renewTime": "2030-03-17T17:46:40.250000Z",
            "leaseTransitions": 3,
        }


async def test_what_others_have_written_on_it_stays(tmp_path: Path) -> None:
    """Labels, annotations, and fields of its spec that are not ours."""
    async with client_stage(tmp_path) as on:
        store = KubernetesLease(on.calls, "kube-system", "l")
        await store.write(MINE)
        others = {"metadata": {"labels": {"team": "a"}}, "spec": {"preferredHolder": "you"}}
        on.server.patch("leases", "l", others, "kube-system")
        seen = await store.read()
        assert seen is not None
        await store.write(await store.write(seen))
        assert lease(on)["metadata"]["labels"] == {"team": "a"}
        assert lease(on)["spec"]["preferredHolder"] == "you"


async def test_an_older_version_is_never_replaced(tmp_path: Path) -> None:
    """Compare and swap: whoever comes second gets 409."""
    async with client_stage(tmp_path) as on:
        store = KubernetesLease(on.calls, "kube-system", "l")
        created = await store.write(MINE)
        await store.write(replace(created, transitions=4))
        with pytest.raises(CallFailed) as refused:
            await store.write(created)
        assert refused.value.reason is FailureReason.CONFLICT


async def test_an_empty_lease_is_nobodys(tmp_path: Path) -> None:
    """What is missing counts as never set: it has expired."""
    async with client_stage(tmp_path) as on:
        on.server.create("leases", {"metadata": {"name": "l", "namespace": "kube-system"}, "spec": {}})
        seen = await KubernetesLease(on.calls, "kube-system", "l").read()
        assert seen is not None
        assert (seen.holder, seen.duration_seconds, seen.transitions) == ("", 0, 0)


@pytest.mark.parametrize("text", ["[]", "{}", '{"metadata": {}}', '{"metadata": {"resourceVersion": "1"}, "spec": 7}'])
async def test_an_answer_that_is_no_lease_is_a_failed_call(tmp_path: Path, text: str) -> None:
    """A proxy's words, say: they end an attempt, not the process."""
    async with client_stage(tmp_path) as on:
        on.server.create("leases", {"metadata": {"name": "l", "namespace": "kube-system"}, "spec": {}})
        on.server.faults.add(resource="leases", status=200, message=text, plain_text=True)
        with pytest.raises(CallFailed, match="is not a Lease"):
            await KubernetesLease(on.calls, "kube-system", "l").read()


def test_a_lease_has_a_name_and_a_dry_run_one_of_its_own() -> None:
    """A dry run that held the real one would lead, and nobody would evict."""
    assert Settings(election=ElectionSettings(lease_name="")).problems() == ["the Lease must have a name"]
    [problem] = Settings(dry_run=True).problems()
    assert "a Lease of its own" in problem
    assert Settings(dry_run=True, election=ElectionSettings(lease_name="other")).problems() == []
    assert Settings(dry_run=True, election=ElectionSettings(enabled=False)).problems() == []
