"""The flags of ``taint-eviction run``; each can also be set by an environment variable.

Those that are settings follow from the table; the others say where the process finds the cluster, listens and writes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from taint_eviction.cli.connection import KUBECONFIG_FLAGS, CommandT, Flag, flag, with_flags
from taint_eviction.cli.values import HostPort, Off, Seconds, Word, Written
from taint_eviction.files.setting_forms import Form, Rate, Span, Switch, Unset, Whole, Words
from taint_eviction.settings import (
    ADOPTION,
    BREAKER,
    DECISIONS,
    ELECTION,
    EVICTING,
    LIMITS,
    POLICY,
    PROCESS,
    TABLE,
    WATCHING,
    Setting,
    Settings,
    with_values,
)

_DEFAULT = Settings()


def _of(rows: Iterable[Setting]) -> tuple[Flag[Any], ...]:
    """Make the flags of settings."""
    return tuple(_made(row) for row in rows if row.flag)


def _made(row: Setting) -> Flag[Any]:
    names, default = row.flag.split(), row.form.text(row.of(_DEFAULT))
    how: dict[str, Any] = {"type": _type(row.form), "default": default, "show_default": row.default or True}
    match row.form:
        case Unset():
            how |= {"is_flag": True, "default": False}
        case Switch():
            how |= {"is_flag": True, "default": row.of(_DEFAULT)}
        case _:
            pass
    return flag(*names, help=row.help, **how)


def _type(form: Form) -> click.ParamType[Any]:
    """Return click's type of a form."""
    match form:
        case Unset():
            return Off()
        case Switch():
            return click.BOOL
        case Whole():
            return click.INT
        case Rate():
            return click.FLOAT
        case Words():
            return Word(form)
        case Span(forever=False):
            return Seconds()
        case _:
            return Written(form)


def parameter(flag: str) -> str:
    """Return click's name of a flag."""
    return flag.split(maxsplit=1)[0].split("/", maxsplit=1)[0].removeprefix("--").replace("-", "_")


def settings_of(flags: dict[str, Any], rows: Iterable[Setting]) -> Settings:
    """Return the settings that the values of flags make; ``rows`` are those whose flags the command has."""
    return with_values(_DEFAULT, [(row, flags[parameter(row.flag)]) for row in rows if row.flag])


_PROCESS = (
    *KUBECONFIG_FLAGS,
    flag(
        "--listen",
        type=HostPort(),
        help="Address on which to serve /metrics, /healthz, /readyz, /status and /explain.",
        show_default="not served",
    ),
    flag(
        "--probe-listen",
        type=HostPort(),
        help="Address on which to serve /healthz and /readyz alone, so that nobody who uses up the connections of"
        " --listen can make a probe fail.",
        show_default="not served",
    ),
    flag(
        "--wait-for-api",
        is_flag=True,
        help="Wait for an API server that cannot be reached instead of exiting. In a pod, the controller always waits.",
    ),
    *_of(PROCESS),
    flag(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Format of the log: text for people, or one JSON object per line.",
    ),
    flag(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Minimum severity of log lines.",
    ),
)

# Which pods are evicted, when, and by which call.
_DECIDING = (
    *_of(DECISIONS),
    flag(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File with rules for selected pods (manifests/POLICY.md). run reads the file again when it changes.",
    ),
    *_of(POLICY),
)

_ELECTION = (
    flag(
        "--leader-elect/--no-leader-elect",
        default=None,
        help="Act only while holding the Lease.",
        show_default="leader-elect; with --dry-run only if the Lease is named",
    ),
    *_of(ELECTION),
    flag(
        "--leader-elect-resource-name",
        help="Name of the Lease, and of the ConfigMap that holds the pauses and the state of the breaker.",
        show_default="taint-eviction-controller; with --dry-run taint-eviction-controller-dry-run",
    ),
    flag(
        "--leader-elect-resource-namespace",
        help="Namespace of the Lease and of the ConfigMap.",
        show_default="the pod's own, else kube-system",
    ),
)

_RECORDS = (
    flag(
        "--journal",
        metavar="FILE",
        help="Write what the controller observes and does to this file, for replay. The previous file is FILE.1.",
    ),
    flag(
        "--journal-megabytes",
        type=click.IntRange(1),
        default=64,
        help="Maximum size of each of the two files. A file begins with all that is known, and grows to twice that"
        " where this is more.",
    ),
    flag(
        "--audit-log",
        metavar="FILE",
        help="Write each attempt to evict to this file, one JSON object per line; - is stdout. The previous file is"
        " FILE.1.",
    ),
    flag("--audit-megabytes", type=click.IntRange(1), default=64, help="Maximum size of each of the two files."),
)

# Old names of flags and of their variables, kept for one version, by parameter, with the new parameter.
_RENAMED = {parameter(row.old_flag): parameter(row.flag) for row in TABLE if row.old_flag}
_OLD = tuple(click.option(row.old_flag, type=_type(row.form), hidden=True) for row in TABLE if row.old_flag)

_GROUPS = {
    "Process": _PROCESS,
    "Evicting": _of(EVICTING),
    "Deciding": _DECIDING,
    "Limits": _of(LIMITS),
    "Circuit breaker": _of(BREAKER),
    "Watching": _of(WATCHING),
    "Leader election": _ELECTION,
    "Beside the built-in controller": _of(ADOPTION),
    "Records": _RECORDS,
}


def run_flags(command: CommandT) -> CommandT:
    """Add all flags of ``run``."""
    return with_flags(command, (*(each for flags in _GROUPS.values() for each in flags), *_OLD))


def format_groups(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of all flags in groups; their order is that in which ``run_flags`` gives them."""
    written = iter(command.get_params(context))
    for title, flags in (*_GROUPS.items(), ("Other", (None, *_OLD))):
        records = [next(written).get_help_record(context) for _ in flags]
        with formatter.section(title):
            formatter.write_dl([record for record in records if record is not None])


def deciding_flags(command: CommandT) -> CommandT:
    """Add those flags of ``run`` that say which pods are evicted, when, and by which call."""
    return with_flags(command, (*_DECIDING, *_of(LIMITS), *_of(BREAKER)))


def take_renamed(context: click.Context) -> list[str]:
    """Move values set by an old name to the new one; return a warning about each. If both are set, the new counts."""
    warnings = []
    for old, new in _RENAMED.items():
        value = context.params.pop(old)
        if value is None:
            continue
        by_flag = context.get_parameter_source(old) is ParameterSource.COMMANDLINE
        old_name, new_name = (_written(name, by_flag, context) for name in (old, new))
        warning = f"{old_name} is deprecated and will be removed in the next version: use {new_name}"
        if context.get_parameter_source(new) is ParameterSource.DEFAULT:
            context.params[new] = value
        else:
            warning += "; it is ignored, because the new one is set, too"
        warnings.append(warning)
    return warnings


def _written(parameter: str, as_flag: bool, context: click.Context) -> str:
    if as_flag:
        return f"--{parameter.replace('_', '-')}"
    return f"{context.auto_envvar_prefix}_{parameter.upper()}"
