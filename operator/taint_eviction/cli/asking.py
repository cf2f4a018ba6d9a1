"""How a running controller is asked: at a URL, or through the API server, which leads to the pod that holds the Lease.

Not here: what is asked for, and how answers are shown (``status``, ``explain``).
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import click
import orjson

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import Answer, ApiCalls, Call
from taint_eviction.adapters.credentials import CredentialsError, find_connection
from taint_eviction.adapters.lease import KubernetesLease
from taint_eviction.adapters.status_document import API_VERSION
from taint_eviction.cli.asking_values import HttpUrl
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import ElectionSettings

EXIT_USAGE, EXIT_UNANSWERED = 2, 3

_TIMEOUT_SECONDS = 10.0
# Where the manifests have the controller listen.
_PORT = 8080

Document = dict[str, Any]
Ask = Callable[[str, Mapping[str, str | int]], Awaitable[Document]]
CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_flag = partial(click.option, show_envvar=True, show_default=True)
_FLAGS = (
    _flag("--server", type=HttpUrl(), help="Ask this replica: where it listens, as http://127.0.0.1:8080."),
    _flag("--kubeconfig", help="Kubeconfig file. Without it: $KUBECONFIG, in-cluster, or ~/.kube/config."),
    _flag("--context", help="Context of the kubeconfig to use instead of its current one."),
    _flag("--lease-namespace", default=ElectionSettings().lease_namespace, help="Namespace of the controller's Lease."),
    _flag("--lease-name", default=ElectionSettings().lease_name, help="Its name. A dry run has one of its own."),
    _flag("--port", type=click.IntRange(1, 65535), default=_PORT, help="Port at which the leader's pod listens."),
    _flag("-o", "--output", type=click.Choice(["table", "json"]), default="table"),
)


class Unanswered(Exception):
    """Nobody answered, or not as a controller does; one line that says why and what to do."""


def ask_flags(command: CommandT) -> CommandT:
    """Give a command the flags that say whom to ask."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def ask(flags: Mapping[str, Any], answer: Callable[[Ask], Awaitable[None]]) -> None:
    """Let ``answer`` ask until it returns; end the command with 2 or 3 and a reason where that cannot be done."""
    set_up_logging("text", "warning")
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
    try:
        asyncio.run(_ask(flags, answer))
    except CredentialsError as error:
        _give_up(str(error), EXIT_USAGE)
    except Unanswered as error:
        _give_up(str(error), EXIT_UNANSWERED)
    except KeyboardInterrupt:
        click.echo()  # It is how a watch ends.


def _give_up(message: str, code: int) -> None:
    click.echo(f"taint-eviction: {message}", err=True)
    sys.exit(code)


async def _ask(flags: Mapping[str, Any], answer: Callable[[Ask], Awaitable[None]]) -> None:
    async with _at_url(flags["server"]) if flags["server"] else _by_lease(flags) as asking:
        await answer(asking)


def _document(body: object, where: str) -> Document:
    if isinstance(body, dict) and body.get("apiVersion") == API_VERSION:
        return body
    raise Unanswered(f"{where}: that is no answer of a taint-eviction controller, or of one of another version")


def put(write: Callable[[Document], list[str]], document: Document) -> list[str]:
    """Write an answer for people; raise ``Unanswered`` where it is not made as this version makes it."""
    try:
        return write(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unanswered("the answer is none of a taint-eviction controller of this version; see -o json") from error


# At a URL


@contextlib.asynccontextmanager
async def _at_url(url: str) -> AsyncIterator[Ask]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)) as session:

        async def asking(path: str, query: Mapping[str, str | int]) -> Document:
            try:
                async with session.get(url + path, params=query) as answer:
                    content = await answer.read()
            except TimeoutError:
                raise Unanswered(f"{url}: no answer within {_TIMEOUT_SECONDS:g} s") from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise Unanswered(f"{url} cannot be reached: {error}; does a controller --listen there?") from error
            if answer.status != 200:
                said = " ".join(content.decode("utf-8", "replace").split())[:200]
                raise Unanswered(f"{url + path} answers HTTP {answer.status}: {said}")
            with contextlib.suppress(ValueError):
                return _document(orjson.loads(content), url)
            return _document(None, url)

        yield asking


# Through the API server


@contextlib.asynccontextmanager
async def _by_lease(flags: Mapping[str, Any]) -> AsyncIterator[Ask]:
    clock = ServerClock()
    connection = await find_connection(flags["kubeconfig"], flags["context"], clock)
    calls = ApiCalls(connection.api_client(), _TIMEOUT_SECONDS, clock.heard_date, lambda *_: None)
    namespace, lease = flags["lease_namespace"], f"Lease {flags['lease_namespace']}/{flags['lease_name']}"
    store = KubernetesLease(calls, namespace, flags["lease_name"])

    async def asking(path: str, query: Mapping[str, str | int]) -> Document:
        """Ask whoever leads just now."""
        try:
            record = await store.read()
            if record is None:
                raise Unanswered(f"there is no {lease}: is the controller installed there? Or ask it by --server")
            if not record.holder:
                raise Unanswered(f"nobody holds the {lease}: no controller acts now; try again, or see its pods")
            # The identity is the host's name, which is a pod's own, and something random.
            pod = record.holder.rpartition("_")[0] or record.holder
            return _document(
                await _ask_pod(calls, namespace, pod, flags["port"], path, query), f"pod {namespace}/{pod}"
            )
        except CallFailed as error:
            raise Unanswered(f"{connection.where}: {connection.url}: {error}") from error

    try:
        yield asking
    finally:
        await connection.close()


async def _ask_pod(
    calls: ApiCalls, namespace: str, pod: str, port: int, path: str, query: Mapping[str, str | int]
) -> Any:
    url_path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}:{port}/proxy{path}"
    answer = await calls.make(Call("get", "pods/proxy", namespace, pod, url_path=f"{url_path}?{urlencode(query)}"))
    if answer.outcome is Outcome.DONE:
        return answer.body
    raise Unanswered(f"pod {namespace}/{pod} cannot be asked: {answer.failure}; {_advice(answer, port)}")


def _advice(answer: Answer, port: int) -> str:
    if answer.outcome is Outcome.ABSENT:
        return "the Lease's holder is no pod of that name, it may run on a host's network: ask it there by --server"
    if answer.status == 403:
        return "it takes a user who may get pods/proxy; or forward a port to it, and ask by --server"
    return f"does it listen on port {port} (--listen), for more than its own loopback?"
