"""A NoExecute taint-eviction controller for Kubernetes: the process.

This module holds the version and nothing else. The packages, from the lowest layer up: ``core`` (pure decisions),
``settings``, ``runtime`` (waits and works), ``kopf_shell`` and ``adapters`` (Kubernetes and people), ``wiring`` (one
object graph), ``cli`` (the command ``taint-eviction`` with its verb ``run``).
"""

__version__ = "0.2.0"
