"""Prometheus metrics: upstream's two by their names, and what operators ask of an eviction controller besides.

A registry of its own, so that nothing else gets in. What is a state of somebody else's is read when it is scraped,
through a callable. No label ever names a pod or a node. Measures only: what it is told it does not check.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "taint_eviction_controller"

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Upstream's own buckets.
_DURATION_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
_LATENESS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


@dataclass(frozen=True, slots=True)
class Readings:
    """What is read when metrics are scraped; each must be quick, and must not raise.

    ``pending``: pods that have a deadline or are being evicted. ``retrying``: those of them whose last attempt failed.
    ``longest_blocked_seconds``: for how long the longest-failing of them has been failing, 0 if none is.
    ``synced``: nodes and the pods of tainted nodes have been listed. ``watch_ages``: by kind (nodes, pods), how many
    seconds ago the most silent watch was last heard of. ``clock_offset_seconds``: how far the host's clock is ahead of
    the API server's. ``leading``: this process may act. ``due``: pods past their deadline whose first attempt has not
    begun. ``blocked``: pods that budgets keep, by reason. ``breaker_open``: the circuit breaker holds all evictions.
    ``newly_tainted``: nodes that it counts, by who tainted them. ``pauses``: pauses in force, by scope.
    ``orders_age_seconds``: how long ago pauses and latch were last read. ``policy_invalid``: the configuration file was
    rejected, and the one before counts.
    """

    pending: Callable[[], float]
    retrying: Callable[[], float]
    longest_blocked_seconds: Callable[[], float]
    synced: Callable[[], bool]
    watch_ages: Callable[[], dict[str, float]]
    clock_offset_seconds: Callable[[], float]
    leading: Callable[[], bool]
    due: Callable[[], float]
    blocked: Callable[[], Mapping[str, float]]
    breaker_open: Callable[[], bool]
    newly_tainted: Callable[[], Mapping[str, float]]
    pauses: Callable[[], Mapping[str, float]]
    orders_age_seconds: Callable[[], float]
    policy_invalid: Callable[[], bool]


class Metrics:
    """Everything that is measured; methods are named for the facts they note.

    ``dry_run``: nothing is deleted, so nothing is counted as deleted; attempts have the outcome dry_run. ``name`` is
    the Lease's.
    """

    def __init__(self, version: str, dry_run: bool = False, name: str = "taint-eviction-controller") -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # One more series for each, which nobody asks for.
        self.registry = CollectorRegistry()
        self._dry_run = dry_run
        self._name = name
        self._deletions = self._counter("pod_deletions", "Pods deleted because of NoExecute taints.")
        self._duration = self._histogram(
            "pod_deletion_duration_seconds", "Seconds from a pod's deadline to its deletion.", _DURATION_BUCKETS
        )
        self._lateness = self._histogram(
            "lateness_seconds",
            "Seconds past the deadline when the API server accepted the deletion.",
            _LATENESS_BUCKETS,
        )
        self._attempts = self._counter("attempts", "Attempts to evict a pod, by outcome.", "outcome")
        self._cancelled = self._counter("cancelled", "Evictions called off before they were carried out.")
        self._rewritten = self._counter("taints_rewritten", "Taints whose value changed, restarting tolerances.")
        self._calls = self._counter("api_calls", "Calls of the API server.", "verb", "resource", "code")
        self._malformed = self._counter("malformed_objects", "Versions of objects that could not be read.", "kind")
        self._events = self._counter("events", "Kubernetes events, by what became of them.", "result")
        self._builtin = self._counter("builtin_active", "Pods that the built-in controller has marked for deletion.")
        self._breaker_openings = self._counter("breaker_openings", "Times that the circuit breaker stopped evictions.")
        self._reloads = self._counter("policy_reloads", "Versions of the configuration file, by result.", "result")
        self._limiter_wait = self._histogram(
            "limiter_wait_seconds",
            "Seconds from a pod's deadline to its first attempt: settling, limits, pauses, busy workers.",
            _LATENESS_BUCKETS,
        )
        self._restarts = self._counter("watch_restarts", "Watches that had to be started again, by kind.", "kind")
        self._loop_lag = self._histogram("event_loop_lag_seconds", "How late the event loop woke up.", _LAG_BUCKETS)
        for kind in ("nodes", "pods"):
            self._restarts.labels(kind)
        for outcome in ("dry_run" if dry_run else "evicted", "refused", "blocked"):
            self._attempts.labels(outcome)
        info = Info(f"{PREFIX}_build", "Version, and whether this is a dry run.", registry=self.registry)
        info.info({"version": version, "dry_run": str(dry_run).lower()})

    def read_from(self, readings: Readings) -> None:
        """Read states from their owners from now on; to be called once, when they exist."""
        self._read("pending_evictions", "Pods with a deadline or being evicted.", readings.pending)
        self._read("retrying_evictions", "Pods whose last attempt failed.", readings.retrying)
        self._read(
            "longest_blocked_seconds", "How long the longest-failing eviction fails.", readings.longest_blocked_seconds
        )
        self._read("synced", "1 once everything that matters has been listed.", lambda: float(readings.synced()))
        self._read("clock_offset_seconds", "Host's clock ahead of the API server's.", readings.clock_offset_seconds)
        self._read("due_evictions", "Pods past their deadline, not yet attempted.", readings.due)
        self._read("breaker_open", "1 while the circuit breaker holds all evictions.", readings.breaker_open)
        self._read("orders_age_seconds", "Since pauses and latch were last read.", readings.orders_age_seconds)
        self._read("policy_invalid", "1 while the configuration file is rejected.", readings.policy_invalid)
        by_label = {
            "watch_age_seconds": (
                "Seconds since the most silent watch of a kind was last heard of.",
                "kind",
                readings.watch_ages,
            ),
            "blocked_evictions": ("Pods that budgets keep, by reason.", "reason", readings.blocked),
            "newly_tainted_nodes": (
                "Nodes the circuit breaker counts, by who tainted them.",
                "by",
                readings.newly_tainted,
            ),
            "pauses": ("Pauses in force, by scope.", "scope", readings.pauses),
        }
        for name, (text, label, read) in by_label.items():
            self.registry.register(_ByLabel(f"{PREFIX}_{name}", text, label, read))
        leader = Gauge("leader_election_master_status", "1 while leading.", ["name"], registry=self.registry)
        leader.labels(self._name).set_function(lambda: float(readings.leading()))

    # Facts

    def evicted(self, late_seconds: float) -> None:
        """Note that the API server accepted a pod's deletion so long after its deadline."""
        self._lateness.observe(late_seconds)
        if self._dry_run:
            self._attempts.labels("dry_run").inc()
            return
        self._attempts.labels("evicted").inc()
        self._deletions.inc()
        self._duration.observe(late_seconds)

    def refused(self, blocked: bool) -> None:
        """Note that an attempt failed and will be repeated; ``blocked``: because of a budget."""
        self._attempts.labels("blocked" if blocked else "refused").inc()

    def began(self, late_seconds: float) -> None:
        """Note that the first attempt at a pod begins so long after its deadline."""
        self._limiter_wait.observe(late_seconds)

    def breaker_opened(self) -> None:
        """Note that the circuit breaker stops evictions."""
        self._breaker_openings.inc()

    def policy_read(self, result: str) -> None:
        """Note a new version of the configuration file: loaded or rejected."""
        self._reloads.labels(result).inc()

    def cancelled(self) -> None:
        """Note that a pod has no deadline any more."""
        self._cancelled.inc()

    def taint_rewritten(self) -> None:
        """Note that a taint's value was changed while it stayed."""
        self._rewritten.inc()

    def called(self, verb: str, resource: str, code: str) -> None:
        """Note a call of the API server; ``code`` is the HTTP status or a word for why there was none."""
        self._calls.labels(verb, resource, code).inc()

    def malformed(self, kind: str) -> None:
        """Note a version of an object that could not be read."""
        self._malformed.labels(kind).inc()

    def event(self, result: str) -> None:
        """Note what became of a Kubernetes event: posted, aggregated, dropped, failed."""
        self._events.labels(result).inc()

    def builtin_active(self) -> None:
        """Note that the built-in controller, or another one, has marked a pod for deletion."""
        self._builtin.inc()

    def watch_restarted(self, kind: str) -> None:
        """Note that a watch of nodes or pods had to be started again."""
        self._restarts.labels(kind).inc()

    def loop_lagged(self, seconds: float) -> None:
        """Note how late the event loop woke up."""
        self._loop_lag.observe(seconds)

    def render(self) -> bytes:
        """Write everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, buckets=buckets, registry=self.registry)

    def _read(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"{PREFIX}_{name}", text, registry=self.registry).set_function(read)


class _ByLabel(Collector):
    """A gauge with one label; the values there are not are not told."""

    def __init__(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        self._name = name
        self._text = text
        self._label = label
        self._values = read

    def describe(self) -> list[Metric]:
        """Name the metric without reading it."""
        return [self._family()]

    def collect(self) -> list[Metric]:
        """Read the values."""
        family = self._family()
        for value, number in self._values().items():
            family.add_metric([value], number)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._text, labels=[self._label])
