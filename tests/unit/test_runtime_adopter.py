"""Whether the leader may take countdowns over, how refusals are tried again, and what is given back and looked for."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.builders import EPOCH, node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import (
    HANGS,
    Body,
    FakePolicy,
    How,
    admitted,
    at,
    refused,
    running,
    times_out,
    until,
    virtually,
)

from taint_eviction.core.adoption import CountdownChange, with_seconds
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.events import AdoptionRefused, CountdownAdopted, GivenBack
from taint_eviction.core.facts import NodeGone, NodeSeen, PodGone, PodSeen
from taint_eviction.core.objects import MARK_SECONDS, UNREACHABLE, Adoption, Node, Pod, PodRef, Readiness
from taint_eviction.kube.taints_and_tolerations import read_tolerations
from taint_eviction.runtime.adopter import Adopter
from taint_eviction.runtime.dry_run import DryRunAdoptions
from taint_eviction.runtime.policy_check import PolicyCheck
from taint_eviction.settings import AdoptionSettings

ORDER = Pause(EPOCH)


def changed(before: Pod, change: CountdownChange) -> Pod:
    """Return a pod after a change."""
    spec = with_seconds(before.spec_tolerations, {**dict.fromkeys(change.marks, MARK_SECONDS), **change.returns})
    adoption = Adoption(spec, tuple(sorted(change.noted))) if change.noted else None
    version = (before.resource_version or 0) + 1
    return replace(before, tolerations=with_seconds(spec, change.noted), adoption=adoption, resource_version=version)


def marked(before: Pod, *places: int) -> Pod:
    """Return a pod whose tolerations at these places have marks and notes."""
    seconds = {place: before.spec_tolerations[place].toleration_seconds or 0 for place in places}
    return changed(before, CountdownChange(frozenset(places), {}, seconds))


class FakeDoor:
    """Keeps pods, and carries calls over the wire of ``body``."""

    def __init__(self, body: Body) -> None:
        self._wire = body.api
        self.pods: dict[PodRef, Pod] = {}
        self.adopts: list[str] = []

    async def change(self, ref: PodRef, wanted: Callable[[Pod], CountdownChange | None]) -> Pod | None:
        """Change a pod."""

        def effect() -> Pod | None:
            if (found := self.pods.get(ref)) is not None and (change := wanted(found)) is not None:
                self.pods[ref] = changed(found, change)
            return self.pods.get(ref)

        return await self._wire.carry("CHANGE", ref.uid, effect)

    async def list_noted(self) -> list[PodRef]:
        """List."""
        return await self._wire.carry(
            "LOOK", "", lambda: [each.ref for each in self.pods.values() if each.adoption is not None]
        )

    def adopter(self, term: int) -> str:
        """Name."""
        return f"me {term}"

    async def write_adopter(self, term: int) -> None:
        """Note."""
        await self._wire.carry("ADOPTS", "", lambda: self.adopts.append(self.adopter(term)))

    async def remove_adopter(self, seen: str) -> None:
        """Note."""
        await self._wire.carry("ADOPTS NO MORE", seen, lambda: self.adopts.append(f"not {seen}"))

    async def confirm_no_adoption(self, order: Pause) -> None:
        """Confirm."""
        await self._wire.carry("CONFIRM", "", lambda: None)


class AdoptingBody(Body):
    """A body with an adopter that has known the control state as leader since 0: somebody adopts."""

    def __init__(self, enabled: bool = True, *, dry_run: bool = False, brain: Controller | None = None) -> None:
        super().__init__(brain=brain)
        self.door = FakeDoor(self)
        self.state_read_at: float | None = 0.0
        self.live.order(ControlState(adopter="me 1"))
        self.policy = PolicyCheck(FakePolicy(self.api), self.live.clock, adopts=enabled)
        self.policy.in_force = True
        self.adopter = Adopter(
            self.live,
            DryRunAdoptions(self.door) if dry_run else self.door,
            self.node_reads,
            self.gate,
            policy=self.policy,
            state_read_at=lambda: self.state_read_at,
            settings=AdoptionSettings(enabled),
            outage_gap_seconds=1800.0,
        )
        self.live.observe(NodeSeen(node(version=1)))

    def shows(self, *objects: Node | Pod) -> None:
        """Let objects be so in the cluster, and tell them as a watch does."""
        for each in objects:
            if isinstance(each, Node):
                self.api.put(each)
                self.live.observe(NodeSeen(self.api.nodes[each.name]))
            else:
                self.door.pods[each.ref] = each
                self.live.observe(PodSeen(each))

    def sent(self, verb: str = "CHANGE") -> list[float]:
        """List when such calls were sent."""
        return [round(call.at, 2) for call in self.api.calls if call.verb == verb]

    def spec(self, ref: PodRef) -> list[int | None]:
        """Return the seconds in the spec of a pod."""
        return [each.toleration_seconds for each in self.door.pods[ref].spec_tolerations]


TOLERANT = replace(pod(tolerates(300), tolerates(20), tolerates(200, "k2")), resource_version=5)


@virtually
async def test_a_countdown_is_taken_over_a_minute_before_its_timer() -> None:
    """It costs nothing before; the deadline stays, and a toleration that is never the first match is left alone."""
    it = AdoptingBody()
    async with running(it.adopter.run()):
        await until(20)
        it.shows(node(taint()), TOLERANT)
        await until(259)
        assert it.sent() == []
        await until(261)
        assert it.sent() == [259.9]
        assert it.spec(ref()) == [MARK_SECONDS, 20, 200]
        assert [effect for _, effect in it.reporter.of(CountdownAdopted)] == [CountdownAdopted(ref(), "n1", 1)]
        it.live.observe(PodSeen(it.door.pods[ref()]))
        record = it.brain.pods.find(ref())
        assert record is not None
        assert record.decision is not None
        assert record.decision.fire_at == 320
        assert it.adopter.adopted_count() == 1


@virtually
async def test_a_mark_that_the_watch_does_not_bring_is_looked_at_again_after_a_while() -> None:
    """A watch that lags would otherwise cost a read every 2 s of each pod, before others get their marks."""
    it = AdoptingBody()
    async with running(it.adopter.run()):
        await until(20)
        it.shows(node(taint()), TOLERANT)
        await until(275)
        assert it.sent() == [259.9, 269.92]
        it.live.observe(PodSeen(it.door.pods[ref()]))
        await until(290)
        assert len(it.sent()) == 2


@virtually
async def test_nothing_is_marked_before_the_control_state_says_that_somebody_adopts() -> None:
    """A leader that does not adopt could not know otherwise that it has to give everything back."""
    it = AdoptingBody()
    it.live.order(ControlState())
    it.shows(node(taint()), pod(tolerates(30)))
    async with running(it.adopter.run()):
        await until(25)
        assert it.sent() == []
        assert it.door.adopts[0] == "me 1"
        it.live.order(ControlState(adopter="me 1"))
        await until(26)
        assert len(it.sent()) == 1


@virtually
async def test_nothing_is_marked_before_the_policy_is_in_force() -> None:
    """The adopter says why, unless it is disabled."""
    it = AdoptingBody()
    it.policy.in_force, it.policy.problem = None, "not known"
    it.shows(node(taint()), pod(tolerates(100)))
    async with running(it.adopter.run()):
        await until(75)
        assert it.adopter.policy_problem == "not known"
        assert it.sent() == []
        it.policy.in_force, it.policy.problem = True, ""
        await until(76)
        assert len(it.sent()) == 1
    assert AdoptingBody(enabled=False).adopter.policy_problem == ""


@virtually
async def test_only_the_leader_marks_and_only_once_it_has_read_the_control_state_as_leader() -> None:
    """What it read before may be from before hand-back was ordered."""
    it = AdoptingBody()
    it.gate.open = False
    it.shows(node(taint()), pod(tolerates(20)))
    async with running(it.adopter.run()):
        await until(5)
        it.gate.open = True
        await until(15)
        assert it.sent() == []
        it.state_read_at = 15.0
        await until(16)
        assert len(it.sent()) == 1


@virtually
async def test_a_refused_mark_is_tried_again_until_its_timer_has_passed() -> None:
    """At most every 30 s, and every 2 s in the last half minute; it is told once, when it is too late."""
    it = AdoptingBody()
    it.api.ever["CHANGE"] = refused(422)
    it.shows(node(taint()), pod(tolerates(300)))
    async with running(it.adopter.run()):
        await until(299)
        sent = it.sent()
        assert sent[:5] == pytest.approx([239.9, 241, 243, 247, 255], abs=0.6)
        assert all(1.9 <= after - before <= 2.6 for before, after in zip(sent[-13:], sent[-12:], strict=False))
        assert it.reporter.of(AdoptionRefused) == []
        await until(320)
        ((told_at, told),) = it.reporter.of(AdoptionRefused)
        assert told_at == pytest.approx(300, abs=0.6)
        assert isinstance(told, AdoptionRefused)
        assert (told.ref, told.node_name, told.tries) == (ref(), "n1", len(sent))


@virtually
async def test_a_refused_mark_that_is_needed_no_more_is_told_as_nothing() -> None:
    """The taint goes, or the owner removes the seconds, which a read shows before the watch."""
    untainted, changed = pod(tolerates(300)), pod(tolerates(300), name="changed", uid="b")
    it = AdoptingBody()
    it.api.ever["CHANGE"] = refused(422)
    it.shows(node(taint()), node(taint(), name="n2"), untainted, replace(changed, node_name="n2"))
    async with running(it.adopter.run()):
        await until(240.5)
        assert it.adopter.refused().keys() == {untainted.ref, changed.ref}
        it.api.ever["CHANGE"] = How()
        it.door.pods[changed.ref] = replace(changed, tolerations=(tolerates(),))
        it.shows(node())
        await until(242)
        assert it.adopter.refused() == {}
        await until(320)
        assert it.reporter.of(AdoptionRefused) == it.reporter.of(CountdownAdopted) == []


@pytest.mark.parametrize("then", [pod(tolerates()), pod(tolerates(300), terminating=True)])
@virtually
async def test_a_mark_that_another_write_made_needless_is_told_as_nothing(then: Pod) -> None:
    """A write conflicts with that of somebody who removes the seconds, or the pod: it is read and decided on again."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    change = it.door.change

    async def conflicting(ref: PodRef, wanted: Callable[[Pod], CountdownChange | None]) -> Pod | None:
        assert wanted(it.door.pods[ref]) is not None
        it.door.pods[ref] = then
        return await change(ref, wanted)

    it.door.change = conflicting  # type: ignore[method-assign]
    async with running(it.adopter.run()):
        await until(241)
        assert len(it.sent()) == 1
        assert (it.reporter.of(CountdownAdopted), it.adopter.refused()) == ([], {})


@virtually
async def test_so_many_countdowns_are_taken_over_at_once_as_a_setting_says() -> None:
    """Each answer takes half a second, and the next write waits for it."""
    it = AdoptingBody()
    it.api.ever["CHANGE"] = admitted(0.5)
    it.shows(node(taint()))
    it.shows(*(pod(tolerates(30), name=f"web-{number}", uid=f"u{number}") for number in range(50)))
    async with running(it.adopter.run()):
        await until(20)
        sent, most = it.sent(), AdoptionSettings().parallelism
        assert len(sent) == 50
        assert all(later - earlier >= 0.5 for earlier, later in zip(sent, sent[most:], strict=False))


@pytest.mark.parametrize("status", [403, 422])
@virtually
async def test_what_admission_refuses_is_told_once_per_namespace(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """And that the API server does not answer is told once for all."""
    it = AdoptingBody()
    it.api.ever["CHANGE"] = refused(status)
    it.shows(node(taint()))
    for number in range(3):
        it.shows(pod(tolerates(30), name=f"web-{number}", uid=f"u{number}"))
    async with running(it.adopter.run()):
        await until(28)
        assert sum("in namespace shop cannot be taken over" in each.message for each in caplog.records) == 1
        it.api.ever["CHANGE"] = refused(503)
        await until(29.9)
    assert sum("does not let countdowns be taken over" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize("status", [401, 409, 429, 500, 503])
@virtually
async def test_a_busy_api_server_is_told_as_that(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody in the pod's namespace can do anything about it, unless the answer's text names an admission plugin."""
    it = AdoptingBody()
    it.api.ever["CHANGE"] = refused(status)
    it.shows(node(taint()), pod(tolerates(30)))
    async with running(it.adopter.run()):
        await until(25)
        assert [each.message[:14] for each in caplog.records] == ["the API server"]
        it.api.ever["CHANGE"] = replace(refused(status), failure="pod tolerations conflict with those of its namespace")
        await until(28)
    assert [each.message[:28] for each in caplog.records[1:]] == ["countdowns in namespace shop"]


@virtually
async def test_a_lost_note_is_written_again_by_a_leader_that_knows_it() -> None:
    """Somebody has removed the annotation; the mark alone would keep the pod for ever."""
    it = AdoptingBody()
    it.shows(node(taint()), TOLERANT)
    async with running(it.adopter.run()):
        await until(242)
        adopted = it.door.pods[ref()]
        alone = replace(adopted, adoption=None, tolerations=adopted.spec_tolerations, resource_version=50)
        it.shows(alone)
        assert it.adopter.lost_notes() == [ref()]
        await until(245)
        assert it.door.pods[ref()].adoption == Adoption(adopted.spec_tolerations, (0,))
        assert it.adopter.lost_notes() == []


@virtually
async def test_a_mark_of_unknown_origin_stays_as_it_is() -> None:
    """A tenant may write MaxInt64, too."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(MARK_SECONDS)))
    async with running(it.adopter.run()):
        await until(100)
        assert it.sent() == []
        assert it.adopter.unexplained() == [ref()]


@virtually
async def test_the_note_of_a_pod_is_not_that_of_its_successor() -> None:
    """Somebody recreates a pod from what the cluster had, without the annotation: the mark is its owner's word."""
    it = AdoptingBody()
    taken = marked(pod(tolerates(300)), 0)
    copied = replace(taken, ref=ref(uid="b"), tolerations=taken.spec_tolerations, adoption=None)
    it.shows(node(taint()), taken)
    async with running(it.adopter.run()):
        at(5, it.shows, copied)
        at(5, it.door.pods.pop, taken.ref)
        at(10, it.live.observe, PodGone(taken.ref))
        await until(100)
        assert (it.sent(), it.spec(copied.ref)) == ([], [MARK_SECONDS])
        assert (it.adopter.adopted_count(), it.adopter.unexplained()) == (0, [copied.ref])


@virtually
async def test_a_pod_gets_its_seconds_back_when_no_taint_has_its_mark_as_its_first_match() -> None:
    """The node is read live for it; of a node that is gone, nothing is given back."""
    it = AdoptingBody()
    other = marked(replace(pod(tolerates(30), name="other", uid="b"), node_name="n2"), 0)
    it.shows(node(taint()), node(taint(), name="n2"), marked(TOLERANT, 0), other)
    async with running(it.adopter.run()):
        await until(10)
        it.api.remove("n2")
        at(20, it.shows, node())
        await until(22)
        assert it.spec(ref()) == [300, 20, 200]
        assert it.spec(other.ref) == [MARK_SECONDS]
        assert [call.target for call in it.api.calls if call.verb == "GET node"] == ["n1"]
        assert [effect for _, effect in it.reporter.of(GivenBack)] == [GivenBack(ref(), "n1")]


@virtually
async def test_within_an_outage_nothing_is_given_back() -> None:
    """The node lifecycle controller takes its taint away and may set it again: a new leader waits, too."""
    it = AdoptingBody()
    down = replace(node(), ready=Readiness("Unknown"))
    it.shows(down, marked(pod(tolerates(300, UNREACHABLE)), 0), marked(pod(tolerates(30), name="k", uid="k"), 0))
    async with running(it.adopter.run()):
        await until(1790)
        assert it.spec(ref()) == [MARK_SECONDS]
        assert it.spec(ref("k", "k")) == [30]
        await until(1840)
        assert it.spec(ref()) == [300]


@virtually
async def test_a_leader_looks_for_notes_when_it_begins_once_more_and_every_hour() -> None:
    """A late write of a dead leader is found 75 s later, on nodes that nobody watches, too."""
    it = AdoptingBody()
    it.shows(node())
    async with running(it.adopter.run()):
        await until(60)
        it.door.pods[ref()] = marked(TOLERANT, 0)
        await until(85)
        assert it.spec(ref()) == [MARK_SECONDS, 20, 200]
        await until(90)
        assert it.spec(ref()) == [300, 20, 200]
        sent = it.sent()
        await until(7500)
        assert it.sent("LOOK") == pytest.approx([0.5, 75.5, 3675.5, 7275.5], abs=1.1)
        assert it.sent() == sent


@virtually
async def test_what_cannot_be_read_or_said_is_tried_again_after_some_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """A look and a pod whose node is gone each five seconds later; that somebody adopts soon, and then every four."""
    it = AdoptingBody()
    it.live.order(ControlState())
    it.api.ever["ADOPTS"] = refused(503)
    it.api.will("LOOK", refused(503))
    it.shows(node(taint()), marked(TOLERANT, 0))
    async with running(it.adopter.run()):
        await until(10)
        assert it.sent("LOOK") == pytest.approx([0.5, 5.5], abs=0.6)
        assert [each.levelname for each in caplog.records if "cannot be listed" in each.message] == ["WARNING"]
        it.live.observe(NodeGone("n1"))
        it.api.will("CHANGE", refused(503), refused(503))
        await until(113)
        assert it.sent() == pytest.approx([100.5, 105.5, 110.5], abs=0.6)
        assert it.sent("ADOPTS")[:6] == pytest.approx([0.5, 1.5, 3.5, 7.5, 11.5, 15.5], abs=0.3)


@virtually
async def test_a_leader_without_the_flag_gives_everything_back_and_then_says_so() -> None:
    """Whatever taints there are; the entry goes after a look that found nothing, 75 s after the Lease was taken."""
    it = AdoptingBody(enabled=False)
    it.shows(node(taint()), marked(TOLERANT, 0))
    async with running(it.adopter.run()):
        await until(5)
        assert it.spec(ref()) == [300, 20, 200]
        assert it.door.adopts == []
        await until(80)
        assert it.door.adopts == ["not me 1"]
        assert it.sent("POLICY") == []


@virtually
async def test_a_leader_without_the_right_says_what_it_cannot_give_back() -> None:
    """The entry stays, so that the next leader knows."""
    it = AdoptingBody(enabled=False)
    it.shows(node(taint()), marked(TOLERANT, 0))
    it.api.ever["CHANGE"] = refused(403)
    async with running(it.adopter.run()):
        await until(400)
        assert list(it.adopter.not_given_back()) == [ref()]
        assert it.door.adopts == []


@virtually
async def test_that_the_entry_cannot_be_removed_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again with each look."""
    it = AdoptingBody(enabled=False)
    it.api.ever["ADOPTS NO MORE"] = refused(403)
    it.shows(node())
    async with running(it.adopter.run()):
        await until(400)
        assert len(it.sent("ADOPTS NO MORE")) == 5
        assert sum("cannot be written" in each.message for each in caplog.records) == 1


@virtually
async def test_hand_back_is_confirmed_once_no_change_is_under_way() -> None:
    """Nothing is taken over or given back from then on; the confirmation is repeated until it is read."""
    it = AdoptingBody()
    it.api.ever["CHANGE"] = times_out(10)
    it.shows(node(taint()), pod(tolerates(300)))
    async with running(it.adopter.run()):
        await until(242)
        it.live.order(ControlState(adopter="me 1", no_adoption=ORDER))
        await until(245)
        assert it.sent("CONFIRM") == []
        await until(260)
        assert len(it.sent("CONFIRM")) == 1


@virtually
async def test_a_call_that_hangs_holds_up_only_itself() -> None:
    """The others are taken over meanwhile."""
    it = AdoptingBody()
    it.api.will("CHANGE", *[HANGS] * 12)
    it.shows(node(taint()))
    for number in range(40):
        it.shows(pod(tolerates(300), name=f"web-{number}", uid=f"u{number}"))
    async with running(it.adopter.run()):
        await until(245)
        assert it.adopter.adopted_count() == 28


@virtually
async def test_calls_that_hang_in_one_namespace_leave_places_for_others() -> None:
    """60 pods of a tenant take half of the 50 places; pods of others that come later are taken over in time."""
    it = AdoptingBody()
    it.api.ever["CHANGE"] = HANGS
    it.shows(node(taint()))
    for number in range(60):
        it.shows(pod(tolerates(300), name=f"evil-{number}", uid=f"evil-{number}", namespace="tenant"))
    async with running(it.adopter.run()):
        await until(245)
        assert 25 <= len(it.sent()) < 40
        it.api.ever["CHANGE"] = How()
        for number in range(8):
            it.shows(pod(tolerates(20), name=f"web-{number}", uid=f"web-{number}"))
        await until(257)
        assert it.adopter.adopted_count() == 8


@virtually
async def test_seconds_that_an_owner_sets_again_and_again_leave_places_for_others() -> None:
    """A tenant does so with 375 pods in five namespaces: those of others are taken over before their timers."""
    it = AdoptingBody()
    it.api.ever["CHANGE"] = admitted(0.5)
    evil = [
        pod(tolerates(40), name=f"evil-{number}", uid=f"evil-{number}", namespace=f"tenant-{number % 5}", version=1)
        for number in range(375)
    ]
    async with running(it.adopter.run()):
        await until(20)
        it.shows(node(taint()), *evil)
        for number in range(100):
            it.shows(pod(tolerates(60), name=f"web-{number}", uid=f"web-{number}"))
        await until(46)
        for number in range(34 * 150):
            await asyncio.sleep(1 / 150)
            set_again = evil[number % len(evil)]
            seen = it.door.pods[set_again.ref]
            it.live.observe(PodSeen(seen))
            it.shows(replace(set_again, resource_version=(seen.resource_version or 0) + 1))
        others = [each for ref, each in it.door.pods.items() if ref.key.namespace == "shop"]
        assert sum(each.adoption is not None for each in others) == 100


@pytest.mark.parametrize("hold_seconds", [None, math.inf])
@virtually
async def test_pods_that_an_owner_creates_without_end_leave_places_for_others(hold_seconds: float | None) -> None:
    """A tenant does so in five namespaces, with short tolerances: the countdowns of others are taken over in time."""
    it = AdoptingBody(brain=Controller(DecisionPolicy(max_hold_seconds=math.inf)))
    it.api.ever["CHANGE"] = admitted(0.9)
    async with running(it.adopter.run()):
        await until(20)
        it.shows(node(taint()))
        for number in range(50):
            it.shows(pod(tolerates(40), name=f"web-{number}", uid=f"web-{number}", bound_at=10.0))
        for number in range(38 * 40):
            await asyncio.sleep(1 / 40)
            name, namespace = f"evil-{number}", f"tenant-{number % 5}"
            late = pod(tolerates(12), name=name, uid=name, namespace=namespace, bound_at=20.0 + number / 40, version=1)
            it.shows(replace(late, hold_seconds=hold_seconds))
            if number >= 240:
                gone = f"evil-{number - 240}"
                it.live.observe(PodGone(ref(gone, gone, namespace)))
        others = [each for ref, each in it.door.pods.items() if ref.key.namespace == "shop"]
        assert sum(each.adoption is not None for each in others) == 50


@virtually
async def test_seconds_that_a_webhook_puts_back_are_told() -> None:
    """The API server says yes, and the pod is as it was."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(30)))
    change = it.door.change

    async def put_back(ref: PodRef, wanted: Callable[[Pod], CountdownChange | None]) -> Pod | None:
        before = it.door.pods[ref]
        found = await change(ref, wanted)
        it.door.pods[ref] = before
        return None if found is None else before

    it.door.change = put_back  # type: ignore[method-assign]
    async with running(it.adopter.run()):
        await until(25)
        assert "has put them back" in it.adopter.refused()[ref()]


@virtually
async def test_a_note_that_a_webhook_removes_stays_known() -> None:
    """The mark stands, and only this process knows what the seconds were: it writes the note again."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(30)))
    change = it.door.change

    async def stripped(ref: PodRef, wanted: Callable[[Pod], CountdownChange | None]) -> Pod | None:
        found = await change(ref, wanted)
        if found is None or found.adoption is None:
            return found
        it.door.pods[ref] = replace(found, adoption=None, tolerations=found.spec_tolerations)
        return it.door.pods[ref]

    it.door.change = stripped  # type: ignore[method-assign]
    async with running(it.adopter.run()):
        await until(25)
        assert "has removed the note" in it.adopter.refused()[ref()]
        assert it.adopter.lost_notes() == [ref()]
        it.door.change = change  # type: ignore[method-assign]
        await until(90)
        assert it.door.pods[ref()].adoption == Adoption((tolerates(MARK_SECONDS),), (0,))
        assert it.adopter.lost_notes() == []


@virtually
async def test_a_mark_that_hangs_leaves_time_for_another_one() -> None:
    """It is given up when half of the time to the timer is over."""
    it = AdoptingBody()
    it.api.will("CHANGE", HANGS)
    it.shows(node(taint()), pod(tolerates(30)))
    async with running(it.adopter.run()):
        await until(29.9)
        assert it.sent() == pytest.approx([19.9, 26], abs=0.1)
        assert it.adopter.adopted_count() == 1


@virtually
async def test_a_pod_with_too_many_tolerations_is_told() -> None:
    """Nothing is tried; that the built-in controller evicts it is told once, at its timer."""
    it = AdoptingBody()
    raw = [{"key": taint().key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
    many, _ = read_tolerations(raw + [{"key": f"other-{number}", "operator": "Exists"} for number in range(64)])
    it.shows(node(taint()), replace(pod(), tolerations=many))
    async with running(it.adopter.run()):
        await until(29)
        assert "more tolerations than a note may name" in it.adopter.refused()[ref()]
        assert it.reporter.of(AdoptionRefused) == []
        await until(60)
        assert [round(at) for at, _ in it.reporter.of(AdoptionRefused)] == [30]
        assert it.sent() == []


@virtually
async def test_a_dry_run_says_what_it_leaves(caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing, and neither evicts these pods nor lets the built-in controller do it."""
    it = AdoptingBody(enabled=False, dry_run=True)
    it.shows(node(taint()), marked(TOLERANT, 0))
    async with running(it.adopter.run()):
        await until(400)
        assert list(it.adopter.not_given_back()) == [ref()]
        assert it.spec(ref()) == [MARK_SECONDS, 20, 200]
        assert it.door.adopts == []
    assert "which changes nothing" in caplog.text


@virtually
async def test_a_pod_that_is_gone_is_forgotten() -> None:
    """It counts no more, and nothing is tried for it."""
    it = AdoptingBody()
    it.shows(node(taint()), marked(TOLERANT, 0))
    async with running(it.adopter.run()):
        await until(1)
        assert it.adopter.adopted_count() == 1
        del it.door.pods[ref()]
        it.live.observe(PodGone(ref()))
        assert it.adopter.adopted_count() == 0


@virtually
async def test_a_pod_that_goes_with_its_node_is_forgotten() -> None:
    """The pod garbage collector removes it when nobody watches the pods of that node any more."""
    it = AdoptingBody()
    it.shows(node(taint()), marked(TOLERANT, 0))
    async with running(it.adopter.run()):
        await until(1)
        it.live.observe(NodeGone("n1"))
        del it.door.pods[ref()]
        assert it.adopter.adopted_count() == 1
        await until(92)
        assert it.adopter.adopted_count() == 0
