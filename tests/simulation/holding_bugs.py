"""Known mistakes about what holds evictions back: limits, pauses, budgets, the breaker; see ``known_bugs``."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.around import around

from taint_eviction.core.attempts import Attempts
from taint_eviction.core.breaker import Breaker, TaintSurge
from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import Evict, Stay
from taint_eviction.core.events import Event, Failed, Work
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.facts import NodeSeen
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.guards import Guards, _Grounds
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.label_selectors import NOT_IN, Requirement
from taint_eviction.core.leaving_order import LeavingOrder
from taint_eviction.core.limits import Token, TokenBucket
from taint_eviction.core.objects import NO_EXECUTE, OUT_OF_SERVICE, Pod
from taint_eviction.core.pods import FailedAttempts, InFlight, KnownPods, PodRecord
from taint_eviction.core.policy import EffectiveTaint, EvictionPolicy, Handling, handling_of
from taint_eviction.core.reconciler import Reconciler
from taint_eviction.core.unready_nodes import UnreadyNodes
from taint_eviction.kube import control_state_data
from taint_eviction.runtime.backoff import backoff_seconds
from taint_eviction.runtime.control_state_sync import ControlStateSync


def limits_count_when_begun(patch: pytest.MonkeyPatch) -> None:
    """A limit counts an eviction when it begins, so that several slow ones can send their requests at the same time."""
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
    """An eviction that is called off before its request is sent keeps its token indefinitely."""
    end = TokenBucket.end

    def unless_unsent(self: TokenBucket, token: Token, ended_pod: bool) -> None:
        if token.sent:
            end(self, token, True)

    patch.setattr(TokenBucket, "end", unless_unsent)


def pauses_are_asked_when_taken(patch: pytest.MonkeyPatch) -> None:
    """The controller checks pauses when an eviction begins, and not before each call."""

    def once_begun(_: Attempts, __: PodRecord, ___: Handling, begun: InFlight, *____: object) -> bool:
        return begun.tokens is not None

    patch.setattr(Attempts, "_may_go_on", once_begun)


def breaker_counts_by_first_sight(patch: pytest.MonkeyPatch) -> None:
    """The breaker counts a taint as new when this process sees it first, however long the taint has been there."""
    surge = Breaker.surge

    def by_first_sight(self: Breaker, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> TaintSurge:
        first = self.__dict__.setdefault("first_seen", {})
        seen = {}
        for name, known in nodes.items():
            at = {taint: first.setdefault((known.node.uid, taint), now.at) for taint in known.sightings}
            sightings = {
                taint: dataclasses.replace(since, start_at=at[taint]) for taint, since in known.sightings.items()
            }
            seen[name] = dataclasses.replace(known, sightings=sightings)
        return surge(self, seen, due, now)

    patch.setattr(Breaker, "surge", by_first_sight)
    patch.setattr(Breaker, "node_found", lambda *_: None)


def breaker_counts_lost_nodes_by_taints(patch: pytest.MonkeyPatch) -> None:
    """The breaker counts lost nodes by their lifecycle taints, and does not look at their condition Ready."""
    patch.setattr("taint_eviction.core.breaker.is_dated", lambda _: False)
    patch.setattr(UnreadyNodes, "too_much", lambda *_: None)


def latch_is_lost_at_restart(patch: pytest.MonkeyPatch) -> None:
    """The latch is written but never read: a new process begins with a closed breaker."""

    @around(patch, Guards, "_take_latch")
    def without_it(take_latch: Callable[..., object], self: Guards, control_state: ControlState) -> object:
        return take_latch(self, dataclasses.replace(control_state, latch=None))


def surges_do_not_settle(patch: pytest.MonkeyPatch) -> None:
    """The first pods of a taint surge are evicted before the rest of the surge is seen."""
    begin = EvictionQueue.__init__

    def without_settling(
        self: EvictionQueue,
        policy: EvictionPolicy,
        _: float | None,
        list_wait: float,
        is_held: Callable[[FlowKey], bool],
        pods: KnownPods,
        order: LeavingOrder,
    ) -> None:
        begin(self, policy, 0.0, list_wait, is_held, pods, order)

    patch.setattr(EvictionQueue, "__init__", without_settling)


def budgets_are_hammered(patch: pytest.MonkeyPatch) -> None:
    """A refusal by a budget counts as any other failure, and the eviction is tried again as soon."""
    patch.setattr("taint_eviction.runtime.evictor.blocked_seconds", backoff_seconds)


def budgets_hold_no_longer_than_deadlines(patch: pytest.MonkeyPatch) -> None:
    """A pod that the eviction API refuses once is deleted without waiting for the timeout."""
    handling = Reconciler.handling
    decide_how = Reconciler.decide_how

    def impatient(self: Reconciler, record: PodRecord, decision: Evict, now: Moment) -> Handling:
        return dataclasses.replace(handling(self, record, decision, now), evict_timeout_seconds=0.0)

    def decide_impatiently(self: Reconciler, record: PodRecord, now: Moment) -> Stay | EffectiveTaint:
        found = decide_how(self, record, now)
        return (
            found if isinstance(found, Stay) else found._replace(handling=impatient(self, record, found.decision, now))
        )

    patch.setattr(Reconciler, "handling", impatient)
    patch.setattr(Reconciler, "decide_how", decide_impatiently)


def unreadable_values_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    """Keys of the ConfigMap with unreadable values are ignored."""
    patch.setattr("taint_eviction_lab.wiring.read_control_state", lambda config_map: (ControlState(), []))


def first_taints_rule_shields(patch: pytest.MonkeyPatch) -> None:
    """W24: the rule of the taint with the earliest deadline decides, whatever other taints are due."""

    def of_the_first(decision: Evict, pod: Pod, policy: EvictionPolicy, at: float) -> EffectiveTaint:
        at = max(at, decision.fire_at)
        return EffectiveTaint(at, decision, handling_of(decision.deciding, pod, policy, at))

    patch.setattr("taint_eviction.core.reconciler.effective_taint", of_the_first)
    patch.setattr("taint_eviction.core.reconciler.effective_taints", lambda *about: iter([of_the_first(*about)]))


def out_of_service_waits(patch: pytest.MonkeyPatch) -> None:
    """W23: the taint out-of-service counts as any other, so budgets, limits and the breaker hold its pods back."""
    patch.setattr("taint_eviction.core.policy.EvictionPolicy.on", lambda policy, *_: policy)


def out_of_service_passes_when_ready(patch: pytest.MonkeyPatch) -> None:
    """W23: the taint out-of-service counts even if its node is ready."""
    carries = property(lambda node: node.carries(OUT_OF_SERVICE, NO_EXECUTE))
    patch.setattr("taint_eviction.core.objects.Node.is_out_of_service", carries)


def out_of_service_passes_its_breaker(patch: pytest.MonkeyPatch) -> None:
    """W23: an open breaker never holds pods of nodes that are out of service, however many such nodes are new."""
    patch.setattr(_Grounds, "blocks_bypassing", property(lambda self: self.latch is not None and self.latch.unreadable))


def patience_counts_from_the_deadline(patch: pytest.MonkeyPatch) -> None:
    """A budget's patience counts from the deadline, and includes time in which the pod was held back or nobody led."""

    @around(patch, Attempts, "_failed")
    def since_its_deadline(
        failed: Callable[..., list[Event]], self: Attempts, record: PodRecord, work: Work, outcome: Failed, now: Moment
    ) -> list[Event]:
        effects = failed(self, record, work, outcome, now)
        decision, failures = record.decision, record.failures
        if decision is not None and failures is not None and outcome.block is not None and self._pods.knows(record):
            record.failures = dataclasses.replace(failures, refused_seconds=now.at - decision.fire_at)
            effects += self._reconciler.reconcile(record, now)
        return effects

    holds_interrupt_nothing(patch)


def holds_interrupt_nothing(patch: pytest.MonkeyPatch) -> None:
    """After a budget's first refusal, time in which the pod is held back or nobody leads counts as patience, too."""
    patch.setattr(FailedAttempts, "without_refusals", property(lambda self: self))


def labels_of_nodes_are_read_once(patch: pytest.MonkeyPatch) -> None:
    """A node keeps the labels with which it was first seen."""

    @around(patch, Controller, "_node_seen")
    def keeping(seen: Callable[..., list[Event]], self: Controller, fact: NodeSeen, now: Moment) -> list[Event]:
        known = self.nodes.known.get(fact.node.name)
        labels = fact.node.labels if known is None or known.node.uid != fact.node.uid else known.node.labels
        node = dataclasses.replace(fact.node, labels=labels)
        return seen(self, dataclasses.replace(fact, node=node), now)


def pauses_go_by_first_labels(patch: pytest.MonkeyPatch) -> None:
    """A pause by labels goes by the labels with which each node was first seen."""
    first: dict[tuple[int, str], Mapping[str, str]] = {}

    def selected(self: _Grounds, node_name: str) -> Mapping[PauseScope, Pause]:
        if (node := self.nodes.get(node_name)) is None:
            return {}
        labels = first.setdefault((id(self), node_name), node.live_node.labels)
        pauses = self.ordered.pauses().items()
        return {scope: pause for scope, pause in pauses if scope.kind == "selector" and scope.selects(labels)}

    patch.setattr(_Grounds, "selected_by", selected)


def pauses_know_no_later_nodes(patch: pytest.MonkeyPatch) -> None:
    """A pause by labels covers the nodes that are known when it is read, and none that join later."""
    order, selected = Guards.order, _Grounds.selected_by
    covered: dict[int, frozenset[str]] = {}

    def ordering(self: Guards, control_state: ControlState, now: Moment) -> list[Event]:
        if control_state.selectors != self._grounds.ordered.selectors:
            covered[id(self._grounds)] = frozenset(self._nodes.known)
        return order(self, control_state, now)

    def selecting(self: _Grounds, node_name: str) -> Mapping[PauseScope, Pause]:
        return selected(self, node_name) if node_name in covered.get(id(self), (node_name,)) else {}

    patch.setattr(Guards, "order", ordering)
    patch.setattr(_Grounds, "selected_by", selecting)


def unreadable_selectors_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A pause whose selector cannot be read pauses nothing."""

    @around(patch, control_state_data, "_pause_entries")
    def readable(entries: Callable[..., Iterator[Any]], config_map: Mapping[str, Any]) -> Iterator[Any]:
        return (each for each in entries(config_map) if not (each.complaint and each.scope.kind == "selector"))


def notin_needs_the_label(patch: pytest.MonkeyPatch) -> None:
    """``key notin (a)`` does not match a node without the label."""
    matches = Requirement.matches

    def matching(self: Requirement, labels: Mapping[str, str]) -> bool:
        return matches(self, labels) and (self.operator != NOT_IN or self.key in labels)

    patch.setattr(Requirement, "matches", matching)


def rules_select_all_nodes(patch: pytest.MonkeyPatch) -> None:
    """A rule that matches the pod applies, whatever node it selects."""
    on_node = EvictionPolicy.on

    def on(self: EvictionPolicy, *node: Any) -> EvictionPolicy:
        everywhere = tuple(dataclasses.replace(rule, node_selector=()) for rule in self.rules)
        return on_node(dataclasses.replace(self, rules=everywhere), *node)

    patch.setattr(EvictionPolicy, "on", on)


def breaker_judges_what_is_listed(patch: pytest.MonkeyPatch) -> None:
    """Evictions do not wait for the lists of newly tainted nodes: pods of the first lists go while other lists run."""
    patch.setattr(Breaker, "unlisted_since", lambda *_: math.inf)


def breaker_takes_last_writes_for_dates(patch: pytest.MonkeyPatch) -> None:
    """A taint that the process finds at its start counts as new if the taint's manager wrote the node recently."""
    patch.setattr(Breaker, "node_found", lambda *_: None)


def dated_ahead_counts_as_dated(patch: pytest.MonkeyPatch) -> None:
    """A reset that somebody dates ahead stays in force until the API server's clock reaches that time."""
    patch.setattr(ControlStateSync, "_dated", lambda _, control_state: control_state)
    patch.setattr(Breaker, "date_back", lambda *_: None)


def unreadable_values_stay(patch: pytest.MonkeyPatch) -> None:
    """An unreadable value holds evictions back although somebody has corrected it: only a restart ends that."""
    read = Breaker.read

    def keep(self: Breaker, stored: Latch | None, reset_epoch: float | None, by_itself: bool = False) -> None:
        if self.latch is None or not self.latch.unreadable or stored is not None:
            read(self, stored, reset_epoch, by_itself)

    patch.setattr(Breaker, "read", keep)
    patch.setattr(Breaker, "correct", lambda _: None)


def older_latches_are_old_news(patch: pytest.MonkeyPatch) -> None:
    """A breaker that a person opens counts only if it is dated after the last reset."""
    read = Breaker.read

    def unless_older(self: Breaker, stored: Latch | None, reset_epoch: float | None, by_itself: bool = False) -> None:
        older = stored is not None and self.reset_epoch is not None and stored.since_epoch <= self.reset_epoch
        read(self, None if older else stored, reset_epoch, by_itself)

    patch.setattr(Breaker, "read", unless_older)


def latches_need_a_breaker(patch: pytest.MonkeyPatch) -> None:
    """An open breaker holds nothing back where none is configured."""
    read = Breaker.read

    def if_enabled(self: Breaker, stored: Latch | None, reset_epoch: float | None, by_itself: bool = False) -> None:
        read(self, stored if self.policy.enabled else None, reset_epoch, by_itself)

    patch.setattr(Breaker, "read", if_enabled)


def pauses_do_not_end(patch: pytest.MonkeyPatch) -> None:
    """A pause that has ended by itself holds evictions back until somebody removes it."""
    patch.setattr(ControlState, "at", lambda self, _: self)
    patch.setattr(ControlStateSync, "_remove_ended", _nothing)


def ended_pauses_are_removed_by_scope(patch: pytest.MonkeyPatch) -> None:
    """The leader removes a pause that has ended, or the one that somebody has put in its place."""
    patch.setattr(ControlState, "without_pauses", lambda self, pauses: self.without(pauses))


async def _nothing(_: object) -> None:
    return
