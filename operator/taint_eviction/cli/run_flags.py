"""The flags of ``taint-eviction run``; each can also be set by an environment variable."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from taint_eviction.cli.values import HoldSpan, HostPort, Seconds, Threshold
from taint_eviction.core.breaker_policy import NodeThreshold
from taint_eviction.core.policy import EvictionMode
from taint_eviction.core.tiers import Order
from taint_eviction.settings import Settings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_DEFAULT = Settings()
_MANUAL, BREAKER_CLOSES_BY_ITSELF = "manual", "by-itself"
SHUTDOWN_WAITS = "wait"
_NO_LIMIT, _ONE_SECOND, _NOT_TOLERATED = "no limit", "the evictions of one second", "not tolerated"

_flag = partial(click.option, show_envvar=True, show_default=True)


def _span(name: str, default_seconds: float, help_text: str) -> Callable[[CommandT], CommandT]:
    """Make a flag that takes a duration; its default is shown as one."""
    return _flag(name, type=Seconds(), default=_duration(default_seconds), help=help_text)


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds * 1000:g}ms"


_PROCESS = (
    _flag("--kubeconfig", help="Kubeconfig file.", show_default="$KUBECONFIG, else in-cluster, else ~/.kube/config"),
    _flag("--context", help="Context of the kubeconfig to use.", show_default="its current one"),
    _flag(
        "--listen",
        type=HostPort(),
        help="Address on which to serve /metrics, /healthz, /readyz, /status and /explain.",
        show_default="not served",
    ),
    _flag(
        "--probe-listen",
        type=HostPort(),
        help="Address on which to serve /healthz and /readyz alone, so that nobody who uses up the connections of"
        " --listen can make a probe fail.",
        show_default="not served",
    ),
    _flag(
        "--wait-for-api",
        is_flag=True,
        help="Wait for an API server that cannot be reached instead of exiting. In a pod, the controller always waits.",
    ),
    _flag("--dry-run", is_flag=True, help="Decide, log and count evictions, but change nothing in the cluster."),
    _flag("--dry-run-events", is_flag=True, help="Post events about pods in a dry run, too."),
    _flag(
        "--event-reasons/--no-event-reasons",
        default=_DEFAULT.event_reasons,
        help="Whether events about pods say why a pod is evicted or stays, which names the taint.",
    ),
    _flag(
        "--metrics-by-namespace",
        is_flag=True,
        help="Count evictions by namespace, too: the first 100 namespaces by name, all others together.",
    ),
    _flag(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Format of the log: text for people, or one JSON object per line.",
    ),
    _flag(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Minimum severity of log lines.",
    ),
)

_EVICTING = (
    _flag(
        "--workers",
        type=int,
        default=_DEFAULT.workers,
        help="Maximum number of concurrent evictions, at most half of them retries. An eviction that has waited for the"
        " API server for 1s no longer counts.",
    ),
    _span("--call-timeout", _DEFAULT.call_timeout_seconds, "Timeout of each API call."),
    _span(
        "--grace-period",
        _DEFAULT.grace_seconds,
        "How long evictions in flight may take to finish when the controller stops.",
    ),
    _span(
        "--retry-first",
        _DEFAULT.retry.first_seconds,
        "Delay before the first retry of a failed eviction. It doubles with each retry.",
    ),
    _span("--retry-max", _DEFAULT.retry.max_seconds, "Maximum delay between retries."),
    _span(
        "--outage-gap",
        _DEFAULT.outage_gap_seconds,
        "How long the taints not-ready and unreachable may be absent during one outage while countdowns continue"
        " (kube-controller-manager removes and sets them again when it restarts). With 0, countdowns always restart.",
    ),
)

# Which pods are evicted, when, and by which call: plan takes these flags, too.
_DECIDING = (
    _flag("--keep-finished", is_flag=True, help="Do not delete Succeeded and Failed pods: their logs stay available."),
    _flag(
        "--default-not-ready-seconds",
        type=int,
        help="tolerationSeconds for node.kubernetes.io/not-ready on pods without a matching toleration.",
        show_default=_NOT_TOLERATED,
    ),
    _flag(
        "--default-unreachable-seconds",
        type=int,
        help="tolerationSeconds for node.kubernetes.io/unreachable on pods without a matching toleration.",
        show_default=_NOT_TOLERATED,
    ),
    _flag(
        "--honour-holds",
        type=HoldSpan(),
        default=_DEFAULT.max_hold_seconds,
        show_default="the annotation is ignored",
        help="How long after its deadline the annotation taint-eviction/hold may keep a pod.",
    ),
    _flag(
        "--graceful-shutdown",
        type=click.Choice(["evict", SHUTDOWN_WAITS]),
        default="evict",
        help="What the taint not-ready does while a kubelet shuts its node down gracefully and ends the pods itself:"
        " evict them, too, or wait for the kubelet as long as it says so.",
    ),
    _flag(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File with rules for selected pods (manifests/POLICY.md). run reads the file again when it changes.",
    ),
    _flag(
        "--eviction-mode",
        "--mode",
        "eviction_mode",
        type=click.Choice([mode.value for mode in EvictionMode]),
        default=_DEFAULT.policy.mode.value,
        help="How pods are ended: delete ignores PodDisruptionBudgets, evict respects them indefinitely,"
        " evict-then-delete respects them until --evict-timeout.",
    ),
    _span(
        "--evict-timeout",
        _DEFAULT.policy.evict_timeout_seconds,
        "With evict-then-delete: how long budgets, or admission, may refuse a pod before it is deleted.",
    ),
    _span(
        "--background-timeout",
        _DEFAULT.policy.background_timeout_seconds,
        "How long refusals do not count while KubeVirt moves the virtual machine in a pod away, from the first one; 0:"
        " they count.",
    ),
    _flag(
        "--order",
        type=click.Choice([order.value for order in Order]),
        default=_DEFAULT.policy.order.value,
        help="Whether the pods of a node leave in order: with tiers, workloads, DaemonSets' pods, critical workloads"
        " and critical DaemonSets' pods (storage and device plugins) leave one after the other.",
    ),
    _span(
        "--order-wait",
        _DEFAULT.policy.order_wait_seconds,
        "With an order: how long a due pod waits for each earlier tier, and how soon pods must be due for that.",
    ),
)


def _limit(suffix: str, which: str) -> tuple[Callable[[CommandT], CommandT], ...]:
    return (
        _flag(f"--evictions-per-second{suffix}", type=float, help=f"Maximum rate of {which}.", show_default=_NO_LIMIT),
        _flag(
            f"--evictions-burst{suffix}",
            type=int,
            help=f"Maximum number of {which} that start together before the rate applies.",
            show_default=_ONE_SECOND,
        ),
    )


_LIMITS = (
    *_limit("", "all evictions"),
    *_limit("-per-node", "evictions from each node"),
    *_limit("-per-namespace", "evictions in each namespace"),
)

_BREAKER = (
    _flag("--breaker", is_flag=True, help="Suspend all evictions when too many nodes are newly tainted or lost."),
    _flag(
        "--breaker-nodes",
        type=Threshold(),
        default="25%",
        help="Open the breaker when more nodes than this are newly tainted: a share of all nodes, a number, or both"
        " (25%,40).",
    ),
    _flag(
        "--breaker-min-nodes",
        type=int,
        default=NodeThreshold().min_nodes,
        help="Minimum number of nodes for a share to open the breaker.",
    ),
    _flag(
        "--breaker-lifecycle-nodes",
        type=Threshold(exempt="exempt"),
        default="55%",
        help="Open the breaker when more nodes than this stopped being ready within --breaker-window of each other and"
        " still are not when a pod is about to be evicted because of that. exempt: any number is allowed.",
    ),
    _flag(
        "--breaker-zone",
        type=Threshold(exempt="off"),
        default="off",
        help="The same for the nodes of each zone, so that a zone that is lost as a whole is held. off: its pods are"
        " evicted, unless --breaker-lifecycle-nodes is exceeded.",
    ),
    _flag(
        "--breaker-without-control-plane",
        is_flag=True,
        help="Leave control-plane nodes out of both.",
    ),
    _span("--breaker-window", _DEFAULT.breaker.window_seconds, "How long a taint counts as new."),
    _flag(
        "--breaker-due-pods",
        type=int,
        help="Open the breaker also when more pods than this are due at once.",
        show_default=_NO_LIMIT,
    ),
    _span(
        "--breaker-settle",
        _DEFAULT.breaker.settle_seconds,
        "Delay of each eviction, so that the breaker sees a surge of taints before its first pods are evicted.",
    ),
    _span(
        "--breaker-list-wait",
        _DEFAULT.breaker.list_wait_seconds,
        "Maximum time for which evictions wait until the pods of newly tainted nodes have been listed.",
    ),
    _flag(
        "--breaker-closes",
        type=click.Choice([_MANUAL, BREAKER_CLOSES_BY_ITSELF]),
        default=_MANUAL,
        help="How the breaker closes: by the command taint-eviction breaker, or by itself once its cause is gone; what"
        " a person has opened, only by the command.",
    ),
)

_WATCHING = (
    _span("--resync-interval", _DEFAULT.watch.resync_seconds, "How often all watched objects are listed again."),
    _span(
        "--linger",
        _DEFAULT.watch.linger_seconds,
        "How long the pods of a node are still watched after its last taint is removed.",
    ),
    _flag(
        "--whole-cluster-from",
        type=int,
        default=_DEFAULT.watch.whole_cluster_from,
        help="Number of tainted nodes from which one watch of all bound pods replaces the watches of single nodes.",
    ),
)

_ELECTION = (
    _flag(
        "--leader-elect/--no-leader-elect",
        default=None,
        help="Act only while holding the Lease.",
        show_default="leader-elect; with --dry-run only if the Lease is named",
    ),
    _span(
        "--leader-elect-lease-duration",
        _DEFAULT.election.lease_duration_seconds,
        "How long standbys wait for a leader that no longer renews the Lease.",
    ),
    _span(
        "--leader-elect-renew-deadline",
        _DEFAULT.election.renew_deadline_seconds,
        "How long the leader acts without having renewed the Lease.",
    ),
    _span(
        "--leader-elect-retry-period",
        _DEFAULT.election.retry_period_seconds,
        "Time between attempts to acquire or renew the Lease.",
    ),
    _flag(
        "--leader-elect-resource-name",
        help="Name of the Lease, and of the ConfigMap that holds the pauses and the state of the breaker.",
        show_default="taint-eviction-controller; with --dry-run taint-eviction-controller-dry-run",
    ),
    _flag(
        "--leader-elect-resource-namespace",
        help="Namespace of the Lease and of the ConfigMap.",
        show_default="the pod's own, else kube-system",
    ),
)

_ADOPTION = (
    _flag(
        "--adopt",
        is_flag=True,
        help="Take over countdowns from a built-in controller that cannot be switched off. Needs the component adopt.",
    ),
    _span(
        "--adopt-from",
        _DEFAULT.adoption.from_seconds,
        "Leave countdowns of shorter tolerances to the built-in controller.",
    ),
    _span(
        "--adopt-before",
        _DEFAULT.adoption.before_seconds,
        "Take a countdown over at most this long before the built-in controller's timer ends; a third of the pod's"
        " tolerance if that is less, and 10 s at least.",
    ),
)

_RECORDS = (
    _flag(
        "--journal",
        metavar="FILE",
        help="Write what the controller observes and does to this file, for replay. The previous file is FILE.1.",
    ),
    _flag("--journal-megabytes", type=click.IntRange(1), default=64, help="Maximum size of each of the two files."),
    _flag(
        "--audit-log",
        metavar="FILE",
        help="Write each attempt to evict to this file, one JSON object per line; - is stdout. The previous file is"
        " FILE.1.",
    ),
    _flag("--audit-megabytes", type=click.IntRange(1), default=64, help="Maximum size of each of the two files."),
)

# Old names of flags and of their variables, kept for one version, by parameter, with the new parameter.
_RENAMED = {"retry_most": "retry_max", "breaker_least_nodes": "breaker_min_nodes"}
_OLD = (
    click.option("--retry-most", type=Seconds(), hidden=True),
    click.option("--breaker-least-nodes", type=int, hidden=True),
)


_GROUPS = {
    "Process": _PROCESS,
    "Evicting": _EVICTING,
    "Deciding": _DECIDING,
    "Limits": _LIMITS,
    "Circuit breaker": _BREAKER,
    "Watching": _WATCHING,
    "Leader election": _ELECTION,
    "Beside the built-in controller": _ADOPTION,
    "Records": _RECORDS,
}


def run_flags(command: CommandT) -> CommandT:
    """Add all flags of ``run``."""
    return _with(command, (*(flag for flags in _GROUPS.values() for flag in flags), *_OLD))


def format_groups(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of all flags in groups; their order is that in which ``run_flags`` gives them."""
    written = iter(command.get_params(context))
    for title, flags in (*_GROUPS.items(), ("Other", (None, *_OLD))):
        records = [next(written).get_help_record(context) for _ in flags]
        with formatter.section(title):
            formatter.write_dl([record for record in records if record is not None])


def deciding_flags(command: CommandT) -> CommandT:
    """Add those flags of ``run`` that say which pods are evicted, when, and by which call."""
    return _with(command, _DECIDING)


def _with(command: CommandT, flags: Sequence[Callable[[CommandT], CommandT]]) -> CommandT:
    for flag in reversed(flags):
        command = flag(command)
    return command


def take_renamed(context: click.Context) -> list[str]:
    """Move values set by an old name to the new one; return a warning about each. If both are set, the new counts."""
    warnings = []
    for old, new in _RENAMED.items():
        value = context.params.pop(old)
        if value is None:
            continue
        by_flag = context.get_parameter_source(old) is ParameterSource.COMMANDLINE
        old_name, new_name = (_written(name, by_flag, context) for name in (old, new))
        warning = f"{old_name} is deprecated and will be removed in the next version: use {new_name}"
        if context.get_parameter_source(new) is ParameterSource.DEFAULT:
            context.params[new] = value
        else:
            warning += "; it is ignored, because the new one is set, too"
        warnings.append(warning)
    return warnings


def _written(parameter: str, as_flag: bool, context: click.Context) -> str:
    if as_flag:
        return f"--{parameter.replace('_', '-')}"
    return f"{context.auto_envvar_prefix}_{parameter.upper()}"
