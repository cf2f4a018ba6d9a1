"""The true states of a simulated cluster, and since when: the exploration's own record, in the API server's time.

It notes every write at the moment it happens. It matches tolerations and computes deadlines itself, in a few plain
lines, and shares no code with the controller.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.exploring.ceilings import rule_matches
from tests.simulation.exploring.out_of_service import OUT_OF_SERVICE

from taint_eviction.core.policy import PolicyRule
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation.recorder import RecordedChange
from taint_eviction_lab.simulation.virtual_clock import date_of, server_time, virtual_now

NEVER = math.inf
OWN_REASON = "DeletionByTaintManager"

_NOTE = "taint-eviction/seconds"
# MaxInt64 seconds mean "for ever", unless a note says what they were.
MARK = 2**63 - 1
LIFECYCLE_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

TaintIdentity = tuple[str, str, str]
# Key, operator, value and effect, and how many equal ones come before it.
TolerationName = tuple[tuple[str, ...], int]


@dataclass(frozen=True)
class NodeState:
    """A node from ``since`` on; ``taints`` has its NoExecute taints (key, value, timeAdded) and when each began.

    ``written_at``: when its list of taints was last written, the latest start that its object can show. ``lost_at``:
    since when its condition Ready has not been True; None if it is True or absent. ``has_condition``: the node has that
    condition. ``unready_at``: since when the condition is not True or absent; ``NEVER`` if the node is ready.
    ``resumed_at``: when a taint whose countdown goes on was last set again. ``ready``: the status of that condition,
    since ``ready_at``.
    """

    since: float
    uid: str
    taints: dict[TaintIdentity, float]
    written_at: float
    lost_at: float | None = None
    has_condition: bool = False
    unready_at: float = -NEVER
    resumed_at: float = -NEVER
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: str | None = None
    ready_at: float = -NEVER

    def carries(self, key: str) -> bool:
        """Return whether the node has a NoExecute taint with this key."""
        return any(identity[0] == key for identity in self.taints)


@dataclass(frozen=True)
class PodState:
    """A pod from ``since`` on. ``edited_at``: when its tolerations were last changed, or it was bound or created.

    ``marked``: it has the condition with this controller's reason. ``left_alone``: it must never be evicted, as it is a
    mirror pod, unreadable, or finished where finished pods are kept. ``tolerations``: with those that settings give to
    all pods. ``held_seconds``: how long past its deadline its owner holds it. ``rules``: those in force.
    """

    since: float
    edited_at: float
    namespace: str
    labels: Mapping[str, str]
    node: str | None
    bound_at: float
    tolerations: list[dict[str, Any]]
    held_seconds: float
    terminating: bool
    marked: bool
    left_alone: bool
    rules: tuple[PolicyRule, ...] = ()


def tolerates(toleration: dict[str, Any], key: str, value: str) -> bool:
    """Return whether a toleration matches a NoExecute taint."""
    operator = toleration.get("operator") or "Equal"
    if toleration.get("effect", "") not in ("", "NoExecute"):
        return False
    if not toleration.get("key"):
        return operator == "Exists"
    if toleration["key"] != key:
        return False
    if operator in ("Gt", "Lt"):
        mine, theirs = _number(toleration.get("value", "")), _number(value)
        return mine is not None and theirs is not None and (theirs > mine if operator == "Gt" else theirs < mine)
    return operator == "Exists" or (operator == "Equal" and toleration.get("value", "") == value)


def _condition_ready(node: dict[str, Any]) -> dict[str, Any]:
    status = node.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    found = conditions if isinstance(conditions, list) else []
    return next((each for each in found if isinstance(each, dict) and each.get("type") == "Ready"), {})


def _ready(node: dict[str, Any]) -> str | None:
    """Return the status of a node's condition Ready, None if it has none; any part may be malformed."""
    return _condition_ready(node).get("status")


def _ready_since(node: dict[str, Any], now: float) -> float:
    """Return since when a node's condition Ready has its status, as it says, by the scenario's clock; ``now`` if it
    does not say so.
    """
    epoch = parse_rfc3339(_condition_ready(node).get("lastTransitionTime"))
    return now if epoch is None else epoch - server_time(0.0)


def _number(text: str) -> int | None:
    """Read a canonical 64-bit integer; return None for anything else."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or str(int(text)) != text:
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def note_of(body: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Read the note on a pod about the seconds of its tolerations; return None if there is none or it is malformed."""
    metadata = body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(_NOTE) if isinstance(annotations, dict) else None
    try:
        note = json.loads(text or "")
        sensible = all(
            type(each.get(field, 0)) is int and each["effect"] == "NoExecute"
            for each in note
            for field in ("occurrence", "among", "seconds")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return note if sensible and isinstance(note, list) and all("seconds" in each for each in note) else None


def counted(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tolerations of a pod as they count: with the noted seconds in place of their marks."""
    written = (body.get("spec") or {}).get("tolerations")
    tolerations = written if isinstance(written, list) else []
    noted = noted_places(body)
    return [
        {**each, "tolerationSeconds": noted[place]} if place in noted else each
        for place, each in enumerate(tolerations)
    ]


def noted_places(body: dict[str, Any]) -> dict[int, int]:
    """Return the noted seconds by the position of their mark in the pod's tolerations."""
    tolerations = (body.get("spec") or {}).get("tolerations") or []
    found: dict[int, int] = {}
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for each in note_of(body) or []:
        groups.setdefault(_identity(each), []).append(each)
    for identity, notes in groups.items():
        equal = [place for place, each in enumerate(tolerations) if _identity(each) == identity]
        marks = [place for place in equal if tolerations[place].get("tolerationSeconds") == MARK]
        if all(each.get("among", 1) == len(equal) for each in notes):
            places = [(equal[each.get("occurrence", 0)], each["seconds"]) for each in notes]
            found |= {place: seconds for place, seconds in places if place in marks}
        else:
            notes.sort(key=lambda each: each.get("occurrence", 0))
            found |= dict(zip(marks, [each["seconds"] for each in notes], strict=False))
    return found


def named_tolerations(body: dict[str, Any]) -> list[TolerationName]:
    """Return what identifies each toleration of a pod, also if others are put before it."""
    identities = [_identity(each) for each in (body.get("spec") or {}).get("tolerations") or []]
    return [(identity, identities[:place].count(identity)) for place, identity in enumerate(identities)]


def _identity(toleration: dict[str, Any]) -> tuple[str, ...]:
    return tuple(toleration.get(field) or "" for field in ("key", "operator", "value", "effect"))


def held_seconds(told: str | None) -> float:
    """Read the owner's annotation for a hold; an unreadable value holds indefinitely."""
    if told is None or told == "false":
        return 0.0
    found = re.fullmatch(r"(\d+)([smh]?)", told)
    return math.inf if found is None else int(found[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


def tolerated_for(pod: PodState, node: NodeState, key: str, value: str) -> float:
    """Return for how many seconds a pod on a node tolerates a NoExecute taint, by its first matching toleration, and by
    the ceiling of the first matching rule where these seconds have an end.
    """
    fitting = [toleration for toleration in pod.tolerations if tolerates(toleration, key, value)]
    if not fitting:
        return 0.0
    seconds = fitting[0].get("tolerationSeconds")
    if seconds in (None, MARK):
        return math.inf
    rules = [rule for rule in pod.rules if rule_matches(rule, key, pod.namespace, pod.labels, node.labels)]
    ceiling = rules[0].max_toleration_seconds if rules else None
    return float(max(0, seconds if ceiling is None else min(seconds, ceiling)))


def due_at(node: NodeState | None, pod: PodState, at_the_latest: bool = False) -> float:
    """Return when the pod must be evicted if node and pod stay in these states; ``NEVER`` if it must not.

    ``at_the_latest``: the deadline for a process that knows only the objects, with times cut off to seconds.
    """
    if node is None or pod.terminating or pod.left_alone:
        return NEVER
    earliest = NEVER
    for (key, value, _), began_at in node.taints.items():
        start = max(began_at, pod.bound_at)
        if at_the_latest:
            start = max(node.written_at, pod.bound_at) + 1.0
        is_off = key == OUT_OF_SERVICE and node.unready_at < NEVER
        earliest = min(earliest, start + tolerated_for(pod, node, key, value) + (0.0 if is_off else pod.held_seconds))
    return earliest


def _taints(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body.get("spec", {}).get("taints") or []


@dataclass
class Truth:
    """All states of all nodes, by name, and of all pods, by UID, oldest first; None: it did not exist."""

    settings: Settings = field(default_factory=Settings)
    nodes: dict[str, list[tuple[float, NodeState | None]]] = field(default_factory=dict)
    pods: dict[str, list[PodState]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    marked_at: dict[str, float] = field(default_factory=dict)
    # The last written object of each pod, by UID.
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    # By resourceVersion: the state of an object with this version.
    versions: dict[str, "NodeState | PodState | None"] = field(default_factory=dict)
    _lists: dict[str, list[Any]] = field(default_factory=dict)
    _written: dict[tuple[str, TaintIdentity], tuple[int, float]] = field(default_factory=dict)
    # Since when each node is ready; and the lifecycle taints that each node has lost in an outage that goes on, with
    # when they began and were removed.
    _ready: dict[str, float] = field(default_factory=dict)
    _lost: dict[str, dict[tuple[str, str], tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the rules of the settings."""
        self._rules = self.settings.policy.rules

    def change_rules(self, rules: tuple[PolicyRule, ...], at: float) -> None:
        """Note that other rules are in force from ``at`` on: where any has a ceiling, pods are in another state."""
        before, self._rules = self._rules, rules
        if all(rule.max_toleration_seconds is None for rule in (*rules, *before)):
            return
        for uid, state in self.living():
            changed = replace(state, since=at, edited_at=at, rules=rules)
            self.pods[uid].append(changed)
            self.versions[self.bodies[uid]["metadata"]["resourceVersion"]] = changed

    def notice(self, change: RecordedChange) -> None:
        """Note a write."""
        if change.is_pod:
            self._notice_pod(change)
        else:
            self._notice_node(change)

    def _given_to_all(self) -> list[dict[str, Any]]:
        """Return the default tolerances of the settings as tolerations, which come after all others of a pod."""
        given = {"not-ready": self.settings.decisions.default_not_ready_seconds}
        given["unreachable"] = self.settings.decisions.default_unreachable_seconds
        return [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": seconds}
            for key, seconds in given.items()
            if seconds is not None
        ]

    def _notice_node(self, change: RecordedChange) -> None:
        now, metadata = virtual_now(), change.body["metadata"]
        states = self.nodes.setdefault(metadata["name"], [])
        if change.event_type == "DELETED":
            states.append((now, None))
            self._ready.pop(metadata["name"], None)
            return
        before = states[-1][1] if states else None
        old = before.taints if before is not None and before.uid == metadata["uid"] else {}
        outage = self._outage(change.body, old, now)
        resumed_at = before.resumed_at if before is not None else -NEVER
        taints: dict[TaintIdentity, float] = {}
        for taint in _taints(change.body):
            if taint["effect"] != "NoExecute":
                continue
            identity = (taint["key"], taint.get("value", ""), taint.get("timeAdded", ""))
            if identity in old:
                taints[identity] = old[identity]
            elif identity[:2] in outage:
                taints[identity], resumed_at = outage.pop(identity[:2])[0], now
            else:
                taints[identity] = self._began(metadata["uid"], identity, now)
        self._written |= {(metadata["uid"], one): (date_of(now), began) for one, began in taints.items()}
        # A write of another field by the manager of the taints moves the time in the object, too.
        owners = [
            entry
            for entry in metadata.get("managedFields") or ()
            if "f:taints" in entry.get("fieldsV1", {}).get("f:spec", {})
        ]
        told = [change.body.get("spec", {}).get("taints") or [], owners]
        unwritten = before is not None and before.uid == metadata["uid"] and self._lists.get(metadata["uid"]) == told
        self._lists[metadata["uid"]] = told
        written_at = before.written_at if before is not None and unwritten else now
        ready, lost_at = _ready(change.body), None
        if ready not in (None, "True"):
            since = before.lost_at if before is not None and before.uid == metadata["uid"] else None
            lost_at = now if since is None else since
        unready_at = NEVER
        if ready != "True":
            unready_at = before.unready_at if before is not None and before.unready_at < NEVER else now
        labels = metadata.get("labels") or {}
        same_status = before is not None and before.uid == metadata["uid"] and before.ready == ready
        ready_at = before.ready_at if before is not None and same_status else now
        if before is None:
            ready_at = min(ready_at, _ready_since(change.body, now))
        state = NodeState(
            now,
            metadata["uid"],
            taints,
            written_at,
            lost_at,
            ready is not None,
            unready_at,
            resumed_at,
            labels,
            ready,
            ready_at,
        )
        self.versions[metadata["resourceVersion"]] = state
        states.append((now, state))

    def _outage(
        self, body: dict[str, Any], old: dict[TaintIdentity, float], now: float
    ) -> dict[tuple[str, str], tuple[float, float]]:
        """Return the lifecycle taints whose countdown goes on if they are set again now, with when they began and were
        removed.

        It goes on while the node is never ready and some other node is ready all the time.
        """
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        ready = _ready(body)
        exempt = "node.kubernetes.io/exclude-disruption" in (body["metadata"].get("labels") or {})
        if ready == "True" and not exempt:
            self._ready.setdefault(name, now)
        else:
            self._ready.pop(name, None)
        lost = self._lost.setdefault(uid, {})
        if ready in (None, "True"):
            lost.clear()
            return lost
        evicting = (taint for taint in _taints(body) if taint["effect"] == "NoExecute")
        there = {(taint["key"], taint.get("value", ""), taint.get("timeAdded", "")) for taint in evicting}
        for identity, began in old.items():
            if identity not in there and identity[0] in LIFECYCLE_KEYS:
                lost[identity[:2]] = began, now
        for key, (_, removed_at) in list(lost.items()):
            witnessed = any(since <= removed_at for other, since in self._ready.items() if other != name)
            if not witnessed or now - removed_at > self.settings.decisions.outage_gap_seconds:
                del lost[key]
        return lost

    def _began(self, uid: str, identity: TaintIdentity, now: float) -> float:
        """Return when a taint began. A taint that was removed and set again within a second counts as one that stayed.

        Objects have whole seconds, so a process that did not see the taint absent cannot know the difference.
        """
        second, began = self._written.get((uid, identity), (0, now))
        return began if second == date_of(now) else now

    def _notice_pod(self, change: RecordedChange) -> None:
        now, metadata = virtual_now(), change.body["metadata"]
        uid = metadata["uid"]
        self.names[uid] = f"{metadata['namespace']}/{metadata['name']}"
        self.bodies[uid] = change.body
        if change.event_type == "DELETED":
            self.gone[uid] = now
            return
        states = self.pods.setdefault(uid, [])
        node = change.body.get("spec", {}).get("nodeName")
        bound_before = bool(states) and states[-1].node == node
        marked = any(
            condition.get("type") == "DisruptionTarget"
            and condition.get("status") == "True"
            and condition.get("reason") == OWN_REASON
            for condition in change.body.get("status", {}).get("conditions") or []
        )
        if marked:
            self.marked_at.setdefault(uid, now)
        else:
            self.marked_at.pop(uid, None)
        tolerations = [*counted(change.body), *self._given_to_all()]
        told = held_seconds((metadata.get("annotations") or {}).get("taint-eviction/hold"))
        held = min(told, self.settings.decisions.max_hold_seconds)
        unedited = bound_before and (states[-1].tolerations, states[-1].held_seconds) == (tolerations, held)
        state = PodState(
            since=now,
            edited_at=states[-1].edited_at if unedited else now,
            namespace=metadata["namespace"],
            labels=metadata.get("labels") or {},
            node=node,
            bound_at=states[-1].bound_at if bound_before else now,
            tolerations=tolerations,
            held_seconds=held,
            terminating=bool(metadata.get("deletionTimestamp")),
            marked=marked,
            left_alone=self._is_left_alone(change.body),
            rules=self._rules,
        )
        states.append(state)
        self.versions[metadata["resourceVersion"]] = state

    def _is_left_alone(self, body: dict[str, Any]) -> bool:
        tolerations = body.get("spec", {}).get("tolerations") or []
        finished = body.get("status", {}).get("phase") in ("Succeeded", "Failed")
        readable = all(isinstance(one, dict) and type(one.get("tolerationSeconds", 0)) is int for one in tolerations)
        mirror = "kubernetes.io/config.mirror" in (body["metadata"].get("annotations") or {})
        return mirror or not readable or (finished and not self.settings.decisions.evict_finished)

    def node_states(self, name: str, since: float) -> list[NodeState | None]:
        """Return the states that a node had at any moment from ``since`` until now."""
        states = self.nodes.get(name, [])
        begun_before = [index for index, (at, _) in enumerate(states) if at <= since]
        return [state for _, state in states[max(begun_before, default=0) :]]

    def pod_states(self, uid: str, since: float) -> list[PodState]:
        """Return the states that a pod had at any moment from ``since`` until now."""
        states = self.pods.get(uid, [])
        begun_before = [index for index, state in enumerate(states) if state.since <= since]
        return states[max(begun_before, default=0) :]

    def goes_on(self, uid: str, toleration: dict[str, Any]) -> bool:
        """Return whether a node lost a lifecycle taint that this toleration matches and whose countdown would go on."""
        return any(tolerates(toleration, *key) for key in self._lost.get(uid, {}))

    def living(self) -> list[tuple[str, PodState]]:
        """Return the pods that exist now, with their UIDs."""
        return [(uid, states[-1]) for uid, states in self.pods.items() if uid not in self.gone]

    def node_now(self, name: str | None) -> NodeState | None:
        """Return a node as it is now, None if it does not exist."""
        states = self.nodes.get(name or "", [])
        return states[-1][1] if states else None
