"""The actions of a scenario that suspend or resume evictions: a closed union of values.

Not here: how they are written (``suspension_file``), and what they do (``suspension_steps``).
"""

from dataclasses import dataclass

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.policy import PolicyRule
from taint_eviction_lab.simulation.kubernetes_json import JsonObject


@dataclass(frozen=True, slots=True)
class PauseEvictions:
    """Pause the evictions of a node or a namespace; all evictions where neither is named.

    ``seconds``: it ends by itself after this time; None: when somebody resumes.
    """

    node: str | None = None
    namespace: str | None = None
    reason: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ResumeEvictions:
    """Take a pause back: of a node or a namespace, or that of all where neither is named; ``every``: all pauses."""

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
    """Order that nothing is adopted, as the command does first; ``undo``: countdowns may be adopted again."""

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
