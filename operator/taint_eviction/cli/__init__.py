"""The command ``taint-eviction``: speaks to people, and is the only room that prints or ends the process.

Exit codes: 0 fine; 1 an expectation was broken, or a bug of our own ended the process; 2 usage or malformed input;
3 the API server can't be reached, or does not allow what is needed. Results go to stdout, logs to stderr.
"""

from importlib import import_module

import click

from taint_eviction import __version__

# Each is the object of its name in this module.
_COMMANDS = {
    "run": "run",
    "demo": "demo",
    "plan": "plan",
    "replay": "replay",
    "pause": "pause",
    "resume": "pause",
    "breaker": "breaker",
    "status": "status",
    "explain": "explain",
}


class _ImportedWhenUsed(click.Group):
    """Imports a command's module when the command is used: the controller starts without simulation and tables."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands."""
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name, None if there is none."""
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(import_module(f"taint_eviction.cli.{_COMMANDS[cmd_name]}"), cmd_name)
        return found


@click.group(cls=_ImportedWhenUsed, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Evict pods from nodes with NoExecute taints: at once, when their tolerationSeconds are over, or never.

    New here? `taint-eviction demo` shows the controller at work, without a cluster. `taint-eviction run` is the
    controller itself; add --dry-run to see what it would do. `taint-eviction replay` plays what-if stories from files.
    """


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"taint-eviction {__version__}")


def main() -> None:
    """Run the command line; the entry point of the package."""
    cli(prog_name="taint-eviction")
