"""A record as a scenario file: the same nodes, pods, taints and instants, to be replayed, changed, and kept as a test.

What the controller did becomes what is expected. A log tells less than a journal: there only the pods that had a
deadline are known, and of their tolerations the one that counted; an audit log, only those that were to go.
"""

import re
from typing import Any

import yaml

from taint_eviction.history.happening import Happening
from taint_eviction.history.record import Record

# What is seen so soon after the beginning was there before it.
_AT_THE_BEGINNING_SECONDS = 3.0
_WITHIN_SECONDS = 2.0
_FOR = re.compile(r"for (-?\d+) s$")

JsonObject = dict[str, Any]


def scenario_text(record: Record) -> str:
    """Write the scenario; second 0 is the record's beginning."""
    story = _Story(record)
    for happening in record.happenings:
        story.tell(happening)
    document = {
        "about": f"Recorded: {record.name}. {record.missing}".strip(),
        # Pods have their tolerations already.
        "settings": {"defaultTolerationSeconds": None},
        "given": {"nodes": story.nodes, "pods": story.pods},
        "timeline": sorted(story.steps, key=lambda step: float(step["at"])),
        "expect": story.expectations(),
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


class _Story:
    def __init__(self, record: Record) -> None:
        self.nodes: list[JsonObject] = []
        self.pods: list[JsonObject] = []
        self.steps: list[JsonObject] = []
        self._begin = record.begins_at
        self._end = round(record.happenings[-1].at - self._begin, 3) if record.happenings else 0.0
        self._observed = record.observed
        # A log's times are whole seconds; a journal's are as late as the fact was.
        self._slack = 0.1 if record.observed else 1.0
        self._taints: dict[str, list[JsonObject]] = {}
        self._bodies: dict[str, tuple[str, JsonObject]] = {}
        self._evicted: dict[str, list[float]] = {}
        self._cancelled: set[str] = set()
        self._gone: set[str] = set()
        self._audit = record.audit
        self._tainted_at: dict[tuple[str, str], float] = {}

    def tell(self, happening: Happening) -> None:
        """Take in what happened next."""
        at = round(happening.at - self._begin, 3)
        pod = happening.text("pod")
        match happening.what:
            case "node":
                taints = [self._taint(taint) for taint in happening.fields.get("taints") or []]
                self._node(happening.text("node"), taints, at)
            case "node gone":
                self._step(at, "deleteNode", happening.text("node"))
                self._taints.pop(happening.text("node"), None)
            case "pod":
                self._pod(pod, happening.text("uid"), self._body(happening), self._since(happening, at))
            case "pod gone":
                self._pod_gone(pod, happening.text("uid"), at)
            case "taint":
                self._add_taint(happening.text("node"), happening.text("taint"), at)
            case "scheduled":
                self._scheduled(happening, at)
            case "evicted":
                late = happening.number("late_seconds") or 0.0
                self._evicted.setdefault(pod, []).append(max(0.0, round(at - late - self._slack, 3)))
                self._gone.add(happening.text("uid"))
            case "cancelled":
                self._cancelled.add(pod)
            case "cleared" if not self._observed:
                self._node(happening.text("node"), [], at)
            case _:
                pass

    # Nodes

    def _node(self, name: str, taints: list[JsonObject], at: float) -> None:
        known = self._taints.get(name)
        if known == taints:
            return
        self._taints[name] = taints
        if known is not None:
            self._step(at, "setTaints", {"node": name, "taints": taints})
        elif at <= _AT_THE_BEGINNING_SECONDS:
            self.nodes.append({"name": name, **({"taints": taints} if taints else {})})
        else:
            self._step(at, "createNode", {"name": name, **({"taints": taints} if taints else {})})

    def _taint(self, taint: JsonObject) -> JsonObject:
        added = taint.get("added")
        told = {key: value for key, value in taint.items() if key != "added"}
        return told if added is None else {**told, "timeAdded": round(added - self._begin)}

    # Pods

    def _since(self, happening: Happening, at: float) -> float:
        """Say since when a pod has been there: it is seen only once its node is tainted."""
        bound_at = happening.number("bound")
        known = self._bodies.get(happening.text("pod"))
        if bound_at is None or (known is not None and known[0] == happening.text("uid")):
            return at
        # Cut off to whole seconds: it may have been up to a second later.
        return min(at, max(0.0, bound_at + 1.0 - self._begin))

    def _body(self, happening: Happening) -> JsonObject:
        namespace, _, name = happening.text("pod").rpartition("/")
        fields = happening.fields
        body: JsonObject = {"name": name, "namespace": namespace or "default"}
        if fields.get("on"):
            body["nodeName"] = fields["on"]
            self._ensure_node(fields["on"])
        if fields.get("tolerations"):
            body["tolerations"] = fields["tolerations"]
        if fields.get("mirror"):
            body["annotations"] = {"kubernetes.io/config.mirror": "recorded"}
        if fields.get("finished"):
            body["phase"] = "Succeeded"
        return body

    def _ensure_node(self, name: str) -> None:
        if name not in self._taints:
            self._node(name, [], 0.0)

    def _pod(self, pod: str, uid: str, body: JsonObject, at: float) -> None:
        known = self._bodies.get(pod)
        self._bodies[pod] = uid, body
        if known is not None and known[0] == uid:
            self._changed(pod, known[1], body, at)
        elif at <= _AT_THE_BEGINNING_SECONDS and known is None:
            self.pods.append(body)
        elif known is None:
            self._step(at, "create", body)
        else:
            # The same name again: the old one goes if it is still there.
            node = {"node": body.get("nodeName")}
            self._step(at, "recreate", {"pod": pod, **node})
            if body.get("tolerations") != known[1].get("tolerations"):
                self._step(at, "tolerate", {"pod": pod, "tolerations": body.get("tolerations", [])})

    def _changed(self, pod: str, before: JsonObject, body: JsonObject, at: float) -> None:
        if body.get("nodeName") and not before.get("nodeName"):
            self._step(at, "bind", {"pod": pod, "node": body["nodeName"]})
        if body.get("tolerations") != before.get("tolerations"):
            self._step(at, "tolerate", {"pod": pod, "tolerations": body.get("tolerations", [])})
        if body.get("phase") and not before.get("phase"):
            self._step(at, "finish", pod)

    def _pod_gone(self, pod: str, uid: str, at: float) -> None:
        # The replay's own controller evicts what was evicted.
        if uid not in self._gone and pod in self._bodies:
            self._step(at, "delete", {"pod": pod, "force": True})
        self._gone.add(uid)

    def _scheduled(self, happening: Happening, at: float) -> None:
        """From a log only: what the line tells of pod, node and taint must do."""
        if self._observed:
            return
        node, pod, uid = happening.text("node"), happening.text("pod"), happening.text("uid")
        self._ensure_node(node)
        known = self._bodies.get(pod)
        if known is None or known[0] != uid:
            namespace, _, name = pod.rpartition("/")
            tolerations = [found for cause in _causes(happening) for found in _toleration(*cause)]
            body = {"name": name, "namespace": namespace or "default", "nodeName": node, "tolerations": tolerations}
            self._bodies[pod] = uid, body
            if known is not None:
                self._step(at, "recreate", {"pod": pod, "node": node})
            elif self._audit and at > self._tainted_at[node, happening.text("taint")]:
                self._step(at, "create", body)  # Its countdown began later than the taint: it came later.
            else:
                self.pods.append(body)
        self._add_taint(node, happening.text("taint"), at)

    def _add_taint(self, node: str, text: str, at: float) -> None:
        self._ensure_node(node)
        self._tainted_at.setdefault((node, text), at)
        taint = _read_taint(text)
        if taint not in self._taints[node]:
            self._node(node, [*self._taints[node], taint], max(at, _AT_THE_BEGINNING_SECONDS / 100))

    # The rest

    def _step(self, at: float, action: str, value: Any) -> None:
        self.steps.append({"at": max(0.0, at), action: value})

    def expectations(self) -> JsonObject:
        """Expect what the controller did."""
        expected: JsonObject = {
            pod: {"evicted": [{"at": at, "within": _WITHIN_SECONDS + self._slack} for at in instants]}
            for pod, instants in self._evicted.items()
        }
        if self._audit:
            # What became of the others is not in it; only that nothing did once it ends.
            rest = {pod: {"notEvicted": {"from": self._end + self._slack}} for pod in self._bodies.keys() - expected}
            return {**expected, **dict(sorted(rest.items()))}
        spared = sorted(self._cancelled - expected.keys())
        return {**expected, **{pod: {"notEvicted": True} for pod in spared if pod in self._bodies}}


def _causes(happening: Happening) -> list[tuple[str, object]]:
    """List taints with the tolerations that counted: an audit log tells all, a log the one that decided."""
    told = happening.fields.get("taints")
    if isinstance(told, list):
        return [(str(taint.get("taint")), taint.get("toleration")) for taint in told]
    return [(happening.text("taint"), happening.fields.get("toleration"))]


def _read_taint(text: str) -> JsonObject:
    key, _, value = text.rpartition(":")[0].partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": "NoExecute"}


def _toleration(taint: str, told: object) -> list[JsonObject]:
    if not isinstance(told, str):
        return []
    found = _FOR.search(told)
    seconds = {} if found is None else {"tolerationSeconds": int(found[1])}
    return [{"key": _read_taint(taint)["key"], "operator": "Exists", "effect": "NoExecute", **seconds}]
