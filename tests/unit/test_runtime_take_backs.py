"""Taking the DisruptionTarget condition back from pods whose eviction was called off (W10)."""

import asyncio

import pytest
from tests.unit.builders import node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import (
    Body,
    How,
    at,
    begin,
    body,
    now,
    once,
    refused,
    slow,
    take_back,
    until,
    virtually,
)

from taint_eviction.core.events import CalledOff, Done, Failed, PodIsGone, Suspended
from taint_eviction.core.facts import NodeSeen, PodSeen


def called_off() -> Body:
    """A body whose pod was marked by us and whose node is clean since."""
    it = Body()
    it.sees(node(taint()), pod(tolerates(10), marked=True))
    it.sees(node())
    return it


@virtually
async def test_taking_back_reads_live_and_writes_once() -> None:
    """One GET, one PATCH against that version."""
    it = called_off()
    assert await take_back(it) == Done()
    assert (it.api.verbs(), it.brain.attempts.next_at(it.clock.now())) == (["GET pod", "UNMARK"], None)


@virtually
async def test_a_condition_that_is_not_ours_is_left_alone() -> None:
    """W10: somebody else has set their own reason meanwhile (or reset ours): nothing is written."""
    it = called_off()
    it.api.put(pod(tolerates(10)))
    assert await take_back(it) == Done()
    assert (it.api.verbs(), it.brain.attempts.next_at(it.clock.now())) == (["GET pod"], None)


@virtually
async def test_a_pod_that_is_being_deleted_keeps_its_condition() -> None:
    """It is disrupted: the condition tells the truth."""
    it = called_off()
    it.api.put(pod(tolerates(10), marked=True, terminating=True))
    assert await take_back(it) == Done()
    assert (it.api.verbs(), it.brain.attempts.next_at(it.clock.now())) == (["GET pod"], None)


@virtually
async def test_a_version_conflict_is_read_and_tried_again() -> None:
    """W10: written by somebody between our read and our write: 409, and the next try reads anew."""
    it = called_off()
    it.api.will("UNMARK", How(effect_after=0.5))
    at(0.25, it.api.put, pod(tolerates(10), marked=True))
    outcome = await take_back(it)
    assert isinstance(outcome, Failed)
    await until(outcome.retry_at)
    assert await take_back(it) == Done()
    assert (it.api.pods[ref().key].marked, it.api.verbs().count("UNMARK")) == (False, 2)


@virtually
@pytest.mark.parametrize("verb", ["GET pod", "UNMARK"])
async def test_taking_back_waits_longer_with_each_failure(verb: str) -> None:
    """W8 holds for take-backs too."""
    it = called_off()
    it.api.ever[verb] = refused(500)
    waits = []
    for _ in range(6):
        outcome = await take_back(it)
        assert isinstance(outcome, Failed)
        waits.append(outcome.retry_at - now())
        await until(outcome.retry_at)
    assert all(0.1 * 2**tries <= wait <= 0.2 * 2**tries for tries, wait in enumerate(waits))


@virtually
async def test_tainted_again_a_take_back_is_called_off() -> None:
    """W10: wanted again while the take-back reads: the condition stays, and the eviction goes ahead."""
    it = called_off()
    it.api.will("GET pod", slow(0.5))
    at(0.25, it.sees, node(taint("other")))
    assert await take_back(it) == CalledOff()
    assert "UNMARK" not in it.api.verbs()
    assert await once(it) == Done()


@virtually
async def test_a_closed_gate_holds_a_take_back() -> None:
    """Only the leader writes."""
    it = called_off()
    it.gate.open = False
    assert await take_back(it) == Suspended()
    assert (it.api.verbs(), it.brain.attempts.next_at(it.clock.now()) is not None) == (["GET pod"], True)


@virtually
async def test_gone_at_either_step_a_take_back_is_done_with() -> None:
    """Nothing to take back from."""
    for vanishes in ("GET pod", "UNMARK"):
        it = called_off()
        it.api.will(vanishes, How(effect_after=0.5))
        at(now() + 0.25, it.api.remove, *it.api.pods)
        assert await take_back(it) == PodIsGone()
        assert it.brain.attempts.next_at(it.clock.now()) is None


@virtually
async def test_a_late_patch_of_a_timed_out_attempt_is_taken_back_too() -> None:
    """W10: the PATCH lands seconds after its caller gave up, the node being clean since: the watch brings it."""
    it = body()
    it.api.will("PATCH", How(effect_after=5))
    work = begin(it)
    attempt = asyncio.create_task(it.carry_out(work))
    await until(1)
    attempt.cancel()
    await asyncio.wait([attempt])
    it.live.finish(work, CalledOff())
    it.api.put(node())
    it.live.observe(NodeSeen(it.api.nodes["n1"]))
    assert await take_back(it) == Done()
    await until(6)
    it.live.observe(PodSeen(it.api.pods[ref().key]))
    assert await take_back(it) == Done()
    assert it.api.pods[ref().key].marked is False
