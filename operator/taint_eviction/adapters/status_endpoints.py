"""/status and /explain: what is asked for in a query, and the document that answers it.

An answer about many pods takes a while in which nothing else goes on, and whoever reaches the port may ask: so that is
bounded. Does not know what documents say (``status_document``), nor HTTP (``probe_server``).
"""

from collections.abc import Callable, Mapping

from taint_eviction.adapters.explanation_document import explanation_document, unknown_document
from taint_eviction.adapters.status_document import JsonObject, ProcessState, status_document
from taint_eviction.core.controller import Controller
from taint_eviction.core.dispatch import Pending
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName
from taint_eviction.runtime.ports import Clock

DEFAULT_LIMIT, MOST_PODS = 1000, 10_000

# Looking through all pods takes at most one part in so many of the time.
_PARTS = 10

Answer = tuple[int, JsonObject]


class StatusEndpoints:
    """Answers with HTTP status and document; ``process`` tells the state of this process."""

    def __init__(self, controller: Controller, clock: Clock, process: Callable[[], ProcessState]) -> None:
        self._controller = controller
        self._clock = clock
        self._process = process
        self._seen: tuple[Moment, list[Pending]] | None = None
        self._look_again_at = 0.0

    def status(self, query: Mapping[str, str]) -> Answer:
        """Answer ``?limit=N&namespace=NS``; both may be left out."""
        limit, namespace = query.get("limit", str(DEFAULT_LIMIT)), query.get("namespace")
        if not limit.isascii() or not limit.isdecimal() or len(limit) > 9:
            return 400, {"error": f"limit should be a number of pods, not {limit!r}"}
        now, pending = self._pending()
        if namespace:
            pending = [each for each in pending if each.known.pod.ref.key.namespace == namespace]
        return 200, status_document(self._controller, pending, self._process(), now, min(int(limit), MOST_PODS))

    def explain(self, query: Mapping[str, str]) -> Answer:
        """Answer ``?pod=NS/NAME``."""
        namespace, _, name = query.get("pod", "").partition("/")
        if not namespace or not name or "/" in name:
            return 400, {"error": "which pod? as in /explain?pod=NAMESPACE/NAME"}
        key, now, process = NamespacedName(namespace, name), self._clock.now(), self._process()
        explanation = self._controller.explain(key, now)
        if explanation is None:
            return 200, unknown_document(key, process, now)
        return 200, explanation_document(explanation, self._controller, process, now)

    def _pending(self) -> tuple[Moment, list[Pending]]:
        """Return the pending pods, the most overdue first, as they are now or were a little while ago."""
        now = self._clock.now()
        if self._seen is None or now.at >= self._look_again_at:
            pending = sorted(self._controller.pending(now), key=_order)
            done_at = self._clock.now().at
            self._seen = now, pending
            self._look_again_at = done_at + (_PARTS - 1) * (done_at - now.at)
        return self._seen


def _order(pending: Pending) -> tuple[float, NamespacedName]:
    return pending.decision.fire_at, pending.known.pod.ref.key
