"""The Lease of a simulated cluster, and the access of one process to it: compare and swap by version.

``runtime.leadership`` decides which process holds the Lease, and for how long.
"""

from dataclasses import replace

from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction_lab.simulation.calls import SimulatedCalls
from taint_eviction_lab.simulation.faults import CallKind


class SimulatedLease:
    """The object as the API server keeps it; ``record`` None until somebody creates it."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self._version = 0

    def swap(self, record: LeaseRecord) -> LeaseRecord:
        """Store the record if there was no write since its version; raise ``CallFailed`` (409) otherwise."""
        if record.version != ("" if self.record is None else self.record.version):
            raise CallFailed("the lease has been modified", reason=FailureReason.CONFLICT)
        self._version += 1
        self.record = replace(record, version=str(self._version))
        return self.record


class SimulatedLeaseStore:
    """The ``LeaseStore`` of one controller process."""

    def __init__(self, calls: SimulatedCalls, lease: SimulatedLease) -> None:
        self._calls = calls
        self._lease = lease

    async def read(self) -> LeaseRecord | None:
        """Read the lease; None if there is none yet."""
        return await self._calls.call(CallKind.READ_LEASE, "", lambda: self._lease.record)

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the lease or swap it against ``record.version``; return it as stored."""
        return await self._calls.call(CallKind.WRITE_LEASE, record.holder, lambda: self._lease.swap(record))
