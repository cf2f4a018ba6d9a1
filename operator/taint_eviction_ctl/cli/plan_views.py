"""A plan for people: the summary line first, then tables, shortened for reading.

With changes, the tables show what these change; what happens with or without them is one line of the summary. ``wide``
shortens nothing and shows every pod, including those that stay, in more columns.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

import click

from taint_eviction.cli.visible import visible
from taint_eviction.core.sentences import BY_DELETE_NODE_LOST, BY_DELETE_OUT_OF_SERVICE, began
from taint_eviction_ctl.cli.tables import Row, table_lines, wrapped
from taint_eviction_ctl.planning.plan import Plan, PlannedBudget, PlannedNode
from taint_eviction_ctl.planning.planned_pod import PlannedPod
from taint_eviction_ctl.planning.wording import (
    and_list,
    headlines,
    held_by,
    in_order,
    leaves,
    moment,
    notes,
    paused,
    why,
)

_MAX_PODS = 50
_MAX_ROWS = 20
# A pod that leaves so much later than it is due has waited for its turn.
_SOON_SECONDS = 1.0


def print_plan(plan: Plan, wide: bool) -> None:
    """Print a plan to stdout."""
    first, *rest = headlines(plan)
    click.echo("\n".join(click.style(line, bold=True) for line in wrapped(visible(first), "", "  ")))
    for line in rest:
        _sentence("", line if wide else f"{line} (-o wide shows them)")
    if plan.described:
        _sentence("if: ", "; ".join(plan.described))
    every = wide or plan.what_if.empty
    shown = plan.pods if every else [pod for pod in plan.pods if pod.by_change]
    touched = plan.nodes.keys() if every else _touched(plan)
    _print_pods(plan, shown, wide)
    _print_nodes(plan, shown, touched, wide)
    _print_owners(plan, shown, wide)
    _print_budgets(plan, every, wide)
    _print_unschedulable(plan, touched)
    said = notes(plan, shown)
    if said:
        click.echo()
    for note in said:
        _sentence("note: ", note)


def _touched(plan: Plan) -> set[str]:
    """Return the nodes that the changes concern."""
    tolerating = plan.what_if.tolerations or {}
    of_pods = {pod.facts.pod.node_name or "" for pod in plan.pods if pod.ref in tolerating}
    return {*plan.what_if.taints, *plan.what_if.deleted_nodes, *of_pods}


def _sentence(head: str, text: str) -> None:
    click.echo("\n".join(wrapped(visible(text), head, "  ")))


def _table(title: str, header: Row, rows: Iterable[Row], styles: dict[int, Callable[[str], str]] | None = None) -> None:
    listed = list(rows)
    if listed:
        click.echo("\n".join(["", click.style(title, bold=True), *table_lines(header, listed, styles)]))


def _red(text: str) -> str:
    return click.style(text, fg="red")


def _verdict(text: str) -> str:
    return _red(text) if text.startswith(("will be violated", "would be violated", "BLOCKS")) else text


def _yellow(text: str) -> str:
    return click.style(text, fg="yellow")


def _more(shown: int, total: int, what: str) -> None:
    if total > shown:
        click.echo(f"  … and {total - shown} more {what} (-o wide shows all)")


def _print_pods(plan: Plan, shown: Collection[PlannedPod], wide: bool) -> None:
    leaving = sorted(_leaving(shown), key=lambda pod: (pod.shown_at or 0.0, pod.order is not None))
    if not wide:
        _print_ending([*(pod for pod in shown if pod.by_podgc), *leaving], plan)
        return
    staying = [pod for pod in plan.pods if pod.leaves_at is None]
    wide_rows = [
        (
            *_when(pod, plan),
            str(pod.ref),
            pod.facts.pod.node_name or "",
            _owner(pod),
            _since(pod, plan),
            ", ".join(str(taint) for taint in pod.repelled_by) or "-",
            _why(pod, plan),
        )
        for pod in [*leaving, *staying]
    ]
    header = ("", "AT", "POD", "NODE", "OWNER", "SINCE", "UNTOLERATED TAINTS", "BECAUSE")
    _table("pods", header, wide_rows, {0: _yellow})


def _leaving(pods: Iterable[PlannedPod]) -> list[PlannedPod]:
    return [pod for pod in pods if pod.leaves_at is not None]


def _print_ending(pods: list[PlannedPod], plan: Plan) -> None:
    rows = [(*_when(pod, plan), str(pod.ref), pod.facts.pod.node_name or "", _why(pod, plan)) for pod in pods]
    words = {word for word, *_ in rows}
    others = [f"are {word}" for word in ("freed", "orphaned", "blocked") if word in words]
    title = f"pods that {', or '.join(['leave', *others])}"
    _table(title, ("", "AT", "POD", "NODE", "BECAUSE"), rows[:_MAX_PODS], {0: _yellow})
    _more(_MAX_PODS, len(rows), "pods")


def _when(pod: PlannedPod, plan: Plan) -> tuple[str, str]:
    if pod.leaves_at is None:
        return pod.by_podgc or "stays", ""
    at = pod.leaves_at if pod.holders or pod.shown_at is None else pod.shown_at
    return "blocked" if pod.holders else leaves(at, plan), moment(at, plan.now)


def _why(pod: PlannedPod, plan: Plan) -> str:
    parts = [why(pod.forecast)]
    if pod.freed and not pod.forecast.orphaned:
        parts.append("PodGC force-deletes it: its node is out of service")
    if pod.out_of_service:
        parts.append(BY_DELETE_OUT_OF_SERVICE)
    if pod.handling is not None and pod.handling.node_lost:
        parts.append(BY_DELETE_NODE_LOST)
    parts += _turn(pod, plan)
    if pod.blocked:
        deleted = "" if pod.deleted_at is None else f" until {moment(pod.deleted_at, plan.now)}, then it is deleted"
        parts.append(f"BLOCKED: {held_by(pod)}{deleted}")
    if pod.paused_by:
        parts.append(paused(pod))
    guards = [holder.noun for holder in pod.holders if holder.reason not in ("rule_paused", "budgets")]
    if guards and len({other.holders for other in plan.leaving}) > 1:
        parts.append(f"blocked by {and_list(guards)}")
    if pod.adopted is not None:
        parts.append("its countdown is taken over" if pod.adopted else "the built-in controller's: nothing holds it")
    if pod.lost:
        parts.append("gone for good: no controller recreates it")
    if pod.recreated_for_ever:
        parts.append("its DaemonSet recreates it there each time")
    return "; ".join(parts)


def _turn(pod: PlannedPod, plan: Plan) -> list[str]:
    """Return for whom or what a pod waits once it is due, apart from what blocks it."""
    if pod.order is not None:
        return [in_order(pod.order, plan)]
    if not plan.limited or pod.blocked or pod.holders or pod.goes_at is None:
        return []
    waited_seconds = pod.goes_at - max(plan.now.at, pod.leaves_at or 0.0)
    return ["a limit lets it go then"] if waited_seconds > _SOON_SECONDS else []


def _owner(pod: PlannedPod) -> str:
    return str(pod.facts.pod.controller) if pod.facts.pod.controller else "-"


def _since(pod: PlannedPod, plan: Plan) -> str:
    verdicts = pod.forecast.decision.verdicts
    if not verdicts:
        return "-"
    verdict = getattr(pod.forecast.decision, "deciding", verdicts[0])
    return began(moment(verdict.start_at, plan.now), verdict.start_source.value)


def _print_nodes(plan: Plan, shown: Collection[PlannedPod], touched: Collection[str], wide: bool) -> None:
    named = {*touched, *(pod.facts.pod.node_name for pod in shown)}
    nodes = [each for each in plan.nodes.values() if each.name in named and (each.matters or (wide and each.taints))]
    leaving = Counter(pod.facts.pod.node_name for pod in _leaving(shown))
    ends: dict[str, Counter[str]] = {node.name: Counter() for node in nodes}
    for pod in shown:
        if pod.by_podgc and pod.facts.pod.node_name in ends:
            ends[pod.facts.pod.node_name][pod.by_podgc] += 1
    nodes.sort(key=lambda node: (-ends[node.name].total(), -leaving[node.name], node.name))
    first = nodes if wide else nodes[:_MAX_ROWS]
    header = ("NODE", "ZONE", "LEAVE", "TAINTS")
    _table("nodes", header, [_node_row(node, leaving[node.name], ends[node.name]) for node in first])
    _more(len(first), len(nodes), "nodes")


def _node_row(node: PlannedNode, leaving: int, ends: Counter[str]) -> Row:
    taints = "deleted" if node.deleted else ", ".join(str(taint) for taint in node.taints)
    leave = [f"{leaving} of {node.tally.total}", *(f"{count} {end}" for end, count in sorted(ends.items()))]
    return node.name, node.zone or "-", ", ".join(leave), taints


def _print_owners(plan: Plan, pods: Iterable[PlannedPod], wide: bool) -> None:
    leaving = Counter(
        (pod.ref.key.namespace, pod.facts.pod.controller) for pod in _leaving(pods) if not pod.facts.pod.mirror
    )
    found = [(key, count, plan.owners[key].total) for key, count in leaving.items()]
    found.sort(key=lambda each: (-each[1] / each[2], each[0][0], str(each[0][1])))
    rows = [
        (namespace, str(owner) if owner else "none: gone for good", f"{count} of {total}")
        for (namespace, owner), count, total in found
    ]
    shown = rows if wide else rows[:_MAX_ROWS]
    _table("owners", ("NAMESPACE", "OWNER", "LEAVE"), shown)
    _more(len(shown), len(rows), "owners")


def _print_budgets(plan: Plan, every: bool, wide: bool) -> None:
    found = plan.budgets if wide else [each for each in plan.budgets if (each.leaving if every else each.by_change)]
    found = sorted(found, key=lambda each: (each not in plan.broken_budgets, each.budget.key))
    shown = found if wide else found[:_MAX_ROWS]
    besides = "" if every else "also counting what leaves with or without the change, "
    title = f"PodDisruptionBudgets, {besides}if no pod is replaced meanwhile"
    header = ("BUDGET", "HEALTHY", "NEEDS", "LEAVE", "VERDICT")
    _table(title, header, [_budget_row(each, plan) for each in shown], {4: _verdict})
    _more(len(shown), len(found), "budgets")


def _budget_row(each: PlannedBudget, plan: Plan) -> Row:
    said = []
    if each.violation is not None:
        # Pods that are due already, and held, leave at a moment that nobody knows.
        at = f" at {moment(each.violation.at, plan.now)}" if each.violation.at > plan.now.at else ""
        would = "will" if plan.what_if.empty else "would"
        said.append(f"{would} be violated{at}, down to {each.violation.lowest} healthy")
    if each.blocked:
        said.append(f"BLOCKS {len(each.blocked)} of them")
    if not said:
        said.append("allows them" if each.asking else "not violated")
    numbers = str(each.before.healthy), str(each.before.desired), str(each.leaving)
    return str(each.budget), *numbers, "; ".join(said)


def _print_unschedulable(plan: Plan, nodes: Collection[str]) -> None:
    """Show pods that could not be scheduled on these nodes: the worked example of the Kubernetes documentation."""
    waiting = [
        (str(pod.ref), name, ", ".join(str(taint) for taint in taints))
        for pod in plan.pods
        for name, taints in pod.kept_from.items()
        if name in nodes
    ]
    title = "pods without a node, and nodes whose taints they do not tolerate"
    _table(title, ("POD", "NODE", "UNTOLERATED TAINTS"), waiting[:_MAX_ROWS])
    _more(_MAX_ROWS, len(waiting), "pairs")
    rows = [
        (str(pod.ref), pod.facts.pod.node_name or "", ", ".join(str(taint) for taint in pod.repelled_by))
        for pod in plan.pods
        if pod.facts.pod.node_name in nodes and pod.repelled_by and pod.leaves_at is None and not _going_or_mirror(pod)
    ]
    title = "pods that stay, but could not be scheduled on their node again"
    _table(title, ("POD", "NODE", "UNTOLERATED TAINTS"), rows[:_MAX_ROWS])
    _more(_MAX_ROWS, len(rows), "pods")


def _going_or_mirror(pod: PlannedPod) -> bool:
    return pod.by_podgc != "" or pod.facts.pod.terminating or pod.facts.pod.mirror
