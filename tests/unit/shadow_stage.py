"""A dry run of the core and its shadow in virtual time; what the built-in controller and others do is told by hand."""

from collections.abc import Callable
from dataclasses import replace

from tests.unit.builders import epoch, moment

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.events import CalledOff, Done, Event, Eviction
from taint_eviction.core.facts import Fact, NodeSeen, PodGone, PodSeen
from taint_eviction.core.objects import Node, Pod, PodDisruption
from taint_eviction.shadow.comparison import BUILT_IN_REASON, Comparison
from taint_eviction.shadow.shadow import Shadow

BUILT_IN = "kube-controller-manager"


class ShadowStage:
    """A dry run that evicts what is due, and what its shadow found."""

    def __init__(
        self,
        policy: DecisionPolicy | None = None,
        *,
        breaker: BreakerPolicy | None = None,
        evicted_epochs: dict[str, float] | None = None,
    ) -> None:
        self.brain = Controller(policy, True, breaker=breaker)
        self.found: list[Comparison] = []
        self.compared: Callable[[], None] = lambda: None
        self.leads = True
        self.now = 0.0
        self.shadow = Shadow(
            lambda: self.brain.status, lambda: self.leads, lambda each, _: self._compared(each), None, evicted_epochs
        )

    def _compared(self, comparison: Comparison) -> None:
        self.found.append(comparison)
        self.compared()

    @property
    def results(self) -> list[tuple[str, float | None, str | None]]:
        """List what was found: result, seconds, and the name of the reason."""
        return [(each.result.value, each.seconds, each.reason and each.reason.name) for each in self.found]

    def at(self, seconds: float) -> "ShadowStage":
        """Let it be ``seconds``: until then the dry run evicts what is due, and the shadow looks after its pods."""
        assert seconds >= self.now, "time goes forward"
        while True:
            due_at = self.brain.attempts.next_at(moment(self.now)) if self.leads else None
            next_at = min(max(self.now, seconds if due_at is None else due_at), self.now + 0.5, seconds)
            self.now = next_at
            self._tell(self.brain.evaluate(moment(self.now)))
            if self.leads:
                self._evict()
            self.shadow.advance(moment(self.now))
            if self.now >= seconds:
                return self

    def _evict(self) -> None:
        for work in self.brain.attempts.take_due(moment(self.now), 100, 50):
            assert isinstance(work, Eviction)
            outcome = self.brain.attempts.recheck(work, moment(self.now))
            if outcome is None:
                self.brain.attempts.will_delete(work.ref, moment(self.now))
            ended = outcome if isinstance(outcome, CalledOff) else outcome or Done()
            self._tell(self.brain.attempts.finish(work, ended, moment(self.now)))

    def _tell(self, effects: list[Event]) -> None:
        for effect in effects:
            self.shadow.report(effect, moment(self.now))

    def observe(self, *facts: Fact) -> None:
        """Tell facts now."""
        for fact in facts:
            self.shadow.observed(fact, moment(self.now))
            self._tell(self.brain.observe(fact, moment(self.now)))

    def sees(self, *objects: Node | Pod) -> None:
        """Tell objects as a watch does."""
        self.observe(*(NodeSeen(told) if isinstance(told, Node) else PodSeen(told) for told in objects))

    def order(self, control_state: ControlState) -> None:
        """Tell what people have ordered now."""
        self._tell(self.brain.order(control_state, moment(self.now)))

    # What others do

    def marks(self, pod: Pod, by: str = BUILT_IN) -> Pod:
        """Let the built-in controller set its condition on a pod now; return the pod as it is then."""
        marked = replace(pod, marked=True, disruption=PodDisruption(BUILT_IN_REASON, by, epoch(int(self.now))))
        self.sees(marked)
        return marked

    def evicts(self, pod: Pod, by: str = BUILT_IN) -> None:
        """Let the built-in controller evict a pod now."""
        self.deletes(self.marks(pod, by))

    def deletes(self, pod: Pod) -> None:
        """Let somebody delete a pod now: it is terminating, and then gone."""
        self.sees(replace(pod, terminating=True, deletion_asked_at=epoch(int(self.now))))
        self.observe(PodGone(pod.ref))
