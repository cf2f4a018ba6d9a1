"""The shadow comparison, for any changes of nodes and pods: a built-in controller that does the same as this
controller is never reported as different.
"""

from dataclasses import replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.memory import kept
from tests.unit.builders import epoch, moment, node, pod, taint, tolerates
from tests.unit.shadow_stage import ShadowStage

from taint_eviction.core.decision import Evict
from taint_eviction.core.facts import PodGone
from taint_eviction.core.objects import Pod
from taint_eviction.shadow.comparison import ComparisonResult
from taint_eviction.shadow.tracked_pod import TrackedPod

KEYS = ("k1", "k2")
seconds = st.one_of(st.none(), st.integers(0, 20))


class PlayedChange(NamedTuple):
    """A change of the node or of one of its pods, after this many half seconds."""

    after: int
    what: str
    number: int
    seconds: int | None


changes = st.lists(
    st.builds(
        PlayedChange,
        st.integers(0, 12),
        st.sampled_from(["taint", "untaint", "tolerate", "delete", "mark", "evict", "vanish"]),
        st.integers(0, 3),
        seconds,
    ),
    max_size=12,
)


class ShadowedWorld:
    """One node and four pods that change."""

    def __init__(self, tolerated: list[int | None]) -> None:
        self.on = ShadowStage()
        self.keys: set[str] = set()
        self.version = 1
        self.pods: dict[int, Pod] = {
            number: pod(tolerates(each), name=f"web-{number}", uid=str(number), version=1, bound_at=-60)
            for number, each in enumerate(tolerated)
        }
        self.on.sees(node(version=1), *self.pods.values())

    def written(self, number: int, **fields: object) -> Pod:
        """Change a pod, and return its next version."""
        self.version += 1
        changed = replace(self.pods[number], resource_version=self.version, **fields)  # type: ignore[arg-type]
        self.pods[number] = changed
        return changed

    def change(self, change: PlayedChange) -> None:
        """Make a change, if it is possible."""
        if change.what in ("taint", "untaint"):
            self.version += 1
            key = KEYS[change.number % 2]
            (self.keys.add if change.what == "taint" else self.keys.discard)(key)
            was_clean = not self.on.brain.tainted_nodes()
            self.on.sees(node(*map(taint, sorted(self.keys)), version=self.version))
            if was_clean:
                self.on.sees(*self.pods.values())
        elif change.number in self.pods:
            match change.what:
                case "tolerate":
                    self.on.sees(self.written(change.number, tolerations=(tolerates(change.seconds),)))
                case "delete":
                    self.end(change.number, built_in=False)
                case "mark":
                    self.pods[change.number] = self.on.marks(self.written(change.number))
                case "evict":
                    self.end(change.number, built_in=True)
                case _:
                    self.on.observe(PodGone(self.pods.pop(change.number).ref))

    def end(self, number: int, *, built_in: bool) -> None:
        """Let the built-in controller, or somebody else, delete a pod."""
        ended = self.written(number)
        del self.pods[number]
        (self.on.evicts if built_in else self.on.deletes)(ended)

    def due(self, late_seconds: float) -> list[int]:
        """Return the numbers of the pods whose deadline passed this many seconds ago."""
        found = []
        for number, each in self.pods.items():
            known = self.on.brain.status.explain(each.ref.key, moment(self.on.now))
            if known is not None and isinstance(known.decision, Evict):
                found += [number] * (known.decision.fire_at + late_seconds <= self.on.now)
        return found


@given(st.lists(seconds, min_size=4, max_size=4), changes, st.sampled_from([0.0, 0.5, 1.5]))
def test_a_built_in_controller_that_is_at_most_two_seconds_late_is_never_called_different(
    tolerated: list[int | None], some: list[PlayedChange], late_seconds: float
) -> None:
    """Under changing taints and tolerations, and deletions by others, each comparison says same or somebody else."""
    world = ShadowedWorld(tolerated)
    for change in [
        *some,
        PlayedChange(60, "untaint", 0, None),
        PlayedChange(0, "untaint", 1, None),
        PlayedChange(10, "untaint", 0, None),
    ]:
        for _ in range(change.after):
            world.on.at(world.on.now + 0.5)
            for number in world.due(late_seconds):
                world.end(number, built_in=True)
        if change.what in ("taint", "untaint", "tolerate", "delete"):
            world.change(change)
    results = {each.result for each in world.on.found}
    assert results <= {ComparisonResult.SAME, ComparisonResult.SOMEBODY_ELSE}
    assert world.on.shadow.unseen == 0


@given(st.lists(seconds, min_size=4, max_size=4), changes)
def test_an_end_counts_once_and_leaves_nothing_behind(tolerated: list[int | None], some: list[PlayedChange]) -> None:
    """Each end of a pod is counted once, whoever deletes the pod and whether in time or not."""
    world = ShadowedWorld(tolerated)
    for change in some:
        world.on.at(world.on.now + change.after / 2)
        world.change(change)
    for number in list(world.pods):
        world.change(PlayedChange(0, "evict", number, None))
    counted = len(world.on.found)
    world.on.at(world.on.now + 800)
    shadow = world.on.shadow
    assert (len(world.on.found), shadow.totals.counts.total()) == (counted, counted)
    assert (kept(shadow, TrackedPod), shadow.outstanding(moment(world.on.now))) == ([], 0)
    ends = [each for each in world.on.found if each.result is not ComparisonResult.NEVER]
    rounds = sum(each.result is ComparisonResult.SAME for each in world.on.found)
    assert len(ends) <= 4 + rounds
    assert all(each.at_epoch >= epoch(0) for each in world.on.found)
