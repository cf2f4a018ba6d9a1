"""Ceilings on tolerations, against a real API server: its admission gives pods the 300 s that a rule shortens."""

from pathlib import Path

import pytest
from tests.e2e.cluster import ClusterUnderTest
from tests.e2e.conftest import Start

from taint_eviction.core.objects import NOT_READY
from taint_eviction.runtime.clock import read_monotonic

KEY = "taint-eviction-test/maintenance"
HEAD = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules:"
RULE = f"{HEAD}\n  - {{name: short, match: {{taintKeys: [{NOT_READY}, {KEY}]}}, maxTolerationSeconds: %d}}\n"
NONE = f"{HEAD} []\n"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Return the policy file, with a ceiling of 4 s."""
    file = tmp_path / "policy.yaml"
    file.write_text(RULE % 4)
    return file


def write(policy: Path, text: str) -> None:
    """Change the policy file."""
    policy.write_text(text)


def tolerates(seconds: int | None, key: str = KEY) -> dict[str, object]:
    """Return a toleration."""
    span = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **span}


async def test_a_pod_leaves_when_the_ceiling_has_passed_and_its_event_names_the_rule(
    cluster: ClusterUnderTest, start: Start, policy: Path
) -> None:
    """What admission wrote is shortened; a toleration without seconds is not, as DaemonSets' pods have it."""
    await start(f"--config={policy}")
    # The node lifecycle controller of a real cluster leaves the taint where a node is not ready, and another one is.
    await cluster.create_node("a", ready=False)
    await cluster.create_node("b")
    by_admission = await cluster.create_pod("by-admission", "a")
    agent = await cluster.create_pod("agent", "a", [tolerates(None, NOT_READY)])
    written = {one["key"]: one.get("tolerationSeconds") for one in by_admission.body["spec"]["tolerations"]}
    assert written[NOT_READY] == 300
    before = read_monotonic()
    await cluster.taint("a", NOT_READY)
    assert 3.9 <= await cluster.evicted(by_admission) - before <= 8.0
    why = f"is tolerated by [{NOT_READY}:NoExecute for 300 s], but rule short allows at most 4 s"
    events = f"/api/v1/namespaces/{cluster.prefix}/events?fieldSelector=involvedObject.uid={by_admission.uid}"
    await cluster.eventually(events, lambda listed: any(each["message"].endswith(why) for each in listed["items"]))
    await cluster.stays(agent, 3.0)


async def test_a_change_of_the_file_moves_the_deadlines_of_pods_that_count_down(
    cluster: ClusterUnderTest, start: Start, policy: Path
) -> None:
    """In both directions: a pod that was about to leave stays, and one that would stay for long leaves."""
    write(policy, RULE % 6)
    await start(f"--config={policy}")
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(600)])
    await cluster.taint("a", KEY)
    write(policy, NONE)
    await cluster.stays(pod, 9.0)
    write(policy, RULE % 1)
    before = read_monotonic()
    assert await cluster.evicted(pod) - before <= 6.0
