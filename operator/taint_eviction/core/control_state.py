"""What people have ordered while it runs: pauses, and the circuit breaker's latch with its reset.

Values only. They are kept in the cluster, so that they outlive processes and reach every replica; times are therefore
the API server's (seconds since the epoch).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple


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
    """Evictions are held. ``since_epoch`` None, ``reason`` and ``by`` "": whoever ordered it did not say.

    ``until_epoch``: it ends then, by the API server's clock, without anybody's doing (``pause_ends``). None: when
    somebody resumes.
    """

    since_epoch: float | None = None
    reason: str = ""
    until_epoch: float | None = None
    by: str = ""

    def has_ended(self, epoch: float) -> bool:
        """Tell whether it has ended by itself."""
        return self.until_epoch is not None and self.until_epoch <= epoch

    def outlasts(self, other: "Pause") -> bool:
        """Tell whether it ends later than another."""
        if other.until_epoch is None:
            return False
        return self.until_epoch is None or self.until_epoch > other.until_epoch


@dataclass(frozen=True, slots=True)
class Latch:
    """The circuit breaker is open since ``since_epoch``; ``cause`` says why, with figures.

    ``unreadable``: what is kept of it makes no sense, so it counts as open until a human writes something readable.
    ``out_of_service``: too many nodes were out of service, so it holds their pods as well (``core.out_of_service``).
    """

    since_epoch: float
    cause: str
    unreadable: bool = False
    out_of_service: bool = False


@dataclass(frozen=True, slots=True)
class ControlState:
    """Everything that people have ordered, and what is kept of the breaker.

    ``cluster`` holds all evictions, ``nodes`` and ``namespaces`` (by name) those of some. ``latch``: the breaker is
    open, None: nobody wrote that it is. ``reset_epoch``: when a human closed it last, None: never. ``no_adoption``: no
    countdown may be adopted, whatever the flags say; ``no_adoption_confirmed_by``: the holder of the Lease that has
    obeyed, "" while none has.
    """

    cluster: Pause | None = None
    nodes: Mapping[str, Pause] = field(default_factory=dict)
    namespaces: Mapping[str, Pause] = field(default_factory=dict)
    latch: Latch | None = None
    reset_epoch: float | None = None
    no_adoption: Pause | None = None
    no_adoption_confirmed_by: str = ""

    def pauses(self) -> dict[PauseScope, Pause]:
        """Return all pauses, the widest scope first."""
        everything = {} if self.cluster is None else {EVERYTHING: self.cluster}
        nodes = {PauseScope("node", name): pause for name, pause in sorted(self.nodes.items())}
        namespaces = {PauseScope("namespace", name): pause for name, pause in sorted(self.namespaces.items())}
        return everything | nodes | namespaces

    def at(self, epoch: float) -> "ControlState":
        """Return the same without the pauses that have ended by then."""
        ended = [scope for scope, pause in self.pauses().items() if pause.has_ended(epoch)]
        return self.without(ended) if ended else self

    def without(self, scopes: Collection[PauseScope]) -> "ControlState":
        """Return the same without the pauses of these scopes."""
        return self._with({scope: pause for scope, pause in self.pauses().items() if scope not in scopes})

    def without_pauses(self, pauses: Mapping[PauseScope, Pause]) -> "ControlState":
        """Return the same without these pauses; one that another has replaced stays."""
        known = self.pauses()
        return self.without([scope for scope, pause in pauses.items() if known.get(scope) == pause])

    def with_pauses(self, pauses: Mapping[PauseScope, Pause]) -> "ControlState":
        """Return the same with these pauses instead of those of their scopes."""
        return self._with({**self.pauses(), **pauses})

    def _with(self, pauses: Mapping[PauseScope, Pause]) -> "ControlState":
        nodes, namespaces = (
            {scope.name: pause for scope, pause in pauses.items() if scope.kind == kind}
            for kind in ("node", "namespace")
        )
        return replace(self, cluster=pauses.get(EVERYTHING), nodes=nodes, namespaces=namespaces)

    @property
    def breaker_epoch(self) -> float | None:
        """When the breaker was opened or closed, None where nobody wrote either."""
        return self.reset_epoch if self.latch is None else self.latch.since_epoch

    def with_breaker_epoch(self, epoch: float) -> "ControlState":
        """Return the same with another time at which the breaker was opened or closed."""
        if self.latch is None:
            return replace(self, reset_epoch=epoch)
        return replace(self, latch=replace(self.latch, since_epoch=epoch))
