"""Tests of how pods of the controller are read: anybody may create one with its label in a namespace of its own."""

import tracemalloc

from taint_eviction_ctl.installation.replicas import read_replicas


def test_arguments_that_name_a_long_variable_again_and_again_need_little_memory() -> None:
    """Written out, each of these would have 100 MB; one of 600 kB in all can have 20 GB."""
    env = [{"name": "LONG", "value": "x" * 10_000}]
    containers = [{"args": ["$(LONG)" * 10_000], "env": env}]
    pod = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": containers}}
    tracemalloc.start()
    try:
        replicas, problems = read_replicas([pod], "pods")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert ([each.name for each in replicas], problems) == (["web"], [])
