"""What the model needs from outside: a client for pods, and a reporter."""

from typing import Protocol

from taint_eviction.core.objects import NamespacedName, Pod


class PodClient(Protocol):
    """The calls of the model. All raise ``CallFailed``, also if the pod does not exist."""

    async def get(self, key: NamespacedName) -> Pod:
        """Read the pod that has this name at present."""
        ...

    async def mark(self, pod: Pod) -> None:
        """Set the condition DisruptionTarget on this pod: the PATCH names its UID."""
        ...

    async def delete(self, key: NamespacedName) -> None:
        """Delete the pod that has this name at present."""
        ...


class BuiltInReporter(Protocol):
    """Receives what the model does, when it does it."""

    def armed(self, key: NamespacedName, fire_at: float) -> None:
        """Note that a timer was set; ``fire_at`` is an instant of the event loop."""
        ...

    def cancelled(self, key: NamespacedName) -> None:
        """Note that a timer was cancelled."""
        ...

    def gave_up(self, key: NamespacedName, why: str) -> None:
        """Note that all tries have failed."""
        ...

    def event(self, key: NamespacedName, message: str) -> None:
        """Note that a Kubernetes event was posted; it names no UID."""
        ...
