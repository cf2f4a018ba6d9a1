"""Known mistakes about refusals of the eviction API, owners' holds, and dry runs; see ``known_bugs``."""

import dataclasses
from collections.abc import Sequence

import pytest

from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import Decision, DecisionPolicy, SeenTaint, decide
from taint_eviction.core.effects import Effect, Eviction, Failed
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.failed_attempts import FailedAttempts
from taint_eviction.core.instants import Moment, Sighting
from taint_eviction.core.objects import Pod
from taint_eviction.core.pod_record import UNDECIDED, Deleted

# An answer that comes this much later than planned was a stall.
_STALL_SECONDS = 2.0


def webhooks_refuse_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Only budgets refuse: a webhook that denies an eviction is a failure that never ends the patience."""
    patch.setattr(Failed, "refuses", property(lambda self: self.block is not None))


def other_answers_end_patience(patch: pytest.MonkeyPatch) -> None:
    """An answer to the eviction API that is no refusal starts the sum of the patience anew."""
    and_then = FailedAttempts.and_then

    def anew(self: FailedAttempts, work: Eviction, outcome: Failed, sent: bool, now: Moment) -> FailedAttempts:
        failures = and_then(self, work, outcome, sent, now)
        return failures if outcome.refuses or not work.by_eviction_api else failures.without_refusals

    patch.setattr(FailedAttempts, "and_then", anew)


def stalls_end_patience(patch: pytest.MonkeyPatch) -> None:
    """A span that is longer than planned starts the sum of the patience anew."""
    after = FailedAttempts._after_refusal

    def anew(self: FailedAttempts, now: Moment) -> FailedAttempts:
        late = self.refused_at is not None and now.at - self.refused_at > self.planned_seconds + _STALL_SECONDS
        return dataclasses.replace(after(self, now), refused_seconds=0.0) if late else after(self, now)

    patch.setattr(FailedAttempts, "_after_refusal", anew)


def owners_hold_what_is_off(patch: pytest.MonkeyPatch) -> None:
    """The hold of a pod's owner counts on a node that is out of service, too."""

    def held(
        pod: Pod,
        bound: Sighting | None,
        taints: Sequence[SeenTaint] | None,
        policy: DecisionPolicy,
        *,
        shutting_down: bool = False,
        out_of_service: bool = False,
    ) -> Decision:
        return decide(pod, bound, taints, policy, shutting_down=shutting_down)

    patch.setattr("taint_eviction.core.deciding.decide", held)


def dry_runs_repeat(patch: pytest.MonkeyPatch) -> None:
    """In a dry run, a later list that shows the pod makes its eviction due again."""
    seen = Controller._pod_seen

    def forget(self: Controller, fact: PodSeen, now: Moment) -> list[Effect]:
        effects = seen(self, fact, now)
        record = self.pods.find(fact.pod.ref)
        if record is not None and isinstance(record.state, Deleted) and (fact.asked_at or 0.0) > record.state.at + 5.0:
            record.state, record.reported_fire_at = UNDECIDED, None
            effects += self._deciding.redecide(record, now)
        return effects

    patch.setattr(Controller, "_pod_seen", forget)
