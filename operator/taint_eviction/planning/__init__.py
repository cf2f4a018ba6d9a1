"""What if: who would leave a cluster, when, why, and what would that break. The ``plan`` command is made of this.

Reads a cluster or files into an ``Inventory``, applies hypothetical changes, asks ``core.forecast``, and adds it up.
Prints nothing, and changes nothing.
"""
