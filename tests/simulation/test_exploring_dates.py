"""What explorations know of taints whose dates are wrong, or missing."""

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


# web-1's second attempt reads the node at 26.8 s, ahead of the watch, which brings the undated taint at 27.8 s.
UNDATED = """
about: A dated taint is replaced by an undated one while the watch lags, and a budget has just refused web-4.
name: undated
settings: {evictionMode: evict}
given:
  nodes:
    - node-1
    - {name: node-2, taints: [{key: a, value: "1", effect: NoExecute, timeAdded: now}]}
  pods:
    - {name: web-1, nodeName: node-1, labels: {app: web}}
    - {name: web-4, nodeName: node-1, labels: {app: web}, tolerations: [b for 20]}
  budgets: [{name: one, selector: {app: web}, maxUnavailable: 0}]
timeline:
  - {at: 4.135, taint: {node: node-2, taints: ["b=1:NoExecute"], by: kubectl}}
  - {at: 13.717, lag: {watch: nodes, by: 1.2}}
  - {at: 21.011, recreate: {pod: web-1, node: node-2}}
  - {at: 24.191, recreate: {pod: web-4, node: node-2}}
  - {at: 26.631, taint: {node: node-2, taints: ["a=1:NoExecute"], by: kubectl}}
expect: {}
"""


def test_an_undated_taint_that_only_an_answer_shows_is_not_known_yet() -> None:
    """Until the watch brings it, the pod is due later, and the eviction after that is a new one."""
    assert play_scenario(read_scenario(UNDATED, "undated")).violations == ()
