"""What the model needs from outside: a client for pods, and somebody to tell what it does."""

from typing import Protocol

from taint_eviction.core.objects import NamespacedName, Pod


class PodClient(Protocol):
    """The calls of the model. All raise ``CallFailed``, also where there is no such pod."""

    async def get(self, key: NamespacedName) -> Pod:
        """Read whichever pod bears this name."""
        ...

    async def mark(self, pod: Pod) -> None:
        """Set the condition DisruptionTarget on this pod: the PATCH names its UID."""
        ...

    async def delete(self, key: NamespacedName) -> None:
        """Delete whichever pod bears this name."""
        ...


class BuiltInReporter(Protocol):
    """Is told what the model does, when it does it."""

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
