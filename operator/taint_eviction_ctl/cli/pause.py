"""``taint-eviction pause`` and ``resume``: stop evictions for a while, and resume them."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

import click

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain
from taint_eviction.core.control_state import (
    EVERYTHING,
    ControlState,
    Pause,
    PauseScope,
    Release,
    selector_scope,
)
from taint_eviction.core.label_selectors import IN, NOT_IN, Requirement, parse_selector, requirement
from taint_eviction.core.objects import ZONE_LABEL
from taint_eviction.core.text import JsonObject, did_you_mean, many
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.control_state_data import problem_of
from taint_eviction.kube.item_lists import list_items
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.control_state import (
    MAX_NAMES,
    Reached,
    change_control_state,
    held_back,
    in_force,
    named,
    no_longer,
    no_longer_lines,
    state_flags,
)
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import output_flag, repeated_flag, verb
from taint_eviction_ctl.cli.releasing import count_going, must_agree, release_document, release_flags, tell_leader, told
from taint_eviction_ctl.cli.values import NODE_KINDS, ZONE_KINDS

# Only a clock that was never set is wrong by this much.
_MAX_OFF_SECONDS = 30 * 86_400.0

# kubectl's names of the kinds that can be paused, and zones: all nodes with that label.
_KINDS: Mapping[str, Literal["node", "zone", "namespace"]] = {
    **dict.fromkeys(NODE_KINDS, "node"),
    **dict.fromkeys(ZONE_KINDS, "zone"),
    **dict.fromkeys(("namespace", "namespaces", "ns"), "namespace"),
}
_SCOPES = click.argument("scopes", metavar="[node/NAME|zone/NAME|namespace/NAME]...", nargs=-1)


@verb()
@_SCOPES
@repeated_flag("--node", metavar="NAME", help="Pause evictions from this node only; may be given again.")
@repeated_flag(
    "--selector",
    "-l",
    metavar="SELECTOR",
    help="Pause evictions from all nodes that this label selector matches; may be given again.",
)
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
@click.option("--force", is_flag=True, allow_from_autoenv=False, help="Also pause what is not there yet.")
@state_flags
def pause(**flags: Any) -> None:
    """Pause evictions, all or some.

    Without flags this pauses all evictions, until `taint-eviction resume`. A node that does not exist is refused, since
    most likely it is misspelled; --force pauses it before it joins.

    zone/NAME stands for all nodes whose label topology.kubernetes.io/zone has this value, and -l SELECTOR for all nodes
    that a label selector matches. The selector itself is kept: nodes that join later, or get the labels later, are
    paused, too, and a node that loses them no longer is. Where no node matches, this is refused without --force. A
    controller of a version that does not know such pauses holds all evictions while there is one.

    The pause takes effect within seconds, whichever replica leads. Requests that the controller has already sent to
    the API server cannot be cancelled. Deadlines keep running: after a resume, pods whose deadline has passed are
    evicted at once. This command asks nothing, and works while no controller runs: a controller that starts later
    obeys the pause. The pause records who paused, by the name of the user in the kubeconfig. A pause that is
    already in force keeps its time and reason, unless the new one lasts longer. With --for, a running controller
    uses its own clock, whatever happens to the API server's. A controller that starts later has only the API
    server's time: a pause ends early if that clock was set forward meanwhile. If the API server's time is wrong by
    years, the pause does not end by itself, and this command says so.

    Exit codes: 0 paused; 2 wrong usage, or there are no such nodes; 3 the API server cannot be reached, or rights are
    missing.
    """
    scopes = _scopes(flags)
    if scopes and flags["everything"]:
        raise click.UsageError("--all pauses everything: it takes no nodes, no zone and no namespace")
    if PauseScope("selector") in scopes:
        raise click.UsageError("-l '' matches all nodes: to pause all evictions, leave it out")
    scopes = scopes or [EVERYTHING]
    if flags["seconds"] is not None and flags["seconds"] <= 0:
        raise click.UsageError("--for takes a duration that is more than nothing, as 30m")
    change_control_state(flags, lambda on: _pause(on, scopes, flags))


@verb()
@_SCOPES
@repeated_flag("--node", metavar="NAME", help="Resume evictions from this node; may be given again.")
@repeated_flag(
    "--selector",
    "-l",
    metavar="SELECTOR",
    help="Resume evictions from the nodes that this label selector matches; may be given again.",
)
@repeated_flag("--namespace", "-n", metavar="NS", help="Resume evictions in this namespace; may be given again.")
@click.option("--all", "everything", is_flag=True, allow_from_autoenv=False, help="End every pause.")
@click.option(
    "--only",
    is_flag=True,
    allow_from_autoenv=False,
    help="Let only these nodes, zones or namespaces go: pause all others instead of everything.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    allow_from_autoenv=False,
    help="Change nothing: say how many pods would leave if only these were let go, also from behind an open breaker.",
)
@output_flag("table", "json", "yaml", text="Of --dry-run: a sentence, or a document for programs.")
@release_flags
def resume(**flags: Any) -> None:
    """Resume evictions that were paused.

    Without flags this ends the pause of all evictions; pauses of nodes, zones and namespaces stay. A pause by labels is
    ended by the same selector. It does not close the circuit breaker: see `taint-eviction breaker`.

    After a pause of all evictions, `taint-eviction resume --only zone/NAME` resumes evictions from one zone: in one
    write, all nodes outside of it get a pause instead, also those that join later. Once that is so,
    `resume --only zone/NAME zone/OTHER` lets a further zone go. --only takes selectors (-l), too. With node/NAME, or
    namespace/NAME, every other one that exists now gets its own pause; later ones have none.
    `taint-eviction resume --all` resumes the rest. Shows
    how many pods are evicted at once, as the leader knows, and asks. Without a terminal it needs --yes. The number
    needs the rights to get leases and pods/proxy; without them it is not known.

    `resume zone/NAME --dry-run` says how many pods would leave if only this zone were let go. It also counts pods that
    an open circuit breaker, a pause of all evictions or a pause of the zone holds now. If an earlier `--only` let other
    zones go, it counts the pods that would leave in addition. It writes nothing, asks nothing, and names the commands
    that let the zone go. It names pods that nothing recreates; `-o json` has all pods.

    Exit codes: 0 the pauses have ended, or there were none, or the dry run has answered; 1 you did not agree; 2 wrong
    usage, or neither a terminal nor --yes, or only the pause of an earlier --only holds what is named; 3 the API server
    cannot be reached, or rights are missing, or a dry run cannot count the pods.
    """
    scopes = _scopes(flags)
    if (scopes or flags["only"]) and flags["everything"]:
        raise click.UsageError("--all ends every pause: it takes no nodes, no zone, no namespace and no --only")
    if flags["output"] != "table" and not flags["dry_run"]:
        raise click.UsageError("-o goes with --dry-run")
    if flags["only"] and not scopes:
        raise click.UsageError("--only needs what to release, as zone/NAME, node/NAME or namespace/NAME")
    if flags["only"] or flags["dry_run"]:
        _check_alike(scopes, "--only" if flags["only"] else "--dry-run")
    if flags["dry_run"]:
        change_control_state(flags, lambda on: _say_what_would_leave(on, scopes, flags), only_asks=True)
        return
    if flags["only"]:
        change_control_state(flags, lambda on: _resume_only(on, scopes, flags))
        return
    chosen = None if flags["everything"] else scopes or [EVERYTHING]
    change_control_state(flags, lambda on: _resume(on, chosen, flags))


def _check_alike(scopes: Sequence[PauseScope], flag: str) -> None:
    """Raise a usage error unless all others can be held while these are let go."""
    if len({scope.kind for scope in scopes}) > 1:
        raise click.UsageError(f"{flag} takes nodes by name, nodes by label (zone/NAME, -l) or namespaces: one kind")
    if PauseScope("selector") in scopes:
        words = "--only and -l" if flag == "--only" else "-l"
        raise click.UsageError(f"-l '' matches all nodes: to release them all, leave {words} out")
    try:
        Release(only=frozenset(scopes)).others(())
    except ValueError as why:
        raise click.UsageError(f"{flag} cannot pause the other nodes: {why}") from None


def _scopes(flags: Mapping[str, Any]) -> list[PauseScope]:
    scopes = [*_named(flags["scopes"]), *(PauseScope("node", name) for name in flags["node"])]
    scopes += [_selected(text) for text in flags["selector"]]
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
        raise click.UsageError(f"{text!r} is none of node/NAME, zone/NAME and namespace/NAME")
    match _KINDS[kind]:
        case "zone":
            try:
                return selector_scope(str(requirement(ZONE_LABEL, IN, [name])))
            except ValueError as why:
                raise click.UsageError(f"{text!r} is no zone: {why}") from None
        case "node" | "namespace" as known:
            return PauseScope(known, name)


def _selected(text: str) -> PauseScope:
    try:
        return selector_scope(text)
    except ValueError as expected:
        raise click.UsageError(f"-l {text!r} is not {expected}") from None


async def _pause(on: Reached, scopes: Sequence[PauseScope], flags: Mapping[str, Any]) -> ExitCode:
    of_nodes = [scope for scope in scopes if scope.kind in ("node", "selector")]
    absent = [] if flags["force"] else [await _absent(on.calls, scope) for scope in of_nodes]
    if found := list(filter(None, absent)):
        give_up(ExitCode.USAGE, *found, "nothing was changed; --force pauses what is to come")
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
        said = await _absent(on.calls, scope) if scope.kind == "namespace" else await _covered(on.calls, scope)
        if said:
            complain(said)
    return ExitCode.OK


async def _covered(calls: ApiCalls, scope: PauseScope) -> str:
    """Return how many nodes a selector matches now; "" for other scopes, or if the user may not list nodes."""
    if scope.kind != "selector":
        return ""
    try:
        names = sorted([name async for name in list_items(calls, _matching(scope), _name)])
    except CallFailed:
        return ""
    first = ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")
    now = many(len(names), "node") + (f" ({first})" if names else "")
    return f"{scope.nodes}: {now} now; others are paused as soon as they are such nodes"


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
        if not shown:
            _refuse_what_a_step_holds(standing, scopes)
        if shown:
            if len(shown) > 1 and shown == standing.pauses():
                _say_which_end(standing, chosen is None)  # Other people may have ordered some of them.
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
    _say_what_to_do(after, scopes, on.clock.now().server_epoch)
    return ExitCode.OK


def _say_which_end(standing: ControlState, unnamed: bool = True) -> None:
    """Name the pauses, all of which end, and, if the user named none of them (``unnamed``), how to end fewer."""
    pauses = standing.pauses()
    complain(f"this ends {many(len(pauses), 'pause')}:")
    for line in held_back(replace(standing, latch=None)):
        complain(line)
    # That of all evictions has no name, and a selector that cannot be read neither.
    if unnamed and all(scope.name for scope in pauses) and 1 < len(pauses) <= MAX_NAMES:
        complain(f"to end fewer, leave out those that stay: taint-eviction resume {' '.join(map(_argument, pauses))}")


def _say_what_to_do(after: ControlState, scopes: Sequence[PauseScope], now: float) -> None:
    """Name the command that releases what other pauses still hold after the end of these."""
    if scopes == [EVERYTHING] and after.at(now).pauses():
        complain("to end every pause: taint-eviction resume --all")
    besides = _let_go_already(after.at(now), scopes)
    if (after.cluster is not None or besides) and scopes and EVERYTHING not in scopes:
        complain(f"to release {'them, too' if besides else 'only that'}: {_only(besides, scopes)}")


def _refuse_what_a_step_holds(standing: ControlState, scopes: Sequence[PauseScope]) -> None:
    """End with the right command if nothing of these is paused by itself, but an earlier ``--only`` holds them."""
    if besides := _let_go_already(standing, scopes):
        own = [in_force(standing, scope) for scope in scopes]
        unchanged = f"nothing was changed; to let them go, too: {_only(besides, scopes)}"
        give_up(ExitCode.USAGE, *own, *held_back(standing), unchanged)


async def _changed_meanwhile(on: Reached, shown: Mapping[PauseScope, Pause]) -> ControlState:
    """Say what somebody else has ordered since these pauses were shown; return the control state."""
    after = await on.state.read() or ControlState()
    for scope, pause in shown.items():
        if after.pauses().get(scope) != pause:
            complain(f"changed meanwhile, so nothing was written: {in_force(after, scope)}")
    return after


async def _resume_only(on: Reached, chosen: Sequence[PauseScope], flags: Mapping[str, Any]) -> ExitCode:
    """End the pause of all evictions, and instead pause all others than the selected nodes or namespaces."""
    others: list[PauseScope] | None = None
    before = await on.state.read() or ControlState()
    while True:
        now = on.clock.now().server_epoch
        standing = before.at(now)
        ended = _ended_by_only(standing, chosen)
        if not ended:
            give_up(ExitCode.USAGE, _why_none_ends(standing, chosen))
        if others is None:
            others = await _others(on, chosen)
            await tell_leader(on, flags)
        # The one that would hold the others for longest.
        was = max((standing.pauses()[scope] for scope in ended), key=lambda pause: pause.ends_epoch)
        instead = Pause(now, was.reason, was.until_epoch, on.user)
        release = Release(frozenset([*ended, *chosen]), frozenset(chosen))
        complain(await told(on, await count_going(on, flags, standing, release)))
        must_agree(flags, "resume?")
        shown = {scope: pause for scope, pause in standing.pauses().items() if scope in (*ended, *chosen)}
        if await on.state.set_pauses({**dict.fromkeys(others, instead), **dict.fromkeys(shown)}, shown):
            break
        before = await _changed_meanwhile(on, shown)
    after = await on.state.read() or ControlState()
    for scope in ended:
        click.echo(no_longer(scope, standing.pauses()[scope]))
    click.echo(_instead(chosen[0].kind, others))
    for line in held_back(after.at(on.clock.now().server_epoch), "still"):
        click.echo(line)
    return ExitCode.OK


def _ended_by_only(standing: ControlState, chosen: Sequence[PauseScope]) -> list[PauseScope]:
    """Return the pauses in whose place ``--only`` pauses the others: that of all evictions, and what an earlier
    ``--only`` has left. Where all evictions are paused, that may have been for other zones: nothing of them leaves now.
    """
    paused = standing.pauses()
    if EVERYTHING in paused:
        return [EVERYTHING, *_outside(standing, chosen)]
    return Release(only=frozenset(chosen)).replaces(standing)


def _outside(standing: ControlState, chosen: Sequence[PauseScope]) -> dict[PauseScope, frozenset[str]]:
    """Return the pauses of all nodes outside of some zones, with these, where zones are selected; so for any label."""
    keys = {term.key if term is not None and term.operator == IN else None for term in map(_term, chosen)}
    found = {}
    for scope in standing.pauses():
        term = _term(scope)
        if term is not None and term.operator == NOT_IN and keys == {term.key}:
            found[scope] = term.values
    return found


def _term(scope: PauseScope) -> Requirement | None:
    """Return the one term of a selector; None for several, and for other scopes."""
    match parse_selector(scope.name) if scope.kind == "selector" else ():
        case (term,):
            return term
        case _:
            return None


def _let_go_already(standing: ControlState, chosen: Sequence[PauseScope]) -> list[PauseScope]:
    """Return the zones that an earlier ``--only`` has let go, where its pause holds selected ones: an ``--only`` with
    both lets the selected ones go. Empty: no such pause holds them, or another one does, too.
    """
    outside = [] if EVERYTHING in standing.pauses() else [*_outside(standing, chosen).items()]
    match outside:
        case [(scope, zones)] if not (wanted := _values(chosen)) <= zones:
            key = scope.keys[0]
            return [selector_scope(str(requirement(key, IN, [zone]))) for zone in sorted(zones - wanted)]
        case _:
            return []


def _values(scopes: Sequence[PauseScope]) -> frozenset[str]:
    return frozenset(value for scope in scopes if (term := _term(scope)) is not None for value in term.values)


def _why_none_ends(standing: ControlState, chosen: Sequence[PauseScope], more: str = "") -> str:
    """Return why ``--only`` would release nothing, and the command that does; ``more``: what follows its arguments."""
    paused = standing.pauses()
    if not paused:
        return "nothing is paused: to let pods go in steps, pause all evictions first"
    why = f"no pause ends by that (paused: {named(paused)})"
    if besides := _let_go_already(standing, chosen):
        return f"{why}; to let {_together(chosen)} go besides {_together(besides)}: {_only(besides, chosen)}{more}"
    if own := [scope for scope in chosen if scope in paused]:
        return f"{why}; to let {_together(own)} go: taint-eviction resume {' '.join(map(_argument, own))}{more}"
    return why


def _only(besides: Sequence[PauseScope], chosen: Sequence[PauseScope]) -> str:
    """Return the command that lets the selected scopes go besides those that leave already."""
    return f"taint-eviction resume --only {' '.join(map(_argument, [*besides, *chosen]))}"


def _together(scopes: Sequence[PauseScope]) -> str:
    return " and ".join(map(_argument, scopes))


async def _say_what_would_leave(on: Reached, chosen: Sequence[PauseScope], flags: Mapping[str, Any]) -> ExitCode:
    """Say how many pods would leave if only the selected scopes were let go, and how to do that; none: everything."""
    if chosen:
        await _others(on, chosen)  # They must exist.
    standing = (await on.state.read() or ControlState()).at(on.clock.now().server_epoch)
    refused = ""
    if flags["only"] and not _ended_by_only(standing, chosen):
        refused = _why_none_ends(standing, chosen, " --dry-run")
    await tell_leader(on, flags)
    besides = [] if flags["only"] else _let_go_already(standing, chosen)
    every = [*besides, *chosen]
    # From behind an open breaker, --only follows a pause of all evictions, so nothing refuses it then.
    replaced = _outside(standing, every) if refused else _ended_by_only(standing, every)
    ended = None if flags["everything"] else frozenset([EVERYTHING, *replaced, *every])
    going = await count_going(on, flags, standing, Release(ended, frozenset(every), reset=True))
    if refused and (isinstance(going, str) or not going.breaker_open):
        give_up(ExitCode.USAGE, refused)
    if isinstance(going, str):
        give_up(ExitCode.UNREACHABLE, await told(on, going))
    clauses = ["the circuit breaker were reset"] if going.breaker_open else []
    supposing = " and ".join([*clauses, *_supposed(standing, chosen, besides, ended)])
    steps = [f"taint-eviction {step}" for step in _steps(standing, every, ended, going.breaker_open)]
    if flags["output"] != "table":
        ends = {each: pause for each, pause in standing.pauses().items() if ended is None or each in ended}
        echo_document(await release_document(on, going, supposing, ends, steps), flags["output"])
    else:
        click.echo(await told(on, going, supposing))
    _say_which_end_and_stay(standing, ended, named=bool(chosen), told_how=bool(steps))
    if steps:
        # They are lost otherwise, and nobody asks for them at the last step if it has --yes.
        first = "save the pods without an owner (kubectl get pod --output yaml), then " if going.without_owner else ""
        complain(f"nothing was changed; to do it: {first}{', then '.join(steps)}")
    if besides and steps:
        end = f"taint-eviction resume {' '.join(map(_argument, _outside(standing, chosen)))}"
        complain(f"all other nodes stay paused, also those without the label; to end that instead: {end}")
    return ExitCode.OK


def _say_which_end_and_stay(
    standing: ControlState, ended: frozenset[PauseScope] | None, *, named: bool, told_how: bool
) -> None:
    """Say of a dry run which pauses would end, if all would, or else which would stay, unless the command says it.

    ``ended`` None: all. ``named``: only selected scopes are let go. ``told_how``: there is a command that does it.
    """
    staying = ControlState() if ended is None else replace(standing.without(ended), latch=None)
    if ended is None and standing.pauses():
        _say_which_end(standing)
    for line in [] if named and told_how else held_back(staying):
        complain(line)
    if not named and staying.pauses():
        complain("to end every pause: taint-eviction resume --all")


def _supposed(
    standing: ControlState,
    chosen: Sequence[PauseScope],
    besides: Sequence[PauseScope],
    ended: frozenset[PauseScope] | None,
) -> list[str]:
    """Return what a dry run supposes of pauses: at most one clause."""
    if besides:
        return [f"{_together(chosen)} were let go besides {_together(besides)}"]
    if chosen:
        return [f"only {_together(chosen)} were let go"]
    if any(ended is None or scope in ended for scope in standing.pauses()):
        return [f"{'every pause' if ended is None else 'the pause of all evictions'} were ended"]
    return []


def _steps(
    standing: ControlState, chosen: Sequence[PauseScope], ended: frozenset[PauseScope] | None, is_open: bool
) -> list[str]:
    """Return the commands that let the selected scopes go (none: everything), in the order of the runbook."""
    paused = [scope for scope in standing.pauses() if ended is None or scope in ended]
    if not chosen:
        resume = [f"resume{' --all' if ended is None else ''}"] if paused else []
        return [*(["breaker reset"] if is_open else []), *resume]
    names = " ".join(map(_argument, chosen))
    if is_open:
        first = [] if EVERYTHING in paused else ["pause"]
        return [*first, "breaker reset", f"resume --only {names}"]
    own = all(scope in chosen for scope in paused)
    return [f"resume {'' if own else '--only '}{names}"] if paused else []


def _instead(kind: str, others: Sequence[PauseScope]) -> str:
    """Return what is paused instead of everything."""
    match kind:
        case "selector":
            if not others:
                return "no other evictions are paused instead"
            nodes = " and from ".join(scope.nodes for scope in others)
            return f"evictions from {nodes} are paused instead, also from those that join later"
        case "node":
            return f"evictions from {many(len(others), 'other node')} are paused instead; nodes that join later are not"
        case _:
            others_are = f"evictions in {many(len(others), 'other namespace')} are paused instead"
            return f"{others_are}; namespaces that are created later are not"


async def _others(on: Reached, chosen: Sequence[PauseScope]) -> list[PauseScope]:
    """Return all that is paused instead of the selected nodes or namespaces, which must exist."""
    kind = chosen[0].kind
    if kind == "selector":
        if found := list(filter(None, [await _absent(on.calls, scope) for scope in chosen])):
            raise click.UsageError("; ".join(found))
        return Release(only=frozenset(chosen)).others(())
    names = sorted([name async for name in list_items(on.calls, ApiRequest("list", f"{kind}s"), _name)])
    for scope in chosen:
        if scope.name not in names:
            near = did_you_mean(scope.name, names)
            raise click.UsageError(f"there is no {kind} {scope.name} in this cluster{near}")
    scopes = [PauseScope(kind, name) for name in names]
    return [scope for scope in scopes if scope not in chosen]


def _argument(scope: PauseScope) -> str:
    """Return the argument by which a scope is named at a shell."""
    if scope.kind != "selector":
        return f"{scope.kind}/{scope.name}"
    match parse_selector(scope.name):
        case (Requirement(key, "In", values),) if key == ZONE_LABEL and "" not in values and len(values) == 1:
            return f"zone/{min(values)}"
        case _:
            return f"-l {shlex.quote(scope.name)}"


async def _absent(calls: ApiCalls, scope: PauseScope) -> str:
    """Return that a scope does not exist, with a suggestion; "" if it does, or the user may not read it."""
    try:
        if scope.kind == "selector":
            async with aclosing(list_items(calls, _matching(scope), _name, page=1)) as found:
                async for _ in found:
                    return ""
            return f"there are no {scope.nodes} in this cluster{await _near_labels(calls, scope)}"
        answer = await calls.make(ApiRequest("get", f"{scope.kind}s", name=scope.name))
    except CallFailed:
        return ""
    if answer.outcome is not Outcome.ABSENT:
        return ""
    return f"there is no {scope.kind} {scope.name} in this cluster{await _near(calls, scope)}"


def _matching(scope: PauseScope) -> ApiRequest:
    return ApiRequest("list", "nodes", query={"labelSelector": scope.name})


async def _near(calls: ApiCalls, scope: PauseScope) -> str:
    """Return a suggestion; "" if no name is similar, or the user may not list them."""
    try:
        names = [name async for name in list_items(calls, ApiRequest("list", f"{scope.kind}s"), _name)]
    except CallFailed:
        return ""
    return did_you_mean(scope.name, names)


async def _near_labels(calls: ApiCalls, scope: PauseScope) -> str:
    """Return a suggestion for the first term that no node matches; "" as for names."""
    try:
        nodes = [labels async for labels in list_items(calls, ApiRequest("list", "nodes"), _labels)]
    except CallFailed:
        return ""
    for term in parse_selector(scope.name):
        values = {labels[term.key] for labels in nodes if term.key in labels}
        if not values:
            return did_you_mean(term.key, sorted({key for labels in nodes for key in labels}))
        if term.operator == IN and not term.values & values:
            return did_you_mean(min(term.values), sorted(values))
    return ""


def _labels(body: JsonObject) -> Mapping[str, str]:
    return (body.get("metadata") or {}).get("labels") or {}


def _name(body: JsonObject) -> str:
    return str((body.get("metadata") or {}).get("name"))
