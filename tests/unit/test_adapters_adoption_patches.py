"""The annotation that notes the seconds which adoption took, and the patch that gives them back."""

from typing import Any

import orjson
import pytest

from taint_eviction.adapters.adoption_patches import ADOPTED, note_text, read_note, return_patch
from taint_eviction.adapters.json_fields import Unreadable
from taint_eviction.core.adoption import AdoptionNote, TolerationKey
from taint_eviction.core.objects import Toleration

NOTE = AdoptionNote(
    {
        TolerationKey(Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"), 0): 300,
        TolerationKey(Toleration("k", "", "v", "NoExecute"), 1): -(2**63),
    },
)
TOLERATION: dict[str, Any] = {"key": "k", "effect": "NoExecute", "occurrence": 0, "seconds": 1}


def test_a_note_leaves_out_fields_that_the_toleration_leaves_out() -> None:
    """A note is read back as it was written."""
    text = note_text(NOTE)
    assert orjson.loads(text) == {
        "by": "controller",
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "occurrence": 0,
                "seconds": 300,
            },
            {"key": "k", "value": "v", "effect": "NoExecute", "occurrence": 1, "seconds": -(2**63)},
        ],
    }
    assert read_note(text) == NOTE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON"),
        (None, "it is not JSON"),
        ("[" * 8192, "it is not JSON"),
        ("[" * 8193, "it is longer than 8192 characters"),
        ("[]", "it is not an object"),
        ("{}", "by is neither controller nor admission"),
        ('{"by": 1}', "by is not a string"),
        ('{"by": "admission", "tolerations": {}}', "tolerations is not a list"),
        ('{"by": "admission", "tolerations": ["x"]}', r"tolerations\[0\] is not an object"),
    ],
)
def test_a_note_that_cannot_be_read_is_refused_with_the_place(text: object, why: str) -> None:
    """Reading an annotation raises no other error, whatever it contains."""
    with pytest.raises(Unreadable, match=why):
        read_note(text)


@pytest.mark.parametrize("field", ["occurrence", "seconds"])
@pytest.mark.parametrize("value", [None, True, 1.0, "1", 2**63])
def test_numbers_are_integers_that_kubernetes_can_hold(field: str, value: object) -> None:
    """Any other value could fail the patch, or stand for another number."""
    text = orjson.dumps({"by": "controller", "tolerations": [TOLERATION | {field: value}]})
    with pytest.raises(Unreadable, match=rf"tolerations\[0\].{field} is not an integer"):
        read_note(text.decode())


def test_a_toleration_that_is_noted_twice_is_refused() -> None:
    """Nobody can tell which of the two entries has the toleration's own seconds."""
    text = orjson.dumps({"by": "controller", "tolerations": [TOLERATION, TOLERATION | {"seconds": 2}]})
    with pytest.raises(Unreadable, match=r"tolerations\[1\] appears twice"):
        read_note(text.decode())


def test_the_patch_tests_the_pod_and_removes_only_what_is_there() -> None:
    """Removing a key that is absent would fail the whole patch."""
    metadata = {"uid": "u", "resourceVersion": "7", "labels": {ADOPTED: "true"}, "annotations": None}
    assert return_patch(metadata, {1: 300}) == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/spec/tolerations/1/tolerationSeconds", "value": 300},
        {"op": "remove", "path": "/metadata/labels/taint-eviction~1adopted"},
    ]


@pytest.mark.parametrize("effect", ["", "NoSchedule"])
def test_seconds_that_the_api_server_would_refuse_are_refused(effect: str) -> None:
    """Only tolerations with effect NoExecute have seconds that can have been taken, or can be put back."""
    text = orjson.dumps({"by": "controller", "tolerations": [TOLERATION | {"effect": effect}]})
    with pytest.raises(Unreadable, match=r"tolerations\[0\]\.effect is not NoExecute"):
        read_note(text.decode())


def test_seconds_taken_at_creation_stay_noted_as_taken_by_admission() -> None:
    """The note has these seconds beside those that the controller took, and keeps them when those have come back."""
    [first, second] = NOTE.seconds
    both = AdoptionNote({first: 300}, {second: 60})
    text = note_text(both)
    assert [entry.get("by") for entry in orjson.loads(text)["tolerations"]] == [None, "admission"]
    assert read_note(text) == both
    metadata = {"uid": "u", "resourceVersion": "7", "labels": {ADOPTED: "controller"}, "annotations": {ADOPTED: text}}
    left = AdoptionNote({}, {second: 60})
    assert return_patch(metadata, {}, left)[2:] == [
        {"op": "add", "path": "/metadata/annotations/taint-eviction~1adopted", "value": note_text(left)},
        {"op": "add", "path": "/metadata/labels/taint-eviction~1adopted", "value": "admission"},
    ]
