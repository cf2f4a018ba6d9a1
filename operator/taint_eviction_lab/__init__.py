"""The laboratory: scenarios and their replay on a virtual clock, the demo, and journals made into scenarios.

The controller (``taint_eviction``) never imports the laboratory; its command finds the laboratory's verbs by entry
points.
"""
