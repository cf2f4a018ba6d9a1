"""The oracle of an exploration: it judges every call at the simulated API server, and the end state.

It knows the truth (``truth``) and, from the traces of calls, what each process has seen. It never asks the controller.

A request may outlive its sender, so a call is judged by when it was sent: by then the pod was due, by states of its
node and of itself that the process can have seen; the read was fresh; the process does not delete a pod again that it
knows to be deleted or terminating; it sends only within its own leadership, and while no other process leads. What the
call changes is judged when it arrives: the UID is right, and nothing else changes. ``handling`` and ``suspending``
judge how and whether the pod may be evicted now.
Liveness, after faults have stopped: every due pod is gone unless something holds it back, no other pod hangs in
Terminating, and no pod that stays has the condition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.exploring.adopting import CHANGES, AdoptionJudge, DisturbedSpan, is_built_in
from tests.simulation.exploring.excuses import Disturbances
from tests.simulation.exploring.handling import ENDS, HandlingJudge
from tests.simulation.exploring.ordering import OrderJudge
from tests.simulation.exploring.seen import POD_ANSWERS, TICK, Basis, BrokenRule, Read, Seen, shown
from tests.simulation.exploring.suspending import SuspensionJudge
from tests.simulation.exploring.truth import NEVER, NodeState, PodState, Truth, due_at
from tests.simulation.exploring.trying import TryingJudge

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.policy import PolicyRule
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.recorder import RecordedChange
from taint_eviction_lab.simulation.virtual_clock import server_time

_POD_WRITES = (CallKind.MARK, CallKind.UNMARK, *ENDS)
_LEADERS_WRITES = (*_POD_WRITES, *CHANGES, CallKind.WRITE_CONTROL_STATE)
# After faults have stopped, this time and one resync suffice for watches, an election and retries.
_RECOVERY_SECONDS = 25.0
# The controller repeats a read of a node if the call is not ready to be sent within this time.
_FRESH_SECONDS = 3.0
# How long a process waits for its watch; a read whose answer is older than the second value was for another attempt.
_IN_VAIN_SECONDS, _LONG_AGO_SECONDS = 5.0, 12.0
# How late an eviction may be if nothing delays it.
_PUNCTUAL_SECONDS = 1.2
# How long a process needs at its start, until it watches all nodes.
_BEGINNING_SECONDS = 3.0
# A dry run may count how late an eviction is by states up to this old.
_REPORTED_BY_SECONDS = 40.0
# If a budget still refuses at the end, the process has asked it again within this time before the end.
_BLOCKED_SECONDS = 40.0


class ExplorationOracle:
    """Collects ``violations``.

    ``control_state`` returns the content of the ConfigMap. ``disturbances``: the faults; None: lateness is not judged.
    ``elected`` False: any process may act. ``disturbed``: when adoption is; see ``adopting``. ``restarted_at``:
    when a process was last killed; ``peace_at``: when faults stopped.
    """

    def __init__(
        self,
        settings: Settings,
        control_state: Callable[[], ControlState | None],
        disturbances: Disturbances | None = None,
        elected: bool = True,
        disturbed: Sequence[DisturbedSpan] | None = None,
    ) -> None:
        self.truth = Truth(settings)
        self.handling = HandlingJudge(settings, self.truth, self._break)
        self.suspension = SuspensionJudge(
            settings,
            self.truth,
            self.handling,
            control_state,
            self._leads_since,
            self._break,
            disturbances=disturbances,
        )
        self.trying = TryingJudge(self.truth, self._break)
        self.order = OrderJudge(settings, self.truth, disturbances, self._break)
        self.adoption = AdoptionJudge(self.truth, control_state, self._break, self._leaders, disturbed)
        self.violations: list[BrokenRule] = []
        self.deletes_arrived = 0
        # Pods that a dry run has reported as evicted, and its processes whose breaker is open.
        self.reported: set[str] = set()
        self._open_breakers: set[str] = set()
        self.restarted_at = -NEVER
        self.peace_at = NEVER
        self._settings = settings
        self._elected = elected
        self._disturbances = disturbances
        self._watched = disturbances is not None and disturbances.watched
        self._recovery = 1.1 * settings.watch.resync_seconds + _RECOVERY_SECONDS
        self._seen: dict[str, Seen] = {}
        self._dead: set[str] = set()
        self._marked_by_the_dead: set[str] = set()
        self._writing: Trace | None = None

    def killed(self, process: str, at: float) -> None:
        """Note that a process was killed."""
        self._dead.add(process)
        self.restarted_at = at

    def change_rules(self, rules: tuple[PolicyRule, ...], at: float) -> None:
        """Note that the policy has other rules."""
        self.truth.change_rules(rules, at)
        self.handling.change_rules(rules, at)

    def notice(self, change: RecordedChange) -> None:
        """Note a write. A write of this controller must hit the pod with the right UID, and change only what the call
        is for.
        """
        meant = self._writing
        if meant is not None and (not change.is_pod or change.body["metadata"]["uid"] != meant.uid):
            self._break("another UID", meant, f"{change.body['metadata']['uid']} was written for {meant.uid}")
        elif meant is not None and change.event_type == "MODIFIED":
            before = self.truth.bodies.get(meant.uid)
            if before is not None and meant.call in CHANGES:
                self.adoption.check_change(meant, before, change.body, self._read_for(meant))
            elif before is not None and _untouchable(before) != _untouchable(change.body):
                self._break("wrote something else", meant, "more than its condition or deletion was written")
        self.truth.notice(change)
        if change.is_pod and change.event_type != "DELETED":
            self.adoption.notice(change.body)

    def _read_for(self, trace: Trace) -> NodeState | None:
        """Return the pod's node as the process had read it when it sent this call.

        Where the answer was ahead of the watch and had a taint without a date that the watch had brought before, others
        are for the watch to bring: "wait until the watch has come as far". Such a taint joins the countdown later, and
        "is taken over in its turn".
        """
        seen = self._seen[trace.process]
        read, watched = seen.bases[trace.number].node, seen.watched.get(self.truth.pods[trace.uid][-1].node or "")
        if read is None or not isinstance(read.state, NodeState):
            return None
        if watched is None or not any(taint in watched.taints and not taint[2] for taint in read.state.taints):
            return read.state
        known = {taint: at for taint, at in read.state.taints.items() if taint in watched.taints}
        return replace(read.state, taints=known)

    def trace(self, trace: Trace) -> None:
        """Judge one phase of a call."""
        if is_built_in(trace.process):
            self.adoption.trace_built_in(trace)
            return
        seen = self._seen.setdefault(trace.process, Seen(trace.at))
        match trace.phase:
            case Phase.SENT:
                self._note_sent(trace, seen)
            case Phase.ARRIVED:
                if trace.call in ENDS:
                    self._note_end_of_pod(trace)
                self._writing = trace if trace.call in (*_POD_WRITES, *CHANGES) else None
            case Phase.CARRIED_OUT:
                seen.carried_out[trace.number] = trace.at
                self._writing = None
                if trace.call is CallKind.MARK and trace.process in self._dead:
                    self._marked_by_the_dead.add(trace.uid)
            case Phase.REFUSED:
                self._writing = None
            case Phase.ANSWERED:
                self._hear(trace, seen)
        self._take_in(trace, seen)
        self.handling.trace(trace)
        self.suspension.trace(trace)
        self.trying.trace(trace)
        self.adoption.trace(trace)

    def _leads_since(self, process: str, at: float) -> float:
        """Return since when a process may act, ``NEVER`` if it may not."""
        seen = self._seen[process]
        if not self._elected:
            return -NEVER
        return seen.leads_since if at < seen.fenced_at else NEVER

    def _leaders(self, at: float) -> Mapping[str, float]:
        """Return the processes that may act, each with since when."""
        living = self._seen.keys() - self._dead
        return {name: since for name in living if (since := self._leads_since(name, at)) < NEVER}

    def _note_sent(self, trace: Trace, seen: Seen) -> None:
        seen.sent[trace.number] = trace
        if trace.call is CallKind.WRITE_LEASE and not trace.subject:
            seen.fenced_at = -NEVER  # It releases the Lease, since all its work has ended.
        if trace.call in _LEADERS_WRITES:
            self._check_sent(trace, seen)

    # What processes see

    def _take_in(self, trace: Trace, seen: Seen) -> None:
        for body in shown(trace):
            metadata = body["metadata"]
            state = self.truth.versions.get(metadata["resourceVersion"])
            if isinstance(state, NodeState):
                seen.found.setdefault(metadata["uid"], state)
                seen.note_node(metadata["name"], state)
                if trace.phase is Phase.SAW:
                    seen.watched[metadata["name"]], seen.heard_at = state, trace.at
                elif trace.call is CallKind.READ_NODE:
                    seen.asked_at[metadata["name"]] = seen.sent[trace.number].at
            if metadata.get("deletionTimestamp"):
                seen.terminating.add(metadata["uid"])

    def _hear(self, trace: Trace, seen: Seen) -> None:
        version = trace.body["metadata"]["resourceVersion"] if isinstance(trace.body, dict) else ""
        read = Read(seen.carried_out.get(trace.number, trace.at), trace.at, self.truth.versions.get(version))
        if trace.call is CallKind.READ_NODE:
            seen.nodes[trace.subject] = read
            seen.reads.setdefault(trace.subject, []).append((seen.sent[trace.number].at, trace.at))
        elif trace.call in POD_ANSWERS and trace.body is not None:
            seen.pods[trace.uid] = read
        elif trace.call in ENDS and trace.body is True:
            seen.deleted.add(trace.uid)
        elif trace.call is CallKind.WRITE_LEASE and trace.body.holder == trace.process:
            if trace.at >= seen.fenced_at:
                seen.leads_since = trace.at
                self.handling.begin_to_lead(trace.process)
                self.adoption.begin_to_lead(trace.at)
                if seen.led and self._disturbances is not None and self._disturbances.steady:
                    self._break("does not lead steadily", trace, "it led, and nothing took the Lease from it")
            seen.led = True
            seen.fenced_at = seen.sent[trace.number].at + self._settings.election.renew_deadline_seconds
        elif trace.call is CallKind.READ_LEASE and _held_by_another(trace.body, trace.process):
            seen.fenced_at = -NEVER

    # Checks of each call

    def _check_sent(self, trace: Trace, seen: Seen) -> None:
        if self._elected and trace.at >= seen.fenced_at:
            since = "never led" if seen.fenced_at == -NEVER else f"fenced since {seen.fenced_at:.3f}"
            self._break("sent without leading", trace, f"{trace.process} {since}")
        for name, other in self._seen.items():
            if name != trace.process and name not in self._dead and other.fenced_at > trace.at:
                self._break("two leaders", trace, f"{trace.process} sends, {name} may until {other.fenced_at:.3f}")
        if trace.call not in (*ENDS, *CHANGES):
            return
        states = self.truth.pods.get(trace.uid, [])
        node = seen.nodes.get(states[-1].node or "") if states else None
        seen.bases[trace.number] = Basis(trace.at, node, seen.pods.get(trace.uid, Read(trace.at, trace.at)))
        if trace.call in CHANGES:
            return
        if trace.uid in seen.deleted:
            self._break("deleted again", trace, "its deletion had been answered with success")
        if trace.uid in seen.terminating:
            self._break("deleted again", trace, "it had been seen terminating")
        if states and trace.uid not in self.truth.gone:
            self._check_end_of_pod(trace, seen)

    def _note_end_of_pod(self, trace: Trace) -> None:
        self.deletes_arrived += 1
        if trace.uid not in self.truth.pods:
            self._break("another UID", trace, f"there has never been a pod {trace.uid!r}")

    def _check_end_of_pod(self, trace: Trace, seen: Seen) -> None:
        """Check that a call is punctual, that its node was just read, and that the pod is due."""
        node, basis = self.truth.pods[trace.uid][-1].node or "", seen.bases[trace.number]
        self._check_punctual(trace, node)
        self.order.check_sent(trace)
        if not self._is_fresh(seen.reads.get(node, []), basis):
            self._break("no fresh read", trace, f"no read of node {node} serves a call sent at {basis.sent_at:.3f}")
        read = basis.node or Read(trace.at, trace.at)
        # The version of a read tells what it showed: a write at the same instant may have come before or after it.
        nodes = [
            state for state in (read.state, *self.truth.node_states(node, read.so_at)) if isinstance(state, NodeState)
        ]
        nodes += self._as_it_may_seem(seen, node, read)
        # A pod that is already Terminating was due, or somebody else deleted it: another rule judges a second DELETE.
        states = (basis.pod.state, *self.truth.pod_states(trace.uid, basis.pod.so_at))
        pods = [state for state in states if isinstance(state, PodState) and not state.terminating]
        earliest = min((due_at(state, pod) for state in nodes for pod in pods), default=NEVER if pods else 0.0)
        if earliest > trace.at + TICK:
            when = "never" if earliest == NEVER else f"at {earliest:.3f}"
            since = f"its node since {read.so_at:.3f} and itself since {basis.pod.so_at:.3f}"
            self._break("not due", trace, f"by {since} due {when}")

    def _as_it_may_seem(self, seen: Seen, node: str, read: Read) -> list[NodeState]:
        """Return how a node may seem to a process that cannot know better.

        A process that found a taint believes its date, though the clock behind it is wrong. One that knew the node
        without the taint believes its date as far back as it last saw the node so: by the watch of nodes, which may lag
        while a list or a read shows the taint, or by a live read. One that has waited in vain for its watch to reach a
        read's version cannot know whether a taint without a date was removed and set again.
        """
        watched, state = seen.watched.get(node), read.state
        if isinstance(state, NodeState) and (found := seen.found.get(state.uid)) is not None:
            dated = {
                taint: min(at, max(parsed - server_time(0.0), seen.absent_at.get((state.uid, taint), -NEVER)))
                for taint, at in state.taints.items()
                if (taint in found.taints or (state.uid, taint) in seen.absent_at)
                and (parsed := parse_rfc3339(taint[2])) is not None
            }
            state = replace(state, taints=state.taints | dated)
            if state != read.state:
                return [state]
        heard = (heard_at for _, heard_at in seen.reads.get(node, ()))
        waited = any(read.so_at - _LONG_AGO_SECONDS < heard_at < read.so_at - _IN_VAIN_SECONDS for heard_at in heard)
        if not waited or watched is None or not isinstance(state, NodeState) or watched.uid != state.uid:
            return []
        began = {taint: watched.taints.get(taint, at) for taint, at in state.taints.items() if not taint[2]}
        return [replace(state, taints=state.taints | began)]

    def _is_fresh(self, reads: list[tuple[float, float]], basis: Basis) -> bool:
        """Return whether the latest read was sent within 3 s before the call, or was a repetition of a slow read."""
        heard = [read for read in reads if read[1] <= basis.sent_at]
        since = basis.pod.heard_at - self._settings.node_read_seconds - TICK
        first_heard_at = min((heard_at for sent_at, heard_at in heard if sent_at >= since), default=NEVER)
        latest = max((sent_at for sent_at, _ in heard), default=-NEVER)
        return basis.sent_at - latest <= _FRESH_SECONDS + TICK or latest >= first_heard_at

    def _check_punctual(self, trace: Trace, node: str) -> None:
        """Check that an eviction is punctual: a tolerance goes on through restarts, and ends no later than the objects
        say.

        A process that watched all the time knows more than the objects, which show only the last write of the taint's
        manager.
        """
        there, pod = self.truth.node_now(node), self.truth.pods[trace.uid][-1]
        if there is None or not there.taints or self._disturbances is None:
            return
        watched_from = self._seen[trace.process].born_at + _BEGINNING_SECONDS
        watched = self._watched and watched_from < min(there.taints.values())
        latest = due_at(there, pod, at_the_latest=not watched)
        if latest == NEVER:
            return
        latest = max(latest, pod.edited_at, there.resumed_at, -NEVER if watched else there.written_at)
        if not watched and watched_from >= self._disturbances.behind_from:
            # It goes by the lowest clock, and dates may be ahead of that: what it finds begins when it finds it.
            latest += max(0.0, watched_from - min(there.taints.values()))
        over_at, late_seconds = self._disturbances.excuse(trace.at, self.truth.names[trace.uid], node)
        # The wait goes on for as long as the pod is blocked: a new leader's control state has to be read first.
        longest_wait = self.order.longest_wait(trace.uid, latest, watched_from)
        latest += longest_wait
        allowed = max(latest + late_seconds, min(over_at + longest_wait, self.peace_at + self._recovery))
        if trace.at > allowed + _PUNCTUAL_SECONDS:
            self._break("late", trace, f"it was due at {latest:.3f} at the latest")

    # Reports of a dry run, which makes no calls that end pods

    def check_reported(self, process: str, uid: str, late_seconds: float, at: float) -> None:
        """Check that a dry run reports an eviction when it is due, and not as later than it is."""
        self.reported.add(uid)
        node = self.truth.pods[uid][-1].node or ""
        trace = Trace(process, 0, Phase.SENT, None, self.truth.names[uid], uid, at)
        self._check_punctual(trace, node)
        since = at - _REPORTED_BY_SECONDS
        pods = [pod for pod in self.truth.pod_states(uid, since) if not pod.terminating]
        due = min((due_at(state, pod) for state in self.truth.node_states(node, since) for pod in pods), default=at)
        if late_seconds > at - due + _PUNCTUAL_SECONDS:
            self._break("lateness wrong", trace, f"{late_seconds:.3f} s, due at {due:.3f} at the earliest")

    def open_breaker(self, process: str, is_open: bool) -> None:
        """Note that the breaker of a dry run's process opens or closes."""
        self._open_breakers = self._open_breakers - {process} | ({process} if is_open else set())

    def reported_again(self, uid: str, at: float) -> None:
        """Note that a process has reported an eviction again."""
        text = f"{self.truth.names[uid]} ({uid}) was reported for this deadline before"
        self.violations.append(BrokenRule("reported again", at, text))

    def _break(self, rule: str, trace: Trace, text: str) -> None:
        call = "" if trace.call is None else trace.call.value
        self.violations.append(BrokenRule(rule, trace.at, f"{call} {trace.subject} ({trace.uid}): {text}"))

    # The end state

    def check_end(self, now: float) -> None:
        """Check the end state, long after faults have stopped."""
        for uid, pod in self.truth.living():
            node = self.truth.node_now(pod.node)
            at = due_at(node, pod)
            if pod.terminating:
                if node is not None:
                    self._end("still terminating", now, uid, f"on {pod.node}")
            elif at + self._unhurried_seconds() + self.order.longest_wait(uid, at, self.restarted_at) <= now:
                blocked = self._is_blocked(uid, now)
                if self._settings.dry_run:
                    blocked = uid in self.reported or bool(self._open_breakers - self._dead)
                if not blocked and not self.suspension.excuse(uid, now - self._unhurried_seconds()):
                    self._end("not evicted", now, uid, f"on {pod.node}, due since {at:.3f}")
            elif (
                at > now
                and pod.marked
                and self.truth.marked_at[uid] > self.restarted_at
                and uid not in self._marked_by_the_dead | self.adoption.marked
            ):
                self._end("condition left", now, uid, f"on {pod.node}, marked at {self.truth.marked_at[uid]:.3f}")

        self.violations += self.adoption.check_end(now)

    def _is_blocked(self, uid: str, now: float) -> bool:
        """Return whether a budget keeps a pod at the end."""
        refused = self.handling.blocked_at.get(uid, -NEVER) > now - _BLOCKED_SECONDS
        due_by = now - self._unhurried_seconds()
        return refused and self.handling.may_be_kept(uid, due_by, self.suspension.changed_at)

    def _unhurried_seconds(self) -> float:
        """Return how long a due eviction may wait for the breaker to settle, for lists, and for limits."""
        policy, breaker = self._settings.policy, self._settings.breaker
        limits = [policy.total, policy.per_node, policy.per_namespace, *(rule.limit for rule in policy.rules)]
        rates = [limit.per_second for limit in limits if limit.per_second is not None]
        settle_seconds = max(breaker.settle_seconds, breaker.list_wait_seconds) if breaker.enabled else 0.0
        return settle_seconds + (len(self.truth.living()) / min(rates) if rates else 0.0)

    def _end(self, rule: str, now: float, uid: str, text: str) -> None:
        self.violations.append(BrokenRule(rule, now, f"{self.truth.names[uid]} ({uid}) {text}"))


def _held_by_another(record: LeaseRecord | None, process: str) -> bool:
    return record is not None and record.holder not in ("", process)


def _untouchable(body: dict[str, Any]) -> tuple[Any, ...]:
    """Return the part of a pod that no call of this controller may change."""
    kept = ("resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
    metadata = {name: value for name, value in body["metadata"].items() if name not in kept}
    status = {name: value for name, value in (body.get("status") or {}).items() if name != "conditions"}
    conditions = (body.get("status") or {}).get("conditions") or []
    others = [one for one in conditions if not isinstance(one, dict) or one.get("type") != "DisruptionTarget"]
    return metadata, body.get("spec"), status, others
