"""What a request is about, read off its method, path and query, in Kubernetes' terms. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .resources import RESOURCES, Kinds, ResourceType

_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """`resource` is None for discovery, probes and paths that are not served; `namespace` "" means all or none."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    verb: str = ""
    resource: ResourceType | None = None
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def resource_name(self) -> str:
        """`pods`, `pods/status`, or the path of what is no resource."""
        if self.resource is None:
            return self.path
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"


def parse_request(method: str, path: str, query: Mapping[str, str], kinds: Kinds = RESOURCES) -> RequestInfo:
    """Never fails: what is not understood has no resource."""
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["api"] and len(steps) > 1:
        group, version, rest = "", steps[1], steps[2:]
    elif steps[:1] == ["apis"] and len(steps) > 2:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        return _no_resource(method, path, query)
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] in kinds:
        namespace, rest = rest[1], rest[2:]
    resource = kinds.get(rest[0]) if rest else None
    if resource is None or (resource.group, resource.version) != (group, version):
        return _no_resource(method, path, query)
    if len(rest) > 3 and rest[2] != "proxy":
        return _no_resource(method, path, query)
    if bool(namespace) and not resource.namespaced:
        return _no_resource(method, path, query)
    name, subresource = (rest[1:2] or [""])[0], (rest[2:3] or [""])[0]
    verb = (_ONE if name else _MANY).get(method, method.lower())
    if verb in {"list", "get"} and query.get("watch") in {"true", "1"}:
        verb = "watch"
    return RequestInfo(method, path, query, verb, resource, subresource, namespace, name)


def _no_resource(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    return RequestInfo(method, path, query, _ONE.get(method, method.lower()))
