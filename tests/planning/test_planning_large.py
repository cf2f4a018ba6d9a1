"""Thirty thousand pods: in seconds, and in memory that a laptop does not notice."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.planning.shop import node, pod, tolerates

from taint_eviction.runtime.clock import read_monotonic

PODS, NODES = 30_000, 500
POD_BYTES = 6_000
# Reading as a whole and decoding it takes 2 GB.
MOST_MEGABYTES = 250
SOURCES = str(Path("operator").resolve())


def large_json(path: Path) -> None:
    """Write a List as kubectl prints it, without making it in memory."""
    container = {"name": "main", "env": [{"name": "PADDING", "value": "x" * (POD_BYTES - 800)}]}
    template = pod("NAME", "NODE", tolerates(300), owner="ReplicaSet/web", labels={"app": "web"})
    template["spec"]["containers"] = [container]
    text = json.dumps(template, indent=4)

    def items() -> Iterator[str]:
        yield from (json.dumps(node(f"node-{index}"), indent=4) for index in range(NODES))
        for index in range(PODS):
            yield text.replace("NAME", f"pod-{index}").replace("NODE", f"node-{index % NODES}")

    with path.open("w") as file:
        file.write('{"apiVersion": "v1", "items": [')
        for number, item in enumerate(items()):
            file.write(("," if number else "") + item)
        file.write('], "kind": "List"}')


@pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")
def test_thirty_thousand_pods_from_a_file(tmp_path: Path) -> None:
    """Planned within a quarter of a minute on any machine, in bounded memory, with progress told on stderr."""
    large_json(tmp_path / "large.json")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    began_at = read_monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "taint_eviction", "plan", str(tmp_path / "large.json"), "--taint", "*=k:NoExecute"],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=True,
    )
    took_seconds = read_monotonic() - began_at
    assert result.stdout.splitlines()[0] == "30000 of 30000 pods on 500 nodes would leave: 30000 at once"
    assert took_seconds < 15
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    assert megabytes < MOST_MEGABYTES or before / 1024 >= MOST_MEGABYTES
    (tmp_path / "large.json").unlink()


def test_items_as_kubectl_prints_them_take_the_fast_way() -> None:
    """Two thousand pods of YAML in a second or two, where the parser alone takes six."""
    from taint_eviction.planning.kubectl_yaml import read_item  # noqa: PLC0415 - what is timed, and nothing else

    text = yaml.safe_dump([pod("web", "node-1", tolerates(300), owner="ReplicaSet/web")]).replace("uid of web", "u-1")
    began_at = read_monotonic()
    for _ in range(2000):
        assert read_item(text) is not None
    assert read_monotonic() - began_at < 3
