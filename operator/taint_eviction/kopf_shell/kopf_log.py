"""Kopf's log as part of the controller's log: one line for each record, no tracebacks, and a limited number of lines.

The supervisor of a watch logs its end once (``WatchEnded``). Kopf logs the same end three to five times with
tracebacks, and each attempt of each request of each of hundreds of watches.
"""

import logging

from taint_eviction.core.text import one_line

_ours = logging.getLogger("taint_eviction.kopf_shell.kopf")
_REPEATED_AFTER_SECONDS = 30.0


class KopfLogRelay(logging.Handler):
    """Passes on Kopf's warnings; of those from the same line of Kopf's code one every 30 seconds.

    Records with a traceback report the end of a watch. They are passed on at DEBUG, as one line without the traceback.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._passed_on_at: dict[tuple[str, int], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a record at its level or at DEBUG."""
        message = one_line(record.getMessage())
        if record.exc_info:
            _ours.debug("%s", message)
            return
        place = record.pathname, record.lineno
        last = self._passed_on_at.get(place)
        if last is not None and 0 <= record.created - last < _REPEATED_AFTER_SECONDS:
            _ours.debug("%s", message)
            return
        self._passed_on_at[place] = record.created
        _ours.warning("%s", message)


def relay_kopf_log() -> None:
    """Make Kopf log through this module. May be called again."""
    kopf_log = logging.getLogger("kopf")
    # Below WARNING Kopf would create, format and drop several records for each event.
    kopf_log.setLevel(logging.WARNING)
    kopf_log.propagate = False
    if not any(isinstance(handler, KopfLogRelay) for handler in kopf_log.handlers):
        kopf_log.addHandler(KopfLogRelay())
