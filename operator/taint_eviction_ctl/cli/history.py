"""``taint-eviction history``: the outcomes of pods, as the replicas remember them."""

from collections.abc import Mapping
from typing import Any

import click
import orjson

from taint_eviction.adapters.kubernetes_times import format_rfc3339, parse_rfc3339
from taint_eviction.adapters.status_document import API_VERSION, ceiling_in
from taint_eviction.cli.values import Seconds
from taint_eviction.cli.visible import complain, json_text
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.sentences import tolerated
from taint_eviction_ctl.cli.asking import Ask, Document, ask, ask_flags, put
from taint_eviction_ctl.cli.flags import CONTEXT_SETTINGS, flag
from taint_eviction_ctl.cli.history_reads import Remembered, remembered
from taint_eviction_ctl.cli.near_pods import own_namespace
from taint_eviction_ctl.cli.pictures import html_option, write_page
from taint_eviction_ctl.cli.tables import table_lines
from taint_eviction_ctl.cli.values import one_object
from taint_eviction_ctl.picture.of_outcomes import picture_of_outcomes
from taint_eviction_ctl.picture.scene import Picture
from taint_eviction_ctl.planning.wording import span

_WORDS = {
    "evicted": "was evicted",
    "deleted": "was deleted (this replica saw it, and did not do it)",
    "gone": "was found gone (this replica did not evict it)",
    "refused": "could not be evicted",
    "blocked": "was kept by a budget",
}


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("pod", metavar="[[NAMESPACE/]POD|UID|node/NAME]", nargs=-1, callback=one_object)
@flag("--node", help="Pods of this node only.")
@flag("--namespace", "-n", help="Pods of this namespace only.")
@flag("--all-namespaces", "-A", is_flag=True, help="Pods of all namespaces, as without -n.")
@flag("--taint", help="Pods that went because of a taint with this key only.")
@flag("--since", type=Seconds(), help="Of this last time only, as 5m.")
@flag("--limit", type=click.IntRange(0), default=1000, help="List at most this many pods.")
@html_option
@ask_flags
def history(pod: NamespacedName | str | None, **flags: Any) -> None:
    """List what became of pods: evicted, refused, or seen to go; the newest first. All, or those of one name or node.

    Each replica remembers the last 10,000 outcomes that it brought about or saw, until it restarts. Asks all pods of
    the controller, if you may list them, else the leader; or the replica at --server. For longer, use --audit-log.
    A dry run evicts nobody: it is asked only by the name of its Lease or with --server, and its outcomes are marked.

    Exit codes: 0 answered; 2 wrong usage; 3 no controller answers.
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
    show_history(flags, {**query, "limit": flags["limit"]}, flags["since"])


def show_history(flags: Mapping[str, Any], query: Mapping[str, str | int], since_seconds: float | None = None) -> None:
    """Ask all replicas, and print the outcomes that they remember."""
    ask(flags, lambda asking: _show(flags, dict(query), since_seconds, asking))


async def _show(
    flags: Mapping[str, Any], query: dict[str, str | int], since_seconds: float | None, asking: Ask
) -> None:
    await show_outcomes(flags, query, since_seconds, asking)


async def show_outcomes(
    flags: Mapping[str, Any], query: dict[str, str | int], since_seconds: float | None, asking: Ask
) -> Remembered:
    """Ask all replicas, print the outcomes that they remember, and return them."""
    if str(query.get("pod", "")).startswith("/"):
        query["pod"] = f"{flags['namespace'] or await own_namespace(flags)}{query['pod']}"
    if since_seconds is not None:
        # By the controller's time: this machine's clock may be wrong.
        now = parse_rfc3339((await asking("/status", {"limit": 0}))["now"]) or 0.0
        query["since"] = format_rfc3339(now - since_seconds)
    found = await remembered(flags, query)
    for why in found.unanswered:
        complain(f"not asked: {why}")
    if flags.get("html"):
        document = {"outcomes": found.outcomes, "asked": _asked(query, found)}
        write_page(flags["html"], put(_picture, document))
    if flags["output"] == "json":
        head = {"apiVersion": API_VERSION, "kind": "History", "answered": found.answered}
        click.echo(json_text({**head, "outcomes": found.outcomes}, orjson.OPT_INDENT_2))
    else:
        click.echo("\n".join(put(history_lines, {"outcomes": found.outcomes})))
    return found


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
    chosen += [f"since {query['since']}"] if "since" in query else []
    unanswered = "".join(f"; not asked: {why}" for why in found.unanswered)
    what = " ".join(["at most", str(query["limit"]), "outcomes", *chosen])
    return f"{what}; answered by {', '.join(found.answered)}{unanswered}"


def _picture(document: Document) -> Picture:
    return picture_of_outcomes(document["outcomes"], document["asked"])


def history_lines(document: Document) -> list[str]:
    """Write a table of outcomes."""
    if not document["outcomes"]:
        return ["no replica that answered remembers such an outcome"]
    rows = [
        (each["time"][11:19], _outcome(each), f"{each['namespace']}/{each['name']}", each["node"], _why(each))
        for each in document["outcomes"]
    ]
    return table_lines(("TIME", "OUTCOME", "POD", "NODE", "WHY"), rows)


def earlier_lines(past: list[Document], document: Document) -> list[str]:
    """Return one line on the outcome of each earlier pod of a name."""
    return [
        f"  {click.style('before'.ljust(9), dim=True)} an earlier pod of this name {_became(each)} from node"
        f" {each['node']} {_when(each, document)}: {_why(each)}"
        for each in past
    ]


def past_lines(past: list[Document], document: Document) -> list[str]:
    """Return lines on the outcome of a pod that is not known now, and of earlier pods of its name."""
    lines = []
    for each in past:
        pod, when = f"{each['namespace']}/{each['name']}", _when(each, document)
        late = each["lateSeconds"]
        lines.append(
            f"{click.style(pod, bold=True)} {_became(each)} from node {each['node']} {when},"
            f" {abs(late):.2f} s {'before' if late < 0 else 'after'} its deadline"
        )
        by = {"evict": "by the eviction API", "delete": "by a DELETE"}.get(each["call"], "")
        facts = [("because", _why(each)), ("uid", each["uid"]), ("owner", each["owner"]), ("how", by)]
        facts += [("answer", each["answer"]), ("told by", each["toldBy"])]
        lines += [f"  {click.style(label.ljust(9), dim=True)} {fact}" for label, fact in facts if fact]
    return lines


def _when(each: Mapping[str, Any], document: Document) -> str:
    now, at = parse_rfc3339(document.get("now")), parse_rfc3339(each["time"]) or 0.0
    return f"at {each['time'][:19]}Z" if now is None else f"{span(now - at)} ago"


def _outcome(each: Mapping[str, Any]) -> str:
    return f"{each['outcome']} (dry run)" if each["dryRun"] else str(each["outcome"])


def _became(each: Mapping[str, Any]) -> str:
    """Return the outcome of a pod in words; a dry run has evicted none."""
    if each["dryRun"] and each["outcome"] == "evicted":
        return "would have been evicted (according to a dry run)"
    return _WORDS[each["outcome"]] + (" (according to a dry run)" if each["dryRun"] else "")


def _why(each: Mapping[str, Any]) -> str:
    return f"taint {tolerated(each['taint'], each['toleration'], each['byDefault'], ceiling_in(each))}"
