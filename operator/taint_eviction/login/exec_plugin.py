"""Runs the exec credential plugin of a kubeconfig as kubectl does, but never interactively and with a timeout.

The runner of ``kubernetes.aio`` (``ExecProvider``) waits indefinitely, leaves the process behind when it is cancelled,
and hides errors. This module stores nothing: ``token_sources`` decides when the plugin runs again.

Reference: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from taint_eviction.core.text import one_line
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.login.token_sources import CredentialsError

# Plugins call identity providers over the network; kubectl waits for them indefinitely.
_PLUGIN_SECONDS = 60.0


class PluginAnswer(NamedTuple):
    """The answer of a plugin: a token, or a client certificate with its key (PEM), or both. None for what is absent."""

    token: str | None
    certificate: str | None
    key: str | None
    expires_epoch: float | None


async def run_exec_plugin(spec: Mapping[str, Any], cluster: Mapping[str, Any], directory: Path) -> PluginAnswer:
    """Run the plugin that ``spec`` (``users[].user.exec``) describes; raise ``CredentialsError`` if it fails.

    ``cluster`` is passed to the plugin if ``spec`` asks for it. A relative path of a command begins at ``directory``,
    that of the kubeconfig.
    """
    command, version = spec.get("command"), spec.get("apiVersion")
    if not isinstance(command, str) or not command or not isinstance(version, str):
        raise CredentialsError("the kubeconfig's exec section lacks command or apiVersion")
    if os.sep in command:
        command = str(directory / command)
    args = [str(argument) for argument in spec.get("args") or ()]
    out = await _run(command, args, _environment(spec, version, cluster), str(spec.get("installHint") or ""))
    return _read_answer(out, command, version)


def _environment(spec: Mapping[str, Any], version: str, cluster: Mapping[str, Any]) -> dict[str, str]:
    request: dict[str, Any] = {"interactive": False}
    if spec.get("provideClusterInfo"):
        request["cluster"] = dict(cluster)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": request}
    own = {str(item["name"]): str(item["value"]) for item in spec.get("env") or () if isinstance(item, Mapping)}
    return {**os.environ, **own, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}


async def _run(command: str, args: list[str], environment: dict[str, str], hint: str) -> bytes:
    try:
        running = await asyncio.create_subprocess_exec(
            command,
            *args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        advice = one_line(hint) or "install it, or correct the exec section of the kubeconfig"
        raise CredentialsError(f"cannot run the exec plugin {command}: {error}; {advice}") from error
    try:
        async with asyncio.timeout(_PLUGIN_SECONDS):
            out, complaints = await running.communicate()
    except TimeoutError:
        raise CredentialsError(f"the exec plugin {command} did not end within {_PLUGIN_SECONDS:g} s") from None
    finally:
        if running.returncode is None:
            # Including the processes that it started: the wait would last as long as any of them holds the pipes.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            await running.wait()
    if running.returncode != 0:
        lines = complaints.decode("utf-8", "replace").strip().splitlines() or ["no output"]
        raise CredentialsError(f"the exec plugin {command} failed with {running.returncode}: {one_line(lines[-1])}")
    return out


def _read_answer(out: bytes, command: str, version: str) -> PluginAnswer:
    try:
        credential = orjson.loads(out)
        status = credential["status"]
        given = [status.get(field) for field in ("token", "clientCertificateData", "clientKeyData")]
        expires = status.get("expirationTimestamp")
    except (ValueError, TypeError, LookupError, AttributeError):
        raise CredentialsError(f"the exec plugin {command} did not print an ExecCredential with a status") from None
    if credential.get("apiVersion") != version:
        raise CredentialsError(
            f"the exec plugin {command} answers in {credential.get('apiVersion')}, the kubeconfig says {version}"
        )
    token, certificate, key = (value if isinstance(value, str) and value else None for value in given)
    if token is None and (certificate is None or key is None):
        raise CredentialsError(f"the exec plugin {command} returned neither a token nor a certificate with its key")
    return PluginAnswer(token and token.strip(), certificate, key, parse_rfc3339(expires))
