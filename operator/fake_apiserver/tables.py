"""Objects as `meta.k8s.io/v1` Tables, which kubectl requests unless `-o` is given. Pure except for ages.

Cells follow kubernetes/pkg/printers/internalversion for nodes, pods, leases and events; other kinds show name and age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from .clock import parse_timestamp
from .records import StoredObject
from .resources import ResourceType
from .status import JsonObject

Cells = Callable[[JsonObject, datetime], list[Any]]
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def wants_table(accept: str) -> bool:
    return "as=Table" in accept


def table(
    resource: ResourceType, records: Iterable[StoredObject], now: datetime, metadata: JsonObject, include: str
) -> JsonObject:
    """A Table of records; `include` is the query's includeObject: None, Metadata (default) or Object."""
    columns, cells = _COLUMNS.get(resource.plural, (_PLAIN, _plain))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "name" if name == "Name" else "", "description": "",
             "priority": 1 if name in _WIDE else 0}
            for name in columns
        ],
        "rows": [_row(record.decode(), cells, now, include) for record in records],
    }  # fmt: skip


def table_line(event_type: str, record: StoredObject, now: datetime, include: str) -> bytes:
    """A watch event whose object is a Table of one row."""
    metadata = {"resourceVersion": str(record.resource_version)}
    obj = table(record.resource, [record], now, metadata, include)
    return orjson.dumps({"type": event_type, "object": obj}) + b"\n"


def _row(obj: JsonObject, cells: Cells, now: datetime, include: str) -> JsonObject:
    row: JsonObject = {"cells": cells(obj, now)}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        row["object"] = {**head, "metadata": obj["metadata"]}
    return row


def age(timestamp: str | None, now: datetime) -> str:
    """`5s`, `12m`, `3h`, `2d`: coarser than kubectl's own, which adds a second unit here and there."""
    if not timestamp:
        return "<unknown>"
    seconds = max(0, int((now - parse_timestamp(timestamp)).total_seconds()))
    for unit, suffix in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{suffix}"
    return f"{seconds}s"


def _created(obj: JsonObject, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _plain(obj: JsonObject, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], _created(obj, now)]


def _node(node: JsonObject, now: datetime) -> list[Any]:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = [c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"]
    words = [{"True": "Ready", "False": "NotReady"}.get(ready[0], "NotReady") if ready else "Unknown"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(k.removeprefix(prefix) for k in metadata.get("labels") or {} if k.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or []}
    none, unknown = "<none>", "<unknown>"
    return [
        metadata["name"], ",".join(words), ",".join(roles) or none, _created(node, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP", none), addresses.get("ExternalIP", none), info.get("osImage", unknown),
        info.get("kernelVersion", unknown), info.get("containerRuntimeVersion", unknown),
    ]  # fmt: skip


def _pod(pod: JsonObject, now: datetime) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(bool(s.get("ready")) for s in statuses)
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])
    total = len(spec.get("containers") or [])
    if not statuses and is_ready:
        ready = total
    word = "Terminating" if "deletionTimestamp" in pod["metadata"] else status.get("reason") or status.get("phase", "")
    restarts = sum(s.get("restartCount", 0) for s in statuses)
    return [
        pod["metadata"]["name"], f"{ready}/{total}", word, str(restarts), _created(pod, now),
        status.get("podIP") or "<none>", spec.get("nodeName") or "<none>", status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]  # fmt: skip


def _lease(lease: JsonObject, now: datetime) -> list[Any]:
    return [lease["metadata"]["name"], (lease.get("spec") or {}).get("holderIdentity") or "", _created(lease, now)]


def _event(event: JsonObject, now: datetime) -> list[Any]:
    involved = event.get("involvedObject") or {}
    seen = event.get("lastTimestamp") or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp")
    about = f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"
    return [age(seen, now), event.get("type", ""), event.get("reason", ""), about, event.get("message", "")]


def _budget(budget: JsonObject, now: datetime) -> list[Any]:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    lowest, most = spec.get("minAvailable", "N/A"), spec.get("maxUnavailable", "N/A")
    allowed = status.get("disruptionsAllowed", 0)
    return [budget["metadata"]["name"], str(lowest), str(most), str(allowed), _created(budget, now)]


_WIDE = frozenset(
    {"Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime", "IP", "Node", "Nominated Node",
     "Readiness Gates"}
)  # fmt: skip
_PLAIN = ("Name", "Age")
_COLUMNS: Mapping[str, tuple[tuple[str, ...], Cells]] = {
    "nodes": (("Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image",
               "Kernel-Version", "Container-Runtime"), _node),
    "pods": (("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"), _pod),
    "leases": (("Name", "Holder", "Age"), _lease),
    "events": (("Last Seen", "Type", "Reason", "Object", "Message"), _event),
    "poddisruptionbudgets": (("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), _budget),
}  # fmt: skip
