"""``taint-eviction pause`` and ``resume``: hold evictions for a while, and let them go on."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, Call
from taint_eviction.adapters.orders_data import EVERYTHING, PauseScope, paused_scopes
from taint_eviction.cli.orders import (
    CONTEXT_SETTINGS,
    Reached,
    give_orders,
    in_force,
    no_longer,
    state_flags,
    still_held,
)
from taint_eviction.core.orders import Orders, Pause
from taint_eviction.runtime.ports import CallFailed

# Given several times: an environment twin could not tell one from two.
_many = partial(click.option, multiple=True, allow_from_autoenv=False)


@click.command(context_settings=CONTEXT_SETTINGS)
@_many("--node", metavar="NAME", help="Hold the evictions from this node only; may be given again.")
@_many("--namespace", "-n", metavar="NS", help="Hold the evictions in this namespace only; may be given again.")
@click.option("--reason", default="", show_envvar=True, help="Why, for whoever asks later.")
@state_flags
def pause(**flags: Any) -> None:
    """Hold evictions until `taint-eviction resume`: all of them, or those from some nodes or in some namespaces.

    A running controller obeys within seconds, whichever replica leads. Deadlines go on running meanwhile: whoever is
    due leaves as soon as evictions are resumed. What is already on its way to the API server is not called back.

    What is paused already stays as it is. Exit code: 0 fine, 2 usage, 3 API server unreachable or rights missing.
    """
    scopes = _scopes(flags) or [EVERYTHING]
    give_orders(flags, lambda on: _pause(on, scopes, flags["reason"]))


@click.command(context_settings=CONTEXT_SETTINGS)
@_many("--node", metavar="NAME", help="Let evictions from this node go on; may be given again.")
@_many("--namespace", "-n", metavar="NS", help="Let evictions in this namespace go on; may be given again.")
@click.option("--all", "everything", is_flag=True, allow_from_autoenv=False, help="End all pauses there are.")
@state_flags
def resume(**flags: Any) -> None:
    """Let evictions go on that were held by `taint-eviction pause`.

    Without flags it ends the pause of all evictions, and leaves those of single nodes and namespaces. The circuit
    breaker is another thing: see `taint-eviction breaker`.

    Exit code: 0 fine, also if nothing was paused, 2 usage, 3 API server unreachable or rights missing.
    """
    scopes = _scopes(flags)
    if scopes and flags["everything"]:
        raise click.UsageError("--all ends every pause: name no node and no namespace beside it")
    give_orders(flags, lambda on: _resume(on, None if flags["everything"] else scopes or [EVERYTHING]))


def _scopes(flags: Mapping[str, Any]) -> list[PauseScope]:
    nodes = [PauseScope("node", name) for name in flags["node"]]
    scopes = nodes + [PauseScope("namespace", name) for name in flags["namespace"]]
    for problem in filter(None, map(PauseScope.problem, scopes)):
        raise click.UsageError(problem)
    return scopes


async def _pause(on: Reached, scopes: Sequence[PauseScope], reason: str) -> int:
    before = await on.state.read() or Orders()
    await on.state.set_pauses(dict.fromkeys(scopes, Pause(on.clock.now().server_epoch, reason)))
    after = await on.state.read() or Orders()
    for scope in scopes:
        click.echo(in_force(after, scope, "already" if scope.pause_in(before) is not None else ""))
    for scope in scopes:
        await _warn_if_absent(on.calls, scope)
    return 0


async def _resume(on: Reached, chosen: Sequence[PauseScope] | None) -> int:
    """Resume what is chosen, None for all that is paused."""
    before = await on.state.read() or Orders()
    scopes = paused_scopes(before) if chosen is None else chosen
    await on.state.set_pauses(dict.fromkeys(scopes))
    after = await on.state.read() or Orders()
    for scope in scopes:
        was = scope.pause_in(before)
        click.echo(in_force(after, scope) if was is None else no_longer(scope, was))
    if not scopes:
        click.echo("nothing is paused")
    for line in still_held(after):
        click.echo(line)
    return 0


async def _warn_if_absent(calls: ApiCalls, scope: PauseScope) -> None:
    """Say that there is no such node or namespace: it may come later, but most likely the name is mistyped."""
    if scope is EVERYTHING:
        return
    try:
        answer = await calls.make(Call("get", f"{scope.kind}s", name=scope.name))
    except CallFailed:
        return
    if answer.outcome is Outcome.ABSENT:
        click.echo(f"taint-eviction: there is no {scope.kind} {scope.name} in this cluster, or not yet", err=True)
