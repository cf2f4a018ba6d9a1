"""/history: the outcomes of pods, the newest first, in pages; and the recent evictions in /status.
The outcomes are searched in slices, one request after the other, because any client that reaches the port may ask. This
module does not keep the outcomes (``outcome_memory``), and does not serve HTTP (``probe_server``).
"""

import asyncio
import math
from collections.abc import Callable, Mapping

from taint_eviction.core.instants import Moment
from taint_eviction.core.text import JsonObject
from taint_eviction.files.kubernetes_times import format_rfc3339, parse_rfc3339
from taint_eviction.reporting.outcome_memory import AnyOutcome, OutcomeMemory
from taint_eviction.reporting.status_document import ProcessState, document_head
from taint_eviction.runtime.ports import Clock

MAX_ROWS = 1000
RECENT_SECONDS = 300
_MAX_GROUPS = 20
_SLICE = 200
_MAX_WAITING = 16


class HistoryEndpoint:
    """Answers with HTTP status and document. ``process`` returns the state of this process; ``restored_from`` the
    ConfigMap whose outcomes the memory has, None: it has none.
    """

    def __init__(
        self,
        memory: OutcomeMemory,
        clock: Clock,
        process: Callable[[], ProcessState],
        restored_from: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._process = process
        self._restored_from = restored_from
        self._turn = asyncio.Lock()
        self._inside = 0

    async def history(self, query: Mapping[str, str]) -> tuple[int, JsonObject]:
        """Answer ``?limit=N&pod=NS/NAME&uid=U&node=N&namespace=NS&taint=KEY&since=TIME&until=TIME&continue=TOKEN``, all
        optional.

        The document's ``continue`` is the token for the following outcomes; None if there are no more.
        """
        limit, token = query.get("limit", str(MAX_ROWS)), query.get("continue")
        if not _is_number(limit):
            return 400, {"error": f"limit must be a number of outcomes, not {limit!r}"}
        if token is not None and not _is_number(token):
            return 400, {"error": f"continue must be the token of an earlier answer, not {token!r}"}
        now = self._clock.now()
        bounds = {"since": 0.0, "until": math.inf}
        for name in bounds:
            if text := query.get(name):
                epoch = parse_rfc3339(text)
                if epoch is None:
                    return 400, {"error": f"{name} must be a time as 2030-01-31T14:00:00Z, not {text!r}"}
                bounds[name] = epoch
        if self._inside > _MAX_WAITING:
            return 503, {"error": "too many requests at the moment: try again"}
        self._inside += 1
        try:
            async with self._turn:
                before = None if token is None else int(token)
                span = now.instant_of(bounds["since"]), now.instant_of(bounds["until"])
                rows, last = await self._page(min(int(limit), MAX_ROWS), before, span, now, query)
        finally:
            self._inside -= 1
        return 200, {
            **document_head("History", self._process(), now),
            "remembered": len(self._memory),
            "rememberedSince": format_rfc3339(now.epoch_of(self._memory.since_at)),
            "restoredFrom": self._restored_from(),
            "forgotten": self._memory.forgotten,
            "outcomes": rows,
            "continue": last and str(last),
        }

    async def _page(
        self, limit: int, before: int | None, span: tuple[float, float], now: Moment, query: Mapping[str, str]
    ) -> tuple[list[JsonObject], int | None]:
        rows: list[JsonObject] = []
        last, (since_at, until_at) = None, span
        # A copy: the memory may change while other tasks run.
        for count, each in enumerate(list(self._memory.newest(before)), 1):
            if each.at < since_at:
                break
            if each.at <= until_at and _fits(each, query):
                if len(rows) == limit:
                    return rows, last
                rows.append(each.document(now))
                last = each.number
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        return rows, None

    def recent(self, now: Moment, namespace: str | None = None) -> JsonObject:
        """Return for /status how many pods were evicted recently, by node and taint, the largest number first.

        ``namespace`` None: of all namespaces.
        """
        counts = self._memory.went_since(now.at - RECENT_SECONDS, namespace)
        shown = counts.most_common(_MAX_GROUPS)
        gone, per_second = self._memory.storm(now.at, namespace)
        return {
            "withinSeconds": RECENT_SECONDS,
            "total": counts.total(),
            "groups": [{"node": node, "taint": key, "pods": pods} for (node, key), pods in shown],
            "moreGroups": len(counts) - len(shown),
            "storm": {"gone": gone, "perSecond": round(per_second, 1)},
        }


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12


def _fits(each: AnyOutcome, query: Mapping[str, str]) -> bool:
    key = each.ref.key
    facts = (
        ("pod", str(key)),
        ("uid", each.ref.uid),
        ("node", each.node_name),
        ("namespace", key.namespace),
        ("taint", each.taint_key),
    )
    return all(query.get(name, fact) == fact for name, fact in facts)
