"""Known mistakes about what evictions wait for: refusals of the eviction API, owners' holds, calls that hang; and about
dry runs. See ``known_bugs``.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.around import around

from taint_eviction.core import known_nodes
from taint_eviction.core.attempts import Attempts
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import Decision, TaintVerdict, decide, judge
from taint_eviction.core.events import Event, Eviction, Failed
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.leaving_order import Leaving, LeavingOrder
from taint_eviction.core.objects import MARK_SECONDS, Toleration
from taint_eviction.core.pods import UNDECIDED, Deleted, FailedAttempts, PodRecord
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.reconciler import Reconciler, decide_on
from taint_eviction.runtime.list_turns import ListTurns
from taint_eviction.runtime.workers import Workers

# An answer that comes this much later than planned was a stall.
_STALL_SECONDS = 2.0


def webhooks_refuse_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Only budgets refuse: a webhook that denies an eviction is a failure that never ends the patience."""
    patch.setattr(Failed, "refuses", property(lambda self: self.block is not None))


def other_answers_end_patience(patch: pytest.MonkeyPatch) -> None:
    """An answer to the eviction API that is no refusal starts the sum of the patience anew."""
    with_failure = FailedAttempts.with_failure

    def anew(self: FailedAttempts, work: Eviction, outcome: Failed, sent: bool, now: Moment) -> FailedAttempts:
        failures = with_failure(self, work, outcome, sent, now)
        return failures if outcome.refuses or not work.by_eviction_api else failures.without_refusals

    patch.setattr(FailedAttempts, "with_failure", anew)


def stalls_end_patience(patch: pytest.MonkeyPatch) -> None:
    """A span that is longer than planned starts the sum of the patience anew."""

    @around(patch, FailedAttempts, "_after_refusal")
    def anew(after: Callable[..., FailedAttempts], self: FailedAttempts, now: Moment) -> FailedAttempts:
        late = self.refused_at is not None and now.at - self.refused_at > self.planned_seconds + _STALL_SECONDS
        return dataclasses.replace(after(self, now), refused_seconds=0.0) if late else after(self, now)


def evacuations_are_refusals(patch: pytest.MonkeyPatch) -> None:
    """Refusals while a virtual machine moves away count as any other, and the eviction API is asked as often."""
    patch.setattr(Attempts, "_unless_evacuating", lambda _, record, work, outcome, now: outcome)


def evacuations_never_end(patch: pytest.MonkeyPatch) -> None:
    """Each refusal of a pod whose virtual machine moves away renews the time in which refusals do not count."""

    @around(patch, Attempts, "_unless_evacuating")
    def renewing(right: Callable[..., Failed], self: Attempts, record: PodRecord, *about: object) -> Failed:
        [*_, now] = about
        assert isinstance(now, Moment)
        if record.evacuating_since is not None:
            record.evacuating_since = now.at
        return right(self, record, *about)


def lists_keep_their_turns(patch: pytest.MonkeyPatch) -> None:
    """A list that hangs keeps its turn, and all lists wait for one another: first come, first served."""

    class Kept(Workers):
        def _lend(self) -> None:
            """Lend nothing."""

    turn = ListTurns.turn
    patch.setattr("taint_eviction.runtime.list_turns.Workers", Kept)
    patch.setattr("taint_eviction.runtime.list_turns._RESERVED_SHARE", 0.0)
    patch.setattr(ListTurns, "turn", lambda self, *, urgent: turn(self, urgent=False))


def hanging_retries_count(patch: pytest.MonkeyPatch) -> None:
    """Retries that hang count against the half of the workers that retries may have, though they have lent theirs."""

    def retrying(self: Workers) -> int:
        return sum(worker.is_retry for worker in (*self._busy, *self._waiting_long))

    patch.setattr(Workers, "retrying", property(retrying))


def take_backs_block(patch: pytest.MonkeyPatch) -> None:
    """While a pod's condition is being taken back, nothing is decided on the pod."""
    reconcile = Reconciler.reconcile

    def later(self: Reconciler, record: PodRecord, now: Moment) -> list[Event]:
        return [] if record.taking_back is not None else reconcile(self, record, now)

    patch.setattr(Reconciler, "reconcile", later)


def owners_hold_what_is_off(patch: pytest.MonkeyPatch) -> None:
    """The hold of a pod's owner counts on a node that is out of service, too."""

    def held(*about: Any, out_of_service: bool = False, **options: Any) -> Decision:
        return decide(*about, **options)

    patch.setattr("taint_eviction.core.reconciler.decide", held)


def dry_runs_repeat(patch: pytest.MonkeyPatch) -> None:
    """In a dry run, a later list that shows the pod makes its eviction due again."""

    @around(patch, Controller, "_pod_seen")
    def forget(seen: Callable[..., list[Event]], self: Controller, fact: PodSeen, now: Moment) -> list[Event]:
        effects = seen(self, fact, now)
        record = self.pods.find(fact.pod.ref)
        if record is not None and isinstance(record.state, Deleted) and (fact.asked_at or 0.0) > record.state.at + 5.0:
            record.state, record.reported_fire_at = UNDECIDED, None
            effects += self._reconciler.reconcile(record, now)
        return effects


def order_ignored(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an earlier tier, although that is ordered."""
    patch.setattr(LeavingOrder, "wait", lambda *_: None)


def order_ignored_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A process waits only for pods that it has seen become due itself, and not for those that end already."""
    note = LeavingOrder.note

    def note_wanted(self: LeavingOrder, leaving: Leaving, grace_seconds: float, now: float) -> None:
        if leaving.due_at == -math.inf and leaving.ref.key not in self._leaving:
            return
        note(self, leaving, grace_seconds, now)

    patch.setattr(LeavingOrder, "note", note_wanted)


def order_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A pod waits as long as there is a pod of an earlier tier."""
    patch.setattr("taint_eviction.core.leaving_order._MAX_GRACE_SECONDS", math.inf)
    patch.setattr("taint_eviction.core.leaving_order.PAST_GRACE_SECONDS", math.inf)
    patch.setattr("taint_eviction.core.reconciler.PAST_GRACE_SECONDS", math.inf)
    note = LeavingOrder.note
    patch.setattr(LeavingOrder, "note", lambda self, leaving, _, now: note(self, leaving, math.inf, now))


def ceilings_ignored(patch: pytest.MonkeyPatch) -> None:
    """No rule shortens a toleration."""
    patch.setattr(EvictionPolicy, "ceiling", lambda *_: None)


def ceilings_end_everything(patch: pytest.MonkeyPatch) -> None:
    """A rule shortens tolerations without seconds, too."""
    judged = judge

    def ended(tolerations: Sequence[Toleration], *about: Any) -> TaintVerdict:
        least = [dataclasses.replace(each, toleration_seconds=_seconds(each)) for each in tolerations]
        return judged(tuple(least) if about[-1] is not None else tolerations, *about)

    patch.setattr("taint_eviction.core.decision.judge", ended)


def _seconds(toleration: Toleration) -> int:
    seconds = toleration.toleration_seconds
    return 2**62 if seconds in (None, MARK_SECONDS) else seconds


def ceilings_as_at_the_start(patch: pytest.MonkeyPatch) -> None:
    """A change of the policy changes no ceiling: those with which a process began stay."""
    change = Controller.change_policy
    kept: list[EvictionPolicy] = []

    def keep(self: Controller, policy: EvictionPolicy, now: Moment) -> list[Event]:
        kept.append(self._reconciler.eviction_policy)
        return change(self, policy, now)

    def by_kept_ceilings(*about: Any) -> Decision:
        pod, bound, known, policy, of_node = about
        rules = kept[0].rules if kept else of_node.rules
        return decide_on(pod, bound, known, policy, dataclasses.replace(of_node, rules=rules))

    patch.setattr("taint_eviction.core.reconciler.decide_on", by_kept_ceilings)
    patch.setattr(Controller, "change_policy", keep)


def lost_nodes_have_budgets(patch: pytest.MonkeyPatch) -> None:
    """Budgets on lost nodes are respected, whatever the policy says."""
    patch.setattr("taint_eviction.core.known_nodes.lost_from", lambda _: math.inf)


def unready_nodes_are_lost(patch: pytest.MonkeyPatch) -> None:
    """A node counts as lost as soon as it says that it is not ready."""
    patch.setattr("taint_eviction.core.known_nodes._FALSE_SECONDS", 0.0)


def lost_nodes_stay_lost(patch: pytest.MonkeyPatch) -> None:
    """A node that was lost when its pod was due is taken for lost until the pod is gone."""
    lost_at = known_nodes.lost_from
    lost: set[str] = set()

    def as_before(known: KnownNode) -> float:
        now_lost = lost_at(known)
        if now_lost == -math.inf:
            lost.add(known.node.uid)
        return -math.inf if known.node.uid in lost else now_lost

    patch.setattr(known_nodes, "lost_from", as_before)
