"""How explorations judge a pause that a process has read."""

from tests.simulation.exploring.playing import play_scenario

from taint_eviction_lab.simulation.scenario import read_scenario

# The answer to the read at 30 comes at 32.7. By then a later read has shown that the pause has ended.
OVERTAKEN = """
about: An answer about a pause comes after a newer one.
settings: {}
given:
  nodes: [node-1]
  pods: [{name: web-1, nodeName: node-1}]
timeline:
  - {at: 25.127, pause: {namespace: default}}
  - {at: 25.895, delay: {call: readControlState, for: 5.39, back: 2.717}}
  - {at: 31.898, resume: all}
  - {at: 33.533, taint: "node-1 maintenance=now:NoExecute"}
until: 60
expect: {}
"""


def test_an_answer_that_was_overtaken_pauses_nothing() -> None:
    """The process goes by the newest state that it has read, and so does the judge."""
    result = play_scenario(read_scenario(OVERTAKEN, "pauses"))
    assert (result.evicted, result.violations) == ([(34, "default/web-1")], ())
