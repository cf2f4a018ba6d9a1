"""Single pods are marked and given back over HTTP, exactly as they were read, and found by their notes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.stage.client import ClientStage, client_stage
from tests.unit.builders import EPOCH

from fake_apiserver import pod_object
from taint_eviction.core.adoption import CountdownChange, wanted_change
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.objects import MARK_SECONDS, NamespacedName, Pod, PodRef
from taint_eviction.core.pod_parts import ALL_PARTS
from taint_eviction.kube.adoption_patches import MAX_NOTE, NOTE_ANNOTATION
from taint_eviction.kube.adoptions import Adoptions
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.state_config_map import StateConfigMap
from taint_eviction.runtime.ports import CallFailed

DOWN = {"key": "down", "operator": "Exists", "effect": "NoExecute"}
OTHER = {"key": "other", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7}


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A stage for one test."""
    async with client_stage(tmp_path) as made:
        yield made


def adoptions(at: ClientStage) -> Adoptions:
    """The adapter under test."""
    state = StateConfigMap(at.calls, "kube-system", "taint-eviction-controller")
    malformed = MalformedObjects(at.malformed.append)
    return Adoptions(at.calls, malformed, state, "replica-1", ALL_PARTS)


def put(at: ClientStage, *tolerations: dict[str, Any], **metadata: Any) -> PodRef:
    """Create a pod with these tolerations."""
    body = pod_object("default", "web", "n1")
    body["metadata"] |= metadata
    body["spec"]["tolerations"] = list(tolerations)
    created = at.server.create("pods", body)
    return PodRef(NamespacedName("default", "web"), created["metadata"]["uid"])


def found(at: ClientStage) -> dict[str, Any]:
    """Return the pod as it is."""
    body = at.server.get("pods", "web", "default")
    assert body is not None
    return body


def note(at: ClientStage) -> Any:
    """Return the note in the pod's annotation."""
    return orjson.loads(found(at)["metadata"]["annotations"][NOTE_ANNOTATION])


def mark_first(pod: Pod) -> CountdownChange | None:
    """Mark the first toleration."""
    return wanted_change(pod, (0,), (), {})


def give_back(pod: Pod) -> CountdownChange | None:
    """Give everything back."""
    return wanted_change(pod, (), () if pod.adoption is None else pod.adoption.noted, {})


async def test_seconds_go_into_the_note_and_come_back(at: ClientStage) -> None:
    """Only the chosen toleration changes; labels and annotations of others stay as they are."""
    ref = put(at, DOWN | {"tolerationSeconds": 300}, OTHER, labels={"app": "web"}, annotations={"own": "a"})
    before = found(at)
    pod = await adoptions(at).change(ref, mark_first)
    assert pod is not None
    assert [each.toleration_seconds for each in pod.tolerations][:2] == [300, 7]
    after = found(at)
    assert after["spec"]["tolerations"][:2] == [DOWN | {"tolerationSeconds": MARK_SECONDS}, OTHER]
    assert after["metadata"]["labels"] == {"app": "web"}
    assert note(at) == [{**DOWN, "seconds": 300}]
    assert await adoptions(at).list_noted() == [ref]
    given = await adoptions(at).change(ref, give_back)
    assert given is not None
    assert given.adoption is None
    assert found(at)["spec"] == before["spec"]
    assert found(at)["metadata"]["annotations"] == {"own": "a"}
    assert await adoptions(at).list_noted() == []


async def test_a_look_reads_all_pods_in_pages(at: ClientStage) -> None:
    """No label selects them: the note is the one truth."""
    put(at, OTHER)
    await adoptions(at).list_noted()
    (asked,) = at.server.requests.select(verb="list", resource="pods")
    assert asked.query == {"limit": "500"}


async def test_a_pod_without_annotations_gets_some(at: ClientStage) -> None:
    """The patch adds the missing map."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    at.server.patch("pods", "web", {"metadata": {"annotations": None}}, "default")
    assert await adoptions(at).change(ref, mark_first) is not None
    assert note(at) == [{**DOWN, "seconds": 300}]


async def test_a_pod_that_others_change_meanwhile_is_read_again(at: ClientStage) -> None:
    """Each try decides on the pod as it is at that moment."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    seen: list[int | None] = []

    def wanted(pod: Pod) -> CountdownChange | None:
        seen.append(pod.tolerations[0].toleration_seconds)
        if len(seen) == 1:
            at.server.patch("pods", "web", {"spec": {"tolerations": [DOWN | {"tolerationSeconds": 200}]}}, "default")
        return mark_first(pod)

    assert await adoptions(at).change(ref, wanted) is not None
    assert seen == [300, 200]
    assert note(at)[0]["seconds"] == 200


async def test_the_answer_for_a_pod_that_is_gone_or_replaced_is_none(at: ClientStage) -> None:
    """This holds whether the pod's name is free or belongs to another pod, which is not changed."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    another = PodRef(ref.key, "another")
    absent = PodRef(NamespacedName("default", "absent"), "absent")
    for each in (another, absent):
        assert await adoptions(at).change(each, mark_first) is None
    assert NOTE_ANNOTATION not in found(at)["metadata"].get("annotations", {})


async def test_a_change_that_is_not_wanted_changes_nothing(at: ClientStage) -> None:
    """The call returns the pod, and writes nothing."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    version = found(at)["metadata"]["resourceVersion"]
    assert await adoptions(at).change(ref, lambda _: None) is not None
    assert found(at)["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(("status", "message"), [(403, "tolerations are restricted here"), (503, "too busy")])
async def test_a_refusal_is_raised_after_one_patch(at: ClientStage, status: int, message: str) -> None:
    """It is not treated as a conflict; the caller decides when to try again."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    at.server.faults.add(verb="patch", resource="pods", status=status, message=message)
    with pytest.raises(CallFailed, match=message):
        await adoptions(at).change(ref, mark_first)
    assert len(at.server.requests.select(verb="patch", resource="pods")) == 1


async def test_a_note_that_would_be_too_long_is_not_written(at: ClientStage) -> None:
    """Nobody would read it again."""
    many = [{**DOWN, "key": f"{'k' * 50}-{number}", "tolerationSeconds": 300} for number in range(MAX_NOTE // 60)]
    ref = put(at, *many)
    with pytest.raises(CallFailed, match="too many, or their keys too long"):
        await adoptions(at).change(ref, lambda pod: wanted_change(pod, range(len(many)), (), {}))


async def test_nothing_is_confirmed_but_the_order_that_was_obeyed(at: ClientStage) -> None:
    """A confirmation that comes late does not confirm another order."""
    state = StateConfigMap(at.calls, "kube-system", "taint-eviction-controller")
    await adoptions(at).confirm_no_adoption(Pause(EPOCH))
    assert at.server.get("configmaps", "taint-eviction-controller", "kube-system") is None
    await state.set_no_adoption(Pause(EPOCH + 60))
    await adoptions(at).confirm_no_adoption(Pause(EPOCH))
    assert (await state.read() or ControlState()).no_adoption_confirmed_by == ""
    await adoptions(at).confirm_no_adoption(Pause(EPOCH + 60))
    assert (await state.read() or ControlState()).no_adoption_confirmed_by == "replica-1"


async def test_the_config_map_says_who_adopts(at: ClientStage) -> None:
    """The entry goes when nobody does any more, but not with a removal that another replica's entry has overtaken."""
    state = StateConfigMap(at.calls, "kube-system", "taint-eviction-controller")
    await adoptions(at).write_adopter(2)
    assert (await state.read() or ControlState()).adopter == "replica-1 2"
    await adoptions(at).remove_adopter("replica-0 1")
    assert (await state.read() or ControlState()).adopter == "replica-1 2"
    await adoptions(at).remove_adopter("replica-1 2")
    assert (await state.read() or ControlState()).adopter == ""


async def test_a_change_that_webhooks_hold_up_is_waited_for_longer_than_other_calls(tmp_path: Path) -> None:
    """The API server waits for a webhook that hangs, and ends a request whose sender waits no longer."""
    async with client_stage(tmp_path, timeout_seconds=0.5) as at:
        ref = put(at, DOWN | {"tolerationSeconds": 300})
        at.server.faults.add(verb="patch", resource="pods", times=1, delay_seconds=1.0)
        marked = await adoptions(at).change(ref, mark_first)
        assert marked is not None
        assert note(at) == [DOWN | {"seconds": 300}]
        at.server.faults.add(verb="get", resource="pods", times=1, delay_seconds=1.0)
        with pytest.raises(CallFailed, match=r"no answer .* within 0\.5 s"):
            await adoptions(at).change(ref, give_back)
