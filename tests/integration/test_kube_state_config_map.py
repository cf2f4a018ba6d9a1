"""The state ConfigMap on the server: no write is lost, and keys that cannot be read are logged once."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.stage.client import ClientStage, client_stage
from tests.stage.clocks import EPOCH

from fake_apiserver import LoggedRequest
from taint_eviction.core.breaker import Breaker
from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, PauseScope, selector_scope
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.guards import Guards, WaitReason
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.kube.answers import failure_reason
from taint_eviction.kube.control_state_data import key_of, latch_text, reset_text
from taint_eviction.kube.state_config_map import StateConfigMap, UnusableState
from taint_eviction.runtime.ports import CallFailed, ControlStateStore, FailureReason

NAMESPACE, NAME = "kube-system", "orders"
LATCH = Latch(EPOCH + 0.25, "5 of 9 nodes")
N1, SHOP = PauseScope("node", "n1"), PauseScope("namespace", "shop")
PAUSE = Pause(EPOCH, "disk swap")


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A stage for one test."""
    async with client_stage(tmp_path) as made:
        yield made


def state(at: ClientStage) -> StateConfigMap:
    """A store of the same ConfigMap, as another process would have it."""
    return StateConfigMap(at.calls, NAMESPACE, NAME)


def put(at: ClientStage, **fields: Any) -> None:
    """Create the ConfigMap as somebody else."""
    at.server.create("configmaps", {"metadata": {"name": NAME, "namespace": NAMESPACE}, **fields})


def patch(at: ClientStage, **fields: Any) -> None:
    """Change the ConfigMap as somebody else."""
    at.server.patch("configmaps", NAME, fields, NAMESPACE)


def config_map(at: ClientStage) -> dict[str, Any]:
    """The ConfigMap on the server."""
    found = at.server.get("configmaps", NAME, NAMESPACE)
    assert found is not None
    return found


def data(at: ClientStage) -> dict[str, str]:
    """The data of the ConfigMap."""
    found: dict[str, str] = config_map(at)["data"]
    return found


def writes(at: ClientStage) -> list[tuple[str, int | None]]:
    """Verb and status of each write so far."""
    asked = at.server.requests.select(lambda entry: entry.verb != "get", resource="configmaps")
    return [(entry.verb, entry.code) for entry in asked]


def between(at: ClientStage, meddle: Callable[[], object], times: int = 1) -> None:
    """Call ``meddle``, the write of somebody else, right after each of the first reads."""
    left = iter(range(times))

    def act(entry: LoggedRequest) -> None:
        if (entry.verb, entry.resource) == ("get", "configmaps") and next(left, None) is not None:
            meddle()

    at.server.requests.subscribe(act)


async def test_the_config_map_implements_the_store_of_the_control_state(at: ClientStage) -> None:
    """This is mainly a check of static types; without a ConfigMap, reading returns None and writes nothing."""
    door: ControlStateStore = state(at)
    assert await door.read() is None
    assert writes(at) == []


@pytest.mark.parametrize("fields", [{}, {"data": None}, {"data": {}}])
async def test_a_config_map_without_orders_is_read_as_an_empty_control_state(
    at: ClientStage, fields: dict[str, Any]
) -> None:
    """An existing ConfigMap differs from a missing one, which is read as None."""
    put(at, **fields)
    assert await state(at).read() == ControlState()


async def test_each_store_reads_what_another_has_written(at: ClientStage) -> None:
    """The first write creates the ConfigMap, and the next ones change only their own keys."""
    await state(at).set_pauses({N1: PAUSE, SHOP: Pause()})
    await state(at).write_latch(LATCH)
    assert await state(at).read() == ControlState(None, {"n1": PAUSE}, {"shop": Pause()}, LATCH)
    await state(at).set_pauses({N1: None, EVERYTHING: PAUSE})
    await state(at).write_reset(EPOCH + 1.5)
    assert await state(at).read() == ControlState(PAUSE, {}, {"shop": Pause()}, None, EPOCH + 1.5)
    assert writes(at) == [("create", 201), ("patch", 200), ("patch", 200), ("patch", 200)]
    assert {key: json.loads(text) for key, text in data(at).items()} == {
        "pause": {"since": "2030-03-17T17:46:40Z", "reason": "disk swap"},
        "pause-namespace.shop": True,
        "breaker": {"open": False, "reset": "2030-03-17T17:46:41.500000Z"},
    }


async def test_a_latch_that_stands_only_learns_that_too_many_nodes_are_out_of_service(at: ClientStage) -> None:
    """Who opened the breaker, when, and why stay; what is written once is not removed by a later write."""
    first = Latch(EPOCH, "rack 7 burns", controller="")
    await state(at).write_latch(first)
    for more in (replace(LATCH, out_of_service=True), LATCH):
        await state(at).write_latch(more)
        assert await state(at).read() == ControlState(latch=replace(first, out_of_service=True))


async def test_writes_keep_what_others_have_put_into_the_config_map(at: ClientStage) -> None:
    """Labels, keys of other versions and binary keys stay."""
    put(at, data={"later": "x"}, binaryData={"logo": "aWNv"})
    patch(at, metadata={"labels": {"team": "a"}})
    await state(at).set_pauses({EVERYTHING: Pause()})
    await state(at).write_latch(LATCH)
    assert data(at).keys() == {"later", "pause", "breaker"}
    assert config_map(at)["binaryData"] == {"logo": "aWNv"}
    assert config_map(at)["metadata"]["labels"] == {"team": "a"}


# Pauses


async def test_pausing_what_is_paused_keeps_the_first_pause(at: ClientStage) -> None:
    """Its start and reason stay; resuming what is not paused writes nothing."""
    await state(at).set_pauses({N1: PAUSE})
    await state(at).set_pauses({N1: Pause(EPOCH + 60, "again"), SHOP: None, EVERYTHING: None})
    assert await state(at).read() == ControlState(nodes={"n1": PAUSE})
    assert writes(at) == [("create", 201)]


async def test_resuming_without_a_config_map_creates_none(at: ClientStage) -> None:
    """Without a ConfigMap, nothing is paused."""
    await state(at).set_pauses({EVERYTHING: None})
    assert writes(at) == []


async def test_a_malformed_pause_can_be_resumed(at: ClientStage) -> None:
    """This includes a pause among the binary keys, where the controller never writes one."""
    put(at, data={"pause": "yes"}, binaryData={"pause-node.n1": "eWVz"})
    held = await state(at).read()
    assert held is not None
    assert held.cluster is not None
    assert "is malformed" in held.nodes["n1"].reason
    await state(at).set_pauses({EVERYTHING: None, N1: None})
    assert await state(at).read() == ControlState()


async def test_a_pause_overwrites_the_value_false(at: ClientStage) -> None:
    """People may write false instead of removing the key."""
    put(at, data={"pause": "false"})
    await state(at).set_pauses({EVERYTHING: PAUSE})
    assert await state(at).read() == ControlState(PAUSE)


# The breaker


@pytest.mark.parametrize(
    "stands",
    [
        '{"open": true, "since": "2030-03-17T17:00:00Z", "cause": "before"}',
        '{"open": false, "reset": "2030-03-17T17:46:40.250000Z"}',
        "nonsense",
    ],
)
async def test_a_latch_is_not_written_if_the_breaker_is_open_or_was_reset_since(at: ClientStage, stands: str) -> None:
    """The first cause stays, a malformed key counts as open, and a breaker that a person has closed stays closed."""
    put(at, data={"breaker": stands})
    await state(at).write_latch(LATCH)
    assert data(at) == {"breaker": stands}


@pytest.mark.parametrize("reset", ["2030-03-17T17:46:40.249999Z", "2030-03-17T17:00:00Z"])
async def test_a_latch_is_written_over_an_older_reset(at: ClientStage, reset: str) -> None:
    """The breaker has opened again after that reset."""
    put(at, data={"breaker": json.dumps({"open": False, "reset": reset})})
    await state(at).write_latch(LATCH)
    assert await state(at).read() == ControlState(latch=LATCH)


@pytest.mark.parametrize("data", [None, {"breaker": "nonsense"}, {"breaker": json.dumps({"open": True})}])
async def test_a_reset_closes_a_breaker_that_is_absent_unreadable_or_open(
    at: ClientStage, data: dict[str, str] | None
) -> None:
    """In each case, the reset replaces the key."""
    put(at, data=data)
    await state(at).write_reset(EPOCH)
    assert await state(at).read() == ControlState(reset_epoch=EPOCH)


async def test_a_reset_creates_the_config_map_if_there_is_none(at: ClientStage) -> None:
    """The leader may have opened the breaker and failed to write its latch."""
    await state(at).write_reset(EPOCH)
    assert await state(at).read() == ControlState(reset_epoch=EPOCH)


@pytest.mark.parametrize("stands", [replace(LATCH, since_epoch=EPOCH - 60), replace(LATCH, controller="another"), None])
async def test_a_controller_closes_only_the_latch_that_it_knows(at: ClientStage, stands: Latch | None) -> None:
    """A person may have opened the breaker meanwhile, with any date, or reset it."""
    known = replace(LATCH, controller="controller-1")
    if stands is None:
        await state(at).write_reset(EPOCH)
    else:
        await state(at).write_latch(stands)
    before = await state(at).read()
    await state(at).close_latch(known, EPOCH + 60)
    assert await state(at).read() == before


async def test_a_controller_closes_its_latch(at: ClientStage) -> None:
    """Everything else stays."""
    known = replace(LATCH, controller="controller-1")
    await state(at).set_pauses({N1: PAUSE})
    await state(at).write_latch(known)
    await state(at).close_latch(known, EPOCH + 60)
    assert await state(at).read() == ControlState(nodes={"n1": PAUSE}, reset_epoch=EPOCH + 60)


@pytest.mark.parametrize("before", [EPOCH - 60, EPOCH + 3600])
async def test_a_reset_is_written_although_the_breaker_is_closed(at: ClientStage, before: float) -> None:
    """A person resets once more, or corrects a wrong date."""
    await state(at).write_reset(before)
    await state(at).write_reset(EPOCH)
    assert await state(at).read() == ControlState(reset_epoch=EPOCH)


async def test_a_wrong_date_is_corrected_and_everything_else_stays(at: ClientStage) -> None:
    """The latch keeps its cause."""
    put(at, data={"pause": "true"})
    await state(at).write_latch(replace(LATCH, since_epoch=EPOCH + 3600))
    await state(at).redate(EPOCH + 3600, EPOCH)
    assert await state(at).read() == ControlState(Pause(), latch=replace(LATCH, since_epoch=EPOCH))
    await state(at).write_reset(EPOCH + 7200)
    await state(at).redate(EPOCH + 7200, EPOCH + 60)
    assert await state(at).read() == ControlState(Pause(), reset_epoch=EPOCH + 60)


@pytest.mark.parametrize("stands", [None, {}, {"breaker": reset_text(EPOCH + 60)}, {"breaker": latch_text(LATCH)}])
async def test_a_key_that_was_rewritten_meanwhile_keeps_its_date(
    at: ClientStage, stands: dict[str, str] | None
) -> None:
    """Its date is not the wrong one."""
    if stands is not None:
        put(at, data=stands)
    await state(at).redate(EPOCH + 3600, EPOCH)
    assert writes(at) == []


async def test_a_reset_does_not_close_a_breaker_that_opened_later(at: ClientStage) -> None:
    """The person who reset the breaker has not seen the later cause."""
    await state(at).write_latch(LATCH)
    await state(at).write_reset(EPOCH)
    assert await state(at).read() == ControlState(latch=LATCH)
    await state(at).write_reset(LATCH.since_epoch)
    assert await state(at).read() == ControlState(reset_epoch=LATCH.since_epoch)


async def test_a_key_that_becomes_unreadable_holds_evictions_although_a_reset_is_known(at: ClientStage) -> None:
    """The unreadable key has replaced the reset, so it is newer; another reset unblocks them."""
    guards = Guards(EvictionPolicy(), Breaker(BreakerPolicy()), None, KnownNodes(GoneObjects()))
    now = at.server.clock.now().timestamp()

    async def held() -> WaitReason | None:
        guards.order(await state(at).read() or ControlState(), Moment(0.0, now))
        return guards.blocking_all(Moment(0.0, now))

    await state(at).write_reset(now)
    assert await held() is None
    patch(at, data={"breaker": "shut"})
    assert await held() is WaitReason.BREAKER_OPEN
    await state(at).write_reset(now + 1)
    assert await held() is None


async def test_an_unreadable_key_in_the_binary_data_can_be_reset(at: ClientStage) -> None:
    """The API server refuses a key that is in both maps, so the reset removes the binary one."""
    put(at, binaryData={"breaker": "e30=", "logo": "aWNv"})
    await state(at).write_reset(EPOCH)
    assert await state(at).read() == ControlState(reset_epoch=EPOCH)
    assert config_map(at)["binaryData"] == {"logo": "aWNv"}


# Several writers


async def test_a_pause_written_while_the_latch_is_written_is_not_lost(at: ClientStage) -> None:
    """The write of the latch gets a 409, is decided again, and both values are kept."""
    put(at)
    between(at, lambda: patch(at, data={"pause": "true"}))
    await state(at).write_latch(LATCH)
    assert writes(at) == [("patch", 409), ("patch", 200)]
    assert await state(at).read() == ControlState(Pause(), latch=LATCH)


async def test_a_latch_written_while_a_pause_is_written_is_not_lost(at: ClientStage) -> None:
    """The write of the pause gets a 409, is made again, and both values are kept."""
    put(at)
    between(at, lambda: patch(at, data={"breaker": latch_text(LATCH)}))
    await state(at).set_pauses({EVERYTHING: PAUSE})
    assert writes(at) == [("patch", 409), ("patch", 200)]
    assert await state(at).read() == ControlState(PAUSE, latch=LATCH)


async def test_a_reset_written_while_the_latch_is_written_counts(at: ClientStage) -> None:
    """A person has reset the breaker first, so the latch is no longer written."""
    put(at)
    between(at, lambda: patch(at, data={"breaker": '{"open": false, "reset": "2030-03-17T18:00:00Z"}'}))
    await state(at).write_latch(LATCH)
    assert writes(at) == [("patch", 409)]
    assert await state(at).read() == ControlState(reset_epoch=EPOCH + 800)


async def test_a_config_map_created_meanwhile_is_patched(at: ClientStage) -> None:
    """Two processes find no ConfigMap; the create of the second gets a 409 and becomes a patch."""
    between(at, lambda: put(at, data={"pause": "true"}))
    await state(at).write_latch(LATCH)
    assert writes(at) == [("create", 409), ("patch", 200)]
    assert await state(at).read() == ControlState(Pause(), latch=LATCH)


async def test_a_config_map_deleted_meanwhile_is_created_again(at: ClientStage) -> None:
    """The patch gets a 404 and becomes a create."""
    put(at)
    between(at, lambda: at.server.delete("configmaps", NAME, NAMESPACE))
    await state(at).write_latch(LATCH)
    assert writes(at) == [("patch", 404), ("create", 201)]
    assert await state(at).read() == ControlState(latch=LATCH)


async def test_people_who_pause_and_a_controller_that_latches_never_overwrite_each_other(at: ClientStage) -> None:
    """All write at the same time, ten times, and each time none of the writes is lost."""
    people = [PauseScope("node", f"n{number}") for number in range(4)]
    for turn in range(10):
        latch = Latch(EPOCH + turn, "a wave")
        await asyncio.gather(
            *(state(at).set_pauses({person: PAUSE}) for person in people), state(at).write_latch(latch)
        )
        assert await state(at).read() == ControlState(nodes={person.name: PAUSE for person in people}, latch=latch)
        await asyncio.gather(
            *(state(at).set_pauses({person: None}) for person in people), state(at).write_reset(EPOCH + turn + 0.5)
        )
        assert await state(at).read() == ControlState(reset_epoch=EPOCH + turn + 0.5)
    assert ("patch", 409) in writes(at)


async def test_a_write_that_always_meets_a_conflict_fails_after_eight_tries(at: ClientStage) -> None:
    """The call fails as a conflict and has written nothing."""
    put(at)
    numbers = iter(range(100))
    between(at, lambda: patch(at, data={"other": str(next(numbers))}), times=100)
    with pytest.raises(
        CallFailed, match=r"ConfigMap kube-system/orders was changed by others meanwhile, 8 times"
    ) as failed:
        await state(at).write_latch(LATCH)
    assert failed.value.reason is FailureReason.CONFLICT
    assert writes(at) == [("patch", 409)] * 8


async def test_a_write_whose_answer_was_lost_is_not_repeated(at: ClientStage) -> None:
    """The second try reads the ConfigMap and finds the value there already."""
    at.server.faults.add(verb="create", resource="configmaps", reset=True, when="after", times=1)
    with pytest.raises(CallFailed):
        await state(at).write_latch(LATCH)
    await state(at).write_latch(LATCH)
    assert [verb for verb, _ in writes(at)] == ["create"]
    assert await state(at).read() == ControlState(latch=LATCH)


# Taking over


FULL = ControlState(
    PAUSE, {"n1": PAUSE}, {"shop": Pause()}, LATCH, no_adoption=Pause(), no_adoption_confirmed_by="somebody"
)


async def test_keeping_creates_an_empty_config_map_with_its_format(at: ClientStage) -> None:
    """The second time, nothing is written."""
    await state(at).keep(ControlState())
    await state(at).keep(FULL)
    assert data(at) == {"format": "1"}
    assert writes(at) == [("create", 201)]


@pytest.mark.parametrize("lost", [FULL, ControlState(reset_epoch=EPOCH)])
async def test_what_was_lost_is_written_again_as_it_was(at: ClientStage, lost: ControlState) -> None:
    """But for the confirmation that nothing is adopted: the leader gives it anew."""
    await state(at).keep(lost)
    assert await state(at).read() == replace(lost, no_adoption_confirmed_by="")


async def test_keeping_adds_to_what_somebody_has_created(at: ClientStage) -> None:
    """What stands there counts; all else that was lost is added, once."""
    put(at, data={"pause-node.n1": "true", "breaker": reset_text(EPOCH + 60), "later": "x"})
    await state(at).keep(FULL)
    await state(at).set_pauses({SHOP: None})
    await state(at).keep(FULL)
    assert await state(at).read() == ControlState(
        PAUSE, {"n1": Pause()}, {}, reset_epoch=EPOCH + 60, no_adoption=Pause()
    )
    assert data(at).keys() == {"pause", "pause-node.n1", "breaker", "no-adoption", "later", "format"}


async def test_keeping_pauses_nothing_that_somebody_has_set_to_false(at: ClientStage) -> None:
    """Whoever creates the ConfigMap anew may end a pause in it."""
    put(at, data={"pause": "false"})
    await state(at).keep(FULL)
    assert data(at)["pause"] == "false"
    assert "pause-node.n1" in data(at)


async def test_a_config_map_that_was_created_again_is_read_as_such_until_a_leader_takes_it_over(
    at: ClientStage,
) -> None:
    """The commands of people and tools that apply manifests do not write the format."""
    store = state(at)
    put(at, data={"pause": "true"})
    assert await store.read() == ControlState(Pause())
    at.server.delete("configmaps", NAME, NAMESPACE)
    assert await store.read() is None
    await state(at).set_pauses({N1: PAUSE})
    for _ in range(2):
        assert await store.read() == ControlState(nodes={"n1": PAUSE}, recreated=True)
    assert await state(at).read() == ControlState(nodes={"n1": PAUSE})
    await state(at).keep(ControlState())
    for _ in range(2):
        assert await store.read() == ControlState(nodes={"n1": PAUSE})


async def test_a_config_map_that_was_replaced_is_read_as_recreated_until_a_leader_takes_it_over(
    at: ClientStage,
) -> None:
    """kubectl replace, and a tool that applies manifests so, keep the UID and nothing else."""
    store = state(at)
    put(at, data={"format": "1", "pause": "true"})
    assert await store.read() == ControlState(Pause())
    patch(at, data=None)
    for _ in range(2):
        assert await store.read() == ControlState(recreated=True)
    await state(at).keep(ControlState(Pause()))
    for _ in range(2):
        assert await store.read() == ControlState(Pause())


async def test_a_config_map_that_is_restored_with_its_format_is_not_recreated(at: ClientStage) -> None:
    """Whoever restores a copy of it means what it says."""
    store = state(at)
    put(at, data={"format": "1", "pause": "true"})
    await store.read()
    at.server.delete("configmaps", NAME, NAMESPACE)
    put(at, data={"format": "1"})
    assert await store.read() == ControlState()


GPU = selector_scope("pool=gpu")


async def test_a_pause_by_a_selector_raises_the_format_as_long_as_it_is_there(at: ClientStage) -> None:
    """A version that does not know such pauses holds everything then, and evicts again without them."""
    store = state(at)
    await store.keep(ControlState())
    await store.set_pauses({GPU: PAUSE, N1: PAUSE})
    assert (data(at)["format"], sorted(data(at))) == ("2", ["format", "pause-node.n1", key_of(GPU)])
    assert await store.read() == ControlState(nodes={"n1": PAUSE}, selectors={"pool=gpu": PAUSE})
    await store.end_pauses({GPU: PAUSE})
    assert data(at).keys() == {"format", "pause-node.n1"}
    assert data(at)["format"] == "1"


async def test_a_pause_by_a_selector_does_not_say_that_a_leader_has_taken_the_config_map_over(at: ClientStage) -> None:
    """Otherwise what was lost with an earlier ConfigMap would be forgotten."""
    store = state(at)
    put(at, data={"format": "1", "pause": "true"})
    await store.read()
    at.server.delete("configmaps", NAME, NAMESPACE)
    await state(at).set_pauses({GPU: PAUSE})
    assert data(at)["format"] == "2-new"
    assert await store.read() == ControlState(selectors={"pool=gpu": PAUSE}, recreated=True)
    await store.keep(ControlState(Pause()))
    assert data(at)["format"] == "2"
    assert await store.read() == ControlState(Pause(), selectors={"pool=gpu": PAUSE})


async def test_the_format_is_put_right_where_people_have_changed_keys_by_hand(at: ClientStage) -> None:
    """They need not know of it. Nothing is written where it is right."""
    store = state(at)
    put(at, data={"format": "1", "pause-selector.gpu": '{"selector": "pool=gpu"}'})
    found = await store.read()
    assert found is not None
    assert (found.unfit, found.selectors) == (True, {"pool=gpu": Pause()})
    for _ in range(2):
        await store.fit_format()
    assert data(at)["format"] == "2"
    assert len(writes(at)) == 1
    assert await store.set_pauses({GPU: None})
    assert data(at) == {"format": "1"}


async def test_what_was_lost_with_selectors_is_written_again(at: ClientStage) -> None:
    """What somebody has set to false stays resumed, but for selectors: false does not say which."""
    lost = ControlState(selectors={"pool=gpu": PAUSE, "zone notin (a)": Pause()})
    put(at, data={"pause-selector.x": "false", key_of(GPU): "false"})
    await state(at).keep(lost)
    read = await state(at).read()
    assert read is not None
    assert read.selectors == lost.selectors
    assert data(at)["format"] == "2"


async def test_more_selectors_than_can_be_read_are_not_written(at: ClientStage) -> None:
    """A hundred are."""
    await state(at).set_pauses({PauseScope("selector", f"k{number}"): PAUSE for number in range(100)})
    with pytest.raises(UnusableState, match="would have 101 pauses by selectors, more than 100, and could not be read"):
        await state(at).set_pauses({GPU: PAUSE})


# What this version does not understand


@pytest.mark.parametrize(
    "stands", [{"format": "3", "pause": "{}"}, {f"x{number}": "" for number in range(1001)}], ids=["newer", "many"]
)
async def test_nothing_is_written_to_a_config_map_that_this_version_does_not_understand(
    at: ClientStage, stands: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A newer version may mean something else by a key; its reader is told in one line, once."""
    put(at, data=stands)
    store = state(at)
    for _ in range(3):
        held = await store.read()
        assert held is not None
        assert held.cluster is not None
    assert len(caplog.messages) == 1
    for write in (
        store.set_pauses({EVERYTHING: PAUSE}),
        store.set_pauses({N1: None}),
        store.write_latch(LATCH),
        store.write_reset(EPOCH),
        store.redate(EPOCH, EPOCH - 1),
        store.end_pauses({N1: PAUSE}),
        store.set_no_adoption(PAUSE),
    ):
        with pytest.raises(UnusableState, match=r"ConfigMap kube-system/orders has (format 3|1001 keys)"):
            await write
    await store.keep(FULL)
    await store.confirm_no_adoption("somebody", PAUSE)
    assert (data(at), writes(at)) == (stands, [])


async def test_more_keys_than_can_be_read_are_not_written(at: ClientStage) -> None:
    """A thousand are."""
    nodes = {PauseScope("node", f"n{number}"): PAUSE for number in range(1000)}
    await state(at).set_pauses(nodes)
    with pytest.raises(UnusableState, match="would have 1001 keys, more than 1000, and could not be read"):
        await state(at).set_pauses({SHOP: PAUSE})
    await state(at).set_pauses({SHOP: PAUSE, N1: None})
    assert len(data(at)) == 1000


# Errors


@pytest.mark.parametrize("status", [403, 500])
async def test_a_refusal_is_a_failed_call(at: ClientStage, status: int) -> None:
    """This holds for each verb; a missing right is not a missing ConfigMap."""
    at.server.faults.add(verb="get", resource="configmaps", status=status, times=1)
    with pytest.raises(CallFailed) as failed:
        await state(at).read()
    assert failed.value.reason is failure_reason(status)
    for verb in ("create", "patch"):
        fault = at.server.faults.add(verb=verb, resource="configmaps", status=status)
        with pytest.raises(CallFailed) as failed:
            await state(at).set_pauses({EVERYTHING: PAUSE})
        assert failed.value.reason is failure_reason(status)
        at.server.faults.remove(fault)
        await state(at).write_reset(EPOCH)


async def test_writing_to_a_missing_namespace_is_a_failed_call(at: ClientStage) -> None:
    """Reading finds nothing there, and writing fails."""
    fault = {"status": 404, "reason": "NotFound", "details": {"name": "none", "kind": "namespaces"}}
    at.server.faults.add(verb="create", resource="configmaps", message='namespaces "none" not found', **fault)
    store = StateConfigMap(at.calls, "none", NAME)
    assert await store.read() is None
    with pytest.raises(CallFailed, match='namespaces "none" not found'):
        await store.write_latch(LATCH)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        '{"kind": "ConfigMap"}',
        '{"kind": "Status"}',
        '{"kind": "ConfigMap", "metadata": {"name": "orders", "namespace": "kube-system"}}',
        '{"kind": "ConfigMap", "metadata": {"name": "orders", "namespace": "other", "resourceVersion": "1"}}',
        '{"kind": "Lease", "metadata": {"name": "orders", "namespace": "kube-system", "resourceVersion": "1"}}',
    ],
)
async def test_an_answer_that_is_no_config_map_is_a_failed_call(at: ClientStage, text: str) -> None:
    """The answer of a proxy, for example, must not look like a cluster in which nothing is held."""
    at.server.faults.add(resource="configmaps", status=200, message=text, plain_text=True)
    with pytest.raises(CallFailed, match=r"is not (a|about) ConfigMap"):
        await state(at).read()


# Log lines


async def test_unknown_and_malformed_keys_are_logged_once_each(
    at: ClientStage, caplog: pytest.LogCaptureFixture
) -> None:
    """A key is logged again only if its value changes."""
    put(at, data={"pauses": "true", "pause": "yes"})
    store = state(at)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await store.read()
        assert [record.message for record in caplog.records] == [
            "ConfigMap kube-system/orders: the key pauses is unknown to this version and ignored",
            "ConfigMap kube-system/orders: the key pause is malformed (its value is not JSON): yes; it holds evictions",
        ]
        caplog.clear()
        patch(at, data={"pause": "no"})
        for _ in range(2):
            await store.read()
        assert len(caplog.records) == 1


async def test_a_config_map_full_of_malformed_keys_does_not_fill_the_log(
    at: ClientStage, caplog: pytest.LogCaptureFixture
) -> None:
    """The first read logs ten keys and the number of the others; the second read logs nothing."""
    put(at, data={f"pause-node.n{number}": "maybe" * 1000 for number in range(100)})
    store = state(at)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            control_state = await store.read()
    assert control_state is not None
    assert len(control_state.nodes) == 100
    assert len(caplog.records) == 11
    assert caplog.records[-1].message == "ConfigMap kube-system/orders: 90 more keys are unknown or malformed"
    assert sum(len(record.message) for record in caplog.records) < 2000


async def test_a_pause_can_become_longer_but_never_shorter(at: ClientStage) -> None:
    """A longer pause keeps its start; a pause that has ended begins anew."""
    await state(at).set_pauses({EVERYTHING: Pause(EPOCH, "a", EPOCH + 60), N1: Pause(EPOCH)})
    await state(at).set_pauses({EVERYTHING: Pause(EPOCH + 30, "b", EPOCH + 90), N1: Pause(EPOCH + 30, "b", EPOCH + 90)})
    assert await state(at).read() == ControlState(Pause(EPOCH, "b", EPOCH + 90), {"n1": Pause(EPOCH)})
    await state(at).set_pauses({EVERYTHING: Pause(EPOCH + 40, "c", EPOCH + 50)})
    assert await state(at).read() == ControlState(Pause(EPOCH, "b", EPOCH + 90), {"n1": Pause(EPOCH)})
    await state(at).set_pauses({EVERYTHING: Pause(EPOCH + 91, "d", EPOCH + 92)})
    assert await state(at).read() == ControlState(Pause(EPOCH + 91, "d", EPOCH + 92), {"n1": Pause(EPOCH)})


async def test_a_longer_pause_never_counts_from_a_later_start_than_its_own(at: ClientStage) -> None:
    """The first one was dated while the clock was an hour ahead: the longer one would end too early."""
    await state(at).set_pauses({EVERYTHING: Pause(EPOCH + 3600, "a", EPOCH + 5400)})
    longer = Pause(EPOCH + 1500, "b", EPOCH + 8700)
    await state(at).set_pauses({EVERYTHING: longer})
    assert await state(at).read() == ControlState(longer)


async def test_a_pause_is_ended_only_as_it_was_shown(at: ClientStage) -> None:
    """Whoever agrees to end a pause does not agree to end the one that has replaced it."""
    await state(at).set_pauses({EVERYTHING: Pause(EPOCH, "a", EPOCH + 60), N1: PAUSE})
    shown = {EVERYTHING: Pause(EPOCH, "a", EPOCH + 60), N1: PAUSE}
    await state(at).set_pauses({EVERYTHING: Pause(EPOCH, "b", EPOCH + 90)})
    replaced = await state(at).read()
    assert await state(at).set_pauses(dict.fromkeys(shown), shown) is False
    assert await state(at).read() == replaced
    assert replaced is not None
    assert await state(at).set_pauses(dict.fromkeys(shown), replaced.pauses()) is True
    assert await state(at).read() == ControlState()


async def test_pauses_that_have_ended_are_removed_and_no_others(at: ClientStage) -> None:
    """A pause that was made longer meanwhile stays."""
    await state(at).set_pauses(
        {EVERYTHING: Pause(EPOCH, "", EPOCH + 60), N1: Pause(EPOCH), SHOP: Pause(EPOCH, "", EPOCH + 61)}
    )
    ended = {EVERYTHING: Pause(EPOCH, "", EPOCH + 60), SHOP: Pause(EPOCH, "", EPOCH + 60)}
    await state(at).end_pauses(ended)
    assert await state(at).read() == ControlState(None, {"n1": Pause(EPOCH)}, {"shop": Pause(EPOCH, "", EPOCH + 61)})


async def test_an_order_to_adopt_nothing_is_confirmed_once_and_removed_with_its_confirmation(at: ClientStage) -> None:
    """A new order is not confirmed yet, and no replica confirms what is not ordered."""
    await state(at).confirm_no_adoption("replica-1", PAUSE)
    assert at.server.get("configmaps", NAME, NAMESPACE) is None
    await state(at).set_no_adoption(PAUSE)
    await state(at).confirm_no_adoption("replica-1", PAUSE)
    assert await state(at).read() == ControlState(no_adoption=PAUSE, no_adoption_confirmed_by="replica-1")
    version = config_map(at)["metadata"]["resourceVersion"]
    await state(at).set_no_adoption(Pause(EPOCH, "another reason"))
    await state(at).confirm_no_adoption("replica-1", PAUSE)
    assert config_map(at)["metadata"]["resourceVersion"] == version
    await state(at).set_no_adoption(None)
    assert await state(at).read() == ControlState()
    patch(at, data={"no-adoption-confirmed": '"replica-1"'})
    await state(at).set_no_adoption(PAUSE)
    assert await state(at).read() == ControlState(no_adoption=PAUSE)
