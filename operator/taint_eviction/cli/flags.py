"""What the flags of several verbs have in common; those of ``run`` alone are in ``run_flags``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

# Each flag can also be set by an environment variable: --now by TAINT_EVICTION_NOW.
CONTEXT_SETTINGS = {"auto_envvar_prefix": "TAINT_EVICTION"}

flag = partial(click.option, show_envvar=True, show_default=True)
# A flag that may be given several times has no environment variable: that could not tell one value from two.
repeated_flag = partial(click.option, multiple=True, allow_from_autoenv=False)

KUBECONFIG_FLAGS = (
    flag("--kubeconfig", help="Kubeconfig file. Without it: $KUBECONFIG, in-cluster, or ~/.kube/config."),
    flag("--context", help="Context of the kubeconfig to use instead of its current one."),
)


def with_flags(command: CommandT, flags: Sequence[Callable[[CommandT], CommandT]]) -> CommandT:
    """Give a command these flags, in this order."""
    for each in reversed(flags):
        command = each(command)
    return command
