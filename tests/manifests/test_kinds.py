"""Every overlay rendered, and every object in it read as strictly as the API server reads it.

Kubernetes' kinds are compared with its own types (the models of the ``kubernetes`` package): a field that they don't
have fails, so does a value of another type or a required field that is absent. The kinds of the Prometheus operator are
no part of that package; the shapes below say what its CRDs say of the fields used here.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes.client.models
import pytest
import yaml

MANIFESTS = Path(__file__).parents[2] / "manifests"

# Everything that an operator would build.
BUILDS = sorted(str(path.parent.relative_to(MANIFESTS)) for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
BUILDS = ["base", *BUILDS, "overlays/static-pod/node"]

needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None,
    reason="kubectl is not installed (1.32 or later, with kustomize 5.5, is what the manifests need)",
)


# Nothing else that kustomize has sees an outer namespace (manifests/base/kustomization.yaml). Without the admission
# policy, nothing in the base asks for the account's name.
EXPECTED_WARNING = re.compile("# Warning: 'vars' is deprecated|.*] well-defined vars that were never replaced: ")


@cache
def render(build: str) -> tuple[dict[str, Any], ...]:
    """Return the objects of a build, as ``kubectl kustomize`` has them."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(MANIFESTS / build)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if not EXPECTED_WARNING.match(line)]
    assert not warnings, done.stderr  # deprecations, patches without a target
    return tuple(yaml.safe_load_all(done.stdout))


def described(document: Mapping[str, Any]) -> str:
    """Name an object for a message."""
    return f"{document['kind']} {document['metadata']['name']}"


# ---- Kubernetes' own kinds

_SCALARS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "datetime": str,
    "bytes": str,
}
_GENERIC = re.compile(r"(List|Dict)\[(?:str, )?(.+)\]")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi)?")


def problems(value: Any, type_name: str, where: str) -> list[str]:
    """Say, with its place, everything in ``value`` that Kubernetes' type of this name does not have."""
    if type_name == "object":  # an integer or a string, where it is used here
        return [] if isinstance(value, int | str) and not isinstance(value, bool) else [f"{where}: {value!r}"]
    if type_name in _SCALARS:
        right = isinstance(value, _SCALARS[type_name]) and (type_name == "bool" or not isinstance(value, bool))
        return [] if right else [f"{where}: {value!r} is no {type_name}"]
    if generic := _GENERIC.fullmatch(type_name):
        return _problems_of_many(value, generic[1], generic[2], where)
    return _problems_of_object(value, type_name, where)


def _problems_of_many(value: Any, container: str, item_type: str, where: str) -> list[str]:
    if container == "List":
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [line for index, item in enumerate(value) for line in problems(item, item_type, f"{where}[{index}]")]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no map"]
    return [line for key, item in value.items() for line in problems(item, item_type, f"{where}.{key}")]


def _problems_of_object(value: Any, type_name: str, where: str) -> list[str]:
    model = getattr(kubernetes.client.models, type_name)
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no {type_name}"]
    attributes = {json_name: attribute for attribute, json_name in model.attribute_map.items()}
    found = [f"{where}.{field}: unknown to {type_name}" for field in value if field not in attributes]
    required = [model.attribute_map[name] for name, field in model.model_fields.items() if field.is_required()]
    found += [f"{where}.{field}: missing" for field in required if field not in value]
    for field, part in value.items():
        if field in attributes:
            found += problems(part, model.openapi_types[attributes[field]], f"{where}.{field}")
    return found


def kubernetes_problems(document: Mapping[str, Any]) -> list[str]:
    """Say everything in an object that its kind does not have."""
    version = str(document["apiVersion"]).rpartition("/")[2]
    return problems(document, version[0].upper() + version[1:] + document["kind"], described(document))


# ---- the Prometheus operator's kinds: a type, a pattern, [item], {"field": ..., "optional?": ...} or Map(value)


class Map:
    """A map with free keys."""

    def __init__(self, value: Any) -> None:
        self.value = value


_DURATION = re.compile(r"0|(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")
_METADATA = {"name": str, "namespace": str, "labels?": Map(str), "annotations?": Map(str)}
_RULE = {
    "alert": str,
    "expr": str,
    "for?": _DURATION,
    "keep_firing_for?": _DURATION,
    "labels?": Map(str),
    "annotations?": Map(str),
}
_ENDPOINT = {
    "port": str,
    "path?": re.compile("/.*"),
    "interval?": _DURATION,
    "scrapeTimeout?": _DURATION,
    "scheme?": re.compile("https?"),
    "honorLabels?": bool,
}
MONITORING_KINDS: dict[str, Any] = {
    "PrometheusRule": {
        "apiVersion": re.compile(r"monitoring\.coreos\.com/v1"),
        "kind": str,
        "metadata": _METADATA,
        "spec": {"groups": [{"name": re.compile(".+"), "interval?": _DURATION, "rules": [_RULE]}]},
    },
    "PodMonitor": {
        "apiVersion": re.compile(r"monitoring\.coreos\.com/v1"),
        "kind": str,
        "metadata": _METADATA,
        "spec": {
            "selector": {"matchLabels": Map(str)},
            "namespaceSelector?": {"matchNames": [str]},
            "podMetricsEndpoints": [_ENDPOINT],
            "jobLabel?": str,
            "podTargetLabels?": [str],
        },
    },
}


def shape_problems(value: Any, shape: Any, where: str) -> list[str]:
    """Say, with its place, everything in ``value`` that is not as ``shape`` has it."""
    if isinstance(shape, dict):
        return _fields_problems(value, shape, where)
    if isinstance(shape, Map):
        if not isinstance(value, dict):
            return [f"{where}: {value!r} is no map"]
        return [line for key, item in value.items() for line in shape_problems(item, shape.value, f"{where}.{key}")]
    if isinstance(shape, list):
        if not isinstance(value, list) or not value:
            return [f"{where}: {value!r} is no list with something in it"]
        return [line for i, item in enumerate(value) for line in shape_problems(item, shape[0], f"{where}[{i}]")]
    if isinstance(shape, re.Pattern):
        return [] if isinstance(value, str) and shape.fullmatch(value) else [f"{where}: {value!r}"]
    return [] if isinstance(value, shape) else [f"{where}: {value!r} is no {shape.__name__}"]


def _fields_problems(value: Any, fields: dict[str, Any], where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    shapes = {name.removesuffix("?"): shape for name, shape in fields.items()}
    found = [f"{where}.{field}: unknown" for field in value if field not in shapes]
    found += [f"{where}.{name}: missing" for name in fields if not name.endswith("?") and name not in value]
    for field in value.keys() & shapes.keys():
        found += shape_problems(value[field], shapes[field], f"{where}.{field}")
    return found


# ---- the tests


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
def test_every_object_is_what_its_kind_says(build: str) -> None:
    """No field is misspelt, none is absent, and each value has the type that its kind gives it."""
    for document in render(build):
        if shape := MONITORING_KINDS.get(document["kind"]):
            assert shape_problems(document, shape, described(document)) == []
        else:
            assert kubernetes_problems(document) == []


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
def test_no_object_is_there_twice(build: str) -> None:
    """A build has one object of a kind and name."""
    names = [(d["apiVersion"], d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in render(build)]
    assert len(names) == len(set(names))


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
def test_quantities_can_be_read(build: str) -> None:
    """Requests and limits are written as Kubernetes' quantities."""
    for document in render(build):
        template = document.get("spec", {}).get("template", document)
        if "containers" in template.get("spec", {}):
            resources = template["spec"]["containers"][0]["resources"]
            quantities = [*resources["requests"].values(), *resources["limits"].values()]
            assert all(_QUANTITY.fullmatch(quantity) for quantity in quantities)


DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "a"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the deployment with another value at the path, or without the value if it is None."""
    document: dict[str, Any] = yaml.safe_load(yaml.safe_dump(DEPLOYMENT))
    *way, last = path.split(".")
    place: Any = document
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


def test_a_right_object_has_no_problems() -> None:
    """The check below does not always find something."""
    assert kubernetes_problems(DEPLOYMENT) == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("spec.replica", 2, "Deployment a.spec.replica: unknown to V1DeploymentSpec"),
        ("spec.replicas", "2", "Deployment a.spec.replicas: '2' is no int"),
        ("spec.replicas", True, "Deployment a.spec.replicas: True is no int"),
        ("spec.selector", None, "Deployment a.spec.selector: missing"),
        ("spec.selector.matchLabels.app", 1, "Deployment a.spec.selector.matchLabels.app: 1 is no str"),
        ("spec.template.spec.containers", {}, "Deployment a.spec.template.spec.containers: {} is no list"),
        (
            "spec.template.spec.containers.0.ports.0.port",
            80,
            "Deployment a.spec.template.spec.containers[0].ports[0].port: unknown to V1ContainerPort",
        ),
    ],
)
def test_a_wrong_object_is_found(path: str, value: Any, problem: str) -> None:
    """Unknown fields, wrong types and absent required fields are each found, at any depth."""
    assert kubernetes_problems(changed(path, value)) == [problem]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"alert": "A", "expr": "up", "for": "1x"}, "rule.for: '1x'"),
        ({"alert": "A", "expr": "up", "form": "1m"}, "rule.form: unknown"),
        ({"alert": "A"}, "rule.expr: missing"),
        ({"alert": "A", "expr": "up", "labels": {"severity": 1}}, "rule.labels.severity: 1 is no str"),
    ],
)
def test_a_wrong_rule_is_found(rule: dict[str, Any], problem: str) -> None:
    """The shapes of the monitoring kinds are strict as well."""
    assert shape_problems(rule, _RULE, "rule") == [problem]
