"""What the core can observe: a closed union of facts about the cluster.

Facts may come late, twice, out of order or never. ``asked_at`` is the instant at which the request that brought the
fact was sent, None if it came from a watch, or from a list that may be old: an answer is newer than everything that was
seen before its request.
"""

from dataclasses import dataclass

from taint_eviction.core.objects import Node, Pod, PodRef


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as it is.

    ``after_gap``: it comes from a list that bridges a gap of the watch, so a taint may have been removed and set again
    unseen. A live read, or a list beside an open watch, bridges no gap: the watch will bring the same changes.
    """

    node: Node
    after_gap: bool = False
    asked_at: float | None = None


@dataclass(frozen=True, slots=True)
class NodesHeard:
    """The watch of nodes is alive, and everything it has brought up to ``version`` was observed; None if that is no
    number. This includes what needs no fact of its own: bookmarks, and events that change nothing.
    """

    version: int | None


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node that no longer exists. ``uid`` None: no node of this name exists."""

    name: str
    uid: str | None = None
    asked_at: float | None = None


@dataclass(frozen=True, slots=True)
class NodesSwept:
    """The end of a list of all nodes: a node whose UID is not ``present`` is gone, unless it was seen since
    ``asked_at``. ``resource_version`` is the list's, None if it is no number.
    """

    present: frozenset[str]
    asked_at: float
    resource_version: int | None


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod as it is. ``absent_at``: the latest instant at which it was certainly not yet bound to its node."""

    pod: Pod
    asked_at: float | None = None
    absent_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod (this UID) that no longer exists."""

    ref: PodRef


@dataclass(frozen=True, slots=True)
class PodsSwept:
    """The end of a list of the pods of ``node_name``, or of all bound pods if that is None; see ``NodesSwept``."""

    node_name: str | None
    present: frozenset[str]
    asked_at: float
    resource_version: int | None


@dataclass(frozen=True, slots=True)
class PodsReleased:
    """The pods of a node are no longer watched: the core's knowledge of them is no longer kept up to date."""

    node_name: str


Fact = NodeSeen | NodesHeard | NodeGone | NodesSwept | PodSeen | PodGone | PodsSwept | PodsReleased
