"""The controller against an oracle that computes every deadline from scratch after each step."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.property.oracle import ExpectedDecisions, key_of
from tests.property.strategies import examples
from tests.unit.builders import Stage, moment, node, pod, taint, tolerates
from tests.unit.hints import hints, waiting_uids, wanted_hints

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.events import (
    CalledOff,
    CutOff,
    Done,
    Evicted,
    Eviction,
    Failed,
    NodeTainted,
    PodIsGone,
    Suspended,
    Work,
    WorkOutcome,
)
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, PodGone, PodSeen, PodsReleased, PodsSwept
from taint_eviction.core.objects import Pod, Taint, Toleration
from taint_eviction.core.policy import EvictionMode, EvictionPolicy

NODES = st.sampled_from(["n1", "n2"])
NAMES = st.sampled_from(["p1", "p2", "p3"])
# Instants are whole seconds, so that floats hold them exactly. An object time lies 7 s or 1 s in the past.
AGES = st.sampled_from([None, 7.0, 1.0])
TAINTS = st.lists(
    st.tuples(st.sampled_from(["k1", "k2"]), st.sampled_from(["", "x"]), AGES), max_size=2, unique_by=lambda one: one[0]
)
TOLERATIONS = st.lists(
    st.builds(
        lambda key, seconds: tolerates(seconds, key),
        st.sampled_from(["k1", "k2", ""]),
        st.sampled_from([None, 0, 2, 5, 9]),
    ),
    max_size=3,
).map(tuple)
UNDONE: dict[str, CalledOff | CutOff | Suspended] = {
    "called off": CalledOff(),
    "cut off": CutOff(),
    "held": Suspended(),
}
WAYS_TO_GO = st.sampled_from(["told", "told late", "not told"])


class ControllerMachine(RuleBasedStateMachine):
    """A true cluster changes, the controller observes it, and work ends in every possible way."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.oracle = ExpectedDecisions()
        self.lives = 0
        self.told: list[NodeSeen | PodSeen] = []
        self.gone: set[str] = set()
        self.evicted: set[str] = set()
        self.mode = EvictionMode.DELETE

    # Reporting to the controller

    def report(self, *facts: Fact) -> None:
        """Report facts to the controller and then to the oracle; a node that becomes tainted has its pods reported."""
        for fact in facts:
            if isinstance(fact, NodeSeen | PodSeen):
                self.told.append(fact)
            for effect in self.stage.observe(fact):
                if isinstance(effect, NodeTainted):
                    here = [one for one in self.oracle.pods.values() if one.node_name == effect.node_name]
                    self.stage.observe(*(PodSeen(one, asked_at=self.stage.now) for one in here))
        self.oracle.pods_told()

    def tell_node(self, name: str, uid: str, taints: list[tuple[str, str, float | None]]) -> None:
        """Give a node a UID and taints, and report it; a taint that was there before keeps its time."""
        marks = [
            taint(key, value, added_at=None if age is None else self.stage.now - age) for key, value, age in taints
        ]
        before = self.oracle.nodes.get(name)
        kept = {(one.key, one.value): one for one in before.taints} if before and before.uid == uid else {}
        self.put_node(name, uid, [kept.get((mark.key, mark.value), mark) for mark in marks])

    def put_node(self, name: str, uid: str, taints: list[Taint]) -> None:
        """Give a node these taints, and report it."""
        self.oracle.nodes[name] = node(*taints, name=name, uid=uid, version=self.oracle.next_version())
        self.oracle.node_told(name)
        self.report(NodeSeen(self.oracle.nodes[name]))

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        """Whole seconds go by."""
        self.stage.at(self.stage.now + seconds)
        self.oracle.now = self.stage.now

    # Nodes

    @rule(name=NODES, taints=TAINTS)
    def taint_node(self, name: str, taints: list[tuple[str, str, float | None]]) -> None:
        """A node is created, or its taints change."""
        known = self.oracle.nodes.get(name)
        self.tell_node(name, known.uid if known else self.new_uid(name), taints)

    @rule(name=NODES, taints=TAINTS)
    def recreate_node(self, name: str, taints: list[tuple[str, str, float | None]]) -> None:
        """W12: a node is deleted and created again, and no event reports the deletion."""
        if name in self.oracle.nodes:
            self.gone.add(self.oracle.nodes[name].uid)
        self.tell_node(name, self.new_uid(name), taints)

    @rule(name=NODES, by_uid=st.booleans())
    def delete_node(self, name: str, by_uid: bool) -> None:
        """W12: a node is deleted; a watch reports it by its UID, or a live read does not find it."""
        known = self.oracle.nodes.pop(name, None)
        if known is not None:
            self.gone.add(known.uid)
            self.oracle.node_told(name)
            self.report(NodeGone(name, known.uid) if by_uid else NodeGone(name, asked_at=self.stage.now))

    @rule(name=NODES)
    def release(self, name: str) -> None:
        """The pods of a clean node are no longer watched."""
        known = self.oracle.nodes.get(name)
        if known is None or not known.taints:
            self.oracle.watched.discard(name)
            self.report(PodsReleased(name))

    # Pods

    def new_uid(self, name: str) -> str:
        """Return a UID that was never used before."""
        self.lives += 1
        return f"{name}-{self.lives}"

    @rule(name=NAMES, on=NODES, tolerations=TOLERATIONS, age=AGES, mirror=st.integers(0, 9), how=WAYS_TO_GO)
    def create_pod(
        self, name: str, on: str, tolerations: tuple[Toleration, ...], age: float | None, mirror: int, how: str
    ) -> None:
        """W1, W4: a pod is created, or deleted and created again; its deletion is reported before, after or never."""
        before = self.oracle.pods.pop(name, None)
        if before is not None:
            self.gone.add(before.ref.uid)
            if how == "told":
                self.report(PodGone(before.ref))
        self.oracle.pods[name] = pod(
            *tolerations,
            name=name,
            uid=self.new_uid(name),
            on=on,
            bound_at=None if age is None else self.stage.now - age,
            version=self.oracle.next_version(),
            mirror=mirror == 9,
        )
        self.report(PodSeen(self.oracle.pods[name]))
        if before is not None and how == "told late":
            self.report(PodGone(before.ref))

    @rule(name=NAMES, tolerations=TOLERATIONS)
    def change_tolerations(self, name: str, tolerations: tuple[Toleration, ...]) -> None:
        """W5: the tolerations of a pod change in any way."""
        if name in self.oracle.pods:
            self.tell_pod(self.oracle.pods[name], tolerations)

    def tell_pod(self, which: Pod, tolerations: tuple[Toleration, ...]) -> None:
        """Give a pod these tolerations, and report it."""
        changed = replace(which, tolerations=tolerations, resource_version=self.oracle.next_version())
        self.oracle.pods[which.ref.key.name] = changed
        self.report(PodSeen(changed))

    @rule(name=NAMES)
    def terminate(self, name: str) -> None:
        """W13: somebody else deletes a pod, gracefully."""
        if name in self.oracle.pods:
            self.report(PodSeen(self.oracle.change(self.oracle.pods[name], terminating=True)))

    @rule(name=NAMES, swept=st.booleans())
    def delete_pod(self, name: str, swept: bool) -> None:
        """W21: a pod is deleted; a watch reports it, or a list does not contain it."""
        known = self.oracle.pods.pop(name, None)
        if known is not None:
            self.gone.add(known.ref.uid)
            uids = frozenset(one.ref.uid for one in self.oracle.pods.values())
            sweep = PodsSwept(None, uids, self.stage.now, self.oracle.next_version())
            self.report(sweep if swept else PodGone(known.ref))

    # Stale facts

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def repeat_old_news(self, data: st.DataObject) -> None:
        """A fact about a known or deleted object changes nothing when it is reported again."""
        fact = data.draw(st.sampled_from(self.told))
        if isinstance(fact, NodeSeen):
            harmless = fact.node.name in self.oracle.nodes or fact.node.uid in self.gone
        else:
            uid = fact.pod.ref.uid
            harmless = uid in self.oracle.known() or (
                uid in self.gone and fact.pod.ref.key in self.stage.brain.pods.known
            )
        if harmless:
            assert self.stage.observe(fact) == []

    # Work

    @rule(most=st.sampled_from([1, 2, 100]), retries=st.sampled_from([0, 1, 100]))
    def take(self, most: int, retries: int) -> None:
        """W14: only due pods are evicted: first tries before retries, on each node the most overdue first, and within
        both limits.
        """
        takeable = self.oracle.takeable()
        taken = self.stage.take(most, retries)
        assert len(taken) <= most
        firsts = [work for work in taken if isinstance(work, Eviction) and work.tries == 0]
        assert len(taken) - len(firsts) <= retries
        assert taken[: len(firsts)] == firsts
        for name in ("n1", "n2"):
            deadlines = [work.decision.fire_at for work in firsts if work.node_name == name]
            assert deadlines == sorted(deadlines)
        for work in taken:
            self.check_begun(work, takeable)
        if (most, retries) == (100, 100):
            assert self.oracle.takeable() == set()

    def check_begun(self, work: Work, takeable: set[str]) -> None:
        """A pod has at most one eviction and one take-back, and an eviction begins only if the oracle says that the pod
        is due.
        """
        uid = work.ref.uid
        assert key_of(work) not in self.oracle.in_flight
        if isinstance(work, Eviction):
            assert uid in takeable
            assert uid not in self.evicted
            assert work.decision.fire_at == self.oracle.due()[uid]
            assert (work.tries > 0) == (uid in self.oracle.retry_at)
            assert work.by_eviction_api == (self.mode is EvictionMode.EVICT)
        self.oracle.outdated.discard(uid)
        self.oracle.in_flight[key_of(work)] = work

    @precondition(lambda self: self.oracle.evictions_in_flight())
    @rule(data=st.data(), works=st.booleans())
    def mark(self, data: st.DataObject, works: bool) -> None:
        """The DisruptionTarget patch is accepted or refused; the answer to an accepted one is the live pod."""
        work = data.draw(st.sampled_from(self.oracle.evictions_in_flight()))
        self.stage.brain.attempts.will_mark(work.ref)
        holder = self.oracle.holder(work.ref.uid)
        if works and holder is not None:
            self.report(PodSeen(self.oracle.change(holder, marked=True)))

    @precondition(lambda self: self.oracle.in_flight)
    @rule(data=st.data(), ending=st.sampled_from(["done", "failed", *UNDONE]), wait=st.integers(0, 9))
    def settle(self, data: st.DataObject, ending: str, wait: int) -> None:
        """Work ends in any way, early or late. If the pod no longer exists, work that is done ends as ``PodIsGone``."""
        work = self.oracle.in_flight[data.draw(st.sampled_from(sorted(self.oracle.in_flight)))]
        uid = work.ref.uid
        holder = self.oracle.holder(uid)
        if ending == "done" and holder is None:
            self.end(work, PodIsGone())
        elif ending == "done" and holder is not None:
            self.end_well(work, holder)
        elif ending == "failed":
            if isinstance(work, Eviction):
                self.oracle.retry_at[uid] = self.stage.now + wait
            self.end(work, Failed("denied", self.stage.now + wait))
        else:
            self.end(work, UNDONE[ending])

    def end_well(self, work: Work, holder: Pod) -> None:
        """Let work succeed. An accepted DELETE makes the pod terminate, which is reported later; the pod in the answer
        to a take-back is reported at once.
        """
        uid = work.ref.uid
        if not isinstance(work, Eviction):
            self.report(PodSeen(self.oracle.change(holder, marked=False)))
            self.end(work, Done())
            return
        if uid in self.oracle.known():
            self.oracle.accepted.add(uid)
        self.oracle.retry_at.pop(uid, None)
        self.oracle.change(holder, terminating=True)
        self.evicted.add(uid)
        self.end(work, Done())

    def end(self, work: Work, outcome: WorkOutcome) -> None:
        """Settle a piece of work in the controller and the oracle."""
        effects = self.stage.finish(work, outcome)
        del self.oracle.in_flight[key_of(work)]
        assert any(isinstance(effect, Evicted) for effect in effects) == (
            isinstance(outcome, Done) and isinstance(work, Eviction)
        )
        self.oracle.pods_told()

    # Pauses and policies

    @rule(whole=st.integers(0, 3), names=st.sets(NODES, max_size=1))
    def pause(self, whole: int, names: set[str]) -> None:
        """A node or the whole cluster is paused, and what was paused before is resumed; deadlines run on."""
        self.oracle.control_state = ControlState(Pause() if whole == 3 else None, {name: Pause() for name in names})
        self.stage.order(self.oracle.control_state)

    @rule(mode=st.sampled_from([EvictionMode.DELETE, EvictionMode.EVICT]))
    def change_policy(self, mode: EvictionMode) -> None:
        """The policy changes: evictions in flight began under the old one."""
        self.mode = mode
        assert self.stage.change_policy(EvictionPolicy(mode)) == []
        self.oracle.outdated = set(self.oracle.in_flight)

    # What always holds

    @invariant()
    def deadlines_are_the_oracles(self) -> None:
        """Every pod that is not in flight has the deadline that the oracle computes."""
        flying = set(self.oracle.in_flight)
        mine = {uid: at for uid, at in self.stage.deadlines().items() if uid not in flying}
        assert mine == {uid: at for uid, at in self.oracle.wanted().items() if uid not in flying}

    @invariant()
    def decide_again_is_the_oracles(self) -> None:
        """W11: an eviction in flight goes on if and only if the oracle says that the pod is still due and not paused;
        a take-back goes on if and only if the pod is not due.
        """
        for key, work in self.oracle.in_flight.items():
            assert self.stage.decide_again(work) == self.oracle.goes_on(key)

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        """Each pod to be evicted is either in flight, or waits in one place; of a pod in flight no hint is left."""
        brain = self.stage.brain
        assert hints(brain) == wanted_hints(brain.pods)
        evicting = {record.ref.uid for record in brain.pods if record.in_flight}
        taking_back = {key_of(record.taking_back) for record in brain.pods if record.taking_back}
        assert evicting | taking_back == set(self.oracle.in_flight)
        assert all(record.condition.take_back_at is None for record in brain.pods if record.in_flight)
        assert set(waiting_uids(brain.pods)) == set(self.oracle.wanted()) - evicting
        assert {record.ref.uid for record in brain.pods.known.values()} == set(self.oracle.known())

    # The end of a run

    def teardown(self) -> None:
        """W10: conditions of pods that are not due are taken back; then every object is deleted, and the controller
        remembers nothing.
        """
        self.stage.at(self.stage.now + 100)
        self.oracle.now = self.stage.now
        for work in list(self.oracle.in_flight.values()):
            self.end(work, Suspended())
        self.pause(0, set())
        while (taken := [work for work in self.stage.take() if self.begin_last(work)]) != []:
            for work in taken:
                self.end_last(work)
        due = self.oracle.due()
        owed = [
            uid for uid, one in self.oracle.known().items() if one.marked and uid not in due and not one.terminating
        ]
        assert owed == []
        self.vanish()

    def begin_last(self, work: Work) -> bool:
        """Note work as in flight, and return whether it is a take-back, which is to be finished."""
        self.oracle.in_flight[key_of(work)] = work
        return not isinstance(work, Eviction)

    def end_last(self, work: Work) -> None:
        """Finish a take-back of a condition."""
        holder = self.oracle.holder(work.ref.uid)
        if holder is None:
            self.end(work, PodIsGone())
        else:
            self.end_well(work, holder)

    def vanish(self) -> None:
        """Delete all objects, then let the work in flight end late."""
        for one in list(self.oracle.pods.values()):
            self.stage.observe(PodGone(one.ref))
        for name in ("n1", "n2"):
            self.stage.observe(NodeGone(name), PodsReleased(name))
        for work in self.oracle.in_flight.values():
            self.stage.finish(work, Failed("late", self.stage.now))
        brain = self.stage.brain
        assert brain.attempts.next_at(moment(self.stage.now)) is None
        assert hints(brain) == 0
        assert not any(
            [list(brain.pods), brain.watched_nodes(), brain.nodes.known, *map(brain.pods.on_node, ("n1", "n2"))]
        )


ControllerMachine.TestCase.settings = settings(max_examples=examples(1.5), stateful_step_count=40)
TestControllerAgainstAnOracle = ControllerMachine.TestCase
