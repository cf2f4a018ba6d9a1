"""The flags that say which cluster and which controller a command talks to. They may stand before the verb or after it.

The root and groups take them as well, and hand them on: the verb alone reads them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from taint_eviction.cli.values import HttpUrl
from taint_eviction.settings import ElectionSettings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
Flag = Callable[[CommandT], CommandT]

flag = partial(click.option, show_envvar=True, show_default=True)


class _Files(click.types.StringParamType):
    """One file or several, as in KUBECONFIG."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Let the shell complete files."""
        return [CompletionItem(incomplete, type="file")]


KUBECONFIG_FLAGS: tuple[Flag[Any], ...] = (
    flag(
        "--kubeconfig",
        type=_Files(),
        help="Kubeconfig file.",
        show_default="$KUBECONFIG, else in-cluster, else ~/.kube/config",
    ),
    flag("--context", help="Context of the kubeconfig to use.", show_default="its current one"),
)
SERVER_FLAG: Flag[Any] = flag(
    "--server", type=HttpUrl(), help="Ask the replica at this URL, not the Lease's holder; rarely needed."
)
# The port on which the controller listens in the manifests.
PORT_FLAG: Flag[Any] = flag(
    "--port", type=click.IntRange(1, 65535), default=8080, help="Port on which the leader's pod listens."
)


def lease_flag(part: str, default: str | None, text: str, *more: str) -> Flag[Any]:
    """Return a flag for a part of the Lease's name; ``more``: other names of the flag."""
    # The state ConfigMap has the name and the namespace of the Lease, and the older flags are named after it.
    return flag(
        f"--lease-{part}",
        f"--state-{part}",
        *more,
        f"lease_{part}",
        default=default,
        envvar=[f"TAINT_EVICTION_LEASE_{part.upper()}", f"TAINT_EVICTION_STATE_{part.upper()}"],
        help=text,
    )


LEASE_FLAGS: tuple[Flag[Any], ...] = (
    lease_flag(
        "namespace",
        ElectionSettings().lease_namespace,
        "Namespace of the controller's Lease, and of the state ConfigMap with pauses and the breaker's state.",
    ),
    lease_flag("name", ElectionSettings().lease_name, "Name of both. A dry run has its own."),
)

# By the names that click gives them.
CONNECTION = frozenset({"kubeconfig", "context", "server", "lease_namespace", "lease_name", "port"})
_HANDED_ON = CONNECTION | {"namespace"}


def connection_flags(command: CommandT) -> CommandT:
    """Add the flags that may stand before the verb, to the root."""
    namespace = click.option("--namespace", "-n", help="Namespace, for verbs with this flag.")
    return with_flags(command, (*KUBECONFIG_FLAGS, SERVER_FLAG, namespace, *LEASE_FLAGS, PORT_FLAG))


def with_flags(command: CommandT, flags: Iterable[Flag[Any]]) -> CommandT:
    """Add these flags to a command, in this order."""
    for each in reversed(tuple(flags)):
        command = each(command)
    return command


def handed_on(context: click.Context) -> list[str]:
    """Return the arguments by which a verb gets the flags that were written before it."""
    words = []
    for option in context.command.params:
        name = option.name or ""
        if name in _HANDED_ON and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words.append(f"{option.opts[0]}={context.params[name]}")
    return words


def write_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of a command's flags, with those of the connection in a section of their own at the end."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Connection (before the verb or after it)": []}
    own, of_connection = sections.values()
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)) is not None:
            (of_connection if parameter.name in CONNECTION else own).append(record)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class HandingOn(click.Group):
    """A group whose verbs get the connection's flags that are written before them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, and put the flags before its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, [*handed_on(ctx), *rest] if command is not None else rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags in sections, and then the verbs."""
        write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)
