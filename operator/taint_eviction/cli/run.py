"""``taint-eviction run``: reads flags and environment, builds the controller, and runs it until a signal stops it."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from taint_eviction import __version__
from taint_eviction.cli.exit_codes import ExitCode
from taint_eviction.cli.logs import LogFormat, set_up_logging
from taint_eviction.cli.run_flags import format_groups, run_flags, take_renamed
from taint_eviction.cli.run_settings import read_settings
from taint_eviction.cli.signals import StopSignals
from taint_eviction.cli.visible import complain
from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.files.policy_file import read_policy_file
from taint_eviction.kube import preflight
from taint_eviction.login.credentials import Connection, CredentialsError, find_connection
from taint_eviction.reporting.audit import AuditLog
from taint_eviction.reporting.comparisons import JournalComparisons
from taint_eviction.reporting.http_port import Address, ListenError, raise_open_files
from taint_eviction.reporting.journal import Journal
from taint_eviction.reporting.rotating_lines import Lines, RotatingLines
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import Settings
from taint_eviction.wiring import ControllerProcess, build

logger = logging.getLogger(__name__)

EXIT_BUG, EXIT_USAGE, EXIT_CLUSTER = ExitCode.FAILED, ExitCode.USAGE, ExitCode.UNREACHABLE


class _RunCommand(click.Command):
    """Reports wrong flags in the format of the log, and accepts flags by their old names, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            left = super().parse_args(ctx, args)
            ctx.obj = take_renamed(ctx)
            return left
        except click.UsageError as error:
            if not _wants_json(given):
                raise
            set_up_logging("json", "error")
            sys.exit(_give_up("json", EXIT_USAGE, error.format_message()))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags in groups."""
        format_groups(self, ctx, formatter)


def _wants_json(arguments: list[str]) -> bool:
    """Return whether arguments that cannot be parsed request a JSON log."""
    words = " ".join(arguments).replace("=", " ").split()
    named = ("--log-format", "json") in pairwise(words)
    return named or os.environ.get("TAINT_EVICTION_LOG_FORMAT") == "json"


@click.command(cls=_RunCommand, context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@run_flags
@click.pass_obj
def run(renamed: Sequence[str], /, **flags: Any) -> None:
    """Run the controller against a cluster.

    The controller watches nodes, and the pods of nodes with NoExecute taints. It evicts each pod once the pod no longer
    tolerates the taints of its node.

    Exit codes: 0 a signal has stopped it; 1 a bug has ended it; 2 wrong usage, or a configuration, kubeconfig or file
    that cannot be used; 3 the API server cannot be reached, or rights are missing. In a pod it waits instead of 3.
    """
    set_up_logging(flags["log_format"], flags["log_level"])
    for warning in renamed:
        logger.warning(warning, extra={"what": "deprecated"})
    settings, problems = _configure(flags)
    if not problems and not settings.breaker.enabled and settings.breaker != BreakerPolicy():
        text = "there is no circuit breaker: --breaker is not set, so its other flags have no effect"
        logger.warning(text, extra={"what": "no_breaker"})
    sys.exit(_give_up(flags["log_format"], EXIT_USAGE, *problems) if problems else _run(settings, flags))


def _configure(flags: dict[str, Any]) -> tuple[Settings, list[str]]:
    """Return the settings, and all problems in them and in the file of ``--config``."""
    settings = read_settings(flags)
    problems = [*settings.problems(), *_unwritable(flags["audit_log"])]
    if flags["config"]:
        try:
            settings = replace(settings, policy=read_policy_file(flags["config"], settings.policy))
        except Malformed as malformed:
            problems += map(str, malformed.problems)
    return settings, problems


def _unwritable(audit_log: str | None) -> list[str]:
    """Return why the audit log cannot be written: the user must learn that at the start, not later."""
    if audit_log in (None, "", "-"):
        return []
    try:
        with Path(str(audit_log)).open("ab"):
            return []
    except OSError as error:
        return [f"--audit-log: {audit_log} cannot be written: {error.strerror or error}"]


def _run(settings: Settings, flags: dict[str, Any]) -> int:
    raise_open_files()
    try:
        return asyncio.run(_serve(settings, flags))
    except (CredentialsError, ListenError) as error:
        return _give_up(flags["log_format"], EXIT_USAGE, str(error))
    except _ClusterRefuses as error:
        return _give_up(flags["log_format"], EXIT_CLUSTER, str(error))
    except Exception:
        # Errors of the outside world never get here: this is a bug, and a restart is better than a partial controller.
        logger.critical("a bug ends the controller; its state is rebuilt from the cluster at restart", exc_info=True)
        return EXIT_BUG


def _give_up(log_format: LogFormat, code: ExitCode, *problems: str) -> int:
    """Log why the controller does not start, one line each for people, a single line in JSON; return the exit code."""
    if log_format == "text":
        for problem in problems:
            complain(problem)
        return code
    what = {EXIT_USAGE: "the configuration is rejected", EXIT_CLUSTER: "the cluster cannot be used"}[code]
    fields = {"what": "not_started", "problems": list(problems)}
    text = "%s, and nothing was started: %s; correct that and start it again"
    logger.error(text, what, "; ".join(problems), extra=fields)
    return code


class _ClusterRefuses(Exception):
    """The API server cannot be reached, or does not allow what is needed."""


async def _serve(settings: Settings, flags: dict[str, Any]) -> int:
    stop = asyncio.Event()
    signals = StopSignals(stop)
    signals.install()
    clock = ServerClock()
    connection = await find_connection(flags["kubeconfig"], flags["context"], clock)
    settings = _with_lease_namespace(settings, connection)
    listen, probe_listen = (
        Address(*flags[name]) if flags[name] is not None else None for name in ("listen", "probe_listen")
    )
    journal = compared_before = None
    if flags["journal"]:
        compared_before = _compared_before(Path(flags["journal"])) if settings.dry_run else None
        journal = Journal(Path(flags["journal"]), flags["journal_megabytes"] * 2**20, settings)
    application = build(
        connection,
        clock,
        settings,
        listen=listen,
        probe_listen=probe_listen,
        reinstall_signal_handlers=signals.install,
        journal=journal,
        audit=_audit_log(flags),
        policy_file=flags["config"],
        compared_before=compared_before,
    )
    try:
        if not (connection.in_cluster or flags["wait_for_api"]):
            await _preflight(application, connection, settings)
    except _ClusterRefuses:
        await connection.close()
        raise
    logger.info("taint-eviction %s at %s by %s", __version__, connection.url, connection.where)
    # Imported and built objects stay until the end: garbage collection of them would only stop the loop.
    gc.freeze()
    # Records of the cluster are freed without cycles. A full collection over 5,000 pods stops the loop for 60 ms and
    # finds almost nothing, and the small ones take a tenth of the CPU. So all of them run less often.
    gc.set_threshold(10_000, 10, 100)
    await application.run(stop)
    logger.info("stopped")
    return 0


def _compared_before(journal: Path) -> JournalComparisons | None:
    try:
        if not journal.is_file():
            return None  # There is no journal, or it is a pipe (/dev/stdout), which would be read indefinitely.
        return JournalComparisons(journal)
    except OSError as error:
        logger.warning("what was compared before is not known: %s: %s", journal, error.strerror or error)
        return None


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


async def _preflight(application: ControllerProcess, connection: Connection, settings: Settings) -> None:
    """Fail early and clearly for a person who has just typed the command; in a cluster the controller waits instead."""
    try:
        await preflight.reach(application.calls)
        missing = await preflight.missing_rights(application.calls, settings)
    except CallFailed as error:
        hint = (
            "are these credentials still good?"
            if error.reason is FailureReason.UNAUTHORIZED
            else "is this the right cluster, and up?"
        )
        raise _ClusterRefuses(f"{connection.where}: {connection.url}: {error}; {hint}") from error
    if missing:
        raise _ClusterRefuses(preflight.in_words(missing))
