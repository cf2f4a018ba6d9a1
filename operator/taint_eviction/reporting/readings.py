"""What metrics read from the parts of a running controller when they are scraped."""

from collections import Counter
from collections.abc import Callable, Mapping

from taint_eviction.core.instants import Moment
from taint_eviction.core.pods import FailedAttempts
from taint_eviction.reporting.metrics import Readings
from taint_eviction.reporting.outcome_keeper import OutcomeKeeper
from taint_eviction.runtime.adopter import Adopter
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.ports import Gate


def readings_of(
    engine: Engine,
    clock: ServerClock,
    gate: Gate,
    *,
    policy_invalid: Callable[[], bool],
    credential_failures: Callable[[], int],
    certificate_ends: Callable[[], Mapping[str, float]],
    keeper: OutcomeKeeper | None,
) -> Readings:
    """Return the readings of one controller; ``keeper`` None: no outcomes are kept.

    Only the leader reports what waits and what fails. A standby that led before remembers its attempts, and would
    report a failure for as long as that pod exists.
    """
    controller, control_state = engine.live.controller, engine.control_state
    adopter, policy_check = engine.adopter, engine.policy_check
    status, breaker = controller.status, controller.breaker

    def failures(unblocked_at: Moment | None = None) -> list[FailedAttempts]:
        return status.failures(unblocked_at=unblocked_at) if gate.may_act() else []

    def longest_blocked_seconds() -> float:
        now = clock.now()
        return max((now.at - each.since_at for each in failures(now) if not each.evacuates), default=0.0)

    def blocked() -> Mapping[str, float]:
        return Counter(each.block.reason.value for each in failures() if each.block is not None)

    def waiting() -> Mapping[str, float]:
        counts = status.waiting_counts(clock.now()) if gate.may_act() else {}
        return {reason.name.lower(): count for reason, count in counts.items()}

    def newly_tainted() -> dict[str, float]:
        surge = status.surge(clock.now())
        return {"node-lifecycle-controller": surge.lifecycle_nodes, "others": surge.nodes}

    def eviction_loops() -> float:
        return status.loop_count(clock.now())

    def of_leader(count: Callable[[Adopter], float]) -> Callable[[], float]:
        return lambda: count(adopter) if adopter is not None and gate.may_act() else 0.0

    return Readings(
        pending=status.pending_count,
        retrying=lambda: len(failures()),
        longest_blocked_seconds=longest_blocked_seconds,
        synced=engine.synced,
        watch_ages=engine.silences,
        clock_offset_seconds=clock.host_offset_seconds,
        clock_disagreement_seconds=clock.disagreement_seconds,
        leading=gate.may_act,
        due=status.due_count,
        blocked=blocked,
        waiting=waiting,
        tainted_nodes=lambda: len(controller.tainted_nodes()),
        eviction_loops=eviction_loops,
        breaker_open=lambda: breaker.latch is not None,
        newly_tainted=newly_tainted,
        pauses=controller.guards.pauses,
        orders_age_seconds=lambda: 0.0 if control_state is None else control_state.age_seconds(),
        breaker_unwritten_seconds=lambda: 0.0 if control_state is None else control_state.unwritten_seconds(),
        policy_invalid=policy_invalid,
        credential_failures=credential_failures,
        certificate_ends=certificate_ends,
        ready_out_of_service=status.ready_out_of_service_count,
        adopted=of_leader(Adopter.adopted_count),
        adoption_refused=of_leader(lambda it: len(it.refused())),
        not_given_back=of_leader(lambda it: len(it.not_given_back())),
        lost_notes=of_leader(lambda it: len(it.lost_notes())),
        admission_policy_missing=lambda: policy_check is not None and policy_check.in_force is False,
        adoption_policy_unconfirmed=of_leader(lambda it: bool(it.policy_problem)),
        history_unkept_seconds=lambda: 0.0 if keeper is None else keeper.unkept_seconds(),
    )
