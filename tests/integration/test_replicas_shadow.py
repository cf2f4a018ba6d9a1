"""A dry run compares its results with those of the built-in controller over HTTP, and keeps them over a restart."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.stage.processes import CommandResult, invoked
from tests.stage.replicas import ReplicaProcess, Theatre, theatre
from tests.stage.waiting import until

from fake_apiserver import LoggedRequest

BUILT_IN = "kube-controller-manager"
SHADOW = ("--dry-run", "--no-leader-elect")


@dataclass
class ShadowStory:
    """The answers of the dry run at the end and after a restart, and those of ``compare``."""

    document: dict[str, Any]
    metrics: list[str]
    logged: list[dict[str, Any]]
    after_restart: dict[str, Any]
    table: CommandResult
    of_journal: CommandResult
    as_json: CommandResult
    changes: list[LoggedRequest]


def marks(on: Theatre, name: str) -> None:
    """Set the condition on a pod, as the built-in controller does."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "lastTransitionTime": on.server.clock.timestamp(),
    }
    on.server.patch("pods", name, {"status": {"conditions": [condition]}}, manager=BUILT_IN)


def evicts(on: Theatre, name: str) -> None:
    """Evict a pod, as the built-in controller does."""
    marks(on, name)
    on.server.delete("pods", name)


async def asked(replica: ReplicaProcess) -> dict[str, Any]:
    """Return the document with the results of the comparison, or an empty one."""
    status, text = await replica.get("/compare")
    return dict(json.loads(text)) if status == 200 else {}


async def finds(replica: ReplicaProcess, **results: int) -> None:
    """Wait until the comparison has these results."""

    async def found() -> bool:
        document = await asked(replica)
        return bool(document) and results.items() <= {**document["results"], "open": document["outstanding"]}.items()

    await until(found)


async def play(directory: Path) -> ShadowStory:
    """The built-in controller evicts one pod in time, another too early, and gives up a third; a person deletes one."""
    journal = directory / "journal"
    async with theatre(directory) as on:
        # A pod that is gone before it was listed is not compared.
        on.server.kubelets.finish_after_seconds = 600.0
        for node in "abc":
            on.add_node(node)
        on.add_pod("in-time", "a")
        on.add_pod("too-early", "b", 3600)
        on.add_pod("given-up", "c")
        on.add_pod("rolled-out", "b", 3600)
        replica = await on.open("shadow", *SHADOW, f"--journal={journal}")
        for node in "abc":
            on.taint(node)
        evicts(on, "in-time")
        marks(on, "given-up")
        for pod in ("too-early", "rolled-out", "given-up"):
            await replica.says(what="scheduled", pod=f"default/{pod}")
        evicts(on, "too-early")
        on.server.delete("pods", "rolled-out")
        await finds(replica, open=1, same=1, built_in_only=1, somebody_else=1)
        on.server.untaint("c", on.server.get("nodes", "c")["spec"]["taints"][0]["key"])  # type: ignore[index]
        await finds(replica, never=1)
        document, (_, text) = await asked(replica), await replica.get("/metrics")
        logged = replica.told(what="compared")
        await replica.kill()
        replica = await on.open("shadow-again", *SHADOW, f"--journal={journal}")
        after_restart = await asked(replica)
        table = await invoked("compare", "--server", replica.url)
        as_json = await invoked("compare", "--journal", str(journal), "-o", "json", "--limit", "1")
        return ShadowStory(
            document,
            [line for line in text.splitlines() if "shadow_comparisons_total" in line and not line.startswith("#")],
            logged,
            after_restart,
            table,
            await invoked("compare", "--journal", str(journal)),
            as_json,
            on.changes(),
        )


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> ShadowStory:
    """Run it once for all tests."""
    return asyncio.run(play(tmp_path_factory.mktemp("shadow")))


RESULTS = {"same": 1, "later": 0, "never": 1, "built_in_only": 1, "somebody_else": 1}


def test_each_pod_is_compared_once(story: ShadowStory) -> None:
    """The document has the numbers of all results, and the differences with their reasons."""
    assert (story.document["results"], story.document["compared"]) == (RESULTS, 4)
    differ = {each["name"]: (each["result"], each["reason"], each["by"]) for each in story.document["differences"]}
    assert differ == {
        "too-early": ("built_in_only", "earlier", BUILT_IN),
        "given-up": ("never", "gave_up", None),
    }


def test_metrics_count_the_pods_by_result(story: ShadowStory) -> None:
    """Results with the count zero are included."""
    name = "taint_eviction_controller_shadow_comparisons_total"
    assert sorted(story.metrics) == sorted(f'{name}{{result="{each}"}} {count}.0' for each, count in RESULTS.items())


def test_the_log_contains_the_differences(story: ShadowStory) -> None:
    """Pod and reason are fields of the line."""
    assert {(line["pod"], line["reason"]) for line in story.logged} == {
        ("default/too-early", "earlier"),
        ("default/given-up", "gave_up"),
    }


def test_a_restart_loses_no_results(story: ShadowStory) -> None:
    """The journal contains the results; its times may differ by less than a second."""
    before, after = story.document, story.after_restart
    assert (after["results"], after["unseen"]) == (RESULTS, 0)
    assert after["observedSeconds"] >= before["observedSeconds"]
    undated = [[{**each, "at": None} for each in document["differences"]] for document in (before, after)]
    assert undated[0] == undated[1]


def test_compare_gives_the_verdict_and_the_reasons(story: ShadowStory) -> None:
    """The output is the same from the running dry run and from its journal."""
    for said in (story.table, story.of_journal):
        assert said.code == 0, said.complaints
        verdict, empty, header, *rows = said.out.splitlines()
        assert verdict.endswith(
            " s 4 evictions: 1 the same; 1 that the built-in controller never did; 1 that it alone did;"
            " 1 by another client before either (1 by somebody: a deletion names nobody)"
        )
        assert (empty, header.split()[:3]) == ("", ["WHEN", "POD", "NODE"])
        assert len(rows) == 2
        [given_up] = [row for row in rows if "default/given-up" in row]
        assert " s, until it no longer had to leave (its node has no NoExecute taint): " in given_up
        assert given_up.endswith("it set its condition and did not delete the pod, as after five refused tries")


def test_json_is_one_document_with_only_the_newest_differences(story: ShadowStory) -> None:
    """``--limit`` applies to JSON, too."""
    document = json.loads(story.as_json.out)
    assert (document["kind"], document["results"]) == ("Comparison", RESULTS)
    assert [each["name"] for each in document["differences"]] == ["given-up"]


def test_the_dry_run_changed_nothing(story: ShadowStory) -> None:
    """The dry run only watches."""
    assert story.changes == []


async def refused(directory: Path) -> tuple[CommandResult, ...]:
    """Ask a controller that is no dry run, and read files that are no journals."""
    (directory / "other").write_text('{"t": 1, "what": "journal", "version": 1}\n{"t": 2, "wha')
    async with theatre(directory) as on:
        replica = await on.open("real", "--no-leader-elect")
        return (
            await invoked("compare", "--server", replica.url),
            await invoked("compare", "--journal", str(directory / "missing")),
            await invoked("compare", "--journal", str(directory / "other")),
            await invoked("compare", "--journal", str(directory / "other"), "--server", replica.url),
        )


def test_compare_distinguishes_sources_that_cannot_answer(tmp_path: Path) -> None:
    """These are a controller that is no dry run, a missing file, and a file that is no journal of a dry run."""
    real, missing, other, both = asyncio.run(refused(tmp_path))
    assert (real.code, missing.code, other.code, both.code) == (3, 2, 2, 2)
    assert "only a dry run compares" in real.complaints
    assert "No such file" in missing.complaints
    assert "no journal of a dry run" in other.complaints
    assert "--server does not go with it" in both.complaints
