"""What explorations know of taints that are dated by a clock that is wrong."""

import pytest
from tests.simulation import world_bugs
from tests.simulation.exploring.playing import Played, play_scenario

from taint_eviction_lab.simulation.scenario import read_scenario

# A list of nodes shows the taint at 21.42 s, while the watch lags. The watch delivered last at 21.30 s.
AHEAD = """
about: The date of a taint is two hours back. A list shows it 60 ms after it was set; the watch was last heard before.
name: dated
settings: {resyncInterval: 4}
given:
  nodes: [node-1, node-2]
  pods: [{name: web-0, nodeName: node-1, tolerations: [a for 5]}]
timeline:
  - {at: 1.0, lag: {watch: nodes, by: 2.4}}
WRITES
  - at: 21.36
    taint: {node: node-1, taints: [{key: a, effect: NoExecute, timeAdded: -2h}], by: lifecycle}
expect: {}
"""


def played() -> Played:
    writes = "\n".join(f"  - {{at: {second}.9, writeNode: node-2}}" for second in range(10, 21))
    return play_scenario(read_scenario(AHEAD.replace("WRITES", writes), "dated"))


def test_a_taint_begins_at_the_earliest_when_its_node_was_last_seen_without_it() -> None:
    """That is when the watch was last heard, which may be before the taint was set."""
    result = played()
    assert "a:NoExecute is tolerated for 5 s from 21.300 (last sight without it)" in [
        entry.why for entry in result.timeline
    ]
    assert result.violations == ()


def test_a_date_before_that_ends_no_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run with the mistake that the date counts."""
    world_bugs.dated_beats_seen(monkeypatch)
    assert played().rule == "not due"
