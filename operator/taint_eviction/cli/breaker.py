"""``taint-eviction breaker``: what a person does when the circuit breaker has stopped all evictions."""

from typing import Any

import click

from taint_eviction.adapters.kubernetes_times import format_rfc3339
from taint_eviction.cli.orders import CONTEXT_SETTINGS, EXIT_OVERTAKEN, Reached, give_orders, state_flags, still_held
from taint_eviction.cli.orders import breaker as told
from taint_eviction.core.orders import Orders

# A reset counts for a latch that is older, and clocks of two machines differ a little.
_JUST_AFTER_SECONDS = 0.001


@click.group()
def breaker() -> None:
    """See to the circuit breaker, which stops all evictions when too many nodes are tainted at once."""


@breaker.command(context_settings=CONTEXT_SETTINGS)
@state_flags
def reset(**flags: Any) -> None:
    """Close the circuit breaker: evictions go on, and what was counted so far counts no more.

    Look at the nodes first: whoever is due leaves within seconds. To let evictions go on little by little, first hold
    nodes or namespaces by `taint-eviction pause`.

    Exit code: 0 fine, also if it was not open, 1 it opened again at once, 2 usage, 3 API server unreachable or rights
    missing.
    """
    give_orders(flags, _reset)


async def _reset(on: Reached) -> int:
    before = await on.state.read() or Orders()
    if (latch := before.latch) is None:
        last = "" if before.reset_epoch is None else f" (last reset {format_rfc3339(before.reset_epoch)})"
        click.echo(f"the circuit breaker is not open{last}")
        return 0
    now = on.clock.now().server_epoch
    await on.state.write_reset(max(now, latch.since_epoch + _JUST_AFTER_SECONDS))
    after = await on.state.read() or Orders()
    click.echo(told("is closed; it was open" if after.latch is None else "was closed, and opened again; before", latch))
    for line in still_held(after):
        click.echo(line)
    return 0 if after.latch is None else EXIT_OVERTAKEN
