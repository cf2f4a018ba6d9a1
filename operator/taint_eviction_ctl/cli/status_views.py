"""A status for people: first the leader and what holds evictions, then the pods that are pending eviction."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from taint_eviction.adapters.status_document import ceiling_in
from taint_eviction.cli.visible import visible
from taint_eviction.core.sentences import BY_DELETE_OUT_OF_SERVICE, tolerated
from taint_eviction_ctl.cli.control_state import MAX_NAMES, some
from taint_eviction_ctl.cli.tables import table_lines
from taint_eviction_ctl.planning.wording import many, span

_STATES = {"inFlight": "in flight", "due": "due", "retrying": "retrying", "blocked": "blocked", "held": "held"}
# By the displayed word.
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
_GROUP_HEADER = ("NODE", "TAINT", "PODS", "WAITING", "DUE", "HELD", "GONE", "NEXT")
MAX_GROUPS = 20
# Fewer pods are evicted before anybody has read how many are left.
_MIN_STORM = 20
_HEADER = ("DUE", "STATE", "POD", "NODE", "WHY")

_bold = partial(click.style, bold=True)
_good = partial(click.style, fg="green")
_bad = partial(click.style, fg="red", bold=True)
_doubtful = partial(click.style, fg="yellow")


def status_lines(
    document: Mapping[str, Any],
    max_pods: int | None = None,
    more: str = "",
    *,
    max_groups: int = MAX_GROUPS,
    width: int | None = None,
) -> list[str]:
    """Return the lines of a status with at most ``max_pods`` pods; None: all. ``more`` is a line before them.
    ``width``: names are shortened so that WHY begins within this many columns, None: never.
    """
    doubts = [_doubtful(visible(more))] if more else []
    groups = group_lines(document, max_groups, width)
    return [*_headline(document), *_lately(document), *doubts, *groups, *_pods(document, max_pods, width)]


def lost_lines(document: Mapping[str, Any], lines: list[str], failures: str) -> list[str]:
    """Return since when there is no answer, and the last status without colours: it may be outdated."""
    lost = _bad(visible(f"connection lost since {document['now']}: {failures}"))
    return [lost, "the last known status:", *(click.style(click.unstyle(line), dim=True) for line in lines)]


def _lately(document: Mapping[str, Any]) -> list[str]:
    """Return how many pods were evicted recently, and the progress of a storm."""
    # A controller of another version may not say it.
    lately = document.get("evictedLately")
    if not lately or not lately["total"]:
        return []
    evicted = "would have been evicted (dry run)" if document["dryRun"] else "evicted"
    head = f"{many(lately['total'], 'pod')} {evicted} in the last {span(lately['withinSeconds'])}"
    lines, storm = [f"{head}; see taint-eviction history"], lately.get("storm")
    left = document["counts"]["due"] + document["counts"]["inFlight"]
    if storm and storm["gone"] and left >= _MIN_STORM:
        gone, rate = storm["gone"], storm["perSecond"]
        seconds = f", about {span(max(1.0, left / rate))} left" if rate else ""
        lines.append(f"in progress: {gone:,} of {gone + left:,}, {rate:.0f}/s{seconds}")
    return lines


def _headline(document: Mapping[str, Any]) -> list[str]:
    lines = [_who(document), _what(document)]
    if not document["ready"]:
        lines.append(_bad(f"not ready: {document['notReadyBecause']}"))
    # A controller of another version may have none.
    lines += map(_bad, document.get("warnings", ()))
    lines += [breaker_line(document["breaker"]), *zone_lines(document["breaker"]), *_pauses(document["pauses"])]
    if document["ordersKnown"] is False:
        lines.append(_doubtful("pauses have not been read yet: nothing is evicted"))
    lines += [_doubtful(f"node {each['node']}: {each['text']}") for each in document.get("outOfServiceNodes", ())]
    lines += _adoption(document)
    paused = [rule["name"] for rule in document["policy"]["rules"] if rule["paused"]]
    return lines + [_doubtful(f"rule {name} of the policy pauses evictions") for name in paused]


_UNEXPLAINED = "tolerate a taint for 9223372036854775807 s, and nobody noted why: they stay"


def _adoption(document: Mapping[str, Any]) -> list[str]:
    """Return which countdowns are taken over, if this controller does that or gives them back."""
    # A controller of another version may not know of it.
    if (adoption := document.get("adoption")) is None:
        return []
    lines = [f"countdowns taken over: those of {many(adoption['adopted'], 'pod')}"]
    if not adoption.get("enabled", True):
        dry = "a dry run gives nothing back, and nobody evicts these pods: run taint-eviction hand-back"
        given = "they are given back: this controller runs without --adopt"
        lines.append(_bad(dry) if document["dryRun"] else _doubtful(given))
    for count, because, said in (
        ("refused", "refusedBecause", "could not be taken over"),
        ("notGivenBack", "notGivenBackBecause", "cannot be given back"),
    ):
        if adoption.get(count):
            first = adoption[because][0]
            named = f"{first['namespace']}/{first['name']}: {first['text']}"
            lines.append(_bad(f"the countdowns of {many(adoption[count], 'pod')} {said}") + f" ({named})")
    for names, said in (("lostNotes", "lost their notes, which are written again"), ("unexplainedMarks", _UNEXPLAINED)):
        if found := adoption.get(names):
            lines.append(_doubtful(f"{many(len(found), 'pod')} {said}") + f" ({', '.join(found)})")
    if problem := adoption.get("policyProblem"):
        lines.append(_bad(problem))
    if stopped := adoption["stopped"]:
        why = ": ".join(filter(None, (stopped["since"] and f"since {stopped['since']}", stopped["reason"])))
        lines.append(_doubtful("no more are taken over: hand-back was ordered") + (f" ({why})" if why else ""))
    return lines


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
    """Return whether the breaker is open, since when and why; or what it counts, and when it opens."""
    if breaker["open"]:
        # A controller of an earlier version does not say who opened it.
        told = ", ".join(f"{word} {breaker[word]}" for word in ("since", "by") if breaker.get(word))
        why = ": ".join(filter(None, (told, breaker["cause"])))
        line = _bad("the circuit breaker is open") + f" ({why})"
        if not breaker["enabled"]:
            line += ", although no breaker is configured: only taint-eviction breaker reset closes it"
        return f"{line}; see taint-eviction breaker"
    if not breaker["enabled"]:
        return "circuit breaker: off"
    seen = f"{breaker['newlyTaintedNodes']} of {many(breaker['totalNodes'], 'node')} newly tainted"
    seen += f", {breaker['lifecycleNodes']} lost together with pods to evict, {many(breaker['duePods'], 'pod')} due"
    if unlisted := breaker.get("unlistedNodes"):
        seen += f", pods of {many(unlisted, 'node')} not listed yet"
    return f"circuit breaker: {_good('closed')}; {seen}; it opens at {', or '.join(breaker['opensAt'])}"


def zone_lines(breaker: Mapping[str, Any]) -> list[str]:
    """Return the breaker's counts as a table of zones; no lines if it is closed and counts nothing."""
    # A controller of another version may send none.
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


def _pauses(pauses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is paused; scopes that were paused together share a line."""
    found: dict[tuple[tuple[str, Any], ...], list[Mapping[str, Any]]] = {}
    for pause in pauses:
        found.setdefault(tuple((name, value) for name, value in pause.items() if name != "name"), []).append(pause)
    lines = []
    for alike in found.values():
        names = [pause["name"] for pause in alike]
        if len(names) <= MAX_NAMES:
            lines += [_pause(pause, f"{pause['scope']} {pause['name']}") for pause in alike]
        else:
            lines.append(_pause(alike[0], some(alike[0]["scope"], names)))
    return lines


def _pause(pause: Mapping[str, Any], of: str) -> str:
    what = "all evictions" if pause["scope"] == "all" else f"evictions of {of}"
    # A controller of an older version sends neither ``by`` nor ``until``.
    facts = {"since": pause["since"], "until": pause.get("until"), "by": pause.get("by")}
    told = ": ".join(
        filter(None, (", ".join(f"{word} {fact}" for word, fact in facts.items() if fact), pause["reason"]))
    )
    return _doubtful(f"{what} are paused") + (f" ({told})" if told else "")


# Nodes and taints


def group_lines(document: Mapping[str, Any], max_groups: int, width: int | None) -> list[str]:
    """Return the number of pods by node and taint: pending ones, and those evicted recently."""
    # A controller of another version may not count them.
    lately = document.get("evictedLately") or {"groups": [], "moreGroups": 0}
    gone = {(each["node"], each["taint"]): each["pods"] for each in lately["groups"]}
    rows = []
    for each in document.get("groups", ()):
        counts, next_in = each["counts"], each["nextInSeconds"]
        waiting, held = counts["waiting"], counts["held"]
        due = each["pods"] - waiting - held
        went = gone.pop((each["node"], each["taintKey"]), 0)
        numbers = (each["pods"], waiting, due, held, went)
        rows.append((each["node"], each["taint"], numbers, "" if next_in is None else due_text(next_in)))
    rows += [(node, key, (0, 0, 0, 0, pods), "") for (node, key), pods in gone.items()]
    if not rows:
        return []
    shown = [
        (
            _short(node, width, 5),
            _short(taint.removesuffix(":NoExecute"), width, 5),
            *(f"{number:,}" if number else "-" for number in numbers),
            at,
        )
        for node, taint, numbers, at in rows[:max_groups]
    ]
    left = len(rows) - len(shown) + document.get("moreGroups", 0) + lately["moreGroups"]
    return ["", *table_lines(_GROUP_HEADER, shown), *([f"  … and {many(left, 'more node')}"] if left else [])]


def _short(name: str, width: int | None, part: int) -> str:
    """Shorten a name to one ``part`` of the width: cut a domain first, otherwise the middle.
    Nodes share their domain; other names differ mostly at their ends.
    """
    room = len(name) if width is None else max(8, width // part)
    if len(name) <= room:
        return name
    host, dot, _ = name.partition(".")
    if dot and "/" not in name and len(host) < room:
        return f"{host}…"
    end = room // 2
    return f"{name[: room - end - 1]}…{name[-end:]}"


# Pods


def _pods(document: Mapping[str, Any], max_pods: int | None, width: int | None) -> list[str]:
    shown = document["pending"][:max_pods]
    if not shown and not document["pendingTotal"]:
        return []
    reasons = Counter(map(_cause, shown))
    # A reason that several pods share is shown once.
    numbers = {why: number for number, why in enumerate((w for w, pods in reasons.items() if pods > 1), 1)}
    causes = [
        line
        for why, number in numbers.items()
        for line in _folded(f"  [{number}] {many(reasons[why], 'pod')}: {why}", width)
    ]
    rows = [_row(pod, numbers, width) for pod in shown]
    lines = ["", *causes, *table_lines(_HEADER, rows, {1: _state})]
    left = document["pendingTotal"] - len(shown)
    return [*lines, f"  … and {many(left, 'more pod')}"] if left else lines


def _folded(line: str, width: int | None) -> list[str]:
    return [line] if width is None else textwrap.wrap(line, width, subsequent_indent=" " * 6)


def _state(cell: str) -> str:
    return click.style(cell, fg=_COLOURS.get(cell.rstrip()))


def _row(pod: Mapping[str, Any], numbers: Mapping[str, int], width: int | None) -> tuple[str, ...]:
    state, cause = _STATES.get(pod["state"], pod["state"]), _cause(pod)
    name, node = _short(f"{pod['namespace']}/{pod['name']}", width, 4), _short(pod["node"] or "", width, 5)
    why = f"[{numbers[cause]}]{_tries(pod)}" if cause in numbers else _why(pod)
    return due_text(pod["dueInSeconds"]), state, name, node, why


def due_text(seconds: float) -> str:
    """Return when a pod is due: ``in 5 m``, ``now``, ``2 s ago``."""
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(seconds)} ago"


def _why(pod: Mapping[str, Any]) -> str:
    how = [BY_DELETE_OUT_OF_SERVICE] if pod.get("outOfService") else []
    return "; ".join([_tolerated(pod), *how, *_built_in(pod), *keeping(pod)])


def _tolerated(pod: Mapping[str, Any]) -> str:
    return tolerated(pod["taint"], pod["toleration"], ceiling=ceiling_in(pod))


def _cause(pod: Mapping[str, Any]) -> str:
    """Return the reason without the parts that differ between pods: the number of tries, and the next try."""
    how = [BY_DELETE_OUT_OF_SERVICE] if pod.get("outOfService") else []
    hold = [] if pod["hold"] is None else [pod["hold"]["text"]]
    blocked = [] if pod["error"] is None or pod["blockedBy"] is None else [_blocked(pod["blockedBy"])]
    error = [] if pod["error"] is None else [pod["error"]]
    return "; ".join([_tolerated(pod), *how, *_built_in(pod), *hold, *blocked, *error])


def _built_in(pod: Mapping[str, Any]) -> list[str]:
    # A controller of another version may not say it.
    whose = pod.get("adoption")
    return [whose["text"]] if whose and whose["text"] else []


def _tries(pod: Mapping[str, Any]) -> str:
    if pod["error"] is None:
        return ""
    return f" tried {many(pod['tries'], 'time')}, again in {span(pod['nextTryInSeconds'])}"


def keeping(eviction: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a due pod is not evicted, one sentence each; ``eviction``: these fields of a document."""
    found = [] if eviction["hold"] is None else [eviction["hold"]["text"]]
    if eviction["error"] is None:
        return found
    tried = f"tried {many(eviction['tries'], 'time')} since {eviction['triedSince']}"
    again = f"again in {span(eviction['nextTryInSeconds'])}"
    budget = "" if eviction["blockedBy"] is None else f"{_blocked(eviction['blockedBy'])}; "
    return [*found, f"{budget}{tried}, {again}: {eviction['error']}"]


def _blocked(block: Mapping[str, Any]) -> str:
    return f"{block['text']} ({block['budget']})" if block["budget"] else str(block["text"])
