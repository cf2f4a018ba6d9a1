"""Shared by pause, resume and breaker: the changes of the control state, and the sentences about it.
They write the state ConfigMap, which every replica polls; they contact no controller.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from taint_eviction.cli.connection import KUBECONFIG_FLAGS, LEASE_FLAGS, CommandT, with_flags
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.visible import complain
from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.core.sentences import bracketed
from taint_eviction.kube.api_calls import ApiCalls
from taint_eviction.kube.state_config_map import StateConfigMap, UnusableState
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.reporting.status_document import utc_text
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import Settings
from taint_eviction_ctl.cli.asking import advice
from taint_eviction_ctl.cli.reaching import reaching

# If more were paused together, only the first are named.
MAX_NAMES = 3
_FLAGS = (*KUBECONFIG_FLAGS, *LEASE_FLAGS)


def state_flags(command: CommandT) -> CommandT:
    """Add the flags that say where the control state is kept."""
    return with_flags(command, _FLAGS)


@dataclass(frozen=True, slots=True)
class Reached:
    """A reached cluster: its control state, its other objects, its time, and its address.
    ``user``: the user in the kubeconfig. ``learn_time`` lets several connections say what time it is.
    """

    state: StateConfigMap
    calls: ApiCalls
    clock: ServerClock
    where: str
    user: str
    learn_time: Callable[[], Awaitable[None]]


def change_control_state(
    flags: Mapping[str, Any], change: Callable[[Reached], Awaitable[ExitCode]], *, only_asks: bool = False
) -> None:
    """Reach the cluster, make the change, and end with its exit code, or with 2 or 3 and a reason.

    ``only_asks``: it changes nothing, and what is said of the connection says so.
    """
    set_up_logging("text", "warning")
    try:
        sys.exit(asyncio.run(_reach(flags, change, "asking" if only_asks else "acting on")))
    except (CredentialsError, UnusableState) as error:
        give_up(ExitCode.USAGE, str(error))
    except CallFailed as error:
        give_up(ExitCode.UNREACHABLE, str(error))


async def _reach(flags: Mapping[str, Any], change: Callable[[Reached], Awaitable[ExitCode]], does: str) -> ExitCode:
    async with reaching(flags, Settings().call_timeout_seconds) as cluster:
        connection, where = cluster.connection, cluster.where
        complain(f"{does} {connection.url} ({connection.where}) as {connection.user}")
        state = StateConfigMap(cluster.calls, flags["lease_namespace"], flags["lease_name"])
        try:
            return await change(
                Reached(state, cluster.calls, cluster.clock, where, connection.user, cluster.learn_time)
            )
        except UnusableState as error:
            raise UnusableState(f"{where}: {error}; nothing was changed") from error
        except CallFailed as error:
            raise CallFailed(f"{where}: {error}; {_advice(error, state)}") from error


def _advice(error: CallFailed, state: StateConfigMap) -> str:
    match error.reason:
        case FailureReason.FORBIDDEN:
            return f"this needs the rights to get, create and patch configmaps, at least {state}"
        case FailureReason.NOT_FOUND:
            return "is this the namespace of the controller's Lease?"
        case _:
            return advice(error) or "try again"


# Words


def in_force(control_state: ControlState, scope: PauseScope, how: str = "") -> str:
    """Return a sentence on whether the scope is paused; ``how`` is an adverb, as in "still paused"."""
    pause = control_state.pauses().get(scope)
    if pause is None:
        return "there is no pause of all evictions" if scope.kind == "all" else f"{scope} have no pause of their own"
    return f"{_subject(scope)} {f'are {how}'.rstrip()} paused{_object(scope)}{_since(pause)}"


def named(scopes: Collection[PauseScope]) -> str:
    """Return these scopes in one line: the first, and that there are more."""
    first = ", ".join(map(str, islice(scopes, MAX_NAMES)))
    return f"{first}, …" if len(scopes) > MAX_NAMES else first


def no_longer(scope: PauseScope, before: Pause) -> str:
    """Return a sentence that a pause has ended."""
    return f"{_subject(scope)} are no longer paused{_object(scope)}{_since(before)}"


def no_longer_lines(scopes: Sequence[PauseScope], before: ControlState, after: ControlState) -> list[str]:
    """Return what has ended of these pauses; those that were made together share a line."""
    pauses, together = before.pauses(), defaultdict[tuple[str, Pause], list[str]](list)
    for scope in scopes:
        if scope in pauses:
            together[scope.kind, pauses[scope]].append(scope.name)
    lines = []
    for scope in scopes:
        was = pauses.get(scope)
        names = [] if was is None else together[scope.kind, was]
        if was is None:
            lines.append(in_force(after, scope))
        elif len(names) <= MAX_NAMES:
            lines.append(no_longer(scope, was))
        elif scope.name == names[0]:
            lines.append(f"evictions are no longer paused for {some(scope.kind, names)}{_since(was)}")
    return lines


def held_back(control_state: ControlState, how: str = "", passing: str = "") -> list[str]:
    """Return what holds evictions: one line for each pause and one for an open breaker; no line if nothing does.
    ``how`` is an adverb, as in "still paused". ``passing``: which evictions pass the breaker, "": none.
    """
    by_pause: dict[tuple[str, Pause], list[PauseScope]] = {}
    for scope, pause in control_state.pauses().items():
        by_pause.setdefault((scope.kind, pause), []).append(scope)
    lines = []
    for (kind, pause), scopes in by_pause.items():
        if len(scopes) <= MAX_NAMES:
            lines += [in_force(control_state, scope, how) for scope in scopes]
        else:
            are = f"are {how}".rstrip()
            lines.append(f"evictions {are} paused for {some(kind, [scope.name for scope in scopes])}{_since(pause)}")
    if control_state.latch is not None:
        are = f"are {how}".rstrip()
        open_breaker = breaker("is open", control_state.latch)
        whose = f"evictions, except {passing}," if passing else "all evictions"
        lines.append(f"{whose} {are} stopped: {open_breaker}; see taint-eviction breaker")
    return lines


def breaker(verb: str, latch: Latch) -> str:
    """Return a sentence on the state of the breaker (``verb``: is or was), since when and why."""
    return f"the circuit breaker {verb}{bracketed(latch, utc_text)}"


def _subject(scope: PauseScope) -> str:
    return "all evictions" if scope.kind == "all" else "evictions"


def _object(scope: PauseScope) -> str:
    match scope.kind:
        case "all":
            return ""
        case "selector":
            return f" for {scope.nodes}"
        case "node":
            return f" for node {scope.name}"
        case "namespace":
            return f" for namespace {scope.name}"


def some(kind: str, names: Sequence[str]) -> str:
    """Return the number of nodes, namespaces or selectors that were paused together, with the names of the first."""
    of = "nodes of " if kind == "selector" else ""
    return f"{of}{len(names)} {kind}s ({', '.join(names[:MAX_NAMES])}, …)"


def _since(pause: Pause | None) -> str:
    return "" if pause is None else bracketed(pause, utc_text)
