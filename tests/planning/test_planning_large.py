"""A plan for thirty thousand pods in little memory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.planning.shop import node, pod, tolerates

PODS, NODES = 30_000, 500
POD_BYTES = 6_000
# Reading the whole file and decoding it takes 2 GB.
MAX_MEGABYTES = 250
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


# The child prints its own peak: what its parent sees includes the parent's memory before the child was started.
PLAN = """
import pathlib, sys
from taint_eviction.cli import cli
try:
    cli(sys.argv[1:], standalone_mode=False)
finally:
    print(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure memory")
def test_thirty_thousand_pods_from_a_file_take_bounded_memory(tmp_path: Path) -> None:
    """The file is never in memory as a whole."""
    large_json(tmp_path / "large.json")
    result = subprocess.run(
        [sys.executable, "-c", PLAN, "plan", str(tmp_path / "large.json"), "--taint", "*=k:NoExecute"],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "large.json").unlink()
    assert result.stdout.splitlines()[0] == "30000 of 30000 pods on 500 nodes would leave: 30000 at once"
    assert int(result.stderr.splitlines()[-1]) / 1024 < MAX_MEGABYTES
