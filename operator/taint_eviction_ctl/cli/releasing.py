"""Asks the leader which pods a release would evict, shows the number, and asks for confirmation. Pausing needs none of
this. If the number is not known, the command says so and still asks.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from taint_eviction.cli.connection import PORT_FLAG, CommandT, with_flags
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.visible import complain, visible
from taint_eviction.core.control_state import ControlState, Pause, PauseScope, Release
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.sentences import replica_name
from taint_eviction.core.text import many
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.kube.lease import KubernetesLease
from taint_eviction.kube.release_query import release_text
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered, asking_leader
from taint_eviction_ctl.cli.control_state import Reached, state_flags
from taint_eviction_ctl.cli.status import with_further_pages
from taint_eviction_ctl.planning.budgets import violated_budgets
from taint_eviction_ctl.planning.cluster import read_namespaces

MAX_PODS = 100_000
# A release is often urgent while the API server is slow: the longest wait for pods, and the longest for budgets.
_MAX_SECONDS = 15.0
# The leader reads the pauses every two seconds.
_LOOKS, _LOOK_SECONDS = 4, 1.0
_MAX_NAMES = 5

Row = Mapping[str, Any]


def release_flags(command: CommandT) -> CommandT:
    """Add the flags of a command that releases evictions."""
    # No environment variable: a release without confirmation must be visible on the command line.
    agreed = click.option("--yes", "-y", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
    return with_flags(state_flags(command), (agreed, PORT_FLAG))


@dataclass(frozen=True, slots=True)
class Going:
    """What the leader says of a release: how many pods leave, from how many nodes, and how many due ones stay held.

    ``without_owner``: how many of the pods that leave nothing recreates, None: the leader does not say it. ``rows``:
    the pods that leave; None: they are not all known. ``breaker_open``: the leader's breaker is open. ``head``: who
    says it, and when.
    """

    pods: int
    nodes: int
    still_held: int
    without_owner: int | None
    rows: list[Row] | None
    breaker_open: bool
    head: Document


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
        complain(f"warning: {replica_name(record.holder)} led ({lease}), but has not renewed that for {silent:.0f} s")
    else:
        complain(f"leader: {replica_name(record.holder)} ({lease})")


async def count_going(on: Reached, flags: Mapping[str, Any], standing: ControlState, release: Release) -> Going | str:
    """Ask the leader which due pods a release lets go; return a text with the reason if that is not known.
    ``standing``: the control state as this command has read it, which the leader may not have read yet.
    """
    asking = asking_leader(on.calls, on.where, flags)
    query: dict[str, str | int] = {"limit": MAX_PODS, "release": release_text(release)}
    ends_at = asyncio.get_running_loop().time() + _MAX_SECONDS
    try:
        async with asyncio.timeout_at(ends_at):
            first = await _up_to_date(asking, query, standing)
        # A controller of another version may not say how many have no owner.
        numbers = first["pendingTotal"], first["pendingNodes"], first["stillHeld"], first.get("withoutOwner")
        head = {name: first.get(name) for name in ("apiVersion", "now", "version", "identity", "leading")}
        counted = Going(*numbers, rows=None, breaker_open=bool(first["breaker"]["open"]), head=head)
    except Unanswered as error:
        return str(error)
    except TimeoutError:
        return f"the leader has not named them within {_MAX_SECONDS:g} s"
    except (KeyError, TypeError):
        return "the leader's answer is not that of this version"
    try:
        async with asyncio.timeout_at(ends_at):
            return replace(counted, rows=(await with_further_pages(asking, query, first))["pending"])
    except (Unanswered, TimeoutError):
        return counted  # The first page has the numbers, whatever becomes of the others.


async def _up_to_date(asking: Ask, query: Mapping[str, str | int], standing: ControlState) -> Document:
    """Return the leader's answer once it knows what this command knows of pauses and breaker."""
    for look in range(_LOOKS):
        document = await asking("/status", query)
        if document.get("release") is None:
            raise Unanswered("the controller is of another version, and cannot say it")
        if _knows(document, standing):
            return document
        await asyncio.sleep(_LOOK_SECONDS if look + 1 < _LOOKS else 0.0)
    raise Unanswered("the leader has not read the pauses and the breaker's state as they are now")


def _knows(document: Document, standing: ControlState) -> bool:
    """Return whether the leader has read the pauses, and the last opening or reset of the breaker."""
    ordered = {(scope.kind, scope.name or None) for scope in standing.pauses()}
    if not document["ordersKnown"] or ordered != {(each["scope"], each["name"]) for each in document["pauses"]}:
        return False
    breaker = document["breaker"]
    if standing.latch is not None or not breaker["open"]:
        return bool(breaker["open"]) or standing.latch is None
    # It may have opened since, and not have written that yet.
    since_epoch = parse_rfc3339(breaker["since"])
    return standing.reset_epoch is None or since_epoch is None or since_epoch > standing.reset_epoch


async def release_document(
    on: Reached, going: Going, supposing: str, ends: Mapping[PauseScope, Pause], steps: Sequence[str]
) -> Document:
    """Return for programs what ``told`` says; ``ends``: the pauses that would end. ``steps``: the commands that do it,
    none if nothing holds these pods.
    """
    budgets, unknown = await _violated(on, going.rows)
    return {
        **going.head,
        "kind": "Release",
        "supposing": supposing or None,
        "endsPauses": [
            {"scope": scope.kind, "name": scope.name or None, "by": pause.by or None, "reason": pause.reason or None}
            for scope, pause in ends.items()
        ],
        "pods": going.pods,
        "nodes": going.nodes,
        "stillHeld": going.still_held,
        "withoutOwner": going.without_owner,
        "violatedBudgets": None if unknown and not budgets else [budget._asdict() for budget in budgets],
        "commands": list(steps),
        "pending": going.rows,
    }


async def told(on: Reached, going: Going | str, supposing: str = "") -> str:
    """Return one line on the pods that would be evicted; ``supposing``: if what were done, "": what is done next."""
    if isinstance(going, str):
        return f"how many pods would leave is not known: {going}"
    if supposing:
        if_so, leave, stays = f"if {supposing}, ", "would leave", "would stay"
    else:
        if_so, leave, stays = "", "leaves" if going.pods < 2 else "leave", "stays" if going.still_held == 1 else "stay"
    stay = f"{going.still_held} {stays} held" if going.still_held else ""
    if not going.pods:
        return f"{if_so}no pod {leave} now: {f'{stay} although due' if stay else 'none is due'}"
    head = f"{if_so}{many(going.pods, 'pod')} {leave} now from {many(going.nodes, 'node')}{_for_good(going)}"
    return f"{', '.join(filter(None, (head, stay)))}; {await _budgets(on, going.rows)}"


def _for_good(going: Going) -> str:
    """Return how many of the pods that leave nothing recreates; "" if it is none."""
    match going.without_owner:
        case None:
            return " (how many of them have no owner is not known: the leader is of another version)"
        case 0:
            return ""
        case count:
            names = _first(sorted(_key(row) for row in going.rows or () if row.get("owner", "") is None))
            has = "has" if count == 1 else "have"
            return f" ({count} {has} no owner and will not come back{names and ': '}{names})"


async def _budgets(on: Reached, rows: list[Row] | None) -> str:
    found, unknown = await _violated(on, rows)
    if not found:
        return f"which budgets would be violated is not known: {unknown}" if unknown else "no budget would be violated"
    more = f"; whether others would is not known: {unknown}" if unknown else ""
    return f"{many(len(found), 'budget')} would be violated ({_first(found)}){more}"


async def _violated(on: Reached, rows: list[Row] | None) -> tuple[list[NamespacedName], str]:
    """Return which budgets the evictions would violate (those by the eviction API violate none), and why that is not
    known of all, "": it is.
    """
    if rows is None:
        return [], f"the leader has not named all within {_MAX_SECONDS:g} s"
    deleted = {_key(row) for row in rows if row["mode"] == "delete"}
    if not deleted:
        return [], ""
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            inventory = await read_namespaces(on.calls, sorted({key.namespace for key in deleted}))
    except CallFailed as error:
        return [], str(error)
    except TimeoutError:
        return [], f"they could not be listed within {_MAX_SECONDS:g} s"
    return violated_budgets(inventory, deleted), "; ".join(inventory.notes)


def _key(row: Row) -> NamespacedName:
    return NamespacedName(row["namespace"], row["name"])


def _first(names: Sequence[NamespacedName]) -> str:
    return ", ".join(map(str, names[:_MAX_NAMES])) + (", …" if len(names) > _MAX_NAMES else "")


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
