"""A kubeconfig for the server, as a dict. The caller writes files."""

from __future__ import annotations

import base64
from typing import Protocol

from .status import JsonObject


class Addressable(Protocol):
    """The parts of a server that a kubeconfig needs."""

    @property
    def url(self) -> str: ...


def kubeconfig(
    server: Addressable | str,
    *,
    token: str | None = None,
    ca_certificate: bytes | None = None,
    namespace: str = "default",
) -> JsonObject:
    """For a server or its URL; without `ca_certificate` (PEM) a TLS server is trusted blindly."""
    url = server if isinstance(server, str) else server.url
    cluster: JsonObject = {"server": url}
    if ca_certificate is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_certificate).decode()
    elif url.startswith("https:"):
        cluster["insecure-skip-tls-verify"] = True
    name = "simulation"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
    }
