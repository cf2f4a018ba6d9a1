"""A plan in words: durations, instants, reasons, notes, and the summary line."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.events import BlockReason
from taint_eviction.core.instants import FAR_FUTURE_SECONDS, Moment, TimeSource
from taint_eviction.core.objects import LIFECYCLE_KEYS
from taint_eviction.core.policy import EvictionMode
from taint_eviction.core.sentences import began, tolerated
from taint_eviction.core.text import many
from taint_eviction.files.kubernetes_times import format_utc, parse_rfc3339
from taint_eviction.kube.kubernetes_objects import HOLD_ANNOTATION
from taint_eviction_ctl.planning.forecast import PodForecast
from taint_eviction_ctl.planning.inventory import Inventory
from taint_eviction_ctl.planning.order import plugins_before_others
from taint_eviction_ctl.planning.plan import Plan, PlannedBudget
from taint_eviction_ctl.planning.planned_pod import PlannedOrder, PlannedPod

# A pod that leaves within this time after the change leaves "at once".
_AT_ONCE_SECONDS = 1.0
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_MAX_KINDS = 8
_PATIENT = EvictionMode.EVICT_THEN_DELETE
_MAX_HOLDERS = 3
_MAX_NAMES = 3
_ORPHANED = "PodGC force-deletes it: its node is deleted"


def span(seconds: float) -> str:
    """Write a duration in its two largest units: ``5 m``, ``1 h 10 m``, ``0 s``."""
    left = round(abs(seconds))
    if left >= FAR_FUTURE_SECONDS / 2:
        return "100 years"
    parts = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def utc(time: str | None) -> str:
    """Write an RFC 3339 time of a document as people read it, in UTC; other text as it is."""
    epoch = parse_rfc3339(time)
    return str(time) if epoch is None else format_utc(epoch)


def since(instant: str, source: str) -> str:
    """Return when a taint or a binding began, and why another date of its object does not count."""
    untrue = "; the object's date is earlier, and does not count: it was seen to be absent after that"
    return began(instant, source) + (untrue if source == TimeSource.LAST_ABSENT.value else "")


def moment(instant: float, now: Moment) -> str:
    """Write an instant by the API server's clock."""
    return "in 100 years" if instant - now.at >= FAR_FUTURE_SECONDS / 2 else format_utc(now.epoch_of(instant))


def leaves(instant: float, plan: Plan) -> str:
    """Return when a pod leaves, from now: ``at once``, ``in 5 m``."""
    ahead = instant - plan.now.at
    if ahead < -_AT_ONCE_SECONDS:
        return f"at once ({span(ahead)} overdue)"
    return "at once" if ahead < _AT_ONCE_SECONDS else f"in {span(ahead)}"


def why(forecast: PodForecast) -> str:
    """Return why a pod leaves or stays."""
    if forecast.orphaned:
        return _ORPHANED
    decision = forecast.decision
    if isinstance(decision, Evict):
        held = f"; its owner holds it {span(decision.held_seconds)} longer" if decision.held_seconds else ""
        return because(decision.deciding) + held
    if decision.reason is StayReason.TOLERATED:
        return str(decision.reason.value) + "".join(_beside(verdict) for verdict in decision.verdicts)
    return str(decision.reason.value)


def because(verdict: TaintVerdict) -> str:
    """Return the deciding taint, the toleration that counts, and a later one that differs."""
    return tolerated(verdict.taint, verdict.toleration, verdict.by_default, verdict.ceiling) + _beside(verdict)


def _beside(verdict: TaintVerdict) -> str:
    if verdict.overruled is None:
        return ""
    return f"; [{verdict.overruled}] comes later: only the first toleration that matches counts"


def held_by(pod: PlannedPod) -> str:
    """Return what blocks the eviction of a pod; "" if nothing does."""
    if pod.moves_away:
        return BlockReason.EVACUATION.text
    if pod.server_allows is False:
        return pod.server_answer
    if not pod.blocked or pod.verdict is None:
        return ""
    return f"{pod.verdict.value} ({', '.join(str(budget) for budget in pod.budgets)})"


def paused(pod: PlannedPod) -> str:
    """Return which rule pauses a pod; "" if none does."""
    return f"paused by rule {pod.paused_by}" if pod.paused_by else ""


def in_order(order: PlannedOrder, plan: Plan) -> str:
    """Return for whom a pod waits, and when it leaves then."""
    others = f" and {order.others} more" if order.others else ""
    until = f"until {moment(order.until, plan.now)} at most"
    at_once = "" if order.leaves_at is None else f"until {moment(order.leaves_at, plan.now)} if that ends at once, and "
    return f"waits for {order.ref}{others} of an earlier tier: {at_once}{until}"


# The summary


def summary(plan: Plan) -> str:
    """Return in one line how many pods leave and when, what holds others, and which consequences that has."""
    return "; ".join(headlines(plan))


def headlines(plan: Plan) -> list[str]:
    """Return the summary in one or two lines: what the changes do, and what happens with or without them."""
    pending = [pod for pod in plan.leaving if not pod.by_change]
    if not plan.what_if.empty and (pending or any(pod.by_podgc for pod in plan.pods)):
        lines = [_change_alone(plan), *filter(None, [_pending(plan, pending)])]
    else:
        lines = [_outlook(plan)]
    lines[0] += _only_if_off(plan) + _unknown(plan) + _unread(plan)
    return lines


def _only_if_off(plan: Plan) -> str:
    """Return the condition of changes that let PodGC end pods without their kubelets: others take their places."""
    off = sorted({pod.facts.pod.node_name or "" for pod in plan.pods if pod.by_change} & plan.taken_out)
    if not off:
        return ""
    machines = f"the machine of {off[0]} is" if len(off) == 1 else f"the machines of {len(off)} nodes are"
    return f"; only if {machines} off"


def _outlook(plan: Plan) -> str:
    would = "will" if plan.what_if.empty else "would"
    if not any(node.matters for node in plan.nodes.values()):
        effects = " or ".join(plan.harmless_effects)
        why = f"a taint with the effect {effects} evicts nobody" if effects else f"{_of_nodes(plan)} NoExecute taint"
        return "; ".join([f"no pod {would} leave: {why}", *_consequences(plan, plan.pods, plan.budgets)])
    return "; ".join([_at(plan) + _leave(plan, plan.leaving), *_consequences(plan, plan.pods, plan.budgets)])


def _at(plan: Plan) -> str:
    later = plan.what_if.at - plan.now.at
    return f"at {moment(plan.what_if.at, plan.now)} (in {span(later)}): " if later >= _AT_ONCE_SECONDS else ""


def _leave(plan: Plan, pods: Sequence[PlannedPod]) -> str:
    """Return how many of all pods leave, and when; then the same of those that are held."""
    would = "will" if plan.what_if.empty else "would"
    scope = [node for node in plan.nodes.values() if node.matters]
    total = f"{many(sum(node.tally.total for node in scope), 'pod')} on {many(len(scope), 'node')}"
    free, held = [pod for pod in pods if not pod.holders], [pod for pod in pods if pod.holders]
    head = f"{len(free)} of {total} {would} leave{' now' if held and not free and not _at(plan) else ''}"
    when = _when(free, plan)
    head += f": {when}" if when else ""
    return f"{head} ({_held(held)}); {len(held)} {_later(plan, held)}" if held else head


def _change_alone(plan: Plan) -> str:
    """Return what happens because of the changes: ``the change frees data/db-0 and evicts nothing more``."""
    changed = [pod for pod in plan.pods if pod.by_change]
    freed, orphans = ([pod for pod in changed if pod.by_podgc == word] for word in ("freed", "orphaned"))
    kept = [pod for pod in plan.pods if isinstance(pod.forecast.unchanged, Evict) and pod.leaves_at is None]
    does = [
        f"{verb} {_some(pods, noun)}"
        for verb, pods, noun in (
            ("frees", freed, "Terminating pod"),
            ("orphans", orphans, "pod"),
            ("keeps", [pod for pod in kept if not pod.by_podgc], "pod"),
        )
        if pods
    ]
    leaving = [pod for pod in plan.leaving if pod.by_change]
    if not leaving:
        does.append("evicts nothing more" if plan.leaving else "evicts no pod")
    said = [f"the change {and_list(does)}"] if does else []
    said += [f"because of {'it' if does else 'the change'} {_leave(plan, leaving)}"] if leaving else []
    budgets = [each for each in plan.budgets if each.by_change]
    return _at(plan) + "; ".join([*said, *_consequences(plan, changed, budgets)])


def _some(pods: Sequence[PlannedPod], noun: str) -> str:
    if len(pods) > _MAX_NAMES:
        return many(len(pods), noun)
    return and_list([str(pod.ref) for pod in pods])


def _pending(plan: Plan, pods: Sequence[PlannedPod]) -> str:
    """Return what happens with or without the changes; "" if nothing does. Its consequences are not theirs."""
    free, held = [pod for pod in pods if not pod.holders], [pod for pod in pods if pod.holders]
    said = [f"{many(len(free), 'pod')} would leave: {_when(free, plan)}"] if free else []
    said += [f"{_held(held, are=True)}, and {_later(plan, held)}"] if held else []
    freed = sum(pod.freed_anyway for pod in plan.pods)
    said += [f"{many(freed, 'Terminating pod')} would be force-deleted by PodGC"] if freed else []
    return f"with or without the change, {'; '.join(said)}" if said else ""


def _held(held: Sequence[PlannedPod], *, are: bool = False) -> str:
    """Return how many pods are held by what: ``31 blocked by the circuit breaker``; ``are``: as a clause."""
    groups = Counter(tuple(holder.noun for holder in pod.holders) for pod in held).most_common()
    said = [(count, f"by {and_list(nouns)}") for nouns, count in groups[:_MAX_HOLDERS]]
    left = sum(count for _, count in groups[_MAX_HOLDERS:])
    said += [(left, "otherwise")] if left else []
    return ", ".join(f"{count} {'' if not are else 'is ' if count == 1 else 'are '}blocked {by}" for count, by in said)


def _later(plan: Plan, held: Sequence[PlannedPod]) -> str:
    """Return when the pods leave that are held: ``will leave when it is reset``."""
    would = "will" if plan.what_if.empty else "would"
    ends = {holder.ends for pod in held for holder in pod.holders}
    once = len(ends) == 1 and len({holder.reason for pod in held for holder in pod.holders}) == 1
    when = _when(held, plan)
    timing = f": {when}" if ", " in when else ""
    return f"{would} leave when {ends.pop() if once else 'all of that ends'}{timing}"


def _when(pods: Iterable[PlannedPod], plan: Plan) -> str:
    at = plan.what_if.at
    instants = [pod.shown_at for pod in pods if pod.shown_at is not None]
    before = [instant for instant in instants if plan.now.at < at and instant < at]
    once = [instant for instant in instants if instant not in before and instant < at + _AT_ONCE_SECONDS]
    rest = [instant for instant in instants if instant >= at + _AT_ONCE_SECONDS]
    parts = [f"{len(before)} before that"] if before else []
    parts += [f"{len(once)} at once"] if once else []
    parts += [f"{len(rest)} within {span(max(rest) - at)}"] if rest else []
    return ", ".join(parts)


def _consequences(plan: Plan, pods: Iterable[PlannedPod], budgets: Sequence[PlannedBudget]) -> list[str]:
    """Return what the end of these pods does to budgets and workloads."""
    pods, would = list(pods), "will" if plan.what_if.empty else "would"
    found = []
    violated = sum(each.violation is not None for each in budgets)
    if violated:
        found.append(f"{many(violated, 'budget')} {would} be violated")
    blocked = sum(pod.deleted_at is not None for pod in pods)
    if blocked:
        blocking = sum(bool(each.blocked) for each in budgets)
        by = f" by {many(blocking, 'budget')}" if blocking else ""
        found.append(f"{many(blocked, 'pod')} {would} be blocked{by} for a time")
    freed = 0 if not plan.what_if.empty else len(plan.freed)
    if freed:
        found.append(f"{many(freed, 'Terminating pod')} {would} be force-deleted by PodGC")
    bare = sum(pod.lost for pod in pods)
    if bare:
        found.append(f"{many(bare, 'bare pod')} gone for good")
    for_ever = sum(pod.recreated_for_ever for pod in pods)
    if for_ever:
        found.append(f"{many(for_ever, 'DaemonSet pod')} evicted and recreated again and again")
    return found


def _of_nodes(plan: Plan) -> str:
    count = len(plan.nodes)
    return {0: "there is no node with a", 1: "the one node has no"}.get(count, f"none of {count} nodes has a")


def _unknown(plan: Plan) -> str:
    count = plan.unknown_nodes.total()
    return f"; {many(count, 'pod')} left out: the input lacks their nodes" if count else ""


def _unread(plan: Plan) -> str:
    count = plan.inventory.unread
    return "" if not count else f"; INCOMPLETE: {many(count, 'part')} of the input could not be read"


def and_list(words: Sequence[str]) -> str:
    """Return words as a list: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def skipped_kinds(inventory: Inventory) -> str:
    """Return how many objects of which kinds were skipped; "" if none was."""
    kinds = inventory.skipped.most_common(_MAX_KINDS)
    rest = inventory.skipped.total() - sum(count for _, count in kinds)
    return ", ".join([f"{count} {kind}" for kind, count in kinds] + ([f"{rest} others"] if rest else []))


def _about_nodes(plan: Plan) -> Iterator[str]:
    if any(node.matters for node in plan.nodes.values()):  # Otherwise the summary says it.
        yield from (f"a taint with the effect {effect} evicts nobody" for effect in plan.harmless_effects)
    shutting_down = [name for name, facts in plan.inventory.nodes.items() if facts.node.is_shutting_down]
    named = {
        "the input lacks these nodes, to which pods are bound": sorted(plan.unknown_nodes),
        "these nodes shut down gracefully, and their kubelets end the pods, too": sorted(shutting_down),
    }
    for what, names in named.items():
        if names:
            yield f"{what}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"


def notes(plan: Plan, pods: Sequence[PlannedPod] | None = None) -> list[str]:
    """Return what else readers of this plan should know, one sentence each; ``pods``: those that they are shown, None:
    all.
    """
    leaving = [pod for pod in (plan.pods if pods is None else pods) if pod.leaves_at is not None]
    found = list(plan.notes)
    found += _about_nodes(plan)
    if skipped := skipped_kinds(plan.inventory):
        found.append(f"skipped objects of other kinds: {skipped}")
    if plan.inventory.repeated:
        found.append(f"{many(plan.inventory.repeated, 'object')} given more than once: the last one counts")
    if plan.inventory.complained:
        found.append(f"{many(plan.inventory.complained, 'object')} could be read only in part (see stderr)")
    if any(each.before.counted for each in plan.budgets):
        found.append("budgets without a current status are counted from the pods in the input")
    if not plan.inventory.budgets_known:
        found.append("budgets are not known: the plan is made without them")
    if before := plugins_before_others(plan.pods):
        plugin, later = before[0]
        more = f", and {many(len(before) - 1, 'more pod')} like it" if len(before) > 1 else ""
        wait = "--order=tiers lets them leave last" if not plan.ordered else "they stay, or leave after --order-wait"
        found.append(
            f"critical DaemonSets' pods (storage and device plugins among them) leave before pods of their nodes that"
            f" stay or leave later, and may then not end: {plugin.ref} before {many(later, 'pod')} of"
            f" {plugin.facts.pod.node_name}{more}; {wait}"
        )
    asking = sum(pod.asks_to_be_held for pod in leaving)
    if asking:
        found.append(f"{many(asking, 'pod')} with a longer hold than is granted (annotation {HOLD_ANNOTATION})")
    if any(pod.blocked and pod.server_allows is not False for pod in leaving):
        found.append("of several pods that are due together, a budget may allow other ones than shown here")
    return [*found, *_on_time(plan, leaving), *_on_lost_nodes(leaving)]


def _on_time(plan: Plan, leaving: Sequence[PlannedPod]) -> Iterator[str]:
    """Yield what the plan does not know of when these pods leave."""
    if any(pod.deleted_at is not None and pod.handling.mode is _PATIENT for pod in leaving if pod.handling):
        yield "a blocked pod is deleted once budgets have refused it for the evict timeout"
        if any(pod.deleted_at is not None and (pod.leaves_at or 0.0) < plan.now.at for pod in leaving):
            yield "how long budgets have refused overdue pods until now is not known: these may be deleted sooner"
    if moving := sum(pod.moves_away for pod in leaving):
        yield (
            f"KubeVirt moves the virtual machines in {many(moving, 'pod')} away and then ends the pods; refusals do not"
            " count before --background-timeout has passed, and may be asked for up to 45 s later"
        )
    if plan.limited and leaving:
        yield (
            "limits count as unused until now; of pods that are due together they may let other ones go first, and with"
            " an order those that wait for them"
        )


def _on_lost_nodes(leaving: Sequence[PlannedPod]) -> list[str]:
    """Return what budgets do to pods that leave because their nodes are lost."""
    asked = [pod for pod in leaving if pod.asks and pod.budgets and _leaves_lost_node(pod)]
    if any(pod.forecast.eviction.ignores_budgets_on_lost_nodes for pod in asked):
        later = "once the node's condition Ready is Unknown, or has been False for 5 minutes, they are deleted"
        return [f"budgets are asked for {many(len(asked), 'pod')} of nodes that do not count as lost now: {later}"]
    kept = sum(pod.handling is not None and pod.handling.mode is EvictionMode.EVICT for pod in asked)
    if not kept:
        return []
    return [
        f"a budget that has too few healthy pods keeps {many(kept, 'pod')} of lost nodes indefinitely;"
        " --budgets-on-lost-nodes=ignore deletes such pods"
    ]


def _leaves_lost_node(pod: PlannedPod) -> bool:
    decision = pod.forecast.decision
    return isinstance(decision, Evict) and decision.deciding.taint.key in LIFECYCLE_KEYS
