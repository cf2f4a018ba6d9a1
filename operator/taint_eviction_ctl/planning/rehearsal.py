"""When the pods of a plan leave: the controller's own core carries the plan out, on paper.

The core is told what the cluster is now and, at the instant of the changes, what it would be. Its instants follow one
another without waiting, and it hands out the work that it hands out in a controller: order, limits, budgets, patience,
pauses and breaker decide when. The API server's part is arithmetic: a pod is gone as soon as it is deleted, and the
eviction API allows what budgets allow. What the API server itself has answered to a dry-run eviction counts more.

Not considered: how long calls and grace periods take, pods that do not end, and what others write meanwhile.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import ControlState, Latch
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.events import Block, BlockReason, Done, Eviction, Failed, Work, WorkOutcome
from taint_eviction.core.facts import Fact, NodeSeen, NodesSwept, PodGone, PodSeen, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.leaving_order import TierWait
from taint_eviction.core.objects import Node, PodRef
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction_ctl.planning.budgets import covered
from taint_eviction_ctl.planning.disruption_budgets import EvictionApi, EvictionVerdict
from taint_eviction_ctl.planning.forecast import WhatIf, pod_after, told_of_nodes
from taint_eviction_ctl.planning.planned_pod import PlannedPod

# As many workers as there may be: calls take no time.
_MANY = 1_000_000


class Conditions(NamedTuple):
    """What decides on evictions: the settings, and what people have ordered."""

    policy: DecisionPolicy
    eviction: EvictionPolicy
    breaker: BreakerPolicy = BreakerPolicy()
    control_state: ControlState = ControlState()


class Course(NamedTuple):
    """What happens to one pod. ``leaves_at`` None: it does not leave. ``verdict``: the first answer of the eviction
    API, None: it is not asked. ``wait``: for whom the pod waits once it is due, None: for nobody.
    """

    leaves_at: float | None = None
    verdict: EvictionVerdict | None = None
    wait: TierWait | None = None


class Rehearsal:
    """The core, and what has come of it; ``run`` once."""

    def __init__(self, pods: Iterable[PlannedPod], api: EvictionApi, conditions: Conditions, now: Moment) -> None:
        self._pods = {pod.ref: pod for pod in pods}
        self._api, self._conditions = api, conditions
        self._start = self._now = now
        self._courses: dict[PodRef, Course] = {}
        self._moving_until: dict[PodRef, float] = {}
        policy, eviction, breaker, control_state = conditions
        self._core = Controller(policy, eviction_policy=eviction, breaker=breaker, control_state=control_state)
        ends = (pause.until_epoch for pause in control_state.pauses().values())
        self._pause_ends = sorted({now.instant_of(epoch) for epoch in ends if epoch is not None})

    @property
    def opened(self) -> Latch | None:
        """The latch of the breaker that opens because of what happens here; None: it does not open."""
        return None if self._conditions.control_state.latch is not None else self._core.breaker.latch

    def run(self, nodes: Iterable[Node], what_if: WhatIf) -> dict[PodRef, Course]:
        """Let it happen; return what happens to each pod that leaves, waits or is refused."""
        self._core.order(self._conditions.control_state, self._now)
        there = tuple(nodes)
        self._tell(*(NodeSeen(node) for node in there))
        self._tell(NodesSwept(frozenset(node.uid for node in there), self._now.at, None))
        watched = self._core.watched_nodes()
        self._tell_of_pods(watched, None)
        self._play(until=what_if.at)
        self._go_to(what_if.at)
        self._tell(*told_of_nodes(what_if, self._core.nodes, self._now))
        self._tell_of_pods(self._core.watched_nodes() - watched, what_if)
        edited = (ref for ref in what_if.tolerations or {} if ref in self._pods and not self._is_gone(ref))
        self._tell(*(PodSeen(pod_after(self._pods[ref].facts.pod, what_if)) for ref in edited))
        self._play(until=math.inf)
        return self._courses

    def _is_gone(self, ref: PodRef) -> bool:
        return self._course(ref).leaves_at is not None

    def _course(self, ref: PodRef) -> Course:
        return self._courses.get(ref, Course())

    # What the core is told

    def _tell(self, *facts: Fact) -> None:
        for fact in facts:
            self._core.observe(fact, self._now)

    def _tell_of_pods(self, names: Iterable[str], what_if: WhatIf | None) -> None:
        """Tell of the pods of nodes that are tainted from now on."""
        here: dict[str, set[str]] = {name: set() for name in names}
        for ref, pod in self._pods.items():
            uids = here.get(pod.facts.pod.node_name or "")
            if uids is not None and not self._is_gone(ref):
                uids.add(ref.uid)
                self._tell(PodSeen(pod.facts.pod if what_if is None else pod_after(pod.facts.pod, what_if)))
        self._tell(*(PodsSwept(name, frozenset(uids), self._now.at, None) for name, uids in here.items()))

    def _go_to(self, at: float) -> None:
        self._now = Moment(at, self._start.epoch_of(at))

    def _play(self, until: float) -> None:
        """Carry out what is due before an instant."""
        attempts, to_be_due = self._core.attempts, self._to_be_due()
        while True:
            self._core.evaluate(self._now)
            while works := attempts.take_due(self._now, _MANY, _MANY):
                for work in works:
                    attempts.finish(work, self._carry_out(work), self._now)
                    if self._is_gone(work.ref):
                        self._tell(PodGone(work.ref))
                self._core.evaluate(self._now)
            self._note_waits(to_be_due)
            instants = [attempts.next_at(self._now), *self._pause_ends[:1]]
            at = min((at for at in instants if at is not None), default=math.inf)
            if at == math.inf or at >= until:
                return
            self._go_to(max(at, self._now.at))
            if self._pause_ends and self._pause_ends[0] <= self._now.at:
                del self._pause_ends[0]
                self._core.order(self._conditions.control_state, self._now)

    def _to_be_due(self) -> list[tuple[float, PodRef]]:
        """Return the pods that may wait for others once they are due, the first one last."""
        due = ((pod.leaves_at, ref) for ref, pod in self._pods.items() if pod.leaves_at is not None)
        return sorted(due, reverse=True) if self._conditions.eviction.orders else []

    def _note_waits(self, to_be_due: list[tuple[float, PodRef]]) -> None:
        """Note for whom those wait that are due by now, and still there."""
        while to_be_due and to_be_due[-1][0] <= self._now.at:
            _, ref = to_be_due.pop()
            explained = None if self._is_gone(ref) else self._core.status.explain(ref.key, self._now)
            if explained is not None and explained.pending is not None and explained.pending.tier_wait is not None:
                self._courses[ref] = self._course(ref)._replace(wait=explained.pending.tier_wait)

    # What the API server would answer

    def _carry_out(self, work: Work) -> WorkOutcome:
        if not isinstance(work, Eviction):
            return Done()
        if (unwanted := self._core.attempts.recheck(work, self._now)) is not None:
            return unwanted
        self._core.attempts.will_delete(work.ref, self._now)
        pod = self._pods[work.ref]
        if not work.by_eviction_api:
            self._api.delete(covered(pod.facts), pod.budgets)
        elif (refusal := self._refusal(pod)) is not None:
            return refusal
        self._courses[work.ref] = self._course(work.ref)._replace(leaves_at=self._now.at)
        return Done()

    def _refusal(self, pod: PlannedPod) -> Failed | None:
        """Return how the eviction API refuses a pod; None: it does not. Later answers are the same."""
        if pod.server_allows is False:
            seconds = self._conditions.eviction.background_timeout_seconds
            moves_until = self._moving_until.setdefault(pod.ref, self._now.at + seconds) if pod.moves_away else 0.0
            again_at = moves_until if self._now.at < moves_until else math.inf
            return Failed(pod.server_answer, again_at, denied=True, evacuates=pod.moves_away)
        verdict = self._api.evict(covered(pod.facts), pod.budgets)
        if (course := self._course(pod.ref)).verdict is None:
            self._courses[pod.ref] = course._replace(verdict=verdict)
        if verdict is EvictionVerdict.ALLOWED:
            return None
        several = verdict is EvictionVerdict.SEVERAL_BUDGETS
        reason = BlockReason.SEVERAL_BUDGETS if several else BlockReason.BUDGET
        return Failed(verdict.value, math.inf, Block(reason, pod.budgets[0].key.name))
