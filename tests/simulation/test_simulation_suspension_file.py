"""Budgets, the control state and settings that hold evictions back, in scenario files.

Wrong values: test_simulation_scenario_file.
"""

import math

import pytest
from tests.simulation.scenario_texts import ONE_POD

from taint_eviction.core.breaker_policy import NodeThreshold
from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.policy import EvictionMode, Limit, PolicyRule
from taint_eviction_lab.simulation.scenario import read_scenario


def test_a_budget_of_kubernetes_can_be_pasted() -> None:
    """A budget from ``kubectl get -o yaml`` means the same as the short form, whose selector has only labels."""
    pasted = """
    - apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {name: web, namespace: default, uid: abc}
      spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}, unhealthyPodEvictionPolicy: AlwaysAllow}
      status: {currentHealthy: 3, desiredHealthy: 2, disruptionsAllowed: 1, expectedPods: 3, observedGeneration: 1}
"""
    short = "[{name: web, selector: {app: web}, minAvailable: 50%, unhealthyPodEvictionPolicy: AlwaysAllow}]\n"
    budgets = [
        read_scenario(ONE_POD.replace("timeline:", f"  budgets: {text}timeline:"), "s.yaml").budgets
        for text in (pasted, short)
    ]
    assert budgets[0] == budgets[1]
    spec = budgets[0][0]["spec"]
    assert (spec["minAvailable"], spec["unhealthyPodEvictionPolicy"]) == ("50%", "AlwaysAllow")


@pytest.mark.parametrize("key", ["controlState", "orders"])
def test_a_scenario_can_begin_with_pauses_by_scope_and_an_open_breaker(key: str) -> None:
    """Without the key there is no ConfigMap; ``orders`` is its old name."""
    given = f"  {key}: {{pause: true, nodes: [node-1], namespaces: [shop], breaker: {{openSince: -1h}}}}\ntimeline:"
    control_state = read_scenario(ONE_POD.replace("timeline:", given), "s.yaml").control_state
    assert control_state == ControlState(
        Pause(), {"node-1": Pause()}, {"shop": Pause()}, Latch(1893456000.5 - 3600, "given")
    )
    assert read_scenario(ONE_POD, "s.yaml").control_state is None


def test_settings_that_hold_evictions_back() -> None:
    """Each setting of a scenario becomes the controller's setting; the breaker is off by default."""
    settings = """\
settings:
  evictionMode: evict-then-delete
  evictTimeout: 2m
  evictionsPerSecond: 0.5
  evictionsBurst: 3
  evictionsAtOncePerNode: 2
  evictionsPerSecondPerNamespace: 4
  honourHolds: forever
  defaultNotReadySeconds: 30
  gracefulShutdown: wait
  policy: [{name: a, match: {namespaces: [shop]}, mode: evict}]
  breaker:
    {nodes: 12.5%, lifecycleNodes: exempt, leastNodes: 2, window: 1m, duePods: 9, settle: 0, listWait: 4s,
     closesByItself: yes, zone: 3, withoutControlPlane: yes}
timeline:"""
    read = read_scenario(ONE_POD.replace("timeline:", settings), "s.yaml").settings
    policy, breaker = read.policy, read.breaker
    assert (policy.mode, policy.evict_timeout_seconds) == (EvictionMode.EVICT_THEN_DELETE, 120)
    assert (policy.total, policy.per_node, policy.per_namespace) == (Limit(0.5, 3), Limit(at_once=2), Limit(4))
    assert policy.rules == (PolicyRule("a", namespaces=("shop",), mode=EvictionMode.EVICT),)
    assert (
        read.decisions.max_hold_seconds,
        read.decisions.default_not_ready_seconds,
        read.decisions.wait_for_shutdown,
    ) == (math.inf, 30, True)
    assert (breaker.enabled, breaker.nodes.percent, breaker.nodes.min_nodes) == (True, 12.5, 2)
    assert (breaker.lifecycle_nodes, breaker.window_seconds, breaker.max_due) == (None, 60, 9)
    assert (breaker.zone, breaker.without_control_plane) == (NodeThreshold(3, min_nodes=2), True)
    assert (breaker.settle_seconds, breaker.list_wait_seconds, breaker.closes_by_itself) == (0, 4, True)
    assert not read_scenario(ONE_POD, "s.yaml").settings.breaker.enabled
