"""/status, /explain and /compare: reads the query and returns the document.

Other modules make the documents (``status_document``, ``explanation_document``) and the pages of pods
(``pending_pages``), and serve HTTP (``probe_server``).
"""

from collections.abc import Callable, Mapping

from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.status import Status
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.release_query import read_release, release_document
from taint_eviction.reporting.comparisons import MAX_NAMES, comparison_fields
from taint_eviction.reporting.explanation_document import explanation_document, unknown_document
from taint_eviction.reporting.pending_pages import MAX_PODS, Busy, PendingPages, Place
from taint_eviction.reporting.status_document import (
    ProcessState,
    document_head,
    state_of,
    status_document,
    status_row,
    time_text,
)
from taint_eviction.runtime.ports import Clock
from taint_eviction.shadow.shadow import Shadow

# HTTP status and document.
Answer = tuple[int, JsonObject]


class StatusEndpoints:
    """Answers with HTTP status and document.

    ``process`` returns the state of this process, ``recent`` the recent evictions in a namespace, None: in all.
    ``shadow`` None: this is not a dry run.
    """

    def __init__(
        self,
        status: Status,
        clock: Clock,
        process: Callable[[], ProcessState],
        shadow: Shadow | None = None,
        recent: Callable[[Moment, str | None], JsonObject | None] = lambda _now, _namespace: None,
    ) -> None:
        self._status = status
        self._shadow = shadow
        self._clock = clock
        self._process = process
        self._recent = recent
        self._pages = PendingPages(status, clock, state_of)

    async def status(self, query: Mapping[str, str]) -> Answer:
        """Answer ``?limit=N&namespace=NS&continue=TOKEN&release=JSON``; each part is optional.

        The document's ``continue`` is the token for the following pods; None if there are no more. With a release, only
        the pods that it would let go are counted and listed, and the document has it, as it was understood.
        """
        limit, after, release = query.get("limit", str(MAX_PODS)), None, None
        if not limit.isascii() or not limit.isdecimal() or len(limit) > 9:
            return 400, {"error": f"limit must be a number of pods, not {limit!r}"}
        if token := query.get("continue"):
            try:
                after = Place.parse(token)
            except ValueError:
                return 400, {"error": f"continue must be the token of an earlier answer, not {token!r}"}
        if text := query.get("release"):
            try:
                release = read_release(text)
            except ValueError as error:
                return 400, {"error": str(error)}
        process, namespace = self._process(), query.get("namespace") or None
        try:
            page = await self._pages.page(
                int(limit),
                namespace,
                after,
                lambda pending, now: status_row(pending, self._status, process, now),
                release,
            )
        except Busy:
            return 503, {"error": "too many requests at the moment: try again"}
        document = status_document(self._status, page, process)
        if release is not None:
            numbers = {"stillHeld": page.still_held, "withoutOwner": page.without_owner}
            document |= {"release": release_document(release), **numbers}
        return 200, {**document, "evictedLately": self._recent(page.now, namespace)}

    async def explain(self, query: Mapping[str, str]) -> Answer:
        """Answer ``?pod=NS/NAME``."""
        namespace, _, name = query.get("pod", "").partition("/")
        if not namespace or not name or "/" in name:
            return 400, {"error": "pod is missing: use /explain?pod=NAMESPACE/NAME"}
        key, now, process = NamespacedName(namespace, name), self._clock.now(), self._process()
        explanation = self._status.explain(key, now)
        if explanation is None:
            return 200, unknown_document(key, self._status, process, now)
        return 200, explanation_document(explanation, self._status, process, now)

    async def compare(self, query: Mapping[str, str]) -> Answer:
        """Answer ``?pods=NS/NAME,NS/NAME``, which is optional, with the comparisons of a dry run.

        The document's ``notFollowed`` has the names of which this process has followed no pod since ``followedSince``.
        """
        shadow, now = self._shadow, self._clock.now()
        if shadow is None:
            return 404, {"error": "only a dry run compares: ask the replica that runs with --dry-run"}
        names = [name for name in query.get("pods", "").split(",") if name]
        if len(names) > MAX_NAMES:
            return 400, {"error": f"pods has more than {MAX_NAMES} names"}
        unknown = [name for name in names if not shadow.has_followed(NamespacedName(*name.partition("/")[::2]))]
        since = time_text(now.at if shadow.begun_at is None else shadow.begun_at, now)
        found = comparison_fields(shadow.totals, shadow.outstanding(now), shadow.unseen, now.server_epoch)
        followed = {"followedSince": since, "notFollowed": unknown}
        return 200, {**document_head("Comparison", self._process(), now), **found, **followed}
