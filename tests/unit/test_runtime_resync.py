"""List, observe all, sweep the absent."""

import asyncio
from dataclasses import replace

import pytest
from tests.unit.builders import node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import HANGS, Body, How, at, now, refused, running, slow, slow_start, until, virtually

from taint_eviction.core.facts import NodeSeen, PodSeen
from taint_eviction.core.objects import Pod
from taint_eviction.runtime.ports import CallFailed, NodesScope, PodsScope
from taint_eviction.runtime.resync import Listed, Resync


def resync(it: Body, lists_at_once: int = 8) -> Resync:
    """Make what is tested."""
    return Resync(it.api, it.live, lists_at_once)


def names(it: Body) -> set[str]:
    """Name the pods that the brain knows."""
    return {key.name for key in it.brain.pods.known}


def pods(number: int, on: str = "n1") -> list[Pod]:
    """Make so many pods with different names and UIDs."""
    return [pod(tolerates(60), name=f"{on}-{i}", uid=f"{on}-{i}", on=on) for i in range(number)]


@virtually
async def test_what_is_listed_is_observed() -> None:
    """Nodes first, then the pods of a tainted one."""
    it = Body()
    it.api.put(node(taint()), node(name="n2"), *pods(3))
    await resync(it).resync(NodesScope())
    await resync(it).resync(PodsScope("n1"))
    assert (set(it.brain.nodes.known), len(names(it))) == ({"n1", "n2"}, 3)
    assert it.brain.tainted_nodes() == {"n1"}


@virtually
async def test_what_is_absent_is_swept() -> None:
    """W21: what vanished in a gap that no watch told of is gone after a list, deadlines included."""
    it = Body()
    it.sees(node(taint()), node(taint(), name="n2"), *pods(2), *pods(2, "n2"))
    await until(1)
    it.api.remove(ref("n1-0").key, "n2")
    await resync(it).resync(PodsScope("n1"))
    assert names(it) == {"n1-1", "n2-0", "n2-1"}
    await resync(it).resync(NodesScope())
    assert (set(it.brain.nodes.known), [one.record.pod.ref.uid for one in it.brain.status.pending(it.clock.now())]) == (
        {"n1"},
        ["n1-1"],
    )


@virtually
async def test_the_list_of_all_bound_pods_sweeps_all_nodes() -> None:
    """One list for many nodes, unbound pods apart."""
    it = Body()
    it.sees(node(taint()), node(taint(), name="n2"), *pods(2), *pods(2, "n2"))
    await until(1)
    it.api.remove(ref("n1-0").key, ref("n2-1").key)
    await resync(it).resync(PodsScope(None))
    assert names(it) == {"n1-1", "n2-0"}


@virtually
async def test_a_list_of_one_nodes_pods_sweeps_no_others() -> None:
    """An empty list says something of that node only."""
    it = Body()
    it.sees(node(taint()), node(taint(), name="n2"), *pods(2))
    await until(1)
    await resync(it).resync(PodsScope("n2"))
    assert names(it) == {"n1-0", "n1-1"}


@virtually
async def test_what_a_watch_brought_since_the_request_was_sent_is_not_swept() -> None:
    """A slow list lacks the pod and the node that were created while it was under way."""
    it = Body()
    it.sees(node(taint()))
    await until(1)
    it.api.will("LIST n1", slow(5))
    it.api.will("LIST nodes", slow(5))
    at(2, it.sees, pod(tolerates(60)), node(taint(), name="n2"))
    await asyncio.gather(resync(it).resync(PodsScope("n1")), resync(it).resync(NodesScope()))
    assert (now(), names(it), set(it.brain.nodes.known)) == (6, {"web-0"}, {"n1", "n2"})


@virtually
async def test_an_old_list_does_not_undo_what_a_watch_brought_since() -> None:
    """The list was taken before the taint went, and answered after the watch told of it."""
    it = Body()
    it.sees(node(taint()))
    await until(1)
    it.api.will("LIST nodes", slow(5))
    at(2, it.sees, node())
    await resync(it).resync(NodesScope())
    assert it.brain.tainted_nodes() == frozenset()


@virtually
async def test_every_page_counts() -> None:
    """The sweep knows the UIDs of all pages, and comes after the last."""
    it = Body()
    it.api.use_pages_of(10)
    it.sees(node(taint()), *pods(35))
    await until(1)
    it.api.remove(ref("n1-7").key, ref("n1-34").key)
    it.api.will("LIST n1", *[slow(1)] * 4)
    await resync(it).resync(PodsScope("n1"))
    assert (now(), len(names(it)), len(it.api.sent("LIST n1"))) == (5, 33, 4)


@virtually
async def test_an_empty_list_sweeps_all() -> None:
    """No object at all is still an answer."""
    it = Body()
    it.sees(node(taint()))
    await until(1)
    it.api.remove(*it.api.nodes)
    await resync(it).resync(NodesScope())
    assert it.brain.nodes.known == {}


@virtually
async def test_a_list_that_breaks_off_leaves_what_was_listed_and_sweeps_nothing() -> None:
    """410 on the third page: the first two are news all the same, and what was not reached is not gone."""
    it = Body()
    it.sees(node(taint()), pod(name="ghost", uid="ghost"))
    await until(1)
    it.api.remove(*it.api.pods)
    it.api.put(*pods(30))
    it.api.use_pages_of(10)
    it.api.will("LIST n1", slow(0), slow(0), refused(410))
    with pytest.raises(CallFailed, match="410"):
        await resync(it).resync(PodsScope("n1"))
    assert len(names(it)) == 21
    assert "ghost" in names(it)


@virtually
async def test_no_more_lists_at_once_than_were_granted() -> None:
    """Ten lists of a second each, two at a time but for the first moment; a failure gives its turn back."""
    it = Body()
    shared = resync(it, 2)
    for number in range(10):
        it.api.ever[f"LIST n{number}"] = refused(500, after=1) if number % 2 else slow(1)
    lists = (shared.resync(PodsScope(f"n{number}")) for number in range(10))
    ends = await asyncio.gather(*lists, return_exceptions=True)
    assert (now(), sum(isinstance(end, Listed) for end in ends)) == (5.2, 5)
    assert sorted(call.at for call in it.api.calls) == [0, 0.2, 1, 1.2, 2, 2.2, 3, 3.2, 4, 4.2]


@virtually
async def test_a_list_is_dated_when_it_is_sent_not_when_it_waits_for_its_turn() -> None:
    """What was seen while the list waited for its turn is older than the list, and may be swept by it."""
    it = Body()
    it.sees(node(taint()), node(taint(), name="n2"))
    shared = resync(it, 1)
    it.api.will("LIST n1", slow(0.9))
    first = asyncio.create_task(shared.resync(PodsScope("n1")))
    second = asyncio.create_task(shared.resync(PodsScope("n2")))
    await until(0.5)
    it.live.observe(PodSeen(pod(on="n2")))
    await asyncio.gather(first, second)
    assert names(it) == set()


@virtually
async def test_a_long_list_lets_others_take_their_turn() -> None:
    """Between two pages the loop turns: deadlines do not wait for a list of thousands."""
    it = Body()
    it.sees(node(taint()), pod(tolerates(5)))
    it.api.use_pages_of(1)
    it.api.put(*pods(200))
    it.api.ever["LIST n1"] = slow(0.1)
    async with running(it.driver.run()):
        await resync(it).resync(PodsScope("n1"))
        assert it.api.deleted[0] == (5, "a")


@virtually
async def test_cancelled_in_the_middle_it_gives_its_turn_back() -> None:
    """A watch that is no longer needed leaves its list: the next one gets the turn."""
    it = Body()
    shared = resync(it, 1)
    it.api.will("LIST n1", slow(100))
    async with running(shared.resync(PodsScope("n1"))):
        await until(1)
    await shared.resync(PodsScope("n2"))
    await slow_start()
    assert now() == 1


@virtually
async def test_a_restored_storage_is_believed() -> None:
    """A list with lower versions than were seen before it was asked for: the storage went back."""
    it = Body()
    it.live.observe(NodeSeen(node(taint(), version=1000)))
    await until(1)
    it.api.put(node())
    await resync(it).resync(NodesScope())
    assert it.brain.tainted_nodes() == frozenset()


@virtually
async def test_the_list_of_nodes_waits_for_no_list_of_pods() -> None:
    """Without it no new taint is known."""
    it = Body()
    it.api.put(node(taint()))
    shared = resync(it, 1)
    it.api.will("LIST n1", HANGS)
    async with running(shared.resync(PodsScope("n1"))):
        await slow_start()
        await shared.resync(NodesScope())
        assert now() == 0
        assert it.brain.tainted_nodes() == {"n1"}


# A glance at what the API server has at hand


@virtually
async def test_a_first_list_does_not_keep_waiting_what_is_at_hand() -> None:
    """The list takes a second; what the cache has is known at once."""
    it = Body()
    it.sees(node(taint()))
    it.api.put(*pods(2))
    it.api.will("LIST n1", slow(1))
    async with running(resync(it).resync(PodsScope("n1"), first=True)):
        await until(0.1)
        assert names(it) == {"n1-0", "n1-1"}
    assert it.api.verbs() == ["CACHED LIST", "LIST n1"]


@virtually
async def test_what_is_at_hand_proves_nothing_gone_and_replaces_nothing_newer() -> None:
    """The cache is old: it lacks a pod that is known, and has the forerunner of another."""
    it = Body()
    it.api.put(pod(uid="a"))
    await until(1)
    it.sees(node(taint()), pod(uid="b"), pod(name="new", uid="new"))
    it.api.cache_age = 0.5
    it.api.will("LIST n1", slow(1))
    async with running(resync(it).resync(PodsScope("n1"), first=True)):
        await until(1.1)
        assert {known.pod.ref.uid for known in it.brain.pods.known.values()} == {"b", "new"}


@virtually
@pytest.mark.parametrize("how", [HANGS, refused(500)])
async def test_a_glance_that_fails_or_hangs_changes_nothing(how: How) -> None:
    """The list tells all, no later than without it."""
    it = Body()
    it.sees(node(taint()))
    it.api.put(*pods(2))
    it.api.will("CACHED LIST", how)
    it.api.will("LIST n1", slow(1))
    await resync(it).resync(PodsScope("n1"), first=True)
    assert (now(), names(it)) == (1, {"n1-0", "n1-1"})
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("cached list of the pods")]


@virtually
async def test_where_more_lists_are_wanted_than_may_be_under_way_none_is_preceded_by_a_glance() -> None:
    """In a storm another list of each node would only make all of them later; nor is one needed to list again."""
    it = Body()
    shared = resync(it, 2)
    for name in ("n1", "n2", "n3"):
        it.api.ever[f"LIST {name}"] = slow(1)
    await asyncio.gather(*(shared.resync(PodsScope(name), first=name != "n3") for name in ("n1", "n2", "n3")))
    await shared.resync(PodsScope("n1"))
    assert it.api.verbs() == ["CACHED LIST", "LIST n1", "LIST n2", "LIST n3", "LIST n1"]


@virtually
@pytest.mark.parametrize("how", [slow(0.1), refused(500, after=0.1)])
async def test_the_first_list_is_alone_until_what_is_at_hand_was_told(how: How) -> None:
    """Its node's pods can be marked before the API server is kept busy with the lists of twenty others."""
    it = Body()
    it.api.will("CACHED LIST", how)
    for name in ("n1", "n2", "n3"):
        it.api.ever[f"LIST {name}"] = slow(1)
    shared = resync(it)
    await asyncio.gather(*(shared.resync(PodsScope(name), first=name == "n1") for name in ("n1", "n2", "n3")))
    assert [(call.at, call.verb) for call in it.api.calls] == [
        (0, "CACHED LIST"),
        (0, "LIST n1"),
        (0.1, "LIST n2"),
        (0.2, "LIST n3"),
    ]


@virtually
@pytest.mark.parametrize("later", ["LIST n1", "CACHED LIST"])
async def test_the_first_pods_of_a_first_list_are_evicted_before_all_are_observed(later: str) -> None:
    """The loop turns after every pod, whichever of the two lists is answered first."""
    it = Body()
    it.sees(node(taint()))
    it.api.put(*pods(12))
    it.api.ever[later] = slow(1)
    known: set[int] = set()
    async with running(resync(it).resync(PodsScope("n1"), first=True)):
        for _ in range(50):
            known.add(len(names(it)))
            await asyncio.sleep(0)
    assert known == set(range(13))


@virtually
async def test_cancelled_it_leaves_no_glance_behind() -> None:
    """A watch that is no longer needed."""
    it = Body()
    it.api.ever["CACHED LIST"] = it.api.ever["LIST n1"] = HANGS
    async with running(resync(it).resync(PodsScope("n1"), first=True)):
        await until(1)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("cached list of the pods")]


@virtually
@pytest.mark.parametrize("how", [How(), refused(500)])
async def test_a_bug_in_a_glance_is_raised_however_the_list_ends(how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ours, and must not be taken for trouble with the API server."""
    it = Body()
    it.api.put(*pods(1))
    it.api.will("LIST n1", replace(how, answer_after=1.0))
    monkeypatch.setattr(it.live, "observe", lambda _fact: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await resync(it).resync(PodsScope("n1"), first=True)


@virtually
async def test_there_may_be_no_glances() -> None:
    """Where a breaker counts whom it sees."""
    it = Body()
    await Resync(it.api, it.live, 8, cached_lists=False).resync(PodsScope("n1"), first=True)
    assert it.api.verbs() == ["LIST n1"]
