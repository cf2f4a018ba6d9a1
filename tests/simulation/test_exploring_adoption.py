"""How explorations judge what the built-in controller evicts: only what could have been adopted before."""

from tests.simulation.exploring.playing import play_scenario

from taint_eviction_lab.simulation.scenario import read_scenario

# The built-in controller's timer ends at 15.3, and its watch shows the new seconds no earlier.
CHANGED_LATE = """
about: A pod's seconds are prolonged a moment before the built-in controller's timer ends.
settings: {adopt: true, builtIn: "1.36", defaultTolerationSeconds: null}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, tolerations: ["maintenance:NoExecute for 2"]}]
timeline:
  - {at: 13.31, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 15.311, tolerate: {pod: web-0, tolerations: ["maintenance:NoExecute for 20"]}}
expect: {}
"""


def test_seconds_that_change_right_before_the_built_in_controller_acts_cannot_be_adopted() -> None:
    """The controller has three seconds to adopt what it could know."""
    result = play_scenario(read_scenario(CHANGED_LATE, "late"))
    assert "by the built-in controller" in " ".join(entry.why for entry in result.timeline)
    assert result.violations == ()
