"""A NoExecute taint-eviction controller for Kubernetes.

The door of the package: it holds the version and nothing else. The rooms, from the ground up: ``core`` (pure
decisions), ``settings``, ``runtime`` (waits and works), ``kopf_shell`` / ``adapters`` / ``simulation`` (skins),
``wiring`` (one object graph), ``cli`` (speaks to people).
"""

__version__ = "0.2.0"
