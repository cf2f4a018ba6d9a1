"""Which countdowns the leader adopts and when, what it gives back, and when it confirms that it adopts nothing."""

from collections.abc import Callable, Collection
from dataclasses import replace

from tests.unit.builders import EPOCH, node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import HANGS, Body, How, at, refused, running, slow, until, virtually

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.effects import AdoptionRefused, CountdownAdopted, GivenBack
from taint_eviction.core.facts import NodeSeen, PodSeen
from taint_eviction.core.objects import (
    UNREACHABLE,
    Adoption,
    Node,
    Pod,
    PodRef,
    Readiness,
    Taint,
    Toleration,
)
from taint_eviction.runtime.adopter import Adopter, AdoptionHints
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import AdoptionSettings

ORDER = Pause(EPOCH)


def adopted(before: Pod, *places: int) -> Pod:
    """Return a pod without the seconds at these places; all its tolerations count as before."""
    bare = tuple(
        replace(each, toleration_seconds=None) if place in places else each
        for place, each in enumerate(before.spec_tolerations)
    )
    return replace(before, adoption=Adoption(bare, places))


class FakeDoor:
    """Keeps pods, and carries calls over the wire of ``body``. ``puts_back``: a webhook undoes each adoption."""

    def __init__(self, body: Body) -> None:
        self._wire = body.api
        self.pods: dict[PodRef, Pod] = {}
        self.puts_back = False

    async def adopt(self, ref: PodRef, places: Callable[[Pod], Collection[int]]) -> Pod | None:
        """Take seconds."""

        def effect() -> Pod | None:
            if (found := self.pods.get(ref)) is not None and (taken := places(found)):
                if self.puts_back:
                    raise CallFailed("somebody has put them back")
                before = () if found.adoption is None else found.adoption.by_controller
                self.pods[ref] = adopted(found, *before, *taken)
            return self.pods.get(ref)

        return await self._wire.carry("ADOPT", ref.uid, effect)

    async def list_adopted(self) -> list[Pod]:
        """List."""
        return await self._wire.carry(
            "LIST adopted", "", lambda: [each for each in self.pods.values() if each.adoption is not None]
        )

    async def give_back(self, ref: PodRef, wanted: Callable[[Pod], bool]) -> Pod | None:
        """Give seconds back."""

        def effect() -> Pod | None:
            if (found := self.pods.get(ref)) is not None and wanted(found):
                self.pods[ref] = replace(found, adoption=None)
            return self.pods.get(ref)

        return await self._wire.carry("GIVE BACK", ref.uid, effect)

    async def confirm_no_adoption(self) -> None:
        """Confirm."""
        await self._wire.carry("CONFIRM", "", lambda: None)


class AdoptingBody(Body):
    """A body with an adopter that has known the control state as leader since 0."""

    def __init__(self, enabled: bool = True, parallelism: int = 10) -> None:
        super().__init__()
        hints = AdoptionHints()
        self.live = LiveController(self.brain, self.clock, [self.reporter, hints], lambda fact, _now: hints.heard(fact))
        self.node_reads = NodeReads(self.api, self.live, serves_seconds=1.0)
        self.door = FakeDoor(self)
        self.state_read_at: float | None = 0.0
        self.adopter = Adopter(
            self.live,
            self.door,
            self.node_reads,
            self.gate,
            hints,
            state_read_at=lambda: self.state_read_at,
            settings=AdoptionSettings(enabled, parallelism=parallelism),
        )

    def shows(self, *objects: Node | Pod) -> None:
        """Let objects be so in the cluster, and tell them as a watch does."""
        for each in objects:
            if isinstance(each, Node):
                self.api.put(each)
                self.live.observe(NodeSeen(self.api.nodes[each.name]))
            else:
                self.door.pods[each.ref] = each
                self.live.observe(PodSeen(each))

    def sent(self, verb: str) -> list[tuple[float, str]]:
        """List when which pod was concerned by such a call."""
        return [(call.at, call.target) for call in self.api.calls if call.verb == verb]


@virtually
async def test_a_countdown_is_adopted_as_soon_as_it_is_known() -> None:
    """Hints are gathered for 0.02 s, then the node is read live; the deadline stays, and each toleration counts."""
    it = AdoptingBody()
    async with running(it.adopter.run()):
        await until(20)
        it.shows(node(taint()), pod(tolerates(300), tolerates(20), tolerates(20, "k2")))
        await until(20.1)
        assert [(call.at, call.verb) for call in it.api.calls if call.verb != "LIST adopted"] == [
            (20.02, "GET node"),
            (20.02, "ADOPT"),
        ]
        assert it.reporter.of(CountdownAdopted) == [(20.02, CountdownAdopted(ref(), "n1", 2))]
        record = it.brain.pods.find(ref())
        assert record is not None
        assert record.decision is not None
        assert record.decision.fire_at == 320
        await until(60)
        assert it.sent("ADOPT") == [(20.02, "a")]
        assert it.adopter.adopted_count() == 1


@virtually
async def test_the_nearest_deadline_is_adopted_first() -> None:
    """One after the other, if only one may be changed at a time; in whichever order they were seen."""
    it = AdoptingBody(parallelism=1)
    it.api.ever["ADOPT"] = slow(1)
    it.shows(node(taint()))
    for seconds in (90, 30, 60, 20):
        it.shows(pod(tolerates(seconds), name=f"web-{seconds}", uid=str(seconds)))
    async with running(it.adopter.run()):
        await until(10)
    assert it.sent("ADOPT") == [(0, "20"), (1, "30"), (2, "60"), (3, "90")]


@virtually
async def test_some_pods_are_never_adopted() -> None:
    """Whose time is nearly up, or never is; whoever does not tolerate a taint; who ends anyway; our own replicas."""
    it = AdoptingBody()
    own = {"app.kubernetes.io/name": "taint-eviction-controller"}
    it.shows(
        node(taint(), taint("k2")),
        pod(tolerates(9), tolerates(300, "k2"), name="soon", uid="1"),
        pod(tolerates(300), name="one-taint", uid="2"),
        pod(tolerates(), tolerates(None, "k2"), name="never", uid="3"),
        pod(tolerates(300), tolerates(300, "k2"), name="mirror", uid="4", mirror=True),
        pod(tolerates(300), tolerates(300, "k2"), name="finished", uid="5", finished=True),
        pod(tolerates(300), tolerates(300, "k2"), name="ending", uid="6", terminating=True),
        pod(tolerates(300), tolerates(300, "k2"), name="ours", uid="7", labels=own),
        pod(tolerates(300), tolerates(300, "k2"), name="adopted", uid="8"),
    )
    async with running(it.adopter.run()):
        await until(30)
    assert it.sent("ADOPT") == [(0, "8")]


@virtually
async def test_a_pod_whose_owner_holds_it_is_adopted() -> None:
    """The built-in controller knows no holds."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300), hold_seconds=float("inf")))
    async with running(it.adopter.run()):
        await until(1)
    assert it.sent("ADOPT") == [(0, "a")]


@virtually
async def test_only_the_leader_adopts_and_only_once_it_has_read_the_control_state_as_leader() -> None:
    """What it read before may be from before hand-back was ordered."""
    it = AdoptingBody()
    it.gate.open = False
    it.shows(node(taint()), pod(tolerates(300)))
    at(5, setattr, it.gate, "open", True)
    at(8, setattr, it, "state_read_at", 4.9)
    at(9.25, setattr, it, "state_read_at", 9.2)
    async with running(it.adopter.run()):
        await until(20)
    assert it.sent("ADOPT") == [(9.5, "a")]


@virtually
async def test_a_node_that_cannot_be_read_is_left_to_the_built_in_controller_and_tried_again() -> None:
    """Told once; the wait doubles."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    it.api.will("GET node", refused(500), refused(500), refused(500))
    async with running(it.adopter.run()):
        await until(20)
    assert [at for at, _ in it.api.sent("GET node")] == [0, 1, 3, 7]
    assert it.sent("ADOPT") == [(7, "a")]
    assert it.reporter.of(AdoptionRefused) == [(0, AdoptionRefused(ref(), "n1", "refused with 500", 1))]
    assert it.reporter.of(CountdownAdopted) == [(7, CountdownAdopted(ref(), "n1", 1))]
    assert it.adopter.refused() == {}


@virtually
async def test_seconds_that_a_webhook_puts_back_are_told() -> None:
    """The API server says yes, and the pod is as it was."""
    it = AdoptingBody()
    it.door.puts_back = True
    it.shows(node(taint()), pod(tolerates(300)))
    async with running(it.adopter.run()):
        await until(4)
        assert it.adopter.refused() == {ref(): "somebody has put them back"}
    assert [at for at, _ in it.sent("ADOPT")] == [0, 1, 3]


@virtually
async def test_an_answer_that_is_lost_is_made_up_for() -> None:
    """The next try finds the pod adopted, and says so."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    it.api.will("ADOPT", How(failure="connection reset"))
    async with running(it.adopter.run()):
        await until(20)
    assert [at for at, _ in it.sent("ADOPT")] == [0, 1]
    assert it.reporter.of(CountdownAdopted) == [(1, CountdownAdopted(ref(), "n1", 1))]


@virtually
async def test_a_taint_that_goes_while_the_node_is_read_calls_the_adoption_off() -> None:
    """It is decided once more when the pod has just been read."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    it.api.will("ADOPT", How(effect_after=1.0))
    at(0.5, it.shows, node())
    async with running(it.adopter.run()):
        await until(9)
    assert it.door.pods[ref()].adoption is None
    assert it.reporter.of(CountdownAdopted) == []


@virtually
async def test_a_pod_gets_its_seconds_back_when_no_taint_matches_any_more() -> None:
    """Soon after the taint is gone; the adopted pods are listed for that."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    async with running(it.adopter.run()):
        await until(30)
        it.shows(node())
        await until(32)
    assert it.reporter.of(GivenBack) == [(30.5, GivenBack(ref(), "n1"))]
    assert it.door.pods[ref()].adoption is None
    assert [at for at, _ in it.sent("LIST adopted")] == [0, 30.5]


@virtually
async def test_a_new_leader_gives_back_what_nobody_has_looked_after() -> None:
    """The taint went while there was no controller. What admission took stays, as do pods of unknown nodes."""
    it = AdoptingBody()
    it.shows(node())
    for uid, by, on in (("1", "controller", "n1"), ("2", "admission", "n1"), ("3", "controller", "unknown")):
        before = pod(tolerates(300), name=f"web-{uid}", uid=uid, on=on)
        places = {"controller": ((0,), ()), "admission": ((), (0,))}[by]
        it.door.pods[before.ref] = replace(before, adoption=Adoption((tolerates(),), *places))
    async with running(it.adopter.run()):
        await until(1)
    assert it.sent("GIVE BACK") == [(0, "1")]


@virtually
async def test_a_list_that_fails_is_tried_again_soon() -> None:
    """And then every ten minutes."""
    it = AdoptingBody()
    it.api.will("LIST adopted", refused(500))
    async with running(it.adopter.run()):
        await until(1210)
    assert [at for at, _ in it.sent("LIST adopted")] == [0, 5, 605, 1205]


@virtually
async def test_within_an_outage_nothing_is_given_back() -> None:
    """The node lifecycle controller takes its taint away and may set it again: the countdown goes on."""
    it = AdoptingBody()
    down = Readiness("Unknown", EPOCH - 100)
    other = replace(node(name="n2"), ready=Readiness("True", EPOCH - 1000))
    tainted = replace(node(Taint(UNREACHABLE, "NoExecute")), ready=down)
    it.shows(other, tainted)
    async with running(it.adopter.run()):
        await until(40)
        it.shows(pod(Toleration(UNREACHABLE, "Exists", toleration_seconds=300)))
        await until(41)
        assert it.door.pods[ref()].adoption is not None
        it.shows(replace(node(), ready=down))
        await until(60)
        assert it.reporter.of(GivenBack) == []
        it.shows(replace(node(), ready=Readiness("True", EPOCH + 60)))
        await until(700)
    assert [each for _, each in it.reporter.of(GivenBack)] == [GivenBack(ref(), "n1")]


@virtually
async def test_hand_back_is_confirmed_once_no_change_is_under_way() -> None:
    """Nothing is adopted or given back from then on; the confirmation is repeated until it is read."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    it.api.will("ADOPT", slow(3))
    it.api.will("CONFIRM", refused(500))
    order = ControlState(no_adoption=ORDER)
    at(1, it.live.order, order)
    at(1, it.shows, pod(tolerates(300), name="web-1", uid="b"))
    at(20, it.live.order, replace(order, no_adoption_confirmed_by="me"))
    async with running(it.adopter.run()):
        await until(2)
        assert it.adopter.stopped_by == ORDER
        await until(19)
        assert [at for at, _ in it.sent("CONFIRM")] == [3, 4]
        await until(30)
        assert [at for at, _ in it.sent("CONFIRM")] == [3, 4, 20]
    assert it.sent("ADOPT") == [(0, "a")]


@virtually
async def test_hand_back_is_confirmed_by_the_leader_with_adoption_switched_off_too() -> None:
    """It makes no other call."""
    it = AdoptingBody(enabled=False)
    it.shows(node(taint()), pod(tolerates(300)))
    it.gate.open = False
    it.live.order(ControlState(no_adoption=ORDER))
    at(10, setattr, it.gate, "open", True)
    async with running(it.adopter.run()):
        await until(60)
    assert it.api.sent() == [(10, "CONFIRM")]


@virtually
async def test_a_call_that_hangs_holds_up_only_itself() -> None:
    """The others are adopted meanwhile."""
    it = AdoptingBody(parallelism=2)
    it.api.will("ADOPT", HANGS)
    it.shows(node(taint()))
    for uid in "abc":
        it.shows(pod(tolerates(300), name=f"web-{uid}", uid=uid))
    async with running(it.adopter.run()):
        await until(1)
    assert it.sent("ADOPT") == [(0, "a"), (0, "b"), (0, "c")]


@virtually
async def test_each_further_countdown_of_a_pod_is_adopted_while_the_first_is_held() -> None:
    """A second taint's, and that of seconds which somebody sets again: a pause holds the pod, whatever is overdue."""
    it = AdoptingBody()
    it.live.order(ControlState(cluster=Pause(EPOCH)))
    it.shows(node(taint()), pod(tolerates(30), tolerates(60, "k2")))
    async with running(it.adopter.run()):
        await until(40.3)
        it.shows(node(taint(), taint("k2")))
        await until(45)
        assert [at for at, _ in it.sent("ADOPT")] == [0, 40.52]
        it.shows(replace(it.door.pods[ref()], adoption=Adoption((tolerates(30), tolerates(None, "k2")), (1,))))
        await until(60)
    assert [at for at, _ in it.sent("ADOPT")] == [0, 40.52, 45.02]
    assert len(it.reporter.of(CountdownAdopted)) == 3


@virtually
async def test_pods_whose_calls_hang_do_not_starve_others() -> None:
    """A call that waits for a second lends its worker, and first tries go before retries."""
    it = AdoptingBody()
    it.api.ever["ADOPT"] = How(None, 10.0, "no answer in time")
    it.shows(node(taint()))
    for number in range(60):
        it.shows(pod(tolerates(200), name=f"hangs-{number}", uid=f"hangs-{number}"))
    async with running(it.adopter.run()):
        await until(20)
        it.shows(pod(tolerates(300), name="web", uid="healthy"))
        await until(25)
    assert min(at for at, uid in it.sent("ADOPT") if uid == "healthy") <= 24


@virtually
async def test_a_nearer_deadline_gives_a_waiting_pod_a_nearer_turn() -> None:
    """The queue is long, and another taint makes it urgent."""
    it = AdoptingBody(parallelism=1)
    it.api.ever["ADOPT"] = slow(0.9)
    it.shows(node(taint()))
    for number in range(30):
        it.shows(pod(tolerates(100), name=f"web-{number}", uid=str(number)))
    it.shows(pod(tolerates(300), tolerates(20, "k2"), name="urgent", uid="urgent"))
    async with running(it.adopter.run()):
        await until(2)
        it.shows(node(taint(), taint("k2")))
        await until(6)
    assert "urgent" in [uid for _, uid in it.sent("ADOPT")]


@virtually
async def test_a_pod_that_cannot_be_given_back_is_tried_less_and_less_often() -> None:
    """And does not have all adopted pods listed again every few seconds."""
    it = AdoptingBody()
    it.api.ever["GIVE BACK"] = refused(403)
    it.shows(node())
    it.door.pods[ref()] = adopted(pod(tolerates(300)), 0)
    async with running(it.adopter.run()):
        await until(200)
    assert [at for at, _ in it.sent("GIVE BACK")] == [0, 5, 15, 35, 75, 155]
    assert len(it.sent("LIST adopted")) == 6


@virtually
async def test_a_pod_whose_taint_has_come_back_is_no_longer_to_be_given_back() -> None:
    """So one attempt that failed does not have all adopted pods listed every few seconds from then on."""
    it = AdoptingBody()
    it.api.ever["GIVE BACK"] = refused(403)
    it.shows(node())
    it.door.pods[ref()] = adopted(pod(tolerates(300)), 0)
    async with running(it.adopter.run()):
        await until(3)
        it.shows(node(taint()))
        await until(200)
    assert it.sent("LIST adopted") == [(0, ""), (5, "")]


@virtually
async def test_a_refusal_is_forgotten_once_there_is_nothing_to_adopt() -> None:
    """Another taint keeps the pod known, which tolerates it indefinitely."""
    it = AdoptingBody()
    it.api.ever["ADOPT"] = refused(403)
    it.shows(node(taint("dedicated"), taint()), pod(tolerates(None, "dedicated"), tolerates(300)))
    async with running(it.adopter.run()):
        await until(1)
        assert list(it.adopter.refused()) == [ref()]
        it.shows(node(taint("dedicated")))
        await until(12)
        assert it.adopter.refused() == {}


@virtually
async def test_somebody_who_sets_seconds_again_and_again_is_told_of() -> None:
    """The controller does not fight for ever."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    async with running(it.adopter.run()):
        for second in range(1, 20):
            await until(second)
            it.shows(pod(tolerates(300)))
        assert list(it.adopter.refused()) == [ref()]
    assert len(it.sent("ADOPT")) < 12


@virtually
async def test_a_process_that_leads_no_longer_says_nothing_of_refusals() -> None:
    """The next leader tries for itself."""
    it = AdoptingBody()
    it.api.ever["ADOPT"] = refused(403)
    it.shows(node(taint()), pod(tolerates(300)))
    async with running(it.adopter.run()):
        await until(1)
        assert list(it.adopter.refused()) == [ref()]
        it.gate.open = False
        await until(2)
        assert it.adopter.refused() == {}


@virtually
async def test_a_taint_that_goes_during_the_change_costs_no_ten_minutes() -> None:
    """The pod is adopted on a node that is clean by then, and given back within seconds."""
    it = AdoptingBody()
    it.shows(node(taint()), pod(tolerates(300)))
    it.api.will("ADOPT", slow(3))
    at(1, it.shows, node())
    async with running(it.adopter.run()):
        await until(15)
    assert it.door.pods[ref()].adoption is None
