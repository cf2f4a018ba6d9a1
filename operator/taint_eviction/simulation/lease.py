"""The Lease of a simulated cluster, and the door of one process to it: compare and swap by version.

Not here: who gets it, and for how long (``runtime.leadership``).
"""

from dataclasses import replace

from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.simulation.api import SimulatedApi
from taint_eviction.simulation.faults import Call


class SimulatedLease:
    """The object as the API server keeps it; ``record`` None until somebody creates it."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self._version = 0

    def swap(self, record: LeaseRecord) -> LeaseRecord:
        """Store the record if nobody has written since its version; raise ``CallFailed`` (409) otherwise."""
        if record.version != ("" if self.record is None else self.record.version):
            raise CallFailed("the lease has been modified", status=409)
        self._version += 1
        self.record = replace(record, version=str(self._version))
        return self.record


class SimulatedLeaseStore:
    """The ``LeaseStore`` of one controller process."""

    def __init__(self, api: SimulatedApi, lease: SimulatedLease) -> None:
        self._api = api
        self._lease = lease

    async def read(self) -> LeaseRecord | None:
        """Read the lease; None if there is none yet."""
        return await self._api.call(Call.READ_LEASE, "", lambda: self._lease.record)

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the lease or swap it against ``record.version``; return it as stored."""
        return await self._api.call(Call.WRITE_LEASE, record.holder, lambda: self._lease.swap(record))
