"""Plans: which pods would leave, when and why, and which budgets that would violate; for the verb ``plan``.

Reads a cluster or files into an ``Inventory``, applies hypothetical changes, asks ``forecast``, and adds it up.
Prints nothing, and changes nothing.
"""
