"""What is to be evicted when, and what may go now: deadlines, settling, lanes, retries.

A pod waits in one place at a time: for its deadline, then for ``settle_seconds`` in which a wave may show itself, then
in its lane for its turn and for limits and pauses; one that has failed before waits for its next try and then in a
lane behind all first tries. What is held back anyway need not settle.

Passive, and decides nothing: ``controller`` says what is wanted, ``lanes`` who is first.
"""

from collections.abc import Callable, Iterator

from taint_eviction.core.lanes import DueLanes, LaneKey
from taint_eviction.core.limits import Limits, Token, TokenBucket
from taint_eviction.core.objects import PodRef
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.timed_queue import TimedWorkerQueue


class Agenda:
    """All that is wanted; ``is_held`` tells whether a lane is held back."""

    def __init__(self, policy: EvictionPolicy, settle_seconds: float, is_held: Callable[[LaneKey], bool]) -> None:
        self._limits = Limits(policy)
        self._settle_seconds = settle_seconds
        self._is_held = is_held
        self._first_tries, self._settling, self._retries = (TimedWorkerQueue() for _ in range(3))
        self._due_first, self._due_again = (DueLanes(is_held, self._buckets) for _ in range(2))
        # By UID: where it belongs and when, as it was scheduled; its deadline, and since when that has been known.
        self._plans: dict[str, tuple[LaneKey, float, bool]] = {}
        self._known_since: dict[str, tuple[float, float]] = {}
        # By UID: what those that were let through have of their limits; None: of those of a policy that is no more.
        self._begun: dict[str, tuple[Token, ...] | None] = {}

    def __iter__(self) -> Iterator[str]:
        """Go through the UIDs of all that wait, once for each place in which they do."""
        for queue in (self._first_tries, self._settling, self._retries):
            yield from (entry.ref.uid for entry in queue)
        yield from self._due_first
        yield from self._due_again

    def __len__(self) -> int:
        """Count what is remembered of any pod; 0 once all is let go of."""
        return len(self._plans) + len(self._known_since) + len(self._begun) + sum(1 for _ in self)

    def _buckets(self, key: LaneKey, now: float) -> tuple[TokenBucket, ...]:
        return self._limits.buckets(*key, now)

    # What is wanted

    def schedule(self, ref: PodRef, key: LaneKey, fire_at: float, now: float, retry: bool = False) -> None:
        """Want a pod's eviction at an instant; again for the same changes nothing."""
        plan = (key, fire_at, retry)
        if self._plans.get(ref.uid) == plan:
            return
        self.cancel(ref)
        self._plans[ref.uid] = plan
        if self._settle_seconds and not retry:
            # What was due before it could be known has not been looked at yet either.
            if self._known_since.get(ref.uid, (None, now))[0] != fire_at:
                self._known_since[ref.uid] = fire_at, now
            fire_at = max(self._known_since[ref.uid])
        (self._retries if retry else self._first_tries).schedule(ref, fire_at)

    def cancel(self, ref: PodRef) -> None:
        """Take a pod out of whatever it waits in: it is being worked on, or is to be scheduled anew."""
        if self._plans.pop(ref.uid, None) is None:
            return
        for queue in (self._first_tries, self._settling, self._retries):
            queue.cancel(ref)
        self._due_first.discard(ref)
        self._due_again.discard(ref)

    def forget(self, ref: PodRef) -> None:
        """Want a pod's eviction no more."""
        self.cancel(ref)
        self._known_since.pop(ref.uid, None)

    # What may go

    def advance(self, now: float) -> None:
        """Let what is due by now move on."""
        while (entry := self._first_tries.pop_due(now)) is not None:
            if self._settle_seconds and not self._is_held(self._plans[entry.ref.uid][0]):
                self._settling.schedule(entry.ref, entry.fire_at + self._settle_seconds)
            else:
                self._wait_in_lane(self._due_first, entry.ref)
        while (entry := self._settling.pop_due(now)) is not None:
            self._wait_in_lane(self._due_first, entry.ref)
        while (entry := self._retries.pop_due(now)) is not None:
            self._wait_in_lane(self._due_again, entry.ref)

    def _wait_in_lane(self, lanes: DueLanes, ref: PodRef) -> None:
        key, fire_at, _ = self._plans[ref.uid]
        lanes.add(ref, key, fire_at)

    def take(self, now: float, retry: bool) -> PodRef | None:
        """Begin the eviction whose turn it is, of first tries or of retries; None if none may go."""
        taken = (self._due_again if retry else self._due_first).take(now)
        if taken is None:
            return None
        ref, self._begun[ref.uid] = taken
        del self._plans[ref.uid]
        return ref

    def may_send(self, ref: PodRef) -> bool:
        """Tell whether an eviction that was begun may go on: it is not once another policy has come since."""
        return self._begun[ref.uid] is not None

    def send(self, ref: PodRef, now: float) -> None:
        """Note that the request that ends a pod is being sent."""
        for token in self._begun[ref.uid] or ():
            token.bucket.send(token, now)
            self._freed(token.bucket)

    def end(self, ref: PodRef, ended_pod: bool) -> None:
        """Note that an eviction that was begun has ended; ``ended_pod``: if it was sent, it may have ended the pod."""
        for token in self._begun.pop(ref.uid) or ():
            token.bucket.end(token, ended_pod)
            self._freed(token.bucket)

    def _freed(self, bucket: TokenBucket) -> None:
        self._due_first.freed(bucket)
        self._due_again.freed(bucket)

    # What there is to tell

    def due(self) -> int:
        """Count the first tries that are due and not held back, settling ones included."""
        return len(self._settling) + self._due_first.free

    def is_settling(self, ref: PodRef) -> bool:
        """Tell whether a pod is due but waits for a wave to show itself."""
        return ref in self._settling

    def next_at(self, now: float, retries: bool, stopped: bool) -> float | None:
        """Say when something moves on or may go next; ``retries`` False: of first tries; ``stopped``: none may go."""
        instants = [self._first_tries.next_fire_at(), self._settling.next_fire_at()]
        if not stopped:
            instants.append(self._due_first.next_at(now))
        if retries:
            instants += [self._retries.next_fire_at(), None if stopped else self._due_again.next_at(now)]
        return min((instant for instant in instants if instant is not None), default=None)

    # What else may change

    def reconsider(self) -> None:
        """Ask anew which lanes are held."""
        for entry in list(self._settling):
            if self._is_held(self._plans[entry.ref.uid][0]):
                self._settling.cancel(entry.ref)
                self._wait_in_lane(self._due_first, entry.ref)
        self._due_first.reconsider()
        self._due_again.reconsider()

    def change_policy(self, policy: EvictionPolicy, now: float) -> None:
        """Go on with another policy's limits; what was begun but not sent has to begin anew under them."""
        for uid, tokens in self._begun.items():
            if not any(token.sent for token in tokens or ()):
                for token in tokens or ():
                    token.bucket.end(token, ended_pod=False)
                self._begun[uid] = None
        self._limits.change(policy, now)
        self.reconsider()
