"""Lets the pods of one node leave in order, in some documents, and judges that.

Nobody of a later tier goes while a pod of an earlier one, of which the process must know, is due or ends; and nobody
waits longer than its bound. Part of ``generator`` and ``oracle``; it comes after most other parts and uses a random
generator of its own, so that other documents are the same as before this module existed.
"""

import random
from typing import Any

from tests.simulation.exploring.excuses import Disturbances
from tests.simulation.exploring.seen import Breach
from tests.simulation.exploring.truth import NEVER, Truth, due_at

from taint_eviction.core.tiers import Order
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation.audit import Trace
from taint_eviction_lab.simulation.virtual_clock import server_time

JsonObject = dict[str, Any]

_ALONE_SHARE, _SHARE, _SALT = 0.08, 0.1, "order 4763"
NODE = "ordered"
_WAITS, _GRACES, _SECONDS = (5, 10, 60, 60), (2, 10), (0, 0, 0, 3, 12)
_LONGEST_GRACE = max(_GRACES)
_CRITICAL = 2_000_000_000
_DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "csi", "uid": "csi", "controller": True}
# A process that is not blind knows what has been so for this long; a node is read before each call.
_KNOWN_SECONDS, _READ_SECONDS = 1.0, 0.03
# Instants are known to about this.
_ABOUT_SECONDS = 2.0
_PAST_GRACE_SECONDS = 30.0


def leave_in_order(seed: int) -> JsonObject | None:
    """Return a document about the order alone, in a small share of the seeds; None for the others.

    Nothing makes a process blind or slow, and nothing else restrains evictions. So waits must be punctual, too.
    """
    rng = random.Random(f"{_SALT} {seed}")
    if rng.random() >= _ALONE_SHARE:
        return None
    document: JsonObject = {
        "about": f"Generated from seed {seed}.",
        "name": f"explored-{seed}",
        "settings": {"replicas": rng.choice((1, 1, 1, 2))},
        "given": {"nodes": [], "pods": []},
        "timeline": [],
        "expect": {},
    }
    let_leave_in_order(document, rng)
    return document


def add_order(document: JsonObject, seed: int) -> None:
    """Taint a node whose pods leave in order, among everything else."""
    rng = random.Random(f"{_SALT} beside {seed}")
    # The breaker would count the node, and the node lifecycle controller would write its conditions.
    kept = document["settings"].keys().isdisjoint(("breaker", "nodeLifecycle", "builtIn"))
    if rng.random() < _SHARE and kept:
        let_leave_in_order(document, rng)


def let_leave_in_order(document: JsonObject, rng: random.Random) -> None:
    """Taint a node whose pods leave in order."""
    given, settings = document["given"], document["settings"]
    settings |= {"order": "tiers", "orderWait": rng.choice(_WAITS)}
    given["nodes"].append({"name": NODE, "conditions": [{"type": "Ready", "status": "True"}]})
    given["pods"] += [_pod(rng, f"ordered-{number}") for number in range(rng.randint(1, 4))]
    # One that ends slowly, where the kubelet is slow, and one that waits for it from the beginning.
    always: JsonObject = {"nodeName": NODE, "terminationGracePeriodSeconds": _LONGEST_GRACE}
    given["pods"].append({"name": "ordered-first", **always})
    given["pods"].append({"name": "ordered-last", **always, "priority": _CRITICAL, "ownerReferences": [_DAEMONSET]})
    at = rng.choice((5.0, 20.0, 33.0))
    steps: list[JsonObject] = [{"at": at, "taint": f"{NODE} a=1:NoExecute"}]
    if rng.random() < 0.7:
        steps.append({"at": 1.0, "freezeKubelet": NODE})
        # A new leader acts before the third; the last ones come when nobody may wait any more.
        steps.append({"at": at + rng.choice((3.0, 30.0, 40.0, 80.0, 110.0)), "thawKubelet": NODE})
    for number in range(rng.choice((0, 0, 1, 3))):
        later = at + rng.choice((0.5, 2.0, 6.0, 15.0))
        steps.append({"at": later, "create": _pod(rng, f"ordered-later-{number}")})
    if rng.random() < 0.6:
        steps.append({"at": at + rng.choice((0.3, 4.0, 9.0, 9.0)), "restart": {"after": rng.choice((0, 2))}})
    if rng.random() < 0.2:
        steps.append({"at": at + rng.choice((1.0, 6.0)), "setReady": f"{NODE} {rng.choice(('False', 'Unknown'))}"})
    document["timeline"] = sorted([*document["timeline"], *steps], key=lambda step: float(step["at"]))


def _pod(rng: random.Random, name: str) -> JsonObject:
    pod: JsonObject = {
        "name": name,
        "nodeName": NODE,
        "terminationGracePeriodSeconds": rng.choice(_GRACES),
        "tolerations": [f"a for {rng.choice(_SECONDS)}"],
    }
    if rng.random() < 0.5:
        pod["ownerReferences"] = [_DAEMONSET]
    if rng.random() < 0.5:
        pod["priority"] = _CRITICAL
    return pod


def tier_in_truth(body: JsonObject) -> int:
    """Return the tier of a pod, 0 for the first."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    owners = metadata.get("ownerReferences") or []
    of_daemonset = any(each.get("kind") == "DaemonSet" and each.get("controller") for each in owners)
    is_critical = (spec.get("priority") or 0) >= _CRITICAL
    return 2 * is_critical + of_daemonset


class OrderJudge:
    """Judges calls that end pods; see the module. ``disturbances`` None: no order is judged."""

    def __init__(self, settings: Settings, truth: Truth, disturbances: Disturbances | None, breach: Breach) -> None:
        policy = settings.policy
        self._seconds = policy.order_wait_seconds if policy.order is Order.TIERS else 0.0
        self._truth = truth
        self._judges = disturbances is not None and disturbances.sees_all and not settings.dry_run
        self._breach = breach

    def longest_wait(self, uid: str, due: float = NEVER, known_at: float = -NEVER) -> float:
        """Return how long after it was ``due`` a pod may wait for earlier tiers.

        ``known_at``: when a process learnt of it; if the first wait would have been over then, it begins then.
        """
        tier = tier_in_truth(self._truth.bodies[uid]) if self._seconds and uid in self._truth.bodies else 0
        late = known_at - due if tier and known_at > due + self._seconds - _ABOUT_SECONDS else 0.0
        return late + tier * (self._seconds + _LONGEST_GRACE)

    def check_sent(self, trace: Trace) -> None:
        """Check that no pod of an earlier tier has to go first, as far as the process must know."""
        waiting, body = self._truth.pods[trace.uid][-1], self._truth.bodies.get(trace.uid)
        node = self._truth.node_now(waiting.node)
        if not (self._seconds and self._judges) or body is None or node is None:
            return
        known_since = trace.at - _KNOWN_SECONDS
        is_ready = node.has_condition and node.lost_at is None and node.since <= trace.at - _READ_SECONDS
        tier, due = tier_in_truth(body), due_at(node, waiting)
        if not is_ready or waiting.edited_at > known_since or due == NEVER:
            return
        for uid, other in self._truth.living():
            earlier = self._truth.bodies[uid]
            if other.node != waiting.node or other.left_alone or tier_in_truth(earlier) >= tier:
                continue
            if other.since > known_since or _created(earlier) > due - _ABOUT_SECONDS:
                continue
            if trace.at > due + (tier_in_truth(earlier) + 1) * self._seconds - _ABOUT_SECONDS:
                continue
            ends = _deletion_ends(earlier)
            counts = due_at(node, other) <= trace.at + self._seconds - _ABOUT_SECONDS
            if other.terminating:
                counts = ends is not None and trace.at < ends + _PAST_GRACE_SECONDS - _ABOUT_SECONDS
            if counts:
                self._breach("out of order", trace, f"{self._truth.names[uid]} ({uid}) of an earlier tier is there")


def _created(body: JsonObject) -> float:
    created = parse_rfc3339(body["metadata"].get("creationTimestamp"))
    return -NEVER if created is None else created - server_time(0.0)


def _deletion_ends(body: JsonObject) -> float | None:
    ends = parse_rfc3339(body["metadata"].get("deletionTimestamp"))
    return None if ends is None else ends - server_time(0.0)
