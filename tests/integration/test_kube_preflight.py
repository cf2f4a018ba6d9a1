"""The check before the start: which rights are asked for depends on the settings, and missing rights are named."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stage.client import ClientStage, client_stage

from taint_eviction.core.policy import EvictionMode, EvictionPolicy, PolicyRule
from taint_eviction.kube.preflight import in_words, missing_rights
from taint_eviction.settings import AdoptionSettings, ControlStateSettings, ElectionSettings, Settings

READS = {f"{verb} {resource}" for verb in ("get", "list", "watch") for resource in ("nodes", "pods")}
WRITES = {"patch pods/status", "delete pods"}
EVENTS = {"create events", "patch events"}
LEASE = {"get leases", "create leases", "update leases"}
LATCH = {"create configmaps", "patch configmaps"}
HISTORY = {f"{verb} configmaps taint-eviction-controller-history" for verb in ("get", "patch")}
LEASE_RIGHTS = [("create", None), ("get", "mine"), ("update", "mine")]
EVICTION = {"create pods/eviction"}


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A server that answers every access review with no."""
    async with client_stage(tmp_path) as made:
        made.server.faults.add(path="selfsubjectaccessreviews", status=201, message="{}", plain_text=True)
        yield made


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        (Settings(), READS | WRITES | EVENTS | LEASE | LATCH | HISTORY | {"get configmaps"}),
        (Settings(keep_history=False), READS | WRITES | EVENTS | LEASE | LATCH | {"get configmaps"}),
        (
            Settings(adoption=AdoptionSettings(enabled=True)),
            READS | WRITES | EVENTS | LEASE | LATCH | HISTORY | {"get configmaps", "patch pods"},
        ),
        (Settings(dry_run=True), READS | LEASE | HISTORY | {"get configmaps", "create configmaps"}),
        (
            Settings(dry_run=True, dry_run_events=True, keep_history=False),
            READS | EVENTS | LEASE | {"get configmaps"},
        ),
        (
            Settings(control_state=ControlStateSettings(enabled=False), election=ElectionSettings(enabled=False)),
            READS | WRITES | EVENTS | HISTORY | {"create configmaps"},
        ),
        (
            Settings(policy=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE)),
            READS | WRITES | EVENTS | LEASE | LATCH | HISTORY | EVICTION | {"get configmaps"},
        ),
        (
            Settings(policy=EvictionPolicy(rules=(PolicyRule("a"), PolicyRule("b", mode=EvictionMode.EVICT)))),
            READS | WRITES | EVENTS | LEASE | LATCH | HISTORY | EVICTION | {"get configmaps"},
        ),
    ],
)
async def test_only_rights_that_the_settings_need_are_asked_for(
    at: ClientStage, settings: Settings, asked: set[str]
) -> None:
    """Each right is asked for once; in this test all of them are missing."""
    missing = await missing_rights(at.calls, settings)
    assert set(missing) == asked
    assert len(missing) == len(asked)
    assert all(right in in_words(missing) for right in asked)


async def test_lease_and_config_map_are_asked_for_by_name(at: ClientStage) -> None:
    """The rights are asked for in the Lease's namespace; a right to create has no name. Outcomes follow the Lease."""
    election = ElectionSettings(lease_name="mine", lease_namespace="here")
    await missing_rights(at.calls, Settings(election=election, control_state=ControlStateSettings(name="ours")))
    reviews = at.server.requests.select(verb="create")
    asked = [entry.body["spec"]["resourceAttributes"] for entry in reviews]
    assert {
        (found["resource"], found["verb"], found.get("name"), found["group"], found["namespace"])
        for found in asked
        if "namespace" in found
    } == {
        *(("leases", verb, name, "coordination.k8s.io", "here") for verb, name in LEASE_RIGHTS),
        ("configmaps", "create", None, "", "here"),
        *(("configmaps", verb, name, "", "here") for verb in ("get", "patch") for name in ("ours", "mine-history")),
    }
