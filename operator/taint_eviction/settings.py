"""All settings, with the unit and the reason of each default, and the table of how each is called, written and bounded.

A new setting is a field with its default, and a row of the table. What decisions, the eviction policy and the breaker
go by is a field of their own policies in ``core``. From the row follow its flag, environment variable, help and place
in the reference (``cli``), its keyword in scenario files, and its place in the head of the journal.
Values only: nothing here acts on them. ``problems`` returns everything that is wrong at once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.policy import EvictionMode, EvictionPolicy
from taint_eviction.core.tiers import Order
from taint_eviction.files.setting_forms import Form, Nodes, Rate, Span, Switch, Unset, Whole, Words


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """When a failed eviction is retried.

    ``first_seconds`` doubles with each failure up to ``max_seconds``; a longer Retry-After of the server counts, up to
    ``max_seconds``, too. Each wait is shortened by up to half at random, so that retries spread.
    """

    first_seconds: float = 0.2
    max_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """How the cluster is watched.

    ``resync_seconds``: how often everything watched is listed again, in case a watch lost something.
    ``linger_seconds``: how long the pods of a node stay watched after its last taint is removed, so that a flapping
    taint costs nothing. ``whole_cluster_from``: from this number of tainted nodes, one watch of all bound pods replaces
    those of single nodes, until fewer than 3/4 of that number are left. ``lists_at_once`` bounds concurrent consistent
    lists, ``starts_at_once`` the watches that start at a time. ``restart_first_seconds`` doubles up to
    ``restart_max_seconds`` while a watch keeps failing. ``stale_after_seconds``: a watch that is down or silent for
    this long makes the process not ready.
    """

    resync_seconds: float = 600.0
    linger_seconds: float = 60.0
    whole_cluster_from: int = 300
    lists_at_once: int = 8
    starts_at_once: int = 2
    restart_first_seconds: float = 0.2
    restart_max_seconds: float = 15.0
    stale_after_seconds: float = 180.0


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """Who acts when there are several replicas; the defaults are those of Kubernetes' own components.

    ``lease_duration_seconds``: how long standbys wait for a leader that no longer renews. ``renew_deadline_seconds``:
    how long the leader acts without having renewed. ``retry_period_seconds``: time between two attempts. ``enabled``
    False: this process runs alone and always acts.
    """

    enabled: bool = True
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0
    lease_name: str = "taint-eviction-controller"
    lease_namespace: str = "kube-system"

    def problems(self) -> list[str]:
        """Return everything that is wrong with these values, one sentence each."""
        found = [] if self.lease_name else ["the Lease must have a name"]
        if self.lease_duration_seconds != round(self.lease_duration_seconds) or self.lease_duration_seconds < 1:
            found.append(f"the lease duration must be whole seconds, at least 1, not {self.lease_duration_seconds:g}")
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            found.append(
                f"the lease duration ({self.lease_duration_seconds:g} s) must be longer than the renew deadline "
                f"({self.renew_deadline_seconds:g} s)"
            )
        if self.retry_period_seconds <= 0:
            found.append(f"the retry period must be more than 0 seconds, not {self.retry_period_seconds:g}")
        if self.renew_deadline_seconds <= 1.2 * self.retry_period_seconds:
            found.append(
                f"the renew deadline ({self.renew_deadline_seconds:g} s) must be longer than 1.2 times the retry "
                f"period ({self.retry_period_seconds:g} s)"
            )
        return found


def history_name(lease_name: str) -> str:
    """Return the name of the ConfigMap in which the leader by this Lease keeps the last outcomes."""
    return f"{lease_name}-history"


@dataclass(frozen=True, slots=True)
class ControlStateSettings:
    """Where pauses and the breaker's latch are kept: a ConfigMap called ``name`` in the Lease's namespace.

    It is read every ``poll_seconds``. ``enabled`` False: it is not read at all, and evictions cannot be paused.
    """

    enabled: bool = True
    name: str = "taint-eviction-controller"
    poll_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class AdoptionSettings:
    """Whether countdowns are adopted from a built-in controller that cannot be switched off.

    ``from_seconds``: shorter tolerances stay the built-in controller's. ``before_seconds``: how long before the
    built-in one's timer a countdown is taken over at most; it is a third of its tolerance, and 10 seconds at least.
    ``parallelism``: how many pods are changed at once: so 10,000 countdowns of 300 s are taken over in time, even if
    each change takes half a second.
    """

    enabled: bool = False
    from_seconds: float = 10.0
    before_seconds: float = 60.0
    parallelism: int = 20


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a controller.

    ``workers`` bounds the concurrent evictions, except those that wait long for an answer (at most 100 of them). At
    most half of them are retries.

    ``call_timeout_seconds`` bounds each call; ``runtime.evictor`` waits longer for those that end a pod,
    ``runtime.read_waits`` for reads that had no answer. ``node_read_seconds``: a live read of a node serves the call
    that it was made for, and those that start within this time of its sending. ``grace_seconds``: how long evictions in
    flight may take to end when the process stops. ``dry_run_events``: post events about pods in a dry run, too.
    ``event_reasons``: events about pods say why, which names the taint. ``metrics_by_namespace``: evictions are counted
    by namespace, too; off, since that is a series for each. ``keep_history``: the leader keeps the last outcomes in a
    ConfigMap, so that they outlive a rollout.
    """

    workers: int = 20
    call_timeout_seconds: float = 10.0
    node_read_seconds: float = 1.0
    grace_seconds: float = 20.0
    dry_run: bool = False
    dry_run_events: bool = False
    event_reasons: bool = True
    metrics_by_namespace: bool = False
    keep_history: bool = True
    decisions: DecisionPolicy = field(default_factory=DecisionPolicy)
    policy: EvictionPolicy = field(default_factory=EvictionPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    control_state: ControlStateSettings = field(default_factory=ControlStateSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    adoption: AdoptionSettings = field(default_factory=AdoptionSettings)

    @property
    def keeps_history(self) -> bool:
        """Return whether the last outcomes are kept: a dry run without a Lease leaves nothing behind."""
        return self.keep_history and (self.election.enabled or not self.dry_run)

    def problems(self) -> list[str]:
        """Return everything that is wrong with these values, one sentence each; empty if nothing is."""
        found = [problem for row in TABLE if (problem := row.problem(self)) is not None]
        if self.retry.max_seconds < self.retry.first_seconds:
            found.append("the longest retry must not be shorter than the first")
        if self.dry_run and self.election.enabled and self.election.lease_name == default_lease_name(dry_run=False):
            # It would lead, and no replica would evict.
            found.append(f"a dry run needs a Lease of its own, not {self.election.lease_name}")
        found += self.policy.problems() + self.breaker.problems()
        if self.adoption.enabled and not self.election.enabled and not self.dry_run:
            found.append("adoption needs leader election: only one process may adopt, and it must be seen to be there")
        if self.adoption.enabled and not self.control_state.enabled:
            found.append("adoption needs the state ConfigMap, in which hand-back ends it")
        return found + (self.election.problems() if self.election.enabled else [])


def default_lease_name(*, dry_run: bool) -> str:
    """Return the name of the Lease, and of the ConfigMap of the control state, unless a setting names it."""
    return ElectionSettings().lease_name + ("-dry-run" if dry_run else "")


# The table


@dataclass(frozen=True, slots=True)
class Bound:
    """The least value of a setting; ``excluded``: a value must be more than that. ``sentence`` says what is wrong with
    the value that is formatted into it. A value that is infinite, where the form has no word for that, is wrong, too.
    """

    least: float
    sentence: str
    excluded: bool = False


def _more_than_0(what: str) -> Bound:
    return Bound(0, f"{what} must be more than 0 seconds, not {{:g}}", excluded=True)


def _from_0(what: str) -> Bound:
    return Bound(0, f"{what} must be 0 seconds or more, not {{:g}}")


def _not_negative(what: str) -> Bound:
    return Bound(0, f"{what} must not be negative, as {{:g}} s is")


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table: how a setting is called and written, and how it is bounded; its default is the field's.

    ``flag``: the flag of ``run``, with its other names; "": there is none. ``field``: where ``Settings`` has it. If it
    sets several fields, the first has the default. ``help``: what it does, for people. ``keyword``: its key in the
    settings of a scenario, ``mapping.key`` in a mapping; "": there is none. ``bound`` None: where its type is defined,
    its values are bounded. ``default``: what the default means, where the value does not say it. ``old_flag``: a
    deprecated name.
    """

    flag: str
    field: str | tuple[str, ...]
    form: Form
    help: str = ""
    keyword: str = ""
    bound: Bound | None = None
    default: str = ""
    old_flag: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields that it sets."""
        return (self.field,) if isinstance(self.field, str) else self.field

    def of(self, settings: Settings) -> Any:
        """Return its value."""
        return attrgetter(self.fields[0])(settings)

    def problem(self, settings: Settings) -> str | None:
        """Return what is wrong with its value, None: nothing."""
        if self.bound is None or (value := self.of(settings)) is None:
            return None
        finite = value < math.inf or self.form == Span(forever=True)
        right = value > self.bound.least if self.bound.excluded else value >= self.bound.least
        return None if right and finite else self.bound.sentence.format(value)


def with_values(settings: Settings, values: Iterable[tuple[Setting, Any]]) -> Settings:
    """Return the settings with these values. A field of a part that is None (a threshold that is off) is left out."""
    changed: Settings = _with(settings, {field: value for row, value in values for field in row.fields})
    return changed


def _with(whole: Any, values: Mapping[str, Any]) -> Any:
    whole = replace(whole, **{name: value for name, value in values.items() if "." not in name})
    below: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, dot, rest = path.partition(".")
        if dot:
            below.setdefault(name, {})[rest] = value
    parts = {name: (getattr(whole, name), changes) for name, changes in below.items()}
    return replace(whole, **{name: _with(part, changes) for name, (part, changes) in parts.items() if part is not None})


_NO_LIMIT, _NOT_TOLERATED = "no limit", "not tolerated"

# Each group is in the order of the help.
PROCESS = (
    Setting(
        "--dry-run",
        "dry_run",
        Switch(),
        "Decide, log and count evictions, but change nothing in the cluster.",
        keyword="dryRun",
    ),
    Setting("--dry-run-events", "dry_run_events", Switch(), "Post events about pods in a dry run, too."),
    Setting(
        "--event-reasons/--no-event-reasons",
        "event_reasons",
        Switch(),
        "Whether events about pods, and the history that is kept, say why a pod is evicted or stays, which names the"
        " taint.",
    ),
    Setting(
        "--keep-history/--no-keep-history",
        "keep_history",
        Switch(),
        "Whether the leader keeps the last outcomes in a ConfigMap, with the Lease's name and -history, so that history"
        " and explain know them after a rollout.",
    ),
    Setting(
        "--metrics-by-namespace",
        "metrics_by_namespace",
        Switch(),
        "Count evictions by namespace, too: the first 100 namespaces by name, all others together.",
    ),
)

EVICTING = (
    Setting(
        "--workers",
        "workers",
        Whole(),
        "Maximum number of concurrent evictions, at most half of them retries. An eviction that has waited for the API"
        " server for 1s no longer counts.",
        keyword="workers",
        bound=Bound(2, "workers must be at least 2 (half of them are kept from retries), not {}"),
    ),
    Setting(
        "--call-timeout",
        "call_timeout_seconds",
        Span(),
        "Timeout of each API call. For a request that ends a pod it doubles with each one without an answer, up to 65s:"
        " the API server may have to wait for webhooks. For a read it does so up to 30s: a busy API server queues it.",
        keyword="callTimeout",
        bound=_more_than_0("call timeout"),
    ),
    Setting("", "node_read_seconds", Span(), keyword="nodeRead", bound=_from_0("the life of a node read")),
    Setting(
        "--grace-period",
        "grace_seconds",
        Span(),
        "How long evictions in flight may take to finish when the controller stops.",
        bound=_more_than_0("grace"),
    ),
    Setting(
        "--retry-first",
        "retry.first_seconds",
        Span(),
        "Delay before the first retry of a failed eviction. It doubles with each retry.",
        keyword="retryFirst",
        bound=_more_than_0("first retry"),
    ),
    Setting(
        "--retry-max",
        "retry.max_seconds",
        Span(),
        "Maximum delay between retries.",
        keyword="retryMost",
        bound=_more_than_0("longest retry"),
        old_flag="--retry-most",
    ),
    Setting(
        "--outage-gap",
        "decisions.outage_gap_seconds",
        Span(),
        "How long the taints not-ready and unreachable may be absent during one outage while countdowns continue"
        " (kube-controller-manager removes and sets them again when it restarts). With 0, countdowns always restart.",
        keyword="outageGap",
        bound=_from_0("the outage gap"),
    ),
)

# Which pods are evicted, and when.
DECISIONS = (
    Setting(
        "--keep-finished",
        "decisions.evict_finished",
        Unset(),
        "Do not delete Succeeded and Failed pods: their logs stay available.",
        keyword="evictFinished",
    ),
    Setting(
        "--default-not-ready-seconds",
        "decisions.default_not_ready_seconds",
        Whole(),
        "tolerationSeconds for node.kubernetes.io/not-ready on pods without a matching toleration.",
        keyword="defaultNotReadySeconds",
        bound=Bound(0, "the default seconds for not-ready must be a number from 0 on, not {:g}"),
        default=_NOT_TOLERATED,
    ),
    Setting(
        "--default-unreachable-seconds",
        "decisions.default_unreachable_seconds",
        Whole(),
        "tolerationSeconds for node.kubernetes.io/unreachable on pods without a matching toleration.",
        keyword="defaultUnreachableSeconds",
        bound=Bound(0, "the default seconds for unreachable must be a number from 0 on, not {:g}"),
        default=_NOT_TOLERATED,
    ),
    Setting(
        "--honour-holds",
        "decisions.max_hold_seconds",
        Span(forever=True),
        "How long after its deadline the annotation taint-eviction/hold may keep a pod.",
        keyword="honourHolds",
        bound=_from_0("the longest hold"),
        default="the annotation is ignored",
    ),
    Setting(
        "--graceful-shutdown",
        "decisions.wait_for_shutdown",
        Words({"evict": False, "wait": True}),
        "What the taint not-ready does while a kubelet shuts its node down gracefully and ends the pods itself: evict"
        " them, too, or wait for the kubelet as long as it says so.",
        keyword="gracefulShutdown",
    ),
)

# How they are evicted.
POLICY = (
    Setting(
        "--eviction-mode --mode",
        "policy.mode",
        Words({mode.value: mode for mode in EvictionMode}),
        "How pods are ended: delete ignores PodDisruptionBudgets, evict respects them indefinitely, evict-then-delete"
        " respects them until --evict-timeout.",
        keyword="evictionMode",
    ),
    Setting(
        "--evict-timeout",
        "policy.evict_timeout_seconds",
        Span(),
        "With evict-then-delete: how long budgets, or admission, may refuse a pod before it is deleted.",
        keyword="evictTimeout",
        bound=_not_negative("the evict timeout"),
    ),
    Setting(
        "--background-timeout",
        "policy.background_timeout_seconds",
        Span(),
        "How long refusals do not count while KubeVirt moves the virtual machine in a pod away, from the first one; 0:"
        " they count.",
        keyword="backgroundTimeout",
        bound=_not_negative("the background timeout"),
    ),
    Setting(
        "--budgets-on-lost-nodes",
        "policy.ignores_budgets_on_lost_nodes",
        Words({"respect": False, "ignore": True}),
        "Whether PodDisruptionBudgets hold a pod that leaves because its node is lost: with ignore, it is deleted once"
        " the node's condition Ready is Unknown, or has been False for 5 minutes.",
        keyword="budgetsOnLostNodes",
    ),
    Setting(
        "--order",
        "policy.order",
        Words({order.value: order for order in Order}),
        "Whether the pods of a node leave in order: with tiers, workloads, DaemonSets' pods, critical workloads and"
        " critical DaemonSets' pods (storage and device plugins) leave one after the other.",
        keyword="order",
    ),
    Setting(
        "--order-wait",
        "policy.order_wait_seconds",
        Span(),
        "With an order: how long a due pod waits for each earlier tier, and how soon pods must be due for that.",
        keyword="orderWait",
        bound=_more_than_0("the order wait"),
    ),
)


def _limit(scope: str, field: str, which: str) -> tuple[Setting, ...]:
    suffix, key = f"-{scope}" if scope else "", scope.title().replace("-", "")
    burst = f"Maximum number of {which} that start together before the rate applies."
    return (
        Setting(
            f"--evictions-per-second{suffix}",
            f"{field}.per_second",
            Rate(),
            f"Maximum rate of {which}.",
            keyword=f"evictionsPerSecond{key}",
            default=_NO_LIMIT,
        ),
        Setting(
            f"--evictions-burst{suffix}",
            f"{field}.burst",
            Whole(),
            burst,
            keyword=f"evictionsBurst{key}",
            default="the evictions of one second",
        ),
        Setting("", f"{field}.at_once", Whole(), keyword=f"evictionsAtOnce{key}"),
    )


LIMITS = (
    *_limit("", "policy.total", "all evictions"),
    *_limit("per-node", "policy.per_node", "evictions from each node"),
    *_limit("per-namespace", "policy.per_namespace", "evictions in each namespace"),
)

BREAKER = (
    Setting(
        "--breaker", "breaker.enabled", Switch(), "Suspend all evictions when too many nodes are newly tainted or lost."
    ),
    Setting(
        "--breaker-nodes",
        "breaker.nodes",
        Nodes(),
        "Open the breaker when more nodes than this are newly tainted: a share of all nodes, a number, or both"
        " (25%,40).",
        keyword="breaker.nodes",
    ),
    Setting(
        "--breaker-min-nodes",
        ("breaker.nodes.min_nodes", "breaker.lifecycle_nodes.min_nodes", "breaker.zone.min_nodes"),
        Whole(),
        "Minimum number of nodes for a share to open the breaker.",
        keyword="breaker.leastNodes",
        old_flag="--breaker-least-nodes",
    ),
    Setting(
        "--breaker-lifecycle-nodes",
        "breaker.lifecycle_nodes",
        Nodes(unlimited="exempt"),
        "Open the breaker when more nodes than this stopped being ready within --breaker-window of each other and"
        " still are not when a pod is about to be evicted because of that. exempt: any number is allowed.",
        keyword="breaker.lifecycleNodes",
    ),
    Setting(
        "--breaker-zone",
        "breaker.zone",
        Nodes(unlimited="off"),
        "The same for the nodes of each zone, so that a zone that is lost as a whole is held. off: its pods are"
        " evicted, unless --breaker-lifecycle-nodes is exceeded.",
        keyword="breaker.zone",
    ),
    Setting(
        "--breaker-without-control-plane",
        "breaker.without_control_plane",
        Switch(),
        "Leave control-plane nodes out of both.",
        keyword="breaker.withoutControlPlane",
    ),
    Setting(
        "--breaker-window",
        "breaker.window_seconds",
        Span(),
        "How long a taint counts as new.",
        keyword="breaker.window",
        bound=_more_than_0("the breaker's window"),
    ),
    Setting(
        "--breaker-due-pods",
        "breaker.max_due",
        Whole(),
        "Open the breaker also when more pods than this are due at once.",
        keyword="breaker.duePods",
        bound=Bound(0, "the breaker's number of due pods must not be negative, as {} is"),
        default=_NO_LIMIT,
    ),
    Setting(
        "--breaker-settle",
        "breaker.settle_seconds",
        Span(),
        "Delay of each eviction, so that the breaker sees a surge of taints before its first pods are evicted.",
        keyword="breaker.settle",
        bound=_not_negative("the breaker's settling"),
    ),
    Setting(
        "--breaker-list-wait",
        "breaker.list_wait_seconds",
        Span(),
        "Maximum time for which evictions wait until the pods of newly tainted nodes have been listed.",
        keyword="breaker.listWait",
        bound=_not_negative("the breaker's wait for lists"),
    ),
    Setting(
        "--breaker-closes",
        "breaker.closes_by_itself",
        Words({"manual": False, "by-itself": True}),
        "How the breaker closes: by the command taint-eviction breaker, or by itself once its cause is gone; what a"
        " person has opened, only by the command.",
    ),
    Setting("", "breaker.closes_by_itself", Switch(), keyword="breaker.closesByItself"),
)

WATCHING = (
    Setting(
        "--resync-interval",
        "watch.resync_seconds",
        Span(),
        "How often all watched objects are listed again.",
        keyword="resyncInterval",
        bound=_more_than_0("resync interval"),
    ),
    Setting(
        "--linger",
        "watch.linger_seconds",
        Span(),
        "How long the pods of a node are still watched after its last taint is removed.",
        keyword="linger",
        bound=_from_0("the lingering of a node's watch"),
    ),
    Setting(
        "--whole-cluster-from",
        "watch.whole_cluster_from",
        Whole(),
        "Number of tainted nodes from which one watch of all bound pods replaces the watches of single nodes.",
        keyword="wholeClusterFrom",
        bound=Bound(1, "the whole-cluster threshold must be at least 1 node"),
    ),
)

ELECTION = (
    Setting(
        "--leader-elect-lease-duration",
        "election.lease_duration_seconds",
        Span(),
        "How long standbys wait for a leader that no longer renews the Lease.",
    ),
    Setting(
        "--leader-elect-renew-deadline",
        "election.renew_deadline_seconds",
        Span(),
        "How long the leader acts without having renewed the Lease.",
    ),
    Setting(
        "--leader-elect-retry-period",
        "election.retry_period_seconds",
        Span(),
        "Time between attempts to acquire or renew the Lease.",
    ),
)

ADOPTION = (
    Setting(
        "--adopt",
        "adoption.enabled",
        Switch(),
        "Take over countdowns from a built-in controller that cannot be switched off. Needs the component adopt.",
        keyword="adopt",
    ),
    Setting(
        "--adopt-from",
        "adoption.from_seconds",
        Span(),
        "Leave countdowns of shorter tolerances to the built-in controller.",
        keyword="adoptFrom",
        bound=Bound(0, "adoption must begin at 0 seconds or more, not {:g}"),
    ),
    Setting(
        "--adopt-before",
        "adoption.before_seconds",
        Span(),
        "Take a countdown over at most this long before the built-in controller's timer ends; a third of the pod's"
        " tolerance if that is less, and 10 s at least.",
        keyword="adoptBefore",
        bound=Bound(0, "adoption must come 0 seconds or more before a timer, not {:g}"),
    ),
)

TABLE = (*PROCESS, *EVICTING, *DECISIONS, *POLICY, *LIMITS, *BREAKER, *WATCHING, *ELECTION, *ADOPTION)

# What a replay of a journal needs to decide as the controller did.
RECORDED = tuple(row for row in (*EVICTING, *DECISIONS, *POLICY, *LIMITS) if row.keyword)
