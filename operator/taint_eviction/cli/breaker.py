"""``taint-eviction breaker``: close the circuit breaker after it has stopped all evictions."""

from typing import Any

import click

from taint_eviction.adapters.kubernetes_times import format_rfc3339
from taint_eviction.cli.control_state import Reached, change_control_state, held_back, state_flags
from taint_eviction.cli.control_state import breaker as breaker_text
from taint_eviction.cli.exit_codes import ExitCode
from taint_eviction.cli.flags import CONTEXT_SETTINGS
from taint_eviction.core.control_state import ControlState

# A reset closes what was opened before it, and the clocks of two machines differ a little.
_JUST_AFTER_SECONDS = 0.001


@click.group()
def breaker() -> None:
    """Reset the circuit breaker.

    It stops all evictions when too many nodes are tainted or lost at once.
    """


@breaker.command(context_settings=CONTEXT_SETTINGS)
@state_flags
def reset(**flags: Any) -> None:
    """Close the circuit breaker.

    Evictions go on, and the breaker counts tainted nodes anew.

    Look at the nodes first (`taint-eviction status` has a table of zones): pods that are due are evicted within
    seconds. To let evictions go on step by step, first pause nodes or namespaces with `taint-eviction pause`.

    The reset is written even if the cluster says that the breaker is closed: a controller that could not write to the
    cluster may hold evictions back all the same.

    Exit codes: 0 closed, even if it was not open; 1 it opened again at once; 2 wrong usage; 3 the API server cannot be
    reached, or rights are missing.
    """
    change_control_state(flags, _reset)


async def _reset(on: Reached) -> ExitCode:
    before = await on.state.read() or ControlState()
    latch, reset_epoch = before.latch, on.clock.now().server_epoch
    if latch is not None:
        reset_epoch = max(reset_epoch, latch.since_epoch + _JUST_AFTER_SECONDS)
    await on.state.write_reset(reset_epoch, anew=True)
    after = await on.state.read() or ControlState()
    if latch is None:
        last = "" if before.reset_epoch is None else f" (last reset {format_rfc3339(before.reset_epoch)})"
        click.echo(f"the circuit breaker was not open{last}; it is reset all the same")
    elif after.latch is None:
        click.echo(breaker_text("is closed; it was open", latch))
    else:
        click.echo(breaker_text("was closed, but has opened again; it was open before", latch))
    for line in held_back(after, "still"):
        click.echo(line)
    return ExitCode.OK if after.latch is None else ExitCode.FAILED
