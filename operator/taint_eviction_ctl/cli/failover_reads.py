"""The reads that ``explain`` and ``status`` make from a cluster themselves, with the rights of the current user.
They do not ask the controller, which needs no rights for them. The findings and their texts are in ``failover``.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import click

from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.core.objects import NamespacedName
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction_ctl.cli.asking import Document, located, put
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.failover_views import stuck_lines, terminating_line
from taint_eviction_ctl.cli.reaching import reaching
from taint_eviction_ctl.failover.cluster import FailoverReader
from taint_eviction_ctl.failover.document import free_document, held_document, stuck_document, unread_document
from taint_eviction_ctl.failover.wording import not_allowed

# The status does not wait longer for a secondary line.
_COUNT_SECONDS = 3.0


@contextlib.asynccontextmanager
async def _reading(flags: Mapping[str, Any]) -> AsyncIterator[FailoverReader]:
    """Reach the cluster of the kubeconfig; raise ``CredentialsError`` or, with its place, ``CallFailed``."""
    async with reaching(flags) as cluster:
        try:
            yield FailoverReader(cluster.calls, lambda: cluster.clock.now().server_epoch, cluster.connection.where)
        except CallFailed as error:
            raise located(cluster.where, error) from error


async def examine(key: NamespacedName, flags: Mapping[str, Any]) -> Document:
    """Return what holds a pod, as a document; the document says so if that cannot be read."""
    try:
        async with _reading(flags) as reader:
            pod = await reader.read_pod(key)
            if pod is None or pod.deletion_epoch is None:
                return {**free_document(pod), "unchecked": []}
            case = await reader.read_case(pod)
            return {**held_document(case), "unchecked": reader.unchecked}
    except CredentialsError as error:
        return unread_document(str(error))
    except CallFailed as error:
        return unread_document(_why(error, "Pods", "get"))


async def count_terminating(namespace: str, flags: Mapping[str, Any]) -> str:
    """Return a line that counts pods Terminating on nodes that are not Ready, or says why not; "" if there are none."""
    try:
        async with asyncio.timeout(_COUNT_SECONDS), _reading(flags) as reader:
            line = terminating_line(await reader.count_terminating(namespace))
            # The replica at --server may be of another cluster than the kubeconfig.
            return f"{line} (read with {reader.where})" if line and flags["server"] else line
    except TimeoutError:
        why = f"no answer within {_COUNT_SECONDS:g} s"
    except CredentialsError as error:
        why = str(error)
    except CallFailed as error:
        why = _why(error, "Nodes or Pods", "list")
    return f"pods Terminating on nodes that are not Ready could not be checked: {why}"


def show_stuck(namespace: str, output: str, flags: Mapping[str, Any]) -> None:
    """Print the pods that are stuck; end the command with 2 or 3 and a reason if they cannot be read."""
    set_up_logging("text", "warning")
    try:
        document = asyncio.run(_stuck(namespace, flags))
    except CredentialsError as error:
        give_up(ExitCode.USAGE, str(error))
    except CallFailed as error:
        narrower = "" if namespace or error.reason is not FailureReason.FORBIDDEN else "; -n asks for one namespace"
        give_up(ExitCode.UNREACHABLE, f"{error}{narrower}")
    if output == "table":
        click.echo("\n".join(put(stuck_lines, document)))
    else:
        echo_document(document, output)


async def _stuck(namespace: str, flags: Mapping[str, Any]) -> Document:
    async with _reading(flags) as reader:
        cases = await reader.read_stuck(namespace)
        return stuck_document(cases, reader.out_of_service, reader.unchecked, reader.now())


def _why(error: CallFailed, kind: str, verb: str) -> str:
    return not_allowed(kind, verb) if error.reason is FailureReason.FORBIDDEN else str(error)
