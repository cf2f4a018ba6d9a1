"""The values of the flags of ``taint-eviction run`` → settings."""

from dataclasses import replace
from typing import Any

from taint_eviction.cli.run_flags import BREAKER_CLOSES_BY_ITSELF, SHUTDOWN_WAITS
from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit
from taint_eviction.core.tiers import Order
from taint_eviction.settings import (
    AdoptionSettings,
    ControlStateSettings,
    ElectionSettings,
    RetrySettings,
    Settings,
    WatchSettings,
)

_LEASE_NAME = ElectionSettings().lease_name


def read_settings(flags: dict[str, Any]) -> Settings:
    """Turn the values of the flags into settings; the rules of ``--config`` are left out."""
    deciding = read_deciding_settings(flags)
    lease_name, elects = flags["leader_elect_resource_name"], flags["leader_elect"]
    if elects is None:
        # A dry run from a shell would be a standby of the one in the cluster, and report nothing.
        elects = not flags["dry_run"] or lease_name is not None
    if lease_name is None:
        lease_name = _LEASE_NAME + ("-dry-run" if flags["dry_run"] else "")
    return replace(
        deciding,
        workers=flags["workers"],
        call_timeout_seconds=flags["call_timeout"],
        grace_seconds=flags["grace_period"],
        outage_gap_seconds=flags["outage_gap"],
        dry_run=flags["dry_run"],
        dry_run_events=flags["dry_run_events"],
        event_reasons=flags["event_reasons"],
        metrics_by_namespace=flags["metrics_by_namespace"],
        policy=replace(
            deciding.policy,
            total=Limit(flags["evictions_per_second"], flags["evictions_burst"]),
            per_node=Limit(flags["evictions_per_second_per_node"], flags["evictions_burst_per_node"]),
            per_namespace=Limit(flags["evictions_per_second_per_namespace"], flags["evictions_burst_per_namespace"]),
        ),
        breaker=_breaker(flags),
        control_state=ControlStateSettings(name=lease_name),
        retry=RetrySettings(flags["retry_first"], flags["retry_max"]),
        watch=WatchSettings(
            resync_seconds=flags["resync_interval"],
            linger_seconds=flags["linger"],
            whole_cluster_from=flags["whole_cluster_from"],
        ),
        adoption=AdoptionSettings(flags["adopt"], flags["adopt_from"], flags["adopt_before"]),
        election=ElectionSettings(
            enabled=elects,
            lease_duration_seconds=flags["leader_elect_lease_duration"],
            renew_deadline_seconds=flags["leader_elect_renew_deadline"],
            retry_period_seconds=flags["leader_elect_retry_period"],
            lease_name=lease_name,
            lease_namespace=flags["leader_elect_resource_namespace"] or "",
        ),
    )


def read_deciding_settings(flags: dict[str, Any]) -> Settings:
    """Turn the values of ``deciding_flags`` into settings; all others have their defaults."""
    return Settings(
        evict_finished=not flags["keep_finished"],
        default_not_ready_seconds=flags["default_not_ready_seconds"],
        default_unreachable_seconds=flags["default_unreachable_seconds"],
        max_hold_seconds=flags["honour_holds"],
        wait_for_shutdown=flags["graceful_shutdown"] == SHUTDOWN_WAITS,
        policy=EvictionPolicy(
            EvictionMode(flags["eviction_mode"]),
            flags["evict_timeout"],
            background_timeout_seconds=flags["background_timeout"],
            order=Order(flags["order"]),
            order_wait_seconds=flags["order_wait"],
        ),
    )


def _breaker(flags: dict[str, Any]) -> BreakerPolicy:
    min_nodes = flags["breaker_min_nodes"]
    lifecycle_nodes, zone = flags["breaker_lifecycle_nodes"], flags["breaker_zone"]
    return BreakerPolicy(
        enabled=flags["breaker"],
        nodes=replace(flags["breaker_nodes"], min_nodes=min_nodes),
        lifecycle_nodes=None if lifecycle_nodes is None else replace(lifecycle_nodes, min_nodes=min_nodes),
        zone=None if zone is None else replace(zone, min_nodes=min_nodes),
        without_control_plane=flags["breaker_without_control_plane"],
        window_seconds=flags["breaker_window"],
        max_due=flags["breaker_due_pods"],
        settle_seconds=flags["breaker_settle"],
        list_wait_seconds=flags["breaker_list_wait"],
        closes_by_itself=flags["breaker_closes"] == BREAKER_CLOSES_BY_ITSELF,
    )
