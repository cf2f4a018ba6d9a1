"""Which metrics there are, and what their names are."""

from tests.unit.builders import decided, moment, ref, taint

from taint_eviction.core.control_state import Latch
from taint_eviction.core.events import (
    Block,
    BlockReason,
    BreakerOpened,
    Cancelled,
    Evicted,
    Eviction,
    Refused,
    TaintRewritten,
)
from taint_eviction.reporting.metrics import Metrics, Readings
from taint_eviction.settings import Settings

READINGS = Readings(
    pending=lambda: 3,
    retrying=lambda: 2,
    longest_blocked_seconds=lambda: 7.5,
    synced=lambda: True,
    watch_ages=lambda: {"nodes": 1.0},
    clock_offset_seconds=lambda: -0.5,
    clock_disagreement_seconds=lambda: 3600.0,
    leading=lambda: False,
    due=lambda: 4,
    blocked=lambda: {"budget": 1},
    waiting=lambda: {"paused": 5},
    tainted_nodes=lambda: 9,
    eviction_loops=lambda: 2,
    breaker_open=lambda: True,
    newly_tainted=lambda: {"others": 6},
    pauses=lambda: {"whole": 1, "node": 2, "namespace": 0},
    orders_age_seconds=lambda: 1.5,
    breaker_unwritten_seconds=lambda: 2.5,
    policy_invalid=lambda: False,
    ready_out_of_service=lambda: 2,
    adopted=lambda: 10,
    adoption_refused=lambda: 11,
    not_given_back=lambda: 1,
    lost_notes=lambda: 1,
    adoption_policy_unconfirmed=lambda: 1,
    admission_policy_missing=lambda: 1,
    history_unkept_seconds=lambda: 1.5,
    credential_failures=lambda: 3,
    certificate_ends=lambda: {"client": 2e9},
)


NOW = moment(12.5)


def evicted(late_seconds: float = 0.1, key: str = "k1", namespace: str = "shop") -> Evicted:
    """A pod that was evicted so long after its deadline because of a taint with this key."""
    return Evicted(ref(namespace=namespace), "n1", decided(key=key), late_seconds)


def refused(block: Block | None = None) -> Refused:
    """An eviction that failed."""
    return Refused(ref(), "n1", "no", 1, 0.0, 1.0, block)


def sample(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_upstreams_two_metrics_keep_their_names_and_buckets() -> None:
    """Dashboards and alerts for kube-controller-manager keep working; durations are in seconds."""
    metrics = Metrics("1.0", Settings())
    metrics.report(evicted(3.0), NOW)
    lines = metrics.render().decode().splitlines()
    assert "taint_eviction_controller_pod_deletions_total 1.0" in lines
    name = "taint_eviction_controller_pod_deletion_duration_seconds"
    assert f"{name}_sum 3.0" in lines
    bounds = [line.split('"')[1] for line in lines if line.startswith(f"{name}_bucket")]
    expected = "0.005 0.025 0.1 0.5 1.0 2.5 10.0 30.0 60.0 120.0 180.0 240.0 +Inf"
    assert bounds == expected.split()


def test_facts_are_counted() -> None:
    """Each fact is counted under its labels."""
    metrics = Metrics("1.0", Settings())
    metrics.report(evicted(0.5), NOW)
    metrics.report(refused(), NOW)
    metrics.report(refused(Block(BlockReason.BUDGET, "")), NOW)
    metrics.report(refused(Block(BlockReason.BUDGET, "")), NOW)
    metrics.began(Eviction(ref(), "n1", decided(10.0), False, 0), NOW)
    metrics.report(BreakerOpened(Latch(0.0, "many", controller="")), NOW)
    metrics.policy_read("rejected")
    metrics.report(Cancelled(ref(), "n1", None), NOW)
    metrics.report(TaintRewritten("n1", taint()), NOW)
    metrics.called("get", "nodes", "200")
    metrics.malformed("Pod")
    metrics.event("posted")
    metrics.watch_restarted("pods")
    metrics.clock_moved()
    metrics.loop_lagged(0.02)
    prefix = "taint_eviction_controller_"
    assert sample(metrics, prefix + "attempts_total", outcome="evicted") == 1
    assert sample(metrics, prefix + "attempts_total", outcome="refused") == 1
    assert sample(metrics, prefix + "attempts_total", outcome="blocked") == 2
    assert sample(metrics, prefix + "clock_moves_total") == 1
    assert sample(metrics, prefix + "limiter_wait_seconds_sum") == 2.5
    assert sample(metrics, prefix + "breaker_openings_total") == 1
    assert sample(metrics, prefix + "policy_reloads_total", result="rejected") == 1
    assert sample(metrics, prefix + "cancelled_total") == 1
    assert sample(metrics, prefix + "taints_rewritten_total") == 1
    assert sample(metrics, prefix + "api_calls_total", verb="get", resource="nodes", code="200") == 1
    assert sample(metrics, prefix + "malformed_objects_total", kind="Pod") == 1
    assert sample(metrics, prefix + "events_total", result="posted") == 1
    assert sample(metrics, prefix + "watch_restarts_total", kind="pods") == 1
    assert sample(metrics, prefix + "event_loop_lag_seconds_count") == 1
    assert sample(metrics, prefix + "lateness_seconds_sum") == 0.5


def test_states_are_read_when_they_are_scraped() -> None:
    """The parts that own the states are asked, so that no metric has to be kept up to date."""
    metrics = Metrics("1.0", Settings())
    metrics.read_from(READINGS)
    prefix = "taint_eviction_controller_"
    assert sample(metrics, prefix + "pending_evictions") == 3
    assert sample(metrics, prefix + "retrying_evictions") == 2
    assert sample(metrics, prefix + "longest_blocked_seconds") == 7.5
    assert sample(metrics, prefix + "synced") == 1
    assert sample(metrics, prefix + "clock_offset_seconds") == -0.5
    assert sample(metrics, prefix + "clock_disagreement_seconds") == 3600
    assert sample(metrics, prefix + "due_evictions") == 4
    assert sample(metrics, prefix + "blocked_evictions", reason="budget") == 1
    assert sample(metrics, prefix + "waiting_evictions", reason="paused") == 5
    assert sample(metrics, prefix + "tainted_nodes") == 9
    assert sample(metrics, prefix + "eviction_loops") == 2
    assert sample(metrics, prefix + "breaker_open") == 1
    assert sample(metrics, prefix + "newly_tainted_nodes", by="others") == 6
    assert sample(metrics, prefix + "pauses", scope="node") == 2
    assert sample(metrics, prefix + "orders_age_seconds") == 1.5
    assert sample(metrics, prefix + "breaker_unwritten_seconds") == 2.5
    assert sample(metrics, prefix + "credential_failures_total") == 3
    assert sample(metrics, prefix + "certificate_end_timestamp_seconds", certificate="client") == 2e9
    assert sample(metrics, prefix + "policy_invalid") == 0
    assert sample(metrics, prefix + "ready_out_of_service_nodes") == 2
    assert sample(metrics, prefix + "watch_age_seconds", kind="nodes") == 1
    assert sample(metrics, prefix + "watch_age_seconds", kind="pods") is None
    assert sample(metrics, "leader_election_master_status", name="taint-eviction-controller") == 0


def test_evictions_are_counted_by_the_taint_that_decides() -> None:
    """The first twenty keys have a series each; all others share one, so that generated keys cost nothing."""
    metrics = Metrics("1.0", Settings())
    for number in range(22):
        metrics.report(evicted(key=f"key-{number}"), NOW)
    metrics.report(evicted(key="key-3"), NOW)
    name = "taint_eviction_controller_evictions_by_taint_total"
    assert sample(metrics, name, key="key-3") == 2
    assert sample(metrics, name, key="key-19") == 1
    assert sample(metrics, name, key="key-20") is None
    assert sample(metrics, name, key="other") == 2


def test_evictions_are_counted_by_namespace_only_where_that_is_wanted() -> None:
    """The first hundred namespaces have a series each; all others share one."""
    name = "taint_eviction_controller_evictions_by_namespace_total"
    silent, metrics = Metrics("1.0", Settings()), Metrics("1.0", Settings(metrics_by_namespace=True))
    for number in range(102):
        silent.report(evicted(namespace=f"namespace-{number}"), NOW)
        metrics.report(evicted(namespace=f"namespace-{number}"), NOW)
    assert name not in silent.render().decode()
    assert sample(metrics, name, namespace="namespace-99") == 1
    assert sample(metrics, name, namespace="other") == 2


def test_a_dry_run_counts_no_deletions() -> None:
    """An eviction of a dry run is an attempt with the outcome dry_run."""
    metrics = Metrics("1.0", Settings(dry_run=True))
    metrics.report(evicted(), NOW)
    assert sample(metrics, "taint_eviction_controller_pod_deletions_total") == 0
    assert sample(metrics, "taint_eviction_controller_attempts_total", outcome="dry_run") == 1
    assert sample(metrics, "taint_eviction_controller_build_info", version="1.0", dry_run="true", adopts="false") == 1


def test_two_controllers_in_one_process_do_not_share_metrics() -> None:
    """Each has a registry of its own."""
    one, other = Metrics("1.0", Settings()), Metrics("1.0", Settings())
    one.report(Cancelled(ref(), "n1", None), NOW)
    assert sample(other, "taint_eviction_controller_cancelled_total") == 0
