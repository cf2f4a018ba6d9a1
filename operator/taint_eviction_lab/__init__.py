"""The laboratory: scenarios and their replay on a virtual clock, the demo, and journals made into scenarios.

The controller (``taint_eviction``) never imports it; its verbs are found by entry points.
"""
