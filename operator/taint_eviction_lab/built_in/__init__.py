"""A model of Kubernetes' own taint-eviction-controller, with its faults, for comparisons with this controller.
It follows ``pkg/controller/tainteviction`` of Kubernetes 1.36, and shares only value types with this project's
controller. tests/built_in/README.md lists the faults of the original and the evidence for each.
"""
