"""A NoExecute taint-eviction controller for Kubernetes: the process.

This module holds the version and nothing else. The packages, from the lowest layer up: ``core`` (pure decisions),
``files`` and ``settings`` (what people write), ``runtime`` (waits and works), ``login`` (credentials and connections),
``kube`` (calls to the API server), ``kopf_shell`` (one watch), ``reporting`` (what others read of it), ``wiring`` (one
object graph), ``cli`` (the command ``taint-eviction`` with its verb ``run``).
"""

__version__ = "0.2.0"
