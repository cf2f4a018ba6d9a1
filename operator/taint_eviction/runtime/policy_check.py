"""Whether the admission policy narrows what this process's account may write, as far as this process knows.

It is asked at the start and every hour, by the leader and by standbys. A policy that names another account refuses
nothing, so nobody would notice. The controller goes on without it; only countdowns are not taken over.
This module asks and tells; it does not know how the policy is tried (``ports.AdmissionPolicyPort``).
"""

import asyncio
import logging

from taint_eviction.runtime.ports import AdmissionPolicyPort, CallFailed, Clock

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 3600.0
# While the policy is not known to be in force. Without adoption nothing waits for it, so after the first minute, in
# which an installation may still be under way, it is asked less often.
_RECHECK_SECONDS, _LATER_RECHECK_SECONDS = 10.0, 300.0
_UNKNOWN_FOR_SECONDS = 60.0


class PolicyCheck:
    """Asks for one process; ``adopts``: it takes countdowns over once the policy is in force.

    ``account``: the user name at the API server, "" if it is not known. ``in_force``: None if it is not known; once it
    is True, only a definite answer ends that. ``problem``: what is wrong, "" for nothing.
    """

    def __init__(self, port: AdmissionPolicyPort, clock: Clock, *, adopts: bool) -> None:
        self._port = port
        self._clock = clock
        self._adopts = adopts
        self.account = ""
        self.in_force: bool | None = None
        self.problem = ""

    async def run(self) -> None:
        """Ask until cancelled, or until the API server turns out to have no such policies."""
        began_at = self._clock.now().at
        told: bool | None = True
        while True:
            try:
                account = await self._port.account()
                if account is None and not self._adopts:
                    return
                self.account = account or ""
                self.in_force = await self._port.in_force()
            except CallFailed as failure:
                if self.in_force is None and self._clock.now().at - began_at >= _UNKNOWN_FOR_SECONDS:
                    self.problem = f"{self._not_known}: {failure}"
            else:
                self.problem = "" if self.in_force else self._not_in_force
            if self.problem and told is not self.in_force:
                logger.log(logging.ERROR if self._adopts else logging.WARNING, "%s", self.problem)
                told = self.in_force
            elif told is not True and self.in_force:
                logger.info("the admission policy is in force for %s", self._who)
                told = True
            await asyncio.sleep(self._wait_seconds(began_at))

    def _wait_seconds(self, began_at: float) -> float:
        if self.in_force:
            return _CHECK_SECONDS
        young = self._clock.now().at - began_at < _UNKNOWN_FOR_SECONDS
        return _RECHECK_SECONDS if self._adopts or young else _LATER_RECHECK_SECONDS

    @property
    def _who(self) -> str:
        return self.account or "this account"

    @property
    def _not_in_force(self) -> str:
        so = "so no countdown is taken over" if self._adopts else "which may write more than the controller does"
        return f"the admission policy is not in force for {self._who}, {so}"

    @property
    def _not_known(self) -> str:
        so = ", so no countdown is taken over" if self._adopts else ""
        return f"whether the admission policy is in force for {self._who} is not known{so}"
