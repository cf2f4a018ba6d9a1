"""What the flags of several verbs have in common; those of ``run`` alone are in ``run_flags``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from taint_eviction.settings import ElectionSettings

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


def _lease_flag(part: str, default: str | None, text: str, *short: str) -> Callable[[CommandT], CommandT]:
    # The state ConfigMap has the name and the namespace of the Lease, and the older flags are named after it.
    return flag(
        f"--lease-{part}",
        f"--state-{part}",
        *short,
        f"lease_{part}",
        default=default,
        envvar=[f"TAINT_EVICTION_LEASE_{part.upper()}", f"TAINT_EVICTION_STATE_{part.upper()}"],
        help=text,
    )


LEASE_FLAGS = (
    _lease_flag(
        "namespace",
        ElectionSettings().lease_namespace,
        "Namespace of the controller's Lease, and of the state ConfigMap with pauses and the breaker's state.",
    ),
    _lease_flag("name", ElectionSettings().lease_name, "Name of both. A dry run has its own."),
)

# The doctor is about an installation, not about pods: a namespace is that of the controller.
DOCTOR_LEASE_FLAGS = (
    _lease_flag(
        "namespace",
        ElectionSettings().lease_namespace,
        "Namespace of the controller's pods, and of its Lease unless these say otherwise.",
        "--namespace",
        "-n",
    ),
    _lease_flag("name", None, "Name of the Lease. A dry run has its own. Without it: as the controller's pods say."),
)

# Where the manifests have the controller listen.
PORT_FLAG = flag("--port", type=click.IntRange(1, 65535), default=8080, help="Port on which the leader's pod listens.")

# No environment variable: its values are not the same for all verbs.
OUTPUT_FLAG = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    allow_from_autoenv=False,
    help="A table, or JSON.",
)


def with_flags(command: CommandT, flags: Sequence[Callable[[CommandT], CommandT]]) -> CommandT:
    """Give a command these flags, in this order."""
    for each in reversed(flags):
        command = each(command)
    return command
