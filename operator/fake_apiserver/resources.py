"""The table of kinds that each server serves, and custom kinds; routes, discovery and update rules are read off them.

Nothing here knows objects or requests. Reference: the `strategy.go` of each kind in kubernetes/pkg/registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Subresource:
    """`kind`, `group` and `version` are those of the body, which differ from the parent's for evictions."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One kind, and what the API server's strategy for it allows."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    storage_prefix: str = ""
    kept_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field labels whose values are kept beside the encoded object, so that selecting needs no decoding."""
    other_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field labels that are selectable too, but at the price of decoding the object."""
    has_generation: bool = False
    create_on_update: bool = False
    unconditional_update: bool = True
    returns_deleted_object: bool = False
    custom: bool = False
    """Made by a CustomResourceDefinition, which knows no strategic merge patch."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """URL prefix of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def has_status(self) -> bool:
        """Whether status is written through a subresource of its own only."""
        return any(subresource.name == "status" for subresource in self.subresources)

    @property
    def head(self) -> bytes:
        """How the JSON of each object begins."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    def key(self, namespace: str, name: str) -> str:
        """The storage key, whose order is the order of lists."""
        return f"{namespace}/{name}" if self.namespaced else name


def _status(kind: str) -> Subresource:
    return Subresource("status", kind, ("get", "patch", "update"))


_TABLE = (
    ResourceType(
        "", "v1", "nodes", "node", "Node", False, ("no",), subresources=(_status("Node"),),
        storage_prefix="minions", other_fields={"spec.unschedulable": ("spec", "unschedulable")},
    ),
    ResourceType(
        "", "v1", "pods", "pod", "Pod", True, ("po",), ("all",),
        subresources=(
            _status("Pod"),
            Subresource("binding", "Binding", ("create",)),
            Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
            Subresource("proxy", "PodProxyOptions", ("get",)),
        ),
        kept_fields={"spec.nodeName": ("spec", "nodeName"), "status.phase": ("status", "phase")},
        other_fields={
            "spec.restartPolicy": ("spec", "restartPolicy"),
            "spec.schedulerName": ("spec", "schedulerName"),
            "spec.serviceAccountName": ("spec", "serviceAccountName"),
            "spec.hostNetwork": ("spec", "hostNetwork"),
            "status.podIP": ("status", "podIP"),
            "status.nominatedNodeName": ("status", "nominatedNodeName"),
        },
        has_generation=True, returns_deleted_object=True,
    ),
    ResourceType(
        "", "v1", "events", "event", "Event", True, ("ev",), create_on_update=True,
        kept_fields={
            "involvedObject.kind": ("involvedObject", "kind"),
            "involvedObject.namespace": ("involvedObject", "namespace"),
            "involvedObject.name": ("involvedObject", "name"),
            "involvedObject.uid": ("involvedObject", "uid"),
            "reason": ("reason",),
            "type": ("type",),
            "source": ("source", "component"),
        },
        other_fields={
            "involvedObject.apiVersion": ("involvedObject", "apiVersion"),
            "involvedObject.resourceVersion": ("involvedObject", "resourceVersion"),
            "involvedObject.fieldPath": ("involvedObject", "fieldPath"),
            "reportingComponent": ("reportingComponent",),
        },
    ),
    ResourceType("", "v1", "configmaps", "configmap", "ConfigMap", True, ("cm",)),
    ResourceType(
        "", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", True, ("pvc",),
        subresources=(_status("PersistentVolumeClaim"),),
    ),
    ResourceType(
        "", "v1", "namespaces", "namespace", "Namespace", False, ("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(_status("Namespace"),), kept_fields={"status.phase": ("status", "phase")},
    ),
    ResourceType(
        "policy", "v1", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget", True, ("pdb",),
        subresources=(_status("PodDisruptionBudget"),), has_generation=True, unconditional_update=False,
    ),
    ResourceType(
        "storage.k8s.io", "v1", "volumeattachments", "volumeattachment", "VolumeAttachment", False,
        subresources=(_status("VolumeAttachment"),),
    ),
    ResourceType(
        "coordination.k8s.io", "v1", "leases", "lease", "Lease", True,
        create_on_update=True, unconditional_update=False,
    ),
    ResourceType(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", False,
    ),
)  # fmt: skip

Kinds = Mapping[str, ResourceType]

RESOURCES: Kinds = {resource.plural: resource for resource in _TABLE}
"""The kinds that every server has, by plural, which is unique among the kinds of a server."""


def custom_resource(
    api_version: str, kind: str, *, plural: str = "", namespaced: bool = True, short_names: tuple[str, ...] = ()
) -> ResourceType:
    """A kind as a CustomResourceDefinition makes it, without a schema: every field is kept, and none is checked.

    `api_version` is "group/version"; `plural` "" is the kind in lower case with an s. Status is a subresource.
    """
    group, _, version = api_version.partition("/")
    if not version:
        raise ValueError(f"{api_version!r} is not group/version")
    singular = kind.lower()
    return ResourceType(
        group, version, plural or f"{singular}s", singular, kind, namespaced, short_names,
        subresources=(_status(kind),), has_generation=True, unconditional_update=False, custom=True,
    )  # fmt: skip


def with_custom(custom: Iterable[ResourceType]) -> Kinds:
    """The kinds of a server by plural; raises `ValueError` for a plural that is taken."""
    kinds = dict(RESOURCES)
    for resource in custom:
        if resource.plural in kinds:
            raise ValueError(f"two kinds have the plural {resource.plural}")
        kinds[resource.plural] = resource
    return kinds


def group_versions(kinds: Kinds) -> dict[str, list[str]]:
    """Served groups ("" is the core group) with their versions, in table order."""
    found: dict[str, list[str]] = {}
    for resource in kinds.values():
        versions = found.setdefault(resource.group, [])
        if resource.version not in versions:
            versions.append(resource.version)
    return found


def served_in(kinds: Kinds, group: str, version: str) -> list[ResourceType]:
    return [r for r in kinds.values() if r.group == group and r.version == version]
