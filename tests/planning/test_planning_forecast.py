"""The outcome of each pod, as the controller's own rules predict it."""

import pytest
from tests.planning.shop import NOON, inventory_of, node, planned, pod, tolerates

from taint_eviction.core.objects import NamespacedName
from taint_eviction_ctl.planning.changes import (
    Changes,
    WrongChange,
    read_selector,
    read_taint,
    read_tolerating,
    read_untaint,
)
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.wording import summary, why

TAINTED = Changes(taints=(read_taint("node-1=maintenance=now:NoExecute"),))


def leaves(plan: Plan) -> dict[str, float]:
    """Return when each pod leaves, in seconds from noon."""
    return {pod.ref.key.name: (pod.leaves_at or 0.0) - NOON for pod in plan.leaving}


def reason(plan: Plan, name: str) -> str:
    """Return why a pod leaves or stays."""
    return next(why(pod.forecast) for pod in plan.pods if pod.ref.key == NamespacedName("shop", name))


def test_a_new_taint_starts_each_pods_tolerance_when_it_is_set() -> None:
    """A pod leaves at once without a toleration, in 300 s with one for 300 s, and never with one without seconds."""
    inventory = inventory_of(
        node("node-1"), pod("none"), pod("some", "node-1", tolerates(300)), pod("ever", "node-1", tolerates())
    )
    assert leaves(planned(inventory, TAINTED)) == {"none": 0.0, "some": 300.0}


def test_the_repr_of_a_plan_does_not_contain_its_pods() -> None:
    """In Python 3.11, asyncio.run builds the repr of its result: for many pods that takes minutes."""
    assert "web-1" not in repr(planned(inventory_of(node("node-1"), pod("web-1")), TAINTED))


def test_a_later_change_starts_tolerances_later() -> None:
    """A taint that is set in an hour is tolerated from then on."""
    inventory = inventory_of(node("node-1"), pod("some", "node-1", tolerates(300)))
    assert leaves(planned(inventory, TAINTED, at=NOON + 3600)) == {"some": 3900.0}


def test_a_pod_that_is_due_before_the_change_leaves_before_it() -> None:
    """An untaint in a minute saves only pods that are due later than that."""
    inventory = inventory_of(
        node("node-1", "old=x:NoExecute"),
        pod("early", "node-1", tolerates(30, "old")),
        pod("late", "node-1", tolerates(90, "old")),
    )
    plan = planned(inventory, Changes(untaints=(read_untaint("node-1=old"),)), at=NOON + 60)
    assert leaves(plan) == {"early": 30.0}
    assert reason(plan, "late") == "its node has no NoExecute taint"


def test_an_untaint_now_saves_pods_that_are_due_now() -> None:
    """The change is made first, so that the plan shows its effect."""
    inventory = inventory_of(node("node-1", "old=x:NoExecute"), pod("due"))
    assert leaves(planned(inventory)) == {"due": 0.0}
    assert leaves(planned(inventory, Changes(untaints=(read_untaint("node-1=old:NoExecute"),)))) == {}


def test_a_second_taint_leaves_the_running_tolerance_of_the_first() -> None:
    """The time of the first taint continues, whatever else is written to the node."""
    tainted = node("node-1", "old=x:NoExecute")
    tainted["spec"]["taints"][0]["timeAdded"] = "2026-03-01T11:59:00Z"
    old = pod("some", "node-1", tolerates(120, "old"), tolerates(600), creationTimestamp="2026-03-01T08:00:00Z")
    inventory = inventory_of(tainted, old)
    assert leaves(planned(inventory, TAINTED)) == {"some": 61.0}


def test_pods_that_leave_without_the_change_are_counted_as_such() -> None:
    """An eviction that happens anyway is no reason against a change."""
    inventory = inventory_of(node("node-1", "old=x:NoExecute"), pod("due"))
    assert summary(planned(inventory, TAINTED)) == (
        "the change evicts nothing more; with or without the change, 1 pod would leave: 1 at once"
    )
    ended = planned(inventory, Changes(untaints=(read_untaint("node-1=old:NoExecute"),)))
    assert summary(ended) == "no pod would leave: the one node has no NoExecute taint"


def test_a_toleration_is_given_to_the_pods_that_a_selector_chooses() -> None:
    """The toleration is appended to the list, or sets the seconds of one that is already there."""
    inventory = inventory_of(
        node("node-1", "maintenance=now:NoExecute"),
        pod("web", "node-1", labels={"app": "web"}),
        pod("db", "node-1", tolerates(10), labels={"app": "web"}),
        pod("other"),
    )
    changes = Changes(tolerations=(read_tolerating("shop/app=web", "maintenance:NoExecute for 60"),))
    assert leaves(planned(inventory, changes)) == {"other": 0.0, "web": 60.0, "db": 60.0}


def test_pods_of_a_deleted_node_are_orphans() -> None:
    """Orphans are not evicted: the pod garbage collector removes them."""
    inventory = inventory_of(node("node-1", "old=x:NoExecute"), pod("due"))
    plan = planned(inventory, Changes(deleted_nodes=("node-1",)))
    assert leaves(plan) == {}
    does = "the change orphans shop/due and evicts no pod; 1 bare pod gone for good"
    assert summary(plan) == f"{does}; only if the machine of node-1 is off"


def test_a_daemon_set_pod_with_seconds_is_recreated_again_and_again() -> None:
    """A pod that tolerates the taint is placed there again by its DaemonSet; a pod that does not tolerate it is not."""
    inventory = inventory_of(
        node("node-1"), pod("loops", "node-1", tolerates(30), owner="DaemonSet/a"), pod("goes", owner="DaemonSet/b")
    )
    plan = planned(inventory, TAINTED)
    assert {pod.ref.key.name: pod.recreated_for_ever for pod in plan.leaving} == {"goes": False, "loops": True}


def test_patterns_selectors_and_zones_choose_nodes() -> None:
    """A pattern means the nodes with a matching name, labels and zone."""
    zone = "topology.kubernetes.io/zone"
    inventory = inventory_of(
        node("node-1", labels={"pool": "a", zone: "x"}),
        node("node-2", labels={"pool": "a", zone: "y"}),
        node("other", labels={"pool": "a", zone: "x"}),
        node("node-4", labels={"pool": "b", zone: "x"}),
    )
    taint = read_taint("node-*=k:NoExecute")
    plan = planned(inventory, Changes((taint,), selector=read_selector("pool in (a)"), zones=frozenset({"x"})))
    assert [node.name for node in plan.nodes.values() if node.matters] == ["node-1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            Changes((read_taint("nodo-1=k:NoExecute"),)), "no node 'nodo-1'; did you mean 'node-1'?", id="name"
        ),
        pytest.param(Changes((read_taint("x*=k:NoExecute"),)), "'x*' matches none of 1 nodes", id="pattern"),
        pytest.param(
            Changes(untaints=(read_untaint("node-1=k"),)), "no taint k to remove from node-1, which has", id="taint"
        ),
        pytest.param(
            Changes(tolerations=(read_tolerating("app=x", "k"),)),
            "no pod matches: let pods of app=x",
            id="pods",
        ),
    ],
)
def test_what_does_not_exist_cannot_be_changed(changes: Changes, message: str) -> None:
    """A mistyped name is an error, and not a plan in which nothing changes."""
    with pytest.raises(WrongChange) as raised:
        planned(inventory_of(node("node-1", "old=x:NoExecute"), pod("web")), changes)
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["node-1", "node-1=k", "node-1=k:Never", "=k:NoExecute", "k:NoExecute", "n=k=v=w"])
def test_a_taint_in_a_wrong_form_is_refused_with_the_right_one(text: str) -> None:
    """The message has the form and an example."""
    with pytest.raises(WrongChange, match=r"is not NODE=KEY.*as in node-1=maintenance=now:NoExecute"):
        read_taint(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("node-1=k=v:NoExcute", "did you mean 'NoExecute'?"),
        ("node-1=k:noexecute", "did you mean 'NoExecute'?"),
        ("node-1=k:NoExecute-", "did you mean --untaint node-1=k:NoExecute?"),
    ],
)
def test_a_taint_that_is_misspelt_gets_a_suggestion(text: str, meant: str) -> None:
    """An effect, or kubectl's form of a removal."""
    with pytest.raises(WrongChange) as error:
        read_taint(text)
    assert str(error.value).endswith(f"; {meant}")


def test_the_effect_of_a_removal_that_is_misspelt_gets_a_suggestion() -> None:
    """With and without kubectl's final minus; what resembles nothing gets none."""
    for text in ("node-1=k:NoExcute", "node-1=k:NoExcute-"):
        with pytest.raises(WrongChange, match=r"did you mean 'NoExecute'\?$"):
            read_untaint(text)
    with pytest.raises(WrongChange, match=r"maintenance:NoExecute$"):
        read_untaint("node-1=k:XX")
