"""Reads what a scenario expects: a mapping from pods (or patterns of their names) to what should happen to them."""

import math
from collections.abc import Callable

from taint_eviction.core.objects import MARK_SECONDS
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction_lab.simulation.action_file import ActionReading
from taint_eviction_lab.simulation.expectations import (
    Claim,
    Deletes,
    Ends,
    EvictedByBuiltIn,
    Expectation,
    Happens,
    HasCondition,
    HasEvents,
    HasSeconds,
    HowMany,
    Instant,
    IsCompared,
    IsScheduled,
    LateAtMost,
    NotEvicted,
    Scheduling,
)
from taint_eviction_lab.simulation.object_file import named
from taint_eviction_lab.simulation.suspension_expectations import BreakerExpectation, EvictCalls, IsBlocked
from taint_eviction_lab.simulation.timeline import BREAKER, What

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


class ExpectationReading(ActionReading):
    """Reads expectations."""

    def expectations(self, at: Marked) -> list[Expectation]:
        """Read the whole ``expect``."""
        if not isinstance(at.value, dict):
            self.problem(at.line, f"expect must be a mapping of pods, not {described(at)}")
            return []
        return [
            self._expectation(name, at.key_lines[name], value) for name, value in at.value.items() if name != BREAKER
        ]

    def breaker_expectation(self, at: Marked | None) -> BreakerExpectation | None:
        """Read what ``expect`` says about the circuit breaker."""
        if at is None or not isinstance(at.value, dict) or BREAKER not in at.value:
            return None
        fields = self.fields(at.value[BREAKER], BREAKER_CLAIMS, "the expectation of the breaker")
        instants = {name: self._instants(value, name) for name, value in fields.items()}
        return BreakerExpectation(instants.get("opened"), instants.get("closed"), at.key_lines[BREAKER])

    def _expectation(self, name: str, line: int, at: Marked) -> Expectation:
        key = named(name)
        if not set(name) & set("*?["):
            self.use_pod(Marked(name, line, {}))
        fields = self.fields(at, CLAIMS, f"the expectation of {name!r}")
        if isinstance(at.value, dict) and not at.value:
            self.problem(line, f"the expectation of {name!r} says nothing")
        claims: list[Claim] = []
        for field, value in fields.items():
            if field in _HAPPENINGS:
                claims.append(Happens(_HAPPENINGS[field], self._instants(value, field)))
            elif field != "pods" and (claim := _CLAIMS[field](self, value)) is not None:
                claims.append(claim)
        if "evicted" in fields and "notEvicted" in fields and fields["notEvicted"].value is True:
            self.problem(line, f"{name!r} cannot be both evicted and notEvicted")
        items = fields.get("pods", Marked([], line, {}))
        how_many = [self._how_many(item) for item in (items if isinstance(items.value, list) else [items])]
        return Expectation(str(key), line, tuple(claims), tuple(how_many))

    def _instants(self, at: Marked, what: str) -> tuple[Instant, ...]:
        items = self.items(at, what) if isinstance(at.value, list) else [at]
        return tuple(self._instant(item, what) for item in items)

    def _instant(self, at: Marked, what: str) -> Instant:
        if not isinstance(at.value, dict):
            return Instant(self.seconds(at, what))
        fields = self.fields(at, ("at", "within"), what)
        if not self.only(fields, ("at",), at.line, what):
            return Instant(0.0)
        within = self.seconds(fields["within"], "within", 0.001) if "within" in fields else 1.0
        return Instant(self.seconds(fields["at"], "at"), within)

    def _not_evicted(self, at: Marked) -> Claim | None:
        if isinstance(at.value, dict):
            fields = self.needed(at, ("from",), ("from",), "notEvicted")
            return None if fields is None else NotEvicted(self.seconds(fields["from"], "from"))
        if at.value is not True:
            self.problem(at.line, f"notEvicted must be true, or a mapping of from, not {described(at)}")
        return NotEvicted()

    def _scheduled(self, at: Marked) -> Claim | None:
        items = self.items(at, "scheduled") if isinstance(at.value, list) else [at]
        return IsScheduled(tuple(self._scheduling(item) for item in items))

    def _scheduling(self, at: Marked) -> Scheduling:
        if not isinstance(at.value, dict):
            return Scheduling(Instant(self.seconds(at, "scheduled")))
        fields = self.fields(at, ("at", "for", "within"), "scheduled")
        self.only(fields, ("for",), at.line, "scheduled")
        within = self.seconds(fields["within"], "within", 0.001) if "within" in fields else 1.0
        due = Instant(self.seconds(fields["for"], "for"), within) if "for" in fields else Instant(0.0)
        return Scheduling(due, Instant(self.seconds(fields["at"], "at")) if "at" in fields else None)

    def _late(self, at: Marked) -> Claim | None:
        return LateAtMost(self.seconds(at, "lateAtMost", 0.0))

    def _events(self, at: Marked) -> Claim | None:
        return HasEvents(tuple(self.text(item, "an event") for item in self.items(at, "events")))

    def _compared(self, at: Marked) -> Claim | None:
        items = self.items(at, "compared") if isinstance(at.value, list) else [at]
        return IsCompared(tuple(self.text(item, "compared") for item in items))

    def _deletes(self, at: Marked) -> Claim | None:
        return Deletes(self.whole_number(at, "deletes", 0))

    def _by_built_in(self, at: Marked) -> Claim | None:
        return EvictedByBuiltIn(self._instants(at, "evictedByBuiltIn"))

    def _ends(self, at: Marked) -> Claim | None:
        state = self.text(at, "ends")
        if state.startswith("on "):
            return Ends(f"on {self.use_node(Marked(state.removeprefix('on '), at.line, {}))}")
        return Ends(self.text(at, "ends", ("gone", "terminating", "unbound", "on NODE")))

    def _has_seconds(self, at: Marked) -> Claim | None:
        return HasSeconds(
            tuple(
                None
                if item.value == "none"
                else (MARK_SECONDS if item.value == "mark" else self.whole_number(item, "tolerationSeconds"))
                for item in self.items(at, "tolerationSeconds")
            )
        )

    def _has_condition(self, at: Marked) -> Claim | None:
        value = at.value
        if value is None or isinstance(value, bool):
            return HasCondition("none" if value is None else str(value))
        return HasCondition(self.text(at, "condition", ("True", "False", "none")))

    def _blocked(self, at: Marked) -> Claim | None:
        if at.value == []:
            return IsBlocked(None)
        if not isinstance(at.value, dict):
            return IsBlocked(self._instant(at, "blocked"))
        fields = self.fields(at, ("at", "within", "by"), "blocked")
        by = fields.pop("by", Marked([], at.line, {}))
        names = tuple(self.use_budget(item).name for item in (by if isinstance(by.value, list) else [by]))
        return IsBlocked(self._instant(Marked(fields, at.line, at.key_lines), "blocked"), names)

    def _evict_calls(self, at: Marked) -> Claim | None:
        return EvictCalls(self.whole_number(at, "evictCalls", 0))

    def _how_many(self, at: Marked) -> HowMany:
        if not isinstance(at.value, dict):
            count = self.whole_number(at, "pods", 0)
            return HowMany(count, count)
        fields = self.fields(at, ("atLeast", "atMost", "from", "to"), "pods")
        if not {"atLeast", "atMost"} & fields.keys():
            self.problem(at.line, "pods lacks 'atLeast' or 'atMost'")
        least = self.whole_number(fields["atLeast"], "atLeast", 0) if "atLeast" in fields else None
        most = self.whole_number(fields["atMost"], "atMost", 0) if "atMost" in fields else None
        since = self.seconds(fields["from"], "from") if "from" in fields else -math.inf
        until = self.seconds(fields["to"], "to") if "to" in fields else math.inf
        return HowMany(least, most, since, until)


_CLAIMS: dict[str, Callable[[ExpectationReading, Marked], Claim | None]] = {
    "notEvicted": ExpectationReading._not_evicted,
    "evictedByBuiltIn": ExpectationReading._by_built_in,
    "scheduled": ExpectationReading._scheduled,
    "lateAtMost": ExpectationReading._late,
    "events": ExpectationReading._events,
    "compared": ExpectationReading._compared,
    "deletes": ExpectationReading._deletes,
    "ends": ExpectationReading._ends,
    "condition": ExpectationReading._has_condition,
    "tolerationSeconds": ExpectationReading._has_seconds,
    "blocked": ExpectationReading._blocked,
    "evictCalls": ExpectationReading._evict_calls,
}

# All that can be expected of a pod.
CLAIMS = frozenset({*_HAPPENINGS, *_CLAIMS, "pods"})
BREAKER_CLAIMS = frozenset({"opened", "closed"})
