"""The circuit breaker for people and for machines, from a leader's status, and from what it says of a reset."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from taint_eviction.core.sentences import replica_name
from taint_eviction.core.text import many
from taint_eviction_ctl.cli.tables import bad, bold, doubtful, good, table_lines
from taint_eviction_ctl.planning.wording import utc

_MAX_ROWS = 40
_MORE = "; see taint-eviction breaker"
# The runbook has the same order.
_IN_STEPS = (
    "to let pods go in steps: pause, then breaker reset, then resume --only zone/NAME or node/NAME;"
    " resume zone/NAME --dry-run counts them before"
)
_HEADER = ("NODE", "TAINT", "PODS", "HELD", "LEAVE AFTER A RESET")
_ZONE_HEADER = ("ZONE", "NODES", "TAINTED", "NOT READY", "LOST", "SHARE", "OPENS ABOVE", "LOST NODES")
_ZONE_COUNTS = ("notReady", "newlyNotReady", "newlyTainted", "counted")

# Why nodes that are tainted, or lost, are not counted, in few words; the document has a sentence for each.
_UNCOUNTED = {
    "excluded": "excluded by a label",
    "control_plane": "control plane",
    "unlisted": "pods not listed yet",
    "known": "{} before the reset",
    "old": "{} before the window",
    "no_eviction": "no pod to evict",
    "undated": "since when is not known",
    "apart": "{} at another time",
}


def breaker_document(document: Mapping[str, Any], released: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a status that is about the breaker, and which pods each node would lose.
    ``released``: the status of those pods that a reset would let go. A field that a controller of another version does
    not send is None.
    """
    head = {name: document.get(name) for name in ("apiVersion", "now", "version", "identity", "leading")}
    return {**head, "kind": "Breaker", **(document.get("breaker") or {}), "nodes": _losses(document, released)}


def breaker_lines(document: Mapping[str, Any], released: Mapping[str, Any]) -> list[str]:
    """Return the lines: open or not, why, counts against thresholds, and how many pods each node would lose."""
    breaker, losses = document["breaker"], _losses(document, released)
    lines = [_whole(breaker), *criteria_lines(breaker), *([_IN_STEPS] if breaker["open"] else [])]
    if breaker["enabled"]:
        lines += ["it opens at", *(f"  {condition}" for condition in breaker["opensAt"])]
    lines += zone_lines(breaker)
    lines += [_uncounted(each) for each in breaker.get("uncounted", ())]
    if not losses:
        return [*lines, "no pod is to be evicted"]
    rows = [
        (each["node"], each["taint"], str(each["pods"]), str(each["held"]), _number(each["leaveNow"]))
        for each in losses
    ]
    lines += ["", bold("nodes and taints with pods to evict")]
    # A reset of a closed breaker lets nothing go.
    columns = len(_HEADER) if breaker["open"] else len(_HEADER) - 1
    lines += table_lines(_HEADER[:columns], [row[:columns] for row in rows[:_MAX_ROWS]])
    left = len(rows) - len(rows[:_MAX_ROWS]) + document.get("moreGroups", 0)
    return [*lines, f"  … and {left} more"] if left else lines


def _whole(breaker: Mapping[str, Any]) -> str:
    """Return the line of a status without the advice to look here; of an open breaker with all that is known of it."""
    line = breaker_line({**breaker, "criteria": ()}).removesuffix(_MORE)
    # A controller of an earlier version does not say who opened it.
    by = breaker["open"] and replica_name(breaker.get("by") or "")
    since = _since(breaker)
    return line.replace(since, f"{since}, by {by}") if by and since else line


def _number(count: int | None) -> str:
    return "not known" if count is None else str(count)


def _uncounted(group: Mapping[str, Any]) -> str:
    """Return a line that names nodes that are not counted, and why."""
    names, left = ", ".join(group["nodeNames"]), group["count"] - len(group["nodeNames"])
    more = f" and {left} more" if left > 0 else ""
    return f"not counted: {names}{more}: {group['text']}"


def _losses(document: Mapping[str, Any], released: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return by node and taint the pods to evict, those of them that are due and held, and those that a reset lets go.
    The last number is None if the controller, being of another version, does not say it.
    """
    leaving = {(each["node"], each["taint"]): each["pods"] for each in released.get("groups", ())}
    is_known = released.get("release") is not None
    losses = [
        {
            "node": each["node"],
            "taint": each["taint"],
            "pods": each["pods"],
            "held": each["counts"]["held"],
            "leaveNow": leaving.get((each["node"], each["taint"]), 0) if is_known else None,
        }
        for each in document.get("groups", ())
    ]
    return sorted(losses, key=lambda each: (-(each["leaveNow"] or 0), -each["pods"], each["node"], each["taint"]))


def _since(breaker: Mapping[str, Any]) -> str:
    return f" since {utc(breaker['since'])}" if breaker.get("since") else ""


def breaker_line(breaker: Mapping[str, Any], width: int | None = None) -> str:
    """Return whether the breaker is open, since when and why, and, where there is room, where more is said."""
    if not breaker["open"]:
        return f"circuit breaker: {good('closed')}" if breaker["enabled"] else "circuit breaker: off"
    since = _since(breaker)
    # A criterion that is exceeded says why by itself.
    exceeded = any(each["exceeded"] for each in breaker.get("criteria", ()))
    cause = "" if exceeded or not breaker["cause"] else f": {breaker['cause']}"
    if not breaker["enabled"]:
        cause += ", although no breaker is configured: only taint-eviction breaker reset closes it"
    line = f"circuit breaker: {bad('OPEN')}{since}{cause}"
    return line if width is not None and len(click.unstyle(line + _MORE)) > width else line + _MORE


def criteria_lines(breaker: Mapping[str, Any], width: int | None = None) -> list[str]:
    """Return a line for each thing that opens the breaker; none if it is closed and nothing counts."""
    # A controller of another version may not say them.
    found = breaker.get("criteria", ())
    if not found or not (breaker["open"] or any(each["counted"] or each["notCounted"] for each in found)):
        return []
    rows = [(_name(each), _counted(each), _share(each), f"opens above {each['opensAbove']}") for each in found]
    name_width, counted_width, share_width, opens_width = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for each, (name, counted, share, opens) in zip(found, rows, strict=True):
        cells = f"{name:<{name_width}}", f"{counted:>{counted_width}}", f"{share:>{share_width}}"
        line = "  ".join(["", *cells, f"{opens:<{opens_width}}", _verdict(each, breaker)]).rstrip()
        room = None if width is None else width - len(click.unstyle(line)) - 2
        lines.append("  ".join(filter(None, (line, _not_counted(each, room) or _of_lost(each, found, room)))))
    return lines


def _name(criterion: Mapping[str, Any]) -> str:
    return f"zone {criterion['zone']}" if criterion["zone"] else str(criterion["kind"])


def _counted(criterion: Mapping[str, Any]) -> str:
    if criterion["kind"] == "due" and criterion["counted"] == criterion["total"]:
        return many(criterion["total"], "pod")
    return f"{criterion['counted']} of {criterion['total']}"


def _share(criterion: Mapping[str, Any]) -> str:
    return "" if criterion["kind"] == "due" else f"{criterion['sharePercent']:.0f} %"


def _verdict(criterion: Mapping[str, Any], breaker: Mapping[str, Any]) -> str:
    if criterion["exceeded"]:
        return bad("OPEN") if breaker["open"] else doubtful("once one of their pods is due")
    return f"but counts only from {criterion['minNodes']} on" if criterion["tooFew"] else ""


def _not_counted(criterion: Mapping[str, Any], room: int | None) -> str:
    """Return how many more nodes are tainted or lost, and why they do not count; shorter where there is little room."""
    became, are = ("tainted", "tainted") if criterion["kind"] == "tainted" else ("lost", "unready")
    counts = {
        _UNCOUNTED.get(each["reason"], each["reason"]).format(became): each["count"] for each in criterion["notCounted"]
    }
    if not counts:
        return ""
    total, why = sum(counts.values()), ", ".join(f"{count} {reason}" for reason, count in counts.items())
    why = next(iter(counts)) if len(counts) == 1 else why
    more, do = many(total, f"more {are} node"), "does" if total == 1 else "do"
    texts = f"{more} {do} not count: {why}", f"{total} uncounted: {why}", f"{total} uncounted: see breaker"
    return next((text for text in texts if room is None or len(text) <= room), "")


def _of_lost(criterion: Mapping[str, Any], found: Sequence[Mapping[str, Any]], room: int | None) -> str:
    """Return why no node counts as tainted although some are: those that are lost have a line of their own."""
    lost = any(each["kind"] == "lost" and (each["counted"] or each["notCounted"]) for each in found)
    if criterion["kind"] != "tainted" or criterion["counted"] or not lost:
        return ""
    texts = "not-ready and unreachable: see lost", "see lost"
    return next((text for text in texts if room is None or len(text) <= room), "")


def zone_lines(breaker: Mapping[str, Any]) -> list[str]:
    """Return the breaker's counts as a table of zones; no lines if nothing counts."""
    # A controller of another version may send none.
    rows = [row for row in breaker.get("zones", ()) if any(row[count] for count in _ZONE_COUNTS)]
    rows = rows[:1] if [row["zone"] for row in rows] == [None, ""] else rows
    if not rows:
        return []
    left = len(breaker["zones"]) - len(rows) if len(rows) > 1 else 0
    more = [f"  {many(left, 'more zone')}: nothing counts there"] if left else []
    return ["", *table_lines(_ZONE_HEADER, [_zone(row) for row in rows]), *more]


def _zone(row: Mapping[str, Any]) -> tuple[str, ...]:
    zone = "all" if row["zone"] is None else row["zone"] or "(none)"
    more = row["counted"] - len(row["nodeNames"])
    names = ", ".join([*row["nodeNames"], *([f"… and {more} more"] if more > 0 else [])])
    new = f", {row['newlyNotReady']} new" if row["newlyNotReady"] else ""
    counts = str(row["newlyTainted"]), f"{row['notReady']}{new}", str(row["counted"])
    return zone, str(row["nodes"]), *counts, f"{row['sharePercent']:g} %", row["threshold"] or "", names
