"""Reads the actions of a scenario's timeline on the controller's processes and on clocks."""

from collections.abc import Collection

from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.object_file import ObjectReading

_BUILT_IN = "built-in"


class ProcessReading(ObjectReading):
    """Reads actions; returns None if a problem leaves nothing to perform.

    ``replicas_named`` and ``servers_named`` have each number with its line.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.replicas_named: list[tuple[int, int]] = []
        self.servers_named: list[tuple[int, int]] = []

    def words(self, at: Marked, least: int, what: str) -> list[Marked]:
        """Read a text of at least ``least`` words."""
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
        """Read the name of the manager that writes."""
        return self.text(fields["by"], "by") if "by" in fields else do.KUBECTL

    def restart(self, at: Marked) -> do.Action | None:
        """Read ``restart``: nothing, or ``after``, ``replica``, ``adopt`` and ``gracefully``."""
        if at.value is None:
            return do.Restart(0.0)
        fields = self.needed(at, ("after", "replica", "adopt", "gracefully"), (), "restart")
        if fields is None:
            return None
        adopts = self.boolean(fields["adopt"], "adopt") if "adopt" in fields else None
        gracefully = "gracefully" in fields and self.boolean(fields["gracefully"], "gracefully")
        after_seconds = self._optional_seconds(fields, "after") or 0.0
        return do.Restart(after_seconds, self._replica(fields) or 1, adopts, gracefully)

    def freeze(self, at: Marked) -> do.Action | None:
        """Read ``freeze``."""
        fields = self.needed(at, ("for", "replica"), ("for",), "freeze")
        return None if fields is None else do.Freeze(self._for(fields), self._replica(fields) or 1)

    def partition(self, at: Marked) -> do.Action | None:
        """Read ``partition``."""
        fields = self.needed(at, ("for", "replica", "late"), ("for",), "partition")
        if fields is None:
            return None
        return do.Partition(self._for(fields), self._replica(fields) or 1, self._optional_seconds(fields, "late"))

    def _replica(self, fields: dict[str, Marked]) -> int | None:
        if "replica" not in fields:
            return None
        if fields["replica"].value == _BUILT_IN:
            self.replicas_named.append((do.BUILT_IN, fields["replica"].line))
            return do.BUILT_IN
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

    def step_server_clock(self, at: Marked) -> do.Action | None:
        """Read ``stepServerClock``: seconds, or ``by`` and ``server``."""
        if not isinstance(at.value, dict):
            return do.StepServerClock(self.seconds(at, "stepServerClock"))
        fields = self.needed(at, ("by", "server"), ("by",), "stepServerClock")
        if fields is None:
            return None
        server = self._server(fields["server"]) if "server" in fields else None
        return do.StepServerClock(self.seconds(fields["by"], "by"), server)

    def stop_server(self, at: Marked) -> do.Action | None:
        """Read ``stopServer``."""
        fields = self.needed(at, ("server", "for"), ("server", "for"), "stopServer")
        return None if fields is None else do.StopServer(self._server(fields["server"]), self._for(fields))

    def _server(self, at: Marked) -> int:
        server = self.whole_number(at, "server", 1)
        self.servers_named.append((server, at.line))
        return server

    def _optional_seconds(self, fields: dict[str, Marked], name: str) -> float | None:
        return self.seconds(fields[name], name, 0.0) if name in fields else None
