"""The command ``taint-eviction``: speaks to people, and is the only room that prints or ends the process.

Exit codes: 0 fine; 1 an expectation was broken, or a bug of our own ended the process; 2 usage or malformed input;
3 the API server can't be reached, or does not allow what is needed. Results go to stdout, logs to stderr.
"""

import click

from taint_eviction import __version__
from taint_eviction.cli.demo import demo
from taint_eviction.cli.replay import replay
from taint_eviction.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Evict pods from nodes with NoExecute taints: at once, when their tolerationSeconds are over, or never.

    New here? `taint-eviction demo` shows the controller at work, without a cluster. `taint-eviction run` is the
    controller itself; add --dry-run to see what it would do. `taint-eviction replay` plays what-if stories from files.
    """


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"taint-eviction {__version__}")


for command in (run, demo, replay):
    cli.add_command(command)


def main() -> None:
    """Run the command line; the entry point of the package."""
    cli(prog_name="taint-eviction")
