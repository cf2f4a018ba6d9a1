"""What becomes of each pod, asked ahead of time; and what changes of taints and tolerations come to."""

from tests.unit.builders import moment, no_schedule, node, pod, ref, taint, tolerates

from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.forecast import (
    PodForecast,
    WhatIf,
    add_taint,
    add_toleration,
    forecast,
    remove_taints,
)
from taint_eviction.core.objects import Node, Pod, Taint, Toleration
from taint_eviction.core.policy import EvictionPolicy

UNCHANGED = WhatIf(0.0, {})


def foretold(what_if: WhatIf, told: Node, *pods: Pod) -> list[PodForecast]:
    """Forecast at instant 0."""
    return forecast([told], pods, what_if, moment(0.0), DecisionPolicy(), EvictionPolicy())


def test_pods_are_forecast_in_the_order_given() -> None:
    """With when they leave, None for who stays."""
    pods = [pod(tolerates(9), name="b", uid="b"), pod(name="a"), pod(tolerates(), name="c", uid="c")]
    found = foretold(UNCHANGED, node(taint()), *pods)
    assert [(each.pod.ref.key.name, each.leaves_at) for each in found] == [("b", 9.0), ("a", 0.0), ("c", None)]


def test_of_several_pods_of_one_name_the_newest_is_meant() -> None:
    """The one that was read last."""
    found = foretold(UNCHANGED, node(taint()), pod(uid="old"), pod(uid="new"))
    assert [each.pod.ref.uid for each in found] == ["new"]


def test_who_is_due_at_the_instant_of_a_change_is_still_there() -> None:
    """An untaint comes before what is due with it; who was due earlier has left."""
    clean = WhatIf(9.0, {"n1": ()})
    found = foretold(clean, node(taint()), pod(tolerates(8), name="early", uid="e"), pod(tolerates(9)))
    assert [each.leaves_at for each in found] == [8.0, None]


def test_a_change_at_once_comes_before_what_is_overdue() -> None:
    """Whoever untaints a node now wants to know who is saved."""
    overdue = pod(tolerates(10), name="overdue", uid="o", bound_at=-200)
    found = foretold(WhatIf(0.0, {"n1": ()}), node(taint(added_at=-100)), pod(), overdue)
    assert [each.leaves_at for each in found] == [None, None]
    assert foretold(UNCHANGED, node(taint(added_at=-100)), overdue)[0].leaves_at == -89.0


def test_who_leaves_in_any_case_is_told_from_who_leaves_earlier() -> None:
    """Or only by the change, or not at all."""
    sooner = WhatIf(0.0, {"n1": (taint(), taint("k2"))})
    kept = pod(tolerates(), tolerates(key="k2"), name="stays", uid="s")
    hastened = pod(tolerates(60), tolerates(30, key="k2"), name="hastened", uid="h")
    anyway = pod(tolerates(30), tolerates(60, key="k2"), name="anyway", uid="w")
    only_by_it = pod(tolerates(), name="only", uid="o")
    found = foretold(sooner, node(taint()), kept, hastened, anyway, only_by_it)
    assert [each.anyway for each in found] == [False, False, True, False]


def test_pods_of_a_deleted_node_are_orphans() -> None:
    """Those of other nodes are not."""
    gone = WhatIf(0.0, {}, frozenset({"n1"}))
    found = foretold(gone, node(taint()), pod(), pod(on="n2", name="other", uid="o"))
    assert [(each.orphaned, each.leaves_at) for each in found] == [(True, None), (False, None)]


def test_new_tolerations_count_from_the_change_on() -> None:
    """Of the pods that are named; one that is not known changes nothing."""
    kinder = WhatIf(5.0, {}, tolerations={ref(): (tolerates(60),), ref("unknown", "u"): ()})
    [found] = foretold(kinder, node(taint()), pod(tolerates(30)))
    assert found.leaves_at == 60.0


def test_what_changes_nothing_is_empty() -> None:
    """Else there is something to compare."""
    assert UNCHANGED.empty
    assert not WhatIf(0.0, {"n1": ()}).empty
    assert not WhatIf(0.0, {}, frozenset({"n1"})).empty
    assert not WhatIf(0.0, {}, tolerations={ref(): ()}).empty


def test_a_taint_takes_the_place_of_the_one_with_its_key_and_effect() -> None:
    """The same value leaves all as it is; another key or effect is another taint."""
    old, other = taint(value="old"), no_schedule()
    assert add_taint((old, other), taint(value="new")) == (other, taint(value="new"))
    same = (taint(value="old", added_at=5.0), other)
    assert add_taint(same, old) is same
    assert add_taint((old,), taint("k2")) == (old, taint("k2"))
    assert add_taint((old,), other) == (old, other)


def test_taints_are_removed_by_key_and_effect_or_by_key() -> None:
    """Others stay."""
    taints: tuple[Taint, ...] = (taint(), no_schedule(), taint("k2"))
    assert remove_taints(taints, "k1", "") == (taint("k2"),)
    assert remove_taints(taints, "k1", "NoSchedule") == (taint(), taint("k2"))
    assert remove_taints(taints, "k3", "") == taints


def test_a_toleration_gets_new_seconds_where_it_stands_or_comes_last() -> None:
    """All else about it tells it from others."""
    tolerations: tuple[Toleration, ...] = (tolerates(30), tolerates(60, "k2"))
    assert add_toleration(tolerations, tolerates(None)) == (tolerates(None), tolerates(60, "k2"))
    assert add_toleration(tolerations, tolerates(5, "k3")) == (*tolerations, tolerates(5, "k3"))
