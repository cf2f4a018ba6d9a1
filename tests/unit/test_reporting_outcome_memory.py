"""Outcomes of pods are remembered, within bounds, for /history."""

from typing import Any

import orjson
import pytest
from tests.unit.builders import Stage, epoch, moment, node, pod, ref, taint, tolerates

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.events import CalledOff, Cancelled, Done, Event, Evicted, Failed, Suspended, WorkOutcome
from taint_eviction.core.facts import PodGone
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import ControllerRef
from taint_eviction.kube.outcome_record import StoredOutcome
from taint_eviction.reporting.outcome_memory import OutcomeMemory


def told(memory: OutcomeMemory, effects: list[Event], now: Moment) -> list[dict[str, Any]]:
    """Report the effects to the memory, and return all that it remembers."""
    for effect in effects:
        memory.report(effect, now)
    return [each.document(now) for each in memory.newest()]


def test_an_own_eviction_is_remembered_with_call_and_answer() -> None:
    """The outcome also has the taint that decided, and the lateness."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    work = on.take_eviction()
    memory.attempted(work, Done(), moment(on.now))
    (row,) = told(memory, on.brain.attempts.finish(work, Done(), moment(on.now)), moment(on.now))
    assert (row["outcome"], row["call"], row["answer"], row["lateSeconds"]) == ("evicted", "delete", "accepted", 0.0)
    assert row["taint"] == str(taint())


def test_a_standby_remembers_a_pod_that_it_saw_go() -> None:
    """The outcome has no call and no answer."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    (row,) = told(memory, on.brain.observe(PodGone(ref()), moment(on.now)), moment(on.now))
    assert (row["outcome"], row["call"], row["answer"]) == ("gone", None, None)


def attempt(on: Stage, memory: OutcomeMemory, outcome: WorkOutcome, sent: bool = True) -> None:
    """Let an attempt at the one due pod end with this outcome, and report it to the memory."""
    work = on.take_eviction()
    if sent:
        on.send(work)
    memory.attempted(work, outcome, moment(on.now))
    told(memory, on.finish(work, outcome), moment(on.now))


def test_an_answer_belongs_to_the_outcome_that_it_led_to() -> None:
    """A pod that somebody else deletes after a refusal goes without a call by this replica."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    attempt(on, memory, Failed("a webhook denies it", 5.0), sent=False)
    [refused] = told(memory, [], moment(on.now))
    assert (refused["outcome"], refused["call"], refused["answer"]) == ("refused", "delete", "a webhook denies it")
    [gone] = told(memory, on.at(1.0).observe(PodGone(ref())), moment(on.now))
    assert (gone["outcome"], gone["call"], gone["tries"], gone["answer"]) == ("gone", None, 0, None)


def test_an_eviction_whose_answer_was_lost_keeps_its_call() -> None:
    """An attempt at another pod ends in between."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    attempt(on, memory, Failed("no answer within 10 s", 5.0))
    on.sees(pod(name="web-1", uid="b"))
    attempt(on, memory, Done())
    newest, _ = told(memory, on.at(1.0).sees(pod(terminating=True)), moment(on.now))
    assert (newest["uid"], newest["outcome"]) == ("a", "evicted")
    assert (newest["call"], newest["tries"], newest["answer"]) == ("delete", 1, "no answer within 10 s")


@pytest.mark.parametrize("outcome", [CalledOff(), Suspended()])
def test_an_attempt_that_sent_nothing_is_no_call(outcome: WorkOutcome) -> None:
    """Somebody else deletes the pod while the controller decides again."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    work = on.take_eviction()
    on.sees(pod(terminating=True))
    memory.attempted(work, outcome, moment(on.now))
    [row] = told(memory, on.finish(work, outcome), moment(on.now))
    assert (row["outcome"], row["call"], row["answer"]) == ("deleted", None, None)


def test_what_held_a_pod_past_its_deadline_is_remembered() -> None:
    """A pod that leaves in time was held by nothing."""
    for seconds, held_by in ((0.5, []), (60.0, ["the pause of all evictions"])):
        on, memory = Stage(), OutcomeMemory()
        on.brain.order(ControlState(Pause()), moment(0.0))
        on.sees(node(taint()), pod())
        on.at(seconds).brain.order(ControlState(), moment(seconds))
        work = on.take_eviction()
        [row] = told(memory, on.finish(work, Done()), moment(on.now))
        assert row["heldBy"] == held_by


def test_the_wait_for_a_surge_of_taints_is_named_where_nothing_else_held_a_pod() -> None:
    """With a breaker, each eviction waits for two seconds after its deadline."""
    on, memory = Stage(breaker=BreakerPolicy(enabled=True)), OutcomeMemory()
    on.sees(node(taint()), pod())
    on.lists("n1")
    assert (on.evaluate(), on.take()) == ([], [])
    work = on.at(2.0).take_eviction()
    [row] = told(memory, on.finish(work, Done()), moment(on.now))
    assert row["heldBy"] == ["the wait of 2 s before each eviction (--breaker-settle)"]


def test_the_wait_for_a_surge_of_taints_explains_no_longer_delay() -> None:
    """A limit, an order or refusals kept that pod; the wait is named where it is all that there was."""
    on, memory = Stage(breaker=BreakerPolicy(enabled=True)), OutcomeMemory()
    on.sees(node(taint()), pod())
    on.lists("n1")
    assert (on.evaluate(), on.take()) == ([], [])
    work = on.at(60.0).take_eviction()
    [row] = told(memory, on.finish(work, Done()), moment(on.now))
    assert row["heldBy"] == []


def test_count_and_bytes_are_bounded() -> None:
    """The oldest outcomes are forgotten first, and counted."""
    on = Stage()
    on.sees(node(taint()), pod())
    work = on.take_eviction()
    for memory in (OutcomeMemory(max_outcomes=2), OutcomeMemory(max_bytes=2000)):
        for number in range(5):
            memory.report(Evicted(ref(f"p{number}", f"p{number}"), "n1", work.decision, 0.0), moment(on.now))
        assert [each.ref.key.name for each in memory.newest()] == ["p4", "p3"]
        assert memory.forgotten == 3
        assert memory.bytes <= 2000


def test_a_namespace_with_many_outcomes_leaves_those_of_others_alone() -> None:
    """The oldest of the namespace with the most is forgotten, also among restored ones; never more than its share."""
    on = Stage()
    on.sees(node(taint()), pod())
    decision = on.take_eviction().decision
    memory = OutcomeMemory(max_outcomes=6)

    def evicted(namespace: str, *names: str) -> None:
        for name in names:
            memory.report(Evicted(ref(name, name, namespace), "n1", decision, 0.0), moment(on.now))

    evicted("shop", "s1", "s2")
    evicted("tenant", *(f"x{number}" for number in range(50)))
    assert [uid for uid, _ in listed(memory)] == ["x49", "x48", "x47", "x46", "s2", "s1"]
    memory.restore([], epoch(0.0), moment(on.now))
    evicted("tenant", "x50")
    assert [uid for uid, _ in listed(memory)] == ["x50", "x49", "x48", "x47", "s2", "s1"]
    evicted("shop", "s3", "s4", "s5")
    assert [uid for uid, _ in listed(memory)] == ["s5", "s4", "s3", "x50", "x49", "x48"]
    evicted("mail", "m1", "m2", "m3")
    assert [uid for uid, _ in listed(memory)] == ["m3", "m2", "s5", "s4", "x50", "x49"]


def test_the_names_of_owners_count_among_the_bytes() -> None:
    """A tenant chooses them."""
    on = Stage()
    on.sees(node(taint()), pod())
    decision = on.take_eviction().decision
    sizes = []
    for owner in (None, ControllerRef("Job", "j" * 250, "u")):
        memory = OutcomeMemory()
        memory.report(Evicted(ref("p", "p"), "n1", decision, 0.0, owner), moment(on.now))
        sizes.append(memory.bytes)
    assert sizes[1] - sizes[0] == 253


def test_a_storm_is_counted_back_to_the_last_gap() -> None:
    """A storm is over once no pod has gone for 5 s."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod())
    decision = on.take_eviction().decision
    for number, at in enumerate((0.0, 10.0, 11.0, 12.0, 14.0)):
        memory.report(Evicted(ref(f"p{number}", f"p{number}"), "n1", decision, 0.0), moment(at))
    assert memory.storm(14.0) == (4, 1.0)
    assert memory.storm(20.0) == (0, 0.0)


def stored(name: str, at: float, outcome: str = "evicted", late_seconds: float = 0.0) -> StoredOutcome:
    """An outcome that another process has kept; the pod's name is its UID."""
    line = orjson.dumps({"name": name, "outcome": outcome})
    return StoredOutcome(ref(name, name), "n1", outcome, "k1", epoch(at), late_seconds, line)


def remember(memory: OutcomeMemory, name: str, at: float, *, gone: bool = False) -> None:
    """Let a pod be evicted, or be seen to go."""
    on = Stage()
    on.sees(node(taint()), pod())
    decision = on.take_eviction().decision
    went = Cancelled(ref(name, name), "n1", None, decision=decision)
    memory.report(went if gone else Evicted(ref(name, name), "n1", decision, 0.0), moment(at))


def listed(memory: OutcomeMemory) -> list[tuple[str, str]]:
    """The pods with their outcomes, the newest first."""
    return [(each.ref.uid, each.outcome) for each in memory.newest()]


def test_pods_that_others_delete_before_their_deadline_were_not_evicted() -> None:
    """A rollout deletes pods of a tainted node; what another replica evicts is due, and its clock may be ahead."""
    on, memory = Stage(), OutcomeMemory()
    on.sees(node(taint()), pod(tolerates(300), name="early", uid="early"), pod(tolerates(20), name="due", uid="due"))
    told(memory, on.at(19).observe(PodGone(ref("early", "early")), PodGone(ref("due", "due"))), moment(19))
    assert memory.went_since(0.0).total() == 1
    memory.restore([stored("a", 5.0, "gone", -280.0), stored("b", 5.0, "deleted", 0.1)], epoch(1.0), moment(20.0))
    assert memory.went_since(0.0).total() == 2
    assert memory.storm(20.0) == (1, 1.0)


def test_restored_outcomes_stand_at_their_own_time_among_the_others() -> None:
    """A standby has seen some of what the leader before it has kept."""
    memory = OutcomeMemory(5.0)
    remember(memory, "b", 20.0)
    remember(memory, "d", 40.0)
    assert memory.restore([stored("c", 30.0), stored("a", 10.0)], epoch(1.0), moment(50.0))
    assert [uid for uid, _ in listed(memory)] == ["d", "c", "b", "a"]
    remember(memory, "e", 60.0)
    numbers = [each.number for each in memory.newest()]
    assert numbers == sorted(numbers, reverse=True)
    assert memory.since_at == 1.0
    assert memory.went_since(30.0) == {("n1", "k1"): 3}


@pytest.mark.parametrize(
    ("own_gone", "kept", "expected"),
    [(True, "evicted", "evicted"), (False, "gone", "evicted"), (True, "blocked", "gone"), (True, "gone", "gone")],
)
def test_of_two_outcomes_of_a_pod_the_one_that_tells_more_is_remembered(
    own_gone: bool, kept: str, expected: str
) -> None:
    """The replica that evicted the pod knows more than one that saw it go; either knows more than an earlier try."""
    memory = OutcomeMemory()
    remember(memory, "a", 20.0, gone=own_gone)
    memory.restore([stored("a", 19.0, kept)], epoch(0.0), moment(50.0))
    assert listed(memory) == [("a", expected)]


def test_restoring_tells_whether_more_is_remembered_than_is_kept() -> None:
    """Only then is there something to write."""
    memory = OutcomeMemory()
    assert not memory.restore([stored("a", 10.0), stored("a", 10.0)], epoch(0.0), moment(50.0))
    assert not memory.restore([stored("a", 10.0)], epoch(0.0), moment(50.0))
    assert memory.restore([], epoch(0.0), moment(50.0))
    remember(memory, "b", 20.0)
    assert memory.restore([stored("a", 10.0)], epoch(0.0), moment(50.0))
    assert memory.restore([stored("a", 10.0), stored("b", 10.0, "refused")], epoch(0.0), moment(50.0))
    assert not memory.restore([stored("a", 10.0), stored("b", 20.0)], epoch(0.0), moment(50.0))


def test_a_new_outcome_of_a_restored_pod_takes_its_place() -> None:
    """A pod whose eviction a budget has refused is evicted by the next leader."""
    memory = OutcomeMemory()
    memory.restore([stored("a", 10.0, "blocked"), stored("b", 11.0)], epoch(0.0), moment(50.0))
    remember(memory, "a", 60.0)
    assert listed(memory) == [("a", "evicted"), ("b", "evicted")]


def test_restored_outcomes_count_within_the_bounds() -> None:
    """The oldest are forgotten; from then on the memory reaches only as far back as the youngest of these."""
    memory = OutcomeMemory(max_outcomes=2)
    remember(memory, "d", 40.0)
    memory.restore([stored("c", 30.0), stored("b", 20.0), stored("a", 10.0)], epoch(0.0), moment(50.0))
    assert [uid for uid, _ in listed(memory)] == ["d", "c"]
    assert (memory.forgotten, memory.since_at) == (2, 20.0)
    small = OutcomeMemory(max_bytes=2000)
    small.restore([stored(str(number), number) for number in range(10)], epoch(0.0), moment(50.0))
    assert small.bytes <= 2000


def test_an_outcome_that_is_dated_ahead_is_the_newest_and_not_in_the_future() -> None:
    """The API server's clock may have been put right since."""
    memory = OutcomeMemory()
    memory.restore([stored("a", 1e6), stored("b", 10.0)], epoch(0.0), moment(50.0))
    assert [each.at for each in memory.newest()] == [50.0, 10.0]
