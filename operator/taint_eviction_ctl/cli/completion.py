"""``taint-eviction completion``: the script by which a shell completes verbs, flags and their values."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete verbs and flags.

    For bash: `source <(taint-eviction completion bash)`; zsh the same; for fish: `taint-eviction completion fish |
    source`. Put that into the shell's start file to keep it.

    Exit codes: 0 printed; 2 wrong usage.
    """
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = context.find_root()
    click.echo(made(root.command, {}, "taint-eviction", "_TAINT_EVICTION_COMPLETE").source())
