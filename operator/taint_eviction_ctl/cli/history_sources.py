"""What is known of outcomes without a replica: the ConfigMap that the leader keeps, and Kubernetes' events.

Both are read with the rights of the current user, and say why if they cannot be. Events fill in what is newer than the
ConfigMap's last write; anybody who may create events may have written them.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.text import JsonObject, one_line
from taint_eviction.files.kubernetes_times import format_micro_time, format_rfc3339, parse_rfc3339
from taint_eviction.kube.api_calls import ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.json_fields import Unreadable
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.reporting.event_recorder import marking_for_deletion
from taint_eviction.reporting.outcome_keeper import read_kept
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import history_name
from taint_eviction_ctl.cli.reaching import reaching

_REASON = "TaintManagerEviction"
_DRY_RUN = "Dry run: "
# Events are read in pages; a tenant may have written many.
_MAX_EVENTS = 10_000
_AHEAD_SECONDS = 60.0


@dataclass
class Source:
    """The outcomes of a source. ``since``: from when on it has them, None: not known. ``problem``: why it has none, or
    not all. ``away``: the API server did not answer. ``lasting`` False: it forgets them within hours.
    ``restored_from``: the ConfigMap from which a replica has restored what leaders before it have kept.
    """

    name: str
    outcomes: list[JsonObject] = field(default_factory=list)
    since: str | None = None
    problem: str = ""
    away: bool = False
    lasting: bool = True
    restored_from: str | None = None

    def not_read(self, error: Exception) -> None:
        """Note why it could not be read."""
        self.problem = f"not read: {one_line(error)}"
        self.away = isinstance(error, CallFailed) and error.reason is FailureReason.NO_ANSWER


async def kept_outcomes(flags: Mapping[str, Any]) -> Source:
    """Read what the leader has kept."""
    key = NamespacedName(flags["lease_namespace"], history_name(flags["lease_name"]))
    source = Source(f"ConfigMap {key}")
    try:
        async with reaching(flags) as cluster:
            _, record = await read_kept(cluster.calls, key)
    except (CredentialsError, CallFailed, Unreadable) as error:
        source.not_read(error)
        return source
    if record is None:
        source.problem = "nothing is kept there"
        return source
    source.since = format_rfc3339(record.since_epoch)
    source.name += f", written {format_rfc3339(record.written_epoch)}"
    kept = [orjson.loads(each.line) for each in record.outcomes() if each is not None]
    source.outcomes = [{**each, "keptBy": f"ConfigMap {key}", "dryRun": record.dry_run} for each in kept]
    return source


async def event_outcomes(flags: Mapping[str, Any], query: Mapping[str, str | int], dry_run: bool) -> Source:
    """Read the events about evictions: those of pods that a dry run would have evicted, or the others."""
    source = Source("events", lasting=False)
    namespace, _, name = str(query.get("pod", "")).rpartition("/")
    selected = [f"reason={_REASON}"]
    selected += [f"involvedObject.name={name}"] if name else []
    selected += [f"involvedObject.uid={query['uid']}"] if "uid" in query else []
    where = namespace or str(query.get("namespace", ""))
    call = ApiRequest("list", "events", where, query={"fieldSelector": ",".join(selected)})
    try:
        count = 0
        async with reaching(flags) as cluster, contextlib.aclosing(list_items(cluster.calls, call, _counted)) as rows:
            async for row in rows:
                count += 1
                ahead = (parse_rfc3339(row.get("time")) or 0.0) > cluster.clock.now().server_epoch + _AHEAD_SECONDS
                if row and row["dryRun"] == dry_run and not ahead:
                    source.outcomes.append(row)
                if count >= _MAX_EVENTS:
                    source.problem = f"only {_MAX_EVENTS} of them were read"
                    break
    except (CredentialsError, CallFailed) as error:
        source.not_read(error)
    source.since = min((each["time"] for each in source.outcomes), default=None)
    return source


def _counted(event: JsonObject) -> JsonObject:
    """Return the outcome that an event tells, an empty one if it tells none: those that anybody creates count, too."""
    return _row(event) or {}


def _row(event: JsonObject) -> JsonObject | None:
    """Return the outcome that an event tells, None if it tells none. A field of another type counts as absent."""
    about = event.get("involvedObject")
    message = event.get("message")
    epoch = parse_rfc3339(event.get("lastTimestamp")) or parse_rfc3339(event.get("eventTime"))
    if not isinstance(about, dict) or not isinstance(message, str) or epoch is None or about.get("kind") != "Pod":
        return None
    namespace, name, uid = about.get("namespace"), about.get("name"), about.get("uid")
    if not isinstance(namespace, str) or not isinstance(name, str):
        return None
    # By events.k8s.io, events of one namespace may be about pods of another: who may create events there invents them.
    metadata = event.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("namespace") != namespace:
        return None
    dry_run, text = message.startswith(_DRY_RUN), message.removeprefix(_DRY_RUN)
    begin = marking_for_deletion(PodRef(NamespacedName(namespace, name), ""))
    if not text.startswith(begin):
        return None
    # The built-in controller's events name no UID, and come before it is known that the pod exists.
    own = isinstance(uid, str) and bool(uid)
    told_by = event.get("reportingInstance") if own else ""
    return {
        "time": format_micro_time(epoch),
        "outcome": "evicted" if own else "marked",
        "namespace": one_line(namespace),
        "name": one_line(name),
        "uid": one_line(str(uid)) if own else "",
        "node": None,
        "owner": None,
        "taint": None,
        "toleration": None,
        "byDefault": None,
        "ceiling": None,
        "why": one_line(text.removeprefix(begin).removeprefix(": ")) or None,
        "since": None,
        "sinceBy": None,
        "deadline": None,
        "lateSeconds": None,
        "heldSeconds": None,
        "heldBy": [],
        "builtInAt": None,
        "call": None,
        "tries": None,
        "answer": None,
        "budget": None,
        "keptBy": None,
        "toldBy": one_line(f"an event of {told_by or 'another controller (probably the built-in one)'}"),
        "dryRun": dry_run,
    }
