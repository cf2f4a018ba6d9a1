"""The command ``taint-eviction`` and its verb ``run``: the only room of the controller that prints or ends a process.

Other packages add the verbs that people type. Results go to stdout, logs to stderr; exit codes are in ``exit_codes``.
"""

import os
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

import click
from click.shell_completion import CompletionItem

from taint_eviction import __version__
from taint_eviction.cli.connection import HandingOn, connection_flags, handed_on
from taint_eviction.core.text import did_you_mean

# Verbs of other tools, and the verb that does the same here.
_ELSEWHERE = {
    "describe": "explain",
    "why": "explain",
    "get": "status",
    "top": "status",
    "events": "history",
    "logs": "history",
    "stop": "pause",
    "cordon": "pause",
    "uncordon": "resume",
    "start": "resume",
    "taint": "plan",
    "drain": "plan",
    "diff": "plan",
}

# Other packages have the verbs, by entry points of this group.
_VERBS = "taint_eviction.verbs"
_WITH_THE_SAME_FLAGS = "status"
_LABORATORY_PACKAGE = "taint_eviction_lab"
_WITH_LABORATORY = (
    "New here? `taint-eviction demo` shows the controller at work, without a cluster. `taint-eviction replay` plays"
    " scenarios from files."
)
_WITHOUT_LABORATORY = (
    "The verbs demo and replay belong to the laboratory, which this installation leaves out; `pip install .` in a clone"
    " of the repository installs it."
)


class _ImportedWhenUsed(HandingOn):
    """Imports a verb's module only when the verb is used: the controller starts without any of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if parameter.type is click.STRING:
                parameter.type = _AsInAVerb()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all verbs, including those of the laboratory."""
        return sorted({*super().list_commands(ctx), "run", *(verb.name for verb in entry_points(group=_VERBS))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb of this name, None if there is none. ``run`` looks for no other package."""
        if cmd_name == "run":
            found: click.Command = import_module("taint_eviction.cli.run").run
            return found
        return super().get_command(ctx, cmd_name) or _verb_of_another_package(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; if there is none, suggest a similar one."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = f"; did you mean {_ELSEWHERE[name]!r}?" if name in _ELSEWHERE else ""
            raise click.UsageError(
                f"there is no verb {name!r}{near or did_you_mean(name, self.list_commands(ctx))}", ctx
            )
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Recommend the laboratory's verbs, or say how to get them."""
        self.epilog = _WITH_LABORATORY if find_spec(_LABORATORY_PACKAGE) else _WITHOUT_LABORATORY
        super().format_epilog(ctx, formatter)


class _AsInAVerb(click.types.StringParamType):
    """A text that a shell completes as in a verb that has the same flag."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Return the names that begin so."""
        command = _verb_of_another_package(_WITH_THE_SAME_FLAGS)
        if command is None:
            return []
        with command.make_context(command.name, handed_on(ctx), parent=ctx, resilient_parsing=True) as below:
            flags = [each for each in command.params if each.name == param.name]
            return [found for each in flags for found in each.shell_complete(below, incomplete)]


def _verb_of_another_package(name: str) -> click.Command | None:
    """Return the verb of this name, None if there is none. If it belongs to the laboratory and that is not installed,
    as in the image, return a verb that says how to get it.
    """
    for verb in entry_points(group=_VERBS, name=name):
        try:
            command: click.Command = verb.load()
        except ModuleNotFoundError as missing:
            if missing.name != _LABORATORY_PACKAGE:
                raise
            tolerant = {"ignore_unknown_options": True, "allow_extra_args": True}
            command = click.Command(name, callback=_say_how_to_get_it, context_settings=tolerant, hidden=True)
        return command
    return None


def _say_how_to_get_it() -> None:
    raise click.UsageError(_WITHOUT_LABORATORY)


@click.group(cls=_ImportedWhenUsed, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="taint-eviction", message="%(prog)s %(version)s")
@connection_flags
@click.pass_context
def cli(context: click.Context, /, **_: Any) -> None:
    """Evict pods from nodes with NoExecute taints: at once, when their tolerationSeconds are over, or never.

    `taint-eviction run` is the controller; with --dry-run it shows what it would do. `taint-eviction plan` shows which
    pods would leave if nodes were tainted.

    Exit codes of all verbs: 0 fine; 1 what was checked does not hold, or a bug has ended the process; 2 wrong usage or
    malformed input; 3 the API server or the controller cannot be reached, or does not allow what is needed.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False


@cli.command()
def version() -> None:
    """Print the version.

    Exit codes: 0 printed; 2 wrong usage.
    """
    click.echo(f"taint-eviction {__version__}")


def main() -> None:
    """Run the command line; the entry point of the package."""
    cli(prog_name="taint-eviction")


def kubectl_main() -> None:
    """Run the command as a plugin of kubectl, which finds ``kubectl-taint_eviction`` for ``kubectl taint-eviction``."""
    # Completion uses the other name: for plugins, kubectl runs separate executables to complete.
    cli(prog_name="kubectl taint-eviction", complete_var="_TAINT_EVICTION_COMPLETE")
