"""The oracle's part about patience with refusals: in the mode evict-then-delete it is a sum, and ends in a DELETE.

The sum has the spans from one refusal of the pod to the next one that the process hears, each of at most 10 s here: the
controller must count at least that much. Refusals while a virtual machine moves away add nothing. Once the sum exceeds
the timeout, the eviction API is not asked again. Judged for the pods of ``refusal_worlds``, as nothing else holds them
back.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from tests.simulation.exploring.refusal_worlds import NAMESPACE
from tests.simulation.exploring.seen import TICK, Breach
from tests.simulation.exploring.truth import NEVER, Truth

from taint_eviction.core.policy import EvictionMode
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind

_DENIED = re.compile(r"admission webhook \".+\" denied the request|ValidatingAdmissionPolicy '.+' denied request")
# A longer span may contain time that does not count.
_LONGEST_SPAN_SECONDS = 10.0
# How long a process may decide by what it knew before.
_OFF_SECONDS = 1.0


class _Handled(Protocol):
    """How a pod must be evicted."""

    @property
    def mode(self) -> EvictionMode:
        """The mode."""

    @property
    def timeout_seconds(self) -> float:
        """The patience."""


@dataclass
class _RefusedPod:
    """What one process has heard about one pod: when it was refused last, and the sum of the spans before.

    ``counts`` False: the next span adds nothing, as a virtual machine was moving away.
    """

    last_at: float
    seconds: float = 0.0
    counts: bool = True


class PatienceJudge:
    """Judges all processes. ``ways`` returns how a pod may have to be evicted, by its states since an instant."""

    def __init__(self, truth: Truth, ways: Callable[[str, float], Collection[_Handled]], breach: Breach) -> None:
        self._truth = truth
        self._ways = ways
        self._breach = breach
        self._refusals: dict[tuple[str, str], _RefusedPod] = {}

    def interrupt(self, process: str, uid: str | None = None) -> None:
        """Note that a process begins to lead, or (``uid``) has read that this pod is held back: its sums start anew."""
        for key in list(self._refusals):
            if key[0] == process and uid in (None, key[1]):
                del self._refusals[key]

    def trace(self, trace: Trace, moves: bool) -> None:
        """Judge one phase of a call to the eviction API; ``moves``: the virtual machine in the pod moves away."""
        if trace.call is not CallKind.EVICT or not trace.subject.startswith(f"{NAMESPACE}/"):
            return
        key = trace.process, trace.uid
        if trace.phase is Phase.SENT and (refusals := self._refusals.get(key)) is not None:
            self._check(trace, refusals)
        elif trace.phase is Phase.FAILED and isinstance(trace.body, CallFailed) and _refuses(trace.body):
            refusals = self._refusals.setdefault(key, _RefusedPod(trace.at))
            if self._has_changed(trace, refusals.last_at):
                refusals.seconds = 0.0
            if refusals.counts and not moves:
                refusals.seconds += min(trace.at - refusals.last_at, _LONGEST_SPAN_SECONDS)
            refusals.last_at, refusals.counts = trace.at, not moves

    def _check(self, trace: Trace, refusals: _RefusedPod) -> None:
        ways = self._ways(trace.uid, -NEVER)
        if self._has_changed(trace, refusals.last_at) or not ways:
            return
        patience = max(way.timeout_seconds for way in ways)
        patient = all(way.mode is EvictionMode.EVICT_THEN_DELETE for way in ways)
        if patient and refusals.seconds > patience + _OFF_SECONDS + TICK:
            self._breach("patience never ends", trace, f"refused for {refusals.seconds:.3f} s, patience {patience:g} s")

    def _has_changed(self, trace: Trace, since: float) -> bool:
        """Return whether the pod or its node has changed since, so that another eviction may have begun."""
        pods = self._truth.pod_states(trace.uid, since)
        nodes = self._truth.node_states(pods[-1].node or "", since) if pods else []
        return len({(node.uid, *node.taints.items()) for node in nodes if node}) != 1 or len(pods) != 1


def _refuses(failure: CallFailed) -> bool:
    return failure.block is not None or _DENIED.search(str(failure)) is not None
