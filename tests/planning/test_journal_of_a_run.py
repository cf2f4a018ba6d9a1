"""The journal of a controller that runs over HTTP in a process of its own: killed, cut, full, and replayed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.planning.shop import JsonObject, tolerates
from tests.stage.processes import RunningController, running_controller
from tests.stage.waiting import until

from fake_apiserver import ApiServer, node_object, pod_object
from taint_eviction_lab.cli.replay import replay

WITHIN_SECONDS = 2.1


def create(server: ApiServer, name: str, *tolerations: JsonObject) -> None:
    """Create a pod that runs on n1."""
    body = pod_object("shop", name, "n1", timestamp=server.clock.timestamp())
    body["spec"]["tolerations"] = list(tolerations)
    server.create("pods", body)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Serve a node, and pods that go at once, after a second, much later, and never."""
    async with ApiServer(seed=8) as started:
        started.kubelets.finish_after_seconds = 0.05
        started.create("nodes", node_object("n1", started.clock.timestamp()))
        create(started, "none")
        create(started, "one", tolerates(1))
        create(started, "late", tolerates(60))
        create(started, "ever", tolerates())
        yield started


@asynccontextmanager
async def recorded_controller(config: str, journal: Path, *flags: str) -> AsyncIterator[RunningController]:
    """Run the controller with a journal, and stop it afterwards unless the test has killed it."""
    async with running_controller(config, "--journal", str(journal), *flags) as run:
        yield run
        if run.process.returncode is None:
            await run.end()


async def left(server: ApiServer, *names: str) -> None:
    """Wait until only these pods are left."""
    await until(lambda: {pod["metadata"]["name"] for pod in server.list("pods")} == set(names))


def lines(journal: Path) -> list[str]:
    """Read a journal's lines."""
    return journal.read_text().splitlines()


def evictions(journal: Path) -> list[tuple[str, float]]:
    """List the evicted pods with their times, in seconds from the journal's beginning."""
    told = [json.loads(line) for line in lines(journal) if line.endswith("}") and '"padding"' not in line]
    return [(each["pod"], each["t"] - told[0]["t"]) for each in told if each["what"] == "evicted"]


async def played(*arguments: str) -> Result:
    """Run ``replay`` in another thread: the server runs in the loop of this one."""
    return await asyncio.to_thread(CliRunner().invoke, replay, list(arguments), catch_exceptions=False)


async def test_an_incident_is_recorded_drawn_and_played_again(server: ApiServer, config: str, tmp_path: Path) -> None:
    """Deletions are refused, and a kill cuts a line; the scenario has the same evictions, and holds."""
    journal, page, story = tmp_path / "journal", tmp_path / "page.html", tmp_path / "story.yaml"
    async with recorded_controller(config, journal) as run:
        server.faults.add(resource="pods", verb="delete", name="one", status=503, times=3)
        server.taint("n1", "maintenance", "now")
        await left(server, "late", "ever")
        await asyncio.sleep(0.5)
        await run.kill()
    with journal.open("r+b") as file:
        file.truncate(journal.stat().st_size - 20)
    async with recorded_controller(config, journal):
        create(server, "again", tolerates(1))
        await left(server, "late", "ever")
        server.untaint("n1", "maintenance")
        await asyncio.sleep(0.5)
    recorded = evictions(journal)
    assert [pod for pod, _ in recorded] == ["shop/none", "shop/one", "shop/again"]

    drawn = await played(str(journal), "--html", str(page), "--to-scenario", str(story))
    assert drawn.exit_code == 0, drawn.stdout
    cut_at = journal.read_text().splitlines().index(next(line for line in lines(journal) if not line.endswith("}"))) + 1
    assert drawn.stderr.splitlines() == [
        f"taint-eviction: {journal}:{cut_at}: the line is not JSON",
        f"taint-eviction: {journal}: 1 line skipped: 1 not JSON",
    ]
    assert "shop/again" in page.read_text()
    steps = {next(name for name in step if name != "at") for step in yaml.safe_load(story.read_text())["timeline"]}
    assert {"setTaints", "refuse", "restart", "create"} <= steps

    again = await played(str(story), "-o", "json")
    assert again.exit_code == 0
    (told,) = json.loads(again.stdout)["replays"]
    seen = {entry["subject"]: entry["at"] for entry in told["timeline"] if entry["what"] == "evicted"}
    assert seen.keys() == {pod for pod, _ in recorded}
    assert all(abs(seen[pod] - at) < WITHIN_SECONDS for pod, at in recorded), (seen, recorded)

    # The same journal is replayed with the model of the built-in controller, in a cluster of its own.
    both = await played(str(journal), "-o", "json", "--against", "built-in")
    against = json.loads(both.stdout)["replays"][0]["against"]
    compared = {pod["pod"]: pod["difference"] for pod in against["pods"]}
    alike = {"shop/none": "same", "shop/again": "same", "shop/late": "neither", "shop/ever": "neither"}
    # The model may have given up the refused pod until its restart.
    assert compared in ({**alike, "shop/one": "same"}, {**alike, "shop/one": "later"})


async def test_a_full_journal_is_rotated_and_its_second_file_stands_alone(
    server: ApiServer, config: str, tmp_path: Path
) -> None:
    """The second file begins with what is known, so that it can be replayed without the first."""
    journal = tmp_path / "journal"
    padding = b'{"t":1.0,"what":"padding"}\n'
    journal.write_bytes(padding * ((2**20 - 4000) // len(padding)))
    async with recorded_controller(config, journal, "--journal-megabytes", "1"):
        server.taint("n1", "maintenance", "now")
        await left(server, "late", "ever")
        for number in range(8):
            create(server, f"more-{number}", tolerates(1))
        await left(server, "late", "ever")
    before = journal.with_name("journal.1")
    assert before.stat().st_size <= 2**20
    assert "shop/none" in dict(evictions(before))
    head, *known = map(json.loads, lines(journal))
    assert (head["what"], head["continues"]) == ("journal", True)
    assert {"node", "shop/late"} <= {told["what"] if told["what"] == "node" else told.get("pod") for told in known}
    both = tmp_path / "both"
    both.write_bytes(before.read_bytes() + journal.read_bytes())
    for file in (journal, both):
        assert (await played(str(file))).exit_code == 0


async def test_a_journal_has_the_settings_that_decide(server: ApiServer, config: str, tmp_path: Path) -> None:
    """The scenario of the journal has the same settings."""
    journal, story = tmp_path / "journal", tmp_path / "story.yaml"
    flags = ("--honour-holds=forever", "--default-unreachable-seconds=2", "--eviction-mode=evict")
    server.admission.default_toleration_seconds = None
    create(server, "lacks-one")
    async with recorded_controller(config, journal, *flags):
        server.taint("n1", "node.kubernetes.io/unreachable")
        await asyncio.sleep(4)
    assert (await played(str(journal), "--to-scenario", str(story))).exit_code == 0
    assert yaml.safe_load(story.read_text())["settings"] == {
        "defaultTolerationSeconds": None,
        "defaultUnreachableSeconds": 2,
        "honourHolds": "forever",
        "evictionMode": "evict",
    }
    assert "shop/lacks-one" in yaml.safe_load(story.read_text())["expect"]
