"""What the owners of pods write into them costs the controller little, and others nothing."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.stage.objects import KEY, add_nodes, add_pod, deleted, is_leaving, tolerates, write_kubeconfig
from tests.stage.processes import RunningController, running_controller
from tests.stage.waiting import PATIENCE_SECONDS, free_port

from fake_apiserver import ApiServer

# The most that the process may ever need.
MOST_MEGABYTES = 250.0

LABELS = {f"label-{number}": f"value-of-this-label-{number:040}" for number in range(16_000)}
TOLERATIONS = [
    {"key": f"key-{number}", "operator": "Equal", "value": f"value-{number}", "effect": "NoExecute"}
    for number in range(10_000)
]
# 1.3 MB that no pod shares with another, and that hardly become less when they are compressed.
RANDOM_TOLERATIONS = 8_000
# The name of its owner takes four bytes for each character, once it is a string.
OWNER = {"apiVersion": "x/v1", "kind": "Foo", "name": "😀" + "a" * 1_450_000, "uid": "o1", "controller": True}
# A kubelet writes the status of its pods, and the API server does not bound the reasons in it.
CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": OWNER["name"]}


def random_tolerations(chosen: random.Random) -> list[dict[str, Any]]:
    """Return tolerations that differ in each field from all others."""
    return [
        {
            "key": f"{chosen.getrandbits(160):040x}",
            "operator": "Equal",
            "value": f"{chosen.getrandbits(160):040x}",
            "effect": "NoExecute",
            "tolerationSeconds": chosen.randrange(10**9),
        }
        for _ in range(RANDOM_TOLERATIONS)
    ]


def megabytes(of: RunningController, field: str) -> float:
    """Return a field of the process's status: VmHWM is the most memory that it ever had, VmRSS what it has."""
    status = Path(f"/proc/{of.process.pid}/status")
    if not status.exists():
        pytest.skip("the memory of processes is read as Linux tells it")
    [line] = [line for line in status.read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) / 1024


async def knows(run: RunningController, pods: int) -> bool:
    """Return whether this many pods have a deadline, as the metrics say."""
    _, text = await run.get("/metrics")
    return f"\ntaint_eviction_controller_pending_evictions {pods:.1f}\n" in text


@pytest.mark.parametrize(
    ("count", "metadata", "tolerations", "conditions"),
    [
        (100, {"labels": LABELS}, [], []),
        (60, {}, TOLERATIONS, []),
        (110, {"ownerReferences": [OWNER]}, [], []),
        (110, {}, [], [CONDITION]),
    ],
    ids=[
        "100 pods of 16,000 labels",
        "60 pods of 10,000 tolerations",
        "110 pods of an owner with a name of 1.45 MB",
        "110 pods of a condition with a reason of 1.45 MB",
    ],
)
async def test_large_pods_of_a_tainted_node_need_little_memory_and_give_it_back(
    tmp_path: Path,
    count: int,
    metadata: dict[str, Any],
    tolerations: list[dict[str, Any]],
    conditions: list[dict[str, Any]],
) -> None:
    """From a list, from a watch that shows a change of each, and once they are gone."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        names = [f"large-{number}" for number in range(count)]
        for name in names:
            add_pod(server, name, "n1", *tolerations, tolerates(3600), **metadata)
            if conditions:
                server.patch("pods", name, {"status": {"conditions": conditions}})
        config = write_kubeconfig(tmp_path / "config", server)
        async with running_controller(config, listen=f"127.0.0.1:{free_port()}") as run:
            before = megabytes(run, "VmRSS")
            server.taint("n1", KEY)
            await run.until(lambda: knows(run, count))
            await run.until(lambda: server.watches.select(resource="pods", node="n1"))
            for name in names:
                server.patch("pods", name, {"status": {"startTime": "2024-05-01T10:00:00Z"}})
            add_pod(server, "last", "n1")
            await deleted(server, "last")
            for name in names:
                server.delete("pods", name, grace_period_seconds=0)
            await run.until(lambda: knows(run, 0))
            assert megabytes(run, "VmHWM") < MOST_MEGABYTES
            await run.until(lambda: megabytes(run, "VmRSS") < before + 60)  # free memory is given back twice a minute


async def test_a_hundred_pods_of_random_tolerations_fit_in_memory_and_are_given_back(tmp_path: Path) -> None:
    """Nothing in 130 MB of them is shared, and none may be dropped: it could match a taint."""
    chosen = random.Random(1)
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        for number in range(100):
            add_pod(server, f"large-{number}", "n1", *random_tolerations(chosen), tolerates(3600))
        add_pod(server, "last", "n1")
        config = write_kubeconfig(tmp_path / "config", server)
        async with running_controller(config, listen=f"127.0.0.1:{free_port()}") as run:
            before = megabytes(run, "VmRSS")
            server.taint("n1", KEY)
            await run.until(lambda: knows(run, 100))
            await deleted(server, "last")
            for number in range(100):
                server.delete("pods", f"large-{number}", grace_period_seconds=0)
            await run.until(lambda: knows(run, 0))
            assert megabytes(run, "VmHWM") < MOST_MEGABYTES
            await run.until(lambda: megabytes(run, "VmRSS") < before + 60)


async def test_a_rule_that_names_a_new_label_counts_for_pods_that_were_known_before(tmp_path: Path) -> None:
    """Their labels were not kept, so they are listed again before the policy is in force."""
    policy = tmp_path / "policy.yaml"
    head = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules: "
    policy.write_text(head + "[]\n")
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.taint("n1", KEY)
        for name in ("web", "other"):
            add_pod(server, name, "n1", tolerates(3600), labels={"app": name})
        config = write_kubeconfig(tmp_path / "config", server)
        listen = f"127.0.0.1:{free_port()}"
        async with running_controller(config, "--config", str(policy), listen=listen) as run:
            await run.until(lambda: knows(run, 2))
            policy.write_text(head + "[{name: web, match: {podSelector: {matchLabels: {app: web}}}, pause: true}]\n")
            await run.until(lambda: run.said("is in force; rules: 1"))
            for name in ("web", "other"):
                server.patch("pods", name, {"spec": {"tolerations": []}})
            await deleted(server, "other")
            assert not is_leaving(server, "web")
            assert len(server.requests.select(verb="list", resource="pods")) >= 3


async def test_a_hold_of_many_digits_stops_nothing(tmp_path: Path) -> None:
    """Not where holds are honoured, either: there it counts as true."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        server.taint("n1", KEY)
        for number in range(20):
            add_pod(server, f"hostile-{number}", "n1", annotations={"taint-eviction/hold": "9" * 200_000})
        add_pod(server, "other", "n1")
        config = write_kubeconfig(tmp_path / "config", server)
        async with running_controller(config, "--honour-holds=10m") as run:
            await deleted(server, "other", within_seconds=PATIENCE_SECONDS / 2)
            assert len(run.said("is not true, false or a duration")) == 20
            assert not any(is_leaving(server, f"hostile-{number}") for number in range(20))
