"""Reads what suspends evictions in a scenario: pauses, the breaker, owners' holds, the rules of a policy.

In ``given``, ``controlState`` is the content of the ConfigMap at the start. Rules are written as in the configuration
file (``files.policy_file``).
"""

from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.policy import PolicyRule
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction.files.policy_file import PolicyReading
from taint_eviction_lab.simulation import suspension_actions as suspend
from taint_eviction_lab.simulation.actions import Action, Annotate, SetHold
from taint_eviction_lab.simulation.budget_file import BudgetReading
from taint_eviction_lab.simulation.virtual_clock import server_time


class SuspensionReading(BudgetReading):
    """Reads these parts; returns None if a problem leaves nothing to perform."""

    def control_state(self, at: Marked) -> ControlState:
        """Read the content of the ConfigMap."""
        fields = self.fields(at, ("pause", "nodes", "namespaces", "breaker"), "controlState")
        whole = Pause() if "pause" in fields and self.boolean(fields["pause"], "pause") else None
        nodes = {self.use_node(item): Pause() for item in self.items(fields.get("nodes"), "nodes")}
        names = [self.text(item, "a namespace") for item in self.items(fields.get("namespaces"), "namespaces")]
        latch = self._latch(fields["breaker"]) if "breaker" in fields else None
        return ControlState(whole, nodes, dict.fromkeys(names, Pause()), latch)

    def _latch(self, at: Marked) -> Latch:
        fields = self.fields(at, ("openSince", "controller"), "breaker")
        self.only(fields, ("openSince",), at.line, "breaker")
        since = self.seconds(fields["openSince"], "openSince") if "openSince" in fields else 0.0
        controller = self.text(fields["controller"], "controller") if "controller" in fields else ""
        return Latch(server_time(since), "given", controller=controller)

    def pause(self, at: Marked) -> Action | None:
        """Read ``pause``: ``{}`` for all evictions, or a node, or a namespace; and for how long."""
        fields = self._scope(at, ("node", "namespace", "reason", "for"), "pause")
        if fields is None:
            return None
        reason = self.text(fields["reason"], "reason") if "reason" in fields else ""
        seconds = self.seconds(fields["for"], "for") if "for" in fields else None
        return suspend.PauseEvictions(*self._names(fields), reason, seconds)

    def resume(self, at: Marked) -> Action | None:
        """Read ``resume``: as ``pause``, or ``all`` for every pause."""
        if at.value == "all":
            return suspend.ResumeEvictions(every=True)
        fields = self._scope(at, ("node", "namespace"), "resume")
        return None if fields is None else suspend.ResumeEvictions(*self._names(fields))

    def _scope(self, at: Marked, scopes: tuple[str, ...], what: str) -> dict[str, Marked] | None:
        fields = self.needed(at, scopes, (), what)
        if fields is not None and "node" in fields and "namespace" in fields:
            self.problem(at.line, f"'node' and 'namespace' do not go together: {what} takes one of them")
            return None
        return fields

    def _names(self, fields: dict[str, Marked]) -> tuple[str | None, str | None]:
        node = self.use_node(fields["node"]) if "node" in fields else None
        return node, self.text(fields["namespace"], "namespace") if "namespace" in fields else None

    def reset_breaker(self, at: Marked) -> Action | None:
        """Read ``resetBreaker``: nothing, or by how much the person's clock is ahead."""
        if at.value in (None, {}):
            return suspend.ResetBreaker()
        fields = self.needed(at, ("ahead",), ("ahead",), "resetBreaker")
        return None if fields is None else suspend.ResetBreaker(self.seconds(fields["ahead"], "ahead"))

    def lose_control_state(self, at: Marked) -> Action | None:
        """Read ``loseControlState``, which takes nothing."""
        if at.value not in (None, {}):
            self.problem(at.line, f"loseControlState takes nothing, not {described(at)}")
            return None
        return suspend.LoseControlState()

    def hand_back(self, at: Marked) -> Action | None:
        """Read ``handBack``: nothing, or ``undo``."""
        if at.value not in (None, "undo"):
            self.problem(at.line, f"handBack takes nothing, or undo, not {described(at)}")
            return None
        return suspend.HandBack(at.value == "undo")

    def scribble(self, at: Marked) -> Action | None:
        """Read ``scribble``."""
        fields = self.needed(at, ("key", "value"), ("key", "value"), "scribble")
        if fields is None:
            return None
        return suspend.Scribble(self.text(fields["key"], "key"), self.text(fields["value"], "value"))

    def set_hold(self, at: Marked) -> Action | None:
        """Read ``setHold``."""
        fields = self.needed(at, ("pod", "hold"), ("pod", "hold"), "setHold")
        if fields is None:
            return None
        value = None if fields["hold"].value is None else self._hold(fields["hold"])
        return SetHold(self.use_pod(fields["pod"]), value)

    def annotate(self, at: Marked) -> Action | None:
        """Read ``annotate``."""
        fields = self.needed(at, ("pod", "annotations"), ("pod", "annotations"), "annotate")
        if fields is None:
            return None
        annotations = fields["annotations"]
        if not isinstance(annotations.value, dict):
            self.problem(at.line, f"annotations must be a mapping, not {described(annotations)}")
            return None
        texts = {
            name: None if text.value is None else self.text(text, f"annotations.{name}")
            for name, text in annotations.value.items()
        }
        return Annotate(self.use_pod(fields["pod"]), texts)

    def rules(self, at: Marked) -> tuple[PolicyRule, ...]:
        """Read the rules of a policy, as they stand in the configuration file."""
        reading = PolicyReading(self.file)
        rules = reading.rules(at)
        self.problems += reading.problems
        return rules

    def change_policy(self, at: Marked) -> Action | None:
        """Read ``changePolicy``."""
        return suspend.ChangePolicy(self.rules(at))
