"""Evictions as a picture: a lane for each pod, by node, on one self-contained page that needs no network.

What is drawn is a ``Picture``, made from a plan, a replay, a journal or the demo; how it is drawn is in ``page.html``.
"""
