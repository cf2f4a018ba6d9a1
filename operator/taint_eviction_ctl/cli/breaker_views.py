"""The circuit breaker for people and for machines, from a leader's status, and from what it says of a reset."""

from collections.abc import Mapping
from typing import Any

import click

from taint_eviction_ctl.cli.status_views import breaker_line, zone_lines
from taint_eviction_ctl.cli.tables import table_lines

_MAX_ROWS = 40
_HEADER = ("NODE", "TAINT", "PODS", "HELD", "LEAVE AFTER A RESET")


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
    lines = [breaker_line(breaker).removesuffix("; see taint-eviction breaker")]
    if breaker["open"]:
        lines.append(f"it opens at {', or '.join(breaker['opensAt'])}")
    lines += zone_lines(breaker)
    lines += [_not_counted(each) for each in breaker.get("uncounted", ())]
    if not losses:
        return [*lines, "no pod is to be evicted"]
    rows = [
        (each["node"], each["taint"], str(each["pods"]), str(each["held"]), _number(each["leaveNow"]))
        for each in losses
    ]
    lines += ["", click.style("nodes and taints with pods to evict", bold=True)]
    lines += table_lines(_HEADER, rows[:_MAX_ROWS])
    left = len(rows) - len(rows[:_MAX_ROWS]) + document.get("moreGroups", 0)
    return [*lines, f"  … and {left} more"] if left else lines


def _number(count: int | None) -> str:
    return "not known" if count is None else str(count)


def _not_counted(group: Mapping[str, Any]) -> str:
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
