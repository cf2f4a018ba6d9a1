"""What holds a pod that is Terminating, found from objects; for ``explain`` and ``status --stuck``.
Reads a cluster with the rights of the current user; writes nothing, and suggests nothing that is unsafe. Unlike the
package ``planning``, it is about what has happened, not about what would happen.
"""
