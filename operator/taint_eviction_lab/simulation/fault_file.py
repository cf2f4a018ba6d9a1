"""Reads the actions of a scenario's timeline that disturb calls and watches."""

from taint_eviction.files.marked_yaml import Marked
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.faults import CallFault, CallKind, Picked
from taint_eviction_lab.simulation.object_file import named
from taint_eviction_lab.simulation.process_file import ProcessReading

_CALLS = {
    **{call.value: frozenset({call}) for call in CallKind},
    # What these two were called before 0.3.
    "readOrders": frozenset({CallKind.READ_CONTROL_STATE}),
    "writeOrders": frozenset({CallKind.WRITE_CONTROL_STATE}),
    "all": frozenset(CallKind),
    "writes": frozenset(
        {CallKind.MARK, CallKind.UNMARK, CallKind.DELETE, CallKind.EVICT, CallKind.ADOPT, CallKind.GIVE_BACK}
    ),
    "reads": frozenset(
        {
            CallKind.LIST_NODES,
            CallKind.LIST_PODS,
            CallKind.LIST_CACHED_PODS,
            CallKind.LIST_ADOPTED,
            CallKind.READ_NODE,
            CallKind.READ_POD,
        }
    ),
}
_WATCHES = {"nodes": (True, False), "pods": (False, True), "all": (True, True)}
_DELAYS = frozenset(("connect", "by", "back"))
_PICKING = ("call", "pod", "node", "times", "for")


class FaultReading(ProcessReading):
    """Reads actions; returns None if a problem leaves nothing to perform."""

    def refuse(self, at: Marked) -> do.Action | None:
        """Read ``refuse``; without ``status`` the connection breaks."""
        known = (*_PICKING, "status", "message", "retryAfter", "tookEffect", "dateAhead")
        fields = self.needed(at, known, ("call",), "refuse")
        if fields is None:
            return None
        fault = CallFault(
            fails=True,
            status=self.whole_number(fields["status"], "status", 400) if "status" in fields else None,
            message=self.text(fields["message"], "message") if "message" in fields else "",
            retry_after_seconds=self._optional_seconds(fields, "retryAfter"),
            takes_effect="tookEffect" in fields and self.boolean(fields["tookEffect"], "tookEffect"),
            date_ahead_seconds=self.seconds(fields["dateAhead"], "dateAhead") if "dateAhead" in fields else 0.0,
        )
        return self._disturb(fields, at, fault)

    def hang(self, at: Marked) -> do.Action | None:
        """Read ``hang``."""
        fields = self.needed(at, (*_PICKING, "tookEffect"), ("call",), "hang")
        if fields is None:
            return None
        effect = "tookEffect" in fields and self.boolean(fields["tookEffect"], "tookEffect")
        return self._disturb(fields, at, CallFault(hangs=True, takes_effect=effect))

    def delay(self, at: Marked) -> do.Action | None:
        """Read ``delay``."""
        fields = self.needed(at, (*_PICKING, *_DELAYS), ("call",), "delay")
        if fields is None or not self.only(fields, () if _DELAYS & fields.keys() else ("by",), at.line, "delay"):
            return None
        connect, there, back = (self._optional_seconds(fields, name) or 0.0 for name in ("connect", "by", "back"))
        return self._disturb(fields, at, CallFault(connect_seconds=connect, delay_seconds=there, back_seconds=back))

    def misdate(self, at: Marked) -> do.Action | None:
        """Read ``misdate``."""
        fields = self.needed(at, (*_PICKING, "by"), ("call", "by"), "misdate")
        if fields is None:
            return None
        return self._disturb(fields, at, CallFault(date_ahead_seconds=self.seconds(fields["by"], "by")))

    def _disturb(self, fields: dict[str, Marked], at: Marked, fault: CallFault) -> do.Action:
        picked = Picked(self._calls(fields["call"]), self._pattern(fields, at), self._times(fields))
        return do.DisturbCalls(picked, self._optional_seconds(fields, "for"), fault)

    def _calls(self, at: Marked) -> frozenset[CallKind]:
        items = self.items(at, "call") if isinstance(at.value, list) else [at]
        names = [self.text(item, "call", _CALLS) for item in items]
        return frozenset(call for name in names for call in _CALLS.get(name, frozenset()))

    def _pattern(self, fields: dict[str, Marked], at: Marked) -> str:
        if "pod" in fields and "node" in fields:
            self.problem(at.line, "'pod' and 'node' do not go together: a call is about one of them")
        if "pod" in fields:
            return str(named(self.text(fields["pod"], "pod")))
        return self.text(fields["node"], "node") if "node" in fields else "*"

    def _times(self, fields: dict[str, Marked]) -> int | None:
        return self.whole_number(fields["times"], "times", 1) if "times" in fields else None

    def outage(self, at: Marked) -> do.Action | None:
        """Read ``outage``."""
        fields = self.needed(at, ("for",), ("for",), "outage")
        return None if fields is None else do.Outage(self.seconds(fields["for"], "for", 0.0))

    def lag(self, at: Marked) -> do.Action | None:
        """Read ``lag``."""
        fields = self.needed(at, ("watch", "replica", "by"), ("watch", "by"), "lag")
        return None if fields is None else do.LagWatches(self._watches(fields), self.seconds(fields["by"], "by", 0.0))

    def cut(self, at: Marked) -> do.Action | None:
        """Read ``cut``."""
        fields = self.needed(at, ("watch", "replica", "for"), ("watch",), "cut")
        if fields is None:
            return None
        return do.CutWatches(self._watches(fields), self._optional_seconds(fields, "for") or 0.0)

    def lose(self, at: Marked) -> do.Action | None:
        """Read ``lose``."""
        fields = self.needed(at, ("watch", "replica", "for"), ("watch", "for"), "lose")
        return None if fields is None else do.LoseEvents(self._watches(fields), self._for(fields))

    def repeat(self, at: Marked) -> do.Action | None:
        """Read ``repeat``."""
        fields = self.needed(at, ("watch", "replica", "for"), ("watch", "for"), "repeat")
        return None if fields is None else do.RepeatEvents(self._watches(fields), self._for(fields))

    def relist(self, at: Marked) -> do.Action | None:
        """Read ``relist``."""
        fields = self.needed(at, ("watch", "replica"), ("watch",), "relist")
        return None if fields is None else do.RelistWatches(self._watches(fields))

    def _watches(self, fields: dict[str, Marked]) -> do.Watches:
        kinds = self.text(fields["watch"], "watch", _WATCHES)
        return do.Watches(*_WATCHES.get(kinds, (True, True)), self._replica(fields))
