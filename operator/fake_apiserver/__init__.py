"""An embedded Kubernetes API server for tests, the demo and benchmarks: its public interface.

It serves the few kinds that a taint controller needs, and custom kinds, over real HTTP, and can inject faults. It
imports nothing from the rest of the project. README.md shows how to test an operator with it.
"""

from .clock import WallClock
from .faults import Fault
from .kubeconfig import kubeconfig
from .node_lifecycle import NodeLifecycleSettings
from .population import node_object, pod_object, populate
from .request_log import LoggedRequest
from .resources import ResourceType, custom_resource
from .server import ApiServer
from .status import StatusError
from .store import Snapshot
from .watch import MALFORMED_LINE, Taps, WatchMatch

__all__ = [
    "MALFORMED_LINE",
    "ApiServer",
    "Fault",
    "LoggedRequest",
    "NodeLifecycleSettings",
    "ResourceType",
    "Snapshot",
    "StatusError",
    "Taps",
    "WallClock",
    "WatchMatch",
    "custom_resource",
    "kubeconfig",
    "node_object",
    "pod_object",
    "populate",
]
