"""Reads a scenario's settings: those of the controller that scenarios need, and those of the simulated world."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit
from taint_eviction.core.tiers import Order
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction.settings import AdoptionSettings, Settings
from taint_eviction_lab.built_in.version import BuiltIn, read_version
from taint_eviction_lab.simulation.actions import read_rules
from taint_eviction_lab.simulation.object_file import ObjectReading
from taint_eviction_lab.simulation.virtual_clock import ClockSettings

# Setting → field, for each part of the settings.
_SPANS = {"callTimeout": "call_timeout_seconds", "nodeRead": "node_read_seconds", "outageGap": "outage_gap_seconds"}
_RETRY_SPANS = {"retryFirst": "first_seconds", "retryMost": "max_seconds"}
_WATCH_SPANS = {"resyncInterval": "resync_seconds", "linger": "linger_seconds"}
_DEFAULTS = {
    "defaultNotReadySeconds": "default_not_ready_seconds",
    "defaultUnreachableSeconds": "default_unreachable_seconds",
}
_LIMITS = {"total": "", "per_node": "PerNode", "per_namespace": "PerNamespace"}
_RATE, _BURST, _AT_ONCE = "evictionsPerSecond", "evictionsBurst", "evictionsAtOnce"
_POLICY = ("evictionMode", "evictTimeout", "backgroundTimeout", "order", "orderWait", "policy")
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
_OTHERS = ("workers", "wholeClusterFrom", "evictFinished", "dryRun", "honourHolds", "gracefulShutdown", "breaker")
_ADOPTION = ("adopt", "adoptFrom", "adoptBefore")

SETTINGS = frozenset(
    {
        *(*_SPANS, *_RETRY_SPANS, *_WATCH_SPANS, *_DEFAULTS, *_POLICY, *_WORLD, *_OTHERS, *_ADOPTION),
        *(f"{name}{scope}" for name in (_RATE, _BURST, _AT_ONCE) for scope in _LIMITS.values()),
    }
)
_LIFECYCLE_SPANS = {"gracePeriod": "grace_period_seconds", "period": "period_seconds", "renewal": "renew_seconds"}
LIFECYCLE_SETTINGS = frozenset({*_LIFECYCLE_SPANS, "largeZone"})
_LEAST_SECONDS = 0.1
_BREAKER_SPANS = {"window": "window_seconds", "settle": "settle_seconds", "listWait": "list_wait_seconds"}
BREAKER_SETTINGS = frozenset(
    {
        *_BREAKER_SPANS,
        "nodes",
        "leastNodes",
        "lifecycleNodes",
        "zone",
        "withoutControlPlane",
        "duePods",
        "closesByItself",
    }
)

_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_EXEMPT, _FOR_EVER = "exempt", "forever"

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
        default = Settings()
        watch = self._spans(fields, _WATCH_SPANS)
        if "wholeClusterFrom" in fields:
            watch["whole_cluster_from"] = self.whole_number(fields["wholeClusterFrom"], "wholeClusterFrom", 1)
        changes: dict[str, Any] = {
            **self._spans(fields, _SPANS),
            **{own: self.whole_number(fields[name], name, 0) for name, own in _DEFAULTS.items() if name in fields},
            "policy": self._policy(fields),
            "retry": replace(default.retry, **self._spans(fields, _RETRY_SPANS)),
            "watch": replace(default.watch, **watch),
        }
        if "workers" in fields:
            changes["workers"] = self.whole_number(fields["workers"], "workers", 1)
        if "evictFinished" in fields:
            changes["evict_finished"] = self.boolean(fields["evictFinished"], "evictFinished")
        if "dryRun" in fields and self.boolean(fields["dryRun"], "dryRun"):
            lease = replace(default.election, lease_name=f"{default.election.lease_name}-dry-run")
            changes |= {"dry_run": True, "election": lease}
        if "honourHolds" in fields:
            changes["max_hold_seconds"] = self._max_hold(fields["honourHolds"])
        if "gracefulShutdown" in fields:
            word = self.text(fields["gracefulShutdown"], "gracefulShutdown", ("evict", "wait"))
            changes["wait_for_shutdown"] = word == "wait"
        changes["adoption"] = self._adoption(fields)
        if "breaker" in fields:
            changes["breaker"] = self._breaker(fields["breaker"])
        return replace(default, **changes)

    def _adoption(self, fields: Fields) -> AdoptionSettings:
        default = AdoptionSettings()
        enabled = self.boolean(fields["adopt"], "adopt") if "adopt" in fields else default.enabled
        spans = self._spans(fields, {"adoptFrom": "from_seconds", "adoptBefore": "before_seconds"})
        return replace(default, enabled=enabled, **spans)

    def _spans(self, fields: Fields, names: dict[str, str]) -> dict[str, Any]:
        return {own: self.seconds(fields[name], name, 0.0) for name, own in names.items() if name in fields}

    def _max_hold(self, at: Marked) -> float:
        return math.inf if at.value == _FOR_EVER else self.seconds(at, "honourHolds", 0.0)

    # How pods are evicted

    def _policy(self, fields: Fields) -> EvictionPolicy:
        changes: dict[str, Any] = {own: self._limit(fields, scope) for own, scope in _LIMITS.items()}
        if "evictionMode" in fields:
            mode = self.text(fields["evictionMode"], "evictionMode", [mode.value for mode in EvictionMode])
            changes["mode"] = next((each for each in EvictionMode if each.value == mode), EvictionMode.DELETE)
        if "evictTimeout" in fields:
            changes["evict_timeout_seconds"] = self.seconds(fields["evictTimeout"], "evictTimeout", 0.0)
        if "backgroundTimeout" in fields:
            seconds = self.seconds(fields["backgroundTimeout"], "backgroundTimeout", 0.0)
            changes["background_timeout_seconds"] = seconds
        if "order" in fields:
            order = self.text(fields["order"], "order", [order.value for order in Order])
            changes["order"] = next((each for each in Order if each.value == order), Order.NONE)
        if "orderWait" in fields:
            changes["order_wait_seconds"] = self.seconds(fields["orderWait"], "orderWait", 0.0)
        if "policy" in fields:
            changes["rules"] = read_rules(self, fields["policy"])
        return EvictionPolicy(**changes)

    def _limit(self, fields: Fields, scope: str) -> Limit:
        rate, burst, at_once = (f"{name}{scope}" for name in (_RATE, _BURST, _AT_ONCE))
        return Limit(
            self.number(fields[rate], rate) if rate in fields else None,
            self.whole_number(fields[burst], burst, 1) if burst in fields else None,
            self.whole_number(fields[at_once], at_once, 1) if at_once in fields else None,
        )

    # The breaker

    def _breaker(self, at: Marked) -> BreakerPolicy:
        """Read ``breaker``: a scenario with this key has a circuit breaker."""
        fields = self.fields(at, BREAKER_SETTINGS, "breaker")
        changes: dict[str, Any] = self._spans(fields, _BREAKER_SPANS)
        policy = BreakerPolicy(enabled=True)
        least = self.whole_number(fields["leastNodes"], "leastNodes", 1) if "leastNodes" in fields else None
        lifecycle = policy.lifecycle_nodes
        if "lifecycleNodes" in fields:
            is_exempt = fields["lifecycleNodes"].value == _EXEMPT
            lifecycle = None if is_exempt else self._threshold(fields["lifecycleNodes"], "lifecycleNodes", _EXEMPT)
        zone = self._threshold(fields["zone"], "zone") if "zone" in fields else None
        nodes = self._threshold(fields["nodes"], "nodes") if "nodes" in fields else policy.nodes
        if least is not None:
            nodes = replace(nodes, min_nodes=least)
            lifecycle = None if lifecycle is None else replace(lifecycle, min_nodes=least)
            zone = None if zone is None else replace(zone, min_nodes=least)
        if "duePods" in fields:
            changes["max_due"] = self.whole_number(fields["duePods"], "duePods", 0)
        if "closesByItself" in fields:
            changes["closes_by_itself"] = self.boolean(fields["closesByItself"], "closesByItself")
        if "withoutControlPlane" in fields:
            changes["without_control_plane"] = self.boolean(fields["withoutControlPlane"], "withoutControlPlane")
        return replace(policy, nodes=nodes, lifecycle_nodes=lifecycle, zone=zone, **changes)

    def _threshold(self, at: Marked, what: str, *others: str) -> NodeThreshold:
        if isinstance(at.value, str) and (found := _PERCENTAGE.fullmatch(at.value)):
            return NodeThreshold(percent=float(found[1]))
        if isinstance(at.value, int) and not isinstance(at.value, bool):
            return NodeThreshold(number=at.value)
        forms = ", ".join(["a number of nodes", "a share of them (25%)", *others])
        self.problem(at.line, f"{what} must be one of {forms}, not {described(at)}")
        return NodeThreshold()
