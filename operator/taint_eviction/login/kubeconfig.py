"""Reads kubeconfig files with the loader of ``kubernetes.aio``: the API server and the way to log in.

The loader knows the format: proxies, passwords, auth providers. This module adds four things. It checks the files
first, so that errors name the file and say what to do. It merges several files as kubectl does: the first file that
sets a value wins. It runs exec plugins with ``exec_plugin``. And it reads certificates itself, since the loader writes
keys that are inline to temporary files, and reads nothing twice.

Reference: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from taint_eviction.core.instants import Moment
from taint_eviction.core.text import did_you_mean, one_line
from taint_eviction.login.exec_plugin import run_exec_plugin
from taint_eviction.login.tls import TlsFiles
from taint_eviction.login.token_sources import CredentialsError, Renewed

# The loader raises these for faults in a file; it does not check types, and reads the files once more, which somebody
# may be writing.
_LOADER_ERRORS = (ConfigException, OSError, ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError)

# An auth provider of the old kind does not say when its token expires: it is asked this often.
_AUTH_PROVIDER_SECONDS = 60.0

_TLS_FIELDS = [
    f"{name}{data}" for name in ("certificate-authority", "client-certificate", "client-key") for data in ("", "-data")
]


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected context with its cluster and user as written, and the directory at which the user's paths begin."""

    files: tuple[Path, ...]
    context: str
    namespace: str | None
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    user_directory: Path
    user_name: str = ""
    cluster_directory: Path = Path()

    @property
    def where(self) -> str:
        """The context and the files, for messages."""
        return f'context "{self.context}" of {", ".join(map(str, self.files))}'


def split_paths(value: str) -> list[Path]:
    """Split a list of files as in KUBECONFIG."""
    return [Path(part).expanduser() for part in value.split(os.pathsep) if part]


def select(paths: Sequence[Path], context: str | None) -> Selected:
    """Read the files and select ``context``, the current one if None; raise ``CredentialsError``.

    As in kubectl, files that do not exist are skipped if another one exists.
    """
    found = {path: _read_file(path) for path in paths if path.exists()}
    if not found:
        raise CredentialsError(f"no such kubeconfig: {', '.join(map(str, paths))}")
    where = ", ".join(map(str, found))
    name = context or next((str(current) for file in found.values() if (current := file.get("current-context"))), None)
    contexts = _by_name(found, "contexts", "context")
    if name is None:
        raise CredentialsError(f"{where} has no current-context; choose one with --context: {_names(contexts)}")
    if name not in contexts:
        near = did_you_mean(name, contexts)
        raise CredentialsError(f'there is no context "{name}" in {where}{near}; there are: {_names(contexts)}')
    chosen, _ = contexts[name]
    cluster, cluster_file = _part(found, "clusters", "cluster", chosen, name)
    user, user_file = _part(found, "users", "user", chosen, name)
    namespace = chosen.get("namespace")
    return Selected(
        tuple(found),
        name,
        namespace if isinstance(namespace, str) and namespace else None,
        cluster,
        user,
        user_file.absolute().parent,
        str(chosen.get("user", "")),
        cluster_file.absolute().parent,
    )


def context_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of all contexts in these files; raise ``CredentialsError``."""
    return sorted(_by_name({path: _read_file(path) for path in paths if path.exists()}, "contexts", "context"))


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise CredentialsError(f"the kubeconfig {path}{place} is not valid YAML: {problem}") from error
    except (OSError, ValueError) as error:
        raise CredentialsError(f"cannot read the kubeconfig {path}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise CredentialsError(f"{path} is not a kubeconfig: it should be a mapping with clusters, contexts and users")
    return content


def _by_name(
    files: Mapping[Path, Mapping[str, Any]], section: str, key: str
) -> dict[str, tuple[Mapping[str, Any], Path]]:
    found: dict[str, tuple[Mapping[str, Any], Path]] = {}
    for path, content in files.items():
        entries = content.get(section) or []
        if not isinstance(entries, list):
            raise CredentialsError(f"{path} is not a kubeconfig: {section} should be a list")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise CredentialsError(f"{path} is not a kubeconfig: an entry of {section} has no name")
            part = entry.get(key) or {}
            if not isinstance(part, dict):
                raise CredentialsError(f'{path} is not a kubeconfig: {key} of "{entry["name"]}" should be a mapping')
            found.setdefault(entry["name"], (part, path))
    return found


def _part(
    files: Mapping[Path, Mapping[str, Any]], section: str, key: str, context: Mapping[str, Any], context_name: str
) -> tuple[Mapping[str, Any], Path]:
    name, parts = context.get(key), _by_name(files, section, key)
    if not isinstance(name, str) or name not in parts:
        raise CredentialsError(f'context "{context_name}" names the {key} "{name}"; there are: {_names(parts)}')
    return parts[name]


def _names(parts: Mapping[str, Any]) -> str:
    return ", ".join(sorted(parts)) or "none"


class Loader(KubeConfigLoader):
    """The loader of ``kubernetes.aio`` with ``exec_plugin`` as its runner. ``load`` may be called again."""

    def __init__(self, selected: Selected) -> None:
        self._selected = selected
        self.expires_epoch: float | None = None
        # The certificate and its key that the plugin has returned.
        self.certificate: tuple[str, str] | None = None
        self.configuration = Configuration()
        files = os.pathsep.join(map(str, _mappings(selected.files)))
        try:
            merged = KubeConfigMerger(files).config  # type: ignore[no-untyped-call]
            for part in ("cluster", "user"):
                for entry in merged.value[f"{part}s"]:
                    for field in _TLS_FIELDS:
                        (entry.value.get(part) or {}).pop(field, None)
            super().__init__(  # type: ignore[no-untyped-call]
                merged, active_context=selected.context, config_base_path=None
            )
        except _LOADER_ERRORS as error:
            raise CredentialsError(f"{selected.where}: {one_line(error)}") from error

    async def load(self, now: Moment) -> Renewed:
        """Fill ``configuration`` and return the credentials; raise ``CredentialsError``."""
        self.expires_epoch = None
        try:
            await self.load_and_set(self.configuration)  # type: ignore[no-untyped-call]
        except _LOADER_ERRORS as error:
            raise CredentialsError(f"{self._selected.where}: {one_line(error)}") from error
        if self.provider is not None:
            self.expires_epoch = now.server_epoch + _AUTH_PROVIDER_SECONDS
        value = self.configuration.api_key.get("BearerToken")
        return Renewed(value.strip() if value else None, self.expires_epoch)

    async def load_from_exec_plugin(self) -> bool:
        """Run the plugin: the loader calls this. Sets ``token``, or ``certificate``."""
        selected = self._selected
        answer = await run_exec_plugin(selected.user["exec"], cluster_info(selected), selected.user_directory)
        if answer.token is not None:
            self.token = f"Bearer {answer.token}"
        if answer.certificate is not None and answer.key is not None:
            self.certificate = answer.certificate, answer.key
        self.expires_epoch = answer.expires_epoch
        return True


def cluster_info(selected: Selected) -> dict[str, Any]:
    """Return the cluster as it is passed to an exec plugin."""
    cluster = selected.cluster
    fields = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {field: cluster[field] for field in fields if field in cluster}
    if "certificate-authority" in cluster and "certificate-authority-data" not in cluster:
        file = selected.cluster_directory / str(cluster["certificate-authority"])
        try:
            info["certificate-authority-data"] = base64.b64encode(file.read_bytes()).decode()
        except OSError as error:
            raise CredentialsError(f"cannot read the certificate authority {file}: {error}") from error
    return info


def read_tls(selected: Selected) -> TlsFiles:
    """Return the certificates; raise ``CredentialsError``. As in kubectl, what is inline counts before a file."""
    paths = list(selected.files)

    def pem(part: Mapping[str, Any], field: str, directory: Path) -> str | None:
        try:
            if data := part.get(f"{field}-data"):
                return base64.b64decode(data, validate=True).decode("ascii")
            if not (name := part.get(field)):
                return None
            paths.append(directory / name)
            return paths[-1].read_text("ascii")
        except (OSError, ValueError, TypeError) as error:
            raise CredentialsError(f"{selected.where}: {field} cannot be read: {one_line(error)}") from error

    return TlsFiles(
        pem(selected.cluster, "certificate-authority", selected.cluster_directory),
        pem(selected.user, "client-certificate", selected.user_directory),
        pem(selected.user, "client-key", selected.user_directory),
        not selected.cluster.get("insecure-skip-tls-verify"),
        tuple(paths),
    )


def read_at_start(selected: Selected) -> object:
    """Return what is read only at the start: which server is asked, and in which way the user logs in."""
    cluster = {field: value for field, value in selected.cluster.items() if field not in _TLS_FIELDS}
    return cluster, sorted(set(selected.user) & {"exec", "auth-provider", "tokenFile", "token", "username"})


def token_file(selected: Selected) -> Path | None:
    """Return the file from which the user's token is read again and again; None if there is none."""
    path = selected.user.get("tokenFile")
    return selected.user_directory / path if isinstance(path, str) and path else None


def _mappings(paths: Sequence[Path]) -> list[Path]:
    # The loader's merger fails on empty files.
    return [path for path in paths if _read_file(path)]
