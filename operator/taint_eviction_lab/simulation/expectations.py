"""What a scenario expects of its pods, and whether this happened.

An instant is met from the expected second up to, not including, the next: never early (by more than a millisecond),
less than ``within_seconds`` late. Evictions are judged by the simulated API server's record alone.

A pod must not be evicted if no expectation about evictions mentions it; and no terminating pod may be deleted again.
"""

import fnmatch
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.timeline import BY_BUILT_IN, BY_EVICTION, Timeline, TimelineEntry, What

_EARLY_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Instant:
    """A second of the scenario, and how much later is still in time."""

    at: float
    within_seconds: float = 1.0

    def met_by(self, seen: float) -> bool:
        """Return whether what was seen then came in time."""
        return -_EARLY_SECONDS <= seen - self.at < self.within_seconds

    def __str__(self) -> str:
        return f"{self.at:g}" if self.within_seconds == 1.0 else f"{self.at:g} (within {self.within_seconds:g} s)"


@dataclass(frozen=True, slots=True)
class PodTimeline:
    """All that happened to the pods of one name.

    ``ends`` is "gone", "terminating", "unbound", or the last pod's node at the end; ``condition`` is the status of its
    DisruptionTarget condition at the end, "none" if it has none or is gone. ``seconds``: those of its tolerations at
    the end, in their order, None for a toleration without seconds.
    """

    name: str
    entries: tuple[TimelineEntry, ...]
    ends: str
    condition: str
    seconds: tuple[int | None, ...]

    def of(self, *kinds: What) -> list[TimelineEntry]:
        """List the entries of these kinds."""
        return [entry for entry in self.entries if entry.what in kinds]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one expectation of one pod is met: what was expected, and what was seen."""

    pod: str
    line: int
    expected: str
    seen: str
    met: bool


class Claim(Protocol):
    """One thing that is expected of a pod."""

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Return what is expected, what was seen, and whether the claim holds."""
        ...


def seconds_of(entries: Iterable[TimelineEntry]) -> str:
    """List when the entries happened, for people; "" for never."""
    return ", ".join(f"{entry.at:.3f}" for entry in entries)


def happens(word: str, instants: str) -> str:
    """Say that something happens at these instants; never, if there is none."""
    return f"{word} at {instants}" if instants else f"never {word}"


@dataclass(frozen=True, slots=True)
class Happens:
    """Entries of one kind come at these instants and at no others."""

    what: What
    instants: tuple[Instant, ...]

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        entries, word = history.of(self.what), self.what.value
        met = len(entries) == len(self.instants) and all(
            instant.met_by(entry.at) for instant, entry in zip(self.instants, entries, strict=True)
        )
        expected = ", ".join(map(str, self.instants))
        return happens(word, expected), happens(word, seconds_of(entries)), met


@dataclass(frozen=True, slots=True)
class EvictedByBuiltIn:
    """The model of the built-in controller evicts the pod at these instants and at no others; () for never."""

    instants: tuple[Instant, ...]

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        entries = tuple(entry for entry in history.of(What.EVICTED) if entry.why.endswith(BY_BUILT_IN))
        expected, seen, met = Happens(What.EVICTED, self.instants).check(replace(history, entries=entries))
        return f"{expected}{BY_BUILT_IN}", f"{seen}{BY_BUILT_IN}", met


@dataclass(frozen=True, slots=True)
class NotEvicted:
    """The pod is not evicted; ``since``: not from that second on."""

    since: float = float("-inf")

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Look for evictions."""
        evicted = [entry for entry in history.of(What.EVICTED) if entry.at >= self.since]
        expected = "not evicted" + ("" if self.since == float("-inf") else f" from {self.since:g} on")
        return expected, happens("evicted", seconds_of(evicted)), not evicted


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A pod is scheduled, ``at`` a second (None: whenever), to be evicted ``due`` at another."""

    due: Instant
    at: Instant | None = None

    def met_by(self, entry: TimelineEntry) -> bool:
        """Return whether this is what was expected."""
        due = entry.due_at is not None and self.due.met_by(entry.due_at)
        return due and (self.at is None or self.at.met_by(entry.at))

    def __str__(self) -> str:
        return f"for {self.due}" if self.at is None else f"at {self.at} for {self.due}"


@dataclass(frozen=True, slots=True)
class IsScheduled:
    """The pod is scheduled like this, in this order, and not otherwise."""

    schedulings: tuple[Scheduling, ...]

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        entries = history.of(What.SCHEDULED)
        met = len(entries) == len(self.schedulings) and all(
            scheduling.met_by(entry) for scheduling, entry in zip(self.schedulings, entries, strict=True)
        )
        expected = ", ".join(map(str, self.schedulings))
        seen = ", ".join(f"at {entry.at:.3f} for {entry.due_at or 0.0:.3f}" for entry in entries)
        told = tuple(f"scheduled {each}" if each else "never scheduled" for each in (expected, seen))
        return told[0], told[1], met


@dataclass(frozen=True, slots=True)
class LateAtMost:
    """By the controller's own measurement, each eviction is at most ``seconds`` after its deadline."""

    seconds: float

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare with the controller's own reports."""
        late = [entry.late_seconds or 0.0 for entry in history.of(What.SAID_EVICTED)]
        seen = f"{', '.join(f'{seconds:.3f}' for seconds in late)} s late" if late else "never evicted"
        return f"at most {self.seconds:g} s late", seen, bool(late) and max(late) <= self.seconds


@dataclass(frozen=True, slots=True)
class HasEvents:
    """These Kubernetes events are posted about the pod, in this order, and no others; a part of the text will do."""

    texts: tuple[str, ...]

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        seen = [entry.why for entry in history.of(What.EVENT)]
        met = len(seen) == len(self.texts) and all(text in each for text, each in zip(self.texts, seen, strict=True))
        return f"events: {'; '.join(self.texts) or 'none'}", f"events: {'; '.join(seen) or 'none'}", met


@dataclass(frozen=True, slots=True)
class IsCompared:
    """A dry run finds this out about the built-in controller, in this order; the beginning of the text will do."""

    texts: tuple[str, ...]

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        seen = [entry.why for entry in history.of(What.COMPARED)]
        met = len(seen) == len(self.texts) and all(
            each.startswith(text) for text, each in zip(self.texts, seen, strict=True)
        )
        told = tuple(f"compared: {'; '.join(texts)}" if texts else "never compared" for texts in (self.texts, seen))
        return told[0], told[1], met


@dataclass(frozen=True, slots=True)
class Deletes:
    """``count`` DELETE calls for the pod arrive at the API server, including refused ones."""

    count: int

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Count them."""
        count = len(_delete_calls(history))
        return f"{self.count} DELETE calls", f"{count} DELETE calls", count == self.count


@dataclass(frozen=True, slots=True)
class Ends:
    """At the end the pod is gone, terminating, unbound, or on a node."""

    state: str

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare."""
        return f"ends: {self.state}", f"ends: {history.ends}", history.ends == self.state


@dataclass(frozen=True, slots=True)
class HasSeconds:
    """At the end the pod's tolerations have these seconds, in their order; None: none, MaxInt64: a mark."""

    seconds: tuple[int | None, ...]

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare."""
        expected, seen = (
            ", ".join(kube.seconds_text(each) for each in seconds) or "no tolerations"
            for seconds in (self.seconds, history.seconds)
        )
        return f"tolerationSeconds: {expected}", f"tolerationSeconds: {seen}", self.seconds == history.seconds


@dataclass(frozen=True, slots=True)
class HasCondition:
    """At the end the pod's DisruptionTarget condition has this status; "none" for no condition."""

    status: str

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare."""
        return f"condition {self.status}", f"condition {history.condition}", history.condition == self.status


def _delete_calls(history: PodTimeline) -> list[TimelineEntry]:
    ended = history.of(What.EVICTED, What.DELETED_AGAIN, What.DELETE_MISSED)
    arrived = [entry for entry in ended if not entry.why.endswith(BY_EVICTION)]
    refused = [entry for entry in history.of(What.CALL_FAILED) if entry.why.startswith("delete: ")]
    return arrived + [entry for entry in refused if "took effect" not in entry.why]


@dataclass(frozen=True, slots=True)
class HowMany:
    """How many of all pods that the pattern matches are evicted from ``since`` on, before ``until``; None: no bound."""

    least: int | None
    most: int | None
    since: float = -math.inf
    until: float = math.inf

    def judge(self, histories: Sequence[PodTimeline]) -> tuple[str, str, bool]:
        """Count them."""
        evicted = sum(
            any(self.since <= entry.at < self.until for entry in history.of(What.EVICTED)) for history in histories
        )
        bounds = [f"at least {self.least}"] * (self.least is not None) + [f"at most {self.most}"] * (
            self.most is not None
        )
        met = (self.least is None or evicted >= self.least) and (self.most is None or evicted <= self.most)
        spans = ["" if self.since == -math.inf else f" from {self.since:g} on"]
        spans += ["" if self.until == math.inf else f" before {self.until:g}"]
        return f"{' and '.join(bounds)} pods evicted{''.join(spans)}", f"{evicted} pods evicted", met


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of each pod whose ``namespace/name`` the pattern matches; ``how_many`` counts all of them."""

    pattern: str
    line: int
    claims: tuple[Claim, ...]
    how_many: tuple[HowMany, ...] = ()

    @property
    def is_about_evictions(self) -> bool:
        """Return whether it says which evictions are right."""
        return bool(self.how_many) or any(
            isinstance(claim, NotEvicted) or (isinstance(claim, Happens) and claim.what is What.EVICTED)
            for claim in self.claims
        )

    @property
    def counts_deletes(self) -> bool:
        """Return whether it says how many DELETE calls are right."""
        return any(isinstance(claim, Deletes) for claim in self.claims)


def judge(expectations: Sequence[Expectation], histories: Sequence[PodTimeline]) -> tuple[Verdict, ...]:
    """Check every expectation, and that nothing happened to pods that no expectation is about."""
    verdicts: list[Verdict] = []
    for expectation in expectations:
        matched = [history for history in histories if fnmatch.fnmatchcase(history.name, expectation.pattern)]
        if not matched:
            verdicts.append(Verdict(expectation.pattern, expectation.line, "a pod", "no such pod, ever", False))
        for history in matched:
            verdicts += [Verdict(history.name, expectation.line, *claim.check(history)) for claim in expectation.claims]
        for how_many in expectation.how_many:
            verdicts.append(Verdict(expectation.pattern, expectation.line, *how_many.judge(matched)))
    return tuple(verdicts) + tuple(verdict for history in histories for verdict in _undisturbed(expectations, history))


def _undisturbed(expectations: Sequence[Expectation], history: PodTimeline) -> list[Verdict]:
    """Check what holds for every pod unless an expectation says otherwise; return only violations."""
    about = [expectation for expectation in expectations if fnmatch.fnmatchcase(history.name, expectation.pattern)]
    line = about[0].line if about else 0
    verdicts = []
    if not any(expectation.is_about_evictions for expectation in about):
        verdicts.append(Verdict(history.name, line, *NotEvicted().check(history)))
    again = history.of(What.DELETED_AGAIN)
    if again and not any(expectation.counts_deletes for expectation in about):
        seen = f"deleted again at {seconds_of(again)}"
        verdicts.append(Verdict(history.name, line, "never deleted while terminating", seen, False))
    return [verdict for verdict in verdicts if not verdict.met]


def histories_of(timeline: Timeline, ends: dict[str, tuple[str, str, tuple[int | None, ...]]]) -> list[PodTimeline]:
    """Collect each name's history; ``ends`` has (state, condition, seconds) at the end for every name that existed."""
    entries: dict[str, list[TimelineEntry]] = {name: [] for name in ends}
    for entry in timeline:
        if entry.subject in entries:
            entries[entry.subject].append(entry)
    return [PodTimeline(name, tuple(entries[name]), *ends[name]) for name in sorted(ends)]
