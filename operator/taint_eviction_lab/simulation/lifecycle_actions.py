"""The actions on kubelets and on the node lifecycle controller: values, one for each keyword.

``lifecycle_file`` reads them, and ``lifecycle_steps`` performs them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SilenceKubelets:
    """Cut kubelets off: no heartbeats, and none of their pods starts or ends."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HearKubelets:
    """Let kubelets reach the API server again: they report that their nodes are ready."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Let a node shut down gracefully: it is not ready, and silent after a time."""

    node: str
    for_seconds: float


@dataclass(frozen=True, slots=True)
class RestartLifecycle:
    """Let another kube-controller-manager take over ``after_seconds`` later; until then none runs."""

    after_seconds: float


LifecycleAction = SilenceKubelets | HearKubelets | ShutDown | RestartLifecycle
