"""The annotation that notes what the seconds of marked tolerations were, and the patch of each change."""

from typing import Any

import orjson
import pytest

from taint_eviction.core.adoption import CountdownChange, NotedToleration
from taint_eviction.core.objects import MARK_SECONDS, Toleration
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION, change_patch, note_text, read_note
from taint_eviction.kube.json_fields import Unreadable

NOTE = {
    NotedToleration(Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute")): 300,
    NotedToleration(Toleration("k", "", "v", "NoExecute"), 1, 2): -(2**63),
}
TOLERATION: dict[str, Any] = {"key": "k", "effect": "NoExecute", "seconds": 1}
POINTER = "/metadata/annotations/taint-eviction~1seconds"


def test_a_note_leaves_out_fields_that_the_toleration_leaves_out() -> None:
    """A note is read back as it was written; whether there are equal tolerations is said only where there are."""
    text = note_text(NOTE)
    assert orjson.loads(text) == [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "seconds": 300},
        {"key": "k", "value": "v", "effect": "NoExecute", "occurrence": 1, "among": 2, "seconds": -(2**63)},
    ]
    assert read_note(text) == NOTE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON"),
        (None, "it is not JSON"),
        ("[" * 8192, "it is not JSON"),
        ("[" * 8193, "it is longer than 8192 characters"),
        ("{}", "it is not a list"),
        ('["x"]', r"\[0\] is not an object"),
    ],
)
def test_a_note_that_cannot_be_read_is_refused_with_the_place(text: object, why: str) -> None:
    """Reading an annotation raises no other error, whatever it contains."""
    with pytest.raises(Unreadable, match=why):
        read_note(text)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("seconds", "1", "seconds is not an integer"),
        ("seconds", True, "seconds is not an integer"),
        ("seconds", 2**63, "seconds is not an integer"),
        ("seconds", None, "seconds is not an integer"),
        ("occurrence", 0.5, "occurrence is not an integer"),
        ("among", None, "among is not an integer"),
        ("key", 1, "key is not a string"),
        ("effect", "", "effect is not NoExecute"),
    ],
)
def test_each_field_of_a_note_is_checked(field: str, value: object, why: str) -> None:
    """One invalid field makes the whole note unreadable."""
    with pytest.raises(Unreadable, match=why):
        read_note(orjson.dumps([TOLERATION | {field: value}]).decode())


def test_a_toleration_appears_once_in_a_note() -> None:
    """Otherwise nobody could say which of its seconds count."""
    with pytest.raises(Unreadable, match=r"\[1\] appears twice"):
        read_note(orjson.dumps([TOLERATION, TOLERATION | {"seconds": 2}]).decode())


def test_a_note_of_more_tolerations_than_the_controller_marks_is_not_read() -> None:
    """A tenant could note as many as the annotation has room for, of a list that is long to search."""
    many = [{"key": f"k{number}", "effect": "NoExecute", "seconds": 1} for number in range(65)]
    assert len(read_note(orjson.dumps(many[1:]).decode())) == 64
    with pytest.raises(Unreadable, match="more than 64"):
        read_note(orjson.dumps(many).decode())


def pod(annotations: dict[str, str] | None, *seconds: int) -> dict[str, Any]:
    """Return a pod with tolerations of these seconds."""
    metadata: dict[str, Any] = {"uid": "u", "resourceVersion": "7"}
    metadata |= {} if annotations is None else {"annotations": annotations}
    keys = [f"k{place}" for place, _ in enumerate(seconds)]
    listed = [{"key": key, "tolerationSeconds": each} for key, each in zip(keys, seconds, strict=True)]
    return {"metadata": metadata, "spec": {"tolerations": listed}}


TOLERATIONS = (Toleration("k0", "Exists", "", "NoExecute"), Toleration("k1", "Exists", "", "NoExecute"))


def test_a_patch_marks_and_notes_exactly_the_pod_that_was_read() -> None:
    """It tests uid, version and the list of tolerations before it changes anything."""
    body = pod({"own": "a"}, 300, 5)
    patch = change_patch(body, TOLERATIONS, CountdownChange(frozenset({0}), {}, {0: 300}))
    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "test", "path": "/spec/tolerations", "value": body["spec"]["tolerations"]},
        {"op": "add", "path": "/spec/tolerations/0/tolerationSeconds", "value": MARK_SECONDS},
        {
            "op": "add",
            "path": POINTER,
            "value": '[{"key":"k0","operator":"Exists","effect":"NoExecute","seconds":300}]',
        },
    ]


def test_a_pod_without_annotations_gets_the_map() -> None:
    """A patch cannot add to a map that is not there."""
    patch = change_patch(pod(None, 300), TOLERATIONS[:1], CountdownChange(frozenset({0}), {}, {0: 300}))
    assert patch[-1]["path"] == "/metadata/annotations"
    assert list(patch[-1]["value"]) == [NOTE_ANNOTATION]


def test_with_the_last_seconds_the_note_goes() -> None:
    """What stays marked stays noted."""
    body = pod({NOTE_ANNOTATION: "x"}, MARK_SECONDS, MARK_SECONDS)
    all_back = change_patch(body, TOLERATIONS, CountdownChange(returns={0: 300, 1: 5}))
    assert [each["value"] for each in all_back if each["op"] == "add"] == [300, 5]
    assert all_back[-1] == {"op": "remove", "path": POINTER}
    one_back = change_patch(body, TOLERATIONS, CountdownChange(returns={1: 5}, noted={0: 300}))
    assert [each["path"] for each in one_back if each["op"] == "add"] == [
        "/spec/tolerations/1/tolerationSeconds",
        POINTER,
    ]
