"""A model of Kubernetes' own taint-eviction-controller, with its faults: what this controller is compared with.

It is written from what ``pkg/controller/tainteviction`` of Kubernetes 1.36 does and shares no code with this project's
controller but its values. What it is said to get wrong is listed, with how that is known, in tests/built_in/README.md.
"""
