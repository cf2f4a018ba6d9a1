"""``taint-eviction hand-back``: end adoption, and give the pods that are adopted back to the built-in controller.

``giving_back`` changes the single pods.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from taint_eviction.adapters.lease import KubernetesLease
from taint_eviction.cli.control_state import Reached, change_control_state, state_flags
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.flags import CONTEXT_SETTINGS, flag
from taint_eviction.cli.giving_back import Adopted, GivingBack, give_back_all, list_adopted
from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain, visible
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.planning.wording import many
from taint_eviction.runtime.clock import read_monotonic
from taint_eviction.runtime.leadership import LeaseRecord

_ASK_AGAIN_SECONDS = 1.0
# A replica that read the control state just before the order may acquire the Lease just after it, without knowing it.
_READ_SECONDS = 3.0
_MAX_WINDOWS = 10
_MAX_ROUNDS = 5


@click.command("hand-back", context_settings=CONTEXT_SETTINGS)
@click.option("--yes", "-y", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@flag("--reason", default="", show_default=False, help="Why; it is kept with the order.")
@click.option("--undo", is_flag=True, allow_from_autoenv=False, help="Let the controller adopt again; change no pod.")
@flag("--confirm-timeout", type=Seconds(), default=60.0, help="How long the leader may take to confirm.")
@state_flags
def hand_back(**flags: Any) -> None:
    """Give all adopted pods back to the built-in controller.

    Stops adoption, even if the controller runs with --adopt, until `taint-eviction hand-back --undo`. When the leader
    has confirmed this, or its Lease has expired, the command restores the tolerationSeconds of every adopted pod. The
    built-in controller then counts them from the beginning. Before it restores them, the command shows which pods the
    built-in controller will evict, and asks for confirmation.

    Remove the component adopt-at-admission first: pods that it adopts later are not given back.

    Exit codes: 0 no pod is adopted any more; 1 some pods still are, or the leader has not confirmed; 2 wrong usage, or
    there is no terminal to ask; 3 the API server cannot be reached, or rights are missing.
    """
    change_control_state(flags, _undo if flags["undo"] else lambda on: _hand_back(on, flags))


async def _undo(on: Reached) -> ExitCode:
    await on.state.set_no_adoption(None)
    click.echo("the controller may adopt again, if its flags enable adoption")
    return ExitCode.OK


async def _hand_back(on: Reached, flags: Mapping[str, Any]) -> ExitCode:
    for line in _foretell(await list_adopted(on.calls)):
        click.echo(visible(line))
    if not flags["yes"] and not _agreed():
        return ExitCode.FAILED
    await on.state.set_no_adoption(Pause(on.clock.now().server_epoch, flags["reason"]))
    lease = KubernetesLease(on.calls, flags["lease_namespace"], flags["lease_name"])
    try:
        async with asyncio.timeout(flags["confirm_timeout"]):
            await _nobody_adopts(on, lease)
    except TimeoutError:
        complain(
            "the leader has not confirmed in time that it adopts nothing, so nothing is given back: is it an older"
            " version, or can it not read the ConfigMap? The order stays: run this command again, or stop the leader"
        )
        return ExitCode.FAILED
    return await _give_back(on)


# Before


def _foretell(pods: Sequence[Adopted]) -> list[str]:
    """Return lines on what the built-in controller does with the pods once they have their seconds back."""
    if not pods:
        return ["no pod is adopted"]
    windows = Counter(pod.window_seconds for pod in pods if pod.window_seconds is not None)
    lines = [f"{many(len(pods), 'pod')} {_be(len(pods))} adopted"]
    if not windows:
        return [*lines, "with the present taints, the built-in controller will evict none of them"]
    total = windows.total()
    lines.append(f"the built-in controller will evict {total} of them, each after its full time, counted anew:")
    shown = sorted(windows)[:_MAX_WINDOWS]
    lines += [f"  after {seconds:g} s: {many(windows[seconds], 'pod')}" for seconds in shown]
    later = sum(windows[seconds] for seconds in windows if seconds not in shown)
    return [*lines, f"  later: {many(later, 'pod')}"] if later else lines


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _agreed() -> bool:
    if not sys.stdin.isatty():
        give_up(ExitCode.USAGE, "there is no terminal to ask whether that is wanted: give --yes")
    return click.confirm("end adoption, and give back what is adopted?")


# Waiting until no replica adopts


async def _nobody_adopts(on: Reached, lease: KubernetesLease) -> None:
    """Wait until the leader has confirmed, or there has been no leader for long enough."""
    seen, seen_at, told = LeaseRecord("", 0, 0.0, 0.0, 0), read_monotonic(), ""
    while True:
        control_state, record = await on.state.read() or ControlState(), await lease.read()
        holder = record.holder if record is not None else ""
        if holder and control_state.no_adoption_confirmed_by == holder:
            click.echo(visible(f"{holder} leads, and no longer adopts pods"))
            return
        # By this clock only: the times in the record come from another machine.
        if record is not None and (record.holder, record.version) != (seen.holder, seen.version):
            seen, seen_at = record, read_monotonic()
        if read_monotonic() - seen_at > (seen.duration_seconds if holder else 0) + _READ_SECONDS:
            click.echo("no replica leads" if not holder else visible(f"the Lease of {holder} has expired"))
            return
        if holder != told:
            complain(f"waiting for {holder} to confirm that it adopts nothing, or for its Lease to run out")
            told = holder
        await asyncio.sleep(_ASK_AGAIN_SECONDS)


# Giving back


async def _give_back(on: Reached) -> ExitCode:
    """Give back the listed pods, until only pods that fail are listed."""
    total: Counter[GivingBack] = Counter()
    failed: dict[str, str] = {}
    pods = await list_adopted(on.calls)
    for _ in range(_MAX_ROUNDS):
        done, failed = await give_back_all(on.calls, pods)
        total += done
        pods = await list_adopted(on.calls)
        if not pods or not done:
            break
    given, gone = total[GivingBack.DONE], total[GivingBack.GONE]
    also = f"; {many(gone, 'pod')} {_be(gone)} gone" if gone else ""
    click.echo(f"{many(given, 'pod')} {'has' if given == 1 else 'have'} been given back{also}")
    for pod in pods:
        complain(f"{pod.name} is still adopted: {failed.get(pod.name, 'since a moment ago, perhaps at its creation')}")
    return ExitCode.FAILED if pods else ExitCode.OK
