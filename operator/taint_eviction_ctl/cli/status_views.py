"""A status for people: first the leader and what holds evictions, then the pods that are pending eviction."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from taint_eviction.cli.visible import visible
from taint_eviction.core.control_state import selector_scope
from taint_eviction.core.sentences import BY_DELETE_OUT_OF_SERVICE, replica_name, tolerated
from taint_eviction.core.text import many
from taint_eviction.reporting.status_document import ceiling_in
from taint_eviction_ctl.cli.breaker_views import breaker_line, criteria_lines
from taint_eviction_ctl.cli.control_state import MAX_NAMES, some
from taint_eviction_ctl.cli.tables import bad, bold, doubtful, good, table_lines
from taint_eviction_ctl.planning.wording import span, utc

_STATES = {"inFlight": "in flight", "due": "due", "retrying": "retrying", "blocked": "blocked", "held": "held"}
# By the displayed word.
_COLOURS = {"in flight": "cyan", "retrying": "red", "blocked": "magenta", "held": "yellow", "due": "cyan"}
_GROUP_HEADER = ("NODE", "TAINT", "PODS", "WAITING", "DUE", "HELD", "GONE", "NEXT")
MAX_GROUPS = 20
# Fewer pods are evicted before anybody has read how many are left.
_MIN_STORM = 20
_HEADER = ("DUE", "STATE", "POD", "NODE", "WHY")


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
    doubts = ["", doubtful(visible(more))] if more else []
    groups = group_lines(document, max_groups, width, folds=True)
    pods = pod_lines(document, max_pods, width, folds=True)
    return [*head_lines(document, width), *groups, *doubts, *pods]


def lost_lines(document: Mapping[str, Any], failures: str) -> tuple[str, str]:
    """Return since when there is no answer, and that what follows may be outdated."""
    return bad(visible(f"connection lost since {utc(document['now'])}: {failures}")), "the last known status:"


def head_lines(document: Mapping[str, Any], width: int | None = None, clock: str = "") -> list[str]:
    """Return who leads, how many pods are to be evicted, and what holds them; ``clock`` comes first, if given."""
    before = f"{click.style(clock, dim=True)}  " if clock else ""
    who = _who(document, None if width is None else width - len(click.unstyle(before)))
    lines = [before + who, _what(document, width)]
    if not document["ready"]:
        lines.append(bad(f"not ready: {document['notReadyBecause']}"))
    # A controller of another version may have none.
    lines += map(bad, document.get("warnings", ()))
    lines += [*_storm(document), breaker_line(document["breaker"], width), *criteria_lines(document["breaker"], width)]
    lines += _pauses(document["pauses"])
    if document["ordersKnown"] is False:
        lines.append(doubtful("pauses have not been read yet: nothing is evicted"))
    for nodes in ("outOfServiceNodes", "shuttingDownNodes"):
        lines += [doubtful(f"node {each['node']}: {each['text']}") for each in document.get(nodes, ())]
    lines += _adoption(document)
    paused = [rule["name"] for rule in document["policy"]["rules"] if rule["paused"]]
    return lines + [doubtful(f"rule {name} of the policy pauses evictions") for name in paused]


_UNEXPLAINED = "with 9223372036854775807 s for a taint, and nobody noted why: not evicted"


def _adoption(document: Mapping[str, Any]) -> list[str]:
    """Return which countdowns are taken over, if this controller does that or gives them back."""
    # A controller of another version may not know of it.
    if (adoption := document.get("adoption")) is None:
        return []
    lines = [f"countdowns taken over: those of {many(adoption['adopted'], 'pod')}"]
    if not adoption.get("enabled", True):
        dry = "a dry run gives nothing back, and nobody evicts these pods: run taint-eviction hand-back"
        given = "they are given back: this controller runs without --adopt"
        lines.append(bad(dry) if document["dryRun"] else doubtful(given))
    for count, because, said in (
        ("refused", "refusedBecause", "could not be taken over"),
        ("notGivenBack", "notGivenBackBecause", "cannot be given back"),
    ):
        if adoption.get(count):
            first = adoption[because][0]
            named = f"{first['namespace']}/{first['name']}: {first['text']}"
            lines.append(bad(f"the countdowns of {many(adoption[count], 'pod')} {said}") + f" ({named})")
    for names, said in (("lostNotes", "without a note, which is written again"), ("unexplainedMarks", _UNEXPLAINED)):
        if found := adoption.get(names):
            total = adoption.get(f"{names}Total", len(found))
            more = ", …" if total > len(found) else ""
            lines.append(doubtful(f"{many(total, 'pod')} {said}") + f" ({', '.join(found)}{more})")
    if problem := adoption.get("policyProblem"):
        lines.append(bad(problem))
    if stopped := adoption["stopped"]:
        why = ": ".join(filter(None, (stopped["since"] and f"since {utc(stopped['since'])}", stopped["reason"])))
        lines.append(doubtful("no more are taken over: hand-back was ordered") + (f" ({why})" if why else ""))
    return lines


def _who(document: Mapping[str, Any], width: int | None) -> str:
    """Return which replica answers, and how it evicts; shorter if that is too long."""
    lease, policy = document["lease"], document["policy"]
    limited = [name for name, limit in policy["limits"].items() if limit is not None]
    facts = [
        *([doubtful("dry run")] if document["dryRun"] else []),
        good("ready") if document["ready"] else bad("not ready"),
        f"mode {policy['mode']}{_on_lost_nodes(policy)}",
        *([f"limited ({', '.join(limited)})"] if limited else []),
        *([many(len(policy["rules"]), "rule")] if policy["rules"] else []),
    ]
    if document["leading"]:
        does, by = " leads", "" if lease is None else f" by Lease {lease['namespace']}/{lease['name']}"
    else:
        holder = (
            f"{replica_name(lease['holder'])} does" if lease is not None and lease["holder"] else "no leader is known"
        )
        does, by = f" does {bad('not')} lead, {holder}", ""
    name, version = replica_name(document["identity"]), f", version {document['version']}"
    said = [(name, by, version), (name, "", version), (name, "", "")]
    said += [] if width is None else [(_short(name, width, part), "", "") for part in (2, 3, 4)]
    lines = [f"{bold(name)}{does}{by}: {', '.join(facts)}{version}" for name, by, version in said]
    return next((line for line in lines if width is None or len(click.unstyle(line)) <= width), lines[-1])


def _on_lost_nodes(policy: Mapping[str, Any]) -> str:
    # A controller of another version may not say it.
    ignored = policy["mode"] != "delete" and policy.get("budgetsOnLostNodes") == "ignore"
    return " (a DELETE on lost nodes)" if ignored else ""


def _what(document: Mapping[str, Any], width: int | None) -> str:
    """Return how many pods are to be evicted, and, where there is room, how many were lately."""
    counts = document["counts"]
    states = ", ".join(f"{count} {_STATES.get(state, state)}" for state, count in counts.items() if count)
    tainted = many(document["taintedNodes"], "tainted node")
    # A controller of another version may not say it.
    of_some = 0 < document.get("pendingNodes", 0) < document["taintedNodes"]
    on = f"{document['pendingNodes']} of {tainted}" if of_some else tainted
    head = f"{many(document['pendingTotal'], 'pod')} pending on {on}"
    line = head + (f": {states}" if states else "")
    lately = _lately(document)
    return line + lately if width is None or len(line + lately) <= width else line


def _lately(document: Mapping[str, Any]) -> str:
    """Return how many pods that were due are gone since recently, whoever ended them."""
    # A controller of another version may not say it.
    lately = document.get("evictedLately")
    if not lately or not lately["total"]:
        return ""
    gone = "would have gone (dry run)" if document["dryRun"] else "gone"
    return f"; {lately['total']} {gone} in the last {span(lately['withinSeconds'])}"


def _storm(document: Mapping[str, Any]) -> list[str]:
    """Return the progress of a storm."""
    storm = (document.get("evictedLately") or {}).get("storm")
    left = document["counts"]["due"] + document["counts"]["inFlight"]
    if not storm or not storm["gone"] or left < _MIN_STORM:
        return []
    gone, rate = storm["gone"], storm["perSecond"]
    seconds = f", about {span(max(1.0, left / rate))} left" if rate else ""
    return [f"in progress: {gone:,} of {gone + left:,}, {rate:.0f}/s{seconds}"]


def _pauses(pauses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is paused; scopes that were paused together share a line."""
    found: dict[tuple[tuple[str, Any], ...], list[Mapping[str, Any]]] = {}
    for pause in pauses:
        found.setdefault(tuple((name, value) for name, value in pause.items() if name != "name"), []).append(pause)
    lines = []
    for alike in found.values():
        names = [pause["name"] for pause in alike]
        if len(names) <= MAX_NAMES:
            lines += [_pause(pause, _named(pause["scope"], pause["name"])) for pause in alike]
        else:
            lines.append(_pause(alike[0], some(alike[0]["scope"], names)))
    return lines


def _named(kind: str, name: str | None) -> str:
    if kind != "selector":
        return f"{kind} {name}"
    try:
        return selector_scope(name or "").nodes
    except ValueError:  # A controller of a newer version may know other selectors.
        return f"nodes that match {name}"


def _pause(pause: Mapping[str, Any], of: str) -> str:
    what = "all evictions" if pause["scope"] == "all" else f"evictions of {of}"
    # A controller of an older version sends neither ``by`` nor ``until``.
    times = {word: utc(at) for word in ("since", "until") if (at := pause.get(word))}
    facts = {**times, "by": pause.get("by")}
    told = ": ".join(
        filter(None, (", ".join(f"{word} {fact}" for word, fact in facts.items() if fact), pause["reason"]))
    )
    return doubtful(f"{what} are paused") + (f" ({told})" if told else "")


# Nodes and taints


def group_lines(document: Mapping[str, Any], max_groups: int, width: int | None, *, folds: bool = False) -> list[str]:
    """Return the number of pods by node and taint: pending ones, and those evicted recently. ``folds``: see tables."""
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
    return [
        "",
        *table_lines(_GROUP_HEADER, shown, folds=folds),
        *([f"  … and {many(left, 'more node')}"] if left else []),
    ]


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


def pod_lines(
    document: Mapping[str, Any], max_pods: int | None, width: int | None, *, folds: bool = False
) -> list[str]:
    """Return the pods that are to be evicted, at most ``max_pods``; None: all. ``folds``: see tables."""
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
    lines = ["", *causes, *table_lines(_HEADER, rows, {1: _state}, folds=folds)]
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
    hold = pod["hold"] and {**pod["hold"], "text": _brief(pod["hold"])}
    return "; ".join([_tolerated(pod), *how, *_built_in(pod), *keeping({**pod, "hold": hold})])


def _tolerated(pod: Mapping[str, Any]) -> str:
    return tolerated(pod["taint"], pod["toleration"], ceiling=ceiling_in(pod))


def _cause(pod: Mapping[str, Any]) -> str:
    """Return the reason without the parts that differ between pods: the number of tries, and the next try."""
    how = [BY_DELETE_OUT_OF_SERVICE] if pod.get("outOfService") else []
    hold = [] if pod["hold"] is None else [_brief(pod["hold"])]
    blocked = [] if pod["error"] is None or pod["blockedBy"] is None else [_blocked(pod["blockedBy"])]
    error = [] if pod["error"] is None else [pod["error"]]
    return "; ".join([_tolerated(pod), *how, *_built_in(pod), *hold, *blocked, *error])


def _brief(hold: Mapping[str, Any]) -> str:
    """Return what holds a pod, without what the lines at the top say of it: since when, by whom and why."""
    # A controller of another version may not say it.
    return str(hold.get("brief") or hold["text"])


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
    tried = f"tried {many(eviction['tries'], 'time')} since {utc(eviction['triedSince'])}"
    again = f"again in {span(eviction['nextTryInSeconds'])}"
    budget = "" if eviction["blockedBy"] is None else f"{_blocked(eviction['blockedBy'])}; "
    return [*found, f"{budget}{tried}, {again}: {eviction['error']}"]


def _blocked(block: Mapping[str, Any]) -> str:
    return f"{block['text']} ({block['budget']})" if block["budget"] else str(block["text"])
