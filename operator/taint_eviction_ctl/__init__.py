"""The verbs that people type at a terminal: ``status``, ``explain``, ``plan``, ``pause`` and others.

The command ``taint-eviction`` finds them by entry points. They read the cluster and ask the controller with the rights
of the current user; no module of this package is loaded by ``taint-eviction run``. The packages, from the lowest layer
up: ``installation`` (what ``doctor`` examines), ``planning``, ``failover`` and ``picture``, ``cli`` (the verbs).
"""
