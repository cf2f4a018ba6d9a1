"""``taint-eviction run``: the controller. Reads flags and environment, builds it, runs it until it is told to stop."""

import asyncio
import gc
import logging
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from taint_eviction import __version__
from taint_eviction.adapters import preflight
from taint_eviction.adapters.credentials import Connection, CredentialsError, find_connection
from taint_eviction.adapters.journal import Journal
from taint_eviction.adapters.probe_server import Address, ListenError
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.signals import StopSignals
from taint_eviction.cli.values import HostPort, Seconds
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import ElectionSettings, RetrySettings, Settings, WatchSettings
from taint_eviction.wiring import Application

logger = logging.getLogger(__name__)

_UNAUTHORIZED = 401
EXIT_BUG, EXIT_USAGE, EXIT_CLUSTER = 1, 2, 3

_flag = partial(click.option, show_envvar=True, show_default=True)
_DEFAULT = Settings()


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@_flag("--kubeconfig", help="Kubeconfig file. Without it: $KUBECONFIG, in-cluster, or ~/.kube/config.")
@_flag("--context", help="Context of the kubeconfig to use instead of its current one.")
@_flag("--listen", type=HostPort(), help="Serve /metrics, /healthz and /readyz here.")
@_flag(
    "--wait-for-api",
    is_flag=True,
    help="Wait for an API server that is away instead of giving up; in a pod it always does.",
)
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
@_flag("--journal", metavar="FILE", help="Write what is observed and done here, for replay; the one before is FILE.1.")
@_flag("--journal-megabytes", type=click.IntRange(1), default=64, help="Size of each of the journal's two files.")
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


def _run(settings: Settings, flags: dict[str, Any]) -> int:
    try:
        return asyncio.run(_serve(settings, flags))
    except (CredentialsError, ListenError) as error:
        return _give_up(str(error), EXIT_USAGE)
    except _ClusterRefuses as error:
        return _give_up(str(error), EXIT_CLUSTER)
    except Exception:
        # The world's faults never get here: this is a bug, and a restart is better than half a controller.
        logger.critical("a bug ends the controller; its state is rebuilt from the cluster at restart", exc_info=True)
        return EXIT_BUG


def _give_up(message: str, code: int) -> int:
    click.echo(f"taint-eviction: {message}", err=True)
    return code


class _ClusterRefuses(Exception):
    """The API server can't be reached, or does not allow what is needed."""


async def _serve(settings: Settings, flags: dict[str, Any]) -> int:
    stop = asyncio.Event()
    signals = StopSignals(stop)
    signals.install()
    clock = ServerClock()
    connection = await find_connection(flags["kubeconfig"], flags["context"], clock)
    settings = _with_lease_namespace(settings, connection)
    listen = Address(*flags["listen"]) if flags["listen"] is not None else None
    journal = Journal(Path(flags["journal"]), flags["journal_megabytes"] * 2**20) if flags["journal"] else None
    application = Application(
        connection, clock, settings, listen=listen, reinstall_signal_handlers=signals.install, journal=journal
    )
    try:
        if not (connection.in_cluster or flags["wait_for_api"]):
            await _look_first(application, connection, settings)
    except _ClusterRefuses:
        await connection.close()
        raise
    logger.info("taint-eviction %s at %s by %s", __version__, connection.url, connection.where)
    # What was imported and built stays for good: to look through it again and again would only stop the loop.
    gc.freeze()
    await application.run(stop)
    logger.info("stopped")
    return 0


def _with_lease_namespace(settings: Settings, connection: Connection) -> Settings:
    if settings.election.lease_namespace:
        return settings
    own = connection.namespace if connection.in_cluster else None
    return replace(settings, election=replace(settings.election, lease_namespace=own or "kube-system"))


async def _look_first(application: Application, connection: Connection, settings: Settings) -> None:
    """Fail early and clearly where a person has just typed the command; in a cluster one waits instead."""
    try:
        await preflight.reach(application.calls)
        missing = await preflight.missing_rights(application.calls, settings)
    except CallFailed as error:
        hint = (
            "are these credentials still good?"
            if error.status == _UNAUTHORIZED
            else "is this the right cluster, and up?"
        )
        raise _ClusterRefuses(f"{connection.where}: {connection.url}: {error}; {hint}") from error
    if missing:
        raise _ClusterRefuses(preflight.in_words(missing))
