"""When pauses end: on the monotonic clock, converted once, as deadlines are (``instants``). Pauses are dated by the API
server's clock. A pause that this process knows ends in time even if that clock is stepped. A pause that seems to begin
later than now begins when it is first read. A process that starts has only the dates, and uses none while it does not
know the API server's time.
"""

from collections.abc import Mapping
from dataclasses import replace

from taint_eviction.core.control_state import ControlState, Pause, PauseScope
from taint_eviction.core.instants import Moment

# The known time of the API server moves by less than this if nobody steps its clock.
_TOLERATED_SECONDS = 2.0


class PauseEnds:
    """Remembers when each known pause with an end began."""

    def __init__(self) -> None:
        # The instant by scope and by the date that counts.
        self._dated: Mapping[tuple[PauseScope, float], float] = {}

    def as_counted(self, control_state: ControlState, now: Moment) -> ControlState:
        """Return the control state with the ends of pauses that count, by the API server's clock at ``now``."""
        if not now.dates_objects:
            return control_state
        dated: dict[tuple[PauseScope, float], float] = {}
        moved: dict[PauseScope, Pause] = {}
        for scope, pause in control_state.pauses().items():
            if pause.until_epoch is None:
                continue
            epoch, at = pause.until_epoch, now.instant_of(pause.until_epoch)
            if pause.since_epoch is not None:
                epoch, at = pause.since_epoch, min(now.at, now.instant_of(pause.since_epoch))
            dated[scope, epoch] = at = self._dated.get((scope, epoch), at)
            until = now.epoch_of(at) + (pause.until_epoch - epoch)
            if abs(until - pause.until_epoch) > _TOLERATED_SECONDS:
                moved[scope] = replace(pause, until_epoch=until)
        self._dated = dated
        return control_state.with_pauses(moved) if moved else control_state
