"""What Roles allow."""

from typing import Any, NamedTuple

from fake_apiserver.request_info import RequestInfo


class Grant(NamedTuple):
    """One verb on one resource. ``namespace`` "" means all, ``name`` "" any."""

    group: str
    resource: str
    verb: str
    namespace: str
    name: str

    def covers(self, info: RequestInfo) -> bool:
        """Return whether this right allows a request."""
        assert info.resource is not None
        asked = (info.resource.group, info.resource_name, info.verb)
        if asked != (self.group, self.resource, self.verb):
            return False
        return self.namespace in {"", info.namespace} and self.name in {"", info.name}


def grants_of(role: dict[str, Any]) -> list[Grant]:
    """Return the rights in a Role for kube-system, or in a ClusterRole."""
    return [
        Grant(group, resource, verb, "kube-system" if role["kind"] == "Role" else "", name)
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    ]
