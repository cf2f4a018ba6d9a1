"""What befalls kubelets and the node lifecycle controller: values, one for each action's keyword.

Not here: how they are written (``lifecycle_file``), and what they do (``lifecycle_steps``).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SilenceKubelets:
    """Cut kubelets off: no heartbeats, and none of their pods starts or ends."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HearKubelets:
    """Let kubelets reach the API server again: they say that their nodes are ready."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Let a node shut down gracefully: it is not ready, and silent after a time."""

    node: str
    for_seconds: float


@dataclass(frozen=True, slots=True)
class RestartLifecycle:
    """Let another kube-controller-manager take over ``after_seconds`` later; meanwhile there is none."""

    after_seconds: float


LifecycleAction = SilenceKubelets | HearKubelets | ShutDown | RestartLifecycle
