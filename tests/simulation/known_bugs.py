"""Known mistakes, put into the controller one at a time: an exploration that misses them proves nothing.

Each is a patch of the smallest piece that decides it. Those called W are upstream's, in the spirit of what it does, by
the number that section 3 of the contract gives them; the others are what holding evictions back invites.
"""

import dataclasses
from collections.abc import Callable, Mapping

import pytest

from taint_eviction.core.agenda import Agenda
from taint_eviction.core.brakes import Brakes
from taint_eviction.core.breaker import Breaker, Wave
from taint_eviction.core.cluster import Cluster, KnownNode, KnownPod
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import Evict
from taint_eviction.core.dispatch import Dispatch
from taint_eviction.core.effects import CalledOff, Effect, Eviction, Failed, Outcome, Work
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.instants import Moment, Sighting, TimeSource
from taint_eviction.core.lanes import LaneKey
from taint_eviction.core.limits import Token, TokenBucket
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.orders import Orders
from taint_eviction.core.policy import EvictionPolicy, Handling
from taint_eviction.core.timed_queue import Entry, TimedWorkerQueue
from taint_eviction.runtime.evictor import Evictor, backoff_seconds
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.simulation.pod_writes import PodWrites

Patch = Callable[[pytest.MonkeyPatch], None]


class _KeepsTheKey(TimedWorkerQueue):
    """A key whose work was done stays, "to prevent subsequent additions"."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: set[NamespacedName] = set()

    def schedule(self, ref: PodRef, fire_at: float) -> Entry | None:
        return None if ref.key in self._kept else super().schedule(ref, fire_at)

    def pop_due(self, now: float) -> Entry | None:
        entry = super().pop_due(now)
        if entry is not None:
            self._kept.add(entry.ref.key)
        return entry


def stale_key(patch: pytest.MonkeyPatch) -> None:
    """W1: the queue never lets go of a key, so a recreated pod is never evicted."""
    patch.setattr("taint_eviction.core.agenda.TimedWorkerQueue", _KeepsTheKey)


def deletes_by_name(patch: pytest.MonkeyPatch) -> None:
    """W2: PATCH and DELETE carry no UID, so they hit whoever bears the name when they arrive."""
    delete, mark, pod_of = PodWrites.delete, PodWrites.mark, PodWrites.pod_of

    def bearer(self: PodWrites, ref: PodRef) -> PodRef:
        body = self._cluster.pods.get(ref.key)
        return ref if body is None else PodRef(ref.key, body["metadata"]["uid"])

    patch.setattr(PodWrites, "delete", lambda self, ref, *args: delete(self, bearer(self, ref), *args))
    patch.setattr(PodWrites, "mark", lambda self, ref, *args: mark(self, bearer(self, ref), *args))
    patch.setattr(PodWrites, "pod_of", lambda self, ref: pod_of(self, bearer(self, ref)))


def late_worker_settles_its_successor(patch: pytest.MonkeyPatch) -> None:
    """W3: work that ends is noted down by name, although the name is another UID's by then."""
    settle_done = Controller._settle_done

    def settle_by_name(self: Controller, work: Work, now: Moment) -> list[Effect]:
        effects = settle_done(self, work, now)
        known = self.cluster.pods.get(work.ref.key)
        if isinstance(work, Eviction) and known is not None and known.pod.ref.uid != work.ref.uid:
            self._deleted[known.pod.ref.uid] = now.at
            self.dispatch.agenda.cancel(known.pod.ref)
        return effects

    patch.setattr(Controller, "_settle_done", settle_by_name)


def changed_tolerations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """W5: what a pod tolerates is what it tolerated when its timer was armed."""
    put_pod = Cluster.put_pod

    def put_as_first_seen(self: Cluster, fact: PodSeen, now: Moment) -> tuple[KnownPod, KnownPod | None] | None:
        before = self.pod(fact.pod.ref)
        if before is not None and before.bound is not None:
            pod = dataclasses.replace(fact.pod, tolerations=before.pod.tolerations)
            fact = dataclasses.replace(fact, pod=pod)
        return put_pod(self, fact, now)

    patch.setattr(Cluster, "put_pod", put_as_first_seen)


def restart_begins_the_countdown_anew(patch: pytest.MonkeyPatch) -> None:
    """W7: every process counts from when it first saw things itself."""

    def sight_now(now: Moment, object_time: float | None, object_source: TimeSource) -> Sighting:
        return Sighting(now.at, TimeSource.FIRST_SIGHT, object_time)

    patch.setattr("taint_eviction.core.cluster.sight", sight_now)


def gives_up_after_five_tries(patch: pytest.MonkeyPatch) -> None:
    """W8: after 5 tries, 10 ms apart, an eviction is forgotten."""
    carry_out = Evictor.carry_out
    given_up: set[str] = set()

    async def five_times(self: Evictor, work: Work) -> Outcome:
        if isinstance(work, Eviction) and work.ref.uid in given_up:
            return CalledOff()
        outcome = await carry_out(self, work)
        if isinstance(outcome, Failed) and isinstance(work, Eviction):
            if work.tries >= 4:
                given_up.add(work.ref.uid)
            return Failed(outcome.message, self._live.clock.now().at + 0.01)
        return outcome

    take_due = Controller.take_due

    def unless_given_up(self: Controller, now: Moment, most: int, most_retries: int) -> list[Work]:
        for known in list(self.cluster.pods.values()):
            if known.pod.ref.uid in given_up:
                self.dispatch.agenda.cancel(known.pod.ref)
        return take_due(self, now, most, most_retries)

    patch.setattr(Evictor, "carry_out", five_times)
    patch.setattr(Controller, "take_due", unless_given_up)


def trusts_its_watch(patch: pytest.MonkeyPatch) -> None:
    """W11: decides on the node as its watch has brought it, without a live read before the kill."""

    async def as_known(self: NodeReads, name: str) -> bool:
        return name in self._live.controller.cluster.nodes

    patch.setattr(NodeReads, "fresh", as_known)


def deletes_the_terminating_again(patch: pytest.MonkeyPatch) -> None:
    """W13: pods that are being deleted already are deleted again on every change."""
    decide = Controller._decide
    redecide = Controller._redecide

    def as_if_alive(self: Controller, known: KnownPod) -> object:
        return decide(self, dataclasses.replace(known, pod=dataclasses.replace(known.pod, terminating=False)))

    def forgetting(self: Controller, known: KnownPod, now: Moment) -> list[Effect]:
        decision = self._decide(known)
        if isinstance(decision, Evict) and known.pod.terminating:
            self._deleted.pop(known.pod.ref.uid, None)
        return redecide(self, known, now)

    patch.setattr(Controller, "_decide", as_if_alive)
    patch.setattr(Controller, "_redecide", forgetting)


# What holding back invites


def limits_count_when_begun(patch: pytest.MonkeyPatch) -> None:
    """A limit counts an eviction when it begins, so that slow ones catch up with each other and are sent together."""
    has_room = TokenBucket.has_room
    asked_at: dict[TokenBucket, float] = {}

    def remembering(self: TokenBucket, now: float) -> bool:
        asked_at[self] = now
        return has_room(self, now)

    def taking(self: TokenBucket) -> Token:
        self._begun += 1
        self._level = self._level.less_one(asked_at[self], self._limit)
        return Token(self)

    def giving_back(self: TokenBucket, token: Token, ended_pod: bool) -> None:
        self._begun -= 1
        if not ended_pod or not token.sent:
            self._level = self._level._replace(tokens=self._level.tokens + 1)

    def noting(self: TokenBucket, token: Token, now: float) -> None:
        token.sent = True

    patch.setattr(TokenBucket, "has_room", remembering)
    patch.setattr(TokenBucket, "begin", taking)
    patch.setattr(TokenBucket, "send", noting)
    patch.setattr(TokenBucket, "end", giving_back)


def tokens_are_kept(patch: pytest.MonkeyPatch) -> None:
    """What was called off before it was sent keeps its token for ever."""
    end = TokenBucket.end

    def unless_unsent(self: TokenBucket, token: Token, ended_pod: bool) -> None:
        if token.sent:
            end(self, token, True)

    patch.setattr(TokenBucket, "end", unless_unsent)


def pauses_are_asked_when_taken(patch: pytest.MonkeyPatch) -> None:
    """Whether it is paused is asked when an eviction begins, and not before each call."""
    patch.setattr(Dispatch, "may_go_on", lambda self, known, _: self.agenda.may_send(known.pod.ref))


def breaker_counts_by_first_sight(patch: pytest.MonkeyPatch) -> None:
    """New is what this process sees for the first time, however long it has been there."""
    wave = Breaker.wave

    def by_first_sight(self: Breaker, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> Wave:
        first = self.__dict__.setdefault("first_seen", {})
        seen = {}
        for name, known in nodes.items():
            at = {taint: first.setdefault((known.node.uid, taint), now.at) for taint in known.sightings}
            sightings = {
                taint: dataclasses.replace(since, start_at=at[taint]) for taint, since in known.sightings.items()
            }
            seen[name] = dataclasses.replace(known, sightings=sightings)
        return wave(self, seen, due, now)

    patch.setattr(Breaker, "wave", by_first_sight)


def latch_is_lost_at_restart(patch: pytest.MonkeyPatch) -> None:
    """The latch is written, and never read: whoever comes next begins with a closed breaker."""
    take_latch = Brakes._take_latch
    patch.setattr(Brakes, "_take_latch", lambda self, orders: take_latch(self, dataclasses.replace(orders, latch=None)))


def waves_do_not_settle(patch: pytest.MonkeyPatch) -> None:
    """The first pods of a wave go before the rest of it is seen."""
    begin = Agenda.__init__

    def without_settling(self: Agenda, policy: EvictionPolicy, _: float, is_held: Callable[[LaneKey], bool]) -> None:
        begin(self, policy, 0.0, is_held)

    patch.setattr(Agenda, "__init__", without_settling)


def budgets_are_hammered(patch: pytest.MonkeyPatch) -> None:
    """A budget's no is a failure like any other, and asked again as soon."""
    patch.setattr("taint_eviction.runtime.evictor.blocked_seconds", backoff_seconds)


def budgets_hold_no_longer_than_deadlines(patch: pytest.MonkeyPatch) -> None:
    """Whoever the eviction API keeps once is deleted, without waiting for the timeout."""
    handling = Dispatch.handling

    def impatient(self: Dispatch, known: KnownPod, decision: Evict) -> Handling:
        return dataclasses.replace(handling(self, known, decision), evict_timeout_seconds=0.0)

    patch.setattr(Dispatch, "handling", impatient)


def nonsense_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    """Keys whose values make no sense are left out."""
    patch.setattr("taint_eviction.wiring_simulation.read_orders", lambda config_map: (Orders(), []))


KNOWN_BUGS: dict[str, Patch] = {
    "W1": stale_key,
    "W2": deletes_by_name,
    "W3": late_worker_settles_its_successor,
    "W5": changed_tolerations_are_ignored,
    "W7": restart_begins_the_countdown_anew,
    "W8": gives_up_after_five_tries,
    "W11": trusts_its_watch,
    "W13": deletes_the_terminating_again,
    "limit-at-begin": limits_count_when_begun,
    "token-kept": tokens_are_kept,
    "pause-when-taken": pauses_are_asked_when_taken,
    "breaker-first-sight": breaker_counts_by_first_sight,
    "latch-lost": latch_is_lost_at_restart,
    "no-settling": waves_do_not_settle,
    "budget-hammered": budgets_are_hammered,
    "no-timeout": budgets_hold_no_longer_than_deadlines,
    "nonsense-ignored": nonsense_holds_nothing,
}
