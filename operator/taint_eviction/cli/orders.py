"""What the commands share that give orders to a running controller: how they reach it, and the words for what holds.

The way leads through the state ConfigMap, which every replica reads all the time: nothing is asked of a process.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click

from taint_eviction.adapters.api_calls import ApiCalls
from taint_eviction.adapters.credentials import CredentialsError, find_connection
from taint_eviction.adapters.kubernetes_times import format_rfc3339
from taint_eviction.adapters.orders_data import UNKNOWN_EPOCH, PauseScope, paused_scopes
from taint_eviction.adapters.state_config_map import StateConfigMap
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.core.orders import Latch, Orders, Pause
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import ElectionSettings, OrdersSettings, Settings

EXIT_OVERTAKEN, EXIT_USAGE, EXIT_CLUSTER = 1, 2, 3

CONTEXT_SETTINGS = {"auto_envvar_prefix": "TAINT_EVICTION"}

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_flag = partial(click.option, show_envvar=True, show_default=True)
_FLAGS = (
    _flag("--kubeconfig", help="Kubeconfig file. Without it: $KUBECONFIG, in-cluster, or ~/.kube/config."),
    _flag("--context", help="Context of the kubeconfig to use instead of its current one."),
    _flag(
        "--state-namespace",
        default=ElectionSettings().lease_namespace,
        help="Namespace of the ConfigMap by which the controller is told; that of its Lease.",
    ),
    _flag(
        "--state-name",
        default=OrdersSettings().name,
        help="Name of that ConfigMap; that of its Lease. A dry run has one of its own.",
    ),
)


def state_flags(command: CommandT) -> CommandT:
    """Give a command the flags that say where the orders are kept."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


@dataclass(frozen=True, slots=True)
class Reached:
    """A cluster that could be reached: where its orders are kept, its other objects, and its time."""

    state: StateConfigMap
    calls: ApiCalls
    clock: ServerClock


def give_orders(flags: Mapping[str, Any], give: Callable[[Reached], Awaitable[int]]) -> None:
    """Reach the cluster, give the orders and end with the exit code that they return, or with 2 or 3 and a reason."""
    set_up_logging("text", "warning")
    try:
        sys.exit(asyncio.run(_reach(flags, give)))
    except CredentialsError as error:
        _give_up(str(error), EXIT_USAGE)
    except CallFailed as error:
        _give_up(str(error), EXIT_CLUSTER)


def _give_up(message: str, code: int) -> None:
    click.echo(f"taint-eviction: {message}", err=True)
    sys.exit(code)


async def _reach(flags: Mapping[str, Any], give: Callable[[Reached], Awaitable[int]]) -> int:
    clock = ServerClock()
    connection = await find_connection(flags["kubeconfig"], flags["context"], clock)
    try:
        timeout_seconds = Settings().call_timeout_seconds
        calls = ApiCalls(connection.api_client(), timeout_seconds, clock.heard_date, lambda *_: None)
        state = StateConfigMap(calls, flags["state_namespace"], flags["state_name"])
        try:
            return await give(Reached(state, calls, clock))
        except CallFailed as error:
            raise CallFailed(f"{connection.where}: {connection.url}: {error}; {_advice(error, state)}") from error
    finally:
        await connection.close()


def _advice(error: CallFailed, state: StateConfigMap) -> str:
    match error.status:
        case None:
            return "is this the right cluster, and up?"
        case 401:
            return "are these credentials still good?"
        case 403:
            return f"it takes a user who may get, create and patch configmaps, at least {state}"
        case 404:
            return "is that the namespace of the controller's Lease?"
        case _:
            return "try again"


# Words


def in_force(orders: Orders, scope: PauseScope, how: str = "") -> str:
    """Say whether this is paused; ``how`` comes before the word, as in "still paused"."""
    pause = scope.pause_in(orders)
    verb = "not" if pause is None else how
    return f"{_subject(scope)} {' '.join(filter(None, ('are', verb, 'paused')))}{_object(scope)}{_since(pause)}"


def no_longer(scope: PauseScope, before: Pause) -> str:
    """Say that a pause has ended."""
    return f"{_subject(scope)} are no longer paused{_object(scope)}{_since(before)}"


def still_held(orders: Orders) -> list[str]:
    """Say all that holds evictions, a line each."""
    lines = [in_force(orders, scope, "still") for scope in paused_scopes(orders)]
    if orders.latch is not None:
        lines.append(f"all evictions are still held: {breaker('is open', orders.latch)}; see taint-eviction breaker")
    return lines


def breaker(verb: str, latch: Latch) -> str:
    """Say what the breaker is or was, since when and why."""
    return f"the circuit breaker {verb}{_told(latch.since_epoch, latch.cause)}"


def _subject(scope: PauseScope) -> str:
    return "all evictions" if scope.kind == "all" else "evictions"


def _object(scope: PauseScope) -> str:
    match scope.kind:
        case "all":
            return ""
        case "node":
            return f" for node {scope.name}"
        case "namespace":
            return f" for namespace {scope.name}"


def _since(pause: Pause | None) -> str:
    return "" if pause is None else _told(pause.since_epoch, pause.reason)


def _told(since_epoch: float | None, why: str) -> str:
    since = f"since {format_rfc3339(since_epoch)}" if since_epoch not in (None, UNKNOWN_EPOCH) else ""
    told = ": ".join(filter(None, (since, why)))
    return f" ({told})" if told else ""
