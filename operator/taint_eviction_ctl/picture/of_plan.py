"""A plan as a picture: second 0 is now, the future is to the right."""

from collections.abc import Iterator

from taint_eviction.core.decision import Evict
from taint_eviction.core.objects import NO_EXECUTE
from taint_eviction.core.text import many
from taint_eviction_ctl.picture.scene import Band, Bar, Kind, Mark, Picture, PodRow
from taint_eviction_ctl.planning.plan import Plan, PlannedNode
from taint_eviction_ctl.planning.planned_pod import PlannedPod
from taint_eviction_ctl.planning.wording import held_by, moment, notes, paused, summary, why

# A countdown of years would reduce everything else to a point: the axis ends here, and names later deadlines at its
# end.
_LONGEST_SECONDS = 7 * 86400.0
_MIN_SECONDS = 60.0
_MAX_ROWS = 5_000
_MAX_BUDGETS = 20


def picture_of_plan(plan: Plan) -> Picture:
    """Draw the pods of tainted and deleted nodes; nothing happens to the others."""
    at = plan.what_if.at - plan.now.at
    ahead = [pod.leaves_at - plan.now.at for pod in plan.leaving if pod.leaves_at is not None]
    last = max([_MIN_SECONDS, at + _MIN_SECONDS, *(second for second in ahead if second <= _LONGEST_SECONDS)])
    picture = Picture(
        "What if: evictions ahead", summary(plan), -0.04 * last, 1.06 * last, plan.now.server_epoch, ahead=True
    )
    picture.asked = plan.asked
    picture.notes = [*_broken_budgets(plan), *notes(plan)]
    matters = [node for node in plan.nodes.values() if node.matters]
    for node in matters:
        picture.bands[node.name] = _bands(node, plan, at)
    names = {node.name for node in matters}
    shown = [pod for pod in plan.pods if pod.facts.pod.node_name in names]
    shown.sort(key=lambda pod: (pod.leaves_at is None, pod.leaves_at or 0.0, pod.ref.key))
    if len(shown) > _MAX_ROWS:
        without = len(shown) - _MAX_ROWS
        picture.notes.append(f"not shown are {without} of {len(shown)} pods: those that leave last, or stay")
    picture.rows = [_row(pod, plan) for pod in shown[:_MAX_ROWS]]
    picture.steps = [Mark(at, Kind.STEP, text) for text in plan.described]
    return picture


def _broken_budgets(plan: Plan) -> Iterator[str]:
    for count, each in enumerate(plan.broken_budgets):
        if count == _MAX_BUDGETS:
            yield f"and {len(plan.broken_budgets) - count} more budgets that would be violated, or block evictions"
            return
        said = []
        if each.violation is not None:
            at = moment(each.violation.at, plan.now)
            said.append(f"would be violated at {at}: {each.violation.lowest} healthy, {each.before.desired} needed")
        if each.blocked:
            said.append(f"would block {len(each.blocked)} of {many(each.leaving, 'pod')} that would leave")
        yield f"budget {each.budget} {', '.join(said)}"


def _bands(node: PlannedNode, plan: Plan, at: float) -> list[Band]:
    before = plan.inventory.nodes[node.name].node.taints
    end = at if node.deleted else None
    kept = [Band(str(taint), None, end, taint.effect == NO_EXECUTE) for taint in node.taints if taint in before]
    added = [Band(str(taint), at, end, taint.effect == NO_EXECUTE) for taint in node.taints if taint not in before]
    gone = [Band(str(taint), None, at, taint.effect == NO_EXECUTE) for taint in before if taint not in node.taints]
    return [*gone, *kept, *added]


def _row(pod: PlannedPod, plan: Plan) -> PodRow:
    now, decision = plan.now.at, pod.forecast.decision
    node = pod.facts.pod.node_name or ""
    owner = str(pod.facts.pod.controller) if pod.facts.pod.controller else "nobody: gone for good"
    row = PodRow(str(pod.ref), node, "stays", why(pod.forecast), pod.ref.uid, owner)
    if not isinstance(decision, Evict):
        if pod.forecast.orphaned:
            row.outcome = "orphaned"
            row.marks.append(Mark(plan.what_if.at - now, Kind.ORPHANED, row.why))
        elif isinstance(pod.forecast.unchanged, Evict):
            row.outcome = "cancelled"
            text = f"would leave without the changes: {row.why}"
            row.marks.append(Mark(plan.what_if.at - now, Kind.CANCELLED, text))
        return row
    start, due = decision.deciding.start_at - now, decision.fire_at - now
    row.outcome, row.deadline = "leaves", due
    shown = max(due, 0.0)
    tolerated = due - decision.held_seconds if decision.held_seconds else shown
    if tolerated > start:
        row.bars.append(Bar(start, tolerated, Kind.COUNTDOWN, row.why))
    if shown > tolerated:
        row.bars.append(Bar(tolerated, shown, Kind.HELD, row.why))
    row.marks.append(_end(row, pod, shown))
    return row


def _end(row: PodRow, pod: PlannedPod, at: float) -> Mark:
    """Mark what happens when a pod is due, and set the row's outcome."""
    if not pod.blocked and not pod.paused_by:
        return Mark(at, Kind.EVICTED, f"leaves: {row.why}")
    kind, text = (Kind.BLOCKED, f"blocked: {held_by(pod)}") if pod.blocked else (Kind.HELD, paused(pod))
    row.outcome = kind.value
    row.why += f"; {text}"
    return Mark(at, kind, text)
