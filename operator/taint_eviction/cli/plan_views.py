"""How a plan is shown to people: the summary line first, then tables, each as long as a person reads.

``wide`` shows every pod, also those that stay, with what else is known of them.
"""

from collections.abc import Callable, Iterable, Sequence

import click

from taint_eviction.planning.plan import Plan, PlannedBudget, PlannedNode
from taint_eviction.planning.planned_pod import PlannedPod
from taint_eviction.planning.wording import held_by, leaves, moment, notes, paused, summary, why

_MOST_PODS = 50
_MOST_ROWS = 20

Row = Sequence[str]


def print_plan(plan: Plan, wide: bool) -> None:
    """Print a plan to stdout."""
    click.echo(click.style(summary(plan), bold=True))
    if plan.described:
        click.echo(f"if: {'; '.join(plan.described)}")
    _print_pods(plan, wide)
    _print_nodes(plan, wide)
    _print_owners(plan, wide)
    _print_budgets(plan, wide)
    _print_unschedulable(plan)
    said = notes(plan)
    if said:
        click.echo()
    for note in said:
        click.echo(f"note: {note}")


def _table(title: str, header: Row, rows: Iterable[Row], styles: dict[int, Callable[[str], str]] | None = None) -> None:
    listed = [list(row) for row in rows]
    if not listed:
        return
    widths = [max(len(row[column]) for row in [list(header), *listed]) for column in range(len(header))]
    click.echo(f"\n{click.style(title, bold=True)}")
    for number, row in enumerate([list(header), *listed]):
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)] + [row[-1]]
        shown = [
            (styles or {}).get(column, str)(cell) if number else click.style(cell, dim=True)
            for column, cell in enumerate(cells)
        ]
        click.echo(f"  {'  '.join(shown)}".rstrip())


def _red(text: str) -> str:
    return click.style(text, fg="red")


def _yellow(text: str) -> str:
    return click.style(text, fg="yellow")


def _more(shown: int, total: int, what: str) -> None:
    if total > shown:
        click.echo(f"  … and {total - shown} more {what} (-o wide shows all)")


def _print_pods(plan: Plan, wide: bool) -> None:
    leaving = plan.leaving
    if not wide:
        rows = [(*_when(pod, plan), str(pod.ref), pod.facts.pod.node_name or "", _why(pod, plan)) for pod in leaving]
        _table("pods that leave", ("", "AT", "POD", "NODE", "BECAUSE"), rows[:_MOST_PODS], {0: _yellow})
        _more(_MOST_PODS, len(rows), "pods")
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
    header = ("", "AT", "POD", "NODE", "OWNER", "SINCE", "KEPT FROM COMING BACK BY", "BECAUSE")
    _table("pods", header, wide_rows, {0: _yellow})


def _when(pod: PlannedPod, plan: Plan) -> tuple[str, str]:
    if pod.leaves_at is None:
        return "orphaned" if pod.forecast.orphaned else "stays", ""
    return leaves(pod.leaves_at, plan), moment(pod.leaves_at, plan.now)


def _why(pod: PlannedPod, plan: Plan) -> str:
    parts = [why(pod.forecast)]
    if pod.blocked:
        deleted = "" if pod.deleted_at is None else f", until {moment(pod.deleted_at, plan.now)}; then it is deleted"
        parts.append(f"BLOCKED: {held_by(pod)}{deleted}")
    if pod.paused_by:
        parts.append(paused(pod))
    if pod.lost:
        parts.append("gone for good: nobody creates it again")
    if pod.recreated_for_ever:
        parts.append("its DaemonSet creates it there again, for ever")
    return "; ".join(parts)


def _owner(pod: PlannedPod) -> str:
    return str(pod.facts.owner) if pod.facts.owner else "-"


def _since(pod: PlannedPod, plan: Plan) -> str:
    verdicts = pod.forecast.decision.verdicts
    if not verdicts:
        return "-"
    verdict = getattr(pod.forecast.decision, "deciding", verdicts[0])
    return f"{moment(verdict.start_at, plan.now)} by {verdict.start_source.value}"


def _print_nodes(plan: Plan, wide: bool) -> None:
    nodes = [node for node in plan.nodes.values() if node.matters or (wide and node.taints)]
    nodes.sort(key=lambda node: (-node.tally.leaving, node.name))
    shown = nodes if wide else nodes[:_MOST_ROWS]
    header = ("NODE", "ZONE", "LEAVE", "TAINTS")
    _table("nodes", header, [_node_row(node) for node in shown])
    _more(len(shown), len(nodes), "nodes")


def _node_row(node: PlannedNode) -> Row:
    taints = "deleted" if node.deleted else ", ".join(str(taint) for taint in node.taints)
    return node.name, node.zone or "-", f"{node.tally.leaving} of {node.tally.total}", taints


def _print_owners(plan: Plan, wide: bool) -> None:
    found = [(key, tally) for key, tally in plan.owners.items() if tally.leaving]
    found.sort(key=lambda each: (-each[1].leaving / each[1].total, each[0][0], str(each[0][1])))
    rows = [
        (namespace, str(owner) if owner else "none: gone for good", f"{tally.leaving} of {tally.total}")
        for (namespace, owner), tally in found
    ]
    shown = rows if wide else rows[:_MOST_ROWS]
    _table("owners", ("NAMESPACE", "OWNER", "LEAVE"), shown)
    _more(len(shown), len(rows), "owners")


def _print_budgets(plan: Plan, wide: bool) -> None:
    found = plan.budgets if wide else [each for each in plan.budgets if each.leaving]
    found = sorted(found, key=lambda each: (each not in plan.broken_budgets, each.budget.key))
    shown = found if wide else found[:_MOST_ROWS]
    title = "budgets (PodDisruptionBudget), if nothing is replaced meanwhile"
    header = ("BUDGET", "HEALTHY", "NEEDS", "LEAVE", "")
    _table(title, header, [_budget_row(each, plan) for each in shown], {4: _red})
    _more(len(shown), len(found), "budgets")


def _budget_row(each: PlannedBudget, plan: Plan) -> Row:
    said = []
    if each.violation is not None:
        at = moment(each.violation.at, plan.now)
        said.append(f"VIOLATED at {at}, down to {each.violation.lowest} healthy")
    if each.blocked:
        said.append(f"BLOCKS {len(each.blocked)} of them")
    if not said and each.asking:
        said.append("lets them go")
    numbers = str(each.before.healthy), str(each.before.desired), str(each.leaving)
    return str(each.budget), *numbers, "; ".join(said)


def _print_unschedulable(plan: Plan) -> None:
    """Say which pods stay but could not come back: the worked example of the Kubernetes documentation."""
    waiting = [
        (str(pod.ref), name, ", ".join(str(taint) for taint in taints))
        for pod in plan.pods
        for name, taints in pod.kept_from.items()
    ]
    title = "pods without a node, and where they could not be scheduled"
    _table(title, ("POD", "NODE", "BECAUSE OF"), waiting[:_MOST_ROWS])
    _more(_MOST_ROWS, len(waiting), "pairs")
    rows = [
        (str(pod.ref), pod.facts.pod.node_name or "", ", ".join(str(taint) for taint in pod.repelled_by))
        for pod in plan.pods
        if pod.repelled_by and pod.leaves_at is None and not _going_or_mirror(pod)
    ]
    title = "pods that stay, but could not be scheduled there again"
    _table(title, ("POD", "NODE", "BECAUSE OF"), rows[:_MOST_ROWS])
    _more(_MOST_ROWS, len(rows), "pods")


def _going_or_mirror(pod: PlannedPod) -> bool:
    return pod.forecast.orphaned or pod.facts.pod.terminating or pod.facts.pod.mirror
