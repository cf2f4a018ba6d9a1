"""Writers that write nothing: an attempt does everything else as usual, and what is taken over stays so."""

from taint_eviction.core.control_state import Pause
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.runtime.ports import AdoptionPort, CallFailed, ClusterReader, FailureReason, Ready, WantedChange

_CHANGES_NOTHING = "this is a dry run, which changes nothing"


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

    async def delete(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Report success, unless ``ready`` raises."""
        await ready()
        return True

    async def evict(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Report success, unless ``ready`` raises."""
        await ready()
        return True


class DryRunAdoptions:
    """An ``AdoptionPort`` for dry runs: it finds what others have taken over, and refuses to change it."""

    def __init__(self, port: AdoptionPort) -> None:
        self._port = port

    async def change(self, ref: PodRef, wanted: WantedChange) -> Pod | None:
        """Read the pod; raise ``CallFailed`` if anything of it is to be changed."""
        found: Pod | None = await self._port.change(ref, lambda _: None)
        if found is not None and wanted(found) is not None:
            raise _refused()
        return found

    async def list_noted(self) -> list[PodRef]:
        """List the pods that have a note."""
        return await self._port.list_noted()

    def adopter(self, term: int) -> str:
        """Return what the control state would say."""
        return self._port.adopter(term)

    async def write_adopter(self, term: int) -> None:
        """Raise ``CallFailed``."""
        raise _refused()

    async def remove_adopter(self, seen: str) -> None:
        """Raise ``CallFailed``."""
        raise _refused()

    async def confirm_no_adoption(self, order: Pause) -> None:
        """Raise ``CallFailed``."""
        raise _refused()


def _refused() -> CallFailed:
    return CallFailed(_CHANGES_NOTHING, reason=FailureReason.FORBIDDEN)
