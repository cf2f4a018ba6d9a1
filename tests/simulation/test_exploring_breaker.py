"""How explorations judge a breaker that closes by itself: nodes that it cannot count do not keep it open."""

import pytest
from tests.simulation.exploring.playing import play_scenario

from taint_eviction.core.breaker import Breaker
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.simulation.timeline import What

# The breaker opens at 10. The killed leader's Lease ends at 58, and the new leader may close the breaker 5 s later.
RESTARTED = """
about: The breaker is open for three nodes that stay tainted, and its process is restarted.
settings: {breaker: {nodes: "25%", window: 5, closesByItself: true}}
given:
  nodes: ["node-{1..8}"]
  pods:
    - {name: web-1, nodeName: node-1, tolerations: [TOLERATIONS]}
    - {name: web-2, nodeName: node-2, tolerations: [TOLERATIONS]}
    - {name: web-3, nodeName: node-3, tolerations: [TOLERATIONS]}
timeline:
  - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 10, taint: "node-2 maintenance=now:NoExecute"}
  - {at: 10, taint: "node-3 maintenance=now:NoExecute"}
  - {at: 20, pause: {reason: "no pod goes, so that the nodes stay as they were"}}
  - {at: 40, restart: {after: 1}}
until: 100
expect: {}
"""
# The breaker opens at 10, closes at 40, opens at 60 and closes at 100: each time with two of three new nodes left.
CLOSED_BEFORE = """
about: The breaker closes by itself, opens again for other nodes, and stays open for them and those that were left.
settings: {breaker: {nodes: "25%", closesByItself: true}}
given:
  nodes: ["node-{1..8}"]
  pods:
    - {name: web-1, nodeName: node-1, tolerations: [maintenance for 1h]}
    - {name: web-2, nodeName: node-2, tolerations: [maintenance for 1h]}
    - {name: web-3, nodeName: node-3, tolerations: [maintenance for 1h]}
    - {name: web-4, nodeName: node-4, tolerations: [maintenance for 1h]}
    - {name: web-5, nodeName: node-5, tolerations: [maintenance for 1h]}
    - {name: web-6, nodeName: node-6, tolerations: [maintenance for 1h]}
timeline:
  - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 10, taint: "node-2 maintenance=now:NoExecute"}
  - {at: 10, taint: "node-3 maintenance=now:NoExecute"}
  - {at: 40, untaint: node-3}
  - {at: 60, taint: "node-4 maintenance=now:NoExecute"}
  - {at: 60, taint: "node-5 maintenance=now:NoExecute"}
  - {at: 60, taint: "node-6 maintenance=now:NoExecute"}
  - {at: 100, untaint: node-6}
until: 150
expect: {}
"""
# Three of four nodes are newly tainted; the only pod of the third came after the taint.
CAME_LATER = """
about: Somebody binds a pod to a node that was tainted 3 s before.
settings: {breaker: {}}
given:
  nodes: ["node-{1..4}"]
  pods:
    - {name: web-1, nodeName: node-1}
    - {name: web-2, nodeName: node-2}
timeline:
  - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 10, taint: "node-2 maintenance=now:NoExecute"}
  - {at: 30, taint: "node-3 maintenance=now:NoExecute"}
  - {at: 33, create: {name: web-3, nodeName: node-3}}
until: 60
expect: {}
"""
# The breaker closes by itself at 41, and cannot write that for 6 s. The budget keeps web-1 from then on.
CLOSING_REFUSED = """
about: A breaker that has closed, and could not write it, has let a pod run out of patience with its budget.
settings: {evictionMode: evict-then-delete, evictTimeout: 10, breaker: {window: 5, closesByItself: true}}
given:
  nodes: ["node-{1..3}"]
  pods:
    - {name: web-1, nodeName: node-1, labels: {app: web}, tolerations: [maintenance for 10]}
    - {name: web-2, nodeName: node-2}
    - {name: web-3, nodeName: node-3, tolerations: [maintenance for 30]}
  budgets: [{name: web, selector: {app: web}, maxUnavailable: 0}]
timeline:
  - {at: 3, taint: "node-3 maintenance=now:NoExecute"}
  - {at: 4, taint: "node-2 maintenance=now:NoExecute"}
  - {at: 6, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 18, restart: {after: 1}}
  - {at: 33, refuse: {call: writeControlState, status: 429, for: 14}}
  - {at: 48, untaint: node-2}
until: 80
expect: {}
"""


def closings_and_rules(text: str) -> tuple[list[int], list[str]]:
    """Play a scenario; return the seconds in which the breaker closed, and the rules that were broken."""
    result = play_scenario(read_scenario(text, "breaker"))
    closings = [int(entry.at) for entry in result.timeline if entry.what.value == "closed"]
    return closings, [violation.rule for violation in result.violations]


def test_after_a_restart_a_breaker_may_close_over_undated_taints_that_pods_tolerate() -> None:
    """The new process cannot know since when these taints have been there, so it does not count their nodes."""
    assert closings_and_rules(RESTARTED.replace("TOLERATIONS", "maintenance for 1h")) == ([64], [])


def test_nodes_that_were_left_when_a_breaker_closed_by_itself_keep_the_next_one_open() -> None:
    """At 100 four nodes are tainted, more than a quarter; two of them were left when the breaker closed at 40."""
    assert closings_and_rules(CLOSED_BEFORE) == ([40], [])


def test_a_breaker_that_closes_over_undated_taints_that_must_be_new_closes_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods that are older than the taints and do not tolerate them prove that the taints are new: otherwise these pods
    would be gone.
    """
    text = RESTARTED.replace("TOLERATIONS", "")
    assert closings_and_rules(text) == ([], [])
    evicts = Breaker.evicts
    monkeypatch.setattr(Breaker, "evicts", lambda self, node, taint, _: evicts(self, node, taint))
    closings, rules = closings_and_rules(text)
    assert closings == [64]
    assert "closed too early" in rules


def test_a_node_does_not_count_for_a_pod_that_came_after_its_taint() -> None:
    """Anybody may bind such pods; the breaker stays closed, and all three pods go."""
    result = play_scenario(read_scenario(CAME_LATER, "breaker"))
    evicted = [entry.subject for entry in result.timeline if entry.what is What.EVICTED]
    assert (evicted, result.violations) == (["default/web-1", "default/web-2", "default/web-3"], ())


def test_patience_goes_on_while_the_closing_of_a_breaker_cannot_be_written() -> None:
    """The latch that the process still reads is old news to it, as it has closed the breaker."""
    result = play_scenario(read_scenario(CLOSING_REFUSED, "breaker"))
    assert (result.evicted, result.violations) == (
        [(42, "default/web-2"), (42, "default/web-3"), (52, "default/web-1")],
        (),
    )
