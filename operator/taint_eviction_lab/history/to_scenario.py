"""A record as a scenario file: the same nodes, pods, taints and instants, to replay, change, and keep as a test.

The actions of the controller become the expectations. A log has less than a journal: only the pods with a deadline,
and of their tolerations only the one that counted. An audit log has only the pods that were to be evicted.
"""

import math
import re
from typing import Any

import yaml

from taint_eviction.core.decision import StayReason
from taint_eviction.core.objects import EXEMPT_LABEL, SHUTTING_DOWN
from taint_eviction.core.text import JsonObject
from taint_eviction.core.tiers import CRITICAL_PRIORITY, Tier
from taint_eviction_lab.history.circumstances import Circumstances
from taint_eviction_lab.history.happening import Happening, finite_number
from taint_eviction_lab.history.record import RunRecord

# Objects that are recorded this soon after the beginning existed before it.
_AT_THE_BEGINNING_SECONDS = 3.0
_WITHIN_SECONDS = 2.0
_FOR = re.compile(r"for (-?[0-9]{1,19}) s$")

_READY_STATUSES = ("True", "False", "Unknown")
_TAINT_FIELDS = ("key", "value", "effect")
_TOLERATION_FIELDS = ("key", "operator", "value", "effect", "tolerationSeconds")


def scenario_text(record: RunRecord) -> str:
    """Write the scenario; second 0 is the record's beginning."""
    story = _Story(record)
    for happening in record.happenings:
        story.report(happening)
    circumstances = story.circumstances
    circumstances.finish()
    about = [f"Recorded: {record.name}.", record.missing, *circumstances.notes(), *story.notes()]
    document = {
        "about": " ".join(filter(None, about)),
        "settings": circumstances.settings(),
        "given": story.given(),
        "timeline": sorted([*story.steps, *circumstances.steps], key=lambda step: float(step["at"])),
        "until": story.until(),
        "expect": story.expectations(),
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


# A record says in which tier a pod is by itself, and not which DaemonSet owns it.
_RECORDED_DAEMONSET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "recorded",
    "uid": "recorded",
    "controller": True,
}


class _Story:
    def __init__(self, record: RunRecord) -> None:
        self.nodes: list[JsonObject] = []
        self.pods: list[JsonObject] = []
        self.steps: list[JsonObject] = []
        self._begin = record.begins_at
        self._end = round(record.happenings[-1].at - self._begin, 3) if record.happenings else 0.0
        self._observed = record.observed
        # The times of a log are whole seconds; those of a journal are as late as the controller was.
        self._slack = 0.1 if record.observed else 1.0
        self._taints: dict[str, list[JsonObject]] = {}
        self._ready: dict[str, JsonObject] = {}
        self._bodies: dict[str, tuple[str, JsonObject]] = {}
        self._cancelled: set[str] = set()
        # By UID: the pods with a deadline, and its second. What happened to the other pods is not known.
        self._pending: dict[str, tuple[str, float]] = {}
        self._unknown: set[str] = set()
        # An evicted pod may be recorded as gone before its eviction is recorded.
        self._gone = {happening.text("uid") for happening in record.happenings if happening.what == "evicted"}
        self._evictions: dict[str, list[JsonObject]] = {}
        # By node. A scenario has those that a pause of the record asks for.
        self._labels: dict[str, dict[str, str]] = {}
        self._asked = {key for each in record.happenings if each.scope for key in each.scope.keys}
        self.circumstances = Circumstances(self._slack)
        self._audit = record.audit
        self._tainted_at: dict[tuple[str, str], float] = {}
        # By UID and the key of a taint: the seconds to which a rule shortens tolerations. The rules are not recorded.
        self._ceilings: dict[str, dict[str, int]] = {}

    def report(self, happening: Happening) -> None:
        """Add what happened next."""
        at = round(happening.at - self._begin, 3)
        pod = happening.text("pod")
        self._tell_of_circumstances(happening, at)
        match happening.what:
            case "node":
                self._node_seen(happening, at)
            case "node gone":
                self._step(at, "deleteNode", happening.text("node"))
                self._taints.pop(happening.text("node"), None)
            case "pod":
                self._pod(happening, self._body(happening), at)
            case "pod gone":
                self._pod_gone(pod, happening.text("uid"), at)
            case "taint":
                self._add_taint(happening.text("node"), happening.text("taint"), at)
            case "scheduled":
                due = happening.due
                self._pending[happening.text("uid")] = pod, at if due is None else due - self._begin
                self._scheduled(happening, at)
            case "cancelled" if happening.text("reason") == StayReason.TERMINATING.name.lower():
                self._ended_by_others(pod, happening.text("uid"), at)
            case "cancelled":
                self._pending.pop(happening.text("uid"), None)
                self._cancelled.add(pod)
            case "cleared" if not self._observed:
                self._node(happening.text("node"), [], at)
            case _:
                pass

    def notes(self) -> list[str]:
        """Return where pods differ from what they were, one sentence each."""
        return ["Tolerations that a rule shortened are as short here."] if self._ceilings else []

    def given(self) -> JsonObject:
        """Return what exists from the beginning."""
        control_state = self.circumstances.control_state()
        return {"nodes": self.nodes, "pods": self.pods, **({"controlState": control_state} if control_state else {})}

    # Nodes

    def _node_seen(self, happening: Happening, at: float) -> None:
        name, status = happening.text("node"), happening.text("ready")
        more: JsonObject = {}
        if status in _READY_STATUSES:
            ready = {"status": status, **({"message": SHUTTING_DOWN} if happening.fields.get("shutting_down") else {})}
            if name in self._taints and self._ready.get(name) != ready:
                self._step(at, "setReady", {"node": name, **ready})
            since = happening.number("ready_since")
            dated = {} if since is None else {"lastTransitionTime": round(since - self._begin)}
            more["conditions"] = [{"type": "Ready", **ready, **dated}]
            self._ready[name] = ready
        labels = {key: text for key, text in happening.labels.items() if key in self._asked}
        if name in self._taints and labels != (known := self._labels.get(name, {})):
            changed = sorted(key for key in known.keys() | labels.keys() if known.get(key) != labels.get(key))
            changes = {key: labels.get(key) for key in changed}
            self._step(at, "label", {"node": name, "labels": changes})
        self._labels[name] = labels
        self.circumstances.label(name, labels, at)
        if happening.fields.get("exempt"):
            labels = {**labels, EXEMPT_LABEL: ""}
        if labels:
            more["labels"] = labels
        self._node(name, [self._taint(taint) for taint in happening.objects("taints")], at, more)

    def _node(self, name: str, taints: list[JsonObject], at: float, more: JsonObject | None = None) -> None:
        """Add a node's taints; ``more``: its other fields if it is new."""
        known = self._taints.get(name)
        if known == taints:
            return
        self._taints[name] = taints
        body = {"name": name, **(more or {}), **({"taints": taints} if taints else {})}
        if known is not None:
            self._step(at, "setTaints", {"node": name, "taints": taints})
        elif at <= _AT_THE_BEGINNING_SECONDS:
            self.nodes.append(body)
        else:
            self._step(at, "createNode", body)

    def _taint(self, taint: JsonObject) -> JsonObject:
        told, added = _only(taint, _TAINT_FIELDS), finite_number(taint.get("added"))
        return told if added is None else {**told, "timeAdded": round(added - self._begin)}

    # Pods

    def _since(self, happening: Happening, at: float) -> float:
        """Return since when a pod has existed, 0: from the beginning. Pods are recorded only once their node is
        tainted.
        """
        bound_at = happening.number("bound")
        if bound_at is None:
            return 0.0 if at <= _AT_THE_BEGINNING_SECONDS else at
        # The time is truncated to whole seconds: the pod may have been bound up to a second later.
        return min(at, bound_at + 1.0 - self._begin) if bound_at >= self._begin else 0.0

    def _body(self, happening: Happening) -> JsonObject:
        namespace, _, name = happening.text("pod").rpartition("/")
        fields = happening.fields
        body: JsonObject = {"name": name, "namespace": namespace or "default"}
        if node := happening.text("on"):
            body["nodeName"] = node
            self._ensure_node(node)
        if tolerations := [_only(each, _TOLERATION_FIELDS) for each in happening.objects("tolerations")]:
            body["tolerations"] = tolerations
            self._shorten(happening.text("uid"), body)
        if fields.get("mirror"):
            body["annotations"] = {"kubernetes.io/config.mirror": "recorded"}
        if (hold := _read_hold(happening)) is not None:
            body["hold"] = hold
        if fields.get("finished"):
            body["phase"] = "Succeeded"
        tier = happening.text("tier")
        if tier in (Tier.DAEMONSETS.word, Tier.CRITICAL_DAEMONSETS.word):
            body["ownerReferences"] = [_RECORDED_DAEMONSET]
        if tier in (Tier.CRITICAL_WORKLOADS.word, Tier.CRITICAL_DAEMONSETS.word):
            body["priority"] = CRITICAL_PRIORITY
        return body

    def _ensure_node(self, name: str) -> None:
        if name not in self._taints:
            self._node(name, [], 0.0)

    def _pod(self, happening: Happening, body: JsonObject, at: float) -> None:
        pod, uid = happening.text("pod"), happening.text("uid")
        known = self._bodies.get(pod)
        if happening.fields.get("terminating") and (known is None or known[0] != uid):
            self._gone.add(uid)  # It was ending before it was seen: the replay's controller would evict it.
            return
        self._bodies[pod] = uid, body
        if known is not None and known[0] == uid:
            self._changed(pod, known[1], body, at)
        elif known is not None:
            # The same name again: the old pod is deleted if it still exists.
            node = {"nodeName": body.get("nodeName")}
            self._step(at, "recreate", {"pod": pod, "node": node["nodeName"]})
            self._changed(pod, {**known[1], **node}, body, at)
        elif (since := self._since(happening, at)) > 0:
            self._step(since, "create", body)
        else:
            self.pods.append(body)

    def _changed(self, pod: str, before: JsonObject, body: JsonObject, at: float) -> None:
        if body.get("nodeName") and not before.get("nodeName"):
            self._step(at, "bind", {"pod": pod, "node": body["nodeName"]})
        if body.get("tolerations") != before.get("tolerations"):
            self._step(at, "tolerate", {"pod": pod, "tolerations": body.get("tolerations", [])})
        if body.get("phase") and not before.get("phase"):
            self._step(at, "finish", pod)
        if body.get("hold") != before.get("hold"):
            self._step(at, "setHold", {"pod": pod, "hold": body.get("hold")})

    def _ended_by_others(self, pod: str, uid: str, at: float) -> None:
        """Note that somebody else has requested a pod's deletion. If it was due, the replay's controller evicts it."""
        _, due = self._pending.get(uid, ("", math.inf))
        if due > at + self._slack:
            self._pod_gone(pod, uid, at)
            self._cancelled.add(pod)

    def _pod_gone(self, pod: str, uid: str, at: float) -> None:
        # The replay's controller evicts pods that were evicted, and perhaps pods that were due when somebody else
        # deleted them.
        _, due = self._pending.pop(uid, ("", math.inf))
        if uid not in self._gone and self._bodies.get(pod, ("",))[0] == uid:
            if due > at or self._audit:
                # An audit log shows that the pod was gone when its eviction was tried, which may have been late.
                self._step(min(at, due), "delete", {"pod": pod, "force": True})
            else:
                self._unknown.add(pod)
        self._gone.add(uid)

    def _scheduled(self, happening: Happening, at: float) -> None:
        """Take pod, node and taint from the line, if a log has nothing else; else only what a rule shortens."""
        node, pod, uid = happening.text("node"), happening.text("pod"), happening.text("uid")
        if self._observed:
            ceiling = happening.number("ceiling_seconds")
            if ceiling is not None:
                self._ceilings.setdefault(uid, {})[_read_taint(happening.text("taint"))["key"]] = int(ceiling)
                self._shorten(uid, self._bodies.get(pod, ("", {}))[1])
            return
        self._ensure_node(node)
        known = self._bodies.get(pod)
        if known is None or known[0] != uid:
            namespace, _, name = pod.rpartition("/")
            tolerations = [found for cause in _causes(happening) for found in _toleration(*cause)]
            body = {"name": name, "namespace": namespace or "default", "nodeName": node, "tolerations": tolerations}
            self._bodies[pod] = uid, body
            if known is not None:
                self._step(at, "recreate", {"pod": pod, "node": node})
            elif self._audit and at > self._tainted_at.get((node, happening.text("taint")), at):
                self._step(at, "create", body)  # Its countdown began after the taint: the pod was created later.
            else:
                self.pods.append(body)
        self._add_taint(node, happening.text("taint"), at)

    def _shorten(self, uid: str, body: JsonObject) -> None:
        for key, seconds in self._ceilings.get(uid, {}).items():
            for each in body.get("tolerations", []):
                if each.get("key", key) == key and "tolerationSeconds" in each:
                    each["tolerationSeconds"] = min(each["tolerationSeconds"], seconds)

    def _add_taint(self, node: str, text: str, at: float) -> None:
        self._ensure_node(node)
        self._tainted_at.setdefault((node, text), at)
        taint = _read_taint(text)
        if taint not in self._taints[node]:
            self._node(node, [*self._taints[node], taint], max(at, _AT_THE_BEGINNING_SECONDS / 100))

    # The rest

    def _tell_of_circumstances(self, happening: Happening, at: float) -> None:
        pod = happening.text("pod")
        if happening.what == "evicted":
            due = at - (happening.number("late_seconds") or 0.0)
            expected = self.circumstances.evicted(happening, at, due, _WITHIN_SECONDS + self._slack)
            self._evictions.setdefault(pod, []).append(expected)
            self._pending.pop(happening.text("uid"), None)
        if happening.what != "refused" or pod in self._bodies:
            self.circumstances.report(happening, at, self._taints.keys())

    def _step(self, at: float, action: str, value: Any) -> None:
        self.steps.append({"at": max(0.0, at), action: value})

    def until(self) -> float:
        """Return when the scenario ends: at the end of the record, or at the last expectation."""
        expected = [each["at"] + each["within"] for found in self._evictions.values() for each in found]
        last: float = max([self._end + self._slack, *expected])
        return round(last, 3)

    def expectations(self) -> JsonObject:
        """Expect the controller's actions, but none for pods that were due after the record's end, or that others ended
        when they were due: of these the replay's controller may evict each that had the name.
        """
        expected: JsonObject = {pod: {"evicted": found} for pod, found in self._evictions.items()}
        if self._audit:
            # An audit log does not show what happened to other pods, only that nothing happened after its end.
            rest = {pod: {"notEvicted": {"from": self._end + self._slack}} for pod in self._bodies.keys() - expected}
            return {**expected, **dict(sorted(rest.items()))}
        unknown = self._unknown | {pod for pod, _ in self._pending.values()}
        expected |= {pod: {"pods": {"atMost": 1}} for pod in sorted(unknown) if pod in self._bodies}
        spared = sorted(self._cancelled - expected.keys())
        return {**expected, **{pod: {"notEvicted": True} for pod in spared if pod in self._bodies}}


def _read_hold(happening: Happening) -> str | bool | None:
    """Read for how long a pod's owner asks to hold it, as scenarios write it."""
    if happening.text("hold") == "forever":
        return True
    seconds = happening.number("hold")
    return None if seconds is None else f"{seconds:g}s"


def _causes(happening: Happening) -> list[tuple[str, object, object]]:
    """Return taints with the tolerations that counted, and their ceilings: all from an audit log, the one that decided
    from a log.
    """
    told = happening.objects("taints") or [happening.fields]
    return [(str(taint.get("taint")), taint.get("toleration"), taint.get("ceiling_seconds")) for taint in told]


def _only(told: JsonObject, names: tuple[str, ...]) -> JsonObject:
    """Return the fields of these names whose values a scenario accepts."""
    return {name: told[name] for name in names if isinstance(told.get(name), str | int)}


def _read_taint(text: str) -> JsonObject:
    key, _, value = text.rpartition(":")[0].partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": "NoExecute"}


def _toleration(taint: str, told: object, ceiling: object) -> list[JsonObject]:
    if not isinstance(told, str):
        return []
    found = _FOR.search(told)
    shorter = ceiling if isinstance(ceiling, int) else None
    seconds = {} if found is None else {"tolerationSeconds": int(found[1]) if shorter is None else shorter}
    return [{"key": _read_taint(taint)["key"], "operator": "Exists", "effect": "NoExecute", **seconds}]
