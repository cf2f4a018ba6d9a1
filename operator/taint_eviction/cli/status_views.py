"""How a status is put to people: who acts and what holds evictions back, then the pods that are to go."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from taint_eviction.planning.wording import span

_STATES = {"inFlight": "in flight", "due": "due", "retrying": "retrying", "blocked": "blocked", "held": "held"}
_COLOURS = {"inFlight": "cyan", "retrying": "red", "blocked": "magenta", "held": "yellow", "due": "cyan"}
_HEADER = ("DUE", "STATE", "POD", "NODE", "WHY")

_bold = partial(click.style, bold=True)
_good = partial(click.style, fg="green")
_bad = partial(click.style, fg="red", bold=True)
_doubtful = partial(click.style, fg="yellow")


def status_lines(document: Mapping[str, Any], most_pods: int | None = None) -> list[str]:
    """Write a status; at most so many pods, None: all that are in it."""
    return [*_headline(document), *_pods(document, most_pods)]


def _headline(document: Mapping[str, Any]) -> list[str]:
    lines = [_who(document), _what(document)]
    if not document["ready"]:
        lines.append(_bad(f"not ready: {document['notReadyBecause']}"))
    # A controller of another version may have none.
    lines += map(_bad, document.get("warnings", ()))
    lines += [_breaker(document["breaker"]), *map(_pause, document["pauses"])]
    if document["ordersKnown"] is False:
        lines.append(_doubtful("whether evictions are paused has not been read yet: nothing is evicted"))
    paused = [rule["name"] for rule in document["policy"]["rules"] if rule["paused"]]
    return lines + [_doubtful(f"the policy's rule {name} is paused") for name in paused]


def _who(document: Mapping[str, Any]) -> str:
    lease, dry = document["lease"], _doubtful("dry run, ") if document["dryRun"] else ""
    ready = ", ".join([_good("ready") if document["ready"] else _bad("not ready"), f"version {document['version']}"])
    who = _bold(document["identity"])
    if document["leading"]:
        by = "" if lease is None else f" by Lease {lease['namespace']}/{lease['name']}"
        return f"{who} leads{by}: {dry}{ready}"
    holder = f"{lease['holder']} does" if lease is not None and lease["holder"] else "nobody is known to"
    return f"{who} does {_bad('not')} lead, {holder}: {dry}{ready}"


def _what(document: Mapping[str, Any]) -> str:
    policy, counts = document["policy"], document["counts"]
    rules = f", {_many(len(policy['rules']), 'rule')}" if policy["rules"] else ""
    limited = [name for name, limit in policy["limits"].items() if limit is not None]
    limits = "" if not limited else f", limited ({', '.join(limited)})"
    states = ", ".join(f"{count} {_STATES.get(state, state)}" for state, count in counts.items() if count)
    head = f"{_many(document['pendingTotal'], 'pod')} to go on {_many(document['taintedNodes'], 'tainted node')}"
    return f"{head}{states and f': {states}'}; mode {policy['mode']}{limits}{rules}"


def _breaker(breaker: Mapping[str, Any]) -> str:
    if breaker["open"]:
        since = f"since {breaker['since']}: " if breaker["since"] else ""
        return _bad("the circuit breaker is open") + f" ({since}{breaker['cause']}); see taint-eviction breaker"
    if not breaker["enabled"]:
        return "circuit breaker: off"
    seen = f"{breaker['newlyTaintedNodes']} of {_many(breaker['totalNodes'], 'node')} newly tainted"
    seen += f", {breaker['lifecycleNodes']} not ready or unreachable, {_many(breaker['duePods'], 'pod')} due"
    return f"circuit breaker: {_good('closed')}; {seen}; it opens at {', or '.join(breaker['opensAt'])}"


def _pause(pause: Mapping[str, Any]) -> str:
    what = "all evictions" if pause["scope"] == "all" else f"evictions of {pause['scope']} {pause['name']}"
    told = ": ".join(filter(None, (pause["since"] and f"since {pause['since']}", pause["reason"])))
    return _doubtful(f"{what} are paused") + (f" ({told})" if told else "")


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# Pods


def _pods(document: Mapping[str, Any], most_pods: int | None) -> list[str]:
    shown = document["pending"][:most_pods]
    if not shown and not document["pendingTotal"]:
        return []
    rows = [_row(pod) for pod in shown]
    widths = [max(len(row[column]) for row in [_HEADER, *rows]) for column in range(len(_HEADER) - 1)]
    lines = ["", click.style(_line(_HEADER, widths), dim=True)]
    for pod, row in zip(shown, rows, strict=True):
        state = click.style(row[1].ljust(widths[1]), fg=_COLOURS.get(pod["state"]))
        lines.append(_line((row[0], state, *row[2:]), widths))
    left = document["pendingTotal"] - len(shown)
    return [*lines, f"  … and {_many(left, 'more pod')}"] if left else lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  " + "  ".join([*padded, cells[-1]]).rstrip()


def _row(pod: Mapping[str, Any]) -> tuple[str, ...]:
    state = _STATES.get(pod["state"], pod["state"])
    return due_text(pod["dueInSeconds"]), state, f"{pod['namespace']}/{pod['name']}", pod["node"] or "", _why(pod)


def due_text(seconds: float) -> str:
    """Say when it is due, from now."""
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(seconds)} ago"


def _why(pod: Mapping[str, Any]) -> str:
    toleration = f"tolerated by [{pod['toleration']}]" if pod["toleration"] else "not tolerated"
    return "; ".join([f"{pod['taint']} {toleration}", *keeping(pod)])


def keeping(eviction: Mapping[str, Any]) -> list[str]:
    """Say what keeps a pod that is due from going: a hold, a budget, an error."""
    found = [] if eviction["hold"] is None else [eviction["hold"]["text"]]
    if eviction["error"] is None:
        return found
    tried = f"tried {_many(eviction['tries'], 'time')} since {eviction['triedSince']}"
    again = f"again in {span(eviction['nextTryInSeconds'])}"
    budget = "" if eviction["blockedBy"] is None else f"{_blocked(eviction['blockedBy'])}; "
    return [*found, f"{budget}{tried}, {again}: {eviction['error']}"]


def _blocked(block: Mapping[str, Any]) -> str:
    return f"{block['text']} ({block['budget']})" if block["budget"] else str(block["text"])
