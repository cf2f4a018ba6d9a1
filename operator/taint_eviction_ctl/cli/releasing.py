"""Counts from the leader's status which pods a release would evict, shows the number, and asks for confirmation.
Pausing needs none of this. If the number is not known, the command says so and still asks.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from taint_eviction.adapters.lease import KubernetesLease
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.visible import complain, visible
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.objects import NamespacedName
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.asking import Document, Unanswered, asking_leader
from taint_eviction_ctl.cli.control_state import Reached, state_flags
from taint_eviction_ctl.cli.flags import PORT_FLAG, CommandT, with_flags
from taint_eviction_ctl.cli.status import whole_status
from taint_eviction_ctl.planning.budgets import violated_budgets
from taint_eviction_ctl.planning.cluster import read_namespaces
from taint_eviction_ctl.planning.wording import many

MAX_PODS = 100_000
# A release is often urgent while the API server is slow: the longest wait for pods, and the longest for budgets.
_MAX_SECONDS = 15.0
# Reasons to wait that a release ends: people's pauses and the breaker; not a rule's pause or an owner's hold.
_RELEASABLE = frozenset({"paused", "node_paused", "namespace_paused", "breaker_open"})

Row = Mapping[str, Any]


def release_flags(command: CommandT) -> CommandT:
    """Add the flags of a command that releases evictions."""
    # No environment variable: a release without confirmation must be visible on the command line.
    agreed = click.option("--yes", "-y", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
    return with_flags(state_flags(command), (agreed, PORT_FLAG))


@dataclass(frozen=True, slots=True)
class Going:
    """The pods that a release would evict; ``breaker_open``: the leader's breaker is open, by its own status."""

    rows: list[Row]
    breaker_open: bool


async def tell_leader(on: Reached, flags: Mapping[str, Any]) -> None:
    """Print the leader to stderr; warn if there is none. This never fails: pausing must be possible without it."""
    lease = f"Lease {flags['lease_namespace']}/{flags['lease_name']}"
    try:
        record = await KubernetesLease(on.calls, flags["lease_namespace"], flags["lease_name"]).read()
    except CallFailed as error:
        complain(f"which replica leads is not known: the {lease} cannot be read: {error}")
        return
    if record is None or not record.holder:
        why = f"there is no {lease}" if record is None else f"nobody holds the {lease}"
        complain(f"warning: {why}: no controller reads this yet; it counts as soon as one does")
        return
    silent = on.clock.now().server_epoch - record.renewed_epoch
    if record.duration_seconds and silent > record.duration_seconds + 1:
        complain(f"warning: {record.holder} led ({lease}), but has not renewed that for {silent:.0f} s")
    else:
        complain(f"leader: {record.holder} ({lease})")


async def count_going(on: Reached, flags: Mapping[str, Any], after: ControlState, reset: bool) -> Going | str:
    """Count the due pods that nothing else would hold; return a text with the reason if that is not known.
    ``after``: the control state after the release. ``reset``: the breaker will be closed.
    """
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            document = await whole_status(asking_leader(on.calls, on.where, flags), {"limit": MAX_PODS})
        is_open = bool(document["breaker"]["open"])
        holds = _holding(document, after, is_open and not reset)
        rows = [row for row in document["pending"] if _waits(row) and not holds(row)]
    except Unanswered as error:
        return str(error)
    except TimeoutError:
        return f"the leader has not named them within {_MAX_SECONDS:g} s"
    except (KeyError, TypeError):
        return "the leader's answer is not that of this version"
    return Going(rows, is_open)


def _waits(row: Row) -> bool:
    return row["dueInSeconds"] <= 0 and row["hold"] is not None and row["hold"]["reason"] in _RELEASABLE


def _holding(document: Document, after: ControlState, is_open: bool) -> Callable[[Row], bool]:
    paused_rules = {rule["name"] for rule in document["policy"]["rules"] if rule["paused"]}

    def holds(row: Row) -> bool:
        return (
            after.cluster is not None
            # An open breaker that holds a pod of a node out of service comes before a pause in the leader's answer.
            or (is_open and (not row["outOfService"] or row["hold"]["reason"] == "breaker_open"))
            or row["node"] in after.nodes
            or row["namespace"] in after.namespaces
            or row["rule"] in paused_rules
        )

    return holds


async def told(on: Reached, going: Going | str) -> str:
    """Return one line on the pods that would be evicted."""
    if isinstance(going, str):
        return f"how many pods would leave is not known: {going}"
    if not going.rows:
        return "no pod is due: none leaves at once"
    nodes = len({row["node"] for row in going.rows})
    leave = "pod leaves" if len(going.rows) == 1 else "pods leave"
    head = f"{len(going.rows)} {leave} now from {many(nodes, 'node')}"
    return f"{head}; {await _budgets(on, going.rows)}"


async def _budgets(on: Reached, rows: list[Row]) -> str:
    """Return which budgets the evictions would violate: those by the eviction API violate none."""
    deleted = {NamespacedName(row["namespace"], row["name"]) for row in rows if row["mode"] == "delete"}
    if not deleted:
        return "no budget would be violated"
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            inventory = await read_namespaces(on.calls, sorted({key.namespace for key in deleted}))
    except CallFailed as error:
        return f"which budgets would be violated is not known: {error}"
    except TimeoutError:
        return f"which budgets would be violated is not known: they could not be listed within {_MAX_SECONDS:g} s"
    found = violated_budgets(inventory, deleted)
    names = f" ({', '.join(map(str, found[:5]))}{', …' if len(found) > 5 else ''})" if found else ""
    return f"{many(len(found), 'budget') if found else 'no budget'} would be violated{names}"


def must_agree(flags: Mapping[str, Any], question: str) -> None:
    """Ask for confirmation; end the command if it is refused, or if nobody can be asked."""
    if flags["yes"]:
        return
    if not _is_asked():
        give_up(ExitCode.USAGE, f"nothing was changed: without a terminal this needs --yes ({question})")
    if not click.confirm(visible(question), err=True):
        give_up(ExitCode.FAILED, "nothing was changed")


def _is_asked() -> bool:
    return sys.stdin.isatty()
