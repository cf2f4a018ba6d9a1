"""Reads the setting that switches on kubelets' heartbeats and the node lifecycle controller, and steps about these."""

from typing import Any

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from taint_eviction.files import short_forms
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction_lab.simulation import lifecycle_actions as let
from taint_eviction_lab.simulation.actions import Action
from taint_eviction_lab.simulation.suspension_file import SuspensionReading

_SPANS = {"gracePeriod": "grace_period_seconds", "period": "period_seconds", "renewal": "renew_seconds"}
LIFECYCLE_SETTINGS = frozenset({*_SPANS, "largeZone"})
_LEAST_SECONDS = 0.1


class LifecycleReading(SuspensionReading):
    """Reads the setting and the steps; returns None if a problem leaves nothing to perform."""

    def node_lifecycle(self, at: Marked) -> NodeLifecycleSettings:
        """Read ``nodeLifecycle``: a scenario with this key has a node lifecycle controller."""
        fields = self.fields(at, LIFECYCLE_SETTINGS, "nodeLifecycle")
        changes: dict[str, Any] = {
            own: self.seconds(fields[name], name, _LEAST_SECONDS) for name, own in _SPANS.items() if name in fields
        }
        if "largeZone" in fields:
            changes["large_zone"] = self.whole_number(fields["largeZone"], "largeZone", 0)
        return NodeLifecycleSettings(**changes)

    def silence(self, at: Marked) -> Action | None:
        """Read ``silence``: a node, or a list of nodes."""
        return let.SilenceKubelets(self._nodes(at, "silence"))

    def speak(self, at: Marked) -> Action | None:
        """Read ``speak``: a node, or a list of nodes."""
        return let.HearKubelets(self._nodes(at, "speak"))

    def _nodes(self, at: Marked, what: str) -> tuple[str, ...]:
        items = self.items(at, what) if isinstance(at.value, list) else [at]
        return tuple(name for item in items for name in self._range(item))

    def _range(self, at: Marked) -> list[str]:
        try:
            names = short_forms.expand_range(self.text(at, "a node"))
        except ValueError as expected:
            self.problem(at.line, f"{described(at)} is not {expected}")
            return []
        return [self.use_node(Marked(name, at.line, {})) for name in names]

    def shut_down(self, at: Marked) -> Action | None:
        """Read ``shutDown``: a node, and for how long its kubelet still reports."""
        fields = self.needed(at, ("node", "for"), ("node", "for"), "shutDown")
        if fields is None:
            return None
        return let.ShutDown(self.use_node(fields["node"]), self.seconds(fields["for"], "for", 0.0))

    def restart_lifecycle(self, at: Marked) -> Action | None:
        """Read ``restartLifecycle``: nothing, or ``after``."""
        if at.value in (None, {}):
            return let.RestartLifecycle(0.0)
        fields = self.needed(at, ("after",), ("after",), "restartLifecycle")
        return None if fields is None else let.RestartLifecycle(self.seconds(fields["after"], "after", 0.0))
