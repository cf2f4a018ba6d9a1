"""Plays the command ``hand-back`` in a simulated cluster: production's own, with people's calls, which nothing delays.

Nobody takes the right to mark away, as in the model. The Lease is what it shows of the one process that leads.
"""

import asyncio
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fake_apiserver.status import StatusError
from taint_eviction.cli.exit_codes import ExitCode
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.objects import NamespacedName
from taint_eviction.kube.adoption_patches import JsonPatch
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiAnswer, ApiRequest
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction_ctl.cli.control_state import Reached
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.virtual_clock import server_time, virtual_now

command = importlib.import_module("taint_eviction_ctl.cli.hand_back")

_FLAGS = {"prints": False, "yes": True, "reason": "", "confirm_timeout": 60.0}
_LEASE = {"lease_namespace": "kube-system", "lease_name": "taint-eviction-controller"}
_LEASE_SECONDS, _RENEWED_SECONDS = 15, 2.0


class HandingBack:
    """Runs the command on a stage; ``note`` is called with what it does: ``gives back``, ``says``."""

    def __init__(self, stage: ReplayStage, note: Callable[[str], None]) -> None:
        self._stage = stage
        self._note = note
        self._running: asyncio.Task[None] | None = None
        # While the command writes, the timeline shows its writes, which are no moves of a leader.
        self.writes = False
        # Who holds the Lease, also if it has ended; "" if nobody led.
        self.last_leader = ""

    def begin(self) -> None:
        """Run the command; raise ``Impossible`` if it was run before."""
        state = self._stage.control_state.control_state
        if state is not None and state.no_adoption is not None:
            raise Impossible("nothing is adopted already")
        self._running = asyncio.get_running_loop().create_task(self._run(), name="hand-back")

    def undo(self) -> None:
        """End the order, and the command, if it still runs."""
        self._stage.control_state.hand_back(undo=True)
        self.end()

    def end(self) -> None:
        """End the command, if it still runs."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        clock = SimpleNamespace(now=lambda: SimpleNamespace(server_epoch=server_time(virtual_now())))
        calls = _PeoplesCalls(self._stage, lambda: self._note("gives back"), lambda: self.last_leader)
        on = cast(Reached, SimpleNamespace(state=_State(self._stage, self), calls=calls, clock=clock))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(command, "read_monotonic", virtual_now)
            if await command.give_all_back(on, {**_FLAGS, **_LEASE}) is ExitCode.OK:
                self._note("says")


class _State:
    """The state ConfigMap as people change it."""

    def __init__(self, stage: ReplayStage, handing_back: HandingBack) -> None:
        self._control_state = stage.control_state
        self._handing_back = handing_back

    async def read(self) -> ControlState | None:
        """Read it."""
        return self._control_state.control_state

    async def set_no_adoption(self, order: Pause | None) -> None:
        """Order that nothing is adopted."""
        self._control_state.hand_back(undo=order is None)

    async def remove_adopter(self, seen: str) -> None:
        """Store that nobody takes countdowns over."""
        self._handing_back.writes = True
        self._control_state.remove_adopter(seen)
        self._handing_back.writes = False


class _PeoplesCalls:
    """Carries requests out at once."""

    def __init__(self, stage: ReplayStage, given_back: Callable[[], None], last_leader: Callable[[], str]) -> None:
        self._stage = stage
        self._cluster = stage.cluster
        self._writes = PodWrites(stage.cluster, stage.timeline)
        self._given_back = given_back
        self._last_leader = last_leader
        self._renewals = 0

    async def make(
        self, call: ApiRequest, *, take: Callable[[Any], None] | None = None, max_seconds: float | None = None
    ) -> ApiAnswer:
        """Make a request."""
        try:
            body = self._answer(call)
        except StatusError as error:
            outcome = Outcome.ABSENT if error.code == 404 else Outcome.REFUSED
            return ApiAnswer(outcome, error.code, None, CallFailed(error.message, reason=FailureReason.OTHER))
        if body is None:
            return ApiAnswer(Outcome.ABSENT, 404, None, None)
        if take is not None:
            for item in body.pop("items"):
                take(item)
            body["items"] = []
        return ApiAnswer(Outcome.DONE, 200, body, None)

    def _answer(self, call: ApiRequest) -> Any:
        key = NamespacedName(call.namespace, call.name)
        match call.verb, call.resource:
            case "get", "leases":
                return self._lease()
            case "get", "pods":
                return self._cluster.pod(key)
            case "patch", "pods":
                body = self._writes.change(key, cast(JsonPatch, call.body))
                self._given_back()
                return body
            case "list", "pods":
                return {"metadata": {}, "items": self._cluster.pods()}
            case "list", "nodes":
                return {"metadata": {}, "items": self._cluster.nodes()}
            case "list", _:
                return {"metadata": {}, "items": []}
            case "create", _:
                return {"status": {"allowed": True}}
            case _:
                raise Impossible(f"people make no call {call.verb} {call.resource}")

    def _lease(self) -> Any:
        """Return the Lease, which the leader renews until it ends, and which the next one takes at once."""
        if self._stage.replicas[0].process is not None:
            self._renewals = int(virtual_now() // _RENEWED_SECONDS)
        spec = {"holderIdentity": self._last_leader(), "leaseDurationSeconds": _LEASE_SECONDS}
        return {"metadata": {"resourceVersion": str(self._renewals)}, "spec": spec}
