"""What a scenario expects of its pods: each keyword is one unit, which reads its value and checks what happened.

An instant is met from the expected second up to, not including, the next: never early (by more than a millisecond),
less than ``within_seconds`` late. Evictions are judged by the simulated API server's record alone.

A pod must not be evicted if no expectation about evictions mentions it; and no terminating pod may be deleted again.
"""

import fnmatch
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Self, TypeVar, cast, dataclass_transform

from taint_eviction.core.objects import MARK_SECONDS
from taint_eviction.core.text import many
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.keywords import Key, read_mapping
from taint_eviction_lab.simulation.object_file import ObjectReading, named
from taint_eviction_lab.simulation.timeline import BREAKER, BY_BUILT_IN, BY_EVICTION, Timeline, TimelineEntry, What

_EARLY_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Instant:
    """A second of the scenario, and how much later is still in time."""

    at: float
    within_seconds: float = 1.0

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked, what: str) -> "Instant":
        """Read a second, or a mapping."""
        if not isinstance(at.value, dict):
            return cls(reading.seconds(at, what))
        fields = reading.fields(at, ("at", "within"), what)
        if not reading.only(fields, ("at",), at.line, what):
            return cls(0.0)
        within = reading.seconds(fields["within"], "within", 0.001) if "within" in fields else 1.0
        return cls(reading.seconds(fields["at"], "at"), within)

    def met_by(self, seen: float) -> bool:
        """Return whether what was seen then came in time."""
        return -_EARLY_SECONDS <= seen - self.at < self.within_seconds

    @property
    def until(self) -> float:
        """The second up to which it can be met."""
        return self.at + self.within_seconds

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


class Claim:
    """One thing that is expected of a pod."""

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read the value of the keyword; None if a problem leaves nothing to check."""
        raise NotImplementedError

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Return what is expected, what was seen, and whether the claim holds."""
        raise NotImplementedError

    @property
    def is_about_evictions(self) -> bool:
        """Return whether it says which evictions are right."""
        return False

    def runs_until(self) -> Iterable[float]:
        """Return the seconds up to which the run must last."""
        return ()


ClaimT = TypeVar("ClaimT", bound=type[Claim])

# All that can be expected of a pod, but for ``pods``, which counts them.
CLAIMS: dict[str, Callable[[ObjectReading, Marked], Claim | None]] = {}
HOW_MANY = "pods"


@dataclass_transform(frozen_default=True)
def claim(keyword: str) -> Callable[[ClaimT], ClaimT]:
    """Make a class the claim of a keyword."""

    def registered(cls: ClaimT) -> ClaimT:
        made = dataclass(frozen=True)(cls)
        CLAIMS[keyword] = made.read
        return cast(ClaimT, made)

    return registered


def _instants(reading: ObjectReading, at: Marked, what: str) -> tuple[Instant, ...]:
    return tuple(Instant.read(reading, item, what) for item in reading.one_or_more(at, what))


def _met_in_order(instants: Sequence[Instant], entries: Sequence[TimelineEntry]) -> bool:
    return len(entries) == len(instants) and all(
        instant.met_by(entry.at) for instant, entry in zip(instants, entries, strict=True)
    )


def seconds_of(entries: Iterable[TimelineEntry]) -> str:
    """List when the entries happened, for people; "" for never."""
    return ", ".join(f"{entry.at:.3f}" for entry in entries)


def happens(word: str, instants: str) -> str:
    """Say that something happens at these instants; never, if there is none."""
    return f"{word} at {instants}" if instants else f"never {word}"


@dataclass(frozen=True)
class Happens(Claim):
    """Entries of one kind come at these instants and at no others."""

    what: What
    instants: tuple[Instant, ...]

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        entries, word = history.of(self.what), self.what.value
        expected = ", ".join(map(str, self.instants))
        return happens(word, expected), happens(word, seconds_of(entries)), _met_in_order(self.instants, entries)

    @property
    def is_about_evictions(self) -> bool:
        """Return whether it says which evictions are right."""
        return self.what is What.EVICTED

    def runs_until(self) -> Iterable[float]:
        """Return the seconds up to which the run must last."""
        return [instant.until for instant in self.instants]


def _happens(keyword: str, what: What, reading: ObjectReading, at: Marked) -> Happens:
    return Happens(what, _instants(reading, at, keyword))


_HAPPENINGS = {
    "evicted": What.EVICTED,
    "cancelled": What.CANCELLED,
    "dropped": What.DROPPED,
    "marked": What.MARKED,
    "unmarked": What.UNMARKED,
    "gone": What.GONE,
    "loops": What.LOOPS,
    "reported": What.SAID_EVICTED,
    "adopted": What.ADOPTED,
    "adoptionRefused": What.ADOPTION_REFUSED,
    "givenBack": What.GIVEN_BACK,
}
CLAIMS |= {keyword: partial(_happens, keyword, what) for keyword, what in _HAPPENINGS.items()}


@claim("evictedByBuiltIn")
class EvictedByBuiltIn(Claim):
    """The model of the built-in controller evicts the pod at these instants and at no others; () for never."""

    instants: tuple[Instant, ...]

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read an instant, or a list."""
        return cls(_instants(reading, at, "evictedByBuiltIn"))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        entries = tuple(entry for entry in history.of(What.EVICTED) if entry.why.endswith(BY_BUILT_IN))
        expected, seen, met = Happens(What.EVICTED, self.instants).check(replace(history, entries=entries))
        return f"{expected}{BY_BUILT_IN}", f"{seen}{BY_BUILT_IN}", met


@claim("notEvicted")
class NotEvicted(Claim):
    """The pod is not evicted; ``since``: not from that second on."""

    since: Annotated[float, Key("from", ObjectReading.seconds, needed=True)] = float("-inf")

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read true, or a mapping of ``from``."""
        if isinstance(at.value, dict):
            return read_mapping(cls, reading, at, "notEvicted")
        if at.value is not True:
            reading.problem(at.line, f"notEvicted must be true, or a mapping of from, not {described(at)}")
        return cls()

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Look for evictions."""
        evicted = [entry for entry in history.of(What.EVICTED) if entry.at >= self.since]
        expected = "not evicted" + ("" if self.since == float("-inf") else f" from {self.since:g} on")
        return expected, happens("evicted", seconds_of(evicted)), not evicted

    @property
    def is_about_evictions(self) -> bool:
        """Return True."""
        return True

    def runs_until(self) -> Iterable[float]:
        """Return the seconds up to which the run must last."""
        return [self.since]


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A pod is scheduled, ``at`` a second (None: whenever), to be evicted ``due`` at another."""

    due: Instant
    at: Instant | None = None

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> "Scheduling":
        """Read the second for which the pod is scheduled, or a mapping."""
        if not isinstance(at.value, dict):
            return cls(Instant(reading.seconds(at, "scheduled")))
        fields = reading.fields(at, ("at", "for", "within"), "scheduled")
        reading.only(fields, ("for",), at.line, "scheduled")
        within = reading.seconds(fields["within"], "within", 0.001) if "within" in fields else 1.0
        due = Instant(reading.seconds(fields["for"], "for"), within) if "for" in fields else Instant(0.0)
        return cls(due, Instant(reading.seconds(fields["at"], "at")) if "at" in fields else None)

    def met_by(self, entry: TimelineEntry) -> bool:
        """Return whether this is what was expected."""
        due = entry.due_at is not None and self.due.met_by(entry.due_at)
        return due and (self.at is None or self.at.met_by(entry.at))

    def __str__(self) -> str:
        return f"for {self.due}" if self.at is None else f"at {self.at} for {self.due}"


@claim("scheduled")
class IsScheduled(Claim):
    """The pod is scheduled like this, in this order, and not otherwise."""

    schedulings: tuple[Scheduling, ...]

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read an instant, a mapping, or a list of these."""
        return cls(tuple(Scheduling.read(reading, item) for item in reading.one_or_more(at, "scheduled")))

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

    def runs_until(self) -> Iterable[float]:
        """Return the seconds up to which the run must last."""
        return [scheduling.due.until for scheduling in self.schedulings]


@claim("lateAtMost")
class LateAtMost(Claim):
    """By the controller's own measurement, each eviction is at most ``seconds`` after its deadline."""

    seconds: float

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a span."""
        return cls(reading.span(at, "lateAtMost"))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare with the controller's own reports."""
        late = [entry.late_seconds or 0.0 for entry in history.of(What.SAID_EVICTED)]
        seen = f"{', '.join(f'{seconds:.3f}' for seconds in late)} s late" if late else "never evicted"
        return f"at most {self.seconds:g} s late", seen, bool(late) and max(late) <= self.seconds


@claim("events")
class HasEvents(Claim):
    """These Kubernetes events are posted about the pod, in this order, and no others; a part of the text will do."""

    texts: tuple[str, ...]

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a list of texts."""
        return cls(tuple(reading.text(item, "an event") for item in reading.items(at, "events")))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        seen = [entry.why for entry in history.of(What.EVENT)]
        met = len(seen) == len(self.texts) and all(text in each for text, each in zip(self.texts, seen, strict=True))
        return f"events: {'; '.join(self.texts) or 'none'}", f"events: {'; '.join(seen) or 'none'}", met


@claim("compared")
class IsCompared(Claim):
    """A dry run finds this out about the built-in controller, in this order; the beginning of the text will do."""

    texts: tuple[str, ...]

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a text, or a list."""
        return cls(tuple(reading.text(item, "compared") for item in reading.one_or_more(at, "compared")))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare each with each, in order."""
        seen = [entry.why for entry in history.of(What.COMPARED)]
        met = len(seen) == len(self.texts) and all(
            each.startswith(text) for text, each in zip(self.texts, seen, strict=True)
        )
        told = tuple(f"compared: {'; '.join(texts)}" if texts else "never compared" for texts in (self.texts, seen))
        return told[0], told[1], met


@claim("deletes")
class Deletes(Claim):
    """``count`` DELETE calls for the pod arrive at the API server, including refused ones."""

    count: int

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a number."""
        return cls(reading.whole_number(at, "deletes", 0))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Count them."""
        count = len(_delete_calls(history))
        return many(self.count, "DELETE call"), many(count, "DELETE call"), count == self.count


@claim("ends")
class Ends(Claim):
    """At the end the pod is gone, terminating, unbound, or on a node."""

    state: str

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a state."""
        state = reading.text(at, "ends")
        if state.startswith("on "):
            return cls(f"on {reading.use_node(Marked(state.removeprefix('on '), at.line, {}))}")
        return cls(reading.text(at, "ends", ("gone", "terminating", "unbound", "on NODE")))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare."""
        return f"ends: {self.state}", f"ends: {history.ends}", history.ends == self.state


def _seconds(reading: ObjectReading, at: Marked) -> int | None:
    if at.value in ("none", "mark"):
        return None if at.value == "none" else MARK_SECONDS
    return reading.whole_number(at, "tolerationSeconds")


@claim("tolerationSeconds")
class HasSeconds(Claim):
    """At the end the pod's tolerations have these seconds, in their order; None: none, MaxInt64: a mark."""

    seconds: tuple[int | None, ...]

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a list of numbers; ``none`` and ``mark`` are such, too."""
        return cls(tuple(_seconds(reading, item) for item in reading.items(at, "tolerationSeconds")))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare."""
        expected, seen = (
            ", ".join(kube.seconds_text(each) for each in seconds) or "no tolerations"
            for seconds in (self.seconds, history.seconds)
        )
        return f"tolerationSeconds: {expected}", f"tolerationSeconds: {seen}", self.seconds == history.seconds


@claim("condition")
class HasCondition(Claim):
    """At the end the pod's DisruptionTarget condition has this status; "none" for no condition."""

    status: str

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a status; YAML reads True and False as booleans, and none may be null."""
        if at.value is None or isinstance(at.value, bool):
            return cls("none" if at.value is None else str(at.value))
        return cls(reading.text(at, "condition", ("True", "False", "none")))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare."""
        return f"condition {self.status}", f"condition {history.condition}", history.condition == self.status


@claim("blocked")
class IsBlocked(Claim):
    """The eviction API first refuses the pod at this instant; None: it never does.
    ``by``: the names of the budgets that cause it, empty: any.
    """

    at: Instant | None
    by: tuple[str, ...] = ()

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read an instant with the budgets that refuse, or an empty list for never."""
        if at.value == []:
            return cls(None)
        if not isinstance(at.value, dict):
            return cls(Instant.read(reading, at, "blocked"))
        fields = reading.fields(at, ("at", "within", "by"), "blocked")
        by = reading.one_or_more(fields.pop("by", Marked([], at.line, {})), "by")
        names = tuple(reading.use_budget(item).name for item in by)
        return cls(Instant.read(reading, Marked(fields, at.line, at.key_lines), "blocked"), names)

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare with the first refusal."""
        blocked = history.of(What.BLOCKED)
        seen = f"blocked at {blocked[0].at:.3f} {blocked[0].why}" if blocked else "never blocked"
        if self.at is None:
            return "never blocked", seen, not blocked
        by = f"by {', '.join(sorted(self.by))}" if self.by else ""
        met = bool(blocked) and self.at.met_by(blocked[0].at) and blocked[0].why.startswith(f"{by}:" if by else "")
        return f"blocked at {self.at} {by}".rstrip(), seen, met


@claim("evictCalls")
class EvictCalls(Claim):
    """This many calls to the eviction API arrive for the pod, including refused ones."""

    count: int

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> Self | None:
        """Read a number."""
        return cls(reading.whole_number(at, "evictCalls", 0))

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Count them."""
        ended = history.of(What.EVICTED, What.DELETED_AGAIN, What.DELETE_MISSED)
        failed = [entry for entry in history.of(What.CALL_FAILED) if entry.why.startswith("evict: ")]
        count = len(history.of(What.BLOCKED)) + sum(entry.why.endswith(BY_EVICTION) for entry in ended)
        count += sum("took effect" not in entry.why for entry in failed)
        return f"{self.count} calls to the eviction API", f"{count} calls to the eviction API", count == self.count


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

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked) -> "HowMany":
        """Read a number, or a mapping."""
        if not isinstance(at.value, dict):
            count = reading.whole_number(at, HOW_MANY, 0)
            return cls(count, count)
        fields = reading.fields(at, ("atLeast", "atMost", "from", "to"), HOW_MANY)
        if not {"atLeast", "atMost"} & fields.keys():
            reading.problem(at.line, "pods lacks 'atLeast' or 'atMost'")
        least, most = (
            reading.whole_number(fields[name], name, 0) if name in fields else None for name in ("atLeast", "atMost")
        )
        since = reading.seconds(fields["from"], "from") if "from" in fields else -math.inf
        return cls(least, most, since, reading.seconds(fields["to"], "to") if "to" in fields else math.inf)

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
        return f"{' and '.join(bounds)} pods evicted{''.join(spans)}", f"{many(evicted, 'pod')} evicted", met


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
        return bool(self.how_many) or any(claim.is_about_evictions for claim in self.claims)

    @property
    def counts_deletes(self) -> bool:
        """Return whether it says how many DELETE calls are right."""
        return any(isinstance(claim, Deletes) for claim in self.claims)


def read_expectations(reading: ObjectReading, at: Marked) -> list[Expectation]:
    """Read the whole ``expect``: a mapping from pods, or patterns of their names, to what should happen to them."""
    if not isinstance(at.value, dict):
        reading.problem(at.line, f"expect must be a mapping of pods, not {described(at)}")
        return []
    return [
        _expectation(reading, name, at.key_lines[name], value) for name, value in at.value.items() if name != BREAKER
    ]


def _expectation(reading: ObjectReading, name: str, line: int, at: Marked) -> Expectation:
    if not set(name) & set("*?["):
        reading.use_pod(Marked(name, line, {}))
    fields = reading.fields(at, {*CLAIMS, HOW_MANY}, f"the expectation of {name!r}")
    if isinstance(at.value, dict) and not at.value:
        reading.problem(line, f"the expectation of {name!r} says nothing")
    if "evicted" in fields and "notEvicted" in fields and fields["notEvicted"].value is True:
        reading.problem(line, f"{name!r} cannot be both evicted and notEvicted")
    how_many = reading.one_or_more(fields.pop(HOW_MANY, Marked([], line, {})), HOW_MANY)
    claims = [CLAIMS[field](reading, value) for field, value in fields.items()]
    return Expectation(
        str(named(name)),
        line,
        tuple(claim for claim in claims if claim is not None),
        tuple(HowMany.read(reading, item) for item in how_many),
    )


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


# The breaker

BREAKER_CLAIMS = ("opened", "closed")


@dataclass(frozen=True, slots=True)
class BreakerExpectation:
    """The breaker opens and closes at these instants and at no others; None: any instants."""

    opened: tuple[Instant, ...] | None
    closed: tuple[Instant, ...] | None
    line: int

    @classmethod
    def read(cls, reading: ObjectReading, at: Marked | None) -> "BreakerExpectation | None":
        """Read what the whole ``expect`` says about the breaker; None if it says nothing."""
        if at is None or not isinstance(at.value, dict) or BREAKER not in at.value:
            return None
        fields = reading.fields(at.value[BREAKER], BREAKER_CLAIMS, "the expectation of the breaker")
        opened, closed = (_instants(reading, fields[name], name) if name in fields else None for name in BREAKER_CLAIMS)
        return cls(opened, closed, at.key_lines[BREAKER])

    def runs_until(self) -> Iterable[float]:
        """Return the seconds up to which the run must last."""
        return [instant.until for instant in (*(self.opened or ()), *(self.closed or ()))]


_NEVER_OPENED = BreakerExpectation((), None, 0)


def judge_breaker(expectation: BreakerExpectation | None, timeline: Timeline) -> tuple[Verdict, ...]:
    """Check when it opened and closed; without an expectation, return only violations."""
    expected = expectation or _NEVER_OPENED
    verdicts = []
    for what, instants in ((What.BREAKER_OPENED, expected.opened), (What.BREAKER_CLOSED, expected.closed)):
        if instants is None:
            continue
        entries = timeline.about(BREAKER, what)
        told = happens(what.value, ", ".join(map(str, instants))), happens(what.value, seconds_of(entries))
        verdicts.append(Verdict(BREAKER, expected.line, *told, _met_in_order(instants, entries)))
    return tuple(verdict for verdict in verdicts if expectation is not None or not verdict.met)
