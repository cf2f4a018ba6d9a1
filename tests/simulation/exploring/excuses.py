"""What the faults of a scenario excuse: until when evictions may be late because of them, and by how much.

There is no excuse where the contract makes a promise in spite of the fault: calls about the Lease that take seconds,
slow reads of the control state, a watch of nodes that lags, calls about other pods that hang.
"""

import fnmatch
import math
from typing import NamedTuple

from tests.simulation.exploring.ceilings import shorten_only

from taint_eviction.core.policy import EvictionPolicy
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.faults import CallFault, CallKind
from taint_eviction_lab.simulation.scenario import Scenario

_LEASE = frozenset({CallKind.READ_LEASE, CallKind.WRITE_LEASE})
_CONTROL_STATE = frozenset({CallKind.READ_CONTROL_STATE})
_NODE_READS = frozenset({CallKind.READ_NODE})
_TAKING_BACK = frozenset({CallKind.UNMARK})
_LISTS = frozenset({CallKind.LIST_PODS, CallKind.LIST_CACHED_PODS})
# A leader stays the leader with calls up to this slow; a watch that lags no more than this counts as undisturbed.
_SLOWEST_SECONDS, _FARTHEST_BEHIND_SECONDS = 4.5, 3.0
# How long an eviction waits at most for the watch of nodes to reach the version of a live read.
_CATCH_UP_SECONDS = 5.0
# How long hanging calls of other pods can use all workers: each attempt holds one for a second, in three rounds.
_WITHOUT_WORKERS_SECONDS = 2.0
# What a watch that lags has delayed is over this long after its lag has changed.
_LAGGED_SECONDS = 10.0
# The watch of nodes runs again this long after it was cut for a moment; and how soon one temporary failure is retried.
_SHORT_CUT_SECONDS, _WATCHED_AGAIN_SECONDS, _ONE_RETRY_SECONDS = 1.0, 5.0, 1.0
# A process that starts lists all tainted nodes' pods. Where more of these lists hang than may be under way, a list of
# another node waits until they are given up, and so long besides.
_GIVEN_UP_SECONDS = 4.0
# How long the election of the first leader may take besides its calls, and the time between two tries.
_ELECTION_SECONDS, _BETWEEN_TRIES_SECONDS = 3.0, 4.4


# What keeps a process from seeing, for a while, what happens to nodes and pods.
_BLINDING = (
    do.Freeze,
    do.Partition,
    do.StepServerClock,
    do.StopServer,
    do.Outage,
    do.DisturbCalls,
    do.LagWatches,
    do.CutWatches,
    do.LoseEvents,
    do.BufferWatches,
    do.RelistWatches,
)


def _only_refuses(action: do.Action) -> bool:
    """Return whether a fault is a refusal of the eviction API alone, which hides nothing from a process."""
    return isinstance(action, do.DisturbCalls) and action.picked.calls == {CallKind.EVICT} and not action.fault.hangs


class Excuse(NamedTuple):
    """An eviction may be as late as ``over_at``, and by ``late_seconds``."""

    over_at: float
    late_seconds: float


UNJUDGED = Excuse(math.inf, 0.0)


class Disturbances:
    """The faults of one scenario.

    ``steady``: nothing takes the Lease from a leader that runs. ``watched``: no watch of nodes has a gap while its
    process runs. ``behind_seconds``, ``pods_behind_seconds``: how far a watch of nodes, or of pods, lags at most.
    ``late_seconds``: how long a request travels at most. ``sees_all``: no process is ever blind, or slow to see.
    ``behind_from``: from when on one of the API servers is behind.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._settings = scenario.settings
        self._steps = scenario.steps
        actions = [step.action for step in scenario.steps]
        self._slowest = sum(_slow_seconds(action, calls) for action in actions for calls in (_LEASE, _CONTROL_STATE))
        self.steady = not any(_shakes_the_lease(action, self._settings.call_timeout_seconds) for action in actions)
        self.watched = not any(_cuts_off_nodes(action) for action in actions)
        self.sees_all = not any(isinstance(action, _BLINDING) and not _only_refuses(action) for action in actions)
        lags = [action for action in actions if isinstance(action, do.LagWatches)]
        frozen_seconds = max((action.for_seconds for action in actions if isinstance(action, do.Freeze)), default=0.0)
        of_nodes = (lag.by_seconds for lag in lags if lag.watch != "pods")
        kept = [action for action in actions if isinstance(action, do.BufferWatches)]
        kept_seconds = max((each.for_seconds for each in kept if each.watch != "pods"), default=0.0)
        self.behind_seconds = frozen_seconds + max(of_nodes, default=0.0) + kept_seconds
        of_pods = (lag.by_seconds for lag in lags if lag.watch != "nodes")
        kept_seconds = max((each.for_seconds for each in kept if each.watch != "nodes"), default=0.0)
        self.pods_behind_seconds = frozen_seconds + max(of_pods, default=0.0) + kept_seconds
        calls = [action.fault.delay_seconds for action in actions if isinstance(action, do.DisturbCalls)]
        half_open = [action.late_seconds or 0.0 for action in actions if isinstance(action, do.Partition)]
        self.late_seconds = max([*calls, *half_open], default=0.0)
        lists_hang = any(
            isinstance(action, do.DisturbCalls) and action.fault.hangs and action.picked.calls & _LISTS
            for action in actions
        )
        self._starts_seconds = self._settings.call_timeout_seconds + _GIVEN_UP_SECONDS if lists_hang else 0.0
        behind = (step.at for step in self._steps if _puts_a_server_back(step.action))
        self.behind_from = min(behind, default=math.inf)
        self._unjudged = holds_back(scenario)

    def excuse(self, at: float, pod: str, node: str) -> Excuse:
        """Return what the faults that have begun by ``at`` excuse for a pod, ``namespace/name``, on a node."""
        if self._unjudged:
            return UNJUDGED
        # The first election and the first read of the control state may use slow calls, too.
        over_at = _ELECTION_SECONDS + 3.0 * self._slowest if self._slowest else -math.inf
        if self._starts_seconds:
            # A process that cannot list all pods stands for election only after so long.
            stands_at = self._settings.election.lease_duration_seconds + _ELECTION_SECONDS + 3.0 * self._slowest
            over_at = max(over_at, self._starts_seconds, stands_at)
        late_seconds = 0.0
        begun = [step for step in self._steps if step.at <= at]
        for step in begun:
            over_at = max(over_at, self._over_at(step, pod, node))
            late_seconds += _late_seconds(step.action, pod, node)
        if any(_takes_workers(step.action) for step in begun):
            late_seconds += _WITHOUT_WORKERS_SECONDS
        return Excuse(over_at, late_seconds + _behind_seconds(begun, at))

    def _over_at(self, step: do.ScenarioStep, pod: str, node: str) -> float:
        settings = self._settings
        match step.action:
            case do.Restart(after_seconds=after):
                # A successor waits until the Lease has expired.
                between_tries = _BETWEEN_TRIES_SECONDS if self._slowest else 0.0
                waits = settings.election.lease_duration_seconds + 7.0 + between_tries + 4.0 * self._slowest
                return step.at + after + waits + self._starts_seconds
            case do.DisturbCalls() as calls:
                return self._over_for(calls, step.at, pod, node)
            case do.LagWatches(by_seconds=seconds, watch="nodes"):
                return math.inf if seconds > _FARTHEST_BEHIND_SECONDS else -math.inf
            case do.CutWatches(for_seconds=seconds, watch="nodes") if seconds <= _SHORT_CUT_SECONDS:
                return step.at + seconds + _WATCHED_AGAIN_SECONDS
            case do.LagWatches() | do.CutWatches() | do.LoseEvents() | do.RepeatEvents() | do.RelistWatches():
                return math.inf
            case do.BufferWatches() | do.Outage() | do.Partition() | do.Freeze() | do.StepHostClock():
                return math.inf
        return -math.inf

    def _over_for(self, action: do.DisturbCalls, at: float, pod: str, node: str) -> float:
        """Return until when calls that fail, hang or are slow excuse late evictions."""
        picked, slow = action.picked, action.fault
        if slow == CallFault(connect_seconds=slow.connect_seconds, date_ahead_seconds=slow.date_ahead_seconds):
            return -math.inf
        if picked.calls <= _TAKING_BACK or _fails_once(action):
            return -math.inf
        if (
            not _concerns(picked.pattern, pod, node)
            or _slow_seconds(action, _LEASE)
            or _slow_seconds(action, _CONTROL_STATE)
        ):
            return -math.inf
        if picked.times is None or slow.fails or slow.hangs:
            return -math.inf if picked.times is None and _slow_seconds(action, _NODE_READS) else math.inf
        longest = min(self._settings.call_timeout_seconds, slow.delay_seconds + slow.back_seconds)
        lasts = math.inf if action.for_seconds is None else action.for_seconds
        return at + lasts + picked.times * (longest + self._settings.retry.first_seconds)


def _puts_a_server_back(action: do.Action) -> bool:
    return isinstance(action, do.StepServerClock) and action.seconds < 0


def _late_seconds(action: do.Action, pod: str, node: str) -> float:
    """Return how much later evictions may be because of an action."""
    match action:
        case do.DisturbCalls(picked=picked) if _fails_once(action) and _concerns(picked.pattern, pod, node):
            return _ONE_RETRY_SECONDS
        case do.DisturbCalls(picked=picked, fault=slow) if _concerns(picked.pattern, pod, node):
            # One read before the condition, one before the deletion, and each of them may be repeated.
            return 4.0 * _slow_seconds(action, _NODE_READS) + 2.0 * slow.connect_seconds
    return 0.0


def _behind_seconds(begun: list[do.ScenarioStep], at: float) -> float:
    """Return how much later evictions may be because a watch lags, or has lagged a moment ago."""
    lags = [(step.at, step.action.by_seconds) for step in begun if isinstance(step.action, do.LagWatches)]
    ends = [*(began_at + _LAGGED_SECONDS for began_at, _ in lags[1:]), math.inf]
    return max(
        (by + _CATCH_UP_SECONDS for (_, by), end in zip(lags, ends, strict=False) if by and at < end), default=0.0
    )


def _takes_workers(action: do.Action) -> bool:
    match action:
        case do.DisturbCalls(picked=picked, fault=CallFault(hangs=True)):
            return not picked.calls <= _TAKING_BACK
    return False


def _slow_seconds(action: do.Action, calls: frozenset[CallKind]) -> float:
    """Return how slow an action makes these calls; 0 if it does not, if it makes them too slow, or others as well."""
    match action:
        case do.DisturbCalls(picked=picked, fault=CallFault(fails=False, hangs=False) as slow) if picked.calls <= calls:
            seconds = slow.delay_seconds + slow.back_seconds
            return seconds if seconds <= _SLOWEST_SECONDS else 0.0
    return 0.0


def _fails_once(action: do.Action) -> bool:
    """Return whether an action lets one call of one pod fail for a moment."""
    match action:
        case do.DisturbCalls(picked=picked, fault=CallFault(fails=True, status=503, retry_after_seconds=None)):
            return picked.times == 1 and "/" in picked.pattern and "*" not in picked.pattern
    return False


def _concerns(pattern: str, pod: str, node: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (pod, node))


def _shakes_the_lease(action: do.Action, call_timeout_seconds: float) -> bool:
    match action:
        case do.DisturbCalls(picked=picked):
            return bool(picked.calls & _LEASE) and not 0.0 < _slow_seconds(action, _LEASE) < call_timeout_seconds
        case do.Outage() | do.Partition() | do.Freeze():
            return True
    return False


def _cuts_off_nodes(action: do.Action) -> bool:
    match action:
        case do.DisturbCalls(picked=picked):
            return bool(picked.calls & {CallKind.WATCH_NODES, CallKind.LIST_NODES})
        case do.CutWatches(watch=watch) | do.LoseEvents(watch=watch) | do.RelistWatches(watch=watch):
            return watch != "pods"
        case do.BufferWatches(watch=watch):
            return watch != "pods"
        case do.Outage() | do.Partition() | do.Freeze():
            return True
    return False


def holds_back(scenario: Scenario) -> bool:
    """Return whether anything may hold evictions back for a time that is not known beforehand."""
    policy = scenario.settings.policy
    # How long pods wait for earlier tiers is known, and a rule may only shorten tolerations.
    default = EvictionPolicy(order=policy.order, order_wait_seconds=policy.order_wait_seconds, rules=policy.rules)
    steps = (do.PauseEvictions, do.Scribble)
    pauses = scenario.control_state is not None or any(isinstance(step.action, steps) for step in scenario.steps)
    changed = [step.action.rules for step in scenario.steps if isinstance(step.action, do.ChangePolicy)]
    if not all(shorten_only(rules) for rules in (policy.rules, *changed)):
        return True
    return policy != default or scenario.settings.breaker.enabled or pauses
