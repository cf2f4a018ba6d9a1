"""What holds evictions: the control state, which people set, and the circuit breaker. This module says what is held
and why; it decides on no pod. As long as the control state is not known, all evictions are held.
"""

from collections.abc import Callable, Mapping

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.control_state import EVERYTHING, ControlState
from taint_eviction.core.effects import BreakerClosed, BreakerOpened, Effect, Paused, Resumed
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.pods import WaitReason
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.unready_nodes import Evictions, no_evictions


class Suspension:
    """What people, the policy's rules and the breaker hold. ``control_state`` is None until it has been read."""

    def __init__(self, policy: EvictionPolicy, breaker: Breaker, control_state: ControlState | None) -> None:
        self.control_state = control_state
        self._breaker = breaker
        self.change_policy(policy)

    def change_policy(self, policy: EvictionPolicy) -> None:
        """Apply another policy's rules."""
        self._paused_rules = frozenset(rule.name for rule in policy.rules if rule.pause)

    def of(self, key: FlowKey) -> WaitReason | None:
        """Return why a flow is held; None if it is not."""
        return self.of_cluster(key.exempt) or self.of_flow(key)

    def of_cluster(self, exempt: bool = False) -> WaitReason | None:
        """Return why all evictions, or all ``exempt`` ones, are held; None if they are not."""
        if self.control_state is None:
            return WaitReason.ORDERS_UNKNOWN
        latch = self._breaker.latch
        if latch is not None and (not exempt or self._breaker.holds_exempt or latch.out_of_service or latch.unreadable):
            return WaitReason.BREAKER_OPEN
        return None if self.control_state.cluster is None else WaitReason.PAUSED

    def of_flow(self, key: FlowKey) -> WaitReason | None:
        """Return why a flow is held, apart from reasons that hold all evictions; None if it is not."""
        if key.rule in self._paused_rules:
            return WaitReason.RULE_PAUSED
        if self.control_state is None:
            return None
        if key.node_name in self.control_state.nodes:
            return WaitReason.NODE_PAUSED
        return WaitReason.NAMESPACE_PAUSED if key.namespace in self.control_state.namespaces else None

    def pauses(self) -> dict[str, float]:
        """Count the pauses in force by their scope, as metrics name it: whole, node, namespace."""
        if self.control_state is None:
            return {}
        nodes, namespaces = len(self.control_state.nodes), len(self.control_state.namespaces)
        return {"whole": self.control_state.cluster is not None, "node": nodes, "namespace": namespaces}

    def order(self, control_state: ControlState, now: Moment) -> list[Effect]:
        """Apply the control state from the cluster; a known latch stays until it is reset."""
        before = {} if self.control_state is None else self.control_state.pauses()
        after = control_state.pauses()
        self.control_state = control_state
        effects: list[Effect] = [Paused(scope, pause) for scope, pause in after.items() if scope not in before]
        resumed = [scope for scope in before if scope not in after]
        if EVERYTHING in resumed:
            self._breaker.know_backlog()  # Whatever is due was held by that pause.
        effects += [Resumed(scope) for scope in resumed]
        if now.dates_objects:
            self._breaker.date_back(now.server_epoch)
        return effects + self._noting_breaker(lambda: self._take_latch(control_state))

    def evaluate(
        self, nodes: Mapping[str, KnownNode], due: int, now: Moment, evictions: Evictions = no_evictions
    ) -> list[Effect]:
        """Let the breaker evaluate, once the control state has been read."""
        if self.control_state is None:
            return []
        is_paused = self.control_state.cluster is not None
        due_to_go = 0 if is_paused else due
        if is_paused and self._breaker.latch is None:
            evictions = no_evictions
        return self._noting_breaker(lambda: self._breaker.evaluate(nodes, due_to_go, now, evictions))

    def _take_latch(self, control_state: ControlState) -> None:
        breaker, latch = self._breaker, control_state.latch
        is_readable = control_state.breaker_epoch is not None and not (latch is not None and latch.unreadable)
        if is_readable and breaker.latch is not None and breaker.latch.unreadable:
            breaker.correct()
        breaker.read(latch, control_state.reset_epoch)

    def _noting_breaker(self, act: Callable[[], None]) -> list[Effect]:
        before = self._breaker.latch
        act()
        after = self._breaker.latch
        if (before is None) == (after is None):
            return []
        return [BreakerClosed()] if after is None else [BreakerOpened(after)]
