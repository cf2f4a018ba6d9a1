"""``taint-eviction history``: the outcomes of pods, from all that knows them."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from taint_eviction.cli.connection import flag
from taint_eviction.cli.visible import complain
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.sentences import replica_name, tolerated
from taint_eviction.files.kubernetes_times import format_rfc3339, parse_rfc3339
from taint_eviction.kube.api_calls import ApiRequest
from taint_eviction.kube.kubernetes_objects import HOLD_ANNOTATION
from taint_eviction.reporting.status_document import API_VERSION, ceiling_in
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.against_built_in import SAME_SECONDS, built_in_text, in_brief, summary_lines
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered, ask, ask_flags, put
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import verb
from taint_eviction_ctl.cli.history_reads import Remembered, remembered
from taint_eviction_ctl.cli.near_pods import near_pods, own_namespace
from taint_eviction_ctl.cli.pictures import html_option, write_page
from taint_eviction_ctl.cli.reaching import reaching
from taint_eviction_ctl.cli.tables import about_lines, fact_lines, table_lines, wrapped
from taint_eviction_ctl.cli.values import DAY_SECONDS, PastTime, TimeOfDay, one_object
from taint_eviction_ctl.picture.of_outcomes import picture_of_outcomes
from taint_eviction_ctl.picture.scene import Picture
from taint_eviction_ctl.planning.wording import and_list, since, span, utc

NO_OWNER = "none: nothing recreates it"

_WORDS = {
    "evicted": "was evicted",
    "deleted": "was deleted (this replica saw it, and did not do it)",
    "gone": "was found gone (this replica did not evict it)",
    "refused": "could not be evicted",
    "blocked": "was kept by a budget",
    "marked": "was marked for deletion by another controller (probably the built-in one)",
}


@verb()
@click.argument("pod", metavar="[[NAMESPACE/]POD|UID|node/NAME]", nargs=-1, callback=one_object)
@flag("--node", help="Pods of this node only.")
@flag("--namespace", "-n", help="Pods of this namespace only.")
@flag("--all-namespaces", "-A", is_flag=True, help="Pods of all namespaces, as without -n.")
@flag("--taint", help="Pods that went because of a taint with this key only.")
@flag("--since", type=PastTime(), help="Not before this: 5m ago, the last 03:12 UTC, or a time in RFC 3339.")
@flag("--since-time", type=PastTime(), help="The same, under kubectl's name.")
@flag("--until", type=PastTime(), help="Not after this, written in the same ways.")
@flag("--limit", type=click.IntRange(1), default=1000, help="List at most this many pods.")
@click.option(
    "--against",
    type=click.Choice(["built-in"]),
    allow_from_autoenv=False,
    help="Add what Kubernetes' own controller would have done with each pod, from what is remembered.",
)
@html_option
@ask_flags
def history(pod: NamespacedName | str | None, **flags: Any) -> None:
    """List what became of pods that had to leave, the newest first: evicted, refused, or deleted by somebody else.

    All of them, or those of one name or node. A pod that was evicted has one row, whoever removes it in the end. No row
    has a pod that had not to leave, or was Terminating before: see explain and status --stuck; once it is gone, the API
    server's audit log, and, if PodGC removed it, kube-controller-manager's log ("PodGC is force deleting Pod").

    Each replica remembers the last 10,000 outcomes that it brought about or saw, and the leader keeps the newest of
    them in a ConfigMap, which outlives a rollout. Asks all pods of the controller, if you may list them, else the
    leader; or the replica at --server alone. With your rights it also reads Kubernetes' events (kept for an hour by
    default), and the ConfigMap where no leader answers. Says from when on each of them knows outcomes. For longer, use
    --audit-log. A dry run evicts nobody: it is asked only by the name of its Lease or with --server, and its outcomes
    are marked.

    Exit codes: 0 answered; 2 wrong usage; 3 no controller answers, and nothing else can be read.
    """
    query = {name: flags[name] for name in ("node", "namespace", "taint") if flags[name]}
    if flags["all_namespaces"]:
        query.pop("namespace", None)
    if isinstance(pod, NamespacedName):
        query.pop("namespace", None)
        query["pod"] = str(pod)
    elif pod is not None:
        kind, _, name = pod.rpartition("/")
        query["node" if kind else "uid"] = name
    if flags["since"] and flags["since_time"]:
        raise click.UsageError("--since and --since-time are the same: give one of them")
    bounds = {"since": flags["since"] or flags["since_time"], "until": flags["until"]}
    show_history(flags, {**query, "limit": flags["limit"]}, {name: at for name, at in bounds.items() if at})


def show_history(
    flags: Mapping[str, Any],
    query: Mapping[str, str | int],
    bounds: Mapping[str, Callable[[float], float]] | None = None,
) -> None:
    """Ask all that know outcomes, and print them. ``bounds``: since and until, as functions of now."""
    ask(flags, functools.partial(_show, flags, dict(query), bounds or {}))


async def _show(
    flags: Mapping[str, Any],
    query: dict[str, str | int],
    bounds: Mapping[str, Callable[[float], float]],
    asking: Ask,
) -> None:
    await show_outcomes(flags, query, bounds, asking)


async def show_outcomes(
    flags: Mapping[str, Any],
    query: dict[str, str | int],
    bounds: Mapping[str, Callable[[float], float]],
    asking: Ask,
) -> Remembered:
    """Ask all that know outcomes, print them, and return them. ``bounds``: since and until, as functions of now."""
    if str(query.get("pod", "")).startswith("/"):
        query["pod"] = f"{flags['namespace'] or await own_namespace(flags)}{query['pod']}"
    if bounds:
        now = await _now(flags, asking)
        epochs = epochs_of(bounds, now)
        query |= {name: format_rfc3339(epoch) for name, epoch in epochs.items()}
        if epochs.get("since", 0.0) > epochs.get("until", math.inf):
            raise click.UsageError(f"until {utc(str(query['until']))} is before since {utc(str(query['since']))}")
    found = await remembered(flags, query)
    for why in found.unanswered:
        complain(f"not asked: {why}")
    namespace, _, name = str(query.get("pod", "")).partition("/")
    near = await near_pods(NamespacedName(namespace, name), flags) if name and not found.outcomes else {}
    if flags.get("html"):
        # Events do not say since when a toleration ran.
        drawn = [each for each in found.outcomes if each["since"] is not None]
        document = {"outcomes": drawn, "asked": _asked(query, found)}
        write_page(flags["html"], put(_picture, document))
    if flags["output"] != "table":
        head: Document = {"apiVersion": API_VERSION, "kind": "History", "answered": found.answered, **said_back(query)}
        machines = {**head, **near, "sources": source_documents(found), "outcomes": found.outcomes}
        echo_document(machines, flags["output"])
    else:
        asked = {**said_back(query), "against": flags.get("against"), "pod": query.get("pod")}
        document = {"outcomes": found.outcomes, "sources": source_documents(found), **asked, **near}
        if flags["no_headers"]:
            # As with kubectl, who counts lines counts rows.
            for line in put(_row_lines, document):
                click.echo(line)
            for line in filter(None, [*put(_bounds, document), *put(_more_lines, document)]):
                click.echo(line, err=True)
        else:
            click.echo("\n".join(put(history_lines, document)))
    return found


def epochs_of(bounds: Mapping[str, Callable[[float], float]], now: float) -> dict[str, float]:
    """Return since and until in seconds since the epoch.

    A time of day is its last occurrence. As an end before ``since`` it is the one of today, if that is still to come;
    else a time of day from which on outcomes are asked for is that of the day before.
    """
    epochs = {name: at(now) for name, at in bounds.items()}
    if epochs.get("since", 0.0) > epochs.get("until", math.inf) and isinstance(bounds["until"], TimeOfDay):
        if (epochs["until"] + DAY_SECONDS) // DAY_SECONDS == now // DAY_SECONDS:
            epochs["until"] += DAY_SECONDS
        elif isinstance(bounds["since"], TimeOfDay):
            epochs["since"] -= DAY_SECONDS
    return epochs


async def _now(flags: Mapping[str, Any], asking: Ask) -> float:
    """Return the time of the controller, or of the API server: this machine's clock may be wrong."""
    try:
        return parse_rfc3339((await asking("/status", {"limit": 0}))["now"]) or 0.0
    except Unanswered:
        if flags["server"]:
            raise
    async with reaching(flags) as cluster:
        with contextlib.suppress(CallFailed):
            await cluster.calls.make(ApiRequest("get", "version", url_path="/version"))
        return cluster.clock.now().server_epoch


def said_back(query: Mapping[str, str | int]) -> Document:
    """Return the bounds of time that were asked for."""
    return {name: query.get(name) for name in ("since", "until")}


def source_documents(found: Remembered) -> list[Document]:
    """Return who knows outcomes, from when on, and who does not, and why."""
    return [
        {"name": each.name, "since": each.since, "restoredFrom": each.restored_from, "problem": each.problem or None}
        for each in found.sources
    ]


def source_lines(document: Document, indent: str = "") -> list[str]:
    """Return a sentence on each source of outcomes: from when on it knows them, or why it was not read."""
    lines = []
    for each in document.get("sources", ()):
        since = "" if each["since"] is None else f"since {utc(each['since'])}"
        if each["name"] == "events":
            oldest = f"the oldest found is of {utc(each['since'])}" if since else "none found"
            known = f"{oldest} (the API server keeps them for an hour by default)"
        else:
            known = f"remembers {since}" if since else "remembers"
            # It may have restored what it did not see itself.
            known += f", with what {each['restoredFrom']} has" if each.get("restoredFrom") else ""
        lines += wrapped(f"{_in_words(each['name'])}: " + (each["problem"] or known), indent, f"{indent}  ")
    return [click.style(line, dim=True) for line in lines]


def _in_words(name: str) -> str:
    head, comma, written = name.partition(", written ")
    return f"{head}{comma}{utc(written)}" if comma else replica_name(head)


def _asked(query: Mapping[str, str | int], found: Remembered) -> str:
    """Return a sentence on which outcomes were requested, from which replicas, and which did not answer."""
    words = {
        "pod": "of pod",
        "uid": "of the pod with UID",
        "node": "of node",
        "namespace": "of namespace",
        "taint": "because of taints with the key",
    }
    chosen = [f"{words[name]} {query[name]}" for name in words if name in query]
    chosen += [f"since {utc(str(query['since']))}"] if "since" in query else []
    unanswered = "".join(f"; not asked: {why}" for why in found.unanswered)
    what = " ".join(["at most", str(query["limit"]), "outcomes", *chosen])
    return f"{what}; answered by {', '.join(found.answered)}{unanswered}"


def _picture(document: Document) -> Picture:
    return picture_of_outcomes(document["outcomes"], document["asked"])


def history_lines(document: Document) -> list[str]:
    """Write a table of outcomes, and from when on each source knows them."""
    return [*_bounds(document), *_row_lines(document), *_more_lines(document)]


def _row_lines(document: Document) -> list[str]:
    if not document["outcomes"]:
        return []
    against, rows = bool(document.get("against")), []
    for each in document["outcomes"]:
        pod, node = f"{each['namespace']}/{each['name']}", each["node"] or "-"
        built_in = [in_brief(each)] if against else []
        rows.append((utc(each["time"]), _outcome(each), pod, node, *built_in, "; ".join([_why(each), *_delays(each)])))
    return table_lines(("TIME", "OUTCOME", "POD", "NODE", *(["BUILT-IN"] if against else []), "WHY"), rows)


def _more_lines(document: Document) -> list[str]:
    """Return what stands below the table, or in its place."""
    sources = source_lines(document)
    if not document["outcomes"]:
        return [f"nobody that was asked knows such an outcome{suggestion(document) or _others_end(document)}", *sources]
    said = ["", *summary_lines(document["outcomes"])] if document.get("against") else []
    return [*said, *([""] if sources else []), *sources]


def _others_end(document: Document) -> str:
    """Return where the end of a pod is found that had not to leave, as the end of a sentence."""
    if not document.get("pod"):
        return ""
    return "; a pod that had not to leave, or was Terminating before, has none: see the API server's audit log"


def suggestion(document: Mapping[str, Any]) -> str:
    """Return which other names the user may have meant, as the end of a sentence (``near_pods``)."""
    near = document.get("near")
    of_namespace = near and near.startswith("namespace/")
    named = [repr(near.replace("namespace/", "history -n ", 1) if of_namespace else near)] if near else []
    named += [f"{each['pod']!r}, which {became(each, {})}" for each in document.get("nearRemembered", ())]
    return f"; did you mean {', or '.join(named)}?" if named else ""


def _delays(each: Document) -> Iterator[str]:
    """Yield for how long its owner held a pod, and how late it left, in one row with the reason for which it left."""
    if each["heldSeconds"]:
        yield f"its owner held it {span(each['heldSeconds'])} longer"
    # With a breaker, each pod that is due waits for a moment.
    if (each["lateSeconds"] or 0.0) > SAME_SECONDS:
        by = and_list(each.get("heldBy") or ())
        yield f"{span(each['lateSeconds'])} late" + (f": {by}" if by else "")


def _bounds(document: Document) -> list[str]:
    """Return the bounds of time that were asked for, as they were read."""
    said = [f"{name} {utc(document[name])}" for name in ("since", "until") if document.get(name)]
    return [" ".join(said)] if said else []


def earlier_lines(past: list[Document], document: Document) -> list[str]:
    """Return a sentence on the outcome of each earlier pod of a name, with the command that shows the whole outcome."""
    lines = []
    for each in past:
        uid = each["uid"]
        all_of_it = [f"all of it: taint-eviction explain {uid}"] if uid else []
        said = "; ".join([_why(each), *_delays(each), *all_of_it])
        lines += fact_lines("before", f"an earlier pod of this name {became(each, document)}: {said}")
    return lines


def past_lines(past: list[Document], document: Document) -> list[str]:
    """Return lines on the outcome of a pod that is not known now, and of earlier pods of its name."""
    lines = []
    for each in past:
        pod = f"{each['namespace']}/{each['name']}"
        late = each["lateSeconds"]
        lateness = "" if late is None else f", {_short_span(late)} {'before' if late < 0 else 'after'} its deadline"
        lines += about_lines(pod, became(each, document) + lateness)
        by = {"evict": "by the eviction API", "delete": "by a DELETE"}.get(each["call"], "")
        facts = [("because", _why(each)), *_counted(each), ("uid", each["uid"]), ("owner", _owner(each)), ("how", by)]
        facts += [
            # A dry run has called nobody.
            ("answer", None if each["dryRun"] else each["answer"]),
            ("built-in", built_in_text(each)),
            ("told by", _teller(each)),
        ]
        lines += [line for label, fact in facts if fact for line in fact_lines(label, fact)]
    return lines


def _short_span(seconds: float) -> str:
    """Write a duration, a short one with hundredths of a second."""
    return f"{abs(seconds):.2f} s" if abs(seconds) < SAME_SECONDS else span(seconds)


def _counted(each: Document) -> list[tuple[str, str]]:
    """Return since when its toleration ran, until when, and what held it after that."""
    if each["since"] is None:
        return []
    held = each["heldSeconds"]
    hold = [("hold", f"its owner held it {span(held)} longer (annotation {HOLD_ANNOTATION})")] if held else []
    until = [("until", utc(each["deadline"]))] if each["toleration"] or held else []
    # A controller of another version may not say it.
    by = and_list(each.get("heldBy") or ())
    between = f"from {utc(each['deadline'])} to {utc(each['time'])}"
    held_by = [("held", f"past its deadline, {between}, by {by}")] if by else []
    return [("since", since(utc(each["since"]), each["sinceBy"])), *hold, *until, *held_by]


def _owner(each: Document) -> str | None:
    # An event tells no owner.
    return each["owner"] or (None if each["since"] is None else NO_OWNER)


def _teller(each: Document) -> str:
    """Return who told an outcome, and, if that replica has not answered, who has kept it."""
    kept_by, teller = each.get("keptBy"), replica_name(each["toldBy"])
    if not kept_by:
        return teller
    told = f"{teller}, a former replica" if each.get("toldByFormer") else f"{teller}, which has not answered now"
    return f"{told}; kept by {replica_name(kept_by)}"


def became(each: Mapping[str, Any], document: Document) -> str:
    """Return what became of a pod, where and when; ``document`` says what time it is now."""
    return f"{_became(each)}{_from(each)} {_when(each, document)}"


def _from(each: Mapping[str, Any]) -> str:
    return "" if each["node"] is None else f" from node {each['node']}"


def _when(each: Mapping[str, Any], document: Document) -> str:
    now, at = parse_rfc3339(document.get("now")), parse_rfc3339(each["time"]) or 0.0
    return f"at {utc(each['time'])}" + ("" if now is None else f" ({span(now - at)} ago)")


def _outcome(each: Mapping[str, Any]) -> str:
    return f"{each['outcome']} (dry run)" if each["dryRun"] else str(each["outcome"])


def _became(each: Mapping[str, Any]) -> str:
    """Return the outcome of a pod in words; a dry run has evicted none."""
    if each["dryRun"] and each["outcome"] == "evicted":
        return "would have been evicted (according to a dry run)"
    return _WORDS[each["outcome"]] + (" (according to a dry run)" if each["dryRun"] else "")


def _why(each: Mapping[str, Any]) -> str:
    if each["taint"] is not None:
        return f"taint {tolerated(each['taint'], each['toleration'], bool(each['byDefault']), ceiling_in(each))}"
    if each["outcome"] == "marked":
        return "not known: the built-in controller's events name no taint"
    return str(each.get("why") or "the taint is not told (--no-event-reasons)")
