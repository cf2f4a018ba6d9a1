"""Scenario files: what can be written in them, and how each problem is reported."""

import pytest
from tests.simulation.scenario_texts import ONE_POD

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.policy import PolicyRule
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.files.short_forms import (
    expand_range,
    parse_taint,
    parse_taint_removal,
    parse_toleration,
)
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.faults import CallFault, CallKind, Picked
from taint_eviction_lab.simulation.scenario import Scenario, read_scenario


def problems(text: str) -> list[str]:
    """Read a scenario that cannot be read, and return its problems."""
    with pytest.raises(Malformed) as raised:
        read_scenario(text, "s.yaml")
    return [str(problem) for problem in raised.value.problems]


def with_step(step: str) -> Scenario:
    """Read a scenario with this one step."""
    return read_scenario(ONE_POD.replace("taint: node-1 maintenance=now:NoExecute", step), "s.yaml")


# Problems


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() -> None:
    """This holds for keys of the scenario, of an object, a toleration, a step and an expectation."""
    text = """\
about: Slips.
gives: {}
given:
  nodes:
    - name: node-1
      taint: [maintenance=now:NoExecute]
  pods:
    - name: web-0
      nodename: node-1
      tolerations:
        - {key: maintenance, tolerationSecond: 5}
timeline:
  - at: 10
    retaint: node-1 a:NoExecute
expect:
  web-0: {evictd: 40}
"""
    assert problems(text) == [
        "s.yaml:2: unknown key 'gives' in a scenario; did you mean 'given'?",
        "s.yaml:6: unknown key 'taint' in a node; did you mean 'taints'?",
        "s.yaml:9: unknown key 'nodename' in a pod; did you mean 'nodeName'?",
        "s.yaml:11: unknown key 'tolerationSecond' in a toleration; did you mean 'tolerationSeconds'?",
        "s.yaml:14: unknown key 'retaint' in a step; did you mean 'taint'?",
        "s.yaml:16: unknown key 'evictd' in the expectation of 'web-0'; did you mean 'evicted'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("at: 10", "at: soon", "6: at must be seconds (90) or a duration (1m30s, 500ms), not 'soon'"),
        ("at: 10", "after: 10", "6: unknown key 'after' in a step"),
        ("nodes: [node-1]", "nodes: node-1", "3: nodes must be a list, not 'node-1'"),
        ("nodes: [node-1]", "nodes: [7]", "3: a node must be a mapping"),
        ("name: web-0,", "name: 7,", "4: name must be text, not the number 7 (write it in quotes: '7')"),
        ("name: web-0, ", "", "4: a pod lacks 'name'"),
        ("[maintenance for 30]", "[maintenance since 30]", "4: 'maintenance since 30' is not a toleration"),
        ("[maintenance for 30]", "[{key: a, effect: NoExec}]", "4: effect must be one of NoExecute, NoSchedule, "),
        ("[maintenance for 30]", '[{key: a, tolerationSeconds: "30"}]', "4: tolerationSeconds must be a whole number"),
        ("[maintenance for 30]", "[{key: a, operator: Exist}]", "4: operator must be one of Equal, Exists, Gt, Lt"),
        ("[maintenance for 30]", "[{key: a, value: 1}]", "4: value must be text, not the number 1"),
        ("now:NoExecute", "now:NoExec", "7: 'maintenance=now:NoExec' is not a taint (key=value:Effect"),
        ("taint: node-1 maint", "taint: node-2 maint", "7: no node of this scenario is called 'node-2'; did you mean "),
        (
            "nodeName: node-1",
            "nodeName: nod-1",
            "4: no node of this scenario is called 'nod-1'; did you mean 'node-1'?",
        ),
        ("  web-0: {ev", "  web-1: {ev", "9: no pod of this scenario is called 'web-1'; did you mean 'web-0'?"),
        ("{evicted: 40}", "{evicted: never}", "9: evicted must be seconds (90) or a duration"),
        ("{evicted: 40}", "{}", "9: the expectation of 'web-0' says nothing"),
        ("{evicted: 40}", "{evicted: 40, notEvicted: true}", "9: 'web-0' cannot be both evicted and notEvicted"),
        ("{evicted: 40}", "{notEvicted: no}", "9: notEvicted must be true, or a mapping of from, not false"),
        ("{evicted: 40}", "{ends: away}", "9: ends must be one of gone, on NODE, terminating, unbound, not 'away'"),
        ("{evicted: 40}", "40", "9: the expectation of 'web-0' must be a mapping of"),
        ("about: One", "abuot: One", "1: a scenario lacks 'about'"),
        ("timeline:", "until: 5\ntimeline:", "5: until 5 comes before the last step, at 10"),
        ("timeline:", "settings: {workers: 1}\ntimeline:", "5: settings: workers must be at least 2"),
        ("timeline:", "settings: {retryFrist: 1}\ntimeline:", "5: unknown key 'retryFrist' in settings; did you mean "),
        ("timeline:", "settings: {evictionMode: kill}\ntimeline:", "5: evictionMode must be one of delete, evict, "),
        ("timeline:", "settings: {evictionsPerSecond: 0}\ntimeline:", "5: evictionsPerSecond must be a number of more"),
        ("timeline:", "settings: {evictionsBurst: 5}\ntimeline:", "5: settings: all evictions: a burst has no "),
        ("timeline:", "settings: {breaker: {node: 5}}\ntimeline:", "5: unknown key 'node' in breaker; did you mean "),
        (
            "timeline:",
            "settings: {breaker: {nodes: half}}\ntimeline:",
            "5: nodes must be 25%, 40, or 25%,40, not 'half'",
        ),
        (
            "timeline:",
            "settings: {breaker: {lifecycleNodes: no}}\ntimeline:",
            "5: lifecycleNodes must be 25%, 40, or 25%,40, or ",
        ),
        ("timeline:", "settings: {breaker: {nodes: 100%}}\ntimeline:", "5: settings: breaker: the percentage must be "),
        ("timeline:", "settings: {honourHolds: ever}\ntimeline:", "5: honourHolds must be seconds (90) or a duration"),
        ("timeline:", "settings: {policy: [{nmae: a}]}\ntimeline:", "5: unknown key 'nmae' in a rule; did you mean "),
        ("timeline:", "  budgets: [{name: a, minAvailable: 1}]\ntimeline:", "5: a budget lacks 'selector'"),
        (
            "timeline:",
            "  budgets: [{name: a, selector: {}}]\ntimeline:",
            "5: a budget has either 'minAvailable' or 'max",
        ),
        (
            "timeline:",
            "  budgets: [{name: a, selector: {}, minAvailable: half}]\ntimeline:",
            "5: minAvailable must be a ",
        ),
        ("timeline:", "  controlState: {nodes: [node-2]}\ntimeline:", "5: no node of this scenario is called 'node-2'"),
        ("timeline:", "  controlState: {breaker: {}}\ntimeline:", "5: breaker lacks 'openSince'"),
        ("timeline:", "  orders: {}\n  controlState: {}\ntimeline:", "5: 'orders' is the old name of 'controlState'"),
        ("{evicted: 40}", "{blocked: {at: 40, by: web}}", "9: no budget of this scenario is called 'web'; there "),
        ("{evicted: 40}", "{pods: [{from: 40}]}", "9: pods lacks 'atLeast' or 'atMost'"),
        (
            "  web-0: {ev",
            "  breaker: {open: 4}\n  web-0: {ev",
            "9: unknown key 'open' in the expectation of the breaker; ",
        ),
    ],
)
def test_each_wrong_value_is_named_with_its_line(old: str, new: str, said: str) -> None:
    """A problem names file and line, what is wrong, and mostly what was expected."""
    assert old in ONE_POD
    found = problems(ONE_POD.replace(old, new))
    assert any(problem.startswith(f"s.yaml:{said}") for problem in found), found


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("taint: node-1", "taint takes 'NODE KEY=VALUE:EFFECT', or a mapping, not 'node-1'"),
        ("taint: {node: node-1}", "taint lacks 'taints'"),
        ("untaint: node-1 =x", "'=x' is not the key of a taint, or key:Effect"),
        ("bind: web-0", "bind takes 'POD NODE', or a mapping, not 'web-0'"),
        ("restart: now", "restart must be a mapping of adopt, after, gracefully, replica, not 'now'"),
        ("restart: {after: -1}", "after must be at least 0 s, not the number -1"),
        ("delete: {pod: web-0, by: me}", "by must be one of built-in"),
        ("delete: {pod: web-0, by: built-in, force: true}", "the built-in controller deletes no pod by force"),
        ("delete: {pod: web-0, refused: true}", "refused needs 'by: built-in'"),
        ("refuse: {call: deletes}", "call must be one of adopt, all, delete, evict"),
        ("refuse: {call: delete, status: 200}", "status must be a whole number of at least 400, not the number 200"),
        ("refuse: {call: delete, times: 0}", "times must be a whole number of at least 1, not the number 0"),
        ("refuse: {call: delete, pod: a, node: b}", "'pod' and 'node' do not go together"),
        ("lag: {watch: events, by: 1}", "watch must be one of all, nodes, pods, not 'events'"),
        ("lead: maybe", "lead must be true or false, not 'maybe'"),
        ("finish: {pod: web-0, phase: Running}", "phase must be one of Failed, Succeeded, not 'Running'"),
        ("create: {name: 'x-{9..1}'}", "'x-{9..1}' is not a range that goes up"),
        ("lead: true\n    outage: {for: 5}", "a step has one action, not lead and outage"),
        ("pause: all", "pause must be a mapping of for, namespace, node, reason, selector, not 'all'"),
        (
            "pause: {node: node-1, namespace: a}",
            "'selector', 'node' and 'namespace' do not go together: pause takes one of them",
        ),
        ("resume: {node: node-2}", "no node of this scenario is called 'node-2'"),
        ("resetBreaker: now", "resetBreaker must be a mapping of ahead, not 'now'"),
        ("loseControlState: now", "loseControlState takes nothing, not 'now'"),
        ("setHold: {pod: web-0}", "setHold lacks 'hold'"),
        ("annotate: {pod: web-0, annotations: a}", "annotations must be a mapping, not 'a'"),
        ("annotate: {pod: web-0, annotations: {a: 5}}", "annotations.a must be text, not the number 5"),
        ("handBack: now", "handBack takes nothing, or undo, not 'now'"),
        ("deleteBudget: web", "no budget of this scenario is called 'web'"),
        ("changePolicy: [{name: a, mode: kill}]", "mode must be one of delete, evict, evict-then-delete, not 'kill'"),
    ],
)
def test_a_wrong_argument_of_an_action_is_named(step: str, said: str) -> None:
    """The problem says what is wrong with the argument, or what the action takes."""
    with pytest.raises(Malformed) as raised:
        with_step(step)
    assert any(problem.what.startswith(said) for problem in raised.value.problems), raised.value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "s.yaml:1: the file is empty"),
        ("about: [", "s.yaml:1: expected the node content, but found '<stream end>'"),
        ("about: x\n\tgiven: y", "s.yaml:2: found character '\\t' that cannot start any token"),
        ("about: x\nabout: y", "s.yaml:2: 'about' is here twice (first in line 1)"),
        ("about: x\n---\nabout: y", "s.yaml:2: but found another document"),
        ("a: &a [*a]", "s.yaml:1: aliases (*) make the file endless or far too large"),
        ("? [a]\n: b", "s.yaml:1: a key must be text"),
        ("- a", "s.yaml:1: a scenario must be a mapping of about, expect, given"),
        ("about: !!python/object:os.system x", "s.yaml:1: could not determine a constructor for the tag"),
        ("about: \x00", "s.yaml:1: it is not valid YAML: unacceptable character"),
    ],
)
def test_invalid_yaml_is_named_with_its_line(text: str, said: str) -> None:
    """Broken YAML, repeated keys, endless aliases and tags for Python objects are problems with a line."""
    found = problems(text)
    assert found[0].startswith(said), found


def test_aliases_that_multiply_are_refused() -> None:
    """A small file cannot become a huge document."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "far too large" in problems("\n".join(lines))[0]


def test_steps_stand_in_the_order_of_time() -> None:
    """A step that is earlier than the step before it is a problem, as it is probably a mistake."""
    text = ONE_POD.replace("expect:", "  - at: 5\n    untaint: node-1\nexpect:")
    assert problems(text) == ["s.yaml:8: at 5 comes after at 10: steps stand in the order of time"]


def test_two_pods_of_one_name_are_refused() -> None:
    """Names are unique in a namespace."""
    text = ONE_POD.replace("pods: [", "pods: [{name: web-0}, {name: web-0, namespace: other}, ")
    assert problems(text) == ["s.yaml:4: 'web-0' is given twice"]


# Forms that are accepted


def test_an_object_of_kubernetes_can_be_pasted() -> None:
    """An object as Kubernetes writes it is read as it is, with fields that a replay does not use."""
    text = """
about: As from kubectl get -o yaml.
given:
  nodes:
    - apiVersion: v1
      kind: Node
      metadata: {name: node-1, uid: abc, resourceVersion: "7", labels: {zone: a}}
      spec:
        podCIDR: 10.244.0.0/24
        taints: [{key: maintenance, value: now, effect: NoExecute, timeAdded: 2029-12-31T23:59:00Z}]
      status: {capacity: {cpu: "2"}}
  pods:
    - apiVersion: v1
      kind: Pod
      metadata: {name: web-0, namespace: shop, creationTimestamp: 2029-12-31T23:00:00Z}
      spec:
        nodeName: node-1
        containers: [{name: web, image: nginx}]
        tolerations: [{key: maintenance, operator: Exists, tolerationSeconds: 60}]
      status: {phase: Running, startTime: 2029-12-31T23:00:01Z, qosClass: BestEffort}
expect:
  shop/web-0: {evicted: 0}
"""
    scenario = read_scenario(text, "s.yaml")
    assert scenario.nodes[0]["spec"]["taints"][0]["timeAdded"] == "2029-12-31T23:59:00Z"
    assert scenario.pods[0]["spec"]["containers"] == [{"name": "web", "image": "nginx"}]
    assert scenario.pods[0]["metadata"]["namespace"] == "shop"


def test_times_may_be_seconds_of_the_scenario() -> None:
    """A scenario can say ``-1h`` for an hour before second 0."""
    text = ONE_POD.replace("{name: web-0,", "{name: web-0, startTime: -1h,")
    assert read_scenario(text, "s.yaml").pods[0]["status"]["startTime"] == "2029-12-31T23:00:00Z"


def test_short_and_long_form_are_the_same() -> None:
    """Fields at the top of an object mean the same as in its metadata, spec or status."""
    short = read_scenario(ONE_POD, "s.yaml").pods
    long = ONE_POD.replace(
        "{name: web-0, nodeName: node-1, tolerations: [maintenance for 30]}",
        "{metadata: {name: web-0}, spec: {nodeName: node-1, tolerations: "
        "[{key: maintenance, operator: Exists, tolerationSeconds: 30}]}}",
    )
    assert read_scenario(long, "s.yaml").pods == short


def test_a_range_makes_many_objects() -> None:
    """A range in a name makes one object for each number."""
    text = ONE_POD.replace("[{name: web-0,", '[{name: web-0}, {name: "db-{9..11}",')
    names = [pod["metadata"]["name"] for pod in read_scenario(text, "s.yaml").pods]
    assert names == ["web-0", "db-9", "db-10", "db-11"]


@pytest.mark.parametrize(
    ("step", "action"),
    [
        ("untaint: node-1", do.RemoveTaints("node-1", None, "kubectl-taint")),
        ("untaint: node-1 a:NoExecute-", do.RemoveTaints("node-1", (("a", "NoExecute"),), "kubectl-taint")),
        ("setTaints: {node: node-1, taints: [], by: me}", do.SetTaints("node-1", (), "me")),
        ("recreate: {pod: web-0, node: null}", do.RecreatePod(NamespacedName("default", "web-0"), None, True)),
        ("delete: default/web-0", do.DeletePod(NamespacedName("default", "web-0"), False)),
        (
            "delete: {pod: web-0, by: built-in}",
            do.DeletePod(NamespacedName("default", "web-0"), built_in=True),
        ),
        ("restart:", do.Restart(0.0)),
        ("restart: {after: 1m30s}", do.Restart(90.0)),
        ("restart: {gracefully: true}", do.Restart(0.0, gracefully=True)),
        ("cut: {watch: pods}", do.CutWatches("pods", 0.0)),
        ("stepHostClock: -1h", do.StepHostClock(-3600.0)),
        ("stepServerClock: 1h", do.StepServerClock(3600.0)),
        ("stepServerClock: {by: -5, server: 1}", do.StepServerClock(-5.0, 1)),
        (
            "misdate: {call: readNode, by: 2h, times: 1}",
            do.DisturbCalls(
                Picked(frozenset({CallKind.READ_NODE}), times=1), None, CallFault(date_ahead_seconds=7200.0)
            ),
        ),
        (
            "refuse: {call: delete, status: 502, dateAhead: -1m, for: 9}",
            do.DisturbCalls(
                Picked(frozenset({CallKind.DELETE})), 9.0, CallFault(fails=True, status=502, date_ahead_seconds=-60.0)
            ),
        ),
        (
            "refuse: {call: readOrders, times: 1}",
            do.DisturbCalls(Picked(frozenset({CallKind.READ_CONTROL_STATE}), times=1), None, CallFault(fails=True)),
        ),
        ("outage: {for: 500ms}", do.Outage(0.5)),
        ("pause: {}", do.PauseEvictions()),
        ("pause: {node: node-1, reason: why}", do.PauseEvictions("node-1", reason="why")),
        ("resume: {namespace: shop}", do.ResumeEvictions(namespace="shop")),
        ("resume: all", do.ResumeEvictions(every=True)),
        ("resetBreaker:", do.ResetBreaker()),
        ("resetBreaker: {ahead: 1h}", do.ResetBreaker(3600.0)),
        ("loseControlState: {}", do.LoseControlState()),
        ("loseOrders: {}", do.LoseControlState()),
        ("scribble: {key: pause, value: 'yes'}", do.Scribble("pause", "yes")),
        ("setHold: {pod: web-0, hold: true}", do.SetHold(NamespacedName("default", "web-0"), "true")),
        ("setHold: {pod: web-0, hold: 90}", do.SetHold(NamespacedName("default", "web-0"), "90")),
        (
            "annotate: {pod: web-0, annotations: {a: b, c: null}}",
            do.Annotate(NamespacedName("default", "web-0"), {"a": "b", "c": None}),
        ),
        ("handBack: null", do.HandBack(undo=False)),
        ("handBack: undo", do.HandBack(undo=True)),
        ("setHold: {pod: web-0, hold: null}", do.SetHold(NamespacedName("default", "web-0"), None)),
        ("changePolicy: [{name: a, pause: true}]", do.ChangePolicy((PolicyRule("a", pause=True),))),
    ],
)
def test_each_step_is_read_as_its_action(step: str, action: do.Action) -> None:
    """A step in the file becomes the value of its action."""
    assert with_step(step).steps[0].action == action


def test_a_server_that_does_not_exist_is_named() -> None:
    """A step about an API server that the settings do not have is a problem."""
    text = ONE_POD.replace("taint: node-1 maintenance=now:NoExecute", "stepServerClock: {by: 5, server: 2}")
    assert [problem.split(": ", 1)[1] for problem in problems(text)] == ["there is no API server 2: settings say 1"]


def test_taints_have_a_short_form() -> None:
    """Taints can be written as ``kubectl taint`` takes them."""
    assert parse_taint("a/b=c:NoExecute") == {"key": "a/b", "value": "c", "effect": "NoExecute"}
    assert parse_taint("a:NoSchedule") == {"key": "a", "effect": "NoSchedule"}
    assert parse_taint_removal("a=b:NoExecute-") == ("a", "NoExecute")
    assert parse_taint_removal("a:NoExecute") == ("a", "NoExecute")


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("a", {"key": "a", "operator": "Exists"}),
        ("a=b", {"key": "a", "operator": "Equal", "value": "b"}),
        (
            "a=:NoExecute for 5",
            {"key": "a", "operator": "Equal", "value": "", "effect": "NoExecute", "tolerationSeconds": 5},
        ),
        ("* for 1m", {"operator": "Exists", "tolerationSeconds": 60}),
        ("a indefinitely", {"key": "a", "operator": "Exists"}),
        ("a for ever", {"key": "a", "operator": "Exists"}),
        ("a for -9223372036854775808", {"key": "a", "operator": "Exists", "tolerationSeconds": -(2**63)}),
    ],
)
def test_tolerations_have_a_short_form(text: str, toleration: dict[str, object]) -> None:
    """Tolerations can be written as explanations show them."""
    assert parse_toleration(text) == toleration


@pytest.mark.parametrize("text", ["", "a b", "a for", "a for 1.5", "-a", "a:Never", "for 5"])
def test_a_malformed_toleration_is_refused(text: str) -> None:
    """An unreadable toleration is an error, and never one that tolerates everything."""
    with pytest.raises(ValueError, match=r"toleration|seconds"):
        parse_toleration(text)


def test_ranges_in_names() -> None:
    """A range in a name makes one name for each number; a range that is far too long is refused."""
    assert expand_range("web-{1..3}-a") == ["web-1-a", "web-2-a", "web-3-a"]
    assert expand_range("web-0") == ["web-0"]
    with pytest.raises(ValueError, match="range"):
        expand_range("web-{1..1000000}")
