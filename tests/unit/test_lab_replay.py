"""Scenarios can be played in tests of anybody's own."""

from pathlib import Path

import pytest

from taint_eviction.files.marked_yaml import Malformed
from taint_eviction_lab import replay

SCENARIO = """
about: A pod that tolerates the taint for 30 s is evicted after 30 s, unless the taint is removed before.
given:
  nodes: [node-1]
  pods:
    - {name: web-0, nodeName: node-1, tolerations: [maintenance for 30]}
    - {name: web-1, nodeName: node-1}
timeline:
  - {at: 10, taint: node-1 maintenance=now:NoExecute}
  - {at: 35, untaint: node-1 maintenance}
expect:
  web-0: {notEvicted: true}
  web-1: {evicted: 10}
"""


def test_a_replay_says_when_each_pod_was_evicted() -> None:
    """Pods that stayed are there, without a second."""
    result = replay(SCENARIO)
    assert result.broken == ()
    assert {pod: [round(at) for at in times] for pod, times in result.evicted.items()} == {
        "default/web-0": [],
        "default/web-1": [10],
    }


def test_a_replay_says_which_expectations_are_broken() -> None:
    """Each with its line, and what was seen."""
    [verdict] = replay(SCENARIO.replace("{evicted: 10}", "{evicted: 20}")).broken
    assert (verdict.pod, verdict.line) == ("default/web-1", 13)


def test_a_replay_reads_a_file(tmp_path: Path) -> None:
    """Mistakes name it."""
    file = tmp_path / "mine.yaml"
    file.write_text("given: {}\nnonsense: 1\n")
    with pytest.raises(Malformed, match=r"mine\.yaml:2"):
        replay(file)
