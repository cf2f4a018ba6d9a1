"""The flags of ``taint-eviction run``, each with its twin in the environment, and the settings that they make."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from taint_eviction.cli.values import HoldSpan, HostPort, Seconds, Threshold
from taint_eviction.core.breaker import BreakerPolicy, NodeThreshold
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit
from taint_eviction.settings import ElectionSettings, OrdersSettings, RetrySettings, Settings, WatchSettings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_flag = partial(click.option, show_envvar=True, show_default=True)
_DEFAULT = Settings()
_MANUAL, _BY_ITSELF = "manual", "by-itself"

_PROCESS = (
    _flag("--kubeconfig", help="Kubeconfig file. Without it: $KUBECONFIG, in-cluster, or ~/.kube/config."),
    _flag("--context", help="Context of the kubeconfig to use instead of its current one."),
    _flag("--listen", type=HostPort(), help="Serve /metrics, /healthz, /readyz, /status and /explain here."),
    _flag(
        "--wait-for-api",
        is_flag=True,
        help="Wait for an API server that is away instead of giving up; in a pod it always does.",
    ),
    _flag("--dry-run", is_flag=True, help="Decide, log and count, but change nothing."),
    _flag("--dry-run-events", is_flag=True, help="Post events on pods in a dry run, too."),
    _flag(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Logs for people, or a JSON object a line.",
    ),
    _flag(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Least severe logs.",
    ),
)

_EVICTING = (
    _flag(
        "--workers",
        type=int,
        default=_DEFAULT.workers,
        help="Evictions in flight at most; half of them for retries at most.",
    ),
    _flag(
        "--call-timeout",
        type=Seconds(),
        default=_DEFAULT.call_timeout_seconds,
        help="Longest wait for any one API call.",
    ),
    _flag(
        "--grace-period",
        type=Seconds(),
        default=_DEFAULT.grace_seconds,
        help="How long evictions in flight may end at stop.",
    ),
    _flag(
        "--retry-first",
        type=Seconds(),
        default=_DEFAULT.retry.first_seconds,
        help="Wait before the first retry; doubles.",
    ),
    _flag("--retry-most", type=Seconds(), default=_DEFAULT.retry.most_seconds, help="Longest wait between retries."),
)

# Which pods go, when, and by which call: plan takes them, too.
_DECIDING = (
    _flag("--keep-finished", is_flag=True, help="Leave Succeeded and Failed pods (and their logs) alone."),
    _flag(
        "--default-not-ready-seconds",
        type=int,
        help="How long pods tolerate node.kubernetes.io/not-ready that say nothing of it.  [default: not at all]",
    ),
    _flag(
        "--default-unreachable-seconds",
        type=int,
        help="How long pods tolerate node.kubernetes.io/unreachable that say nothing of it.  [default: not at all]",
    ),
    _flag(
        "--honour-holds",
        type=HoldSpan(),
        default=_DEFAULT.most_hold_seconds,
        show_default="not at all",
        help="How far past its deadline a pod's annotation taint-eviction/hold may keep it.",
    ),
    _flag(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Rules for some pods (manifests/POLICY.md); run reads them again when they change.",
    ),
    _flag(
        "--eviction-mode",
        "--mode",
        "eviction_mode",
        type=click.Choice([mode.value for mode in EvictionMode]),
        default=_DEFAULT.policy.mode.value,
        help="How pods go. evict: PodDisruptionBudgets hold, however long.",
    ),
    _flag(
        "--evict-timeout",
        type=Seconds(),
        default=_DEFAULT.policy.evict_timeout_seconds,
        help="With evict-then-delete: how long past its deadline budgets hold a pod.",
    ),
)

_LIMITS = (
    _flag("--evictions-per-second", type=float, help="All evictions together.  [default: no limit]"),
    _flag("--evictions-burst", type=int, help="So many of them without waiting.  [default: a second's worth]"),
    _flag("--evictions-per-second-per-node", type=float, help="Those of each node.  [default: no limit]"),
    _flag("--evictions-burst-per-node", type=int, help="So many of them without waiting."),
    _flag("--evictions-per-second-per-namespace", type=float, help="Those of each namespace.  [default: no limit]"),
    _flag("--evictions-burst-per-namespace", type=int, help="So many of them without waiting."),
)

_BREAKER = (
    _flag("--breaker", is_flag=True, help="Stop all evictions when too many nodes are tainted at once."),
    _flag(
        "--breaker-nodes",
        type=Threshold(),
        default="25%",
        help="More nodes than that newly tainted open it: a share of all, a number, or both (25%,40).",
    ),
    _flag("--breaker-least-nodes", type=int, default=NodeThreshold().least, help="Shares count from so many nodes on."),
    _flag(
        "--breaker-lifecycle-nodes",
        type=Threshold(exempt="exempt"),
        default="55%",
        help="The same for nodes that are not ready or unreachable; or exempt.",
    ),
    _flag(
        "--breaker-window",
        type=Seconds(),
        default=_DEFAULT.breaker.window_seconds,
        help="How long a taint counts as new.",
    ),
    _flag("--breaker-due-pods", type=int, help="More pods than that due at once open it, too.  [default: any number]"),
    _flag(
        "--breaker-settle",
        type=Seconds(),
        default=_DEFAULT.breaker.settle_seconds,
        help="How long each eviction waits, so that a wave is seen before its first pods are gone.",
    ),
    _flag(
        "--breaker-closes",
        type=click.Choice([_MANUAL, _BY_ITSELF]),
        default=_MANUAL,
        help="Who closes it: you (taint-eviction breaker), or it does once the cause is gone.",
    ),
)

_WATCHING = (
    _flag(
        "--resync-interval",
        type=Seconds(),
        default=_DEFAULT.watch.resync_seconds,
        help="List what is watched anew this often.",
    ),
    _flag(
        "--linger",
        type=Seconds(),
        default=_DEFAULT.watch.linger_seconds,
        help="Watch a node's pods on after its taint went.",
    ),
    _flag(
        "--whole-cluster-from",
        type=int,
        default=_DEFAULT.watch.whole_cluster_from,
        help="From this many tainted nodes on, watch all bound pods with one watch.",
    ),
)

_ELECTION = (
    _flag("--leader-elect/--no-leader-elect", default=True, help="Act only while holding the Lease."),
    _flag("--leader-elect-lease-duration", type=Seconds(), default=_DEFAULT.election.lease_duration_seconds),
    _flag("--leader-elect-renew-deadline", type=Seconds(), default=_DEFAULT.election.renew_deadline_seconds),
    _flag("--leader-elect-retry-period", type=Seconds(), default=_DEFAULT.election.retry_period_seconds),
    _flag(
        "--leader-elect-resource-name",
        help="Name of the Lease, and of the ConfigMap with pauses and breaker.  "
        "[default: taint-eviction-controller, dry run: …-dry-run]",
    ),
    _flag(
        "--leader-elect-resource-namespace",
        help="Namespace of the two.  [default: the pod's own, else kube-system]",
    ),
)

_RECORDS = (
    _flag(
        "--journal",
        metavar="FILE",
        help="Write what is observed and done here, for replay; the one before is FILE.1.",
    ),
    _flag("--journal-megabytes", type=click.IntRange(1), default=64, help="Size of each of the journal's two files."),
    _flag(
        "--audit-log",
        metavar="FILE",
        help="Write each attempt to evict here, a JSON object a line; - is stdout, the one before is FILE.1.",
    ),
    _flag("--audit-megabytes", type=click.IntRange(1), default=64, help="Size of each of the audit log's two files."),
)


def run_flags(command: CommandT) -> CommandT:
    """Give a command all flags of ``run``."""
    return _with(command, (*_PROCESS, *_EVICTING, *_DECIDING, *_LIMITS, *_BREAKER, *_WATCHING, *_ELECTION, *_RECORDS))


def deciding_flags(command: CommandT) -> CommandT:
    """Give a command those flags of ``run`` that say which pods go, when, and by which call."""
    return _with(command, _DECIDING)


def _with(command: CommandT, flags: Sequence[Callable[[CommandT], CommandT]]) -> CommandT:
    for flag in reversed(flags):
        command = flag(command)
    return command


# Settings


def read_settings(flags: dict[str, Any]) -> Settings:
    """Turn the values of the flags into settings; the rules of ``--config`` are not among them."""
    deciding = read_deciding_settings(flags)
    lease_name = flags["leader_elect_resource_name"]
    if lease_name is None:
        lease_name = _DEFAULT.election.lease_name + ("-dry-run" if flags["dry_run"] else "")
    return replace(
        deciding,
        workers=flags["workers"],
        call_timeout_seconds=flags["call_timeout"],
        grace_seconds=flags["grace_period"],
        dry_run=flags["dry_run"],
        dry_run_events=flags["dry_run_events"],
        policy=replace(
            deciding.policy,
            whole=Limit(flags["evictions_per_second"], flags["evictions_burst"]),
            per_node=Limit(flags["evictions_per_second_per_node"], flags["evictions_burst_per_node"]),
            per_namespace=Limit(flags["evictions_per_second_per_namespace"], flags["evictions_burst_per_namespace"]),
        ),
        breaker=_breaker(flags),
        orders=OrdersSettings(name=lease_name),
        retry=RetrySettings(flags["retry_first"], flags["retry_most"]),
        watch=WatchSettings(
            resync_seconds=flags["resync_interval"],
            linger_seconds=flags["linger"],
            whole_cluster_from=flags["whole_cluster_from"],
        ),
        election=ElectionSettings(
            enabled=flags["leader_elect"],
            lease_duration_seconds=flags["leader_elect_lease_duration"],
            renew_deadline_seconds=flags["leader_elect_renew_deadline"],
            retry_period_seconds=flags["leader_elect_retry_period"],
            lease_name=lease_name,
            lease_namespace=flags["leader_elect_resource_namespace"] or "",
        ),
    )


def read_deciding_settings(flags: dict[str, Any]) -> Settings:
    """Turn the values of ``deciding_flags`` into settings; all else is as by default."""
    return Settings(
        evict_finished=not flags["keep_finished"],
        default_not_ready_seconds=flags["default_not_ready_seconds"],
        default_unreachable_seconds=flags["default_unreachable_seconds"],
        most_hold_seconds=flags["honour_holds"],
        policy=EvictionPolicy(EvictionMode(flags["eviction_mode"]), flags["evict_timeout"]),
    )


def _breaker(flags: dict[str, Any]) -> BreakerPolicy:
    least = flags["breaker_least_nodes"]
    lifecycle_nodes = flags["breaker_lifecycle_nodes"]
    return BreakerPolicy(
        enabled=flags["breaker"],
        nodes=replace(flags["breaker_nodes"], least=least),
        lifecycle_nodes=None if lifecycle_nodes is None else replace(lifecycle_nodes, least=least),
        window_seconds=flags["breaker_window"],
        most_due=flags["breaker_due_pods"],
        settle_seconds=flags["breaker_settle"],
        closes_by_itself=flags["breaker_closes"] == _BY_ITSELF,
    )
