"""Short builders for what the core is told, and a stage on which a controller plays in virtual time."""

from collections.abc import Mapping

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import ControlState, Latch
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy, Evict, SeenTaint, TaintVerdict
from taint_eviction.core.events import Done, Event, Eviction, TakeBack, Work, WorkOutcome
from taint_eviction.core.facts import Fact, NodeSeen, PodGone, PodSeen, PodsSwept
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.instants import Moment, Sighting, TimeSource
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.leaving_order import LeavingOrder
from taint_eviction.core.objects import (
    NO_EXECUTE,
    NO_SCHEDULE,
    ControllerRef,
    NamespacedName,
    Node,
    Pod,
    PodRef,
    Taint,
    Toleration,
)
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.status import Explanation

NOTHING_ORDERED = ControlState()

# What the API server's clock shows at instant 0: instants and object times can't be mixed up unnoticed.
EPOCH = 1_900_000_000.0


def moment(at: float) -> Moment:
    """The instant ``at`` on a clock that is anchored exactly."""
    return Moment(at, EPOCH + at)


def epoch(at: float) -> float:
    """The object time of an instant."""
    return EPOCH + at


def own_latch(since_epoch: float, cause: str) -> Latch:
    """The latch of a breaker that has opened by itself, in a process without a name."""
    return Latch(since_epoch, cause, controller="this controller")


def ref(name: str = "web-0", uid: str = "a", namespace: str = "shop") -> PodRef:
    """One pod."""
    return PodRef(NamespacedName(namespace, name), uid)


def taint(key: str = "k1", value: str = "", effect: str = NO_EXECUTE, added_at: float | None = None) -> Taint:
    """A NoExecute taint; ``added_at`` is an instant."""
    return Taint(key, effect, value, None if added_at is None else epoch(added_at))


def no_schedule(key: str = "k1") -> Taint:
    """A taint that touches no running pod."""
    return taint(key, effect=NO_SCHEDULE)


def tolerates(seconds: int | None = None, key: str = "k1") -> Toleration:
    """A toleration of every value of a key, None: indefinitely."""
    return Toleration(key, "Exists", toleration_seconds=seconds)


def node(
    *taints: Taint,
    name: str = "n1",
    uid: str | None = None,
    written_at: float | None = None,
    version: int | None = None,
) -> Node:
    """A node; ``written_at`` is an instant."""
    return Node(name, uid or f"uid-{name}", taints, None if written_at is None else epoch(written_at), version)


def pod(
    *tolerations: Toleration,
    name: str = "web-0",
    uid: str = "a",
    on: str | None = "n1",
    bound_at: float | None = None,
    version: int | None = None,
    terminating: bool = False,
    finished: bool = False,
    mirror: bool = False,
    marked: bool = False,
    hold_seconds: float | None = None,
    namespace: str = "shop",
    labels: Mapping[str, str] | None = None,
    controller: ControllerRef | None = None,
    priority: int = 0,
    created_at: float | None = None,
    deletion: tuple[float, float] | None = None,
) -> Pod:
    """A pod on node ``on``; ``bound_at`` is an instant. ``deletion``: when it is requested and when its grace ends."""
    return Pod(
        ref(name, uid, namespace),
        on,
        tolerations,
        None if bound_at is None else epoch(bound_at),
        TimeSource.POD_SCHEDULED,
        version,
        terminating,
        finished,
        mirror,
        marked,
        hold_seconds,
        labels or {},
        controller,
        None if deletion is None else epoch(deletion[0]),
        deletion_ends_at=None if deletion is None else epoch(deletion[1]),
        created_at=None if created_at is None else epoch(created_at),
        priority=priority,
    )


def no_order() -> LeavingOrder:
    """The order of pods that wait for nobody."""
    return LeavingOrder(EvictionPolicy(), KnownNodes(GoneObjects()), (), lambda *_: 0.0)


def since(at: float, source: TimeSource = TimeSource.FIRST_SIGHT) -> Sighting:
    """Something that has been so since ``at``."""
    return Sighting(at, source, None)


def seen(which: Taint, at: float = 0.0) -> SeenTaint:
    """A taint that has been on its node since ``at``."""
    return SeenTaint(which, since(at))


class Stage:
    """A controller, what time it is, and short ways to tell and ask it; time only goes forward."""

    def __init__(
        self,
        policy: DecisionPolicy | None = None,
        *,
        eviction: EvictionPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        control_state: ControlState | None = NOTHING_ORDERED,
        dry_run: bool = False,
    ) -> None:
        self.brain = Controller(policy, dry_run, eviction_policy=eviction, breaker=breaker, control_state=control_state)
        self.now = 0.0

    def at(self, seconds: float) -> "Stage":
        """Let it be ``seconds``."""
        assert seconds >= self.now, "time goes forward"
        self.now = seconds
        return self

    def observe(self, *facts: Fact) -> list[Event]:
        """Tell facts now."""
        return [effect for fact in facts for effect in self.brain.observe(fact, moment(self.now))]

    def sees(self, *objects: Node | Pod) -> list[Event]:
        """Tell objects as a watch does."""
        return self.observe(*(NodeSeen(told) if isinstance(told, Node) else PodSeen(told) for told in objects))

    def lists(self, *node_names: str) -> list[Event]:
        """Tell the end of a list of each node's pods, asked for now, that has brought all that are known."""
        pods = {name: frozenset(known.pod.ref.uid for known in self.brain.pods.on_node(name)) for name in node_names}
        return self.observe(*(PodsSwept(name, uids, self.now, None) for name, uids in pods.items()))

    def deadlines(self) -> dict[str, float]:
        """When each pod is to leave, by UID."""
        return {one.record.pod.ref.uid: one.decision.fire_at for one in self.brain.status.pending(moment(self.now))}

    def take(self, most: int = 100, max_retries: int = 50) -> list[Work]:
        """Begin what is due now."""
        return self.brain.attempts.take_due(moment(self.now), most, max_retries)

    def take_eviction(self) -> Eviction:
        """Begin the one eviction that is due now."""
        [work] = self.take()
        assert isinstance(work, Eviction)
        return work

    def take_take_back(self) -> TakeBack:
        """Begin the one take-back that is due now."""
        [work] = self.take()
        assert isinstance(work, TakeBack)
        return work

    def order(self, control_state: ControlState) -> list[Event]:
        """Tell what people have ordered now."""
        return self.brain.order(control_state, moment(self.now))

    def evaluate(self, term: int = 0) -> list[Event]:
        """Let the circuit breaker look now."""
        return self.brain.evaluate(moment(self.now), term)

    def change_policy(self, policy: EvictionPolicy) -> list[Event]:
        """Let another policy of evicting hold from now on."""
        return self.brain.change_policy(policy, moment(self.now))

    def next_at(self) -> float | None:
        """When something is due next."""
        return self.brain.attempts.next_at(moment(self.now))

    def send(self, work: Work) -> None:
        """Send the request that ends the pod now."""
        self.brain.attempts.will_delete(work.ref, moment(self.now))

    def explain(self, uid: str = "a") -> Explanation:
        """All there is to say now about a pod, which must be known, by its UID."""
        [key] = [key for key, known in self.brain.pods.known.items() if known.pod.ref.uid == uid]
        explanation = self.brain.status.explain(key, moment(self.now))
        assert explanation is not None
        return explanation

    def decide_again(self, work: Work) -> bool:
        """Ask whether work in flight is still wanted now."""
        return self.brain.attempts.recheck(work, moment(self.now)) is None

    def finish(self, work: Work, outcome: WorkOutcome) -> list[Event]:
        """Tell how a piece of work has ended now."""
        return self.brain.attempts.finish(work, outcome, moment(self.now))

    def play(self, until: float) -> list[tuple[float, str]]:
        """Evict all that is due up to ``until``, each pod vanishing at once; list instant and UID of each."""
        gone: list[tuple[float, str]] = []
        while (next_at := self.brain.attempts.next_at(moment(self.now))) is not None and next_at <= until:
            self.at(max(self.now, next_at))
            for work in self.take():
                assert isinstance(work, Eviction)
                assert self.decide_again(work)
                self.send(work)
                self.finish(work, Done())
                self.observe(PodGone(work.ref))
                gone.append((self.now, work.ref.uid))
        self.at(until)
        return gone


async def at_once() -> None:
    """Have nothing against a call that ends a pod."""


def decided(at: float = 0.0, key: str = "k1") -> Evict:
    """Make a decision to evict a pod that does not tolerate a taint with this key."""
    verdict = TaintVerdict(taint(key), None, None, at, TimeSource.FIRST_SIGHT, at)
    return Evict(at, verdict, (verdict,))
