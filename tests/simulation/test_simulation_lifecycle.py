"""Kubelets and the node lifecycle controller in scenarios: their steps and settings, which are off by default."""

import pytest
from tests.simulation.scenario_texts import ONE_POD, played
from tests.simulation.test_simulation_scenario_file import problems, with_step

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.scenario import read_scenario

OUTAGE = """\
about: One node of three falls silent.
settings: {nodeLifecycle: {gracePeriod: 10s, period: 1s, renewal: 1s}}
given:
  nodes: [{name: node-1, zone: a}, {name: "node-{2..3}", zone: b}]
  pods: [{name: web-0, nodeName: node-1, tolerations: ["node.kubernetes.io/unreachable for 5"]}]
timeline:
  - at: 0.5
    silence: node-1
  - at: 30
    stepServerClock: 7200
expect:
  web-0: {evicted: 15}
"""


def test_the_setting_has_kubernetes_defaults_and_can_be_changed() -> None:
    """Without the setting there is no node lifecycle controller; an empty one means Kubernetes' defaults."""
    assert read_scenario(ONE_POD, "s.yaml").node_lifecycle is None
    with_defaults = ONE_POD.replace("given:", "settings: {nodeLifecycle: {}}\ngiven:")
    assert read_scenario(with_defaults, "s.yaml").node_lifecycle == NodeLifecycleSettings()
    changed = ONE_POD.replace("given:", "settings: {nodeLifecycle: {gracePeriod: 40s, largeZone: 3}}\ngiven:")
    expected = NodeLifecycleSettings(grace_period_seconds=40.0, large_zone=3)
    assert read_scenario(changed, "s.yaml").node_lifecycle == expected


def test_the_steps_take_nodes_lists_and_ranges() -> None:
    """``silence`` and ``speak`` take one node, a list or a range; ``restartLifecycle`` takes a span or nothing."""
    assert with_step("silence: node-1").steps[0].action == do.SilenceKubelets(("node-1",))
    assert with_step('speak: [node-1, "node-{1..1}"]').steps[0].action == do.HearKubelets(("node-1", "node-1"))
    assert with_step("shutDown: {node: node-1, for: 30s}").steps[0].action == do.ShutDown("node-1", 30.0)
    assert with_step("restartLifecycle:").steps[0].action == do.RestartLifecycle(0.0)
    assert with_step("restartLifecycle: {after: 2s}").steps[0].action == do.RestartLifecycle(2.0)


def test_each_problem_is_named_with_its_line() -> None:
    """An unknown node, a span of zero and an unknown key are each reported with file and line."""
    text = OUTAGE.replace("silence: node-1", "silence: [node-7]").replace("period: 1s", "period: 0s")
    said = "\n".join(problems(text.replace("renewal", "renewals")))
    assert said.count("s.yaml:2") == 2
    assert "'renewals'" in said
    assert "period must be at least 0.1 s" in said
    assert "s.yaml:8: no node of this scenario is called 'node-7'" in said


def test_a_step_without_the_setting_cannot_be_done() -> None:
    """The error names the missing setting."""
    text = ONE_POD.replace("taint: node-1 maintenance=now:NoExecute", "silence: node-1")
    with pytest.raises(Malformed, match="lack 'nodeLifecycle'"):
        played(text)


def test_a_zone_is_a_label() -> None:
    """``zone`` becomes the zone's label beside the node's other labels."""
    nodes = read_scenario(OUTAGE.replace("zone: a}", "zone: a, labels: {b: c}}"), "s.yaml").nodes
    assert nodes[0]["metadata"]["labels"] == {"b": "c", "topology.kubernetes.io/zone": "a"}
    assert "zone" not in nodes[0]["metadata"]


def test_a_stepped_api_server_clock_makes_no_kubelet_seem_silent() -> None:
    """The node lifecycle controller runs on another machine; and the same scenario gives the same timeline."""
    result = played(OUTAGE)
    assert not result.broken
    assert [entry.at for entry in result.timeline if entry.what.value == "tainted"] == [10.105]
    assert played(OUTAGE).timeline == result.timeline
