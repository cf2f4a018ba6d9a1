"""Objects on the embedded API server, their state, and its kubeconfig."""

import json
from pathlib import Path
from typing import Any

from tests.stage.waiting import PATIENCE_SECONDS, until

from fake_apiserver import ApiServer, LoggedRequest, kubeconfig, node_object

Json = dict[str, Any]

KEY = "maintenance"


def tolerates(seconds: int | None = None, key: str = KEY) -> Json:
    """Return a toleration, without a limit if ``seconds`` is None."""
    toleration: Json = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


def add_nodes(server: ApiServer, *names: str) -> None:
    """Create ready nodes."""
    for name in names:
        server.create("nodes", node_object(name, server.clock.timestamp()))


def add_pod(server: ApiServer, name: str, node: str | None, *tolerations: Json, **metadata: Any) -> str:
    """Create a pod, bound unless ``node`` is None, and return its UID."""
    spec: Json = {"containers": [{"name": "main", "image": "pause"}], "tolerations": list(tolerations)}
    if node is not None:
        spec["nodeName"] = node
    created = server.create("pods", {"metadata": {"name": name, **metadata}, "spec": spec})
    return str(created["metadata"]["uid"])


def add_pods(server: ApiServer, prefix: str, count: int, node: str, *tolerations: Json) -> list[str]:
    """Create ``count`` pods and return their names."""
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        add_pod(server, name, node, *tolerations)
    return names


def condition_of(server: ApiServer, name: str) -> Json:
    """Return a pod's DisruptionTarget condition, empty if it has none."""
    pod = server.get("pods", name) or {}
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found["type"] == "DisruptionTarget"), {})


def events_about(server: ApiServer, uid: str) -> list[str]:
    """Return the messages of the Kubernetes events about this pod."""
    return [event["message"] for event in server.list("events") if event["involvedObject"]["uid"] == uid]


def deletes(server: ApiServer, name: str | None = None) -> list[LoggedRequest]:
    """Return the DELETE requests for pods that have arrived, for one pod or all."""
    wanted = {} if name is None else {"name": name}
    return server.requests.select(verb="delete", resource="pods", **wanted)


async def deleted(server: ApiServer, *names: str, within_seconds: float = PATIENCE_SECONDS) -> float:
    """Wait until each of these pods is terminating or gone; return when the last DELETE for one of them arrived."""
    await until(lambda: all(is_leaving(server, name) for name in names), within_seconds)
    return max(deletes(server, name)[-1].arrived_at for name in names)


def is_leaving(server: ApiServer, name: str) -> bool:
    """Return whether a pod is terminating or gone."""
    pod = server.get("pods", name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


def write_kubeconfig(path: Path, server: ApiServer | str, token: str | None = None, **user: Any) -> Path:
    """Write a kubeconfig for a server or its URL, and return its path; ``user`` contains the credentials."""
    content = kubeconfig(server, token=token)
    content["users"][0]["user"] |= user
    path.write_text(json.dumps(content))
    return path
