"""``taint-eviction run``: the controller. Reads flags and environment, builds it, runs it until it is told to stop."""

import asyncio
import logging
import sys
from functools import partial
from typing import Any

import click

from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.values import HostPort, Seconds
from taint_eviction.settings import ElectionSettings, RetrySettings, Settings, WatchSettings

logger = logging.getLogger(__name__)

EXIT_BUG, EXIT_USAGE, EXIT_CLUSTER = 1, 2, 3

_flag = partial(click.option, show_envvar=True, show_default=True)
_DEFAULT = Settings()


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@_flag("--kubeconfig", help="Kubeconfig file. Without it: $KUBECONFIG, in-cluster, or ~/.kube/config.")
@_flag("--context", help="Context of the kubeconfig to use instead of its current one.")
@_flag("--listen", type=HostPort(), help="Serve /metrics, /healthz and /readyz here.")
@_flag("--dry-run", is_flag=True, help="Decide, log and count, but change nothing.")
@_flag(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Logs for people, or a JSON object a line.",
)
@_flag(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", help="Least severe logs."
)
@_flag(
    "--workers",
    type=int,
    default=_DEFAULT.workers,
    help="Evictions in flight at most; half of them for retries at most.",
)
@_flag(
    "--call-timeout", type=Seconds(), default=_DEFAULT.call_timeout_seconds, help="Longest wait for any one API call."
)
@_flag(
    "--grace-period",
    type=Seconds(),
    default=_DEFAULT.grace_seconds,
    help="How long evictions in flight may end at stop.",
)
@_flag("--keep-finished", is_flag=True, help="Leave Succeeded and Failed pods (and their logs) alone.")
@_flag(
    "--retry-first", type=Seconds(), default=_DEFAULT.retry.first_seconds, help="Wait before the first retry; doubles."
)
@_flag("--retry-most", type=Seconds(), default=_DEFAULT.retry.most_seconds, help="Longest wait between retries.")
@_flag(
    "--resync-interval",
    type=Seconds(),
    default=_DEFAULT.watch.resync_seconds,
    help="List what is watched anew this often.",
)
@_flag(
    "--linger",
    type=Seconds(),
    default=_DEFAULT.watch.linger_seconds,
    help="Watch a node's pods on after its taint went.",
)
@_flag(
    "--whole-cluster-from",
    type=int,
    default=_DEFAULT.watch.whole_cluster_from,
    help="From this many tainted nodes on, watch all bound pods with one watch.",
)
@_flag("--leader-elect/--no-leader-elect", default=True, help="Act only while holding the Lease.")
@_flag("--leader-elect-lease-duration", type=Seconds(), default=_DEFAULT.election.lease_duration_seconds)
@_flag("--leader-elect-renew-deadline", type=Seconds(), default=_DEFAULT.election.renew_deadline_seconds)
@_flag("--leader-elect-retry-period", type=Seconds(), default=_DEFAULT.election.retry_period_seconds)
@_flag(
    "--leader-elect-resource-name", help="Name of the Lease.  [default: taint-eviction-controller, dry run: …-dry-run]"
)
@_flag("--leader-elect-resource-namespace", help="Namespace of the Lease.  [default: the pod's own, else kube-system]")
def run(**flags: Any) -> None:
    """Run the controller against a cluster.

    Watches nodes, and the pods of nodes with NoExecute taints; evicts them when they stop tolerating the taints.
    """
    set_up_logging(flags["log_format"], flags["log_level"])
    settings = read_settings(flags)
    if problems := settings.problems():
        for problem in problems:
            click.echo(f"taint-eviction: {problem}", err=True)
        sys.exit(EXIT_USAGE)
    sys.exit(_run(settings, flags))


def read_settings(flags: dict[str, Any]) -> Settings:
    """Turn the values of the flags into settings."""
    lease_name = flags["leader_elect_resource_name"]
    if lease_name is None:
        lease_name = _DEFAULT.election.lease_name + ("-dry-run" if flags["dry_run"] else "")
    return Settings(
        workers=flags["workers"],
        call_timeout_seconds=flags["call_timeout"],
        grace_seconds=flags["grace_period"],
        evict_finished=not flags["keep_finished"],
        dry_run=flags["dry_run"],
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
