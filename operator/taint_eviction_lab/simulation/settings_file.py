"""Reads a scenario's settings: those of the controller that scenarios need, and those of the simulated world."""

from dataclasses import dataclass, replace
from typing import Any

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction.settings import TABLE, Setting, Settings, default_lease_name, with_values
from taint_eviction_lab.built_in.version import BuiltIn, read_version
from taint_eviction_lab.simulation.actions import read_rules
from taint_eviction_lab.simulation.object_file import ObjectReading
from taint_eviction_lab.simulation.virtual_clock import ClockSettings

_ROWS = {row.keyword: row for row in TABLE if row.keyword}
_WORLD = (
    "replicas",
    "defaultTolerationSeconds",
    "readyAfter",
    "apiServers",
    "balancedBy",
    "quartzDrift",
    "nodeLifecycle",
    "builtIn",
)
_BREAKER = "breaker."
SETTINGS = frozenset({*(keyword.partition(".")[0] for keyword in _ROWS), "policy", *_WORLD})
BREAKER_SETTINGS = frozenset(key.removeprefix(_BREAKER) for key in _ROWS if key.startswith(_BREAKER))
_LIFECYCLE_SPANS = {"gracePeriod": "grace_period_seconds", "period": "period_seconds", "renewal": "renew_seconds"}
LIFECYCLE_SETTINGS = frozenset({*_LIFECYCLE_SPANS, "largeZone"})
_LEAST_SECONDS = 0.1

# A clock must not run backwards.
_MAX_DRIFT_PPM = 1_000_000

Fields = dict[str, Marked]


@dataclass(frozen=True, slots=True)
class ScenarioSettings:
    """The controller's ``settings``, and those of the simulated world.

    ``default_toleration_seconds``: what admission gives pods that do not tolerate not-ready and unreachable; None for
    no such admission. ``ready_seconds``: how long after it was bound a pod is ready. ``replicas``: the number of
    controllers, of which the elected one acts; None: one, without election. ``clocks``: of API servers and controllers.
    ``node_lifecycle``: settings of the node lifecycle controller; None: there is none. ``built_in``: the model of the
    built-in controller; None: there is none.
    """

    settings: Settings
    default_toleration_seconds: int | None
    ready_seconds: float
    replicas: int | None
    clocks: ClockSettings
    node_lifecycle: NodeLifecycleSettings | None = None
    built_in: BuiltIn | None = None


class SettingsReading(ObjectReading):
    """Reads settings."""

    def settings(self, at: Marked) -> ScenarioSettings:
        """Read ``settings``."""
        fields = self.fields(at, SETTINGS, "settings")
        settings = self._controller_settings(fields)
        for problem in settings.problems():
            self.problem(at.line, f"settings: {problem}")
        admission: int | None = 300
        if (value := fields.get("defaultTolerationSeconds")) is not None:
            admission = None if value.value is None else self.whole_number(value, "defaultTolerationSeconds", 0)
        ready_seconds = self.seconds(fields["readyAfter"], "readyAfter", 0.0) if "readyAfter" in fields else 0.0
        replicas = self.whole_number(fields["replicas"], "replicas", 1) if "replicas" in fields else None
        lifecycle = self._node_lifecycle(fields["nodeLifecycle"]) if "nodeLifecycle" in fields else None
        built_in = self._built_in(fields["builtIn"]) if "builtIn" in fields else None
        clocks = self._clocks(fields)
        return ScenarioSettings(settings, admission, ready_seconds, replicas, clocks, lifecycle, built_in)

    def _node_lifecycle(self, at: Marked) -> NodeLifecycleSettings:
        """Read ``nodeLifecycle``: a scenario with this key has a node lifecycle controller."""
        fields = self.fields(at, LIFECYCLE_SETTINGS, "nodeLifecycle")
        changes: dict[str, Any] = {
            own: self.seconds(fields[name], name, _LEAST_SECONDS)
            for name, own in _LIFECYCLE_SPANS.items()
            if name in fields
        }
        if "largeZone" in fields:
            changes["large_zone"] = self.whole_number(fields["largeZone"], "largeZone", 0)
        return NodeLifecycleSettings(**changes)

    def _built_in(self, at: Marked) -> BuiltIn | None:
        """Read ``builtIn``: a version, or ``version`` and ``alone``."""
        fields = {"version": at}
        if isinstance(at.value, dict):
            fields = self.fields(at, ("version", "alone"), "builtIn")
            if not self.only(fields, ("version",), at.line, "builtIn"):
                return None
        alone = self.boolean(fields["alone"], "alone") if "alone" in fields else False
        try:
            return BuiltIn(read_version(str(fields["version"].value)), alone)
        except ValueError as expected:
            self.problem(fields["version"].line, f"{described(fields['version'])} is not {expected}")
            return None

    def _clocks(self, fields: Fields) -> ClockSettings:
        servers = self.whole_number(fields["apiServers"], "apiServers", 1) if "apiServers" in fields else 1
        by = self.text(fields["balancedBy"], "balancedBy", ("connection", "request")) if "balancedBy" in fields else ""
        clocks = ClockSettings(servers, per_request=by == "request")
        at = fields.get("quartzDrift")
        if at is None:
            return clocks
        if not isinstance(at.value, int | float) or isinstance(at.value, bool) or not abs(at.value) < _MAX_DRIFT_PPM:
            self.problem(at.line, f"quartzDrift must be a number of millionths, not {described(at)}")
            return clocks
        return replace(clocks, drift_ppm=float(at.value))

    def _controller_settings(self, fields: Fields) -> Settings:
        settings, values = Settings(), self._values(fields)
        if "breaker" in fields:  # A scenario with this key has a circuit breaker.
            settings = replace(settings, breaker=BreakerPolicy(enabled=True))
            values += self._values(self.fields(fields["breaker"], BREAKER_SETTINGS, "breaker"), _BREAKER)
        settings = with_values(settings, values)
        if settings.dry_run:
            lease = replace(settings.election, lease_name=default_lease_name(dry_run=True))
            settings = replace(settings, election=lease)
        if "policy" in fields:
            settings = replace(settings, policy=replace(settings.policy, rules=read_rules(self, fields["policy"])))
        return settings

    def _values(self, fields: Fields, prefix: str = "") -> list[tuple[Setting, Any]]:
        values = []
        for key, at in fields.items():
            if (row := _ROWS.get(prefix + key)) is not None:
                try:
                    values.append((row, row.form.parse(at.value)))
                except ValueError as expected:
                    self.problem(at.line, f"{key} must be {expected}, not {described(at)}")
        return values
