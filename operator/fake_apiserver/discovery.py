"""Discovery documents, built from the table of kinds: what Kopf, client libraries and kubectl ask for first. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .resources import Kinds, ResourceType, group_versions, served_in
from .status import JsonObject, no_such_path

VERSION: Mapping[str, str] = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2+simulation",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def discovery_document(path: str, address: str, kinds: Kinds) -> JsonObject:
    """For a path below /api, /apis, /version or /openapi; `address` is host:port. Raises 404 for all others."""
    steps = tuple(step for step in path.split("/") if step)
    match steps:
        case ("version",):
            return dict(VERSION)
        case ("api",):
            return _api_versions(address, kinds)
        case ("apis",):
            groups = [_group(group, kinds) for group in group_versions(kinds) if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ("apis", group) if group in group_versions(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)}
        case ("api", version) if served_in(kinds, "", version):
            return _resource_list("", version, kinds)
        case ("apis", group, version) if served_in(kinds, group, version):
            return _resource_list(group, version, kinds)
        case ("openapi", "v3"):
            return {"paths": {_openapi_name(r): {"serverRelativeURL": f"/openapi/v3/{_openapi_name(r)}"}
                              for r in kinds.values()}}  # fmt: skip
        case ("openapi", "v3", *rest):
            return _openapi_v3("/".join(rest), kinds)
    raise no_such_path()


def serves(path: str, kinds: Kinds) -> bool:
    """Whether anything below this path's root is known; for the rest a real server has no Status, only a line."""
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["apis"] and len(steps) > 1:
        return steps[1] in group_versions(kinds)
    return steps[:1] in (["api"], ["apis"], ["version"], ["openapi"])


def _api_versions(address: str, kinds: Kinds) -> JsonObject:
    return {
        "kind": "APIVersions",
        "versions": group_versions(kinds)[""],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _group(group: str, kinds: Kinds) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in group_versions(kinds)[group]]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str, kinds: Kinds) -> JsonObject:
    resources: list[JsonObject] = []
    for resource in served_in(kinds, group, version):
        resources.append(_resource(resource))
        for subresource in resource.subresources:
            entry: JsonObject = {
                "name": f"{resource.plural}/{subresource.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": subresource.kind,
                "verbs": list(subresource.verbs),
            }
            if subresource.group:
                entry |= {"group": subresource.group, "version": subresource.version}
            resources.append(entry)
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _resource(resource: ResourceType) -> JsonObject:
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _openapi_name(resource: ResourceType) -> str:
    return resource.path.removeprefix("/")


def _openapi_v3(name: str, kinds: Kinds) -> JsonObject:
    """Just enough for kubectl to see that this server checks fields itself, so that it does not want schemas."""
    paths: JsonObject = {}
    for resource in kinds.values():
        if _openapi_name(resource) == name:
            scope = "/namespaces/{namespace}" if resource.namespaced else ""
            url = f"{resource.path}{scope}/{resource.plural}"
            paths[url] = {"post": _operation(resource)}
            paths[f"{url}/{{name}}"] = {"patch": _operation(resource), "put": _operation(resource)}
    if not paths:
        raise no_such_path()
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": paths}


def _operation(resource: ResourceType) -> JsonObject:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": n, "in": "query", "schema": {"type": "string"}} for n in ("dryRun", "fieldValidation")]
    return {"x-kubernetes-group-version-kind": kind, "parameters": parameters, "responses": {}}
