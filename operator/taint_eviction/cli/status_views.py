"""A status for people: first who leads and what holds evictions back, then the pods that are pending eviction."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from taint_eviction.cli.tables import table_lines
from taint_eviction.cli.visible import visible
from taint_eviction.core.sentences import BY_DELETE_OUT_OF_SERVICE, tolerated
from taint_eviction.planning.wording import many, span

_STATES = {"inFlight": "in flight", "due": "due", "retrying": "retrying", "blocked": "blocked", "held": "held"}
# By the word that is shown.
_COLOURS = {"in flight": "cyan", "retrying": "red", "blocked": "magenta", "held": "yellow", "due": "cyan"}
_ZONE_COUNTS = ("notReady", "newlyNotReady", "newlyTainted", "counted")
_ZONE_HEADER = (
    "ZONE",
    "NODES",
    "NOT READY",
    "NEWLY NOT READY",
    "NEWLY TAINTED",
    "COUNTED",
    "SHARE",
    "THRESHOLD",
    "COUNTED NODES",
)
_HEADER = ("DUE", "STATE", "POD", "NODE", "WHY")

_bold = partial(click.style, bold=True)
_good = partial(click.style, fg="green")
_bad = partial(click.style, fg="red", bold=True)
_doubtful = partial(click.style, fg="yellow")


def status_lines(document: Mapping[str, Any], max_pods: int | None = None, more: str = "") -> list[str]:
    """Write a status with at most ``max_pods`` pods; None: with all that are in it. ``more`` is a line before them."""
    doubts = [_doubtful(visible(more))] if more else []
    return [*_headline(document), *_lately(document), *doubts, *_pods(document, max_pods)]


def _lately(document: Mapping[str, Any]) -> list[str]:
    """Say how many pods went lately, by node and taint."""
    # A controller of another version may not say it.
    lately = document.get("evictedLately")
    if not lately or not lately["total"]:
        return []
    rows = [(str(group["pods"]), group["node"], group["taint"]) for group in lately["groups"]]
    more = [f"  … and {many(lately['moreGroups'], 'more node')}"] if lately["moreGroups"] else []
    head = f"{many(lately['total'], 'pod')} evicted in the last {span(lately['withinSeconds'])}"
    return [f"{head}; see taint-eviction history", *table_lines(("GONE", "NODE", "TAINT"), rows), *more]


def _headline(document: Mapping[str, Any]) -> list[str]:
    lines = [_who(document), _what(document)]
    if not document["ready"]:
        lines.append(_bad(f"not ready: {document['notReadyBecause']}"))
    # A controller of another version may have none.
    lines += map(_bad, document.get("warnings", ()))
    lines += [breaker_line(document["breaker"]), *zone_lines(document["breaker"]), *map(_pause, document["pauses"])]
    if document["ordersKnown"] is False:
        lines.append(_doubtful("pauses have not been read yet: nothing is evicted"))
    lines += [_doubtful(f"node {each['node']}: {each['text']}") for each in document.get("outOfServiceNodes", ())]
    paused = [rule["name"] for rule in document["policy"]["rules"] if rule["paused"]]
    return lines + [_doubtful(f"rule {name} of the policy pauses evictions") for name in paused]


def _who(document: Mapping[str, Any]) -> str:
    lease, dry = document["lease"], _doubtful("dry run, ") if document["dryRun"] else ""
    ready = ", ".join([_good("ready") if document["ready"] else _bad("not ready"), f"version {document['version']}"])
    who = _bold(document["identity"])
    if document["leading"]:
        by = "" if lease is None else f" by Lease {lease['namespace']}/{lease['name']}"
        return f"{who} leads{by}: {dry}{ready}"
    holder = f"{lease['holder']} does" if lease is not None and lease["holder"] else "no leader is known"
    return f"{who} does {_bad('not')} lead, {holder}: {dry}{ready}"


def _what(document: Mapping[str, Any]) -> str:
    policy, counts = document["policy"], document["counts"]
    rules = f", {many(len(policy['rules']), 'rule')}" if policy["rules"] else ""
    limited = [name for name, limit in policy["limits"].items() if limit is not None]
    limits = "" if not limited else f", limited ({', '.join(limited)})"
    states = ", ".join(f"{count} {_STATES.get(state, state)}" for state, count in counts.items() if count)
    head = (
        f"{many(document['pendingTotal'], 'pod')} pending eviction on {many(document['taintedNodes'], 'tainted node')}"
    )
    return f"{head}{states and f': {states}'}; mode {policy['mode']}{limits}{rules}"


def breaker_line(breaker: Mapping[str, Any]) -> str:
    """Say whether it is open, since when and why; or what it counts, and when it opens."""
    if breaker["open"]:
        since = f"since {breaker['since']}: " if breaker["since"] else ""
        return _bad("the circuit breaker is open") + f" ({since}{breaker['cause']}); see taint-eviction breaker"
    if not breaker["enabled"]:
        return "circuit breaker: off"
    seen = f"{breaker['newlyTaintedNodes']} of {many(breaker['totalNodes'], 'node')} newly tainted"
    seen += f", {breaker['lifecycleNodes']} lost together with pods to evict, {many(breaker['duePods'], 'pod')} due"
    if unlisted := breaker.get("unlistedNodes"):
        seen += f", pods of {many(unlisted, 'node')} not listed yet"
    return f"circuit breaker: {_good('closed')}; {seen}; it opens at {', or '.join(breaker['opensAt'])}"


def zone_lines(breaker: Mapping[str, Any]) -> list[str]:
    """Write what it counts as a table of zones; nothing where it is closed and there is nothing to count."""
    # A controller of another version may tell none.
    rows = [row for row in breaker.get("zones", ()) if any(row[count] for count in _ZONE_COUNTS)]
    if not rows or not (breaker["open"] or any(row["counted"] or row["newlyTainted"] for row in rows)):
        return []
    return table_lines(_ZONE_HEADER, [_zone(row) for row in rows])


def _zone(row: Mapping[str, Any]) -> tuple[str, ...]:
    zone = "all" if row["zone"] is None else row["zone"] or "(none)"
    more = row["counted"] - len(row["nodeNames"])
    names = ", ".join([*row["nodeNames"], *([f"… and {more} more"] if more > 0 else [])])
    counts = (str(row[count]) for count in _ZONE_COUNTS)
    return zone, str(row["nodes"]), *counts, f"{row['sharePercent']:g} %", row["threshold"] or "", names


def _pause(pause: Mapping[str, Any]) -> str:
    what = "all evictions" if pause["scope"] == "all" else f"evictions of {pause['scope']} {pause['name']}"
    # A controller of an older version knows neither who nor until when.
    facts = {"since": pause["since"], "until": pause.get("until"), "by": pause.get("by")}
    told = ": ".join(
        filter(None, (", ".join(f"{word} {fact}" for word, fact in facts.items() if fact), pause["reason"]))
    )
    return _doubtful(f"{what} are paused") + (f" ({told})" if told else "")


# Pods


def _pods(document: Mapping[str, Any], max_pods: int | None) -> list[str]:
    shown = document["pending"][:max_pods]
    if not shown and not document["pendingTotal"]:
        return []
    rows = [_row(pod) for pod in shown]
    lines = ["", *table_lines(_HEADER, rows, {1: _state})]
    left = document["pendingTotal"] - len(shown)
    return [*lines, f"  … and {many(left, 'more pod')}"] if left else lines


def _state(cell: str) -> str:
    return click.style(cell, fg=_COLOURS.get(cell.rstrip()))


def _row(pod: Mapping[str, Any]) -> tuple[str, ...]:
    state = _STATES.get(pod["state"], pod["state"])
    return due_text(pod["dueInSeconds"]), state, f"{pod['namespace']}/{pod['name']}", pod["node"] or "", _why(pod)


def due_text(seconds: float) -> str:
    """Say when a pod is due: ``in 5 m``, ``now``, ``2 s ago``."""
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(seconds)} ago"


def _why(pod: Mapping[str, Any]) -> str:
    how = [BY_DELETE_OUT_OF_SERVICE] if pod.get("outOfService") else []
    return "; ".join([tolerated(pod["taint"], pod["toleration"]), *how, *keeping(pod)])


def keeping(eviction: Mapping[str, Any]) -> list[str]:
    """Say what keeps a due pod from being evicted, a sentence each; ``eviction``: these fields of a document."""
    found = [] if eviction["hold"] is None else [eviction["hold"]["text"]]
    if eviction["error"] is None:
        return found
    tried = f"tried {many(eviction['tries'], 'time')} since {eviction['triedSince']}"
    again = f"again in {span(eviction['nextTryInSeconds'])}"
    budget = "" if eviction["blockedBy"] is None else f"{_blocked(eviction['blockedBy'])}; "
    return [*found, f"{budget}{tried}, {again}: {eviction['error']}"]


def _blocked(block: Mapping[str, Any]) -> str:
    return f"{block['text']} ({block['budget']})" if block["budget"] else str(block["text"])
