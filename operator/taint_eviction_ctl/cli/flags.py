"""What the verbs that people type have in common: how they are made, and flags that several of them have.

The flags that say which cluster and which controller is meant are in ``taint_eviction.cli.connection``, since they may
stand before the verb; those of ``run`` alone are in ``run_flags``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from taint_eviction.cli.connection import Flag, HandingOn, lease_flag, write_options
from taint_eviction.settings import ElectionSettings
from taint_eviction_ctl.cli.completing import complete_names

# Each flag can also be set by an environment variable: --now by TAINT_EVICTION_NOW.
_CONTEXT_SETTINGS = {"auto_envvar_prefix": "TAINT_EVICTION"}


class _Verb(click.Command):
    """A verb that completes names, and whose help has the flags of the connection in one place."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        complete_names(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags in sections."""
        write_options(self, ctx, formatter)


class _Verbs(HandingOn, _Verb):
    """A verb that has verbs."""

    command_class = _Verb


def verb(name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a verb; ``name`` None: that of the function."""
    return click.command(name, cls=_Verb, context_settings=_CONTEXT_SETTINGS)


def verbs(function: Callable[..., Any]) -> click.Group:
    """Make a function a verb that has verbs, and does something without them, too."""
    return click.group(cls=_Verbs, invoke_without_command=True, context_settings=_CONTEXT_SETTINGS)(function)


# A flag that may be repeated has no environment variable: one value could not be distinguished from two.
repeated_flag = partial(click.option, multiple=True, allow_from_autoenv=False)

# The doctor examines an installation, not pods: the namespace is the controller's.
DOCTOR_LEASE_FLAGS = (
    lease_flag(
        "namespace",
        ElectionSettings().lease_namespace,
        "Namespace of the controller's pods, and of its Lease unless these say otherwise.",
        "--namespace",
        "-n",
    ),
    lease_flag("name", None, "Name of the Lease. A dry run has its own. Without it: as the controller's pods say."),
)

NO_HEADERS_FLAG: Flag[Any] = click.option(
    "--no-headers", is_flag=True, allow_from_autoenv=False, help="Leave out the header lines of tables."
)


def output_flag(*forms: str, text: str = "A table, or a document for programs.") -> Flag[Any]:
    """Return the flag that chooses the form of the output; the first form is the default."""
    # No environment variable: its values are not the same for all verbs.
    return click.option(
        "-o",
        "--output",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        allow_from_autoenv=False,
        help=text,
    )


OUTPUT_FLAGS = (output_flag("table", "json", "yaml"), NO_HEADERS_FLAG)
