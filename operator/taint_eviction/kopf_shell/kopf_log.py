"""Kopf's log, brought into ours: one line each, no tracebacks, and no more than a few a minute.

Every end of a watch is told once, as its reason (``WatchEnded``), by whoever supervises it. Kopf tells of the same end
three to five times with tracebacks, and of each attempt of each request of each of hundreds of watches.
"""

import logging

from taint_eviction.kopf_shell.endings import one_line

_ours = logging.getLogger("taint_eviction.kopf_shell.kopf")
_SAME_AFTER_SECONDS = 30.0


class KopfLogRelay(logging.Handler):
    """Passes Kopf's warnings on, and of those from the same line of Kopf's code one in half a minute.

    Failures with a traceback are the ends of watches, and are passed on at DEBUG only, as one line too.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._passed_on_at: dict[tuple[str, int], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a record, or not."""
        message = one_line(record.getMessage())
        if record.exc_info:
            _ours.debug("%s", message)
            return
        place = record.pathname, record.lineno
        last = self._passed_on_at.get(place)
        if last is not None and 0 <= record.created - last < _SAME_AFTER_SECONDS:
            _ours.debug("%s", message)
            return
        self._passed_on_at[place] = record.created
        _ours.warning("%s", message)


def relay_kopf_log() -> None:
    """Let Kopf log through this room; may be called again."""
    kopf_log = logging.getLogger("kopf")
    # Below WARNING it would make, format and drop several records for each event.
    kopf_log.setLevel(logging.WARNING)
    kopf_log.propagate = False
    if not any(isinstance(handler, KopfLogRelay) for handler in kopf_log.handlers):
        kopf_log.addHandler(KopfLogRelay())
