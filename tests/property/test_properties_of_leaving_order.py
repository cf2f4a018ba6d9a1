"""The order of tiers against a plain restatement of the contract: who goes while the sentence says wait, and how long a
wait takes at most.
"""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.strategies import examples
from tests.unit.builders import Stage, epoch, node, pod, ref, taint, tolerates

from taint_eviction.core.events import Done
from taint_eviction.core.facts import PodGone, PodsSwept
from taint_eviction.core.objects import ControllerRef, Pod, Readiness
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.tiers import Order, tier_of

WAIT, STEP, UNTIL = 20.0, 1.0, 200
CSI = ControllerRef("DaemonSet", "csi", "d1")


@dataclasses.dataclass(frozen=True)
class LeavingPod:
    """A pod: when it is due, and how long it takes to end after its eviction, None: for ever."""

    daemon: bool
    critical: bool
    seconds: int
    created_at: int
    ends_after: int | None

    def pod(self, name: str) -> Pod:
        """Return it as it is known first."""
        return pod(
            tolerates(self.seconds),
            name=name,
            uid=name,
            bound_at=-10.0,
            controller=CSI if self.daemon else None,
            priority=2_000_000_000 if self.critical else 0,
            created_at=float(self.created_at),
        )


LIVES = st.builds(
    LeavingPod,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 0, 0, 5, 15, 25, 60]),
    st.sampled_from([-100, -100, -100, 3, 30]),
    st.sampled_from([0, 1, 7, 30, None]),
)


@settings(max_examples=examples(0.5), deadline=None)
@given(st.lists(LIVES, min_size=1, max_size=8))
def test_nobody_goes_out_of_order_and_nobody_waits_longer_than_the_bound(lives: list[LeavingPod]) -> None:
    """Pods that never end, that come later or that are due later: each goes when it may, to the second."""
    stage = Stage(eviction=EvictionPolicy(order=Order.TIERS, order_wait_seconds=WAIT))
    pods = {f"p{number}": life.pod(f"p{number}") for number, life in enumerate(lives)}
    life_of = dict(zip(pods, lives, strict=True))
    due_at = {name: float(life.seconds) for name, life in life_of.items()}
    ready = dataclasses.replace(node(taint(added_at=-1.0)), ready=Readiness("True", epoch(-1000.0)))
    stage.sees(ready, *pods.values())
    stage.observe(PodsSwept("n1", frozenset(pods), 0.0, None))
    begun_at: dict[str, float] = {}
    gone: set[str] = set()

    def waits(name: str) -> bool:
        """Say it as the contract does, for a pod that is due now."""
        tier = tier_of(pods[name])
        return any(
            tier_of(pods[other]) < tier
            and other not in gone
            and due_at[other] <= stage.now + WAIT
            and life_of[other].created_at <= due_at[name]
            and stage.now < due_at[name] + (tier_of(pods[other]) + 1) * WAIT
            for other in pods
        )

    for second in range(UNTIL):
        stage.at(second * STEP)
        for name, at in begun_at.items():
            ends_after = life_of[name].ends_after
            if name not in gone and ends_after is not None and stage.now >= at + ends_after + STEP:
                gone.add(name)
                stage.observe(PodGone(ref(name, name)))
        expected = {name for name in pods if name not in begun_at and due_at[name] <= stage.now and not waits(name)}
        stage.evaluate()
        works = stage.take()
        assert {work.ref.key.name for work in works} == expected, f"at {stage.now}"
        for work in works:
            begun_at[work.ref.key.name] = stage.now
            stage.finish(work, Done())
    assert begun_at.keys() == pods.keys()
    assert all(at <= due_at[name] + tier_of(pods[name]) * WAIT for name, at in begun_at.items())
