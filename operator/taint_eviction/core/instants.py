"""Instants: seconds on this process's monotonic clock, and how an object's time becomes one.

Sightings, deadlines and waits use instants. An object's time (API server's clock, truncated to whole seconds) is
converted once, with the anchor known at that moment. A more precise anchor or a stepped clock never moves it later, so
a running countdown is never shortened. This module reads no clock: only ``runtime.clock`` does.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

# Object times are truncated to whole seconds: the true time is at most this much later.
TRUNCATION_SECONDS = 1.0

# The server's true time is at most this much ahead of what is known of it: dates of answers are truncated, and travel.
BEHIND_SECONDS = 2.0

# How long a request may be decided after its sender has stopped waiting for it, or is gone; a look that begins later
# misses none.
LATE_WRITE_SECONDS = 75.0

# Longer than the life of any cluster, and safe in every date type: a toleration may have any int64 as its seconds.
FAR_FUTURE_SECONDS = 100 * 365 * 24 * 3600.0


class Moment(NamedTuple):
    """Now, twice: ``at``, an instant; ``server_epoch``, the API server's time in seconds since the epoch.

    ``server_epoch`` is never ahead of the server's true time as long as its answers are right. ``dates_objects`` False:
    it is only this host's time, because the API server's is not known yet; it may not be compared with objects' times,
    nor with the end of a pause.
    """

    at: float
    server_epoch: float
    dates_objects: bool = True

    @property
    def passed_epoch(self) -> float:
        """The time of the server's clock by which dates are over; minus infinity while that is not known."""
        return self.server_epoch if self.dates_objects else -math.inf

    def instant_of(self, epoch: float) -> float:
        """Convert a time of the server's clock (seconds since the epoch) to an instant."""
        return self.at + (epoch - self.server_epoch)

    def epoch_of(self, instant: float) -> float:
        """Convert an instant to the server's clock, to show it to people."""
        return self.server_epoch + (instant - self.at)


class TimeSource(Enum):
    """The source of the time at which a taint or a binding began."""

    TIME_ADDED = "timeAdded"
    MANAGED_FIELDS = "managedFields"
    POD_SCHEDULED = "PodScheduled condition"
    START_TIME = "status.startTime"
    CREATION = "creationTimestamp"
    FIRST_SIGHT = "first sight"
    LAST_ABSENT = "last sight without it"
    OUTAGE = "start of the outage"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Since when something has been so: never too early.

    ``start_at`` is min(first sighting by this process, object time + 1 s), and never before it was last seen not to be
    so, unless it continues an outage (``outages``); ``source`` says which of these decided; ``object_time`` is the
    newest object time that the watch, or a list after a gap, has shown since, None if the object has none.
    """

    start_at: float
    source: TimeSource
    object_time: float | None


def sight(
    now: Moment, object_time: float | None, object_source: TimeSource, absent_at: float = float("-inf")
) -> Sighting:
    """Make a first sighting at ``now`` of something that its object dates to ``object_time`` (epoch seconds or None).
    The object's time plus its truncation counts if it is earlier: after a restart the countdown continues from it. A
    time in the future never delays the start beyond what this process saw itself. While the API server's time is not
    known, no date counts. An observation overrides a date: at
    ``absent_at`` it was not so yet, whatever the object says.
    """
    if object_time is not None and now.dates_objects:
        from_object = now.instant_of(object_time + TRUNCATION_SECONDS)
        if from_object < now.at:
            if from_object < absent_at:
                return Sighting(absent_at, TimeSource.LAST_ABSENT, object_time)
            return Sighting(from_object, object_source, object_time)
    return Sighting(now.at, TimeSource.FIRST_SIGHT, object_time)
