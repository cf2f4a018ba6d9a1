"""What people order at run time: pauses, and resets of the circuit breaker's latch.

All of it is kept in the cluster, so that it outlives processes and reaches every replica; times are therefore the API
server's (seconds since the epoch). ``PauseEnds`` counts the ends of pauses on the monotonic clock, as deadlines are.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from taint_eviction.core.instants import Moment

# The known time of the API server moves by less than this if nobody steps its clock.
_TOLERATED_SECONDS = 2.0


class PauseScope(NamedTuple):
    """What a pause covers: all evictions, those from one node, or those in one namespace; ``name`` "" for all."""

    kind: Literal["all", "node", "namespace"]
    name: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "all":
                return "all evictions"
            case "node":
                return f"evictions from node {self.name}"
            case "namespace":
                return f"evictions in namespace {self.name}"


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

    def outlasts(self, other: "Pause") -> bool:
        """Return whether the pause ends later than another one."""
        if other.until_epoch is None:
            return False
        return self.until_epoch is None or self.until_epoch > other.until_epoch


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


@dataclass(frozen=True, slots=True)
class ControlState:
    """Everything that people have ordered, and the stored state of the breaker.
    ``cluster`` holds all evictions; ``nodes`` and ``namespaces`` hold those of the named ones. ``latch``: the breaker
    is open, None: the cluster has no record that it is. ``reset_epoch``: when a person last closed it, None: never.
    ``no_adoption``: no countdown may be adopted, regardless of the flags; ``no_adoption_confirmed_by``: the Lease
    holder that has confirmed this, "" while none has. ``recreated``: somebody replaced the object in the cluster, or
    deleted it and created another one, and no leader has taken that over yet. ``resumed``: what the object says not to
    be paused, in so many words. ``adopter``: who takes countdowns over, or did last, "" for nobody; whoever leads
    without doing so gives everything back.
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

    def pauses(self) -> dict[PauseScope, Pause]:
        """Return all pauses, the widest scope first."""
        everything = {} if self.cluster is None else {EVERYTHING: self.cluster}
        nodes = {PauseScope("node", name): pause for name, pause in sorted(self.nodes.items())}
        namespaces = {PauseScope("namespace", name): pause for name, pause in sorted(self.namespaces.items())}
        return everything | nodes | namespaces

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
            merged = replace(merged, latch=lost.latch, reset_epoch=lost.reset_epoch)
        if self.no_adoption is None:
            confirmed = lost.no_adoption_confirmed_by
            merged = replace(merged, no_adoption=lost.no_adoption, no_adoption_confirmed_by=confirmed)
        return merged

    def _with(self, pauses: Mapping[PauseScope, Pause]) -> "ControlState":
        nodes, namespaces = (
            {scope.name: pause for scope, pause in pauses.items() if scope.kind == kind}
            for kind in ("node", "namespace")
        )
        return replace(self, cluster=pauses.get(EVERYTHING), nodes=nodes, namespaces=namespaces)

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

    ``only``: nodes or namespaces, of one kind; instead of what ends, the others of their kind are paused. Empty: no
    others are.
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
        kinds = {scope.kind for scope in self.only}
        others = [scope for scope in existing if scope.kind in kinds and scope not in self.only]
        left = left.with_pauses({**dict.fromkeys(others, instead or Pause()), **left.pauses()})
        return replace(left, latch=None) if self.reset else left


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
