"""``taint-eviction hand-back``: end adoption, and give all countdowns back to the built-in controller.

It says that nothing is adopted only when nobody can mark a pod any more: a request of a dead leader is decided within
75 s. ``giving_back`` changes the single pods.
"""

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain, visible
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.instants import LATE_WRITE_SECONDS
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import many
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION
from taint_eviction.kube.api_calls import ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.lease import KubernetesLease
from taint_eviction.runtime.clock import read_monotonic
from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.control_state import Reached, change_control_state, state_flags
from taint_eviction_ctl.cli.flags import verb
from taint_eviction_ctl.cli.giving_back import GivingBack, MarkedPod, give_back_all, list_marked, patch_line
from taint_eviction_ctl.installation.adoption_right import AdoptionRight, RightKept
from taint_eviction_ctl.installation.pretenders import that_may
from taint_eviction_ctl.installation.replicas import CONTROLLER, read_replicas

_ASK_AGAIN_SECONDS = 1.0
# A replica that read the control state just before the order may acquire the Lease just after it, without knowing it.
_READ_SECONDS = 3.0
_MAX_WINDOWS, _MAX_NAMES = 10, 20
_MAX_ROUNDS = 5
_NOTED_AGAIN = (
    f"its annotation {NOTE_ANNOTATION} cannot be read, or was written a moment ago; every user who may change the pod"
    " can write it"
)

# A request of a host that was cut off from the network may still arrive for so long.
_CUT_OFF_MINUTES = 15


@verb("hand-back")
@click.option("--yes", "-y", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@flag("--reason", default="", show_default=False, help="Why; it is kept with the order.")
@click.option("--undo", is_flag=True, allow_from_autoenv=False, help="Let the controller adopt again; change no pod.")
@click.option(
    "--print",
    "prints",
    is_flag=True,
    allow_from_autoenv=False,
    help="Only print the kubectl commands that give the pods back; change nothing.",
)
@flag("--confirm-timeout", type=Seconds(), default=60.0, help="How long the leader may take to confirm.")
@state_flags
def hand_back(**flags: Any) -> None:
    """Give all countdowns back to the built-in controller.

    Stops adoption, even if the controller runs with --adopt, until `taint-eviction hand-back --undo`. When the leader
    has confirmed this, or its Lease has expired, the command takes the right to change tolerations away from the
    controller (the ClusterRoleBinding of the component adopt), and restores the tolerationSeconds of every pod. The
    built-in controller then counts them from the beginning. Before it restores them, the command shows which pods the
    built-in controller will evict, and asks for confirmation. It ends with a look at every pod, 75 s after the last
    moment at which the controller may have sent a request.

    Exit codes: 0 nothing is adopted any more; 1 some pods still are, or the leader has not confirmed; 2 wrong usage,
    there is no terminal to ask, there is neither Lease nor ConfigMap, or a controller with another Lease adopts; 3 the
    API server cannot be reached, or rights are missing.
    """
    change_control_state(flags, _undo if flags["undo"] else lambda on: give_all_back(on, flags))


async def _undo(on: Reached) -> ExitCode:
    await on.state.set_no_adoption(None)
    click.echo(
        "the controller may adopt again, if its flags enable adoption and it has the right: apply its manifests again"
    )
    return ExitCode.OK


async def give_all_back(on: Reached, flags: Mapping[str, Any]) -> ExitCode:
    """Stop adoption, and give the countdowns back; ``flags``: those of the command."""
    pods, unreadable = await list_marked(on.calls)
    if flags["prints"]:
        for pod in pods:
            if pod.noted and (line := await patch_line(on.calls, pod)) is not None:
                click.echo(line)
        return _leave_out(unreadable)
    await _need_the_right_place(on, NamespacedName(flags["lease_namespace"], flags["lease_name"]))
    for line in _foretell([pod for pod in pods if pod.noted]):
        click.echo(visible(line))
    if not flags["yes"] and not _agreed():
        return ExitCode.FAILED
    await on.state.set_no_adoption(Pause(on.clock.now().server_epoch, flags["reason"]))
    lease = _LeaseSeen(KubernetesLease(on.calls, flags["lease_namespace"], flags["lease_name"]))
    try:
        async with asyncio.timeout(flags["confirm_timeout"]):
            nobody_since = await _nobody_adopts(on, lease)
    except TimeoutError:
        complain(
            "the leader has not confirmed in time that it adopts nothing, so nothing is given back: is it an older"
            " version, or can it not read the ConfigMap? The order stays: run this command again, or stop the leader"
        )
        return ExitCode.FAILED
    kept = await _take_the_right(on, NamespacedName(flags["lease_namespace"], flags["lease_name"]))
    done_at = max(nobody_since, read_monotonic())
    total, failed = await _give_back(on)
    while (left := max(done_at, lease.changed_at) + LATE_WRITE_SECONDS - read_monotonic()) > 0:
        complain(f"waiting for {math.ceil(left)} s: until then a request of a dead leader may still arrive")
        await asyncio.sleep(left)
        await lease.look()
    again, failed = await _give_back(on)
    return await _conclude(on, total + again, failed, kept)


async def _need_the_right_place(on: Reached, lease: NamespacedName) -> None:
    """End the command if no leader could read its order: a controller with another Lease would go on adopting."""
    query = {"labelSelector": f"app.kubernetes.io/name={CONTROLLER}"}
    listed = list_items(on.calls, ApiRequest("list", "pods", query=query), lambda pod: read_replicas([pod], "pods")[0])
    seen = [each async for some in listed for each in some if each.adopts and not each.dry_run]
    others = {each.lease for each in await that_may(on.calls, seen, "patch")} - {lease}
    if others:
        where = [f"--lease-namespace {other.namespace} --lease-name {other.name}" for other in sorted(others)]
        give_up(
            ExitCode.USAGE,
            f"nothing was changed: a controller with another Lease than {lease} runs with --adopt",
            *(f"to hand back what it has taken over: taint-eviction hand-back {words}" for words in where),
        )
    if await on.state.read() is None and await KubernetesLease(on.calls, *lease).read() is None:
        give_up(
            ExitCode.USAGE,
            f"nothing was changed: there is neither a Lease nor a ConfigMap {lease}",
            "name those of the controller: --lease-namespace, --lease-name",
            "if it has been removed, taint-eviction hand-back --print prints the commands that give the pods back",
        )


class _LeaseSeen:
    """The Lease, and when its holder was seen to change: by this clock, since its times come from another machine."""

    def __init__(self, lease: KubernetesLease) -> None:
        self._lease = lease
        self._last = LeaseRecord("", 0, 0.0, 0.0, 0)
        self.seen_at = self.changed_at = read_monotonic()

    async def look(self) -> LeaseRecord | None:
        """Read it."""
        record = await self._lease.read()
        if record is not None and (record.holder, record.version) != (self._last.holder, self._last.version):
            self.seen_at = read_monotonic()
            if record.holder != self._last.holder:
                self.changed_at = self.seen_at
            self._last = record
        return record

    @property
    def duration_seconds(self) -> float:
        """How long its holder may act without renewing it."""
        return self._last.duration_seconds if self._last.holder else 0.0


# Before


def _foretell(pods: Sequence[MarkedPod]) -> list[str]:
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


async def _nobody_adopts(on: Reached, lease: _LeaseSeen) -> float:
    """Wait until the leader has confirmed, or there has been no leader for long enough; return when that was seen."""
    told = ""
    while True:
        control_state, record = await on.state.read() or ControlState(), await lease.look()
        holder = record.holder if record is not None else ""
        if holder and control_state.no_adoption_confirmed_by == holder:
            click.echo(visible(f"{holder} leads, and no longer adopts pods"))
            return read_monotonic()
        if read_monotonic() - lease.seen_at > lease.duration_seconds + _READ_SECONDS:
            click.echo("no replica leads" if not holder else visible(f"the Lease of {holder} has expired"))
            return read_monotonic()
        if holder != told:
            complain(f"waiting for {holder} to confirm that it adopts nothing, or for its Lease to run out")
            told = holder
        await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def _take_the_right(on: Reached, account: NamespacedName) -> str:
    """Take the right to mark pods away from the controller; return why it may still have it, "" if it has not."""
    try:
        async for name in AdoptionRight(on.calls, account).remove():
            click.echo(visible(f"removed ClusterRoleBinding {name}"))
    except (CallFailed, RightKept) as error:
        return str(error)
    click.echo("the controller may change no tolerations any more")
    return ""


# Giving back


async def _give_back(on: Reached) -> tuple[Counter[GivingBack], dict[str, str]]:
    """Give back all pods with a note, until only pods that fail have one; return the results, and why pods failed."""
    total: Counter[GivingBack] = Counter()
    failed: dict[str, str] = {}
    for _ in range(_MAX_ROUNDS):
        pods = [pod for pod in (await list_marked(on.calls)).pods if pod.noted]
        if not pods:
            return total, {}
        done, failed = await give_back_all(on.calls, pods)
        total += done
        if not done[GivingBack.DONE]:
            break
    return total, failed


async def _conclude(on: Reached, total: Counter[GivingBack], failed: Mapping[str, str], kept: str) -> ExitCode:
    """Look at every pod once more, and say what is left."""
    given, gone = total[GivingBack.DONE], total[GivingBack.GONE]
    also = f"; {many(gone, 'pod')} {_be(gone)} gone" if gone else ""
    click.echo(f"{many(given, 'pod')} {'has' if given == 1 else 'have'} been given back{also}")
    pods, unreadable = await list_marked(on.calls)
    left = [str(pod.pod.ref) for pod in pods if pod.noted]
    for name in left:
        complain(f"{name} is still adopted: {failed.get(name, _NOTED_AGAIN)}")
    unexplained = [str(pod.pod.ref) for pod in pods if not pod.noted]
    if unexplained:
        complain(
            f"{many(len(unexplained), 'pod')} of unknown origin with 9223372036854775807 s for a taint, and without a"
            f" note of what it was before: {', '.join(unexplained[:_MAX_NAMES])}"
        )
    if _leave_out(unreadable) is not ExitCode.OK or left:
        return ExitCode.FAILED
    if kept:
        complain(
            f"the controller may keep the right to change tolerations ({kept}): a request of a host that was cut off"
            f" may still arrive for {_CUT_OFF_MINUTES} min; then look again with taint-eviction hand-back --print"
        )
    await on.state.remove_adopter((await on.state.read() or ControlState()).adopter)
    click.echo("nothing is adopted any more")
    return ExitCode.OK


def _leave_out(unreadable: Sequence[str]) -> ExitCode:
    """Name the pods with a note that cannot be given back, since they are malformed."""
    for error in unreadable:
        complain(f"it has the annotation {NOTE_ANNOTATION}, and is left out: {error}")
    return ExitCode.FAILED if unreadable else ExitCode.OK
