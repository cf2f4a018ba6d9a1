"""``taint-eviction run``: the controller. Reads flags and environment, builds it, runs it until it is told to stop."""

import asyncio
import gc
import logging
import sys
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import click

from taint_eviction import __version__
from taint_eviction.adapters import preflight
from taint_eviction.adapters.audit import AuditLog
from taint_eviction.adapters.credentials import Connection, CredentialsError, find_connection
from taint_eviction.adapters.journal import Journal
from taint_eviction.adapters.probe_server import Address, ListenError
from taint_eviction.adapters.rotating_lines import Lines, RotatingLines
from taint_eviction.cli.logs import set_up_logging
from taint_eviction.cli.run_flags import read_settings, run_flags
from taint_eviction.cli.signals import StopSignals
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.files.policy_file import read_policy_file
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings
from taint_eviction.wiring import Application

logger = logging.getLogger(__name__)

_UNAUTHORIZED = 401
EXIT_BUG, EXIT_USAGE, EXIT_CLUSTER = 1, 2, 3


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@run_flags
def run(**flags: Any) -> None:
    """Run the controller against a cluster.

    Watches nodes, and the pods of nodes with NoExecute taints; evicts them when they stop tolerating the taints.
    """
    set_up_logging(flags["log_format"], flags["log_level"])
    settings, problems = _configure(flags)
    for problem in problems:
        click.echo(f"taint-eviction: {problem}", err=True)
    if problems:
        sys.exit(EXIT_USAGE)
    sys.exit(_run(settings, flags))


def _configure(flags: dict[str, Any]) -> tuple[Settings, list[str]]:
    """Return the settings, and everything that is wrong with them and with the file of ``--config``."""
    settings = read_settings(flags)
    problems = settings.problems()
    if flags["config"]:
        try:
            settings = replace(settings, policy=read_policy_file(flags["config"], settings.policy))
        except Malformed as malformed:
            problems += map(str, malformed.problems)
    return settings, problems


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
    journal = None
    if flags["journal"]:
        journal = Journal(Path(flags["journal"]), flags["journal_megabytes"] * 2**20, settings)
    application = Application(
        connection,
        clock,
        settings,
        listen=listen,
        reinstall_signal_handlers=signals.install,
        journal=journal,
        audit=_audit_log(flags),
        policy_file=flags["config"],
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
    # And what is known of the cluster is let go of without cycles: a full search through 5,000 pods, which stops the
    # loop for 60 ms, finds next to nothing, and the small ones take a tenth of the CPU. So all are made more seldom.
    gc.set_threshold(10_000, 10, 100)
    await application.run(stop)
    logger.info("stopped")
    return 0


def _audit_log(flags: dict[str, Any]) -> AuditLog | None:
    match flags["audit_log"]:
        case None | "":
            return None
        case "-":
            lines = Lines(FileIO(sys.stdout.fileno(), "wb", closefd=False), "the audit log", "stdout")
        case file:
            lines = RotatingLines(Path(file), flags["audit_megabytes"] * 2**20, "the audit log")
    return AuditLog(lines, flags["dry_run"])


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
