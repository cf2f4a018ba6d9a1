"""The circuit breaker for people and for machines, from a leader's status."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from taint_eviction_ctl.cli.status_views import breaker_line, zone_lines
from taint_eviction_ctl.cli.tables import table_lines

_MAX_ROWS = 40
_HEADER = ("NODE", "TAINT", "PODS", "HELD BY IT", "WOULD LEAVE NOW")


def breaker_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a status that is about the breaker, and which pods each node would lose.
    A field that a controller of another version does not send is None.
    """
    head = {name: document.get(name) for name in ("apiVersion", "now", "version", "identity", "leading")}
    return {**head, "kind": "Breaker", **(document.get("breaker") or {}), "nodes": _losses(document)}


def breaker_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines: open or not, why, counts against thresholds, and how many pods each node would lose."""
    breaker, losses = document["breaker"], _losses(document)
    lines = [breaker_line(breaker).removesuffix("; see taint-eviction breaker")]
    if breaker["open"]:
        lines.append(f"it opens at {', or '.join(breaker['opensAt'])}")
    lines += zone_lines(breaker)
    lines += [_not_counted(each) for each in breaker.get("uncounted", ())]
    if not losses:
        return [*lines, "no pod waits for the breaker"]
    rows = [tuple(str(each[field]) for field in ("node", "taint", "pods", "held", "leaveNow")) for each in losses]
    lines += ["", click.style("nodes and taints with pods to evict", bold=True)]
    lines += table_lines(_HEADER, rows[:_MAX_ROWS])
    return [*lines, f"  … and {len(rows) - _MAX_ROWS} more"] if len(rows) > _MAX_ROWS else lines


def _not_counted(group: Mapping[str, Any]) -> str:
    """Return a line that names nodes that are not counted, and why."""
    names, left = ", ".join(group["nodeNames"]), group["count"] - len(group["nodeNames"])
    more = f" and {left} more" if left > 0 else ""
    return f"not counted: {names}{more}: {group['text']}"


def _losses(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Count by node and taint the pods to evict, those that the breaker holds, and those of them that are due."""
    pods, held, due = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in document.get("pending") or ():
        key = row.get("node") or "", row.get("taint") or ""
        is_held = (row.get("hold") or {}).get("reason") == "breaker_open"
        pods[key] += 1
        held[key] += is_held
        due[key] += is_held and row.get("dueInSeconds", 0.0) <= 0
    return [
        {"node": node, "taint": taint, "pods": count, "held": held[node, taint], "leaveNow": due[node, taint]}
        for (node, taint), count in sorted(pods.items(), key=lambda each: (-due[each[0]], -each[1], each[0]))
    ]
