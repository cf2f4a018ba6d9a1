"""The timed worker queue, against a dict."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.property.strategies import examples

from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.timed_queue import TimedWorkerQueue

refs = st.builds(
    PodRef,
    st.builds(NamespacedName, st.just("shop"), st.sampled_from([f"p{number}" for number in range(6)])),
    st.sampled_from("abc"),
)
# Few instants, so that many entries are due together.
instants = st.integers(0, 40).map(lambda quarters: quarters / 4)


class QueueMachine(RuleBasedStateMachine):
    """After any operations, the queue agrees with a dict of each key's time, turn and UID."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = TimedWorkerQueue()
        self.due: dict[NamespacedName, tuple[float, int, str]] = {}
        self.turn = 0

    @rule(ref=refs, fire_at=instants)
    def schedule(self, ref: PodRef, fire_at: float) -> None:
        """The last scheduled pod takes the key; scheduling the same pod for the same time again keeps its turn."""
        before = self.due.get(ref.key)
        self.queue.schedule(ref, fire_at)
        if before is None or (before[0], before[2]) != (fire_at, ref.uid):
            self.turn += 1
            self.due[ref.key] = (fire_at, self.turn, ref.uid)

    @rule(ref=refs)
    def cancel(self, ref: PodRef) -> None:
        """W3: only the UID that is scheduled under a key can cancel the entry."""
        self.queue.cancel(ref)
        if ref.key in self.due and self.due[ref.key][2] == ref.uid:
            del self.due[ref.key]

    @rule(now=instants)
    def pop_due(self, now: float) -> None:
        """The most overdue entry is returned and removed."""
        entry = self.queue.pop_due(now)
        first = min(self.due.items(), key=lambda item: item[1], default=None)
        if first is None or first[1][0] > now:
            assert entry is None
            return
        key, (fire_at, _, uid) = first
        assert entry is not None
        assert (entry.ref, entry.fire_at) == (PodRef(key, uid), fire_at)
        del self.due[key]

    @rule()
    def pop_everything(self) -> None:
        """All entries are returned in the order of time and turn."""
        popped = []
        while (entry := self.queue.pop_due(1e9)) is not None:
            popped.append(entry.ref.uid)
        assert popped == [uid for _, _, uid in sorted(self.due.values())]
        self.due.clear()

    @invariant()
    def next_fire_at_is_the_earliest(self) -> None:
        """The next time is that of the earliest entry, None if and only if the queue is empty."""
        assert self.queue.next_fire_at() == min((entry[0] for entry in self.due.values()), default=None)

    @invariant()
    def entries_are_those_of_the_dict(self) -> None:
        """The queue has one entry per key, with the key's UID and time."""
        assert len(self.queue) == len(self.due)
        assert {entry.ref.key: (entry.fire_at, entry.ref.uid) for entry in self.queue} == {
            key: (fire_at, uid) for key, (fire_at, _, uid) in self.due.items()
        }


QueueMachine.TestCase.settings = settings(max_examples=examples(0.5), stateful_step_count=40)
TestQueueAgainstADict = QueueMachine.TestCase
