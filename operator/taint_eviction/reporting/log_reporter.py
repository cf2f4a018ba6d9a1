"""One log line for each event: a sentence for people, structured fields (``extra``) for machines.

Deadlines are times of the API server's clock, with the source of the time at which they started: the log alone must
answer why a pod is evicted at that time. The field ``what`` names the kind of line in one word. An eviction that fails
again and again is logged at its 1st, 2nd, 4th, 8th… failure. Every replica sees the changes of nodes and pods; a
standby logs them at DEBUG, so that the logs of all replicas together contain them once. In a storm, each node has one
line per second (``eviction_storm``).
"""

import logging
from typing import Any

from taint_eviction.core.events import BreakerOpened, Event, Evicted, Refused, Times
from taint_eviction.core.instants import Moment
from taint_eviction.core.text import many
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.reporting.eviction_storm import EvictionStorm, StormTally
from taint_eviction.reporting.status_document import utc_text
from taint_eviction.runtime.ports import Gate

logger = logging.getLogger(__name__)

# What each replica logs; of all else that every replica sees, only the one that leads.
_LOGGED_BY_ALL = frozenset({"paused", "resumed", "breaker_opened", "breaker_closed"})

# Fields of events that are called otherwise here, and those that are left out.
_NAMES = {"due_at": "deadline", "deleted_late_seconds": "late_seconds"}
_LEFT_OUT = frozenset({"held_seconds", "tolerations", "retry_at", "since_epoch"})
# The fields that come first.
_FIRST = ("what", "tries", "error", "reason", "cause", "controller")
_WHEN_FIRST = ("deadline", "late_seconds", "reason", "tries", "error", "what", "block", "budget")
_ORDER: dict[str, tuple[str, ...]] = dict.fromkeys(("scheduled", "cancelled", "evicted", "refused"), _WHEN_FIRST)
_ORDER["eviction_loop"] = ("what", "controller", "taint")


class LogReporter:
    """Writes the log. ``gate`` tells whether this replica is a standby. ``dry_run`` marks each line.

    ``has_breaker``: this process has a circuit breaker. Without one it still obeys a breaker that is found open.
    """

    def __init__(self, gate: Gate, dry_run: bool = False, has_breaker: bool = True) -> None:
        self._gate = gate
        self._has_breaker = has_breaker
        self._dry_run = dry_run
        self._storm = EvictionStorm(self._stormed)

    def report(self, event: Event, now: Moment) -> None:
        """Log an event."""
        level = logging.INFO if event.usual else logging.WARNING
        quiet = not (event.own or event.name in _LOGGED_BY_ALL or self._gate.may_act())
        match event:
            case Evicted():
                quiet = self._storm.takes(event.node_name, now.at)
            case Refused():
                told = event.tries & (event.tries - 1) == 0
                quiet = self._storm.takes(event.node_name, now.at, refusal=event.message, told=told)
                if not told:
                    return
            case _:
                pass
        level = logging.DEBUG if quiet else level
        if not logger.isEnabledFor(level):
            return  # In a storm most of these lines are not logged, so their text need not be built.
        text = event.sentence(Times(now, utc_text), self._dry_run)
        if isinstance(event, BreakerOpened) and not self._has_breaker:
            text += ", although no breaker is configured: it holds until taint-eviction breaker reset"
        logger.log(level, text, extra=_fields(event, now))

    def _stormed(self, node_name: str, tally: StormTally, over: bool) -> None:
        logger.log(
            logging.WARNING if tally.refused else logging.INFO,
            "%s%s%s: %s evicted in %.1f s, %d refused%s",
            "dry run: " if self._dry_run else "",
            "the storm is over: " if over else "",
            node_name,
            many(tally.evicted, "pod"),
            tally.seconds,
            tally.refused,
            f" (the last: {tally.refusal})" if tally.refused else "",
            extra={
                "what": "storm_over" if over else "storm",
                "node": node_name,
                "evicted": tally.evicted,
                "refused": tally.refused,
                **({"error": tally.refusal} if tally.refused else {}),
            },
        )


def _fields(event: Event, now: Moment) -> dict[str, Any]:
    """Return the fields of an event by their published names, in their published order."""
    found = {_NAMES.get(name, name): value for name, value in event.fields().items() if name not in _LEFT_OUT}
    if "deadline" in found:
        found["deadline"] = format_rfc3339(now.epoch_of(found["deadline"]))
    found["what"] = event.name
    return {name: found[name] for name in (*_ORDER.get(event.name, _FIRST), *found) if name in found}
