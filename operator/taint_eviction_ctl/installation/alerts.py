"""What ``doctor`` finds of who reads the PodMonitor and the alerts: a Prometheus reads what its own selectors choose.

An object that no Prometheus selects looks right, and nobody is told when evictions stop.

Reference: https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.CommonPrometheusFields
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from taint_eviction.core.label_selectors import IN, LabelSelector, chooses, requirement
from taint_eviction.kube.api_calls import ApiRequest
from taint_eviction.kube.json_fields import as_list, as_object, as_text
from taint_eviction_ctl.installation.guards import Finding, ReadList

MONITORING = "monitoring.coreos.com/v1"
# By kind in the plural: the word for people, and the fields of a Prometheus that select objects and namespaces.
_SELECTORS = {
    "podmonitors": ("PodMonitor", "podMonitorSelector", "podMonitorNamespaceSelector"),
    "prometheusrules": ("PrometheusRule", "ruleSelector", "ruleNamespaceSelector"),
}
_ADVICE = "give it labels that it selects: monitoring.labels of the chart, or labels in a kustomization"

NamespaceLabels = Callable[[str], Awaitable[Mapping[str, str]]]


async def find_unselected(
    found: Mapping[str, Sequence[Any]], listed: ReadList, namespace_labels: NamespaceLabels
) -> list[Finding]:
    """Return a finding for each kind of which no Prometheus selects an object.

    ``found``: the objects by kind in the plural. Without the operator's kind Prometheus, another program reads them,
    and there is nothing to compare.
    """
    servers = await listed("Prometheus objects", ApiRequest("list", "prometheuses", group=MONITORING))
    findings: list[Finding] = []
    for plural, items in found.items() if servers else ():
        word, field, namespace_field = _SELECTORS[plural]
        whys = []
        for server in servers or ():
            why = [await _refusal(server, field, namespace_field, item, namespace_labels) for item in items]
            if "" in why:
                break
            whys += why
        else:
            findings.append((False, f"no Prometheus selects the {word}: {'; '.join(dict.fromkeys(whys))}", _ADVICE))
    return findings


async def _refusal(server: Any, field: str, namespace_field: str, item: Any, namespace_labels: NamespaceLabels) -> str:
    """Return why a Prometheus does not select an object, "" if it does."""
    metadata, of_item = _metadata(server), _metadata(item)
    name, namespace = (as_text(metadata.get(key), f"metadata.{key}") for key in ("name", "namespace"))
    spec = as_object(as_object(server, "the Prometheus").get("spec"), "spec")
    selector, elsewhere = _selector(spec.get(field), field), _selector(spec.get(namespace_field), namespace_field)
    at = as_text(of_item.get("namespace"), "metadata.namespace")
    if selector is None:
        return f"{namespace}/{name} has no {field}"
    if not chooses(selector, as_object(of_item.get("labels"), "metadata.labels")):
        return f"{namespace}/{name} selects {_said(selector)}"
    if elsewhere is None and at != namespace:
        return f"{namespace}/{name} has no {namespace_field}, so that it looks in its own namespace only"
    if elsewhere and not chooses(elsewhere, await namespace_labels(at)):
        return f"{namespace}/{name} looks in namespaces with {_said(elsewhere)}"
    return ""


def _metadata(body: Any) -> Mapping[str, Any]:
    return as_object(as_object(body, "the object").get("metadata"), "metadata")


def _selector(value: object, field: str) -> LabelSelector | None:
    """Read a selector; None: it is absent, which selects nothing. An empty one selects everything."""
    if value is None:
        return None
    selector = as_object(value, field)
    terms = [requirement(key, IN, [label]) for key, label in as_object(selector.get("matchLabels"), field).items()]
    for each in as_list(selector.get("matchExpressions"), field):
        term = as_object(each, field)
        terms.append(requirement(term["key"], term["operator"], as_list(term.get("values"), field)))
    return tuple(terms)


def _said(selector: LabelSelector) -> str:
    """Return a selector as people write it, roughly."""
    return ", ".join(
        f"{term.key}={min(term.values)}"
        if term.operator == IN and len(term.values) == 1
        else " ".join([term.key, term.operator, *sorted(term.values)])
        for term in selector
    )
