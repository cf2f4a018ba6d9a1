"""A plan as a picture: second 0 is now, what lies ahead is to the right."""

from taint_eviction.core.decision import Evict
from taint_eviction.core.objects import NO_EXECUTE
from taint_eviction.picture.scene import Band, Bar, Kind, Lane, Mark, Picture
from taint_eviction.planning.plan import Plan, PlannedNode
from taint_eviction.planning.planned_pod import PlannedPod
from taint_eviction.planning.wording import held_by, notes, paused, summary, why

# A tolerance of years would make everything else a point: the axis ends here, and what comes later at its end.
_LONGEST_SECONDS = 7 * 86400.0
_LEAST_SECONDS = 60.0
_MOST_LANES = 5_000


def picture_of_plan(plan: Plan) -> Picture:
    """Draw the pods of the nodes that matter; the others have no lane, since nothing happens to them."""
    at = plan.what_if.at - plan.now.at
    ahead = [pod.leaves_at - plan.now.at for pod in plan.leaving if pod.leaves_at is not None]
    last = max([_LEAST_SECONDS, at + _LEAST_SECONDS, *(second for second in ahead if second <= _LONGEST_SECONDS)])
    picture = Picture(
        "What if: evictions ahead", summary(plan), -0.04 * last, 1.06 * last, plan.now.server_epoch, ahead=True
    )
    picture.notes = notes(plan)
    matters = [node for node in plan.nodes.values() if node.matters]
    for node in matters:
        picture.bands[node.name] = _bands(node, plan, at)
    names = {node.name for node in matters}
    shown = [pod for pod in plan.pods if pod.facts.pod.node_name in names]
    shown.sort(key=lambda pod: (pod.leaves_at is None, pod.leaves_at or 0.0, pod.ref.key))
    if len(shown) > _MOST_LANES:
        without = len(shown) - _MOST_LANES
        picture.notes.append(f"{without} pods of {len(shown)} have no lane here: those that leave last, or stay")
    picture.lanes = [_lane(pod, plan) for pod in shown[:_MOST_LANES]]
    picture.steps = [Mark(at, Kind.STEP, text) for text in plan.described]
    return picture


def _bands(node: PlannedNode, plan: Plan, at: float) -> list[Band]:
    before = plan.inventory.nodes[node.name].node.taints
    end = at if node.deleted else None
    kept = [Band(str(taint), None, end, taint.effect == NO_EXECUTE) for taint in node.taints if taint in before]
    added = [Band(str(taint), at, end, taint.effect == NO_EXECUTE) for taint in node.taints if taint not in before]
    gone = [Band(str(taint), None, at, taint.effect == NO_EXECUTE) for taint in before if taint not in node.taints]
    return [*gone, *kept, *added]


def _lane(pod: PlannedPod, plan: Plan) -> Lane:
    now, decision = plan.now.at, pod.forecast.decision
    node = pod.facts.pod.node_name or ""
    owner = str(pod.facts.owner) if pod.facts.owner else "nobody: gone for good"
    lane = Lane(str(pod.ref), node, "stays", why(pod.forecast), pod.ref.uid, owner)
    if not isinstance(decision, Evict):
        if pod.forecast.orphaned:
            lane.outcome = "orphaned"
            lane.marks.append(Mark(plan.what_if.at - now, Kind.ORPHANED, lane.why))
        elif isinstance(pod.forecast.unchanged, Evict):
            lane.outcome = "cancelled"
            text = f"would leave without the changes: {lane.why}"
            lane.marks.append(Mark(plan.what_if.at - now, Kind.CANCELLED, text))
        return lane
    start, due = decision.deciding.start_at - now, decision.fire_at - now
    lane.outcome, lane.deadline = "leaves", due
    shown = max(due, 0.0)
    tolerated = due - decision.held_seconds if decision.held_seconds else shown
    if tolerated > start:
        lane.bars.append(Bar(start, tolerated, Kind.COUNTDOWN, f"tolerance running: {lane.why}"))
    if shown > tolerated:
        lane.bars.append(Bar(tolerated, shown, Kind.HELD, lane.why))
    lane.marks.append(_end(lane, pod, shown))
    return lane


def _end(lane: Lane, pod: PlannedPod, at: float) -> Mark:
    """Mark how it ends that a pod is due, in the picture and as the lane's outcome."""
    if not pod.blocked and not pod.paused_by:
        return Mark(at, Kind.EVICTED, f"leaves: {lane.why}")
    kind, text = (Kind.BLOCKED, f"blocked: {held_by(pod)}") if pod.blocked else (Kind.HELD, paused(pod))
    lane.outcome = kind.value
    lane.why += f"; {text}"
    return Mark(at, kind, text)
