"""The outcomes of pods from all that knows them, each pod once: the replicas that answer, the ConfigMap that the leader
keeps, and Kubernetes' events.
"""

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from taint_eviction.core.sentences import replica_name
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.asking import (
    NOT_OURS,
    SHADOW_LEASE,
    Ask,
    Document,
    Unanswered,
    asking_all,
    asking_at,
    may_be_dry_run,
    next_page,
)
from taint_eviction_ctl.cli.history_sources import Source, event_outcomes, kept_outcomes

_LABEL = "app.kubernetes.io/name=taint-eviction-controller"
# The replica that evicted the pod knows more than one that only saw the deletion.
_RANKS = ("evicted", "deleted", "gone", "blocked", "refused", "marked")
_ENDS = frozenset({"evicted", "deleted", "gone"})
# The built-in controller posts its event right before the deletion, dated in whole seconds.
_ECHO_SECONDS = 2.0


@dataclass
class Remembered:
    """The outcomes, the newest first; ``answered`` has the replicas that answered, ``unanswered`` why others did not.

    ``sources``: who knows outcomes, and from when on.
    """

    outcomes: list[Document] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)


async def remembered(flags: Mapping[str, Any], query: Mapping[str, str | int]) -> Remembered:
    """Ask all replicas, or the one at --server alone; raise ``Unanswered`` if nobody answers and nothing can be read.

    A dry run in the same namespace has the same labels and evicts no pod: it counts only if its Lease or URL is named,
    or if it is alone there.
    """
    answers, are_all = await _answers(flags, query)
    found, by_uid, name = Remembered(), dict[str, Document](), flags["lease_name"]
    heads = [answer[0] for answer in answers if not isinstance(answer, BaseException)]
    if may_be_dry_run(flags) and not any(_is_asked_for(head, name) for head in heads):
        name = SHADOW_LEASE if any(_is_asked_for(head, SHADOW_LEASE) for head in heads) else name
    restored, listed = False, list[list[Document]]()
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
                found.unanswered.append(f"{replica_name(identity)} {what}: --lease-name or --server asks it")
                continue
            found.answered.append(identity)
            listed.append(outcomes)
            # A controller of another version may not say it.
            since, restored_from = head.get("rememberedSince"), head.get("restoredFrom")
            found.sources.append(Source(identity, since=since, restored_from=restored_from))
            restored = restored or (head.get("leading") is True and head.get("restoredFrom") is not None)
            for each in outcomes:
                _add(by_uid, {"keptBy": identity, "toldBy": identity, **each, "dryRun": dry_run}, query)
    if not flags["server"]:
        await _read_sources({**flags, "lease_name": name}, query, found, by_uid, restored=restored)
    if not found.answered and not by_uid and not any(each.lasting and not each.problem for each in found.sources):
        away = [answer for answer in answers if isinstance(answer, Unanswered) and answer.away]
        if away and all(source.away for source in found.sources):
            raise away[0]  # All of them have failed for this one reason.
        why = [*found.unanswered, *(f"{source.name}: {source.problem}" for source in found.sources if source.problem)]
        raise Unanswered("; ".join(why) or f"no pod has the label {_LABEL}: --server asks a replica")
    newest = _without_older_events(by_uid.values(), listed, int(query["limit"]))
    told = _without_echoes(sorted(newest, key=lambda each: str(each["time"]), reverse=True))
    # One that did not answer may be any replica, by its host's name, too.
    all_answered = are_all and bool(found.answered) and len(heads) == len(answers)
    found.outcomes = [
        # A replica that answers needs nobody who has kept what it tells.
        {**each, "keptBy": None, "toldByFormer": False}
        if each["toldBy"] in found.answered
        else {**each, "toldByFormer": True if all_answered and each.get("keptBy") else None}
        for each in _limited(told, int(query["limit"]), found.sources)
    ]
    return found


async def _answers(flags: Mapping[str, Any], query: Mapping[str, str | int]) -> tuple[list[Any], bool]:
    """Return what each replica answers, or why it does not; and whether all running replicas were asked."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            if flags["server"]:
                asks, are_all = [await stack.enter_async_context(asking_at(flags["server"]))], False
            else:
                asks, are_all = await stack.enter_async_context(asking_all(flags, _LABEL))
            return await asyncio.gather(*(_pages(ask, query) for ask in asks), return_exceptions=True), are_all
    except Unanswered as why:
        return [why], False


async def _read_sources(
    flags: Mapping[str, Any],
    query: Mapping[str, str | int],
    found: Remembered,
    by_uid: dict[str, Document],
    *,
    restored: bool,
) -> None:
    """Add what can be read without a replica; ``restored``: one that answered has what the ConfigMap has."""
    dry_run = "-dry-run" in flags["lease_name"]
    reads = [event_outcomes(flags, query, dry_run), *([] if restored else [kept_outcomes(flags)])]
    for source in await asyncio.gather(*reads):
        found.sources.append(source)
        for each in source.outcomes:
            _add(by_uid, each, query)


def _add(by_uid: dict[str, Document], outcome: Document, query: Mapping[str, str | int]) -> None:
    """Add an outcome that was asked for, unless more is known of the pod."""
    if not _fits(outcome, query):
        return
    # An event may name any UID, but no other namespace than its own.
    key = f"{outcome['namespace']}/{outcome['name']} {outcome['uid'] or outcome['time']}"
    known = by_uid.get(key)
    if known is None or _worth(outcome) < _worth(known):
        by_uid[key] = outcome


def _without_older_events(outcomes: Iterable[Document], listed: Iterable[list[Document]], limit: int) -> list[Document]:
    """Leave out the events that are older than everything that a replica lists, where it lists as many as the limit
    allows. With a higher limit it would list these pods, too, with more than an event says.
    """
    complete_from = max((_at(each[-1]) for each in listed if len(each) >= limit), default=float("-inf"))
    return [each for each in outcomes if not _is_event(each) or _at(each) > complete_from]


def _without_echoes(outcomes: list[Document]) -> list[Document]:
    """Leave out what the built-in controller's events say of pods whose outcome at about that time is known.

    They name no UID, so the name and the time have to do: of two pods of a name, the second one is marked later.
    A user who may create events can invent thousands of both for one name.
    """
    known: dict[tuple[str, str], list[float]] = {}
    for each in outcomes:
        if each["outcome"] in _ENDS:
            known.setdefault((each["namespace"], each["name"]), []).append(_at(each))
    for ends in known.values():
        ends.sort()

    def is_echo(each: Document) -> bool:
        ends, at = known.get((each["namespace"], each["name"]), ()), _at(each)
        first = bisect_left(ends, at - _ECHO_SECONDS)
        return each["outcome"] == "marked" and first < len(ends) and ends[first] <= at + _ECHO_SECONDS

    return [each for each in outcomes if not is_echo(each)]


def _limited(told: list[Document], limit: int, sources: list[Source]) -> list[Document]:
    """Return at most ``limit`` outcomes, and note at the source of events how many of theirs have no room.

    Anybody may create events. So those that nobody else tells get the room that others leave, or half of it.
    """
    by_events = sum(map(_is_event, told))
    room = max(limit // 2, limit - (len(told) - by_events))
    left = {True: room, False: limit - min(room, by_events)}
    listed = []
    for each in told:
        if left[_is_event(each)] > 0:
            left[_is_event(each)] -= 1
            listed.append(each)
    if by_events > room and len(told) > limit:
        unlisted = f"{by_events - room} older outcomes that only events tell are not listed"
        for source in sources:
            if not source.lasting:
                source.problem = source.problem or f"{unlisted}: anybody may create events (--limit)"
    return listed


def _at(outcome: Document) -> float:
    """Return the Unix time of an outcome; 0 if it cannot be read."""
    return parse_rfc3339(outcome["time"]) or 0.0


def _is_event(outcome: Document) -> bool:
    """Return whether an event alone tells an outcome: it names no node."""
    return outcome["node"] is None


def _worth(outcome: Document) -> tuple[int, bool]:
    # An event tells least of an eviction.
    return _RANKS.index(outcome["outcome"]), _is_event(outcome)


def _fits(outcome: Document, query: Mapping[str, str | int]) -> bool:
    """Return whether an outcome was asked for: replicas of other versions, and other sources, know not all filters."""
    at = _at(outcome)
    if at < (parse_rfc3339(query.get("since")) or 0.0) or at > (parse_rfc3339(query.get("until")) or float("inf")):
        return False
    taint = outcome["taint"] or str(outcome.get("why") or "").removeprefix("taint ")
    facts = {
        "pod": f"{outcome['namespace']}/{outcome['name']}",
        "uid": outcome["uid"],
        "node": outcome["node"],
        "namespace": outcome["namespace"],
        "taint": taint.partition(" ")[0].partition(":")[0].partition("=")[0],
    }
    return all(query.get(name, fact) == fact for name, fact in facts.items())


def _is_asked_for(head: Document, lease_name: str) -> bool:
    lease = head["lease"]
    # Without a Lease it runs alone.
    return not head["dryRun"] if lease is None else bool(lease["name"] == lease_name)


async def _pages(asking: Ask, query: Mapping[str, str | int]) -> tuple[Document, list[Document]]:
    """Return the first answer's head, and the outcomes of all pages."""
    page = head = await asking("/history", query)
    outcomes = list(_outcomes(page))
    while (token := next_page(page)) and (left := int(query["limit"]) - len(outcomes)) > 0:
        page = await asking("/history", {**query, "limit": left, "continue": token})
        outcomes += _outcomes(page)
    return head, outcomes


def _outcomes(page: Document) -> list[Document]:
    """Return the outcomes of an answer; raise ``Unanswered`` if it is not one of this version: others have answered."""
    lease, outcomes = page.get("lease"), page.get("outcomes")
    is_head = isinstance(page.get("identity"), str) and "dryRun" in page
    is_head = is_head and (lease is None or (isinstance(lease, dict) and "name" in lease))
    if is_head and isinstance(outcomes, list) and all(map(_is_outcome, outcomes)):
        return outcomes
    raise Unanswered(NOT_OURS)


def _is_outcome(each: object) -> bool:
    return (
        isinstance(each, dict)
        and all(isinstance(each.get(name), str) for name in ("time", "namespace", "name", "uid"))
        and all(name in each and isinstance(each[name], str | None) for name in ("node", "taint"))
        and each.get("outcome") in _RANKS
    )
