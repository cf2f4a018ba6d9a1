"""Which rule governs a pod if several taints become due one after the other."""

from tests.unit.builders import pod, seen, since, taint, tolerates

from taint_eviction.core.decision import DecisionPolicy, Evict, decide
from taint_eviction.core.governing import let_go
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, PolicyRule


def test_a_pod_that_a_rule_pauses_is_evicted_because_of_the_next_due_taint() -> None:
    """A later taint does not decide, although its rule is faster."""
    keys = ("paused", "asks", "deletes")
    which = pod(*(tolerates(20 * number, key) for number, key in enumerate(keys)), bound_at=0)
    decision = decide(which, since(0), [seen(taint(key)) for key in keys], DecisionPolicy())
    assert isinstance(decision, Evict)
    rules = (PolicyRule("paused", ("paused",), pause=True), PolicyRule("asks", ("asks",), mode=EvictionMode.EVICT))
    gone = let_go(decision, which, EvictionPolicy(rules=rules))
    assert (gone.fire_at, gone.deciding.taint.key) == (20, "asks")
