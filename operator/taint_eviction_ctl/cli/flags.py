"""Flags that several verbs share; those of ``run`` alone are in ``run_flags``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from taint_eviction.settings import ElectionSettings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

# Each flag can also be set by an environment variable: --now by TAINT_EVICTION_NOW.
CONTEXT_SETTINGS = {"auto_envvar_prefix": "TAINT_EVICTION"}

flag = partial(click.option, show_envvar=True, show_default=True)
# A flag that may be repeated has no environment variable: one value could not be distinguished from two.
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

# The doctor examines an installation, not pods: the namespace is the controller's.
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

# The port on which the controller listens in the manifests.
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
    """Add these flags to a command, in this order."""
    for each in reversed(flags):
        command = each(command)
    return command
