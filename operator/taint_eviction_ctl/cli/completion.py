"""``taint-eviction completion``: the script by which a shell completes verbs, flags and their values."""

import sys

import click
from click.shell_completion import ShellComplete, get_completion_class

from taint_eviction.cli import cli

# What Cobra calls ShellCompDirectiveNoFileComp.
_NO_FILES = 4


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


def kubectl_complete() -> None:
    """Print what may come next, for kubectl, which runs ``kubectl_complete-taint_eviction`` with the words so far.

    The last word is incomplete. kubectl reads a value a line, with its help after a tab, and a directive of Cobra.

    Reference: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
    """
    *words, incomplete = sys.argv[1:] or [""]
    completing = ShellComplete(cli, {}, "kubectl taint-eviction", "_TAINT_EVICTION_COMPLETE")
    found = completing.get_completions(words, incomplete)
    for each in found:
        if each.type == "plain":
            click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    files = any(each.type != "plain" for each in found)
    click.echo(":0" if files else f":{_NO_FILES}")
