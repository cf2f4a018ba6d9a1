"""How a running controller is doing: for the liveness probe, and for people who ask for its status."""

from collections.abc import Callable, Iterable, Iterator

from taint_eviction.runtime.control_state_sync import ControlStateSync
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.leadership import Elector

# A loop that runs twice a second and has not run for this long is dead or unusable.
_MAX_BEAT_SECONDS = 30.0
_MAX_EXPIRED_SECONDS = 20.0

# The control state is read every other second.
_CONTROL_STATE_OLD_SECONDS = 10.0


class Health:
    """Judges the parts of one controller.

    ``elector`` None: it runs alone. ``control_state`` None: evictions cannot be paused. ``policy_invalid`` returns
    whether the policy file is rejected or unreadable. ``restart_helps`` returns why a new process would get on with the
    API server where this one does not, None: it would not. ``connection_warnings`` yields what is wrong with the
    connection.
    ``policy_problem`` returns what is wrong with the admission policy, "" for nothing. ``history_unkept_seconds``
    returns for how long the last outcomes could not be kept. ``records_ended`` returns why journal or audit log are no
    longer written.
    """

    def __init__(
        self,
        driver: Driver,
        elector: Elector | None,
        control_state: ControlStateSync | None,
        policy_invalid: Callable[[], bool],
        *,
        restart_helps: Callable[[], str | None],
        connection_warnings: Callable[[], Iterable[str]],
        policy_problem: Callable[[], str],
        history_unkept_seconds: Callable[[], float],
        records_ended: Callable[[], Iterable[str]],
    ) -> None:
        self._driver = driver
        self._elector = elector
        self._control_state = control_state
        self._policy_invalid = policy_invalid
        self._restart_helps = restart_helps
        self._connection_warnings = connection_warnings
        self._policy_problem = policy_problem
        self._history_unkept_seconds = history_unkept_seconds
        self._records_ended = records_ended

    def liveness(self) -> tuple[bool, str]:
        """Return whether the loop still runs, and if not, why; an unreachable API server is no reason to restart."""
        if (age := self._driver.beat_age_seconds()) > _MAX_BEAT_SECONDS:
            return False, f"the driving loop has not run for {age:.0f} s"
        if self._elector is not None and (expired := self._elector.expired_seconds()) > _MAX_EXPIRED_SECONDS:
            return False, f"believes to lead though its lease expired {expired:.0f} s ago"
        if (why := self._restart_helps()) is not None:
            return False, why
        return True, "ok"

    def warnings(self) -> Iterator[str]:
        """Yield what is wrong although the controller works, one sentence each."""
        if self._policy_invalid():
            yield "the policy file is rejected or cannot be read, and the previous policy stays in force: see the log"
        yield from self._connection_warnings()
        if problem := self._policy_problem():
            yield problem
        yield from self._records_ended()
        if unkept := self._history_unkept_seconds():
            yield f"the last outcomes could not be kept for {unkept:.0f} s: after a restart, history lacks them"
        if self._control_state is None:
            return
        if (age := self._control_state.age_seconds()) > _CONTROL_STATE_OLD_SECONDS:
            yield f"pauses and breaker have not been read for {age:.0f} s: what was last read stays in force"
        if unwritten := self._control_state.unwritten_seconds():
            yield f"pauses or breaker could not be written for {unwritten:.0f} s: a restart loses what was not"
