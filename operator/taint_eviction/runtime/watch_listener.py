"""Passes the changes of one watch to the core as facts. Notes whether the watch is up and how far it has come.
This module does not restart the watch (``supervised_watch``) and does not read JSON (``Interpret``).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taint_eviction.core.facts import Fact, NodesHeard, PodSeen
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.ports import NodesScope, WatchScope

# Turns an object from a watch into a fact; None if it cannot be read (the function reports that itself).
Interpret = Callable[[WatchScope, str | None, Mapping[str, Any]], Fact | None]


class ObservingListener:
    """The listener of the watch of one scope (``ports.WatchListener``), over all restarts of that watch.

    ``watching`` is set while the watch is known to be up; ``gap`` when it has listed again, because it had a gap.
    ``up_at``: since when it is up, None: it is not, or has not been since it last ended. The task that restarts the
    watch clears these three. ``brought_at``: when it has last brought anything, a bookmark with a new version included,
    or was started: that a stream opens tells nothing of what happened, nor does a bookmark that repeats a version, as
    an API server sends them that hears nothing from etcd.
    """

    def __init__(self, scope: WatchScope, live: Live, interpret: Interpret) -> None:
        self.watching = asyncio.Event()
        self.gap = asyncio.Event()
        self.up_at: float | None = None
        self._scope = scope
        self._live, self._clock = live, live.clock
        self._interpret = interpret
        self._heard_at = self.brought_at = self._clock.now().at
        # The latest version up to which everything has been observed, and when: a newer object did not exist then.
        self._seen_up_to: tuple[int, float] | None = None

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Let the core observe what the watch brought."""
        now = self._clock.now()
        self.brought_at = now.at
        fact = self._interpret(self._scope, event_type, body)
        if isinstance(fact, PodSeen) and event_type == "ADDED" and self._seen_up_to is not None:
            version, at = self._seen_up_to
            if (fact.pod.resource_version or 0) > version:
                fact = replace(fact, absent_at=at)
        if fact is not None:
            self._live.observe(fact, now)

    def on_listed(self) -> None:
        """Note that the watch itself has listed: the first time at its start, later after a gap."""
        if self.watching.is_set():
            self.gap.set()
        else:
            self.up_at = self._clock.now().at
        self.watching.set()

    def on_heard(self) -> None:
        """Note that the watch is alive."""
        self._heard_at = self._clock.now().at

    def on_progress(self, version: int | None) -> None:
        """Note how far the watch has come; for the watch of nodes the core observes that, too."""
        now = self._clock.now()
        if version is None or version != self.seen_version:
            self.brought_at = now.at
        self.note_seen(version, now.at)
        if isinstance(self._scope, NodesScope):
            self._live.observe(NodesHeard(version), now)

    def note_seen(self, version: int | None, at: float) -> None:
        """Note that by ``at`` everything up to this version had been observed; None: up to an unknown one."""
        self._seen_up_to = None if version is None else (version, at)

    @property
    def seen_version(self) -> int | None:
        """The latest version up to which everything has been observed, None: that is not known."""
        return None if self._seen_up_to is None else self._seen_up_to[0]

    def has_seen(self, version: int) -> bool:
        """Return whether everything up to this version was observed, as far as that is known."""
        return self._seen_up_to is None or version <= self._seen_up_to[0]

    def silent_seconds(self) -> float:
        """Return for how long nothing was received: a quiet watch brings a bookmark about once a minute."""
        return self._clock.now().at - self._heard_at
