"""All settings, with the unit and the reason of each default; ``cli`` reads them from flags and environment variables.

Values only: nothing here acts on them. ``problems`` returns everything that is wrong at once.
"""

import math
from dataclasses import dataclass, field

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.policy import EvictionPolicy


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

    def problems(self) -> list[str]:
        """Return everything that is wrong with these values, one sentence each."""
        found = []
        if self.from_seconds < 0:
            found.append(f"adoption must begin at 0 seconds or more, not {self.from_seconds:g}")
        if self.before_seconds < 0:
            found.append(f"adoption must come 0 seconds or more before a timer, not {self.before_seconds:g}")
        return found


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a controller.

    ``workers`` bounds the concurrent evictions, except those that wait long for an answer (at most 100 of them). At
    most half of them are retries.

    ``call_timeout_seconds`` bounds each call. ``node_read_seconds``: a live read of a node serves the call that it was
    made for, and those that start within this time of its sending. ``grace_seconds``: how long evictions in flight may
    take to end when the process stops. ``default_not_ready_seconds`` and ``default_unreachable_seconds``: how long pods
    without a matching toleration tolerate these taints, None: not at all. ``max_hold_seconds``: how long after its
    deadline the annotation ``taint-eviction/hold`` may keep a pod; 0: the annotation is ignored, infinite:
    indefinitely. ``wait_for_shutdown``: while a kubelet shuts its node down gracefully, the taint not-ready evicts
    no pod from it; False: it does, as upstream. ``outage_gap_seconds``: how long the taints not-ready and unreachable
    may be absent in one outage while their countdowns continue: 30 minutes cover the time that a restarted node
    lifecycle controller needs for many nodes; 0: the countdowns always restart. ``dry_run_events``: post events about
    pods in a dry run, too. ``event_reasons``: events about pods say why, which names the taint.
    ``metrics_by_namespace``: evictions are counted by namespace, too; off, since that is a series for each.
    """

    workers: int = 20
    call_timeout_seconds: float = 10.0
    node_read_seconds: float = 1.0
    grace_seconds: float = 20.0
    evict_finished: bool = True
    dry_run: bool = False
    dry_run_events: bool = False
    event_reasons: bool = True
    metrics_by_namespace: bool = False
    default_not_ready_seconds: int | None = None
    default_unreachable_seconds: int | None = None
    max_hold_seconds: float = 0.0
    wait_for_shutdown: bool = False
    outage_gap_seconds: float = 1800.0
    policy: EvictionPolicy = field(default_factory=EvictionPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    control_state: ControlStateSettings = field(default_factory=ControlStateSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    adoption: AdoptionSettings = field(default_factory=AdoptionSettings)

    def problems(self) -> list[str]:
        """Return everything that is wrong with these values, one sentence each; empty if nothing is."""
        spans = {
            "call timeout": self.call_timeout_seconds,
            "grace": self.grace_seconds,
            "first retry": self.retry.first_seconds,
            "longest retry": self.retry.max_seconds,
            "resync interval": self.watch.resync_seconds,
        }
        found = [f"{name} must be more than 0 seconds, not {value:g}" for name, value in spans.items() if value <= 0]
        if self.workers < 2:
            found.append(f"workers must be at least 2 (half of them are kept from retries), not {self.workers}")
        if self.retry.max_seconds < self.retry.first_seconds:
            found.append("the longest retry must not be shorter than the first")
        if self.watch.whole_cluster_from < 1:
            found.append("the whole-cluster threshold must be at least 1 node")
        if self.dry_run and self.election.enabled and self.election.lease_name == ElectionSettings().lease_name:
            # It would lead, and no replica would evict.
            found.append(f"a dry run needs a Lease of its own, not {self.election.lease_name}")
        for key, seconds in (
            ("not-ready", self.default_not_ready_seconds),
            ("unreachable", self.default_unreachable_seconds),
        ):
            if seconds is not None and not 0 <= seconds < math.inf:
                found.append(f"the default seconds for {key} must be a number from 0 on, not {seconds:g}")
        if self.max_hold_seconds < 0:
            found.append(f"the longest hold must be 0 seconds or more, not {self.max_hold_seconds:g}")
        if self.outage_gap_seconds < 0:
            found.append(f"the outage gap must be 0 seconds or more, not {self.outage_gap_seconds:g}")
        found += self.policy.problems() + self.breaker.problems() + self._adoption_problems()
        return found + (self.election.problems() if self.election.enabled else [])

    def _adoption_problems(self) -> list[str]:
        found = self.adoption.problems()
        if self.adoption.enabled and not self.election.enabled and not self.dry_run:
            found.append("adoption needs leader election: whoever adopts must be the only one, and be seen to be there")
        if self.adoption.enabled and not self.control_state.enabled:
            found.append("adoption needs the state ConfigMap, in which hand-back ends it")
        return found
