"""What will happen to each pod, and what changes of taints and tolerations result in."""

from tests.unit.builders import moment, no_schedule, node, pod, ref, taint, tolerates

from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.objects import Node, Pod, Taint, Toleration
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction_ctl.planning.forecast import (
    PodForecast,
    WhatIf,
    add_taint,
    add_toleration,
    forecast,
    remove_taints,
)

UNCHANGED = WhatIf(0.0, {})


def foretold(what_if: WhatIf, told: Node, *pods: Pod) -> list[PodForecast]:
    """Forecast at instant 0."""
    return forecast([told], pods, what_if, moment(0.0), DecisionPolicy(), EvictionPolicy())


def test_pods_are_forecast_in_the_order_given() -> None:
    """Each forecast says when the pod leaves, or None if it stays."""
    pods = [pod(tolerates(9), name="b", uid="b"), pod(name="a"), pod(tolerates(), name="c", uid="c")]
    found = foretold(UNCHANGED, node(taint()), *pods)
    assert [(each.pod.ref.key.name, each.leaves_at) for each in found] == [("b", 9.0), ("a", 0.0), ("c", None)]


def test_of_several_pods_with_one_name_the_last_is_forecast() -> None:
    """It is the pod that was read last."""
    found = foretold(UNCHANGED, node(taint()), pod(uid="old"), pod(uid="new"))
    assert [each.pod.ref.uid for each in found] == ["new"]


def test_a_pod_due_at_the_instant_of_a_change_is_still_there() -> None:
    """The removal of a taint comes before evictions that are due at the same instant; a pod due earlier has left."""
    clean = WhatIf(9.0, {"n1": ()})
    found = foretold(clean, node(taint()), pod(tolerates(8), name="early", uid="e"), pod(tolerates(9)))
    assert [each.leaves_at for each in found] == [8.0, None]


def test_an_immediate_change_comes_before_overdue_evictions() -> None:
    """A person who removes the taint now wants to know which pods stay."""
    overdue = pod(tolerates(10), name="overdue", uid="o", bound_at=-200)
    found = foretold(WhatIf(0.0, {"n1": ()}), node(taint(added_at=-100)), pod(), overdue)
    assert [each.leaves_at for each in found] == [None, None]
    assert foretold(UNCHANGED, node(taint(added_at=-100)), overdue)[0].leaves_at == -89.0


def test_a_pod_that_leaves_without_the_change_is_marked() -> None:
    """The other pods leave earlier because of the change, leave only because of it, or stay."""
    sooner = WhatIf(0.0, {"n1": (taint(), taint("k2"))})
    kept = pod(tolerates(), tolerates(key="k2"), name="stays", uid="s")
    hastened = pod(tolerates(60), tolerates(30, key="k2"), name="hastened", uid="h")
    anyway = pod(tolerates(30), tolerates(60, key="k2"), name="anyway", uid="w")
    only_by_it = pod(tolerates(), name="only", uid="o")
    found = foretold(sooner, node(taint()), kept, hastened, anyway, only_by_it)
    assert [each.anyway for each in found] == [False, False, True, False]


def test_pods_of_a_deleted_node_are_orphans() -> None:
    """Pods of other nodes are not."""
    gone = WhatIf(0.0, {}, frozenset({"n1"}))
    found = foretold(gone, node(taint()), pod(), pod(on="n2", name="other", uid="o"))
    assert [(each.orphaned, each.leaves_at) for each in found] == [(True, None), (False, None)]


def test_new_tolerations_apply_from_the_change_on() -> None:
    """Only named pods get them, and their seconds count from the taint's start; an unknown pod changes nothing."""
    kinder = WhatIf(5.0, {}, tolerations={ref(): (tolerates(60),), ref("unknown", "u"): ()})
    [found] = foretold(kinder, node(taint()), pod(tolerates(30)))
    assert found.leaves_at == 60.0


def test_a_what_if_without_changes_is_empty() -> None:
    """A change of taints, nodes or tolerations makes it not empty."""
    assert UNCHANGED.empty
    assert not WhatIf(0.0, {"n1": ()}).empty
    assert not WhatIf(0.0, {}, frozenset({"n1"})).empty
    assert not WhatIf(0.0, {}, tolerations={ref(): ()}).empty


def test_a_taint_replaces_the_one_with_its_key_and_effect() -> None:
    """A taint with the same value changes nothing; one with another key or effect is added."""
    old, other = taint(value="old"), no_schedule()
    assert add_taint((old, other), taint(value="new")) == (other, taint(value="new"))
    same = (taint(value="old", added_at=5.0), other)
    assert add_taint(same, old) is same
    assert add_taint((old,), taint("k2")) == (old, taint("k2"))
    assert add_taint((old,), other) == (old, other)


def test_taints_are_removed_by_key_and_effect_or_by_key() -> None:
    """All other taints stay."""
    taints: tuple[Taint, ...] = (taint(), no_schedule(), taint("k2"))
    assert remove_taints(taints, "k1", "") == (taint("k2"),)
    assert remove_taints(taints, "k1", "NoSchedule") == (taint(), taint("k2"))
    assert remove_taints(taints, "k3", "") == taints


def test_a_toleration_gets_new_seconds_in_its_place_or_is_added_last() -> None:
    """Tolerations are the same if all their other fields are equal."""
    tolerations: tuple[Toleration, ...] = (tolerates(30), tolerates(60, "k2"))
    assert add_toleration(tolerations, tolerates(None)) == (tolerates(None), tolerates(60, "k2"))
    assert add_toleration(tolerations, tolerates(5, "k3")) == (*tolerations, tolerates(5, "k3"))
