"""``taint-eviction explain``: why a pod goes or stays, as a running controller sees it."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
import orjson

from taint_eviction.cli.asking import Ask, Document, ask, ask_flags, put
from taint_eviction.cli.asking_values import PodName
from taint_eviction.cli.status_views import due_text, keeping
from taint_eviction.core.objects import NamespacedName
from taint_eviction.planning.wording import span

_WIDTH = 9
_MODES = {
    "delete": "by a deletion: no budget (PodDisruptionBudget) holds it",
    "evict": "by the eviction API: budgets (PodDisruptionBudgets) hold it for as long as they like",
    "evict-then-delete": "by the eviction API, so that budgets (PodDisruptionBudgets) hold it",
}


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@click.argument("pod", metavar="NAMESPACE/POD", type=PodName())
@ask_flags
def explain(pod: NamespacedName, **flags: Any) -> None:
    """See why a pod leaves its node or stays: which taint, which toleration, since when, until when, what holds it.

    Asks the replica that holds the Lease, through the API server (it takes the rights to get leases and pods/proxy), or
    the one at --server.

    Exit code: 0 fine, also for a pod that stays or is not known (JSON: known is false), 2 usage, 3 nobody answered.
    """

    async def answer(asking: Ask) -> None:
        document = await asking("/explain", {"pod": str(pod)})
        if flags["output"] == "json":
            click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        else:
            click.echo("\n".join(put(explanation_lines, document)))

    ask(flags, answer)


def explanation_lines(document: Document) -> list[str]:
    """Write an explanation: first what becomes of the pod, then why, a fact a line."""
    pod = f"{document['namespace']}/{document['name']}"
    if not document["known"]:
        return [f"{click.style(pod, bold=True)} is not known: {document['text']}"]
    facts = [*_taints(document), *_owner(document), *_eviction(document), *_again(document), *_doubts(document)]
    lines = [f"{click.style(label.ljust(_WIDTH), dim=True)} {fact}" for label, fact in facts]
    return [f"{click.style(pod, bold=True)} {_outcome(document)}", *(f"  {line}" for line in lines)]


Fact = tuple[str, str]


def _outcome(document: Document) -> str:
    node = f"node {document['node']}"
    match document["outcome"]:
        case "stays":
            return f"stays on {node}: {document['staysBecause']}"
        case "deleted" if document["dryRun"]:
            return f"would have been evicted from {node} by now; this is a dry run"
        case "deleted":
            return f"is evicted from {node}: the API server has accepted its deletion"
    seconds = document["dueInSeconds"]
    if seconds >= 1:
        return f"leaves {node} {due_text(seconds)}, at {document['deadline']}"
    return f"is due to leave {node} since {document['deadline']}, {due_text(seconds)}"


def _taints(document: Document) -> Iterator[Fact]:
    """Tell of the NoExecute taint that decides first, then of the others."""
    decides = document["leavesBecause"]
    verdicts = sorted(document["verdicts"], key=lambda verdict: bool(verdict["taint"] != decides))
    for number, verdict in enumerate(verdicts):
        yield "and" if number else "because", _tolerated(verdict)
        if verdict["overruled"]:
            text = f"[{verdict['overruled']}], later in its list, would have said otherwise"
            yield "but", f"{text}: only the first that matches counts"
        yield "since", f"{verdict['since']}, by {verdict['sinceBy']}"
        if verdict["until"] and verdict["toleration"]:
            yield "until", verdict["until"]


def _tolerated(verdict: Mapping[str, Any]) -> str:
    if verdict["toleration"] is None:
        return f"{verdict['taint']} is not tolerated"
    if verdict["byDefault"]:
        return f"{verdict['taint']} is tolerated by default [{verdict['toleration']}]: the pod has no such toleration"
    return f"{verdict['taint']} is tolerated by [{verdict['toleration']}]"


def _owner(document: Document) -> Iterator[Fact]:
    hold = document["holdAnnotation"]
    if hold is None or hold["grantedSeconds"] is None:
        return
    asks = "for ever" if hold["asksSeconds"] is None else span(hold["asksSeconds"])
    granted = f"is granted {span(hold['grantedSeconds'])}" if hold["grantedSeconds"] else "is granted nothing"
    yield "hold", f"its owner asks to hold it {asks} past its deadline (annotation taint-eviction/hold), and {granted}"


def _eviction(document: Document) -> Iterator[Fact]:
    eviction = document["eviction"]
    if eviction is None:
        return
    if eviction["state"] == "inFlight":
        yield "now", "it is being evicted"
    for keeps in keeping(eviction):
        yield "held" if eviction["blockedBy"] is None and eviction["error"] is None else "blocked", keeps
    rule = "" if eviction["rule"] is None else f" (rule {eviction['rule']} of the policy)"
    until = "" if eviction["deletesAt"] is None else f", until {eviction['deletesAt']}; then by a deletion"
    yield "how", _MODES.get(eviction["mode"], eviction["mode"]) + until + rule


def _again(document: Document) -> Iterator[Fact]:
    """Say whether the scheduler would put such a pod there again."""
    if not document["taints"]:
        return
    repelling, discouraging = document["notSchedulableAgain"], document["preferablyNotScheduledAgain"]
    if repelling:
        yield "again", f"such a pod would not be scheduled there: {', '.join(repelling)} not tolerated"
    elif discouraging:
        yield "again", f"such a pod would be scheduled there if need be: {', '.join(discouraging)} not tolerated"
    else:
        yield "again", "such a pod could be scheduled there"


def _doubts(document: Document) -> Iterator[Fact]:
    """Say what the answer is worth."""
    if not document["ready"]:
        yield "careful", f"{document['identity']} is not ready: {document['notReadyBecause']}"
    if not document["leading"]:
        yield "careful", f"{document['identity']}, which was asked, does not lead: it only watches"
    elif document["dryRun"]:
        yield "careful", f"{document['identity']} is a dry run: it evicts nothing"
