"""``taint-eviction explain``: why a pod leaves its node or stays, as a running controller sees it."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode, give_up
from taint_eviction.cli.visible import visible, visible_in
from taint_eviction.core.decision import StayReason
from taint_eviction.core.objects import NOT_READY, OUT_OF_SERVICE, NamespacedName
from taint_eviction.core.sentences import BY_DELETE_NODE_LOST, BY_DELETE_OUT_OF_SERVICE, replica_name, tolerated
from taint_eviction.core.text import many
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.reporting.status_document import API_VERSION, ceiling_in
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered, ask, ask_flags, put
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.failover_reads import examine
from taint_eviction_ctl.cli.failover_views import failover_lines
from taint_eviction_ctl.cli.flags import verb
from taint_eviction_ctl.cli.history import (
    NO_OWNER,
    became,
    earlier_lines,
    past_lines,
    show_outcomes,
    source_documents,
    source_lines,
    suggestion,
)
from taint_eviction_ctl.cli.history_reads import Remembered, remembered
from taint_eviction_ctl.cli.near_pods import (
    absent_object,
    left_node,
    near_pods,
    own_namespace,
    owner_pods,
)
from taint_eviction_ctl.cli.status_views import due_text, keeping
from taint_eviction_ctl.cli.tables import about_lines, fact_lines
from taint_eviction_ctl.cli.values import one_object
from taint_eviction_ctl.failover.document import unread_document
from taint_eviction_ctl.planning.wording import and_list, since, span, utc

_ANOTHER_CLUSTER = "the API server of your kubeconfig has another pod of this name: is it another cluster?"
# What a document says of the replica: all that is true of another pod of the name, too.
_OF_THE_REPLICA = (
    *("apiVersion", "kind", "now", "version", "identity", "leading", "lease"),
    *("dryRun", "ready", "notReadyBecause", "warnings"),
)
_MODES = {
    "delete": "by a DELETE: PodDisruptionBudgets do not apply",
    "evict": "by the eviction API: PodDisruptionBudgets may refuse it",
    "evict-then-delete": "by the eviction API: PodDisruptionBudgets may refuse it",
}


@verb()
@click.argument("pod", metavar="[NAMESPACE/]POD|UID|node/NAME", nargs=-1, required=True, callback=one_object)
@flag("--namespace", "-n", help="Namespace of the pod. Without it: that of the context, or default.")
@ask_flags
def explain(pod: NamespacedName | str, **flags: Any) -> None:
    """Explain why a pod leaves, stays or is gone.

    Names the taint and the toleration that decide, since when and until when: taint-eviction explain shop/db-0

    Asks the replica that holds the Lease, through the API server, or the replica at --server. The former needs the
    rights to get leases and pods/proxy.

    For a pod that is gone, shows what happened to it, also after a rollout and where no replica answers, and from when
    on that is known (see taint-eviction history). UID: this very pod; node/NAME: which pods left this node, and why.
    For a pod that is Terminating, shows what holds it, and what to do first. For that it reads the cluster itself, with
    your rights: the pod, its node and the node's Lease, its claims, VolumeAttachments, and pods in its namespace. It
    names what you may not read.

    Exit codes: 0 answered, also without a controller for a pod that is Terminating or whose end is known; 1 there is no
    such pod or node, or nothing is known of it (in JSON known is false then); 2 wrong usage; 3 no controller answers,
    and nothing else is known.
    """
    if isinstance(pod, str):
        kind, _, name = pod.rpartition("/")
        within = {"namespace": flags["namespace"]} if kind and flags["namespace"] else {}
        query = {"node" if kind else "uid": name, "limit": 1000, **within}
        ask(flags, lambda asking: _gone(asking, query, flags))
    else:
        ask(flags, lambda asking: _answer(asking, pod, flags))


async def _gone(asking: Ask, query: dict[str, str | int], flags: Mapping[str, Any]) -> None:
    """Show which pods have left a node, or what happened to the pod with a UID."""
    if "uid" in query:
        uid = str(query["uid"])
        if not (outcomes := (await remembered(flags, query)).outcomes):
            give_up(ExitCode.FAILED, f"no pod with the UID {uid} is remembered")
        await _answer(asking, NamespacedName(outcomes[0]["namespace"], outcomes[0]["name"]), flags, uid)
        return
    if (await show_outcomes(flags, query, {}, asking)).outcomes:
        return
    if absent := await absent_object("node", str(query["node"]), flags):
        give_up(ExitCode.FAILED, absent)


async def _answer(asking: Ask, pod: NamespacedName, flags: Mapping[str, Any], uid: str | None = None) -> None:
    """Explain the pod of this name; ``uid``: only the one with this UID, which is remembered."""
    if not pod.namespace:
        pod = NamespacedName(flags["namespace"] or await own_namespace(flags), pod.name)
    document, failover, found = await asyncio.gather(_asked(asking, pod), examine(pod, flags), _past(pod, flags, uid))
    past = found.outcomes
    if isinstance(document, Unanswered):
        if not past and not failover["terminating"]:
            raise document
        document = _unexplained(pod, document)
    elif flags["server"] and failover["uid"] not in (None, document.get("uid", failover["uid"])):
        # Reads from another cluster than the replica's would explain another pod.
        failover = unread_document(_ANOTHER_CLUSTER)
    if uid not in (None, document.get("uid")):
        document = {name: document[name] for name in _OF_THE_REPLICA if name in document}
        document |= {"namespace": pod.namespace, "name": pod.name, "known": False, "text": "it is gone"}
    known = document.get("known", True)
    past = [each for each in past if not known or _ends(document) or each["uid"] != document.get("uid")]
    if not known and not past and not failover["terminating"]:
        document = await _found_elsewhere(document, pod, failover, flags)
    owned = None
    if not known and past and (owner := past[0].get("owner")) and _is_absent(failover, flags):
        owned = await owner_pods(pod.namespace, owner, flags)
    # With --server, the replica may belong to another cluster.
    has_left = past and past[0]["outcome"] == "evicted" and not (past[0]["dryRun"] or failover["terminating"])
    left = past[0]["node"] if has_left and not flags["server"] and past[0]["node"] != document.get("node") else None
    taints = await left_node(left, flags) if left else None
    if flags["output"] != "table":
        said = {**_answered(document, past, failover), "past": past, "ownerPods": owned, "leftNode": taints}
        echo_document({**said, "sources": source_documents(found), "failover": failover}, flags["output"])
        _end(document, past, failover)
        return
    more = {"ownerPods": owned, "leftNode": taints, "sources": source_documents(found)}
    lines = answer_lines({**document, **more}, past, failover, flags)
    click.echo("\n".join([*lines, *put(failover_lines, failover)]))
    _end(document, past, failover)


def _ends(document: Document) -> bool:
    """Return whether the pod is being deleted already."""
    return bool(document.get("staysBecause") == StayReason.TERMINATING.value)


def _end(document: Document, past: list[Document], failover: Document) -> None:
    """End with 1 for a pod of which nothing is known."""
    if not (document.get("known", True) or past or failover["terminating"] or document.get("stays")):
        sys.exit(ExitCode.FAILED)


def answer_lines(document: Document, past: list[Document], failover: Document, flags: Mapping[str, Any]) -> list[str]:
    """Return the answer for people: what happens to the pod or has happened to it, and who knows that of one that is
    gone. ``past``: what is remembered of pods of its name; ``failover``: what is read of it from the cluster.
    """
    past = visible_in(past)  # As ``put`` makes the document.
    if document.get("known", True):
        # Of a pod that is Terminating a new leader knows only what is remembered.
        own = [each for each in past if each["uid"] == document.get("uid")]
        earlier = [each for each in past if each["uid"] != document.get("uid")]
        now = put(partial(past_lines, own), document) if own else put(explanation_lines, document)
        return [*now, *_left(document), *put(partial(earlier_lines, earlier), document)]
    if past:
        newest, earlier = past[:1], past[1:]
        lines = [*put(partial(past_lines, newest), document), *_bearer(document, past, failover, flags)]
        lines += _left(document)
        if earlier:
            several = many(len(earlier), "earlier pod")
            lines += fact_lines("before", f"{several} of this name left, too: see below")
            lines += put(partial(past_lines, earlier), document)
    else:
        lines = put(explanation_lines, document)
    return [*lines, *put(partial(source_lines, indent="  "), document)]


def _answered(document: Document, past: list[Document], failover: Document) -> Document:
    """Return the document with what others know of a pod that the controller does not know; ``known`` is then true."""
    if document.get("known", True):
        return document
    if past:
        newest = past[0]
        facts = {name: newest[name] for name in ("uid", "node", "outcome")}
        return {**document, **facts, "known": True, "text": became(newest, document)}
    if failover["terminating"] or document.get("stays"):
        because = document.get("stays") or StayReason.TERMINATING.value
        facts = {"uid": failover["uid"], "node": failover["node"], "outcome": "stays", "staysBecause": because}
        return {**document, **facts, "known": True}
    return document


async def _past(pod: NamespacedName, flags: Mapping[str, Any], uid: str | None) -> Remembered:
    """Return the outcomes of the pods of this name, or of the one with this UID, from all that answers."""
    try:
        return await remembered(flags, {"pod": str(pod), "limit": 5, **({"uid": uid} if uid else {})})
    except (Unanswered, CallFailed, CredentialsError):
        return Remembered()


def _is_absent(failover: Document, flags: Mapping[str, Any]) -> bool:
    """Return whether the API server has answered that there is no pod of this name."""
    # With --server, the replica may belong to another cluster. ``terminating`` is None if the pod was not read.
    return failover["uid"] is None and failover["terminating"] is False and not flags["server"]


def _bearer(document: Document, past: list[Document], failover: Document, flags: Mapping[str, Any]) -> list[str]:
    """Return a line that says that the pod is gone, and which pods its owner has, or where another pod of this name is,
    which the controller need not know.
    """
    if _is_absent(failover, flags):
        owner, pods = past[0]["owner"], document["ownerPods"]
        has = "" if pods is None else f"; {put(_owned, {'owner': owner, 'pods': pods})}"
        return fact_lines("now", f"it is gone: there is no pod of this name{has}")
    if failover["uid"] is None:
        return []
    if failover["uid"] in {each["uid"] for each in past}:
        return []
    where = f"on node {visible(failover['node'])}" if failover["node"] else "not bound to a node"
    ready = f"{visible(failover['phase'])}, {'Ready' if failover['podReady'] else 'not Ready'}"
    return fact_lines("now", f"another pod of this name is {where}: {ready}")


def _left(document: Document) -> list[str]:
    """Return which taints the node still has from which a pod has left; no line if that is not known."""
    left = document.get("leftNode")
    if not left:
        return []
    if not left["taints"]:
        now = "no longer exists" if left["gone"] else "has no NoExecute taint any more"
        return fact_lines("old node", visible(f"{left['node']} {now}"))
    ends = " (status --stuck says how that ends)" if any(OUT_OF_SERVICE in taint for taint in left["taints"]) else ""
    return fact_lines("old node", visible(f"{left['node']} still has {and_list(left['taints'])}{ends}"))


def _owned(document: Document) -> str:
    """Return which pods an owner has: the newest one, and how many others."""
    owner, pods = document["owner"], document["pods"]
    if not pods:
        rolled_out = ": if its Deployment was rolled out since, another ReplicaSet has them"
        return f"{owner} has no pod now" + (rolled_out if owner.startswith("ReplicaSet/") else "")
    newest, *others = pods
    where = f"on node {newest['node']}" if newest["node"] else "not bound to a node"
    is_one = f"{newest['name']}, created {utc(newest['created'])}, {newest['phase']}, {where}"
    # It need not be the one that replaced the pod.
    return f"the newest of {len(pods)} pods of {owner} is {is_one}" if others else f"{owner} has {is_one}"


async def _found_elsewhere(
    document: Document, pod: NamespacedName, failover: Document, flags: Mapping[str, Any]
) -> Document:
    """Add what the cluster knows about a pod that the controller does not know, or suggest another pod."""
    if failover["uid"] is None:
        said = {"text": "there is no such pod"} if _is_absent(failover, flags) else {}
        return {**document, **said, **await near_pods(pod, flags)}
    # With --server, the replica may belong to another cluster. A replica that is not ready does not know all pods.
    if flags["server"] or not document.get("ready"):
        return {**document, "near": None}
    node, no_taint = failover["node"], "has no NoExecute taint that the controller has seen"
    return {**document, "near": None, "stays": f"its node {node} {no_taint}" if node else "it is not bound to a node"}


async def _asked(asking: Ask, pod: NamespacedName) -> Document | Unanswered:
    try:
        return await asking("/explain", {"pod": str(pod)})
    except Unanswered as why:
        return why


def _unexplained(pod: NamespacedName, why: Unanswered) -> Document:
    """Return the document for a pod if no controller answers."""
    head = {"apiVersion": API_VERSION, "kind": "Explanation", "namespace": pod.namespace, "name": pod.name}
    return {**head, "known": False, "text": f"no controller answers: {why}"}


def explanation_lines(document: Document) -> list[str]:
    """Return the lines of an explanation: first what happens to the pod, then why, one fact per line."""
    pod = f"{document['namespace']}/{document['name']}"
    if not document["known"]:
        if stays := document.get("stays"):
            return about_lines(pod, f"stays: {stays}")
        return about_lines(pod, f"is not known: {document['text']}{suggestion(document)}")
    facts = [
        *_taints(document),
        *_node(document),
        *_owner(document),
        *_adoption(document),
        *_eviction(document),
        *_service(document),
        *_again(document),
        *_recreated(document),
        *_doubts(document),
    ]
    return [*about_lines(pod, _outcome(document)), *(line for fact in facts for line in fact_lines(*fact))]


Fact = tuple[str, str]


def _outcome(document: Document) -> str:
    node = f"node {document['node']}"
    match document["outcome"]:
        case "stays" if _ends(document):
            return f"leaves {node}: {document['staysBecause']}"
        case "stays":
            return f"stays on {node}: {document['staysBecause']}"
        case "deleted" if document["dryRun"]:
            return f"would have been evicted from {node} by now; this is a dry run"
        case "deleted":
            return f"has been evicted from {node}: the API server has accepted its deletion"
    seconds = document["dueInSeconds"]
    if seconds >= 1:
        return f"leaves {node} {due_text(seconds)}, at {utc(document['deadline'])}"
    return f"was due to leave {node} at {utc(document['deadline'])}, {due_text(seconds)}"


def _taints(document: Document) -> Iterator[Fact]:
    """Yield what each NoExecute taint means for the pod; the deciding one comes first."""
    decides = document["leavesBecause"]
    verdicts = sorted(document["verdicts"], key=lambda verdict: bool(verdict["taint"] != decides))
    for number, verdict in enumerate(verdicts):
        why = tolerated(verdict["taint"], verdict["toleration"], verdict["byDefault"], ceiling_in(verdict))
        lacks = ": the pod has no such toleration of its own" if verdict["byDefault"] else ""
        yield "and" if number else "because", why + lacks
        if verdict["overruled"]:
            later = f"[{verdict['overruled']}] comes later in the pod's list"
            yield "but", f"{later}: only the first toleration that matches counts"
        yield "since", since(utc(verdict["since"]), verdict["sinceBy"])
        if verdict["until"] and verdict["toleration"]:
            yield "until", utc(verdict["until"])


def _node(document: Document) -> Iterator[Fact]:
    """Yield that the node shuts down, in the words of its condition Ready."""
    # A controller of another version may not say it.
    if document.get("nodeSays") is None:
        return
    waits = any(verdict.get("leftToKubelet") for verdict in document["verdicts"])
    follows = f"the taint {NOT_READY} evicts nobody" if waits else "its kubelet ends the pods, too"
    yield "node", f"its condition Ready says [{document['nodeSays']}]: {follows} meanwhile"


def _owner(document: Document) -> Iterator[Fact]:
    hold = document["holdAnnotation"]
    if hold is None or hold["grantedSeconds"] is None:
        return
    asks = "indefinitely" if hold["asksSeconds"] is None else span(hold["asksSeconds"])
    granted = f"is granted {span(hold['grantedSeconds'])}" if hold["grantedSeconds"] else "is granted nothing"
    yield "hold", f"its owner asks to hold it {asks} past its deadline (annotation taint-eviction/hold), and {granted}"


def _adoption(document: Document) -> Iterator[Fact]:
    """Yield which of the two controllers evicts the pod, beside a built-in controller."""
    # A controller of another version may not say it.
    if (whose := document.get("adoption")) is None:
        return
    if whose["text"]:
        yield "careful", whose["text"]
    elif whose["adopted"]:
        yield "adopted", "its countdown is taken over: this controller alone evicts it"


def _eviction(document: Document) -> Iterator[Fact]:
    eviction = document["eviction"]
    if eviction is None:
        return
    if eviction["state"] == "inFlight":
        yield "now", "it is being evicted"
    # A controller of another version may not say it.
    if (later := document.get("heldLater")) is not None:
        yield "held", f"{later['text']}: while that lasts, it does not leave at its deadline"
    for keeps in keeping(eviction):
        yield "held" if eviction["blockedBy"] is None and eviction["error"] is None else "blocked", keeps
    # A controller of another version may not say it.
    if eviction.get("outOfService"):
        yield "how", BY_DELETE_OUT_OF_SERVICE
        return
    rule = "" if eviction["rule"] is None else f" (rule {eviction['rule']} of the policy)"
    if eviction.get("nodeLost"):
        yield "how", BY_DELETE_NODE_LOST + rule
        return
    yield "how", _MODES.get(eviction["mode"], eviction["mode"]) + _until(eviction) + rule


def _until(eviction: Mapping[str, Any]) -> str:
    """Return how long budgets may refuse the pod; the instant is not known before their first refusal."""
    if eviction["deletesAt"] is not None:
        return f" until {utc(eviction['deletesAt'])}, then by a DELETE"
    return {"evict": " indefinitely", "evict-then-delete": " for a bounded time, then by a DELETE"}.get(
        eviction["mode"], ""
    )


def _service(document: Document) -> Iterator[Fact]:
    if note := document.get("nodeNote"):
        yield "node", note


def _again(document: Document) -> Iterator[Fact]:
    """Yield whether the scheduler could place a new pod like this one on the node."""
    if not document["taints"]:
        return
    repelling, discouraging = document["notSchedulableAgain"], document["preferablyNotScheduledAgain"]
    if repelling:
        yield "again", f"a new pod like it could not be scheduled there: it does not tolerate {', '.join(repelling)}"
    elif discouraging:
        avoids = "the scheduler would avoid the node for a new pod like it"
        yield "again", f"{avoids}: it does not tolerate {', '.join(discouraging)}"
    else:
        yield "again", "a new pod like it could be scheduled there"


def _recreated(document: Document) -> Iterator[Fact]:
    """Yield that a bare pod has no replacement. A controller of another version may not tell the owner."""
    if document.get("owner", "") is None and document["outcome"] != "stays":
        yield "owner", NO_OWNER


def _doubts(document: Document) -> Iterator[Fact]:
    """Yield the reasons why the answer may not be reliable."""
    if not document["ready"]:
        yield "careful", f"{replica_name(document['identity'])} is not ready: {document['notReadyBecause']}"
    if not document["leading"]:
        yield "careful", f"{replica_name(document['identity'])}, which answered, does not lead: it evicts nothing"
    elif document["dryRun"]:
        yield "careful", f"{replica_name(document['identity'])} is a dry run: it evicts nothing"
