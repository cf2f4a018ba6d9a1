"""The actions of a scenario that suspend or resume evictions: a closed union of values.

``suspension_file`` reads them, and ``suspension_steps`` performs them.
"""

from dataclasses import dataclass

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.policy import PolicyRule
from taint_eviction_lab.simulation.kubernetes_json import JsonObject


@dataclass(frozen=True, slots=True)
class PauseEvictions:
    """Pause the evictions of a node or a namespace; all evictions if neither is named.

    ``seconds``: the pause ends by itself after this time; None: it ends when somebody resumes.
    """

    node: str | None = None
    namespace: str | None = None
    reason: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ResumeEvictions:
    """Remove the pause of a node or a namespace, or of all evictions if neither is named; ``every``: all pauses."""

    node: str | None = None
    namespace: str | None = None
    every: bool = False


@dataclass(frozen=True, slots=True)
class ResetBreaker:
    """Close the circuit breaker, as a person whose clock is ahead of the API server's by this much."""

    ahead_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LoseControlState:
    """Somebody deletes the ConfigMap with pauses and the breaker's latch."""


@dataclass(frozen=True, slots=True)
class Scribble:
    """Somebody writes a key of that ConfigMap by hand; the key may be unknown, or its value malformed."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class HandBack:
    """Order that nothing is adopted, as the command ``hand-back`` does first; ``undo``: allow adoption again."""

    undo: bool


@dataclass(frozen=True, slots=True)
class CreateBudget:
    """Create a PodDisruptionBudget."""

    body: JsonObject


@dataclass(frozen=True, slots=True)
class ChangeBudget:
    """Write the whole spec of a PodDisruptionBudget."""

    body: JsonObject


@dataclass(frozen=True, slots=True)
class DeleteBudget:
    """Delete a PodDisruptionBudget."""

    budget: NamespacedName


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """Change the configuration file's rules: all controllers read it again."""

    rules: tuple[PolicyRule, ...]


SuspensionAction = (
    PauseEvictions
    | ResumeEvictions
    | ResetBreaker
    | LoseControlState
    | Scribble
    | HandBack
    | CreateBudget
    | ChangeBudget
    | DeleteBudget
    | ChangePolicy
)
