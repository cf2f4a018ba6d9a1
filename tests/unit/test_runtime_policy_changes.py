"""A policy that names labels is in force once they are known of all pods."""

from tests.unit.builders import node, pod, taint, tolerates
from tests.unit.runtime_fakes import HANGS, Body, now, refused, running, slow, until, virtually

from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.pod_parts import PodParts, needed_keys
from taint_eviction.core.policy import EvictionPolicy, PolicyRule
from taint_eviction.runtime.pod_watches import PodWatches
from taint_eviction.runtime.policy_changes import PolicyChanges

OF_WEB = EvictionPolicy(rules=(PolicyRule("web", pod_selector=parse_selector("app=web,tier")),))
OF_NAMESPACE = EvictionPolicy(rules=(PolicyRule("shop", namespaces=("shop",)),))
LIST = "LIST n1"


class ChangedPolicy:
    """A tainted node with a pod, and its policy; ``changed`` has when each policy came into force."""

    def __init__(self) -> None:
        self.it = Body()
        self.it.sees(node(taint()))
        self.it.api.put(pod(tolerates(600)))
        self.watches = PodWatches(self.it.doors(restart_max_seconds=15.0))
        self.parts = PodParts(needed_keys(()))
        self.changed: list[tuple[float, EvictionPolicy]] = []
        self.changes = PolicyChanges(self._change, self.parts, self.watches.list_again)

    def _change(self, policy: EvictionPolicy) -> None:
        self.changed.append((now(), policy))

    @property
    def lists(self) -> list[float]:
        """When the pods were listed."""
        return [at for at, _ in self.it.api.sent(LIST)]


@virtually
async def test_pods_are_listed_before_a_policy_that_names_their_labels_is_in_force() -> None:
    """Other labels are not kept once it is."""
    on = ChangedPolicy()
    async with running(on.watches.run()):
        await until(10)
        on.it.api.will(LIST, slow(3))
        async with running(on.changes.apply(OF_WEB)):
            await until(12)
            assert on.parts.label_keys == needed_keys({"app", "tier"})
            assert on.changed == []
            await until(13)
        assert on.changed == [(13, OF_WEB)]
        await on.changes.apply(OF_NAMESPACE)
    assert on.changed == [(13, OF_WEB), (13, OF_NAMESPACE)]
    assert on.parts.label_keys == needed_keys(())
    assert on.lists[1:] == [10]


@virtually
async def test_a_policy_waits_for_lists_that_fail() -> None:
    """The previous one stays in force: a rule must not overlook a pod."""
    on = ChangedPolicy()
    async with running(on.watches.run()):
        await until(10)
        on.it.api.will(LIST, refused(500), refused(500))
        async with running(on.changes.apply(OF_WEB)):
            await until(39)
            assert on.changed == []
            await until(40)
    assert on.changed == [(40, OF_WEB)]


@virtually
async def test_a_list_that_is_under_way_is_followed_by_another() -> None:
    """The former may have read pods before the labels were wanted, and is observed first."""
    on = ChangedPolicy()
    on.it.api.will(LIST, slow(5))
    async with running(on.watches.run()):
        await until(1)
        async with running(on.changes.apply(OF_WEB)):
            await until(6)
    assert len(on.lists) == 2
    assert on.changed == [(on.lists[1], OF_WEB)]
    assert on.lists[1] >= 5


@virtually
async def test_a_node_whose_first_list_fails_delays_no_policy() -> None:
    """Nothing is known of its pods; the next list reads the labels."""
    on = ChangedPolicy()
    on.it.api.will(LIST, *[refused(500)] * 3)
    async with running(on.watches.run()), running(on.changes.apply(OF_WEB)):
        await until(1)
    assert [policy for _, policy in on.changed] == [OF_WEB]


@virtually
async def test_without_new_labels_a_policy_is_in_force_at_once() -> None:
    """Nothing is listed for it."""
    on = ChangedPolicy()
    on.it.api.ever[LIST] = HANGS
    async with running(on.watches.run()):
        await until(10)
        await on.changes.apply(OF_NAMESPACE)
    assert on.changed == [(10, OF_NAMESPACE)]
