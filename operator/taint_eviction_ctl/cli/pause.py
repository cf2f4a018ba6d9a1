"""``taint-eviction pause`` and ``resume``: stop evictions for a while, and resume them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import click

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain
from taint_eviction.core.control_state import EVERYTHING, ControlState, Pause, PauseScope, Release
from taint_eviction.core.text import JsonObject, did_you_mean
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.control_state_data import problem_of
from taint_eviction.kube.item_lists import list_items
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.control_state import (
    Reached,
    change_control_state,
    held_back,
    in_force,
    no_longer,
    no_longer_lines,
    state_flags,
)
from taint_eviction_ctl.cli.flags import repeated_flag, verb
from taint_eviction_ctl.cli.releasing import count_going, must_agree, release_flags, tell_leader, told
from taint_eviction_ctl.planning.wording import many

# Only a clock that was never set is wrong by this much.
_MAX_OFF_SECONDS = 30 * 86_400.0

# kubectl's names of the kinds that can be paused.
_KINDS: Mapping[str, Literal["node", "namespace"]] = {
    **dict.fromkeys(("node", "nodes", "no"), "node"),
    **dict.fromkeys(("namespace", "namespaces", "ns"), "namespace"),
}
_SCOPES = click.argument("scopes", metavar="[node/NAME|namespace/NAME]...", nargs=-1)


@verb()
@_SCOPES
@repeated_flag("--node", metavar="NAME", help="Pause evictions from this node only; may be given again.")
@repeated_flag("--namespace", "-n", metavar="NS", help="Pause evictions in this namespace only; may be given again.")
@click.option("--all", "everything", is_flag=True, allow_from_autoenv=False, help="Pause all evictions, as without it.")
@click.option(
    "--for",
    "seconds",
    type=Seconds(),
    allow_from_autoenv=False,
    help="End by itself after so long, as 30m, by the API server's time. Without this: by `resume`.",
)
@flag("--reason", default="", show_default=False, help="Why; status and explain show it.")
@click.option("--force", is_flag=True, allow_from_autoenv=False, help="Also pause nodes that are not there yet.")
@state_flags
def pause(**flags: Any) -> None:
    """Pause evictions, all or some.

    Without flags this pauses all evictions, until `taint-eviction resume`. A node that does not exist is refused, since
    most likely it is misspelled; --force pauses it before it joins.

    The pause takes effect within seconds, whichever replica leads. Requests that the controller has already sent to
    the API server cannot be cancelled. Deadlines keep running: after a resume, pods whose deadline has passed are
    evicted at once. This command asks nothing, and works while no controller runs: a controller that starts later
    obeys the pause. The pause records who paused, by the name of the user in the kubeconfig. A pause that is
    already in force keeps its time and reason, unless the new one lasts longer. With --for, a running controller
    uses its own clock, whatever happens to the API server's. A controller that starts later has only the API
    server's time: a pause ends early if that clock was set forward meanwhile. If the API server's time is wrong by
    years, the pause does not end by itself, and this command says so.

    Exit codes: 0 paused; 2 wrong usage, or there is no such node; 3 the API server cannot be reached, or rights are
    missing.
    """
    scopes = _scopes(flags)
    if scopes and flags["everything"]:
        raise click.UsageError("--all pauses everything: it takes no node and no namespace")
    scopes = scopes or [EVERYTHING]
    if flags["seconds"] is not None and flags["seconds"] <= 0:
        raise click.UsageError("--for takes a duration that is more than nothing, as 30m")
    change_control_state(flags, lambda on: _pause(on, scopes, flags))


@verb()
@_SCOPES
@repeated_flag("--node", metavar="NAME", help="Resume evictions from this node; may be given again.")
@repeated_flag("--namespace", "-n", metavar="NS", help="Resume evictions in this namespace; may be given again.")
@click.option("--all", "everything", is_flag=True, allow_from_autoenv=False, help="End every pause.")
@click.option(
    "--only",
    is_flag=True,
    allow_from_autoenv=False,
    help="Let only these nodes or namespaces go: pause all others instead of everything.",
)
@release_flags
def resume(**flags: Any) -> None:
    """Resume evictions that were paused.

    Without flags this ends the pause of all evictions; pauses of single nodes and namespaces stay. It does not close
    the circuit breaker: see `taint-eviction breaker`.

    After a pause of all evictions, `taint-eviction resume --only node/NAME` resumes evictions from one node: every
    other node that exists now gets its own pause, in one write. `taint-eviction resume --all` resumes the rest. Shows
    how many pods are evicted at once, as the leader knows, and asks. Without a terminal it needs --yes. The number
    needs the rights to get leases and pods/proxy; without them it is not known.

    Exit codes: 0 resumed, even if nothing was paused; 1 you did not agree; 2 wrong usage, or neither a terminal nor
    --yes; 3 the API server cannot be reached, or rights are
    missing.
    """
    scopes = _scopes(flags)
    if (scopes or flags["only"]) and flags["everything"]:
        raise click.UsageError("--all ends every pause: it takes no --node, no --namespace and no --only")
    if flags["only"]:
        if not scopes:
            raise click.UsageError("--only needs what to release, as node/NAME or namespace/NAME")
        if len({scope.kind for scope in scopes}) > 1:
            raise click.UsageError("--only takes nodes or namespaces, not both")
        change_control_state(flags, lambda on: _resume_only(on, scopes, flags))
        return
    chosen = None if flags["everything"] else scopes or [EVERYTHING]
    change_control_state(flags, lambda on: _resume(on, chosen, flags))


def _scopes(flags: Mapping[str, Any]) -> list[PauseScope]:
    scopes = [*_named(flags["scopes"]), *(PauseScope("node", name) for name in flags["node"])]
    scopes += [PauseScope("namespace", name) for name in flags["namespace"]]
    for problem in filter(None, map(problem_of, scopes)):
        raise click.UsageError(problem)
    return scopes


def _named(words: Sequence[str]) -> list[PauseScope]:
    """Read node/NAME, or node NAME..., as kubectl does."""
    if len(words) > 1 and words[0] in _KINDS:
        words = [f"{words[0]}/{name}" for name in words[1:]]
    return [_scope(word) for word in words]


def _scope(text: str) -> PauseScope:
    kind, _, name = text.partition("/")
    if kind not in _KINDS or not name or "/" in name:
        raise click.UsageError(f"{text!r} is neither node/NAME nor namespace/NAME")
    return PauseScope(_KINDS[kind], name)


async def _pause(on: Reached, scopes: Sequence[PauseScope], flags: Mapping[str, Any]) -> ExitCode:
    absent = [] if flags["force"] else [await _absent(on.calls, scope) for scope in scopes if scope.kind == "node"]
    if found := list(filter(None, absent)):
        give_up(ExitCode.USAGE, *found, "nothing was changed; --force pauses a node that is to come")
    before = await on.state.read() or ControlState()
    pause = await _dated(on, Pause(reason=flags["reason"], by=on.user), flags["seconds"])
    now = on.clock.now().server_epoch
    await on.state.set_pauses(dict.fromkeys(scopes, pause))
    after = await on.state.read() or ControlState()
    for scope in scopes:
        known = before.at(now).pauses().get(scope)
        stays = known is not None and known == after.pauses().get(scope)
        click.echo(in_force(after, scope, "already" if stays else ""))
    await tell_leader(on, flags)
    for scope in scopes:
        if scope.kind == "namespace" and (said := await _absent(on.calls, scope)):
            complain(said)
    return ExitCode.OK


async def _dated(on: Reached, pause: Pause, seconds: float | None) -> Pause:
    """Date a pause by the API server's time; if that is implausible, leave out the dates: then the pause holds."""
    if seconds is not None:
        await on.learn_time()  # A single answer may be misdated.
    now, said = on.clock.now().server_epoch, ""
    if not on.clock.anchored:
        complain("no answer of the API server has a Date that can be read: this machine's clock counts")
    elif abs(on.clock.host_offset_seconds()) > _MAX_OFF_SECONDS:
        said = f"the API server dates its answers {format_utc(now)}, far from this machine's clock"
    elif on.clock.votes_disagree:
        said = f"the clocks of API servers are {on.clock.disagreement_seconds():.0f} s apart"
    if said:
        holds = "" if seconds is None else "; it does not end by itself, but by `taint-eviction resume`"
        complain(f"{said}: the pause has no date{holds}")
        return pause
    return replace(pause, since_epoch=now, until_epoch=None if seconds is None else now + seconds)


async def _resume(on: Reached, chosen: Sequence[PauseScope] | None, flags: Mapping[str, Any]) -> ExitCode:
    """Resume the selected scopes; None: all that are paused."""
    found = await on.state.read()
    if found is None:
        complain(
            f"the {on.state} does not exist; if it was deleted, a controller that runs still obeys it, and its leader "
            "writes it again within 15 s: look at `taint-eviction status`, and resume then"
        )
    before = found or ControlState()
    await tell_leader(on, flags)
    while True:
        scopes = list(before.pauses()) if chosen is None else chosen
        standing = before.at(on.clock.now().server_epoch)
        shown = {scope: pause for scope, pause in standing.pauses().items() if scope in scopes}
        if shown:
            release = Release(None if chosen is None else frozenset(scopes))
            complain(await told(on, await count_going(on, flags, standing, release)))
            must_agree(flags, "resume?")
        ended = [scope for scope in before.pauses() if scope in scopes]
        if await on.state.set_pauses(dict.fromkeys(ended), shown):
            break
        before = await _changed_meanwhile(on, shown)
    after = await on.state.read() or ControlState()
    for line in no_longer_lines(scopes, before, after):
        click.echo(line)
    if not scopes:
        click.echo("nothing is paused")
    for line in held_back(after.at(on.clock.now().server_epoch), "still"):
        click.echo(line)
    if scopes == [EVERYTHING] and after.at(on.clock.now().server_epoch).pauses():
        complain("to end every pause: taint-eviction resume --all")
    if after.cluster is not None and scopes and EVERYTHING not in scopes:
        words = " ".join(f"{scope.kind}/{scope.name}" for scope in scopes)
        complain(f"to release only that: taint-eviction resume --only {words}")
    return ExitCode.OK


async def _changed_meanwhile(on: Reached, shown: Mapping[PauseScope, Pause]) -> ControlState:
    """Say what somebody else has ordered since these pauses were shown; return the control state."""
    after = await on.state.read() or ControlState()
    for scope, pause in shown.items():
        if after.pauses().get(scope) != pause:
            complain(f"changed meanwhile, so nothing was written: {in_force(after, scope)}")
    return after


async def _resume_only(on: Reached, chosen: Sequence[PauseScope], flags: Mapping[str, Any]) -> ExitCode:
    """End the pause of all evictions, and instead pause all nodes or namespaces except the selected ones."""
    others: list[PauseScope] | None = None
    before = await on.state.read() or ControlState()
    while True:
        now = on.clock.now().server_epoch
        standing = before.at(now)
        if standing.cluster is None:
            give_up(ExitCode.USAGE, "all evictions are not paused, so there is nothing to resume: pause them first")
        if others is None:
            others = await _others(on, chosen)
            await tell_leader(on, flags)
        instead = Pause(now, standing.cluster.reason, standing.cluster.until_epoch, on.user)
        release = Release(frozenset([EVERYTHING, *chosen]), only=frozenset(chosen))
        complain(await told(on, await count_going(on, flags, standing, release)))
        must_agree(flags, "resume?")
        shown = {scope: pause for scope, pause in standing.pauses().items() if scope in (EVERYTHING, *chosen)}
        if await on.state.set_pauses({**dict.fromkeys(others, instead), **dict.fromkeys(shown)}, shown):
            break
        before = await _changed_meanwhile(on, shown)
    after = await on.state.read() or ControlState()
    click.echo(no_longer(EVERYTHING, standing.cluster))
    kind = chosen[0].kind
    where = {"node": "from", "namespace": "in"}[kind]
    later = {"node": "nodes that join later", "namespace": "namespaces that are created later"}[kind]
    click.echo(f"evictions {where} {many(len(others), f'other {kind}')} are paused instead; {later} are not")
    for line in held_back(after.at(on.clock.now().server_epoch), "still"):
        click.echo(line)
    return ExitCode.OK


async def _others(on: Reached, chosen: Sequence[PauseScope]) -> list[PauseScope]:
    """Return all nodes or namespaces except the selected ones, which must exist."""
    kind = chosen[0].kind
    names = sorted([name async for name in list_items(on.calls, ApiRequest("list", f"{kind}s"), _name)])
    for scope in chosen:
        if scope.name not in names:
            near = did_you_mean(scope.name, names)
            raise click.UsageError(f"there is no {kind} {scope.name} in this cluster{near}")
    scopes = [PauseScope(kind, name) for name in names]
    return [scope for scope in scopes if scope not in chosen]


async def _absent(calls: ApiCalls, scope: PauseScope) -> str:
    """Return that a node or namespace does not exist, with a suggestion; "" if it does, or the user may not read it."""
    try:
        answer = await calls.make(ApiRequest("get", f"{scope.kind}s", name=scope.name))
    except CallFailed:
        return ""
    if answer.outcome is not Outcome.ABSENT:
        return ""
    return f"there is no {scope.kind} {scope.name} in this cluster{await _near(calls, scope)}"


async def _near(calls: ApiCalls, scope: PauseScope) -> str:
    """Return a suggestion; "" if no name is similar, or the user may not list them."""
    try:
        names = [name async for name in list_items(calls, ApiRequest("list", f"{scope.kind}s"), _name)]
    except CallFailed:
        return ""
    return did_you_mean(scope.name, names)


def _name(body: JsonObject) -> str:
    return str((body.get("metadata") or {}).get("name"))
