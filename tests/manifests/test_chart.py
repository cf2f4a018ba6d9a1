"""The Helm chart: its values, and its objects, which without values are those of the kustomize base.

Tests that render need ``helm``; tests that compare the schema with the command do not.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.docs.reference import chart_flag
from tests.manifests.test_kinds import (
    MANIFESTS,
    MONITORING_KINDS,
    described,
    kubernetes_problems,
    needs_kubectl,
    render,
)

from taint_eviction import __version__
from taint_eviction.cli.run import run
from taint_eviction.cli.run_settings import read_settings
from taint_eviction.core.label_selectors import OPERATORS
from taint_eviction.core.policy import EvictionMode
from taint_eviction.files.policy_file import LIMITS, MATCH, RULE, read_policy

CHART = MANIFESTS / "chart"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
GROUPS = ("process", "evicting", "limits", "breaker", "adoption", "watching", "election", "records")
# What the chart sets itself, what makes sense outside of a pod only, what needs other rights (overlay dry-run), and
# files, which a read-only root has no place for.
NOT_VALUES = {
    *("journal", "journal-megabytes", "audit-megabytes"),
    *(
        "listen",
        "probe-listen",
        "config",
        "leader-elect",
        "leader-elect-resource-name",
        "leader-elect-resource-namespace",
    ),
    *("kubeconfig", "context", "wait-for-api", "dry-run", "dry-run-events"),
}

needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")

Objects = dict[str, dict[str, Any]]


def template(*arguments: str, namespace: str = "kube-system") -> subprocess.CompletedProcess[str]:
    """Render the chart."""
    return subprocess.run(
        ["helm", "template", "release", str(CHART), "--namespace", namespace, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def rendered(*arguments: str, namespace: str = "kube-system") -> Objects:
    """Return the objects of the chart by kind and name."""
    done = template(*arguments, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return by_name(document for document in yaml.safe_load_all(done.stdout) if document)


def by_name(documents: Any) -> Objects:
    """Return objects by kind and name."""
    return {described(document): document for document in documents}


def container(objects: Objects) -> dict[str, Any]:
    """Return the controller's container."""
    [found] = objects["Deployment taint-eviction-controller"]["spec"]["template"]["spec"]["containers"]
    only: dict[str, Any] = found
    return only


def same_but_for_the_order_of_flags(objects: Objects) -> Objects:
    """Sort the arguments of the container; kustomize also gives admission policies a namespace."""
    container(objects)["args"].sort()
    for document in objects.values():
        if document["kind"] in {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}:
            document["metadata"].pop("namespace", None)
    return objects


# ---- the schema


def test_every_flag_is_a_value_and_every_value_a_flag() -> None:
    """Each flag is in one group; a new flag of run belongs in values.schema.json, or in the list above."""
    values = [chart_flag(group, key)[2:] for group in GROUPS for key in SCHEMA["properties"][group]["properties"]]
    flags = {parameter.opts[0][2:] for parameter in run.params if not getattr(parameter, "hidden", False)}
    assert sorted(values) == sorted(flags - NOT_VALUES)


@pytest.mark.parametrize("parameter", [p for p in run.params if isinstance(p.type, click.Choice)], ids=lambda p: p.name)
def test_choices_are_those_of_the_command(parameter: click.Parameter) -> None:
    """A value that the command refuses is refused by the schema."""
    assert isinstance(parameter.type, click.Choice)
    name = parameter.opts[0][2:]
    [value] = [
        SCHEMA["properties"][group]["properties"][key]
        for group in GROUPS
        for key in SCHEMA["properties"][group]["properties"]
        if chart_flag(group, key)[2:] == name
    ]
    assert value == {"enum": list(parameter.type.choices)}


def test_keys_of_rules_are_those_that_the_policy_file_may_have() -> None:
    """The schema allows no other key, at any depth."""
    rule = SCHEMA["properties"]["policy"]["properties"]["rules"]["items"]
    keys = rule["properties"]
    assert keys["mode"] == {"enum": [mode.value for mode in EvictionMode]}
    selector = SCHEMA["definitions"]["selector"]
    expression = selector["properties"]["matchExpressions"]["items"]
    assert expression["properties"]["operator"] == {"enum": list(OPERATORS)}
    for known, at in ((RULE, rule), (MATCH, keys["match"]), (LIMITS, keys["limits"])):
        assert sorted(at["properties"]) == sorted(known)
    for at in (rule, keys["match"], keys["limits"], selector, expression):
        assert at["additionalProperties"] is False


def test_every_default_value_is_known_to_the_schema() -> None:
    """In each group the schema allows only the keys that it lists."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values.keys() == SCHEMA["properties"].keys() - {"global"}
    for name in GROUPS:
        assert SCHEMA["properties"][name]["additionalProperties"] is False
        assert values[name].keys() <= SCHEMA["properties"][name]["properties"].keys()


def test_the_chart_has_the_version_of_the_package() -> None:
    """The chart is released with the image that it names."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_chart_shares_files_with_the_base_and_the_monitoring_component() -> None:
    """The files are links, so that there is one text."""
    for link in (CHART / "files").iterdir():
        place = MANIFESTS / (
            "base/admission-policy" if link.name == "admission-policy.yaml" else "components/monitoring"
        )
        assert link.resolve() == place / link.name


@pytest.mark.parametrize(
    "file", ["service-account", "cluster-role", "role", "config-map", "pod-disruption-budget", "network-policy"]
)
def test_templates_have_the_lines_of_the_base(file: str) -> None:
    """A right that the base gets or loses, the chart gets or loses; the comparison needs no helm.

    Who may come to the port of metrics is in the chart's values.
    """
    base, chart = ((MANIFESTS / part / f"{file}.yaml").read_text() for part in ("base", "chart/templates"))
    said = [
        line
        for line in base.splitlines()
        if not re.search(r"taint-eviction-controller|\$\(CONTROLLER_NAME\)|port: [46]", line)
    ]
    written = [line for line in chart.splitlines() if "{{" not in line]
    if file == "network-policy":
        values = (CHART / "values.yaml").read_text()
        [_, for_metrics] = yaml.safe_load(base)["spec"]["ingress"]
        assert yaml.safe_load(values)["networkPolicy"]["metricsFrom"] == for_metrics["from"]
        in_values = [f"    {line}" for line in values.splitlines()]
        said = [line for line in said if line not in in_values]
    assert [line for line in said if line not in written] == []
    assert [line for line in written if line not in said and not line.lstrip().startswith("#")] == []


# ---- what is rendered


@needs_helm
@needs_kubectl
def test_without_values_the_chart_is_the_base() -> None:
    """All objects are equal, but for the order of flags."""
    assert same_but_for_the_order_of_flags(rendered()) == same_but_for_the_order_of_flags(by_name(copied("base")))


@needs_helm
@needs_kubectl
def test_for_a_single_node_the_chart_is_the_overlay_single_node() -> None:
    """All objects are equal, but for the order of flags."""
    chart, overlay = rendered("--set", "singleNode=true"), by_name(copied("overlays/single-node"))
    assert same_but_for_the_order_of_flags(chart) == same_but_for_the_order_of_flags(overlay)


def copied(build: str) -> Any:
    """Return the objects of a build, to change them."""
    return json.loads(json.dumps(render(build)))


@needs_helm
@needs_kubectl
def test_in_a_namespace_of_its_own_the_chart_is_the_overlay_own_namespace() -> None:
    """All objects are equal, but for the order of flags, and the Namespace, which the chart does not have."""
    chart = rendered(namespace="taint-eviction")
    overlay = by_name(d for d in copied("overlays/own-namespace") if d["kind"] != "Namespace")
    assert same_but_for_the_order_of_flags(chart) == same_but_for_the_order_of_flags(overlay)


@needs_helm
@needs_kubectl
def test_adopting_in_a_namespace_of_its_own_the_chart_is_the_overlay_managed() -> None:
    """One value makes all of it, but for the breaker and the Namespace. Helm keeps the right, and what narrows it."""
    values = ("--set", "adoption.enabled=true", "--set", "breaker.enabled=true")
    chart = rendered(*values, namespace="taint-eviction")
    overlay = by_name(d for d in copied("overlays/managed") if d["kind"] != "Namespace")
    kept = [d for d in chart.values() if d["metadata"].pop("annotations", {}) == {"helm.sh/resource-policy": "keep"}]
    assert {described(each) for each in kept} == {
        "ClusterRole taint-eviction:taint-eviction-controller-adopt",
        "ClusterRoleBinding taint-eviction:taint-eviction-controller-adopt",
        "ValidatingAdmissionPolicy taint-eviction.taint-eviction-controller-adopt",
        "ValidatingAdmissionPolicyBinding taint-eviction.taint-eviction-controller-adopt",
    }
    assert same_but_for_the_order_of_flags(chart) == same_but_for_the_order_of_flags(overlay)


@needs_helm
@needs_kubectl
def test_as_a_dry_run_the_chart_is_the_overlay_dry_run() -> None:
    """All objects are equal, but for the order of flags; so it has no right to change pods."""
    chart, overlay = rendered("--set", "dryRun=true"), by_name(copied("overlays/dry-run"))
    name = "Deployment taint-eviction-controller-dry-run"
    for objects in (chart, overlay):
        objects[name]["spec"]["template"]["spec"]["containers"][0]["args"].sort()
        for document in objects.values():
            if "Admission" in document["kind"]:
                document["metadata"].pop("namespace", None)
    assert chart == overlay


# By value: an example, as JSON; an object of the chart; where in it the value is, as keys and indices; what is there.
_POD = ("Deployment taint-eviction-controller", "spec", "template")
_CONTAINER = (*_POD, "spec", "containers", 0)
_TOLERATION = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
_VARIABLE = {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}
_VOLUME = {"name": "audit", "emptyDir": {"sizeLimit": "192Mi"}}
_MOUNT = {"name": "audit", "mountPath": "/var/log/taint-eviction"}
RENDERED: dict[str, tuple[Any, tuple[str | int, ...], Any]] = {
    "image.repository": ("r.example.com/t", (*_CONTAINER, "image"), "r.example.com/t:a"),
    "image.tag": ("a", (*_CONTAINER, "image"), "r.example.com/t:a"),
    "image.pullPolicy": ("Always", (*_CONTAINER, "imagePullPolicy"), "Always"),
    "imagePullSecrets": ([{"name": "a"}], (*_POD, "spec", "imagePullSecrets"), [{"name": "a"}]),
    "priorityClassName": ("high", (*_POD, "spec", "priorityClassName"), "high"),
    "podAnnotations": ({"a": "b"}, (*_POD, "metadata", "annotations"), {"a": "b"}),
    "podLabels": ({"team": "platform"}, (*_POD, "metadata", "labels", "team"), "platform"),
    "nodeSelector": ({"a": "b"}, (*_POD, "spec", "nodeSelector"), {"a": "b"}),
    "tolerations": ([_TOLERATION], (*_POD, "spec", "tolerations", 0), _TOLERATION),
    "affinity": ({"podAffinity": {}}, (*_POD, "spec", "affinity"), {"podAffinity": {}}),
    "resources": ({"limits": {"memory": "1Gi"}}, (*_CONTAINER, "resources", "limits", "memory"), "1Gi"),
    "serviceAccount.annotations": (
        {"a": "b"},
        ("ServiceAccount taint-eviction-controller", "metadata", "annotations"),
        {"a": "b"},
    ),
    "ports.http": (9080, (*_CONTAINER, "ports", 0, "containerPort"), 9080),
    "ports.probes": (9081, (*_CONTAINER, "ports", 1, "containerPort"), 9081),
    "extraArgs": (["--wait-for-api=5m"], (*_CONTAINER, "args", -1), "--wait-for-api=5m"),
    "extraEnv": ([_VARIABLE], (*_CONTAINER, "env", 1), _VARIABLE),
    "extraVolumes": ([_VOLUME], (*_POD, "spec", "volumes"), [_VOLUME]),
    "extraVolumeMounts": ([_MOUNT], (*_CONTAINER, "volumeMounts"), [_MOUNT]),
    "networkPolicy.apiServerPorts": (
        [8443],
        ("NetworkPolicy taint-eviction-controller", "spec", "egress", 0, "ports"),
        [{"port": 8443, "protocol": "TCP"}],
    ),
    "networkPolicy.metricsFrom": (
        [{"podSelector": {}}],
        ("NetworkPolicy taint-eviction-controller", "spec", "ingress", 1, "from"),
        [{"podSelector": {}}],
    ),
}
# Those that render or leave out whole objects have tests of their own.
OF_THEIR_OWN = {
    *("image.digest", "nameOverride", "singleNode", "dryRun", "serviceAccount.create", "networkPolicy.enabled"),
    *("admissionPolicy.enabled", "monitoring.enabled", "monitoring.labels", "monitoring.runbookUrl", "policy.rules"),
}


def test_every_value_is_rendered_by_a_test() -> None:
    """Flags are compared with those of the command; every other value is in the table above, or has a test."""
    values = {
        f"{name}.{key}" if "properties" in value and name != "resources" else name
        for name, value in SCHEMA["properties"].items()
        if name not in {*GROUPS, "global"}
        for key in value.get("properties", [""])
    }
    assert values == RENDERED.keys() | OF_THEIR_OWN


@needs_helm
def test_values_are_where_they_belong() -> None:
    """All at once, so that none stands in another's way; every object still fits its kind."""
    objects = rendered(
        *(flag for name, (value, *_) in RENDERED.items() for flag in ("--set-json", as_json(name, value)))
    )
    for name, (_, (described_as, *path), expected) in RENDERED.items():
        found: Any = objects[str(described_as)]
        for key in path:
            found = found[key]
        assert found == expected, name
    assert [problem for document in objects.values() for problem in kubernetes_problems(document)] == []
    assert {"--listen=:9080", "--probe-listen=:9081"} < set(container(objects)["args"])


def as_json(name: str, value: Any) -> str:
    """Return what --set-json takes."""
    return f"{name}={json.dumps(value)}"


@needs_helm
def test_without_an_affinity_it_runs_on_any_node() -> None:
    """The default asks for control-plane nodes, which a managed control plane does not show."""
    pod = rendered("--set-json", "affinity={}")["Deployment taint-eviction-controller"]["spec"]["template"]["spec"]
    assert "affinity" not in pod


@needs_helm
def test_another_name_is_that_of_all_objects_and_of_the_lease() -> None:
    """Selectors differ, so that two installations in one namespace never take each other's pods for theirs."""
    name = "zone-a-taint-eviction-controller"
    objects = rendered("--set", f"nameOverride={name}", "--set-json", 'policy={"rules": [{"name": "a"}]}')
    names = {document["metadata"]["name"] for document in objects.values()}
    assert names == {name, f"kube-system:{name}", f"kube-system.{name}", "zone-a-taint-eviction-policy"}
    deployment = objects[f"Deployment {name}"]["spec"]
    assert deployment["selector"]["matchLabels"]["app.kubernetes.io/instance"] == name
    assert deployment["template"]["spec"]["volumes"][0]["configMap"]["name"] == "zone-a-taint-eviction-policy"
    roles = [rule.get("resourceNames") for rule in objects[f"Role {name}"]["rules"]]
    assert roles == [None, [name], None, [name], [f"{name}-history"]]


@needs_helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("nameOverride=evictions", "nameOverride"),
        ("nameOverride=taint-eviction-controller-dry-run", "nameOverride=taint-eviction-controller-dry-run"),
        ("dryRun=true,nameOverride=a-taint-eviction-controller", "nameOverride=a-taint-eviction-controller"),
        ("dryRun=true,adoption.enabled=true", "adoption.enabled has no effect with dryRun=true"),
    ],
)
def test_names_that_the_alerts_would_misunderstand_are_refused(values: str, said: str) -> None:
    """By their names, alerts know which controllers there are, and which of them change nothing."""
    done = template("--set", values)
    assert (done.returncode != 0, said in done.stderr) == (True, True)


@needs_helm
def test_an_account_and_a_network_policy_may_come_from_elsewhere() -> None:
    """The chart leaves them out; the account is expected under the name of all objects."""
    objects = rendered("--set", "serviceAccount.create=false,networkPolicy.enabled=false")
    assert {document["kind"] for document in objects.values()}.isdisjoint({"ServiceAccount", "NetworkPolicy"})
    pod = objects["Deployment taint-eviction-controller"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "taint-eviction-controller"


@needs_helm
def test_alerts_have_the_labels_that_prometheus_selects_and_links_that_work() -> None:
    """Both are the reader's own."""
    objects = rendered(
        *("--set", "monitoring.enabled=true,monitoring.labels.release=kube-prometheus-stack"),
        *("--set", "monitoring.runbookUrl=https://docs.example.com/runbook.html"),
    )
    for kind in ("PodMonitor", "PrometheusRule"):
        labels = objects[f"{kind} taint-eviction-controller"]["metadata"]["labels"]
        assert (labels["release"], labels["app.kubernetes.io/name"]) == (
            "kube-prometheus-stack",
            "taint-eviction-controller",
        )
    [group] = objects["PrometheusRule taint-eviction-controller"]["spec"]["groups"]
    links = {rule["annotations"]["runbook_url"].partition("#")[0] for rule in group["rules"]}
    assert links == {"https://docs.example.com/runbook.html"}


@needs_helm
def test_for_old_versions_the_admission_policy_can_be_left_out() -> None:
    """Kubernetes 1.29 has no such kind. Adoption needs 1.30, and keeps what narrows its right."""
    adopting = rendered("--set", "admissionPolicy.enabled=false,adoption.enabled=true", namespace="own")
    assert {name for name in adopting if "Admission" in name} == {
        f"{kind} own.taint-eviction-controller-adopt"
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    }
    assert not [name for name in rendered("--set", "admissionPolicy.enabled=false") if "Admission" in name]


@needs_helm
@needs_kubectl
def test_with_monitoring_the_chart_is_the_base_and_the_overlay_monitoring() -> None:
    """All objects are equal; Helm adds the namespace where a file has none, and its PodMonitor looks nowhere else."""
    chart = rendered("--set", "monitoring.enabled=true")
    both = by_name([*copied("base"), *copied("overlays/monitoring")])
    for document in [*chart.values(), *both.values()]:
        if document["kind"] in MONITORING_KINDS:
            document["metadata"].pop("namespace", None)
            document["spec"].pop("namespaceSelector", None)
    assert same_but_for_the_order_of_flags(chart) == same_but_for_the_order_of_flags(both)


@needs_helm
def test_values_become_flags_that_the_command_understands(tmp_path: Path) -> None:
    """The values are numbers, durations, words, pairs, and switches that are off by default."""
    values = {
        "breaker": {"enabled": True, "nodes": "40%", "minNodes": 5, "zone": "off"},
        "evicting": {"evictionMode": "evict-then-delete", "evictTimeout": "3m", "keepFinished": True, "workers": 30},
        "limits": {"evictionsPerSecond": 0.5, "evictionsPerSecondPerNode": 2},
        "process": {"logFormat": "text", "eventReasons": False},
        "watching": {"resyncInterval": 300},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    objects = rendered("--values", str(tmp_path / "values.yaml"))
    settings = read_settings(run.make_context("run", container(objects)["args"][1:]).params)
    assert settings.problems() == []
    assert settings.breaker.enabled
    assert "--breaker-min-nodes=5" in container(objects)["args"]
    assert settings.event_reasons is False
    assert "--evictions-per-second=0.5" in container(objects)["args"]
    assert "--resync-interval=300" in container(objects)["args"]


@needs_helm
def test_a_zone_that_is_off_may_stand_without_quotes(tmp_path: Path) -> None:
    """YAML reads the bare word as false."""
    (tmp_path / "values.yaml").write_text("breaker: {enabled: true, zone: off}\n")
    assert "--breaker-zone=off" in container(rendered("--values", str(tmp_path / "values.yaml")))["args"]


@needs_helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("breaker.nodes=10%", "breaker.nodes has no effect without breaker.enabled=true"),
        ("adoption.before=30s", "adoption.before has no effect without adoption.enabled=true"),
    ],
)
def test_values_of_what_is_off_are_refused(values: str, said: str) -> None:
    """Nobody should believe in a breaker that is not there."""
    done = template("--set", values)
    assert (done.returncode != 0, said in done.stderr) == (True, True)
    assert template("--set", f"{values},{values.partition('.')[0]}.enabled=true").returncode == 0


@needs_helm
def test_rules_become_a_policy_file_that_can_be_read() -> None:
    """The rules are in a ConfigMap, and the container has the flag with the path of the file."""
    rules = [{"name": "batch", "match": {"namespaces": ["batch-*"]}, "pause": True}]
    objects = rendered("--set-json", f"policy={json.dumps({'rules': rules})}", namespace="elsewhere")
    text = objects["ConfigMap taint-eviction-policy"]["data"]["policy.yaml"]
    defaults = read_settings(run.make_context("run", []).params).policy
    assert [rule.name for rule in read_policy(text, "policy.yaml", defaults).rules] == ["batch"]
    assert "--config=/etc/taint-eviction/policy.yaml" in container(objects)["args"]
    for document in objects.values():
        assert kubernetes_problems(document) == []


@needs_helm
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("evicting.evictTimout=3m", "evictTimout"),
        ("evicting.evictTimeout=soon", "evictTimeout"),
        ("evicting.evictionMode=kill", "evictionMode"),
        ("breaker.nodes=many", "nodes"),
        ("limits.evictionsPerSecond=-1", "evictionsPerSecond"),
        ("replicas=5", "replicas"),
        ("image.digest=abc", "digest"),
        ("resources.limits.memory=lots", "memory"),
        ("networkPolicy.apiServerPorts={0}", "apiServerPorts"),
        ("breaker.nonsense=1", "nonsense"),
        ("policy.nonsense=1", "policy.*nonsense"),
        ("policy.rules[0].nonsense=1", "policy.rules.0.*nonsense"),
        ("policy.rules[0].mode=kill", "policy.rules.0.mode"),
        ("policy.rules[0].evictTimeout=soon", "policy.rules.0.evictTimeout"),
        ("policy.rules[0].match.namespace={shop}", "policy.rules.0.match.*namespace"),
        ("policy.rules[0].match.podSelector.matchLabel.app=db", "policy.rules.0.match.podSelector.*matchLabel"),
        (
            "policy.rules[0].match.podSelector.matchExpressions[0].keys=app",
            "policy.rules.0.match.podSelector.matchExpressions.0.*keys",
        ),
        ("policy.rules[0].limits.evictionPerSecond=1", "policy.rules.0.limits.*evictionPerSecond"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(value: str, named: str) -> None:
    """The schema refuses it before anything is rendered. Helm 3 writes a place with dots, Helm 4 with slashes."""
    done = template("--set", value)
    assert done.returncode != 0
    assert re.search(rf"{named}\b", done.stderr), done.stderr


@needs_helm
def test_the_rules_in_the_example_of_the_policy_file_are_values() -> None:
    """The example has every key that the controller reads, and the schema allows them."""
    example = re.search(r"```yaml\n(.*?)```", (MANIFESTS / "POLICY.md").read_text(), re.DOTALL)
    assert example
    rules = yaml.safe_load(example[1])["rules"]
    text = rendered("--set-json", f"policy={json.dumps({'rules': rules})}")["ConfigMap taint-eviction-policy"]["data"]
    assert yaml.safe_load(text["policy.yaml"])["rules"] == rules


@needs_helm
def test_a_digest_counts_instead_of_the_tag() -> None:
    """A digest names exactly the image that was tested."""
    digest = "sha256:" + "a" * 64
    objects = rendered("--set", f"image.digest={digest},image.repository=registry.example.com/taint-eviction")
    assert container(objects)["image"] == f"registry.example.com/taint-eviction@{digest}"
