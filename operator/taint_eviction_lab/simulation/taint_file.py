"""Reads times, taints and tolerations of a scenario: in Kubernetes' own shape, or in the short forms of its tools."""

from collections.abc import Callable

from taint_eviction.files import short_forms
from taint_eviction.files.durations import parse_seconds
from taint_eviction.files.marked_yaml import Marked, Reading, described
from taint_eviction_lab.simulation import kubernetes_fields as known
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.virtual_clock import timestamp

_OPERATORS = ("Equal", "Exists", "Gt", "Lt")


class TaintReading(Reading):
    """Reads times, taints and tolerations; returns "" or {} if a problem leaves nothing."""

    def time(self, at: Marked, what: str) -> str:
        """Read a time: as Kubernetes writes it, or a second of the scenario (negative: before its start)."""
        if isinstance(at.value, str) and "T" in at.value:
            return at.value
        try:
            return timestamp(parse_seconds(at.value))
        except ValueError:
            self.problem(at.line, f"{what} must be a time (2030-01-01T00:00:00Z, or seconds: -1h), not {described(at)}")
            return ""

    def taint(self, at: Marked) -> JsonObject:
        """Read a taint: ``key=value:Effect``, or Kubernetes' own shape; ``timeAdded: now`` is replaced by the step."""
        if isinstance(at.value, str):
            return self._short(at, short_forms.parse_taint)
        fields = self.fields(at, known.TAINT, "a taint")
        self.only(fields, ("key", "effect"), at.line, "a taint")
        taint = {name: self.text(value, name) for name, value in fields.items() if name in ("key", "value")}
        if "effect" in fields:
            taint["effect"] = self.text(fields["effect"], "effect", short_forms.EFFECTS)
        if "timeAdded" in fields:
            added = fields["timeAdded"]
            taint["timeAdded"] = "now" if added.value == "now" else self.time(added, "timeAdded")
        return taint

    def toleration(self, at: Marked) -> JsonObject:
        """Read a toleration: ``key=value:Effect for 30s``, or Kubernetes' own shape."""
        if isinstance(at.value, str):
            return self._short(at, short_forms.parse_toleration)
        fields = self.fields(at, known.TOLERATION, "a toleration")
        toleration: JsonObject = {
            name: self.text(value, name) for name, value in fields.items() if name in ("key", "value")
        }
        if "operator" in fields:
            toleration["operator"] = self.text(fields["operator"], "operator", _OPERATORS)
        if "effect" in fields:
            toleration["effect"] = self.text(fields["effect"], "effect", short_forms.EFFECTS)
        if "tolerationSeconds" in fields:
            toleration["tolerationSeconds"] = self.whole_number(fields["tolerationSeconds"], "tolerationSeconds")
        return toleration

    def _short(self, at: Marked, parse: Callable[[str], JsonObject]) -> JsonObject:
        try:
            return parse(at.value)
        except ValueError as expected:
            self.problem(at.line, f"{at.value!r} is not {expected}")
            return {}
