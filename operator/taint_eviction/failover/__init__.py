"""What holds a pod that was asked to go and is still there, found from objects; for ``explain`` and ``status --stuck``.

Reads a cluster with the rights of the person who asks; writes nothing, and suggests nothing that is unsafe. Unlike the
room ``planning`` it is about what has happened, not about what would.
"""
