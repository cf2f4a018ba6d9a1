"""What people order at run time: pauses, and resets of the circuit breaker's latch.

All of it is kept in the cluster, so that it outlives processes and reaches every replica; times are therefore the API
server's (seconds since the epoch). ``PauseEnds`` counts the ends of pauses on the monotonic clock, as deadlines are.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from taint_eviction.core.instants import Moment
from taint_eviction.core.label_selectors import (
    LabelSelector,
    Requirement,
    chooses,
    complement,
    contradiction,
    parse_selector,
    selector_text,
)
from taint_eviction.core.objects import ZONE_LABEL

# The known time of the API server moves by less than this if nobody steps its clock.
_TOLERATED_SECONDS = 2.0

# A longer selector is not read.
MAX_SELECTOR = 512


class PauseScope(NamedTuple):
    """What a pause covers: all evictions, those from all nodes that a selector matches, those from one node, or those
    in one namespace. ``name`` "" for all; for a selector its text (``selector_scope``), "" matches all nodes.
    """

    kind: Literal["all", "selector", "node", "namespace"]
    name: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "all":
                return "all evictions"
            case "selector":
                return f"evictions from {self.nodes}"
            case "node":
                return f"evictions from node {self.name}"
            case "namespace":
                return f"evictions in namespace {self.name}"

    @property
    def nodes(self) -> str:
        """Which nodes the selector matches, in words."""
        match _parsed(self.name):
            case ():
                return "all nodes"
            case (Requirement(key, ("In" | "NotIn") as operator, values),) if key == ZONE_LABEL and "" not in values:
                where = "in" if operator == "In" else "outside of"
                return f"nodes {where} {'zone' if len(values) == 1 else 'zones'} {', '.join(sorted(values))}"
            case _:
                return f"nodes that match {self.name}"

    @property
    def keys(self) -> list[str]:
        """The keys of labels for which the selector asks."""
        return [term.key for term in _parsed(self.name)] if self.kind == "selector" else []

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector matches a node with these labels."""
        return chooses(_parsed(self.name), labels)


@lru_cache(maxsize=1000)
def _parsed(text: str) -> LabelSelector:
    return parse_selector(text)


@lru_cache(maxsize=1000)  # The same texts are read every few seconds.
def selector_scope(text: str) -> PauseScope:
    """Return the scope of all nodes that a selector matches, with one text for selectors that mean the same. Raise
    ``ValueError`` with what is expected if it is none that a node can match, or too long.
    """
    selector = parse_selector(text) if len(text) <= MAX_SELECTOR else ()
    name = selector_text(selector)
    if max(len(text), len(name)) > MAX_SELECTOR:
        raise ValueError(f"a label selector of at most {MAX_SELECTOR} characters")
    if why := contradiction(selector):
        raise ValueError(f"a label selector for nodes: it {why}")
    return PauseScope("selector", name)


EVERYTHING = PauseScope("all")


@dataclass(frozen=True, slots=True)
class Pause:
    """Evictions are held. ``since_epoch`` is None, and ``reason`` and ``by`` are "", if the order does not state them.
    ``until_epoch``: the pause ends by itself at that time of the API server's clock (``PauseEnds``). None: it ends
    when somebody resumes evictions.
    """

    since_epoch: float | None = None
    reason: str = ""
    until_epoch: float | None = None
    by: str = ""

    def has_ended(self, epoch: float) -> bool:
        """Return whether the pause has ended by itself."""
        return self.until_epoch is not None and self.until_epoch <= epoch

    @property
    def ends_epoch(self) -> float:
        """When the pause ends by itself; infinite: when somebody resumes."""
        return math.inf if self.until_epoch is None else self.until_epoch

    def outlasts(self, other: "Pause") -> bool:
        """Return whether the pause ends later than another one."""
        return self.ends_epoch > other.ends_epoch


# The precision of a stored time, and some room.
_SAME_SECONDS = 0.001


def is_same_time(epoch: float, other: float) -> bool:
    """Return whether two times are the same, before and after they were stored."""
    return abs(epoch - other) < _SAME_SECONDS


@dataclass(frozen=True, slots=True)
class Latch:
    """The circuit breaker is open since ``since_epoch``; ``cause`` says why, with figures.

    ``unreadable``: the stored state cannot be read, so the breaker counts as open until a person writes a readable
    state. ``out_of_service``: too many nodes were out of service, so the breaker also holds their pods
    (``core.out_of_service``). ``controller``: the identity of the replica that opened it; "": a person did, and only a
    person closes it.
    """

    since_epoch: float
    cause: str
    unreadable: bool = False
    out_of_service: bool = False
    controller: str = ""

    def is_same(self, other: "Latch") -> bool:
        """Return whether both are the same opening: the stored time is cut off, and the cause may be shortened."""
        return self.controller == other.controller and is_same_time(self.since_epoch, other.since_epoch)

    def added_to(self, stored: "Latch | None") -> "Latch":
        """Return what the cluster should have instead of ``stored``: what opened the breaker there stays, but too many
        nodes may be out of service since.
        """
        if stored is None or stored.unreadable:
            return stored or self
        return replace(stored, out_of_service=stored.out_of_service or self.out_of_service)


@dataclass(frozen=True, slots=True)
class ControlState:
    """Everything that people have ordered, and the stored state of the breaker.
    ``cluster`` holds all evictions; ``selectors`` those from the nodes that a selector matches at that moment;
    ``nodes`` and ``namespaces`` those of the named ones. ``latch``: the breaker
    is open, None: the cluster has no record that it is. ``reset_epoch``: when it was last closed, None: never.
    ``closed_by``: the identity of the replica that has closed it then, since its cause was gone; "": a person has.
    ``no_adoption``: no countdown may be adopted, regardless of the flags; ``no_adoption_confirmed_by``: the Lease
    holder that has confirmed this, "" while none has. ``recreated``: somebody replaced the object in the cluster, or
    deleted it and created another one, and no leader has taken that over yet. ``resumed``: what the object says not to
    be paused, in so many words. ``adopter``: who takes countdowns over, or did last, "" for nobody; whoever leads
    without doing so gives everything back. ``unfit``: the object's format is not the one that its keys need.
    """

    cluster: Pause | None = None
    nodes: Mapping[str, Pause] = field(default_factory=dict)
    namespaces: Mapping[str, Pause] = field(default_factory=dict)
    latch: Latch | None = None
    reset_epoch: float | None = None
    no_adoption: Pause | None = None
    no_adoption_confirmed_by: str = ""
    adopter: str = ""
    recreated: bool = False
    resumed: frozenset[PauseScope] = frozenset()
    selectors: Mapping[str, Pause] = field(default_factory=dict)
    unfit: bool = False
    closed_by: str = ""

    def pauses(self) -> dict[PauseScope, Pause]:
        """Return all pauses, the widest scope first."""
        if self.cluster is None and not (self.selectors or self.nodes or self.namespaces):
            return {}  # It is asked many times a second.
        everything = {} if self.cluster is None else {EVERYTHING: self.cluster}
        selectors = {PauseScope("selector", text): pause for text, pause in sorted(self.selectors.items())}
        nodes = {PauseScope("node", name): pause for name, pause in sorted(self.nodes.items())}
        namespaces = {PauseScope("namespace", name): pause for name, pause in sorted(self.namespaces.items())}
        return everything | selectors | nodes | namespaces

    def at(self, epoch: float) -> "ControlState":
        """Return this state without the pauses that have ended by ``epoch``."""
        ended = [scope for scope, pause in self.pauses().items() if pause.has_ended(epoch)]
        return self.without(ended) if ended else self

    def without(self, scopes: Collection[PauseScope]) -> "ControlState":
        """Return this state without the pauses of these scopes."""
        return self._with({scope: pause for scope, pause in self.pauses().items() if scope not in scopes})

    def without_pauses(self, pauses: Mapping[PauseScope, Pause]) -> "ControlState":
        """Return this state without these pauses. A pause that has replaced one of them stays."""
        known = self.pauses()
        return self.without([scope for scope, pause in pauses.items() if known.get(scope) == pause])

    def with_pauses(self, pauses: Mapping[PauseScope, Pause]) -> "ControlState":
        """Return this state with these pauses in place of the pauses of the same scopes."""
        return self._with({**self.pauses(), **pauses})

    def with_lost(self, lost: "ControlState") -> "ControlState":
        """Return this state together with one whose object was deleted; where both say something, this one counts."""
        adopter, pauses = self.adopter or lost.adopter, {**lost.without(self.resumed).pauses(), **self.pauses()}
        merged = replace(self.with_pauses(pauses), recreated=False, adopter=adopter)
        if self.breaker_epoch is None:
            merged = replace(merged, latch=lost.latch, reset_epoch=lost.reset_epoch, closed_by=lost.closed_by)
        if self.no_adoption is None:
            confirmed = lost.no_adoption_confirmed_by
            merged = replace(merged, no_adoption=lost.no_adoption, no_adoption_confirmed_by=confirmed)
        return merged

    def _with(self, pauses: Mapping[PauseScope, Pause]) -> "ControlState":
        selectors, nodes, namespaces = (
            {scope.name: pause for scope, pause in pauses.items() if scope.kind == kind}
            for kind in ("selector", "node", "namespace")
        )
        whole = pauses.get(EVERYTHING)
        return replace(self, cluster=whole, nodes=nodes, namespaces=namespaces, selectors=selectors)

    @property
    def breaker_epoch(self) -> float | None:
        """When the breaker was last opened or closed, None if the cluster has no record of either."""
        return self.reset_epoch if self.latch is None else self.latch.since_epoch

    def with_breaker_epoch(self, epoch: float) -> "ControlState":
        """Return this state with another time at which the breaker was opened or closed."""
        if self.latch is None:
            return replace(self, reset_epoch=epoch)
        return replace(self, latch=replace(self.latch, since_epoch=epoch))


@dataclass(frozen=True, slots=True)
class Release:
    """What people end at once: the pauses of these scopes (None: all), and with ``reset`` the breaker's latch.

    ``only``: nodes, namespaces or selectors, of one kind; instead of what ends, the others are paused: all other nodes
    or namespaces that there are, or by selectors all nodes that these do not match. Empty: no others are.
    """

    pauses: frozenset[PauseScope] | None = frozenset()
    only: frozenset[PauseScope] = frozenset()
    reset: bool = False

    def after(
        self, before: ControlState, existing: Collection[PauseScope], instead: Pause | None = None
    ) -> ControlState:
        """Return the control state after it; ``existing``: all nodes, or all namespaces, that there are. ``instead``:
        the pause of the others; a pause of theirs that stays is kept.
        """
        left = before.without(before.pauses() if self.pauses is None else self.pauses)
        others = self.others(existing)
        left = left.with_pauses({**dict.fromkeys(others, instead or Pause()), **left.pauses()})
        return replace(left, latch=None) if self.reset else left

    def others(self, existing: Collection[PauseScope]) -> list[PauseScope]:
        """Return what is paused instead; raise ``ValueError`` if no selectors match just the other nodes."""
        kinds = {scope.kind for scope in self.only}
        if "selector" in kinds:
            return [
                selector_scope(selector_text(each)) for each in complement([_parsed(one.name) for one in self.only])
            ]
        return [scope for scope in existing if scope.kind in kinds and scope not in self.only]

    def replaces(self, before: ControlState) -> list[PauseScope]:
        """Return the pause that an earlier release of fewer nodes has left: zone notin (a), where this one is for zones
        a and b. It is replaced as the pause of all evictions is.
        """
        if any(scope.kind != "selector" for scope in self.only):
            return []
        match [_parsed(other.name) for other in self.others(())]:
            case [(Requirement(key, "NotIn", values),)]:
                return [scope for scope in before.pauses() if _leaves_out_fewer(scope, key, values)]
            case _:
                return []


def _leaves_out_fewer(scope: PauseScope, key: str, values: Collection[str]) -> bool:
    """Return whether a scope is that of all nodes except those whose label has one of some of these values."""
    match _parsed(scope.name) if scope.kind == "selector" else ():
        case (Requirement(known, "NotIn", fewer),):
            return known == key and fewer < set(values)
        case _:
            return False


class PauseEnds:
    """Remembers when each known pause with an end began, on the monotonic clock, converted once.

    So a pause that this process knows ends in time even if the API server's clock, which dates pauses, is stepped. A
    pause that seems to begin later than now begins when it is first read. A process that starts has only the dates, and
    uses none while it does not know the API server's time.
    """

    def __init__(self) -> None:
        # The instant by scope and by the date that counts.
        self._dated: Mapping[tuple[PauseScope, float], float] = {}

    def as_counted(self, control_state: ControlState, now: Moment) -> ControlState:
        """Return the control state with the ends of pauses that count, by the API server's clock at ``now``."""
        if not now.dates_objects:
            return control_state
        dated: dict[tuple[PauseScope, float], float] = {}
        moved: dict[PauseScope, Pause] = {}
        for scope, pause in control_state.pauses().items():
            if pause.until_epoch is None:
                continue
            epoch, at = pause.until_epoch, now.instant_of(pause.until_epoch)
            if pause.since_epoch is not None:
                epoch, at = pause.since_epoch, min(now.at, now.instant_of(pause.since_epoch))
            dated[scope, epoch] = at = self._dated.get((scope, epoch), at)
            until = now.epoch_of(at) + (pause.until_epoch - epoch)
            if abs(until - pause.until_epoch) > _TOLERATED_SECONDS:
                moved[scope] = replace(pause, until_epoch=until)
        self._dated = dated
        return control_state.with_pauses(moved) if moved else control_state
