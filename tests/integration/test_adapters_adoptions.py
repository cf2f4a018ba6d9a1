"""Single pods are adopted and given back over HTTP, exactly as they were read."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.stage.client import ClientStage, client_stage

from fake_apiserver import pod_object
from taint_eviction.adapters.adoption_patches import ADOPTED
from taint_eviction.adapters.adoptions import Adoptions
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.adapters.state_config_map import StateConfigMap
from taint_eviction.core.objects import NamespacedName, Pod, PodRef
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
    return Adoptions(at.calls, MalformedObjects(at.malformed.append), state, "replica-1")


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
    return orjson.loads(found(at)["metadata"]["annotations"][ADOPTED])


def first(pod: Pod) -> tuple[int, ...]:
    """Take the seconds of the first toleration."""
    return (0,) if pod.spec_tolerations[0].toleration_seconds is not None else ()


def always(pod: Pod) -> bool:
    """Accept any pod."""
    return True


async def test_seconds_go_into_the_note_and_come_back(at: ClientStage) -> None:
    """Only the chosen toleration changes; labels and annotations of others stay as they are."""
    ref = put(at, DOWN | {"tolerationSeconds": 300}, OTHER, labels={"app": "web"}, annotations={"own": "a"})
    before = found(at)
    pod = await adoptions(at).adopt(ref, first)
    assert pod is not None
    assert [each.toleration_seconds for each in pod.tolerations][:2] == [300, 7]
    after = found(at)
    assert after["spec"]["tolerations"][:2] == [DOWN, OTHER]
    assert after["metadata"]["labels"] == {"app": "web", ADOPTED: "controller"}
    assert note(at) == {"by": "controller", "tolerations": [{**DOWN, "occurrence": 0, "seconds": 300}]}
    assert [each.ref for each in await adoptions(at).list_adopted()] == [ref]
    given = await adoptions(at).give_back(ref, always)
    assert given is not None
    assert given.adoption is None
    assert found(at)["spec"] == before["spec"]
    assert [found(at)["metadata"][field] for field in ("labels", "annotations")] == [{"app": "web"}, {"own": "a"}]
    assert await adoptions(at).list_adopted() == []


async def test_a_pod_without_labels_and_annotations_gets_both(at: ClientStage) -> None:
    """The patch adds the missing maps."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    at.server.patch("pods", "web", {"metadata": {"labels": None, "annotations": None}}, "default")
    assert await adoptions(at).adopt(ref, first) is not None
    assert found(at)["metadata"]["labels"] == {ADOPTED: "controller"}


async def test_a_note_that_is_there_is_kept_as_far_as_it_is_valid(at: ClientStage) -> None:
    """Seconds that were taken at the pod's creation stay noted as such; a note that cannot be read is replaced."""
    before = {"by": "admission", "tolerations": [{**DOWN, "occurrence": 0, "seconds": 60}]}
    ref = put(at, OTHER, DOWN, annotations={ADOPTED: orjson.dumps(before).decode()})
    assert await adoptions(at).adopt(ref, first) is not None
    bare = {field: value for field, value in OTHER.items() if field != "tolerationSeconds"}
    other = {**bare, "occurrence": 0, "seconds": 7}
    at_creation = {**DOWN, "occurrence": 0, "seconds": 60}
    assert note(at) == {"by": "controller", "tolerations": [other, at_creation | {"by": "admission"}]}
    assert await adoptions(at).give_back(ref, always) is not None
    assert note(at) == before
    assert found(at)["metadata"]["labels"][ADOPTED] == "admission"
    assert await adoptions(at).list_adopted() == []
    at.server.patch("pods", "web", {"metadata": {"annotations": {ADOPTED: "nonsense"}}}, "default")
    at.server.patch("pods", "web", {"spec": {"tolerations": [OTHER, DOWN]}}, "default")
    assert await adoptions(at).adopt(ref, first) is not None
    assert note(at) == {"by": "controller", "tolerations": [other]}


async def test_a_pod_that_others_change_meanwhile_is_read_again(at: ClientStage) -> None:
    """Each try decides on the pod as it is at that moment."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    seen: list[int | None] = []

    def places(pod: Pod) -> tuple[int, ...]:
        seen.append(pod.tolerations[0].toleration_seconds)
        if len(seen) == 1:
            at.server.patch("pods", "web", {"spec": {"tolerations": [DOWN | {"tolerationSeconds": 200}]}}, "default")
        return (0,)

    assert await adoptions(at).adopt(ref, places) is not None
    assert seen == [300, 200]
    assert note(at)["tolerations"][0]["seconds"] == 200


async def test_the_answer_for_a_pod_that_is_gone_or_replaced_is_none(at: ClientStage) -> None:
    """This holds whether the pod's name is free or belongs to another pod, which is not changed."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    another = PodRef(ref.key, "another")
    absent = PodRef(NamespacedName("default", "absent"), "absent")
    for each in (another, absent):
        assert await adoptions(at).adopt(each, first) is None
        assert await adoptions(at).give_back(each, always) is None
    assert "annotations" not in found(at)["metadata"] or ADOPTED not in found(at)["metadata"]["annotations"]


async def test_an_adoption_or_return_that_is_not_wanted_changes_nothing(at: ClientStage) -> None:
    """Both calls return the pod, and write nothing."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    version = found(at)["metadata"]["resourceVersion"]
    assert await adoptions(at).adopt(ref, lambda _: ()) is not None
    assert await adoptions(at).give_back(ref, lambda _: False) is not None
    assert found(at)["metadata"]["resourceVersion"] == version


async def test_a_refusal_is_raised_with_its_reason(at: ClientStage) -> None:
    """The refusal of an admission plugin, for example, is not treated as a conflict."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    at.server.faults.add(verb="patch", resource="pods", status=403, message="tolerations are restricted here")
    with pytest.raises(CallFailed, match="tolerations are restricted here"):
        await adoptions(at).adopt(ref, first)


async def test_nothing_is_confirmed_that_is_not_ordered(at: ClientStage) -> None:
    """Without an order to adopt nothing, the leader writes no ConfigMap."""
    await adoptions(at).confirm_no_adoption()
    assert at.server.get("configmaps", "taint-eviction-controller", "kube-system") is None


async def test_a_refused_patch_is_not_tried_again(at: ClientStage) -> None:
    """The refusal is raised after one PATCH; the caller decides when to try again."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    at.server.faults.add(verb="patch", resource="pods", status=503, message="too busy")
    with pytest.raises(CallFailed, match="too busy"):
        await adoptions(at).adopt(ref, first)
    assert len(at.server.requests.select(verb="patch", resource="pods")) == 1


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_seconds_whose_note_is_stripped_are_put_back_at_once(
    at: ClientStage, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """A pod keeps its seconds although a webhook removes unknown labels or annotations."""
    ref = put(at, DOWN | {"tolerationSeconds": 300})
    make = at.calls.make
    stripped: list[Any] = []

    async def strip(call: Any, *args: Any) -> Any:
        answer = await make(call, *args)
        if call.verb == "patch" and not stripped:
            stripped.append(call)
            body = at.server.patch("pods", "web", {"metadata": {field: {ADOPTED: None}}}, "default")
            return replace(answer, body=body)
        return answer

    monkeypatch.setattr(at.calls, "make", strip)
    with pytest.raises(CallFailed, match="has removed the note or the label"):
        await adoptions(at).adopt(ref, first)
    assert found(at)["spec"]["tolerations"][0] == DOWN | {"tolerationSeconds": 300}
    assert not any(ADOPTED in (found(at)["metadata"].get(each) or ()) for each in ("labels", "annotations"))
