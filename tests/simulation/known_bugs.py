"""Known mistakes, put into the controller one at a time: explorations that cannot find them prove nothing.

Each mistake patches the smallest piece of code that decides. Mistakes called W resemble upstream's, with the numbers of
sections 3 and 6 of the contract. The others are about holding evictions back, about wrong assumptions on the
environment, and about adoption.
"""

import dataclasses
from collections.abc import Callable

import pytest
from tests.around import around
from tests.simulation import adoption_bugs as adoption
from tests.simulation import combined_bugs as combined
from tests.simulation import holding_bugs as holding
from tests.simulation import waiting_bugs as waiting
from tests.simulation import world_bugs as world

from taint_eviction.core.attempts import Attempts
from taint_eviction.core.decision import Evict
from taint_eviction.core.events import CalledOff, Event, Eviction, Failed, Work, WorkOutcome
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.instants import Moment, Sighting, TimeSource
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.pods import UNDECIDED, Deleted, KnownPods, PodRecord
from taint_eviction.core.reconciler import Reconciler
from taint_eviction.core.timed_queue import Entry, TimedWorkerQueue
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.workers import Worker
from taint_eviction_lab.simulation.pod_writes import PodWrites

Patch = Callable[[pytest.MonkeyPatch], None]


class _KeepsTheKey(TimedWorkerQueue):
    """A queue in which a key stays after its work is done, "to prevent subsequent additions"."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: set[NamespacedName] = set()

    def schedule(self, ref: PodRef, fire_at: float) -> None:
        if ref.key not in self._kept:
            super().schedule(ref, fire_at)

    def pop_due(self, now: float) -> Entry | None:
        entry = super().pop_due(now)
        if entry is not None:
            self._kept.add(entry.ref.key)
        return entry


def stale_key(patch: pytest.MonkeyPatch) -> None:
    """W1: the queue never forgets a key, as upstream's before 1.33, so a recreated pod is never evicted."""
    patch.setattr("taint_eviction.core.eviction_queue.TimedWorkerQueue", _KeepsTheKey)


def deletes_by_name(patch: pytest.MonkeyPatch) -> None:
    """W2: PATCH and DELETE carry no UID, so they hit the pod that has the name when they arrive."""
    delete, mark, pod_of = PodWrites.delete, PodWrites.mark, PodWrites.pod_of

    def bearer(self: PodWrites, ref: PodRef) -> PodRef:
        body = self._cluster.pod(ref.key)
        return ref if body is None else PodRef(ref.key, body["metadata"]["uid"])

    patch.setattr(PodWrites, "delete", lambda self, ref, *args: delete(self, bearer(self, ref), *args))
    patch.setattr(PodWrites, "mark", lambda self, ref, *args: mark(self, bearer(self, ref), *args))
    patch.setattr(PodWrites, "pod_of", lambda self, ref: pod_of(self, bearer(self, ref)))


def late_worker_settles_its_successor(patch: pytest.MonkeyPatch) -> None:
    """W3: the end of an eviction is recorded by name, although the name may belong to another UID by then."""

    @around(patch, Attempts, "_done")
    def settle_by_name(
        done: Callable[..., list[Event]], self: Attempts, record: PodRecord, work: Work, now: Moment
    ) -> list[Event]:
        effects = done(self, record, work, now)
        known = self._pods.known.get(work.ref.key)
        if known is not None and known.ref.uid != work.ref.uid and not known.in_flight:
            self._queue.cancel(known)
            known.state, known.decision = Deleted(now.at), None
        return effects


def changed_tolerations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """W5: a pod's tolerations count as they were when its timer was armed."""
    upsert = KnownPods.upsert

    def upsert_as_first_seen(self: KnownPods, fact: PodSeen, now: Moment) -> tuple[PodRecord, list[PodRecord]] | None:
        before = self.find(fact.pod.ref)
        if before is not None and before.bound is not None:
            pod = dataclasses.replace(fact.pod, tolerations=before.pod.tolerations)
            fact = dataclasses.replace(fact, pod=pod)
        return upsert(self, fact, now)

    patch.setattr(KnownPods, "upsert", upsert_as_first_seen)


def restart_begins_the_countdown_anew(patch: pytest.MonkeyPatch) -> None:
    """W7: every process counts from its own first sighting of taints and bindings."""

    def sight_now(now: Moment, object_time: float | None, *_: object) -> Sighting:
        return Sighting(now.at, TimeSource.FIRST_SIGHT, object_time)

    patch.setattr("taint_eviction.core.known_nodes.sight", sight_now)
    patch.setattr("taint_eviction.core.pods.sight", sight_now)


def gives_up_after_five_tries(patch: pytest.MonkeyPatch) -> None:
    """W8: the controller gives up an eviction after 5 tries, 10 ms apart."""
    carry_out = Evictor.carry_out
    given_up: set[str] = set()

    async def five_times(self: Evictor, work: Work, worker: Worker) -> WorkOutcome:
        if isinstance(work, Eviction) and work.ref.uid in given_up:
            return CalledOff()
        outcome = await carry_out(self, work, worker)
        if isinstance(outcome, Failed) and isinstance(work, Eviction):
            if work.tries >= 4:
                given_up.add(work.ref.uid)
            return Failed(outcome.message, self._live.clock.now().at + 0.01)
        return outcome

    take_due = Attempts.take_due

    def unless_given_up(self: Attempts, now: Moment, max_works: int, max_retries: int) -> list[Work]:
        for record in self._pods.known.values():
            if record.ref.uid in given_up:
                self._queue.cancel(record)
        return take_due(self, now, max_works, max_retries)

    patch.setattr(Evictor, "carry_out", five_times)
    patch.setattr(Attempts, "take_due", unless_given_up)


def trusts_its_watch(patch: pytest.MonkeyPatch) -> None:
    """W11: the controller decides by the node as its watch delivered it, without a live read before the DELETE."""

    async def as_known(self: NodeReads, name: str, **_options: bool) -> float | None:
        return self._live.clock.now().at if name in self._nodes.known else None

    patch.setattr(NodeReads, "read", as_known)


def deletes_the_terminating_again(patch: pytest.MonkeyPatch) -> None:
    """W13: terminating pods are deleted again on every change."""
    reconcile = Reconciler.reconcile

    @around(patch, Reconciler, "_decide")
    def as_if_alive(decide: Callable[..., object], self: Reconciler, record: PodRecord) -> object:
        pod, record.pod = record.pod, dataclasses.replace(record.pod, terminating=False)
        try:
            return decide(self, record)
        finally:
            record.pod = pod

    def forgetting(self: Reconciler, record: PodRecord, now: Moment) -> list[Event]:
        if record.deleted and record.pod.terminating and isinstance(self.decide(record, now), Evict):
            record.state = UNDECIDED
        return reconcile(self, record, now)

    patch.setattr(Reconciler, "reconcile", forgetting)


KNOWN_BUGS: dict[str, Patch] = {
    "W1": stale_key,
    "W2": deletes_by_name,
    "W3": late_worker_settles_its_successor,
    "W5": changed_tolerations_are_ignored,
    "W7": restart_begins_the_countdown_anew,
    "W8": gives_up_after_five_tries,
    "W11": trusts_its_watch,
    "W13": deletes_the_terminating_again,
    "W23": holding.out_of_service_waits,
    "out-of-service-passes": holding.out_of_service_passes_its_breaker,
    "out-of-service-ready": holding.out_of_service_passes_when_ready,
    "W24": holding.first_taints_rule_shields,
    "W22": world.outages_start_again,
    "ready-in-between": world.ready_in_between_goes_on,
    "no-witness": world.outages_need_no_witness,
    "limit-at-begin": holding.limits_count_when_begun,
    "token-kept": holding.tokens_are_kept,
    "pause-when-taken": holding.pauses_are_asked_when_taken,
    "breaker-first-sight": holding.breaker_counts_by_first_sight,
    "breaker-last-write": holding.breaker_takes_last_writes_for_dates,
    "breaker-listed": holding.breaker_judges_what_is_listed,
    "breaker-taints": holding.breaker_counts_lost_nodes_by_taints,
    "latch-lost": holding.latch_is_lost_at_restart,
    "reset-ahead": holding.dated_ahead_counts_as_dated,
    "no-settling": holding.surges_do_not_settle,
    "budget-hammered": holding.budgets_are_hammered,
    "no-timeout": holding.budgets_hold_no_longer_than_deadlines,
    "patience-from-deadline": holding.patience_counts_from_the_deadline,
    "patience-uninterrupted": holding.holds_interrupt_nothing,
    "unreadable-ignored": holding.unreadable_values_hold_nothing,
    "unreadable-stays": holding.unreadable_values_stay,
    "older-latches": holding.older_latches_are_old_news,
    "latches-need-a-breaker": holding.latches_need_a_breaker,
    "pauses-do-not-end": holding.pauses_do_not_end,
    "pauses-removed-by-scope": holding.ended_pauses_are_removed_by_scope,
    "labels-read-once": holding.labels_of_nodes_are_read_once,
    "rules-select-all-nodes": holding.rules_select_all_nodes,
    "pauses-by-first-labels": holding.pauses_go_by_first_labels,
    "pauses-know-no-later-nodes": holding.pauses_know_no_later_nodes,
    "unreadable-selectors-ignored": holding.unreadable_selectors_are_ignored,
    "notin-needs-the-label": holding.notin_needs_the_label,
    "highest-vote": world.highest_vote_wins,
    "dates-believed": world.dates_are_believed,
    "largest-date": world.largest_date_wins,
    "dated-beats-seen": world.dated_beats_seen,
    "answers-move-starts": world.answers_move_starts,
    "answers-overtake": world.answers_overtake_the_watch,
    "answers-wait-not": world.answers_wait_for_no_watch,
    "absent-taints-wait": world.absent_taints_wait_for_the_watch,
    "reads-dated-late": world.reads_are_dated_when_answered,
    "workers-not-lent": world.workers_are_not_lent,
    "lease-hasty": world.lease_has_no_time_for_slow_calls,
    "connects-late": world.connections_stand_after_reads,
    "control-state-hasty": world.control_state_is_read_within_the_interval,
    "marked-once": world.conditions_are_tried_once,
    "standbys-report": world.standbys_report,
    "webhooks-for-ever": waiting.webhooks_refuse_for_ever,
    "answers-end-patience": waiting.other_answers_end_patience,
    "stalls-end-patience": waiting.stalls_end_patience,
    "evacuations-refuse": waiting.evacuations_are_refusals,
    "evacuations-never-end": waiting.evacuations_never_end,
    "lists-keep-turns": waiting.lists_keep_their_turns,
    "hanging-retries-count": waiting.hanging_retries_count,
    "take-backs-block": waiting.take_backs_block,
    "owners-hold-what-is-off": waiting.owners_hold_what_is_off,
    "dry-runs-repeat": waiting.dry_runs_repeat,
    "order-ignored": waiting.order_ignored,
    "order-ignored-after-a-restart": waiting.order_ignored_after_a_restart,
    "order-for-ever": waiting.order_waits_for_ever,
    "ceilings-ignored": waiting.ceilings_ignored,
    "ceilings-end-everything": waiting.ceilings_end_everything,
    "ceilings-never-change": waiting.ceilings_as_at_the_start,
    "lost-respected": waiting.lost_nodes_have_budgets,
    "unready-is-lost": waiting.unready_nodes_are_lost,
    "lost-stays-lost": waiting.lost_nodes_stay_lost,
    "order-passes-the-blocked": combined.order_passes_what_is_blocked,
    "ceilings-on-all-nodes": combined.ceilings_on_all_nodes,
    "pauses-end-evacuations": combined.pauses_end_evacuations,
    "lost-nodes-pass-the-breaker": combined.lost_nodes_pass_the_breaker,
    "never-given-back": adoption.marks_are_never_given_back,
    "given-back-by-hints": adoption.given_back_by_hints_alone,
    "adopted-by-name": adoption.adopted_by_name,
    "noted-by-place": adoption.notes_name_places,
    "notes-ignored": adoption.notes_do_not_count,
    "adopted-when-stopped": adoption.orders_do_not_stop_adoption,
    "standbys-adopt": adoption.adopted_without_leading,
    "adopted-late": adoption.adopted_by_our_deadline,
    "finished-adopted": adoption.the_finished_are_adopted,
    "starts-see-all": adoption.a_start_sees_every_beginning,
    "standbys-never-forget": adoption.standbys_never_forget,
}

_ADOPTION = (
    "never-given-back",
    "given-back-by-hints",
    "adopted-by-name",
    "noted-by-place",
    "notes-ignored",
    "adopted-when-stopped",
    "standbys-adopt",
    "adopted-late",
    "finished-adopted",
    "starts-see-all",
    "standbys-never-forget",
)
_REFUSALS = ("webhooks-for-ever", "answers-end-patience", "stalls-end-patience", "evacuations-refuse")
_BREAKER = (
    "breaker-first-sight",
    "breaker-last-write",
    "breaker-listed",
    "breaker-taints",
    "reset-ahead",
    "no-settling",
)
_CEILINGS = ("ceilings-ignored", "ceilings-end-everything", "ceilings-never-change")
_LOST = ("lost-respected", "unready-is-lost", "lost-stays-lost")
_COMBINED = (
    "order-passes-the-blocked",
    "ceilings-on-all-nodes",
    "pauses-end-evacuations",
    "lost-nodes-pass-the-breaker",
)
_OFF = ("W23", "out-of-service-passes", "out-of-service-ready", "owners-hold-what-is-off")
# What the document of a seed must contain, as text, so that the mistake can show in it.
NEEDED: dict[str, str] = {
    **dict.fromkeys(_ADOPTION, "'adopt': True"),
    **dict.fromkeys((*_REFUSALS, "evacuations-never-end"), "'namespace': 'refused'"),
    **dict.fromkeys(_BREAKER, "'breaker': {"),
    **dict.fromkeys(_LOST, "'budgetsOnLostNodes': 'ignore'"),
    **dict.fromkeys(_OFF, "out-of-service"),
    **dict.fromkeys(_COMBINED, "all at once"),
    **dict.fromkeys(_CEILINGS, "'maxTolerationSeconds'"),
    "dry-runs-repeat": "'dryRun': True",
    "hanging-retries-count": "strange-1",
    "latches-need-a-breaker": "latched-1",
    "lists-keep-turns": "unlisted-1",
    "older-latches": "latched-1",
    "pauses-removed-by-scope": "shared-1",
    "take-backs-block": "back-1",
}
