"""``taint-eviction breaker``: show the circuit breaker, and close it after it has stopped all evictions."""

from dataclasses import replace
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from taint_eviction.cli.connection import PORT_FLAG, flag, handed_on, with_flags
from taint_eviction.cli.exit_codes import ExitCode
from taint_eviction.cli.visible import complain
from taint_eviction.core.control_state import ControlState, Release
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction.kube.release_query import release_text
from taint_eviction_ctl.cli.asking import Unanswered, asking_leader, put
from taint_eviction_ctl.cli.breaker_views import breaker_document, breaker_lines
from taint_eviction_ctl.cli.control_state import Reached, change_control_state, held_back, state_flags
from taint_eviction_ctl.cli.control_state import breaker as breaker_text
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import OUTPUT_FLAGS, verbs
from taint_eviction_ctl.cli.releasing import count_going, must_agree, release_flags, tell_leader, told

# A reset closes a breaker that was opened before it, and the clocks of two machines differ a little.
_JUST_AFTER_SECONDS = 0.001


@verbs
@flag("--namespace", "-n", help="Count the pods of this namespace only; the breaker is that of the cluster.")
@flag("--all-namespaces", "-A", is_flag=True, help="Count the pods of all namespaces, as without -n.")
@state_flags
@partial(with_flags, flags=(PORT_FLAG, *OUTPUT_FLAGS))
@click.pass_context
def breaker(context: click.Context, /, **flags: Any) -> None:
    """Show the circuit breaker, or reset it.

    It stops all evictions when too many nodes are tainted or lost at once. Without a verb this shows whether it is
    open, since when and why, what it counts against which threshold, and which nodes would lose how many pods if it
    were reset.

    Exit codes: 0 shown; 2 wrong usage; 3 the API server cannot be reached, or rights are missing. Where only the leader
    does not answer, what the state ConfigMap says is shown.
    """
    if context.invoked_subcommand is None:
        change_control_state(flags, lambda on: _show(on, flags), only_asks=True)
        return
    # Those of the connection are handed on. If others were ignored, the command would not do what it seems to do.
    handed = {word.partition("=")[0] for word in handed_on(context)}
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.opts[0] not in handed:
            raise click.UsageError(f"{max(option.opts, key=len)} does not go with {context.invoked_subcommand}")


async def _show(on: Reached, flags: dict[str, Any]) -> ExitCode:
    kept = await on.state.read() or ControlState()
    try:
        namespace = "" if flags["all_namespaces"] else flags["namespace"] or ""
        query = {"limit": 0, **({"namespace": namespace} if namespace else {})}
        asking = asking_leader(on.calls, on.where, flags)
        document = await asking("/status", query)
        released = await asking("/status", {**query, "release": release_text(Release(reset=True))})
        if flags["output"] != "table":
            echo_document(breaker_document(document, released), flags["output"])
            return ExitCode.OK
        both = {"document": document, "released": released}
        lines = put(lambda told: breaker_lines(**told), both)
    except Unanswered as error:
        complain(f"what it counts is not known: {error}")
        if flags["output"] != "table":
            return ExitCode.UNREACHABLE
        lines = ["the circuit breaker is closed" if kept.latch is None else breaker_text("is open", kept.latch)]
    click.echo("\n".join(lines))
    if kept.reset_epoch is not None:
        what = "it last closed by itself" if kept.closed_by else "it was last reset"
        click.echo(f"{what} at {format_utc(kept.reset_epoch)}")
    return ExitCode.OK


@breaker.command(context_settings=breaker.context_settings)
@release_flags
def reset(**flags: Any) -> None:
    """Close the circuit breaker.

    Evictions continue, and the breaker starts to count tainted nodes again.

    Look at the nodes first (`taint-eviction breaker`): pods that are due are evicted within seconds. To resume
    evictions step by step: `taint-eviction pause`, then this, and then `resume --only zone/NAME` or `node/NAME`.

    Shows how many pods are evicted at once, as the leader knows, and asks. Without a terminal it needs --yes.

    If it is closed, nothing is written: a reset accepts no wave in advance; before a planned one: `taint-eviction
    pause`. Where the ConfigMap says that it is closed and no leader answers, the reset is written all the same: a
    controller that could not write to the cluster may still hold evictions.

    Exit codes: 0 closed, even if it was not open; 1 it opened again at once, or you did not agree; 2 wrong usage, or
    neither a terminal nor --yes; 3 the API server cannot be reached, or rights are missing.
    """
    change_control_state(flags, lambda on: _reset(on, flags))


async def _reset(on: Reached, flags: dict[str, Any]) -> ExitCode:
    await tell_leader(on, flags)
    before = await on.state.read() or ControlState()
    while True:
        # What is opened while the question stands is not what it is about.
        latch, reset_epoch = before.latch, on.clock.now().server_epoch
        standing = before.at(reset_epoch)
        going = await count_going(on, flags, standing, Release(reset=True))
        if latch is None and not isinstance(going, str) and not going.breaker_open:
            click.echo(f"the circuit breaker is closed{_last(before)}: nothing to do")
            return ExitCode.OK
        complain(await told(on, going))
        for line in held_back(replace(standing, latch=None), "still"):
            complain(f"after the reset, {line}")
        must_agree(flags, "reset the circuit breaker?")
        before = await on.state.read() or ControlState()
        if before.latch is None or (latch is not None and before.latch.is_same(latch)):
            break
        complain(f"nothing was written: {breaker_text('has opened meanwhile', before.latch)}")
    if latch is None:
        await on.state.write_reset(reset_epoch)
    else:
        await on.state.close_latch(latch, max(reset_epoch, latch.since_epoch + _JUST_AFTER_SECONDS))
    after = await on.state.read() or ControlState()
    if latch is None:
        click.echo(f"the circuit breaker was not open{_last(before)}; it is reset all the same")
    elif after.latch is None:
        click.echo(breaker_text("is closed; it was open", latch))
    else:
        click.echo(breaker_text("was closed, but has opened again; it was open before", latch))
    now = after.at(on.clock.now().server_epoch)
    # What was told before the question, and is still so, is not told again.
    if now.latch is not None or now.pauses() != standing.pauses():
        for line in held_back(now, "still"):
            click.echo(line)
    return ExitCode.OK if after.latch is None else ExitCode.FAILED


def _last(before: ControlState) -> str:
    if before.reset_epoch is None:
        return ""
    what = "last closed by itself" if before.closed_by else "last reset"
    return f" ({what} {format_utc(before.reset_epoch)})"
