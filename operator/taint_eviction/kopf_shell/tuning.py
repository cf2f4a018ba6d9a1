"""How Kopf is set for one watch: every value by Kopf's public settings, each with its reason.

Kopf is used for ``on.event`` only. So all that it keeps on objects for other kinds of handlers (finalizers, diff bases,
progress) is replaced by nothing, and nothing that it does may ever write to a node or a pod.

Reference: https://docs.kopf.dev/en/stable/configuration/
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import kopf

from taint_eviction.kopf_shell.storages import NoDiffBase, NoProgress
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchScope

# Kopf strips its finalizer from every object on which no handler needs it, also where another Kopf operator has set
# it. A name that nobody uses leaves the others' finalizers alone.
UNUSED_FINALIZER = "taint-eviction.invalid/never-set"

# Our name towards Kopf's peering, which is off. Without one Kopf makes one up for each operator that it starts, by a
# blocking reverse DNS query.
OPERATOR_IDENTITY = "taint-eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTuning:
    """All spans in seconds.

    ``page_size``: objects per page where all nodes or all bound pods are listed; 0 lists in one answer. A single
    node's pods are always listed in one: older API servers read a limited list from etcd, all pods of the cluster.

    ``inactivity_seconds``: a stream on which Kopf was given nothing for so long, not even a bookmark, is opened anew at
    the version reached. Kopf asks for bookmarks and API servers send them every 60 s; what they keep for a stream that
    goes on is sure for 75 s only, so hardly more than that.

    ``silence_seconds``: the watch ends when no answer and nothing on its stream came in a window of this length. Kopf
    has states in which it waits or tries for ever (connection refused, 429, a resource that discovery does not show).

    ``server_seconds``: how long one streaming request lasts, give or take a quarter, before the API server ends it and
    Kopf opens the next: streams that last never find a less busy API server. ``connect_seconds`` bounds the making of a
    connection, ``request_seconds`` a whole page of a list.

    ``retry_seconds``: the waits between attempts of one request; each is lengthened or shortened by up to half, or
    hundreds of watches would come back in step. While connections fail, Kopf starts over for ever and keeps its place
    in the stream; 403 and 5xx end the watch after the last.

    ``logins``: how often in a row 401 is answered by a login before the watch ends.

    ``straining``: swallow heartbeats and cut objects down before Kopf sees them; see ``sieve``.
    """

    page_size: int = 500
    inactivity_seconds: float = 80.0
    silence_seconds: float = 120.0
    server_seconds: float = 600.0
    connect_seconds: float = 10.0
    request_seconds: float = 60.0
    retry_seconds: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0)
    logins: int = 3
    straining: bool = True


class JitteredWaits:
    """The waits between attempts: iterable as often as wanted, different each time.

    Never empty: a refused connection with no wait at all sends Kopf round and round without a pause.
    """

    def __init__(self, seconds: tuple[float, ...]) -> None:
        self._seconds = seconds or (1.0,)

    def __len__(self) -> int:
        return len(self._seconds)

    def __iter__(self) -> Iterator[float]:
        return (wait * random.uniform(0.5, 1.5) for wait in self._seconds)


def resource_of(scope: WatchScope) -> str:
    """Name the watched resource in the plural, as in a URL."""
    match scope:
        case NodesScope():
            return "nodes"
        case PodsScope():
            return "pods"


def field_selector_of(scope: WatchScope) -> str | None:
    """Say which of the objects the API server should send; None for all."""
    match scope:
        case NodesScope():
            return None
        case PodsScope(node_name=None):
            return "spec.nodeName!="
        case PodsScope(node_name=name):
            return f"spec.nodeName={name}"


def operator_settings(scope: WatchScope, tuning: WatchTuning) -> kopf.OperatorSettings:
    """Build Kopf's settings for one watch."""
    settings = kopf.OperatorSettings()
    # By default the end of any embedded Kopf sends SIGKILL to the whole process 10 minutes later.
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.scanning.disabled = True  # watches neither CRDs nor namespaces, and needs no rights on them
    settings.persistence.finalizer = UNUSED_FINALIZER
    # 61 % of the CPU of an event went into deep copies in these two, kept for handlers that are not used here.
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    # An object's worker holds 7 KB and the object while it idles; a new one costs next to nothing.
    settings.queueing.idle_timeout = 0.5
    _set_watching(settings, scope, tuning)
    settings.networking.request_timeout = tuning.request_seconds
    settings.networking.connect_timeout = tuning.connect_seconds
    settings.networking.error_backoffs = JitteredWaits(tuning.retry_seconds)
    return settings


def _set_watching(settings: kopf.OperatorSettings, scope: WatchScope, tuning: WatchTuning) -> None:
    watching = settings.watching
    # Different for each watch, or those that were started together would come back together for ever.
    watching.server_timeout = int(tuning.server_seconds * random.uniform(0.75, 1.25))
    watching.client_timeout = watching.server_timeout + tuning.inactivity_seconds
    watching.connect_timeout = tuning.connect_seconds
    watching.inactivity_timeout = tuning.inactivity_seconds
    single_node = isinstance(scope, PodsScope) and scope.node_name is not None
    watching.chunk_size = None if single_node else tuning.page_size or None
    selector = field_selector_of(scope)
    if selector is not None:
        watching.field_selectors["v1", resource_of(scope)] = selector
