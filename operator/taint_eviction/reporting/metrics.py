"""Prometheus metrics: the two of upstream under their names, and those of this controller.

They have a registry of their own, so that no other library adds to it. The state of other parts is read through
callables when metrics are scraped. No label names a pod or a node; label values that people choose are bounded
(``bounded.FirstValues``).
"""

import functools
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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taint_eviction.core.events import (
    AdoptionRefused,
    BreakerOpened,
    Cancelled,
    CountdownAdopted,
    Event,
    Evicted,
    Eviction,
    GivenBack,
    Refused,
    TaintRewritten,
    Work,
)
from taint_eviction.core.instants import Moment
from taint_eviction.kube.bounded import FirstValues
from taint_eviction.settings import Settings
from taint_eviction.shadow.comparison import ComparisonResult

PREFIX = "taint_eviction_controller"

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The buckets of upstream.
_DURATION_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
_LATENESS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

# How many taint keys and namespaces have a series of their own.
_MAX_TAINT_KEYS = 20
_MAX_NAMESPACES = 100


@dataclass(frozen=True, slots=True)
class Readings:
    """Callables that are called when metrics are scraped. Each must be quick and must not raise.

    ``pending``: pods that have a deadline or are being evicted. ``retrying``: pods whose last attempt failed.
    ``longest_blocked_seconds``: how long the oldest of these has been failing, 0 if there is none. ``synced``: the
    nodes and the pods of tainted nodes have been listed. ``watch_ages``: by kind (nodes, pods), the seconds since the
    most silent watch received anything. ``clock_offset_seconds``: how far the host's clock is ahead of the API
    server's. ``clock_disagreement_seconds``: how far the clocks of API servers are apart.
    ``leading``: this process may act. ``due``: pods past their deadline whose first attempt has not begun.
    ``waiting``: due pods that wait, by the reason. ``blocked``: pods that budgets block, by reason.
    ``tainted_nodes``: nodes that have a NoExecute taint. ``eviction_loops``: DaemonSets, once for each node, whose pods
    are evicted there again and again. ``breaker_open``: the circuit breaker suspends all evictions.
    ``newly_tainted``: nodes that the breaker counts, by who tainted them. ``pauses``: pauses in force, by scope.
    ``orders_age_seconds``: seconds since pauses and latch were last read. ``breaker_unwritten_seconds``: for how long
    the breaker's state could not be written. ``policy_invalid``: the configuration file was rejected, and the previous
    one is in force. ``credential_failures``: how often credentials could not be read or renewed. ``certificate_ends``:
    when the client's certificate, and the authority that ends last, are no longer valid, in seconds since the epoch.
    ``adopted``: pods whose countdown is taken over; ``adoption_refused``, ``not_given_back``: pods that could not be
    changed. ``lost_notes``: pods with a mark whose note is gone, though it is known. ``adoption_policy_unconfirmed``:
    no countdown is taken over, since the admission policy is not known to be in force. ``admission_policy_missing``:
    it does not narrow this process's account. ``history_unkept_seconds``: for how long the last outcomes could not be
    kept.
    ``ready_out_of_service``: nodes that are ready although they have the taint out-of-service.
    """

    pending: Callable[[], float]
    retrying: Callable[[], float]
    longest_blocked_seconds: Callable[[], float]
    synced: Callable[[], bool]
    watch_ages: Callable[[], dict[str, float]]
    clock_offset_seconds: Callable[[], float]
    clock_disagreement_seconds: Callable[[], float]
    leading: Callable[[], bool]
    due: Callable[[], float]
    blocked: Callable[[], Mapping[str, float]]
    waiting: Callable[[], Mapping[str, float]]
    tainted_nodes: Callable[[], float]
    eviction_loops: Callable[[], float]
    breaker_open: Callable[[], bool]
    newly_tainted: Callable[[], Mapping[str, float]]
    pauses: Callable[[], Mapping[str, float]]
    orders_age_seconds: Callable[[], float]
    breaker_unwritten_seconds: Callable[[], float]
    policy_invalid: Callable[[], bool]
    credential_failures: Callable[[], float]
    certificate_ends: Callable[[], Mapping[str, float]]
    ready_out_of_service: Callable[[], float]
    adopted: Callable[[], float]
    adoption_refused: Callable[[], float]
    not_given_back: Callable[[], float]
    lost_notes: Callable[[], float]
    adoption_policy_unconfirmed: Callable[[], float]
    admission_policy_missing: Callable[[], float]
    history_unkept_seconds: Callable[[], float]


class Metrics:
    """All metrics: a ``Reporter``, which counts events. Each other method counts what its name says.

    In a dry run no pod is deleted, so none is counted as deleted; attempts have the outcome dry_run.
    """

    def __init__(self, version: str, settings: Settings) -> None:
        dry_run, adopts = settings.dry_run, settings.adoption.enabled
        disable_created_metrics()  # type: ignore[no-untyped-call]  # They add an unused series for each counter.
        self.registry = CollectorRegistry()
        self._dry_run = dry_run
        self._lease_name = settings.election.lease_name
        self._deletions = self._counter("pod_deletions", "Pods deleted because of NoExecute taints.")
        self._duration = self._histogram(
            "pod_deletion_duration_seconds", "Seconds from a pod's deadline to its deletion.", _DURATION_BUCKETS
        )
        self._lateness = self._histogram(
            "lateness_seconds",
            "Seconds from a pod's deadline to the API server's acceptance of its deletion.",
            _LATENESS_BUCKETS,
        )
        self._attempts = self._counter("attempts", "Attempts to evict a pod, by outcome.", "outcome")
        self._by_taint = self._counter(
            "evictions_by_taint", "Evictions, also those of a dry run, by the key of the taint that decides.", "key"
        )
        self._keys = FirstValues(_MAX_TAINT_KEYS)
        self._by_namespace = (
            self._counter("evictions_by_namespace", "Evictions, also those of a dry run, by namespace.", "namespace")
            if settings.metrics_by_namespace
            else None
        )
        self._namespaces = FirstValues(_MAX_NAMESPACES)
        self._cancelled = self._counter(
            "cancelled", "Deadlines that ended without an eviction here: the pod stays, or somebody else deleted it."
        )
        self._rewritten = self._counter(
            "taints_rewritten", "Taints whose value changed, which restarts tolerationSeconds."
        )
        calls = self._counter("api_calls", "Requests to the API server.", "verb", "resource", "code")
        self._calls_by = functools.cache(calls.labels)
        self._malformed = self._counter("malformed_objects", "Versions of objects that could not be read.", "kind")
        self._events = self._counter("events", "Kubernetes events, by result.", "result")
        self._history_writes = self._counter(
            "history_writes", "Attempts to keep the last outcomes in their ConfigMap, by result.", "result"
        )
        self._builtin = self._counter("builtin_active", "Pods that the built-in controller marked for deletion.")
        self._comparisons = self._counter(
            "shadow_comparisons",
            "Evictions that a dry run compared with the built-in controller, by result; only its leader counts.",
            "result",
        )
        self._adoptions = self._counter(
            "adoptions", "Countdowns taken over from the built-in controller, refused, or given back.", "result"
        )
        self._breaker_openings = self._counter("breaker_openings", "Number of times the circuit breaker opened.")
        self._reloads = self._counter("policy_reloads", "Versions of the configuration file, by result.", "result")
        self._limiter_wait = self._histogram(
            "limiter_wait_seconds",
            "Seconds from a pod's deadline to its first attempt: settling, limits, pauses, busy workers.",
            _LATENESS_BUCKETS,
        )
        self._clock_moves = self._counter(
            "clock_moves", "Number of times the API server's clock moved by more than 2 s."
        )
        self._restarts = self._counter("watch_restarts", "Restarts of watches, by kind.", "kind")
        self._loop_lag = self._histogram(
            "event_loop_lag_seconds", "Seconds by which the event loop woke up late.", _LAG_BUCKETS
        )
        for kind in ("nodes", "pods"):
            self._restarts.labels(kind)
        for outcome in ("dry_run" if dry_run else "evicted", "refused", "blocked"):
            self._attempts.labels(outcome)
        for result in ComparisonResult if dry_run else ():
            self._comparisons.labels(result.value)
        for what in ("adopted", "refused", "given_back") if adopts else ():
            self._adoptions.labels(what)
        info = Info(
            f"{PREFIX}_build", "Version, whether this is a dry run, and whether it adopts.", registry=self.registry
        )
        info.info({"version": version, "dry_run": str(dry_run).lower(), "adopts": str(adopts).lower()})

    def read_from(self, readings: Readings) -> None:
        """Register the metrics that are read from other parts. Called once, when these exist."""
        self._read("pending_evictions", "Pods that have a deadline or are being evicted.", readings.pending)
        self._read("retrying_evictions", "Pods whose last attempt failed; 0 on a standby.", readings.retrying)
        self._read(
            "longest_blocked_seconds",
            "Seconds for which the oldest failing eviction that nothing holds back has been failing; 0 on a standby.",
            readings.longest_blocked_seconds,
        )
        self._read(
            "synced", "1 once nodes and the pods of tainted nodes have been listed.", lambda: float(readings.synced())
        )
        self._read(
            "clock_offset_seconds",
            "Seconds by which the host's clock is ahead of the API server's.",
            readings.clock_offset_seconds,
        )
        self._read(
            "clock_disagreement_seconds",
            "Seconds by which the clocks of API servers are apart, as their answers tell; up to 2 mean nothing.",
            readings.clock_disagreement_seconds,
        )
        self._read("tainted_nodes", "Nodes that have a NoExecute taint.", readings.tainted_nodes)
        self._read("due_evictions", "Pods past their deadline whose first attempt has not begun.", readings.due)
        self._read(
            "eviction_loops",
            "DaemonSets whose pods are evicted from one node again and again, once for each node.",
            readings.eviction_loops,
        )
        self._read(
            "breaker_open", "1 while the circuit breaker is open and suspends all evictions.", readings.breaker_open
        )
        self._read("orders_age_seconds", "Seconds since pauses and latch were last read.", readings.orders_age_seconds)
        self._read(
            "breaker_unwritten_seconds",
            "Seconds for which the circuit breaker's state could not be written.",
            readings.breaker_unwritten_seconds,
        )
        self._read(
            "ready_out_of_service_nodes",
            "Nodes that are ready though they have the taint node.kubernetes.io/out-of-service.",
            readings.ready_out_of_service,
        )
        self._read("adopted_pods", "Pods whose countdown is taken over; 0 on a standby.", readings.adopted)
        self._read(
            "adoption_refused_pods",
            "Pods whose countdown cannot be taken over, so that the built-in controller evicts them; 0 on a standby.",
            readings.adoption_refused,
        )
        self._read(
            "adoption_not_given_back_pods",
            "Pods whose countdown cannot be given back to the built-in controller; 0 on a standby.",
            readings.not_given_back,
        )
        self._read(
            "adoption_lost_notes_pods",
            "Pods that lost the note of their seconds, which this controller still knows; 0 on a standby.",
            readings.lost_notes,
        )
        self._read(
            "adoption_policy_unconfirmed",
            "1 while nothing is taken over because the admission policy is not known to be in force.",
            readings.adoption_policy_unconfirmed,
        )
        self._read(
            "admission_policy_missing",
            "1 while the admission policy does not narrow what this process's account may write.",
            readings.admission_policy_missing,
        )
        self._read(
            "history_unkept_seconds",
            "Seconds for which the last outcomes could not be kept in their ConfigMap; 0 on a standby.",
            readings.history_unkept_seconds,
        )
        self._read(
            "policy_invalid", "1 while the configuration file is rejected or unreadable.", readings.policy_invalid
        )
        self.registry.register(
            _Count(
                f"{PREFIX}_credential_failures",
                "Number of times credentials could not be read or renewed.",
                readings.credential_failures,
            )
        )
        by_label = {
            "watch_age_seconds": (
                "Seconds since the most silent watch of a kind received anything.",
                "kind",
                readings.watch_ages,
            ),
            "blocked_evictions": ("Pods that budgets block, by reason; none on a standby.", "reason", readings.blocked),
            "waiting_evictions": (
                "Pods that are due and wait, by what they wait for (limited: their turn); none on a standby.",
                "reason",
                readings.waiting,
            ),
            "newly_tainted_nodes": (
                "Nodes that the circuit breaker counts, by who tainted them.",
                "by",
                readings.newly_tainted,
            ),
            "pauses": ("Pauses in force, by scope.", "scope", readings.pauses),
            "certificate_end_timestamp_seconds": (
                "When a certificate of the connection to the API server ends: the client's, and the authority's.",
                "certificate",
                readings.certificate_ends,
            ),
        }
        for name, (text, label, read) in by_label.items():
            self.registry.register(_ByLabel(f"{PREFIX}_{name}", text, label, read))
        leader = Gauge("leader_election_master_status", "1 while leading.", ["name"], registry=self.registry)
        leader.labels(self._lease_name).set_function(lambda: float(readings.leading()))

    # Events and work

    def report(self, event: Event, now: Moment) -> None:
        """Count the event."""
        match event:
            case Evicted():
                self._evicted(event)
            case Refused():
                self._attempts.labels("refused" if event.block is None else "blocked").inc()
            case Cancelled():
                self._cancelled.inc()
            case TaintRewritten():
                self._rewritten.inc()
            case CountdownAdopted():
                self._adoptions.labels("adopted").inc()
            case AdoptionRefused():
                self._adoptions.labels("refused").inc()
            case GivenBack():
                self._adoptions.labels("given_back").inc()
            case BreakerOpened():
                self._breaker_openings.inc()
            case _:
                pass

    def _evicted(self, event: Evicted) -> None:
        self._lateness.observe(event.late_seconds)
        self._by_taint.labels(self._keys.label(event.decision.deciding.taint.key)).inc()
        if self._by_namespace is not None:
            self._by_namespace.labels(self._namespaces.label(event.ref.key.namespace)).inc()
        if self._dry_run:
            self._attempts.labels("dry_run").inc()
            return
        self._attempts.labels("evicted").inc()
        self._deletions.inc()
        self._duration.observe(event.late_seconds)

    def began(self, work: Work, now: Moment) -> None:
        """Note how late the first attempt at a pod begins."""
        if isinstance(work, Eviction) and work.tries == 0:
            self._limiter_wait.observe(now.at - work.decision.due_at)

    # What else happens

    def policy_read(self, result: str) -> None:
        """Count a new version of the configuration file: loaded or rejected."""
        self._reloads.labels(result).inc()

    def called(self, verb: str, resource: str, code: str) -> None:
        """Count a request to the API server. ``code`` is the HTTP status, or a word for why there is none."""
        self._calls_by(verb, resource, code).inc()

    def malformed(self, kind: str) -> None:
        """Count a version of an object that could not be read."""
        self._malformed.labels(kind).inc()

    def event(self, result: str) -> None:
        """Count a Kubernetes event: posted, aggregated, limited, dropped or failed."""
        self._events.labels(result).inc()

    def history_written(self, result: str) -> None:
        """Count an attempt to keep the last outcomes: written or failed."""
        self._history_writes.labels(result).inc()

    def builtin_active(self) -> None:
        """Count a pod that the built-in controller, or another one, marked for deletion."""
        self._builtin.inc()

    def compared(self, result: str) -> None:
        """Count an eviction that was compared with what the built-in controller did."""
        self._comparisons.labels(result).inc()

    def watch_restarted(self, kind: str) -> None:
        """Count a restart of a watch of nodes or pods."""
        self._restarts.labels(kind).inc()

    def clock_moved(self) -> None:
        """Count that the API server's clock, by its answers, moved by seconds."""
        self._clock_moves.inc()

    def loop_lagged(self, seconds: float) -> None:
        """Observe how late the event loop woke up."""
        self._loop_lag.observe(seconds)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, buckets=buckets, registry=self.registry)

    def _read(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"{PREFIX}_{name}", text, registry=self.registry).set_function(read)


class _Count(Collector):
    """A counter whose value is read from another part."""

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._name = name
        self._text = text
        self._read = read

    def describe(self) -> list[Metric]:
        """Return the metric without its values."""
        return [CounterMetricFamily(self._name, self._text)]

    def collect(self) -> list[Metric]:
        """Return the metric with its value."""
        return [CounterMetricFamily(self._name, self._text, value=self._read())]


class _ByLabel(Collector):
    """A gauge with one label, with the label values that exist at the time of the scrape."""

    def __init__(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        self._name = name
        self._text = text
        self._label = label
        self._values = read

    def describe(self) -> list[Metric]:
        """Return the metric without its values."""
        return [self._family()]

    def collect(self) -> list[Metric]:
        """Return the metric with its values."""
        family = self._family()
        for value, number in self._values().items():
            family.add_metric([value], number)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._text, labels=[self._label])
