"""Requests to a running controller: at a URL, or through the API server to the pod that holds the Lease.
``status`` and ``explain`` define the requests and show the answers.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import click

from taint_eviction.cli.connection import (
    KUBECONFIG_FLAGS,
    LEASE_FLAGS,
    PORT_FLAG,
    SERVER_FLAG,
    CommandT,
    flag,
    with_flags,
)
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.visible import visible_in
from taint_eviction.files.json_lists import CHUNK_BYTES, MOST_ITEM_BYTES, decode, read_bytes
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest, no_connection
from taint_eviction.kube.lease import KubernetesLease
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.reporting.status_document import API_VERSION
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import ElectionSettings
from taint_eviction_ctl.cli.flags import OUTPUT_FLAGS
from taint_eviction_ctl.cli.reaching import TIMEOUT_SECONDS, reaching

# A Lease whose time is over by more than this has been abandoned.
_LATE_RENEWAL_SECONDS = 5.0
SHADOW_LEASE = "taint-eviction-controller-dry-run"

# What is said of an answer that lacks what this version needs.
NOT_OURS = "this is not the answer of a taint-eviction controller of this version"

Document = dict[str, Any]
WrittenT = TypeVar("WrittenT")
Ask = Callable[[str, Mapping[str, str | int]], Awaitable[Document]]

_FLAGS = (SERVER_FLAG, *KUBECONFIG_FLAGS)
# The name in the overlay. The environment variable for the other verbs names another Lease.
_SHADOW_LEASE_FLAG = flag(
    "--lease-name", default=SHADOW_LEASE, show_envvar=False, allow_from_autoenv=False, help="Name of its Lease."
)


class Unanswered(Exception):
    """No controller answered; the message is one line that says why, and what to do. ``away``: nor does the API server
    answer.
    """

    def __init__(self, message: str, *, away: bool = False) -> None:
        super().__init__(message)
        self.away = away


def unanswered(where: str, error: CallFailed) -> Unanswered:
    """Return that the API server at ``where`` gave no answer on the controller."""
    return Unanswered(str(located(where, error)), away=error.reason is FailureReason.NO_ANSWER)


def located(where: str, error: CallFailed) -> CallFailed:
    """Return a failed call with the API server that it went to, and what to look at if that cannot be asked."""
    hint = advice(error)
    return CallFailed(f"{where}: {error}" + (f"; {hint}" if hint else ""), reason=error.reason)


def advice(error: CallFailed) -> str:
    """Return what to look at if the API server cannot be asked, "" if it answers."""
    match error.reason:
        case FailureReason.NO_ANSWER:
            return "is this the right cluster, and up?"
        case FailureReason.UNAUTHORIZED:
            return "are these credentials still good?"
        case _:
            return ""


def ask_flags(command: CommandT) -> CommandT:
    """Add the flags that select the controller to ask."""
    return with_flags(command, (*_FLAGS, *LEASE_FLAGS, PORT_FLAG, *OUTPUT_FLAGS))


def ask_shadow_flags(command: CommandT) -> CommandT:
    """Add the flags that select the dry run to ask."""
    return with_flags(command, (*_FLAGS, LEASE_FLAGS[0], _SHADOW_LEASE_FLAG, PORT_FLAG, *OUTPUT_FLAGS))


def ask(flags: Mapping[str, Any], answer: Callable[[Ask], Awaitable[None]]) -> None:
    """Run ``answer`` until it returns; end the command with 2 or 3 and a reason if it fails."""
    set_up_logging("text", "warning")
    try:
        asyncio.run(_ask(flags, answer))
    except CredentialsError as error:
        give_up(ExitCode.USAGE, str(error))
    except Unanswered as error:
        give_up(ExitCode.UNREACHABLE, str(error))
    except KeyboardInterrupt:
        click.echo()  # This is how --watch ends.


async def _ask(flags: Mapping[str, Any], answer: Callable[[Ask], Awaitable[None]]) -> None:
    async with asking_at(flags["server"]) if flags["server"] else _by_lease(flags) as asking:
        await answer(asking)


def _document(body: object, where: str) -> Document:
    if isinstance(body, dict) and body.get("apiVersion") == API_VERSION:
        return body
    raise Unanswered(f"{where}: {NOT_OURS}")


def next_page(page: Document) -> str:
    """Return the token of the next page, "" for none; raise ``Unanswered`` if it is no text."""
    token = page.get("continue") or ""
    if not isinstance(token, str):
        raise Unanswered(f"{NOT_OURS}: continue is no text")
    return token


def put(write: Callable[[Document], WrittenT], document: Document) -> WrittenT:
    """Format an answer for people; raise ``Unanswered`` if a field is missing or of another type."""
    try:
        return write(visible_in(document))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unanswered(f"{NOT_OURS}; see -o json") from error


# At a URL


@contextlib.asynccontextmanager
async def asking_at(url: str) -> AsyncIterator[Ask]:
    """Ask the replica at a URL."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:

        async def asking(path: str, query: Mapping[str, str | int]) -> Document:
            try:
                async with session.get(url + path, params=query) as answer:
                    content = await read_bytes(answer.content.iter_chunked(CHUNK_BYTES), MOST_ITEM_BYTES)
            except TimeoutError:
                raise Unanswered(f"{url}: no answer within {TIMEOUT_SECONDS:g} s") from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                why = no_connection(error)
                raise Unanswered(f"{url} cannot be reached: {why}; does a controller --listen there?") from error
            if answer.status != 200:
                said = " ".join(content.decode("utf-8", "replace").split())[:200]
                raise Unanswered(f"{url + path} answers HTTP {answer.status}: {said}")
            with contextlib.suppress(ValueError):
                return _document(decode(content), url)
            return _document(None, url)

        yield asking


# Through the API server


@contextlib.asynccontextmanager
async def _by_lease(flags: Mapping[str, Any]) -> AsyncIterator[Ask]:
    async with reaching(flags) as cluster:
        yield asking_leader(cluster.calls, cluster.where, flags, or_dry_run=cluster.clock)


def may_be_dry_run(flags: Mapping[str, Any]) -> bool:
    """Return whether a dry run may answer where no controller does: nobody has named another Lease."""
    return bool(flags["lease_name"] == ElectionSettings().lease_name)


def asking_leader(
    calls: ApiCalls, where: str, flags: Mapping[str, Any], *, or_dry_run: ServerClock | None = None
) -> Ask:
    """Return a function that asks the leader through the API server; ``where`` names that server in messages.
    ``or_dry_run``: if no controller leads by this clock, that of the dry run, which its documents say.
    """
    namespace, lease = flags["lease_namespace"], f"Lease {flags['lease_namespace']}/{flags['lease_name']}"
    store = KubernetesLease(calls, namespace, flags["lease_name"])
    shadow = KubernetesLease(calls, namespace, SHADOW_LEASE) if may_be_dry_run(flags) else None

    async def asking(path: str, query: Mapping[str, str | int]) -> Document:
        """Ask the replica that holds the Lease now."""
        try:
            record = await store.read()
            if (
                shadow is not None
                and or_dry_run is not None
                and (
                    record is None
                    or not record.holder
                    or _is_over(record.renewed_epoch, record.duration_seconds, or_dry_run)
                )
            ):
                dry = await shadow.read()
                record = dry if dry is not None and dry.holder else record
            if record is None:
                raise Unanswered(
                    f"there is no {lease}: is the controller installed there? status --server asks a replica directly"
                )
            if not record.holder:
                raise Unanswered(
                    f"nobody holds the {lease}: no replica acts now; try again, or look at the controller's pods"
                )
            # The identity consists of the host's name, which in a pod is the pod's name, and a random part.
            pod = record.holder.rpartition("_")[0] or record.holder
            return _document(
                await _ask_pod(calls, namespace, pod, flags["port"], path, query), f"pod {namespace}/{pod}"
            )
        except CallFailed as error:
            raise unanswered(where, error) from error

    return asking


def _is_over(renewed_epoch: float, duration_seconds: float, clock: ServerClock) -> bool:
    """Return whether the time of a Lease is over: nobody renews one that is left of an earlier installation."""
    return clock.now().server_epoch - renewed_epoch > duration_seconds + _LATE_RENEWAL_SECONDS


@contextlib.asynccontextmanager
async def asking_all(flags: Mapping[str, Any], label: str) -> AsyncIterator[tuple[list[Ask], bool]]:
    """Ask each running pod of the controller in the Lease's namespace; with whether these are all of them."""
    namespace = flags["lease_namespace"]

    def at(pod: str) -> Ask:
        async def asking(path: str, query: Mapping[str, str | int]) -> Document:
            body = await _ask_pod(cluster.calls, namespace, pod, flags["port"], path, query)
            return _document(body, f"pod {namespace}/{pod}")

        return asking

    async def leader(path: str, query: Mapping[str, str | int]) -> Document:
        async with _by_lease(flags) as asking:
            return await asking(path, query)

    async with reaching(flags) as cluster:
        try:
            answer = await cluster.calls.make(ApiRequest("list", "pods", namespace, query={"labelSelector": label}))
        except CallFailed as error:
            raise unanswered(cluster.where, error) from error
        # A user that may not list pods, or whose pods have other labels, asks the leader only.
        names = _running(answer.body) if answer.outcome is Outcome.DONE else []
        yield [at(name) for name in names] or [leader], bool(names)


def _running(body: Any) -> list[str]:
    """Return the names of the running pods in a list; a malformed list has none."""
    items = body.get("items") if isinstance(body, dict) else None
    pods = [pod for pod in items or () if isinstance(pod, dict)]
    # A node's kubelet may create pods with any labels, but none with an account.
    pods = [pod for pod in pods if (pod.get("spec") or {}).get("serviceAccountName")] or pods
    parts = [(pod.get("metadata") or {}, pod.get("status") or {}) for pod in pods]
    return [str(metadata["name"]) for metadata, status in parts if "name" in metadata and _runs(status)]


def _runs(status: Mapping[str, Any]) -> bool:
    return status.get("phase") == "Running"


async def _ask_pod(
    calls: ApiCalls, namespace: str, pod: str, port: int, path: str, query: Mapping[str, str | int]
) -> Any:
    url_path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}:{port}/proxy{path}"
    answer = await calls.make(
        ApiRequest("get", "pods/proxy", namespace, pod, url_path=f"{url_path}?{urlencode(query)}")
    )
    if answer.outcome is Outcome.DONE:
        return answer.body
    raise Unanswered(f"pod {namespace}/{pod} does not answer: {answer.failure}; {_advice(answer, port)}")


def _advice(answer: ApiAnswer, port: int) -> str:
    if answer.outcome is Outcome.ABSENT:
        return "no pod has the name of the Lease's holder: it may use its host's network; ask it with status --server"
    if answer.lacks_right:
        return "this needs the right to get pods/proxy; or forward a port, and ask with status --server"
    return (
        f"does it listen on port {port} (--listen), and not on loopback alone?"
        " Does a NetworkPolicy let the API server in?"
    )
