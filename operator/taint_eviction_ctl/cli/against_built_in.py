"""Whether the built-in controller would have evicted a pod, too, and when: from what is remembered of an outcome.

Each outcome has the instant at which the built-in controller's timer would have ended (``core.built_in``). This module
says how far that is from what happened, and what makes the difference. It asks no built-in controller; a dry run beside
one does that (``compare``).
"""

from collections.abc import Iterable, Iterator

from taint_eviction.core.instants import TimeSource
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction_ctl.cli.asking import Document
from taint_eviction_ctl.planning.wording import and_list, span, utc

# Both act at the same time, if no more than this lies between: with a breaker, a pod that is due waits for a moment, in
# case many nodes are being tainted.
SAME_SECONDS = 5.0

# The pod is still there.
_KEPT = ("blocked", "refused")
_NO_GUARDS = "it knows no pause, breaker, limit or order, and asks no budget"
_NEVER_MOVED = "a timer that it has set is never moved"
# What no outcome tells.
CANNOT_TELL = (
    "counted from the taints and tolerations that stood at the end; not counted: timers from earlier ones, restarts of"
    " the built-in controller, and its 20 calls a second"
)


def seconds_earlier(each: Document) -> float | None:
    """Return how much earlier than the outcome the built-in controller would have acted; None: that is not known."""
    at, built_in = parse_rfc3339(each["time"]), parse_rfc3339(each.get("builtInAt"))
    return None if at is None or built_in is None else at - built_in


def _kind(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    if abs(seconds) <= SAME_SECONDS:
        return "same"
    return "earlier" if seconds > 0 else "later"


def in_brief(each: Document) -> str:
    """Return the difference for a table: ``same``, ``5 m earlier``, ``10 s later``, ``not known``."""
    seconds = seconds_earlier(each)
    kind = _kind(seconds)
    return kind if seconds is None or kind == "same" else f"{span(seconds)} {kind}"


def built_in_text(each: Document) -> str:
    """Return what the built-in controller would have done, as the second half of a sentence."""
    seconds = seconds_earlier(each)
    if seconds is None:
        why = "an event does not tell when the countdown began"
        noted = "a version of this controller that does not note it has remembered this"
        return f"not known what it would have done: {why if each['since'] is None else noted}"
    at = f"at {utc(each['builtInAt'])}"
    if each["outcome"] in _KEPT:
        said = f"would have tried it {at}"
    elif abs(seconds) <= SAME_SECONDS:
        said = f"would have evicted it at about the same time, {at}"
    elif seconds > 0:
        said = f"would have evicted it {span(seconds)} earlier, {at}"
    else:
        said = f"would have evicted it {span(seconds)} later, {at}, if the taint was still there"
    reasons = "; ".join(_reasons(each, seconds))
    return f"{said}: {reasons}" if reasons else said


def _reasons(each: Document, seconds: float) -> Iterator[str]:
    late = each["lateSeconds"] > SAME_SECONDS
    if seconds > SAME_SECONDS:
        if each["heldSeconds"]:
            yield "it does not know the hold of the pod's owner"
        if each["byDefault"]:
            yield "it knows no default tolerance"
        if late:
            held_by = and_list(each.get("heldBy") or ())
            knows = f"it does not know {held_by}" if held_by else _NO_GUARDS
            yield f"{knows}; here the pod waited {span(each['lateSeconds'])} past its deadline"
        elif not (each["heldSeconds"] or each["byDefault"]):
            yield _NEVER_MOVED
    elif seconds < -SAME_SECONDS:
        ceiling = each["ceiling"]
        if ceiling is None:
            yield _NEVER_MOVED
        else:
            yield f"it does not know rule {ceiling['rule']}, which allows at most {span(ceiling['seconds'])}"
    if each["sinceBy"] == TimeSource.OUTAGE.value:
        yield "in this outage the taint was taken back and set again, with which it begins again, and is later"
    if each["outcome"] == "refused" or (each["call"] == "delete" and each["tries"] > 1):
        yield "after refusals as here it gives up, with its fifth try within a second"


def summary_lines(outcomes: Iterable[Document]) -> list[str]:
    """Return for how many outcomes the built-in controller would have acted at the same time, and what is not known."""
    found: dict[str, list[float]] = {"same": [], "earlier": [], "later": [], "not known": []}
    for seconds in map(seconds_earlier, outcomes):
        found[_kind(seconds)].append(abs(seconds or 0.0))
    said = [f"{len(found['same'])} at about the same time"] if found["same"] else []
    for kind in ("earlier", "later"):
        if spans := found[kind]:
            least, most = span(min(spans)), span(max(spans))
            said.append(f"{len(spans)} {kind}, by {least if least == most else f'{least} to {most}'}")
    said += [f"{len(found['not known'])} not known"] if found["not known"] else []
    return [f"the built-in controller would have acted: {'; '.join(said)}", CANNOT_TELL] if said else []
