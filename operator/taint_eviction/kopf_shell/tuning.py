"""Kopf's settings for one watch: each by a public setting of Kopf, with its reason.

The controller uses only ``on.event`` handlers. Whatever Kopf would store on objects for other handlers
(finalizers, last handled states, progress) is switched off: nothing that Kopf does may write to a node or a pod.

Reference: https://docs.kopf.dev/en/stable/configuration/
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import kopf

from taint_eviction.kopf_shell.storages import NoDiffBase, NoProgress
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchScope

# Kopf removes its finalizer from every object on which no handler needs it, even if another Kopf operator has set it.
# With an unused name, the finalizers of other operators stay.
UNUSED_FINALIZER = "taint-eviction.invalid/never-set"

# The name of this operator in Kopf's peering, which is off. Without a name Kopf makes one up for each operator that it
# starts, by a blocking reverse DNS query.
OPERATOR_IDENTITY = "taint-eviction"


# How long a streaming request lasts, plus or minus a quarter, before the API server ends it and Kopf opens the next:
# streams without an end would never move to a less busy API server.
_SERVER_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTuning:
    """How Kopf watches. All spans are in seconds.

    ``page_size``: objects per page of a list of all nodes or all bound pods; 0 lists everything in one response. The
    pods of a single node are always listed in one response: older API servers serve a limited list from etcd and read
    all pods of the cluster for it.

    ``inactivity_seconds``: Kopf reopens a stream, at the version it has reached, after this time without any line, not
    even a bookmark. Kopf asks for bookmarks, and API servers send them every 60 s. API servers keep events for only
    75 s with certainty, so this must not be much longer.

    ``silence_seconds``: the watch ends after this time without any response or any line on its stream. Kopf has states
    in which it waits or retries indefinitely: connection refused, 429, a resource that discovery does not show.

    ``connect_seconds`` bounds the opening of a connection, ``request_seconds`` the reading of one page of a list.

    ``retry_seconds``: the waits between attempts of one request. Each is lengthened or shortened by up to half:
    otherwise hundreds of watches would retry at the same instant. After the last of them, 403 and 5xx end the watch;
    while connections fail, Kopf begins again indefinitely and keeps its position in the stream.
    """

    page_size: int = 500
    inactivity_seconds: float = 80.0
    silence_seconds: float = 120.0
    connect_seconds: float = 10.0
    request_seconds: float = 60.0
    retry_seconds: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0)


class JitteredWaits:
    """The waits between attempts. Can be iterated any number of times, with different waits each time.

    Never empty: without a wait Kopf retries a refused connection in a busy loop.
    """

    def __init__(self, seconds: tuple[float, ...]) -> None:
        self._seconds = seconds or (1.0,)

    def __len__(self) -> int:
        return len(self._seconds)

    def __iter__(self) -> Iterator[float]:
        return (wait * random.uniform(0.5, 1.5) for wait in self._seconds)


def resource_of(scope: WatchScope) -> str:
    """Return the plural of the watched resource, as in a URL."""
    match scope:
        case NodesScope():
            return "nodes"
        case PodsScope():
            return "pods"


def field_selector_of(scope: WatchScope) -> str | None:
    """Return the field selector of the watched objects; None for all objects."""
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
    # By default, 10 minutes after the end of any embedded Kopf, Kopf sends SIGKILL to the whole process.
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.scanning.disabled = True  # Kopf watches neither CRDs nor namespaces, and needs no rights on them.
    settings.persistence.finalizer = UNUSED_FINALIZER
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    # An idle worker holds 7 KB and its whole object; a new worker costs next to nothing.
    settings.queueing.idle_timeout = 0.5
    _set_watching(settings, scope, tuning)
    settings.networking.request_timeout = tuning.request_seconds
    settings.networking.connect_timeout = tuning.connect_seconds
    settings.networking.error_backoffs = JitteredWaits(tuning.retry_seconds)
    return settings


def _set_watching(settings: kopf.OperatorSettings, scope: WatchScope, tuning: WatchTuning) -> None:
    watching = settings.watching
    # Different for each watch: otherwise watches that start together would reconnect together indefinitely.
    watching.server_timeout = int(_SERVER_SECONDS * random.uniform(0.75, 1.25))
    watching.client_timeout = watching.server_timeout + tuning.inactivity_seconds
    watching.connect_timeout = tuning.connect_seconds
    watching.inactivity_timeout = tuning.inactivity_seconds
    single_node = isinstance(scope, PodsScope) and scope.node_name is not None
    watching.chunk_size = None if single_node else tuning.page_size or None
    selector = field_selector_of(scope)
    if selector is not None:
        watching.field_selectors["v1", resource_of(scope)] = selector
