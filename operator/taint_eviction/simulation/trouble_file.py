"""Reads the actions of a scenario's timeline that befall the controller: its own life, calls, watches, clocks."""

from collections.abc import Collection

from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction.simulation import actions as do
from taint_eviction.simulation.faults import Call, Picked, Trouble
from taint_eviction.simulation.object_file import ObjectReading, named

_CALLS = {
    **{call.value: frozenset({call}) for call in Call},
    "all": frozenset(Call),
    "writes": frozenset({Call.MARK, Call.UNMARK, Call.DELETE, Call.EVICT}),
    "reads": frozenset({Call.LIST_NODES, Call.LIST_PODS, Call.LIST_CACHED_PODS, Call.READ_NODE, Call.READ_POD}),
}
_WATCHES = {"nodes": (True, False), "pods": (False, True), "all": (True, True)}
_PICKING = ("call", "pod", "node", "times", "for")
MANAGER = "kubectl-taint"


class TroubleReading(ObjectReading):
    """Reads actions; None where a problem leaves nothing to do. ``replicas_named`` has each number, and its line."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.replicas_named: list[tuple[int, int]] = []

    def words(self, at: Marked, least: int, what: str) -> list[Marked]:
        """Read a text of at least so many words."""
        words = [Marked(word, at.line, {}) for word in str(at.value).split()]
        if not isinstance(at.value, str) or len(words) < least:
            self.problem(at.line, f"{what}, not {described(at)}")
            return []
        return words

    def needed(
        self, at: Marked, known: Collection[str], needed: Collection[str], what: str
    ) -> dict[str, Marked] | None:
        """Read a mapping; None if one of the ``needed`` keys is missing."""
        before = len(self.problems)
        fields = self.fields(at, known, what)
        if not isinstance(at.value, dict) or not self.only(fields, needed, at.line, what):
            return None
        return fields if len(self.problems) == before else None

    def manager(self, fields: dict[str, Marked]) -> str:
        """Read who writes."""
        return self.text(fields["by"], "by") if "by" in fields else MANAGER

    # The controller

    def restart(self, at: Marked) -> do.Action | None:
        """Read ``restart``: nothing, or ``after`` and ``replica``."""
        if at.value is None:
            return do.Restart(0.0)
        fields = self.needed(at, ("after", "replica"), (), "restart")
        if fields is None:
            return None
        return do.Restart(self._optional_seconds(fields, "after") or 0.0, self._replica(fields) or 1)

    def freeze(self, at: Marked) -> do.Action | None:
        """Read ``freeze``."""
        fields = self.needed(at, ("for", "replica"), ("for",), "freeze")
        return None if fields is None else do.Freeze(self._for(fields), self._replica(fields) or 1)

    def partition(self, at: Marked) -> do.Action | None:
        """Read ``partition``."""
        fields = self.needed(at, ("for", "replica"), ("for",), "partition")
        return None if fields is None else do.Partition(self._for(fields), self._replica(fields) or 1)

    def _replica(self, fields: dict[str, Marked]) -> int | None:
        if "replica" not in fields:
            return None
        number = self.whole_number(fields["replica"], "replica", 1)
        self.replicas_named.append((number, fields["replica"].line))
        return number

    def _for(self, fields: dict[str, Marked]) -> float:
        return self.seconds(fields["for"], "for", 0.0)

    def lead(self, at: Marked) -> do.Action | None:
        """Read ``lead``."""
        return do.Lead(self.boolean(at, "lead"))

    def step_host_clock(self, at: Marked) -> do.Action | None:
        """Read ``stepHostClock``: seconds, or ``by`` and ``replica``."""
        if not isinstance(at.value, dict):
            return do.StepHostClock(self.seconds(at, "stepHostClock"))
        fields = self.needed(at, ("by", "replica"), ("by",), "stepHostClock")
        return (
            None if fields is None else do.StepHostClock(self.seconds(fields["by"], "by"), self._replica(fields) or 1)
        )

    # Trouble

    def refuse(self, at: Marked) -> do.Action | None:
        """Read ``refuse``; without ``status`` the connection breaks."""
        fields = self.needed(at, (*_PICKING, "status", "message", "retryAfter", "tookEffect"), ("call",), "refuse")
        if fields is None:
            return None
        trouble = Trouble(
            fails=True,
            status=self.whole_number(fields["status"], "status", 400) if "status" in fields else None,
            message=self.text(fields["message"], "message") if "message" in fields else "",
            retry_after_seconds=self._optional_seconds(fields, "retryAfter"),
            takes_effect="tookEffect" in fields and self.boolean(fields["tookEffect"], "tookEffect"),
        )
        return self._disturb(fields, at, trouble)

    def hang(self, at: Marked) -> do.Action | None:
        """Read ``hang``."""
        fields = self.needed(at, (*_PICKING, "tookEffect"), ("call",), "hang")
        if fields is None:
            return None
        effect = "tookEffect" in fields and self.boolean(fields["tookEffect"], "tookEffect")
        return self._disturb(fields, at, Trouble(hangs=True, takes_effect=effect))

    def delay(self, at: Marked) -> do.Action | None:
        """Read ``delay``."""
        fields = self.needed(at, (*_PICKING, "by", "back"), ("call",), "delay")
        if fields is None or not self.only(fields, () if "back" in fields else ("by",), at.line, "delay"):
            return None
        there, back = self._optional_seconds(fields, "by"), self._optional_seconds(fields, "back")
        return self._disturb(fields, at, Trouble(delay_seconds=there or 0.0, back_seconds=back or 0.0))

    def _disturb(self, fields: dict[str, Marked], at: Marked, trouble: Trouble) -> do.Action:
        picked = Picked(self._calls(fields["call"]), self._pattern(fields, at), self._times(fields))
        return do.DisturbCalls(picked, self._optional_seconds(fields, "for"), trouble)

    def _calls(self, at: Marked) -> frozenset[Call]:
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

    def _optional_seconds(self, fields: dict[str, Marked], name: str) -> float | None:
        return self.seconds(fields[name], name, 0.0) if name in fields else None

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
