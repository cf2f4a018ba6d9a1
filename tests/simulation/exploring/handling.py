"""The oracle's part about how pods are evicted: with the call of their mode, within limits, and not too soon after a
budget's refusal.

It reads the rules of a policy with its own code. Limits are judged for each process by the times at which it sends:
each process counts for itself, so two processes that both believe to lead may send twice as much.
"""

import fnmatch
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.simulation.exploring.ceilings import rule_matches
from tests.simulation.exploring.lost_nodes import lost_from
from tests.simulation.exploring.out_of_service import OUT_OF_SERVICE
from tests.simulation.exploring.patience import PatienceJudge
from tests.simulation.exploring.seen import TICK, Breach, shown
from tests.simulation.exploring.truth import LIFECYCLE_KEYS, NEVER, NodeState, PodState, Truth, due_at, tolerated_for

from taint_eviction.core.events import BlockReason
from taint_eviction.core.policy import EvictionMode, Limit, PolicyRule
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind

ENDS = (CallKind.DELETE, CallKind.EVICT)
# A process may decide by states up to this old.
_OLD_SECONDS = 40.0
_ASK_AGAIN_SECONDS = 5.0
# How often the eviction API may be asked for a pod whose virtual machine moves away.
_MOVING_SECONDS = 30.0
# How long after its deadline and its timeout a pod may still be there at the end: holds, and a new leader.
_PATIENT_SECONDS = 100.0


class Way(NamedTuple):
    """How a pod must be evicted if one taint decides: the matching rule, "" for none, and what follows from it.

    ``exempt``: the pod's node is out of service and not ready, so no budget and no limit applies. ``lost``: it is
    deleted only because its node is lost.
    """

    rule: str
    mode: EvictionMode
    timeout_seconds: float
    paused: bool
    exempt: bool = False
    lost: bool = False


@dataclass
class _Sent:
    """A call to end a pod; ``counts`` False: it did not end the pod, and its sender knows that."""

    at: float
    scopes: set[tuple[str, str]]
    counts: bool = True
    in_flight: bool = True


@dataclass
class _Acts:
    """What one process did: its calls, when a budget first refused each pod, and the last refusal with its advice.

    ``moving``: since when a webhook has said that the virtual machine in the pod moves away.
    ``nodes`` by name and ``pods`` by UID: the latest state of each that the process has seen, with its version.
    ``newest``: the newest state of each node that it has seen.
    """

    sent: dict[int, _Sent] = field(default_factory=dict)
    first_refused: dict[str, float] = field(default_factory=dict)
    refused: dict[str, tuple[float, float]] = field(default_factory=dict)
    moving: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, tuple[int, NodeState]] = field(default_factory=dict)
    pods: dict[str, tuple[int, PodState]] = field(default_factory=dict)
    newest: dict[str, tuple[int, NodeState]] = field(default_factory=dict)


class HandlingJudge:
    """Judges all processes."""

    def __init__(self, settings: Settings, truth: Truth, breach: Breach) -> None:
        self.blocked_at: dict[str, float] = {}
        self._settings = settings
        self._policy = settings.policy
        self._rules = settings.policy.rules
        self._rules_since = -NEVER
        self._truth = truth
        self._breach = breach
        self._acts: dict[str, _Acts] = {}
        self._patience = PatienceJudge(truth, self.ways, breach)
        # The process that began to lead last.
        self._leader = ""

    def change_rules(self, rules: tuple[PolicyRule, ...], at: float) -> None:
        """Note that the policy has other rules from ``at`` on."""
        self._rules, self._rules_since = rules, at
        # What was sent before counts for other limits only; a time would not tell what was sent at this instant.
        for sent in (one for acts in self._acts.values() for one in acts.sent.values()):
            sent.scopes = {scope for scope in sent.scopes if scope[0] != "rule"}

    @property
    def rules_changed(self) -> bool:
        """Whether the rules were ever changed."""
        return self._rules_since > -NEVER

    def ways(
        self,
        uid: str,
        since: float,
        due_by: float = NEVER,
        node_since: float | None = None,
        lost_by: float | None = None,
    ) -> set[Way]:
        """Return how a pod may have to be evicted, by any state of the pod since ``since`` and of its node since
        ``node_since`` (None: the same), for each taint that is due by ``due_by``. ``lost_by``: by when a node must have
        been lost to count as such, None: by ``due_by``.
        """
        node_since = since if node_since is None else node_since
        lost_by = due_by if lost_by is None else lost_by
        pods = [pod for pod in self._truth.pod_states(uid, since) if not pod.left_alone]
        nodes = [node for node in self._truth.node_states(pods[-1].node or "", node_since) if node] if pods else []
        return {
            self._way(pod, node, taint[0], due_by, lost_by)
            for pod in pods
            for node in nodes
            for taint, began_at in node.taints.items()
            if tolerated_for(pod, node, *taint[:2]) < NEVER
            if due_at(replace(node, taints={taint: began_at}), pod) <= due_by
        }

    def may_be_kept(self, uid: str, due_by: float, held_until: float) -> bool:
        """Return whether budgets may still keep a pod at the end, by every taint that was due by ``due_by``.

        ``held_until``: until then something else may have held the pod back.
        """
        ways = [way for way in self.ways(uid, NEVER, due_by) if not way.paused]
        patient = [way.timeout_seconds for way in ways if way.mode is EvictionMode.EVICT_THEN_DELETE]
        long_ago = due_by - min(patient, default=NEVER) - _PATIENT_SECONDS
        outlasted = max(held_until, self._rules_since) < long_ago and self.ways(uid, NEVER, long_ago) != set()
        return not outlasted and all(way.mode is not EvictionMode.DELETE for way in ways)

    def interrupt(self, process: str, is_held: Callable[[str, str], bool], until: float = NEVER) -> None:
        """Note that a process has read what is held back, by node and namespace: patience for those pods restarts.

        A refusal after ``until`` stays, as the pod was no longer held back then.
        """
        acts = self._acts.setdefault(process, _Acts())
        for uid, refused_at in list(acts.first_refused.items()):
            pod = self._truth.pods[uid][-1]
            if refused_at <= until and is_held(pod.node or "", pod.namespace):
                del acts.first_refused[uid]
                self._patience.interrupt(process, uid)

    def begin_to_lead(self, process: str) -> None:
        """Note that a process begins to lead: its patience with every pod restarts.

        Where nobody else has led meanwhile, it leads on, and remembers what moves away.
        """
        self._patience.interrupt(process)
        if self._leader != process:
            self._acts.setdefault(process, _Acts()).moving.clear()
        self._leader = process

    def is_exempt_by_all(self, uid: str, since: float, due_by: float) -> bool:
        """Return whether a pod was exempt by ``due_by`` in every state of the pod and its node since ``since``."""
        pods = self._truth.pod_states(uid, since)
        nodes = self._truth.node_states(pods[-1].node or "", since)
        return all(
            node is not None
            and not pod.left_alone
            and any(
                self._way(pod, node, taint[0], due_by).exempt
                and due_at(replace(node, taints={taint: began_at}), pod) <= due_by
                for taint, began_at in node.taints.items()
            )
            for pod in pods
            for node in nodes
        )

    def _way(self, pod: PodState, node: NodeState, taint_key: str, due_by: float, lost_by: float = -NEVER) -> Way:
        way = self._way_if_not_lost(pod, node, taint_key, due_by)
        ignores = self._policy.ignores_budgets_on_lost_nodes and taint_key in LIFECYCLE_KEYS
        if not (ignores and lost_from(node) <= lost_by) or way.mode is EvictionMode.DELETE:
            return way
        return way._replace(mode=EvictionMode.DELETE, lost=True)

    def _way_if_not_lost(self, pod: PodState, node: NodeState, taint_key: str, due_by: float) -> Way:
        unready = node.unready_at <= due_by
        matching = [
            rule for rule in self._rules if rule_matches(rule, taint_key, pod.namespace, pod.labels, node.labels)
        ]
        ruled = any(_names(rule, taint_key) for rule in matching) or any(rule.pause for rule in matching[:1])
        if taint_key == OUT_OF_SERVICE and unready and not ruled:
            return Way("", EvictionMode.DELETE, 0.0, False, exempt=True)
        if not matching:
            return Way("", self._policy.mode, self._policy.evict_timeout_seconds, False)
        rule, own = matching[0], matching[0].evict_timeout_seconds
        timeout = self._policy.evict_timeout_seconds if own is None else own
        return Way(rule.name, rule.mode or self._policy.mode, timeout, rule.pause)

    # Calls

    def trace(self, trace: Trace) -> None:
        """Judge one phase of a call that ends a pod or prepares that."""
        acts = self._acts.setdefault(trace.process, _Acts())
        self._look_at(trace, acts)
        if trace.phase is Phase.SENT and trace.call in (*ENDS, CallKind.MARK):
            self._check_mode(trace, acts)
        moves = self._moves(trace, acts)
        self._patience.trace(trace, moves)
        if trace.call not in ENDS:
            return
        if trace.phase is Phase.SENT:
            self._check_limits(trace, acts)
        if trace.phase is Phase.SENT and trace.call is CallKind.EVICT:
            self._check_pace(trace, acts)
        if trace.phase in (Phase.ANSWERED, Phase.FAILED):
            self._hear(trace, acts, moves)

    def _moves(self, trace: Trace, acts: _Acts) -> bool:
        """Return whether a refusal comes while the virtual machine in the pod moves away, for all the process knows."""
        refused = trace.phase is Phase.FAILED and trace.call is CallKind.EVICT and isinstance(trace.body, CallFailed)
        if refused and trace.body.evacuates:
            acts.moving.setdefault(trace.uid, trace.at)
        since = acts.moving.get(trace.uid, -NEVER)
        return refused and trace.at < since + self._policy.background_timeout_seconds

    def _hear(self, trace: Trace, acts: _Acts, moves: bool) -> None:
        sent = acts.sent[trace.number]
        sent.in_flight = False
        if isinstance(trace.body, CallFailed):
            sent.counts = not (trace.body.denied or trace.body.certain or trace.body.block is not None)
        if trace.phase is Phase.ANSWERED:
            sent.counts = trace.body is True
        elif isinstance(trace.body, CallFailed) and moves:
            if trace.body.denied or trace.body.block is not None:
                acts.refused[trace.uid] = trace.at, _MOVING_SECONDS
                self._let_begin_anew(acts, trace.at)
        elif isinstance(trace.body, CallFailed) and trace.body.denied:
            acts.first_refused.setdefault(trace.uid, trace.at)
        elif isinstance(trace.body, CallFailed) and trace.body.block is not None:
            # Whatever is advised, a proxy must not delay an eviction for long.
            longest = max(self._settings.retry.max_seconds, _ASK_AGAIN_SECONDS)
            advised = min(trace.body.retry_after_seconds or _ASK_AGAIN_SECONDS, longest)
            acts.refused[trace.uid] = trace.at, advised
            acts.first_refused.setdefault(trace.uid, trace.at)
            self._let_begin_anew(acts, trace.at)
            if trace.body.block.reason is not BlockReason.BUDGET_NOT_READY:
                self.blocked_at[trace.uid] = trace.at

    def _check_mode(self, trace: Trace, acts: _Acts) -> None:
        ways = self.ways(trace.uid, trace.at - _OLD_SECONDS, trace.at + TICK)
        if not ways:
            return
        if trace.call is CallKind.EVICT:
            exempt = self.is_exempt_by_all(trace.uid, trace.at - _OLD_SECONDS, trace.at - _OLD_SECONDS)
            long_ago = trace.at - _OLD_SECONDS
            surely = self.ways(trace.uid, long_ago, trace.at + TICK, long_ago, lost_by=long_ago)
            if exempt or all(way.mode is EvictionMode.DELETE for way in surely):
                self._breach("wrong call", trace, "it is to be deleted, not to be asked for")
            return
        if not self._knows_as_lost(trace, acts):
            ways = self.ways(trace.uid, trace.at - _OLD_SECONDS, trace.at + TICK, lost_by=-NEVER)
        if any(way.mode is EvictionMode.DELETE for way in ways):
            return
        waiting = [way.timeout_seconds for way in ways if way.mode is EvictionMode.EVICT_THEN_DELETE]
        if not waiting:
            self._breach("wrong call", trace, "only the eviction API may end it")
        elif trace.at < acts.first_refused.get(trace.uid, NEVER) + min(waiting) - TICK:
            self._breach("wrong call", trace, f"no budget has refused it for {min(waiting):g} s")

    def _knows_as_lost(self, trace: Trace, acts: _Acts) -> bool:
        """Return whether a node is lost by the newest state of it that the process has seen."""
        newest = acts.newest.get(self._truth.pods[trace.uid][-1].node or "")
        return newest is not None and lost_from(newest[1]) <= trace.at + TICK

    def _check_pace(self, trace: Trace, acts: _Acts) -> None:
        refused_at, seconds = acts.refused.get(trace.uid, (-NEVER, 0.0))
        if trace.at >= refused_at + seconds - TICK:
            return
        # A deleted or recreated node also starts a new eviction, and no object that is seen shows that.
        nodes = self._truth.node_states(self._truth.pods[trace.uid][-1].node or "", refused_at - _OLD_SECONDS)
        if len({node and node.uid for node in nodes}) == 1:
            self._breach("asked too soon", trace, f"a budget said no at {refused_at:.3f}, to wait for {seconds:g} s")

    def _look_at(self, trace: Trace, acts: _Acts) -> None:
        """Note the states that a process sees, and ignore those older than what it knows.

        The process may have left an answer ahead of the watch of nodes to the watch, so events of the watch count even
        if they are older.
        """
        for body in shown(trace):
            metadata, version = body["metadata"], int(body["metadata"]["resourceVersion"])
            state = self._truth.versions.get(metadata["resourceVersion"])
            newest, known = acts.nodes.get(metadata["name"], (0, state))
            if isinstance(state, NodeState) and version > acts.newest.get(metadata["name"], (0, state))[0]:
                acts.newest[metadata["name"]] = version, state
            if isinstance(state, NodeState) and (version > newest or trace.phase is Phase.SAW):
                if trace.phase is not Phase.SAW:
                    acts.nodes[metadata["name"]] = version, _before_the_watch(state, known)
                    self._let_begin_anew(acts, trace.at)
                acts.nodes[metadata["name"]] = version, state
            elif isinstance(state, PodState) and version > acts.pods.get(metadata["uid"], (0, state))[0]:
                acts.pods[metadata["uid"]] = version, state
            self._let_begin_anew(acts, trace.at)

    def _let_begin_anew(self, acts: _Acts, at: float) -> None:
        """Forget a budget's refusal if the process knows now that the pod is not due before the advised time."""
        for uid, (refused_at, seconds) in list(acts.refused.items()):
            _, pod = acts.pods.get(uid, (0, None))
            _, node = acts.nodes.get((pod and pod.node) or "", (0, None))
            if pod is None or node is None or due_at(node, pod) <= at:
                continue
            if due_at(node, pod, at_the_latest=True) >= refused_at + seconds:
                del acts.refused[uid]

    # Limits

    def _check_limits(self, trace: Trace, acts: _Acts) -> None:
        states = self._truth.pods.get(trace.uid)
        if not states:
            return
        ways = self.ways(trace.uid, trace.at - _OLD_SECONDS, trace.at + TICK)
        limits = {("whole", ""): self._policy.total, ("node", states[-1].node or ""): self._policy.per_node}
        limits["namespace", states[-1].namespace] = self._policy.per_namespace
        if len({way.rule for way in ways}) == 1:
            (rule,) = {way.rule for way in ways}
            limits |= {("rule", one.name): one.limit for one in self._rules if one.name == rule}
        if any(way.exempt for way in ways):
            limits = {}
        acts.sent[trace.number] = _Sent(trace.at, set(limits))
        for scope, limit in limits.items():
            self._check_limit(scope, limit, trace, acts)

    def _check_limit(self, scope: tuple[str, str], limit: Limit, trace: Trace, acts: _Acts) -> None:
        sent = [one for one in acts.sent.values() if scope in one.scopes]
        name = " ".join(scope).strip()
        at_once = sum(one.in_flight for one in sent)
        if limit.at_once is not None and at_once > limit.at_once:
            self._breach("over a limit", trace, f"{at_once} at once, {name}: {limit}")
        if limit.per_second is None:
            return
        burst = max(1, math.ceil(limit.per_second)) if limit.burst is None else limit.burst
        for count, first in enumerate((one for one in reversed(sent) if one.counts), start=1):
            if count > burst + limit.per_second * (trace.at - first.at) + 1e-4:
                self._breach("over a limit", trace, f"{count} since {first.at:.3f}, {name}: {limit}")
                return


def _before_the_watch(state: NodeState, known: object) -> NodeState:
    """Return a node as a process knows it by an answer: an undated taint that it did not know is for the watch."""
    before = known.taints if isinstance(known, NodeState) else {}
    return replace(state, taints={each: at for each, at in state.taints.items() if each in before or each[2]})


def _names(rule: PolicyRule, taint_key: str) -> bool:
    return any(key != "*" and fnmatch.fnmatchcase(taint_key, key) for key in rule.taint_keys)
