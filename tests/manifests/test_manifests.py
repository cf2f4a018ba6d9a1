"""Labels, names, ports, rights and flags agree across the manifests, and nothing is there that must not be."""

import os
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from tests.manifests.test_kinds import BUILDS, MANIFESTS, described, needs_kubectl, render

from taint_eviction import __version__
from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.matching import matches
from taint_eviction.core.objects import NO_EXECUTE, Taint, Toleration
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.files.policy_file import read_policy
from taint_eviction.settings import Settings, history_name

pytestmark = needs_kubectl

README = MANIFESTS / "README.md"
NODE_FILE = "overlays/static-pod/node"
ADD_ON = "overlays/monitoring"
INSTALLING = [build for build in BUILDS if build not in {ADD_ON, NODE_FILE}]
WITH_PODS = [build for build in BUILDS if build not in {ADD_ON, "overlays/static-pod"}]
IN_CLUSTER = [build for build in WITH_PODS if build != NODE_FILE]
ON_CONTROL_PLANE = ["base", "overlays/guarded", "overlays/own-namespace"]
REPLICATED = [*ON_CONTROL_PLANE, "overlays/managed"]
ADOPTING = ["overlays/managed"]
ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding", "FlowSchema"} | ADMISSION
FOREVER = None


def of_kind(build: str, *kinds: str) -> list[dict[str, Any]]:
    """Return the objects of these kinds in a build."""
    return [document for document in render(build) if document["kind"] in kinds]


def one(build: str, *kinds: str) -> dict[str, Any]:
    """Return the only object of these kinds in a build."""
    [document] = of_kind(build, *kinds)
    return document


def built_around(build: str, directory: Path, **fields: Any) -> str:
    """Write a kustomization around a build, with these fields besides, and return the build that this makes."""
    around = {"resources": [os.path.relpath(MANIFESTS / build, directory)], **fields}
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(around))
    return str(directory)


def workload(build: str) -> dict[str, Any]:
    """Return what runs the controller in a build."""
    return one(build, "Deployment", "DaemonSet", "Pod")


def pod(build: str) -> dict[str, Any]:
    """Return the controller's pod, or the template of it."""
    found = workload(build)
    template: dict[str, Any] = found if found["kind"] == "Pod" else found["spec"]["template"]
    return template


def container(build: str) -> dict[str, Any]:
    """Return the only container of the controller's pod."""
    [only] = pod(build)["spec"]["containers"]
    found: dict[str, Any] = only
    return found


def args(build: str) -> list[str]:
    """Return the arguments of the container, with the values of its variables, as the kubelet does it."""
    values = {
        variable["name"]: pod(build)["spec"]["serviceAccountName"]
        for variable in container(build).get("env", [])
        if variable["valueFrom"] == {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}
    }
    return [re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], arg) for arg in container(build)["args"]]


def flag(build: str, name: str) -> str:
    """Return the value of a flag in the arguments of the container, "" if it is not there."""
    found = [arg.partition("=")[2] for arg in args(build) if arg.partition("=")[0] == f"--{name}"]
    return str(found[-1]) if found else ""


def settings_of(build: str) -> Settings:
    """Return the settings that the arguments of the container make."""
    # The other tests do not need the command.
    from taint_eviction.cli.run import run  # noqa: PLC0415
    from taint_eviction.cli.run_settings import read_settings  # noqa: PLC0415

    return read_settings(run.make_context("run", args(build)[1:]).params)


def tolerated_seconds(build: str, key: str) -> int | None:
    """Return for how long the pod tolerates a NoExecute taint of this key, None indefinitely, -1 not at all."""
    for raw in pod(build)["spec"].get("tolerations", []):
        toleration = Toleration(
            raw.get("key", ""), raw["operator"], raw.get("value", ""), raw["effect"], raw.get("tolerationSeconds")
        )
        if matches(toleration, Taint(key, NO_EXECUTE)):
            return toleration.toleration_seconds
    return -1


def rights(build: str, kind: str) -> dict[tuple[str, str, str], set[str]]:
    """Return the verbs that the roles of a kind grant, by API group, resource and name of the object ("" for any)."""
    granted: dict[tuple[str, str, str], set[str]] = {}
    for role in of_kind(build, kind):
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        granted.setdefault((group, resource, name), set()).update(rule["verbs"])
    return granted


def selectors(build: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every selector in a build that should select the controller's pods, with the name of its place."""
    for document in render(build):
        spec = document.get("spec", {})
        for field in ("selector", "podSelector"):
            if field in spec:
                yield f"{described(document)} {field}", spec[field]["matchLabels"]
    for constraint in pod(build)["spec"].get("topologySpreadConstraints", []):
        yield "topologySpreadConstraints", constraint["labelSelector"]["matchLabels"]


# ---- names, labels, namespaces


@pytest.mark.parametrize("build", WITH_PODS)
def test_selectors_select_the_controllers_pods(build: str) -> None:
    """Deployment, budget, network policy, pod monitor and spread all mean the same pods."""
    labels = pod(build)["metadata"]["labels"].items()
    for place, wanted in selectors(build):
        assert wanted.items() <= labels, place
        assert wanted, place


@pytest.mark.parametrize("build", BUILDS)
def test_everything_is_in_one_namespace(build: str) -> None:
    """Namespaced objects are in the controller's own namespace, and cluster-scoped objects have none.

    Kustomize does not know that admission policies are cluster-scoped. The API server drops the namespace.
    """
    namespaces = {d["metadata"].get("namespace") for d in render(build) if d["kind"] not in CLUSTER_SCOPED}
    assert namespaces == {namespace_of(build)}
    cluster_scoped = [d for d in render(build) if d["kind"] in CLUSTER_SCOPED - ADMISSION]
    assert not any("namespace" in document["metadata"] for document in cluster_scoped)


def namespace_of(build: str) -> str:
    """Return the namespace that a build is meant for."""
    return "taint-eviction" if build in {"overlays/own-namespace", "overlays/managed"} else "kube-system"


@pytest.mark.parametrize("build", INSTALLING)
def test_names_of_what_has_no_namespace_contain_the_namespace(build: str) -> None:
    """Two installations in one cluster do not overwrite each other's rights and policies."""
    for document in render(build):
        if document["kind"] in ADMISSION | {"ClusterRole", "ClusterRoleBinding"}:
            assert re.match(rf"{namespace_of(build)}[:.]taint-eviction-controller", document["metadata"]["name"])


@pytest.mark.parametrize("build", INSTALLING)
def test_two_installations_with_outer_namespaces_share_no_object(build: str, tmp_path: Path) -> None:
    """An outer ``namespace:`` reaches the names of what has none; references follow."""
    shared: list[set[tuple[str, str]]] = []
    for namespace in ("one", "two"):
        directory = tmp_path / namespace
        directory.mkdir()
        own = built_around(build, directory, namespace=namespace)
        # The FlowSchemas of a static pod are named after its user, of which there is one.
        kinds = CLUSTER_SCOPED - ({"FlowSchema"} if build == "overlays/static-pod" else set())
        shared.append({(each["kind"], each["metadata"]["name"]) for each in of_kind(own, *kinds)})
        assert all(name.startswith(namespace) for _, name in shared[-1])
        for binding in of_kind(own, "ClusterRoleBinding"):
            assert binding["roleRef"]["name"] in {each["metadata"]["name"] for each in of_kind(own, "ClusterRole")}
        policies = {each["metadata"]["name"] for each in of_kind(own, "ValidatingAdmissionPolicy")}
        bindings = of_kind(own, "ValidatingAdmissionPolicyBinding")
        assert {each["spec"]["policyName"] for each in bindings} == policies
    assert not shared[0] & shared[1]


@pytest.mark.parametrize("build", IN_CLUSTER)
def test_the_pod_runs_as_the_account_that_has_the_rights(build: str) -> None:
    """Account, pod and bindings name the same account in the same namespace, and bind roles that are there."""
    account = one(build, "ServiceAccount")["metadata"]
    assert pod(build)["spec"]["serviceAccountName"] == account["name"]
    assert pod(build)["spec"]["automountServiceAccountToken"] is True
    bindings = of_kind(build, "RoleBinding", "ClusterRoleBinding")
    assert len(bindings) == 2 + (build in ADOPTING)
    for binding in bindings:
        subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        assert binding["subjects"] == [subject]
        assert binding["roleRef"]["name"] in {
            role["metadata"]["name"] for role in of_kind(build, binding["roleRef"]["kind"])
        }


def test_the_own_namespace_is_there_and_restricted() -> None:
    """The overlay brings its namespace, in which Pod Security refuses anything less than restricted."""
    namespace = one("overlays/own-namespace", "Namespace")
    assert namespace["metadata"]["name"] == workload("overlays/own-namespace")["metadata"]["namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


# What kustomizations of their own set around a build.
AROUND: dict[str, dict[str, Any]] = {
    "nothing": {},
    "prefix": {"namePrefix": "x-"},
    "suffix": {"nameSuffix": "-y"},
    "namespace": {"namespace": "other"},
    "all three": {"namePrefix": "x-", "nameSuffix": "-y", "namespace": "other"},
}
around = pytest.mark.parametrize("fields", AROUND.values(), ids=AROUND)


@around
@pytest.mark.parametrize("build", ["overlays/own-namespace", "overlays/managed", "overlays/static-pod"])
def test_flow_schemas_put_the_controller_before_ordinary_workloads(
    build: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    """One FlowSchema is for the Lease and one for the rest; both are for the user that the bindings mean."""
    made = built_around(build, tmp_path, **fields)
    subject = of_kind(made, "ClusterRoleBinding")[0]["subjects"][0]
    user = subject["name"]
    if subject["kind"] == "ServiceAccount":
        user = f"system:serviceaccount:{subject['namespace']}:{user}"
    lease_namespace = one(made, "Role")["metadata"]["namespace"]
    schemas = {
        schema["spec"]["priorityLevelConfiguration"]["name"]: schema["spec"] for schema in of_kind(made, "FlowSchema")
    }
    assert schemas.keys() == {"leader-election", "workload-high"}
    for spec in schemas.values():
        [rule] = spec["rules"]
        assert rule["subjects"] == [{"kind": "User", "user": {"name": user}}]
        assert spec["matchingPrecedence"] < 9000  # the precedence of "service-accounts", which is for everybody
    assert schemas["leader-election"]["matchingPrecedence"] < schemas["workload-high"]["matchingPrecedence"]
    [lease_rule] = schemas["leader-election"]["rules"][0]["resourceRules"]
    assert lease_rule["namespaces"] == [lease_namespace]
    assert lease_rule["resources"] == ["leases"]


@pytest.mark.parametrize("build", WITH_PODS)
def test_the_image_is_this_version_of_no_particular_registry(build: str) -> None:
    """Tag and version label are the package's version; the registry is a name that nobody can own (RFC 2606)."""
    assert container(build)["image"] == f"registry.invalid/taint-eviction:{__version__}"
    assert pod(build)["metadata"]["labels"]["app.kubernetes.io/version"] == __version__


# ---- flags, ports and probes


@pytest.mark.parametrize("build", WITH_PODS)
def test_the_command_understands_its_arguments(build: str) -> None:
    """Every flag exists, every value can be read, and all of them fit together."""
    assert container(build)["args"][0] == "run"
    settings = settings_of(build)
    assert settings.problems() == []
    assert settings.dry_run == (build == "overlays/dry-run")
    assert settings.election.enabled
    assert settings.election.lease_name == settings.control_state.name == flag(build, "leader-elect-resource-name")
    ending_seconds = settings.grace_seconds + settings.election.retry_period_seconds
    assert pod(build)["spec"]["terminationGracePeriodSeconds"] >= max(30, ending_seconds + 10)


@pytest.mark.parametrize("build", WITH_PODS)
def test_the_lease_and_the_config_map_are_those_there_are_rights_for(build: str) -> None:
    """The flag and the Role have the same name for both, in the same namespace; outcomes are kept beside them."""
    roles = "overlays/static-pod" if build == NODE_FILE else build
    names = {flag(build, "leader-elect-resource-name")}
    history = {history_name(name) for name in names}
    for resource, expected in (("leases", names), ("configmaps", names | history)):
        assert {name for _, granted, name in rights(roles, "Role") if granted == resource} - {""} == expected
    [state] = [each for each in of_kind(roles, "ConfigMap") if each["metadata"]["name"] in names]
    assert "data" not in state  # what people and the controller write there stays when this is applied again
    namespace = flag(build, "leader-elect-resource-namespace") or workload(build)["metadata"]["namespace"]
    assert one(roles, "Role")["metadata"]["namespace"] == namespace


@around
def test_both_parts_of_a_static_pod_name_the_same_lease(fields: dict[str, Any], tmp_path: Path) -> None:
    """With the same prefix, suffix or namespace around both, the pod asks for what Role and policy allow."""
    parts = [tmp_path / name for name in ("cluster", "node")]
    for part, build in zip(parts, ("overlays/static-pod", NODE_FILE), strict=True):
        part.mkdir()
        built_around(build, part, **fields)
    cluster, node = map(str, parts)
    name, namespace = (flag(node, f"leader-elect-resource-{what}") for what in ("name", "namespace"))
    role = one(cluster, "Role")
    assert role["metadata"]["namespace"] == namespace
    assert {named for rule in role["rules"] for named in rule.get("resourceNames", ())} == {name, history_name(name)}
    variables = one(cluster, "ValidatingAdmissionPolicy")["spec"]["variables"]
    assert {"name": "own", "expression": f"'{namespace}/{name}'"} in variables


@pytest.mark.parametrize("build", WITH_PODS)
def test_probes_ask_the_port_that_is_listened_on(build: str) -> None:
    """Liveness and start-up ask for health, readiness for readiness, at the port of --probe-listen."""
    http, probes = container(build)["ports"]
    assert flag(build, "listen").rpartition(":")[2] == str(http["containerPort"])
    assert flag(build, "probe-listen").rpartition(":")[2] == str(probes["containerPort"])
    paths = {name: container(build)[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: get["path"] for name, get in paths.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert {get["port"] for get in paths.values()} == {probes["name"]}
    assert {get.get("host", "") for get in paths.values()} == {flag(build, "probe-listen").rpartition(":")[0]}


@pytest.mark.parametrize("build", IN_CLUSTER)
def test_probes_and_metrics_get_through_the_network_policy(build: str) -> None:
    """Probes may come from anywhere, others are named; traffic may leave to the API server's ports alone."""
    spec = one(build, "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    http, probes = (port["name"] for port in container(build)["ports"])
    for_probes, for_metrics = spec["ingress"]
    assert for_probes == {"ports": [{"port": probes, "protocol": "TCP"}]}
    assert for_metrics["ports"] == [{"port": http, "protocol": "TCP"}]
    named = [peer["podSelector"]["matchExpressions"] for peer in for_metrics["from"]]
    assert [(each["key"], each["values"]) for [each] in named] == [
        ("app.kubernetes.io/name", ["prometheus"]),
        ("k8s-app", ["konnectivity-agent"]),
    ]
    assert all("matchLabels" not in peer["podSelector"] for peer in for_metrics["from"])
    namespaces = [peer["namespaceSelector"]["matchLabels"] for peer in for_metrics["from"]]
    assert namespaces == [{"kubernetes.io/metadata.name": name} for name in ("monitoring", "kube-system")]
    [egress] = spec["egress"]
    assert [port["port"] for port in egress["ports"]] == [443, 6443]


def test_the_pod_monitor_scrapes_the_named_port() -> None:
    """Every replica is scraped where it serves metrics, and a dry run is a job of its own."""
    monitor = one("overlays/monitoring", "PodMonitor")["spec"]
    [endpoint] = monitor["podMetricsEndpoints"]
    port, _ = container("base")["ports"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    label = monitor["jobLabel"]
    jobs = {pod(build)["metadata"]["labels"][label] for build in ("base", "overlays/dry-run")}
    assert len(jobs) == 2
    assert monitor["selector"]["matchLabels"].items() <= pod("overlays/dry-run")["metadata"]["labels"].items()


# ---- what holds evictions back


@pytest.mark.parametrize("build", WITH_PODS)
def test_nothing_is_held_back_unless_asked_for(build: str) -> None:
    """Without its own overlay there is neither breaker nor policy file, and no build sets limits or another mode."""
    settings = settings_of(build)
    assert settings.breaker == replace(BreakerPolicy(), enabled=build in {"overlays/guarded", "overlays/managed"})
    assert settings.policy == EvictionPolicy()
    assert bool(flag(build, "config")) == (build == "overlays/guarded")


def policy_file() -> dict[str, Any]:
    """Return the ConfigMap with the policy file of the overlay that has one."""
    [found] = [each for each in of_kind("overlays/guarded", "ConfigMap") if "data" in each]
    return found


def test_the_policy_file_is_mounted_so_that_it_can_change() -> None:
    """The file is a key of a ConfigMap of the build, which is mounted as a directory, always by the same name."""
    path = PurePosixPath(flag("overlays/guarded", "config"))
    [mount] = container("overlays/guarded")["volumeMounts"]
    assert mount == {"name": "policy", "mountPath": str(path.parent), "readOnly": True}
    [volume] = pod("overlays/guarded")["spec"]["volumes"]
    config_map = policy_file()
    assert volume == {"name": "policy", "configMap": {"name": "taint-eviction-policy"}}
    assert config_map["metadata"]["name"] == "taint-eviction-policy"
    assert config_map["metadata"]["namespace"] == workload("overlays/guarded")["metadata"]["namespace"]
    assert config_map["data"].keys() == {path.name}


def test_the_policy_to_begin_with_can_be_read_with_and_without_its_examples() -> None:
    """The file has no rules as it is; without the comment marks each example is a rule."""
    text = policy_file()["data"]["policy.yaml"]
    assert read_policy(text, "policy.yaml", EvictionPolicy()) == EvictionPolicy()
    examples = re.sub(r"^#(  )", r"\1", text.replace("rules: []", "rules:"), flags=re.MULTILINE)
    rules = read_policy(examples, "policy.yaml", EvictionPolicy()).rules
    assert [rule.name for rule in rules] == re.findall(r"^#  - name: (\w+)$", text, re.MULTILINE)
    assert rules


# ---- how the controller's own pods are placed and evicted


@pytest.mark.parametrize("build", [*REPLICATED, "overlays/dry-run"])
def test_a_pod_leaves_dead_nodes_soon_and_others_never(build: str) -> None:
    """The first matching toleration has seconds for silent and unready nodes, and none for every other taint."""
    assert tolerated_seconds(build, "node.kubernetes.io/unreachable") == 30
    assert tolerated_seconds(build, "node.kubernetes.io/not-ready") == 120
    assert tolerated_seconds(build, "some/taint") is FOREVER


@pytest.mark.parametrize("build", ["overlays/daemonset", "overlays/single-node"])
def test_a_pod_that_could_only_come_back_stays(build: str) -> None:
    """Where its replacement would go to the same node, the pod tolerates every NoExecute taint indefinitely."""
    for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready", "some/taint"):
        assert tolerated_seconds(build, key) is FOREVER


@pytest.mark.parametrize("build", IN_CLUSTER)
def test_a_pod_may_go_to_control_plane_nodes_but_to_no_other_tainted_one(build: str) -> None:
    """Of NoSchedule taints only the control plane's is tolerated: a cordoned or sick node gets no replica."""
    tolerations = [t for t in pod(build)["spec"]["tolerations"] if t["effect"] != NO_EXECUTE]
    control_plane = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
    assert tolerations == [control_plane]


@pytest.mark.parametrize("build", [*ON_CONTROL_PLANE, "overlays/daemonset"])
def test_replicas_live_on_control_plane_nodes(build: str) -> None:
    """The affinity is required, and allows any value of the label."""
    affinity = pod(build)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = affinity["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}


@pytest.mark.parametrize("build", REPLICATED)
def test_two_replicas_on_two_nodes_can_be_rolled_out(build: str) -> None:
    """Replicas never share a node, so with two nodes a rollout must remove one before it creates one."""
    spec = workload(build)["spec"]
    assert spec["replicas"] == 2
    [spread] = pod(build)["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")
    assert (spread["maxSkew"], spread["minDomains"]) == (1, 2)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert spec["strategy"] == ({"type": "Recreate"} if build in ADOPTING else rolling)


@pytest.mark.parametrize("build", [*REPLICATED, "overlays/single-node"])
def test_a_drain_takes_one_replica_and_is_never_stuck_on_a_broken_one(build: str) -> None:
    """The budget allows one unavailable replica, and does not protect a replica that is not ready."""
    spec = one(build, "PodDisruptionBudget")["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("build", [*REPLICATED, "overlays/daemonset", "overlays/single-node", NODE_FILE])
def test_the_controller_is_among_the_last_to_be_pushed_aside(build: str) -> None:
    """The controller has a system priority and its own memory; a CPU limit would throttle the Lease's renewal."""
    assert pod(build)["spec"]["priorityClassName"] in {"system-cluster-critical", "system-node-critical"}
    resources = container(build)["resources"]
    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


@pytest.mark.parametrize(
    "build",
    [
        "overlays/daemonset",
        "overlays/single-node",
        "overlays/dry-run",
        "overlays/guarded",
        "overlays/managed",
        NODE_FILE,
    ],
)
def test_variants_differ_from_the_base_only_where_they_say(build: str) -> None:
    """Everything but arguments, placement, ports and rights is the same in all builds."""
    placement = {"affinity", "tolerations", "topologySpreadConstraints", "priorityClassName", "priority"}
    account = {"serviceAccountName", "automountServiceAccountToken", "hostNetwork", "volumes"}
    mine, base = (
        {key: value for key, value in pod(of)["spec"].items() if key not in placement | account | {"containers"}}
        for of in (build, "base")
    )
    assert mine == base
    differing = {NODE_FILE: {"args", "env", "ports", "volumeMounts"}, "overlays/guarded": {"args", "volumeMounts"}}
    differing["overlays/dry-run"] = {"args", "volumeMounts"}
    changed = differing.get(build, {"args"})
    mine, base = (
        {key: deepcopy(value) for key, value in container(of).items() if key not in changed} for of in (build, "base")
    )
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        mine[probe]["httpGet"].pop("host", None)
    assert mine == base


# ---- no more than needed


@pytest.mark.parametrize("build", WITH_PODS)
def test_the_container_meets_the_restricted_standard(build: str) -> None:
    """The user is not root and not used on the node; there are no capabilities, and the root is read-only."""
    security = pod(build)["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] >= 10000
    assert security["runAsGroup"] >= 10000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(build)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    if build != NODE_FILE:
        assert not pod(build)["spec"].keys() & {"hostNetwork", "hostPID", "hostIPC"}
        writes = "emptyDir" if build == "overlays/dry-run" else "configMap"
        assert all(volume.keys() == {"name", writes} for volume in pod(build)["spec"].get("volumes", []))


READ = {"get", "list", "watch"}


@pytest.mark.parametrize("build", [build for build in INSTALLING if build != "overlays/dry-run"])
def test_rights_are_these_and_no_others(build: str) -> None:
    """The controller has exactly the rights that are written here."""
    assert rights(build, "ClusterRole") == {
        ("", "nodes", ""): READ,
        ("", "pods", ""): READ | {"delete"} | ({"patch"} if build in ADOPTING else set()),
        ("", "pods/eviction", ""): {"create"},
        ("", "pods/status", ""): {"patch"},
        ("", "events", ""): {"create", "patch"},
    }
    assert rights(build, "Role") == {
        ("coordination.k8s.io", "leases", ""): {"create"},
        ("coordination.k8s.io", "leases", "taint-eviction-controller"): {"get", "update"},
        ("", "configmaps", ""): {"create"},
        ("", "configmaps", "taint-eviction-controller"): {"get", "patch"},
        ("", "configmaps", "taint-eviction-controller-history"): {"get", "patch"},
    }


@pytest.mark.parametrize("build", INSTALLING)
def test_an_admission_policy_is_in_force_for_the_account(build: str) -> None:
    """The binding names the policy and the account, and refuses; a static pod has a user instead of an account."""
    policy, binding = (of_kind(build, kind)[0] for kind in sorted(ADMISSION))
    wanted = {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    if build != "overlays/static-pod":
        account = one(build, "ServiceAccount")["metadata"]
        parameter = {"name": account["name"], "namespace": account["namespace"]}
        wanted["paramRef"] = {**parameter, "parameterNotFoundAction": "Allow"}
    assert binding["spec"] == wanted
    assert policy["spec"]["failurePolicy"] == "Fail"


# What the policy may use of CEL, with the Kubernetes version since which an API server takes it of a new policy.
CEL_SINCE = {
    **dict.fromkeys(("all", "exists", "filter", "has", "map"), (1, 25)),  # standard macros
    **dict.fromkeys(("dyn", "size", "startsWith", "string"), (1, 25)),  # standard functions
    **dict.fromkeys(("indexOf", "join"), (1, 25)),  # of lists, and of lists of strings
    **dict.fromkeys(("hasValue", "of", "optMap", "orValue"), (1, 29)),  # of optional values, as are .? and [?]
}


@pytest.mark.parametrize("build", INSTALLING)
def test_an_api_server_of_kubernetes_1_30_knows_every_function_of_the_policy(build: str) -> None:
    """Whoever needs another one finds out since when it is there, and adds it; all and exists have one variable."""
    for policy in of_kind(build, "ValidatingAdmissionPolicy"):
        parts = [each for part in ("matchConditions", "variables", "validations") for each in policy["spec"][part]]
        text = "\n".join(re.sub("'[^']*'", "''", each["expression"]) for each in parts)
        used = set(re.findall(r"(\w+) *\(", text)) - {"in"}
        assert {name: CEL_SINCE.get(name) for name in used} == CEL_SINCE
        assert not re.search(r"\b(?:all|exists)\(\s*\w+\s*,\s*\w+\s*,", text)
    assert max(CEL_SINCE.values()) <= (1, 30)


@pytest.mark.parametrize("build", INSTALLING)
def test_a_build_adopts_with_all_that_this_needs_or_with_nothing(build: str) -> None:
    """Flag, right and permission to mark come together."""
    adopts = build in ADOPTING
    assert ("--adopt" in container(build)["args"] if build in WITH_PODS else False) == adopts
    assert ("patch" in rights(build, "ClusterRole").get(("", "pods", ""), set())) == adopts
    for policy in of_kind(build, "ValidatingAdmissionPolicy"):
        variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
        assert variables["mayMark"] == ("true" if adopts else "false")


@pytest.mark.parametrize("build", BUILDS)
def test_nothing_looks_at_pods_that_are_created(build: str) -> None:
    """A policy that outlived its controller would leave each new pod without its countdown."""
    assert [each for each in render(build) if re.search("Mutating|Webhook", each["kind"])] == []
    for policy in of_kind(build, "ValidatingAdmissionPolicy"):
        created = {
            resource
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]
            if "CREATE" in rule["operations"]
            for resource in rule["resources"]
        }
        assert created.isdisjoint({"*", "*/*", "pods"})


@around
def test_the_right_to_patch_pods_never_stands_without_a_policy(fields: dict[str, Any], tmp_path: Path) -> None:
    """Whoever applies own-namespace over managed and deletes it leaves the right, and the whole policy beside it."""
    applied, deleted = (tmp_path / name for name in ("managed", "own-namespace"))
    for directory in (applied, deleted):
        directory.mkdir()
        built_around(f"overlays/{directory.name}", directory, **fields)
    names = {described(document) for document in render(str(deleted))}
    left = {document["kind"]: document for document in render(str(applied)) if described(document) not in names}
    assert left.keys() == ADMISSION | {"ClusterRole", "ClusterRoleBinding"}
    policy, binding = (left[kind] for kind in sorted(ADMISSION))
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    [subject] = left["ClusterRoleBinding"]["subjects"]
    named = {"kind": "ServiceAccount", **binding["spec"]["paramRef"]}
    assert named == {**subject, "parameterNotFoundAction": "Allow"}
    of_base = one(str(deleted), "ValidatingAdmissionPolicy")["spec"]
    of_base["variables"][0] = {"name": "mayMark", "expression": "true"}
    assert policy["spec"] == of_base


def test_for_old_versions_the_policy_can_be_taken_out(tmp_path: Path) -> None:
    """The component removes the policy and its binding, and nothing else, also no policy of somebody else."""
    binding = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding"}
    companys = [{**binding, "kind": kind, "metadata": {"name": "company"}} for kind in sorted(ADMISSION)]
    (tmp_path / "company.yaml").write_text(yaml.safe_dump_all(companys))
    directory = os.path.relpath(MANIFESTS, tmp_path)
    component = f"{directory}/components/no-admission-policy"
    around = {"resources": [f"{directory}/base", "company.yaml"], "components": [component]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(around))
    kept = {described(document) for document in render("base") if document["kind"] not in ADMISSION}
    found = {described(document) for document in render(str(tmp_path))}
    assert found == kept | {f"{kind} company" for kind in ADMISSION}


def test_a_dry_run_may_write_nothing_but_its_own_lease_and_history() -> None:
    """Even wrong flags could not make it evict, take the real controller's Lease, or pause and resume for it."""
    assert rights("overlays/dry-run", "ClusterRole") == {("", "nodes", ""): READ, ("", "pods", ""): READ}
    assert rights("overlays/dry-run", "Role") == {
        ("coordination.k8s.io", "leases", ""): {"create"},
        ("coordination.k8s.io", "leases", "taint-eviction-controller-dry-run"): {"get", "update"},
        ("", "configmaps", ""): {"create"},
        ("", "configmaps", "taint-eviction-controller-dry-run"): {"get"},
        ("", "configmaps", "taint-eviction-controller-dry-run-history"): {"get", "patch"},
    }


@pytest.mark.parametrize("real", [build for build in IN_CLUSTER if build != "overlays/dry-run"])
def test_a_dry_run_runs_beside_the_real_controller(real: str) -> None:
    """They share no object, and the Deployment of one does not select the other's pods."""
    names = {described(document) for document in render(real)}
    assert not names & {described(document) for document in render("overlays/dry-run")}
    for mine, other in (("overlays/dry-run", real), (real, "overlays/dry-run")):
        wanted = workload(mine)["spec"]["selector"]["matchLabels"]
        assert not wanted.items() <= pod(other)["metadata"]["labels"].items()


@pytest.mark.parametrize("build", ["base", "overlays/guarded", "overlays/managed"])
def test_a_second_installation_in_one_namespace_has_its_own_pods(build: str, tmp_path: Path) -> None:
    """The README's kustomization: no selector of one installation selects the other's pods, and they share no name."""
    examples = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL))
    [fields] = [example for example in examples if "namePrefix" in example]
    second = built_around(build, tmp_path, **{**fields, "resources": [os.path.relpath(MANIFESTS / build, tmp_path)]})
    for mine, other in ((second, build), (build, second)):
        labels = pod(other)["metadata"]["labels"].items()
        found = dict(selectors(mine))
        assert len(found) == 4
        assert not [place for place, wanted in found.items() if wanted.items() <= labels]
    shared = {described(document) for document in render(build)} & {described(document) for document in render(second)}
    assert not [each for each in shared if not each.startswith("Namespace ")]


@pytest.mark.parametrize(
    "path", sorted({*MANIFESTS.glob("**/*role*.yaml")} - {*MANIFESTS.glob("chart/**/*")}), ids=lambda path: path.name
)
def test_every_right_says_what_it_is_for(path: Path) -> None:
    """Each verb has a line of its own with the reason for it."""
    listed = re.findall(r"^      - (\w+) +# \S.*$", path.read_text(), re.MULTILINE)
    granted = [
        verb
        for role in yaml.safe_load_all(path.read_text())
        for rule in role.get("rules", [])
        for verb in rule["verbs"]
    ]
    assert listed == granted


# ---- as a static pod


def test_a_static_pod_names_nothing_that_lives_in_the_api() -> None:
    """A kubelet refuses static pods that use accounts, ConfigMaps or Secrets."""
    spec = pod(NODE_FILE)["spec"]
    assert "serviceAccountName" not in spec
    assert spec["automountServiceAccountToken"] is False
    assert all(volume.keys() <= {"name", "hostPath", "emptyDir"} for volume in spec["volumes"])


def test_a_static_pod_reads_the_kubeconfig_that_it_mounts() -> None:
    """The file on the node is where the flag looks for it, and cannot be changed from inside."""
    mounts = {mount["name"]: mount for mount in container(NODE_FILE)["volumeMounts"]}
    assert mounts["kubeconfig"]["mountPath"] == flag(NODE_FILE, "kubeconfig")
    assert mounts["kubeconfig"]["readOnly"] is True


def test_a_static_pod_is_not_reachable_from_elsewhere() -> None:
    """Callers on the node's network are not authenticated, so only the node itself may call."""
    assert pod(NODE_FILE)["spec"]["hostNetwork"] is True
    assert flag(NODE_FILE, "listen").startswith("127.0.0.1:")


def test_the_cluster_half_of_a_static_pod_runs_nothing() -> None:
    """The build grants a user what the account has elsewhere, and has no account and no Deployment."""
    kinds = {document["kind"] for document in render("overlays/static-pod")}
    rights = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    assert kinds == rights | ADMISSION | {"ConfigMap", "FlowSchema"}
    [condition] = one("overlays/static-pod", "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"] == "request.userInfo.username == 'taint-eviction-controller'"
    for binding in of_kind("overlays/static-pod", "RoleBinding", "ClusterRoleBinding"):
        user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "taint-eviction-controller"}
        assert binding["subjects"] == [user]


# ---- what people read


def test_paths_named_in_texts_exist() -> None:
    """The paths are in instructions and comments."""
    for path in [*MANIFESTS.glob("**/*.yaml"), *MANIFESTS.glob("**/*.md")]:
        # Files in the kubelet's own directory of that name are left out.
        for named in re.findall(r"(?<!/)manifests/[\w./-]*\w", path.read_text()):
            assert (MANIFESTS.parent / named).exists(), f"{path}: {named}"


def test_links_in_the_readme_lead_somewhere() -> None:
    """Every link leads to a heading or to a file beside the README, which names every overlay."""
    text = (MANIFESTS / "README.md").read_text()
    lines = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    headings = {re.sub(r"[^\w -]", "", line).replace(" ", "-").lower() for line in lines}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        assert (MANIFESTS / path).exists() if path else anchor in headings, target
    assert {f"`{build}`" for build in BUILDS if build != NODE_FILE} <= set(re.findall(r"`[\w/-]+`", text))
