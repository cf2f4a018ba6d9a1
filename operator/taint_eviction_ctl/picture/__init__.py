"""Evictions as a picture: a row for each pod, by node, on one self-contained HTML page.

A ``Picture`` is made from a plan, a replay, a record, remembered outcomes or the demo; ``page.html`` draws it.
"""
