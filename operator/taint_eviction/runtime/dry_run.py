"""A writer that writes nothing: an attempt does everything else as usual."""

from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.runtime.ports import ClusterReader, Ready


class DryRunWriter:
    """A ``ClusterWriter`` for dry runs: it reads where the real one would write."""

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader

    async def mark(self, ref: PodRef, already: bool, now: Moment) -> Pod | None:
        """Return the live pod as it is."""
        return await self._reader.read_pod(ref)

    async def unmark(self, pod: Pod, now: Moment) -> Pod | None:
        """Return the pod as it was given."""
        return pod

    async def delete(self, ref: PodRef, ready: Ready) -> bool:
        """Report success, unless ``ready`` raises."""
        await ready()
        return True

    async def evict(self, ref: PodRef, ready: Ready) -> bool:
        """Report success, unless ``ready`` raises."""
        await ready()
        return True
