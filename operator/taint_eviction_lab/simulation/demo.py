"""The demo's story: two clusters in which the same happens, and the expected result in each.

In one, a model of the built-in controller evicts; in the other, this project's controller. The facts come from the API
servers: which deletions they accepted. ``cli.demo`` adds what the two controllers report of their plans.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from fake_apiserver import ApiServer, Fault, LoggedRequest, node_object

# A deadline counts as met when the DELETE arrives within this many seconds of it: after a restart the controller is up
# to 1.5 s late, since times in objects are whole seconds, and the breaker takes another half.
IN_TIME_SECONDS = 2.5
_EARLY_SECONDS = 0.05

NAMESPACE, TAINT_KEY = "demo", "maintenance"
SPARED_NODES = ("node-y", "node-z")
_WEBHOOK = 'Internal error occurred: failed calling webhook "policy.example.com": connection refused'


class Side(Enum):
    """Where something happens; the value is how it is written."""

    BOTH = "both"
    BUILT_IN = "built-in"
    OWN = "this one"


@dataclass(frozen=True, slots=True)
class DemoFact:
    """One thing that happened, ``at`` seconds since the story began.

    ``pod`` is "" if the fact is about no single pod, ``text`` is "" if its line would say nothing new. ``due_at``: of a
    ``due`` fact until when a controller counts down, by its own word; of a ``deadline`` fact when the pod is due, by
    what was done in both clusters.
    """

    at: float
    side: Side
    what: str
    text: str
    pod: str = ""
    uid: str = ""
    due_at: float | None = None


@dataclass(frozen=True, slots=True)
class DemoPod:
    """A pod of the demo; ``seconds``: how long it tolerates the taint, 0 not at all."""

    name: str
    node: str
    seconds: int
    about: str

    def body(self) -> dict[str, Any]:
        """Write the pod as Kubernetes has it."""
        spec = {"nodeName": self.node, "containers": [{"name": "main", "image": "pause"}]}
        return {
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {**spec, "tolerations": tolerations(self.seconds)},
        }


WEB = DemoPod("web", "node-a", 0, "tolerates no taint")
CACHE = DemoPod("cache", "node-a", 10, "tolerates it for 10 s")
DB = DemoPod("db", "node-a", 20, "tolerates it for 20 s")
API = DemoPod("api", "node-b", 0, "no taint; is refused")
QUEUE = DemoPod("queue-0", "node-b", 2, "2 s; is recreated")
SHOPS = tuple(DemoPod(f"shop-{number}", f"node-{number}", 0, "8 pods on 8 nodes") for number in range(1, 9))

DB_SHORTENED_SECONDS = 11
# The name of the one row for all shops.
SHOP = "shop"


def tolerations(seconds: int) -> list[dict[str, Any]]:
    """Return tolerations of the taint for these seconds; 0: none."""
    exists = {"key": TAINT_KEY, "operator": "Exists", "effect": "NoExecute"}
    return [{**exists, "tolerationSeconds": seconds}] if seconds else []


@dataclass
class DemoCluster:
    """One of the two clusters; ``report`` receives what its API server sees, ``now`` returns the story's second."""

    server: ApiServer
    side: Side
    pods: tuple[DemoPod, ...]
    now: Callable[[], float]
    report: Callable[[DemoFact], None]
    evicted: dict[str, list[float]] = field(default_factory=dict)
    uids: dict[str, list[str]] = field(default_factory=dict)
    _refusing: Fault | None = None

    def prepare(self) -> None:
        """Create nodes and pods."""
        for name in sorted({*(pod.node for pod in self.pods), *SPARED_NODES}):
            self.server.create("nodes", node_object(name, self.server.clock.timestamp()))
        for pod in self.pods:
            self.server.create("pods", pod.body())
        if QUEUE in self.pods:
            self.server.recreate_when_gone(NAMESPACE, QUEUE.name, node=QUEUE.node, times=1)
        self.server.store.subscribe(self._changed)
        self.server.requests.subscribe(self._answered)

    def taint(self, *nodes: str) -> None:
        """Taint nodes, one after another."""
        for node in nodes:
            self.server.taint(node, TAINT_KEY, "now")

    def shorten(self, pod: DemoPod, seconds: int) -> None:
        """Change how long a pod tolerates the taint."""
        body = self.server.get("pods", pod.name, NAMESPACE)
        if body is not None:
            own = [each for each in body["spec"]["tolerations"] if each.get("key") != TAINT_KEY]
            spec = {**body["spec"], "tolerations": [*own, *tolerations(seconds)]}
            self.server.update("pods", {**body, "spec": spec})

    def refuse_deletions(self, refuse: bool) -> None:
        """Let a webhook that is down refuse all deletions of pods, or end that."""
        if refuse:
            self._refusing = self.server.faults.add(verb="delete", resource="pods", status=500, message=_WEBHOOK)
        elif self._refusing is not None:
            self.server.faults.remove(self._refusing)

    def _changed(self, change: Any) -> None:
        record = change.new
        if record.resource.plural == "pods" and record.namespace == NAMESPACE and change.type == "ADDED":
            text = f"{record.name} is recreated under its name"
            self.report(DemoFact(self.now(), self.side, "recreated", text, record.name, record.uid))

    def _answered(self, request: LoggedRequest) -> None:
        asked = (request.verb, request.resource, request.namespace, request.code)
        if asked != ("delete", "pods", NAMESPACE, 200):
            return
        at = self.now()
        self.evicted.setdefault(request.name, []).append(at)
        uid = ((request.body or {}).get("preconditions") or {}).get("uid", "")
        self.uids.setdefault(request.name, []).append(uid)
        self.report(DemoFact(at, self.side, "evicted", f"{request.name} is evicted", request.name, uid))


@dataclass
class DemoStory:
    """The steps in both clusters, and the expected result of each controller; all times are the story's seconds."""

    own: DemoCluster
    built_in: DemoCluster
    now: Callable[[], float]
    report: Callable[[DemoFact], None]
    keeps_key: bool
    done_at: dict[str, float] = field(default_factory=dict)
    _deadlines: dict[str, float] = field(default_factory=dict)

    def do(self, step: str) -> None:
        """Perform one step in both clusters and report it."""
        self.done_at[step] = self.now()
        self.report(DemoFact(self.now(), Side.BUILT_IN if step == "behind" else Side.BOTH, "step", STEPS[step]))
        for cluster in (self.built_in, self.own):
            match step:
                case "taint":
                    cluster.taint("node-a")
                case "shorten":
                    cluster.shorten(DB, DB_SHORTENED_SECONDS)
                case "refuse":
                    cluster.refuse_deletions(True)
                    cluster.taint("node-b")
                case "allow":
                    cluster.refuse_deletions(False)
                case "wave":
                    cluster.taint(*(shop.node for shop in SHOPS))
        self._tell_deadlines()

    def _tell_deadlines(self) -> None:
        for pod in self.own.pods:
            due_at = self.due_at(pod.name)
            if due_at is not None and due_at != self._deadlines.get(pod.name):
                self._deadlines[pod.name] = due_at
                self.report(DemoFact(self.now(), Side.BOTH, "deadline", "", pod.name, due_at=due_at))

    def due_at(self, pod: str) -> float | None:
        """Return the deadline of a pod by the steps so far; None if it has none."""
        tainted_at, refused_at = self.done_at.get("taint"), self.done_at.get("refuse")
        if pod in (API.name, QUEUE.name):
            return None if refused_at is None else refused_at + (QUEUE.seconds if pod == QUEUE.name else 0.0)
        if tainted_at is None or pod.startswith(SHOP):
            return None
        if pod == DB.name and (shortened_at := self.done_at.get("shorten")) is not None:
            return max(shortened_at, tainted_at + DB_SHORTENED_SECONDS)
        return tainted_at + {WEB.name: WEB.seconds, CACHE.name: CACHE.seconds, DB.name: DB.seconds}[pod]

    def late_seconds(self, cluster: DemoCluster, pod: str) -> float | None:
        """Return how late a pod was first evicted; None if it was not evicted, or has no deadline."""
        due_at, evicted = self.due_at(pod), cluster.evicted.get(pod)
        return None if due_at is None or not evicted else evicted[0] - due_at

    # The verdict

    def broken(self) -> list[str]:
        """Return what differed from the expectations, one sentence each; empty if nothing did."""
        return self._broken_here() + self._broken_there()

    def _broken_here(self) -> list[str]:
        found = []
        # The refusing webhook may delay this pod.
        refused_seconds = self.done_at["allow"] - self.done_at["refuse"]
        patience = {API.name: refused_seconds + 2 * IN_TIME_SECONDS}
        for pod in (WEB, CACHE, DB, API, *((QUEUE,) if self.keeps_key else ())):
            found += self._late(self.own, pod.name, patience.get(pod.name, IN_TIME_SECONDS))
            if (times := len(self.own.evicted.get(pod.name, ()))) != (expected := 1 + (pod is QUEUE)):
                found.append(f"this controller evicted {pod.name} {times} times, not {expected}")
        if "" in [uid for uids in self.own.uids.values() for uid in uids]:
            found.append("this controller deleted a pod without naming its UID")
        if (shops := self._shops(self.own)) > 0:
            found.append(f"this controller evicted {shops} of the 8 pods that were tainted by mistake")
        return found

    def _broken_there(self) -> list[str]:
        found = self._late(self.built_in, WEB.name, IN_TIME_SECONDS)
        for pod in (CACHE, DB):
            right = self.done_at["restart"] + pod.seconds
            evicted = self.built_in.evicted.get(pod.name, [])
            if len(evicted) != 1 or not -_EARLY_SECONDS <= evicted[0] - right <= IN_TIME_SECONDS:
                found.append(f"the model evicted {pod.name} at {_seconds(evicted)}, not at {right:.1f} s")
        if API.name in self.built_in.evicted:
            found.append("the model evicted api, which it should have given up")
        if self.keeps_key and len(self.built_in.evicted.get(QUEUE.name, ())) != 1:
            found.append("the model did not evict queue-0 once")
        if (shops := self._shops(self.built_in)) < len(SHOPS):
            found.append(f"the model evicted {shops} of the 8 pods that were tainted by mistake, not all")
        return found

    def _late(self, cluster: DemoCluster, pod: str, patience: float) -> list[str]:
        late = self.late_seconds(cluster, pod)
        if late is not None and -_EARLY_SECONDS <= late <= patience:
            return []
        when = "never" if late is None else f"{late:.1f} s after its time"
        who = "this controller" if cluster is self.own else "the model"
        return [f"{who} evicted {pod} {when}"]

    def _shops(self, cluster: DemoCluster) -> int:
        return sum(shop.name in cluster.evicted for shop in SHOPS)

    def verdict(self, version: str) -> list[str]:
        """Return three lines: what each controller has done, and whether everything was as expected; ``version``: that
        of the built-in controller.
        """
        evicted, due = self.built_in.evicted, self._deadlines
        late = [
            f"{pod.name} {late_by(evicted[pod.name][0], due[pod.name])}"
            for pod in (CACHE, DB)
            if (seconds := self.late_seconds(self.built_in, pod.name)) is not None and seconds > IN_TIME_SECONDS
        ]
        never = [pod.name for pod in (API,) if pod.name not in self.built_in.evicted]
        never += [QUEUE.name] if self.keeps_key and len(self.built_in.evicted.get(QUEUE.name, ())) == 1 else []
        parts = [", ".join(late), f"never: {', '.join(never)}" if never else ""]
        parts += [f"{self._shops(self.built_in)} by mistake"]
        here = "each pod in its time" if not self._broken_here() else "not each pod in its time"
        mistaken = self._shops(self.own)
        broken = self.broken()
        return [
            f"Built-in {version}: {'; '.join(filter(None, parts))}",
            f"This controller: {here}, {mistaken or 'none'} by mistake",
            "Everything went as expected." if not broken else f"NOT as expected: {broken[0]}",
        ]


STEPS: Mapping[str, str] = {
    "taint": "node-a is tainted: web, cache and db have to leave",
    "restart": "both controllers are restarted",
    "shorten": f"a person shortens what db tolerates to {DB_SHORTENED_SECONDS} s",
    "refuse": "node-b is tainted; a webhook fails and refuses deletions",
    "allow": "the webhook works again",
    "behind": "is busy: notices changes up to 2 s later",
    "wave": "8 of 12 nodes are tainted by mistake",
}


def with_lateness(story: DemoStory, fact: DemoFact) -> DemoFact:
    """Add to an eviction how late it is; evictions by mistake are reported once all of them are done."""
    if fact.what != "evicted":
        return fact
    if fact.pod.startswith(SHOP):
        cluster = story.built_in if fact.side is Side.BUILT_IN else story.own
        done = sum(shop.name in cluster.evicted for shop in SHOPS)
        return replace(fact, text=f"{done} pods are evicted by mistake" if done == len(SHOPS) else "")
    due_at = story.due_at(fact.pod)
    again = len((story.built_in if fact.side is Side.BUILT_IN else story.own).evicted[fact.pod]) > 1
    # A pod that is recreated on a tainted node has a deadline of its own, which the steps do not say.
    return fact if due_at is None or again else replace(fact, text=f"{fact.text}, {late_by(fact.at, due_at)}")


def late_by(at: float, due_at: float) -> str:
    """Return how late an eviction is, so that it is what people get who subtract the two instants as they are shown."""
    return f"{max(0.0, round(at, 1) - round(due_at, 1)):.1f} s late"


def _seconds(instants: list[float]) -> str:
    return ", ".join(f"{at:.1f} s" for at in instants) or "no time"
