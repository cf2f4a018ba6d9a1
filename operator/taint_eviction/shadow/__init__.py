"""The shadow: compares what the built-in controller does to each pod with what this controller would have done.
Pure, like the core: it reads no clock and changes nothing, and no decision depends on it.
"""
