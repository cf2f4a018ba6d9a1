"""The Lease on the server: what others have written into it stays, and an answer that is no Lease is a failed call."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.stage.client import ClientStage, client_stage

from taint_eviction.kube.lease import KubernetesLease
from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import ElectionSettings, Settings

IN_VAIN = "taint-eviction/tried-in-vain"
MINE = LeaseRecord("me", 15, 1.9e9, 1.9e9 + 0.25, 3)


def annotate(on: ClientStage, **annotations: str) -> None:
    """Set annotations of the Lease on the server."""
    on.server.patch("leases", "l", {"metadata": {"annotations": annotations}}, namespace="kube-system")


def lease(on: ClientStage) -> dict[str, Any]:
    """The Lease on the server."""
    found = on.server.get("leases", "l", "kube-system")
    assert found is not None
    return found


async def test_a_lease_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The times have microseconds and the durations are whole seconds, as in client-go."""
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


async def test_the_number_of_pods_tried_in_vain_is_an_annotation_while_there_are_any(tmp_path: Path) -> None:
    """Annotations of others stay; a value that is no number tells nothing."""
    async with client_stage(tmp_path) as on:
        store = KubernetesLease(on.calls, "kube-system", "l")
        await store.write(MINE)
        annotate(on, theirs="x")
        found = await store.read()
        assert found is not None
        written = await store.write(replace(found, tried_in_vain=30))
        assert (await store.read(), written.tried_in_vain) == (written, 30)
        assert lease(on)["metadata"]["annotations"] == {"theirs": "x", IN_VAIN: "30"}
        await store.write(replace(written, tried_in_vain=0))
        assert lease(on)["metadata"]["annotations"] == {"theirs": "x"}
        for text in ("-1", "1e3", "9" * 4000, "\u0663"):
            annotate(on, **{IN_VAIN: text})
            found = await store.read()
            assert found is not None
            assert found.tried_in_vain == 0


async def test_writes_keep_what_others_have_put_into_the_lease(tmp_path: Path) -> None:
    """Labels and unknown fields of the spec stay."""
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


async def test_a_stale_version_of_the_lease_cannot_be_written(tmp_path: Path) -> None:
    """This is a compare-and-swap: the second writer gets a 409."""
    async with client_stage(tmp_path) as on:
        store = KubernetesLease(on.calls, "kube-system", "l")
        created = await store.write(MINE)
        await store.write(replace(created, transitions=4))
        with pytest.raises(CallFailed) as refused:
            await store.write(created)
        assert refused.value.reason is FailureReason.CONFLICT


async def test_of_a_holder_only_the_beginning_is_kept(tmp_path: Path) -> None:
    """Everybody who may write the Lease chooses its length, and standbys log it."""
    async with client_stage(tmp_path) as on:
        store = KubernetesLease(on.calls, "kube-system", "l")
        seen = await store.write(replace(MINE, holder="x" * 500_000))
        assert seen.holder == "x" * 300


async def test_an_empty_lease_has_no_holder(tmp_path: Path) -> None:
    """Missing fields count as never set, so the Lease has expired."""
    async with client_stage(tmp_path) as on:
        on.server.create("leases", {"metadata": {"name": "l", "namespace": "kube-system"}, "spec": {}})
        seen = await KubernetesLease(on.calls, "kube-system", "l").read()
        assert seen is not None
        assert (seen.holder, seen.duration_seconds, seen.transitions) == ("", 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"metadata": {}}',
        '{"kind": "Lease", "metadata": {"name": "l", "namespace": "kube-system"}}',
        '{"kind": "Lease", "metadata": {"name": "l", "namespace": "kube-system", "resourceVersion": "1"}, "spec": 7}',
        '{"kind": "Lease", "metadata": {"name": "other", "namespace": "kube-system", "resourceVersion": "1"}}',
        '{"kind": "Pod", "metadata": {"name": "l", "namespace": "kube-system", "resourceVersion": "1"}}',
    ],
)
async def test_an_answer_that_is_no_lease_is_a_failed_call(tmp_path: Path, text: str) -> None:
    """The answer of a proxy, for example, fails the attempt and does not end the process."""
    async with client_stage(tmp_path) as on:
        on.server.create("leases", {"metadata": {"name": "l", "namespace": "kube-system"}, "spec": {}})
        on.server.faults.add(resource="leases", status=200, message=text, plain_text=True)
        with pytest.raises(CallFailed, match=r"is not (a|about) Lease"):
            await KubernetesLease(on.calls, "kube-system", "l").read()


def test_a_lease_needs_a_name_and_a_dry_run_needs_another_lease() -> None:
    """A dry run that held the real Lease would lead, and no replica would evict."""
    assert Settings(election=ElectionSettings(lease_name="")).problems() == ["the Lease must have a name"]
    [problem] = Settings(dry_run=True).problems()
    assert "a Lease of its own" in problem
    assert Settings(dry_run=True, election=ElectionSettings(lease_name="other")).problems() == []
    assert Settings(dry_run=True, election=ElectionSettings(enabled=False)).problems() == []
