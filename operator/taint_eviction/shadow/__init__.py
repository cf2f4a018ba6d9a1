"""The shadow: what the built-in controller does to each pod, held against what this one would have done.

Pure, as the core is: it reads no clock and changes nothing, and no decision depends on it.
"""
