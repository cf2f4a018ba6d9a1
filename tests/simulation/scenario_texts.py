"""Scenarios as text for tests, and the shortest way to play one."""

from textwrap import dedent

from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

ONE_POD = """\
about: One pod, one taint.
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, tolerations: [maintenance for 30]}]
timeline:
  - at: 10
    taint: node-1 maintenance=now:NoExecute
expect:
  web-0: {evicted: 40}
"""


def played(text: str) -> ReplayResult:
    """Read a scenario and play it."""
    return replay_scenario(read_scenario(dedent(text), "test.yaml"))
