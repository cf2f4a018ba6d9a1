"""The outcomes of pods that all reachable replicas remember, each pod once."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.asking import (
    SHADOW_LEASE,
    Ask,
    Document,
    Unanswered,
    asking_all,
    asking_at,
    may_be_dry_run,
    next_page,
)

_LABEL = "app.kubernetes.io/name=taint-eviction-controller"
# The replica that evicted the pod knows more than one that only saw the deletion.
_RANKS = ("evicted", "deleted", "gone", "blocked", "refused")


@dataclass
class Remembered:
    """The outcomes from all replicas that answered, the newest first, and why others did not answer."""

    outcomes: list[Document] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)


async def remembered(flags: Mapping[str, Any], query: Mapping[str, str | int]) -> Remembered:
    """Ask all replicas, or the one at --server; raise ``Unanswered`` if none answers.

    A dry run in the same namespace has the same labels and evicts no pod: it counts only if its Lease or URL is named,
    or if it is alone there.
    """
    async with contextlib.AsyncExitStack() as stack:
        if flags["server"]:
            asks = [await stack.enter_async_context(asking_at(flags["server"]))]
        else:
            asks = await stack.enter_async_context(asking_all(flags, _LABEL))
        answers = await asyncio.gather(*(_pages(ask, query) for ask in asks), return_exceptions=True)
    found, by_uid, name = Remembered(), dict[str, Document](), flags["lease_name"]
    heads = [answer[0] for answer in answers if not isinstance(answer, BaseException)]
    if may_be_dry_run(flags) and not any(_is_asked_for(head, name) for head in heads):
        name = SHADOW_LEASE
    for answer in answers:
        if isinstance(answer, Unanswered | CallFailed):
            found.unanswered.append(str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            head, outcomes = answer
            identity, dry_run = str(head["identity"]), head["dryRun"] is True
            if not flags["server"] and not _is_asked_for(head, name):
                what = "is a dry run" if dry_run else "belongs to another Lease"
                found.unanswered.append(f"{identity} {what}: --lease-name or --server asks it")
                continue
            found.answered.append(identity)
            for each in outcomes:
                known = by_uid.get(each["uid"])
                if known is None or _RANKS.index(each["outcome"]) < _RANKS.index(known["outcome"]):
                    by_uid[each["uid"]] = {"toldBy": identity, **each, "dryRun": dry_run}
    if not found.answered:
        raise Unanswered("; ".join(found.unanswered) or f"no pod has the label {_LABEL}: --server asks a replica")
    found.outcomes = sorted(by_uid.values(), key=lambda each: str(each["time"]), reverse=True)[: int(query["limit"])]
    return found


def _is_asked_for(head: Document, lease_name: str) -> bool:
    lease = head["lease"]
    # Without a Lease it runs alone.
    return not head["dryRun"] if lease is None else bool(lease["name"] == lease_name)


async def _pages(asking: Ask, query: Mapping[str, str | int]) -> tuple[Document, list[Document]]:
    """Return the first answer's head, and the outcomes of all pages."""
    page = head = await asking("/history", query)
    outcomes = list(page["outcomes"])
    while (token := next_page(page)) and (left := int(query["limit"]) - len(outcomes)) > 0:
        page = await asking("/history", {**query, "limit": left, "continue": token})
        outcomes += page["outcomes"]
    return head, outcomes
