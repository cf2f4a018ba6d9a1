"""Which tolerations lose their seconds on a tainted node, and until when that matters."""

from typing import Any

import pytest
from tests.unit import builders as build

from taint_eviction.adapters.kubernetes_objects import read_pod
from taint_eviction.core.adopting import adoptable_until, may_have_back, places_to_adopt
from taint_eviction.core.objects import NO_EXECUTE, Pod, Taint, Toleration
from taint_eviction.kopf_shell.kept_fields import pod_fields

DOWN = Taint("down", NO_EXECUTE)
OTHER = Taint("other", NO_EXECUTE)
NOTE = (
    '{"by":"controller","tolerations":'
    '[{"key":"down","operator":"Exists","effect":"NoExecute","occurrence":0,"seconds":300}]}'
)


def _pod(annotation: str, **seconds: int) -> tuple[Pod, tuple[str, ...]]:
    toleration: dict[str, Any] = {"key": "down", "operator": "Exists", "effect": "NoExecute", **seconds}
    body = {
        "metadata": {
            "namespace": "default",
            "name": "web",
            "uid": "u",
            "annotations": {"taint-eviction/adopted": annotation},
        },
        "spec": {"tolerations": [toleration]},
    }
    parsed = read_pod(pod_fields(body))
    return parsed.value, parsed.complaints


def test_every_finite_toleration_that_matches_a_taint_is_adopted() -> None:
    """One without seconds has no timer, and one that matches no NoExecute taint counts none down."""
    tolerations = (
        Toleration("down", "Exists", toleration_seconds=300),
        Toleration("down", "Exists"),
        Toleration("elsewhere", "Exists", toleration_seconds=300),
        Toleration(operator="Exists", toleration_seconds=60),
    )
    assert places_to_adopt(tolerations, [DOWN]) == (0, 3)
    assert places_to_adopt(tolerations, [Taint("down", "NoSchedule")]) == ()


def test_noted_seconds_count_and_the_spec_stays_known() -> None:
    """What the watch keeps of a pod has its note, from which its tolerations get their seconds."""
    pod, complaints = _pod(NOTE)
    assert (pod.tolerations[0].toleration_seconds, complaints) == (300, ())
    assert pod.spec_tolerations == (Toleration("down", "Exists", "", "NoExecute"),)


def test_seconds_in_the_spec_win() -> None:
    """Where somebody sets seconds again, the note does not count, and may go."""
    pod, _ = _pod(NOTE, tolerationSeconds=20)
    assert pod.tolerations[0].toleration_seconds == 20
    assert may_have_back(pod, [DOWN])


@pytest.mark.parametrize("note", ["[" * 8000, "[" * 100_000])
def test_a_note_that_is_nonsense_is_told_and_ignored(note: str) -> None:
    """The pod is read as if it had no note."""
    pod, [complaint] = _pod(note)
    assert pod.adoption is None
    assert pod.tolerations == (Toleration("down", "Exists", "", "NoExecute"),)
    assert complaint.startswith("the annotation taint-eviction/adopted is ignored: it is ")


def test_a_pod_may_have_back_what_matches_no_taint_any_more() -> None:
    """Of those with the effect NoExecute."""
    pod, _ = _pod(NOTE)
    assert not may_have_back(pod, [OTHER, DOWN])
    assert may_have_back(pod, [OTHER, Taint("down", "NoSchedule")])


def test_what_admission_took_is_never_given_back() -> None:
    """By the leader, with or without taints."""
    pod, _ = _pod(NOTE.replace("controller", "admission"))
    assert not may_have_back(pod, [])


def test_a_pod_without_a_note_has_nothing_to_get_back() -> None:
    """Whatever its tolerations are."""
    assert not may_have_back(build.pod(build.tolerates(300)), [])


def test_the_countdown_that_ends_first_says_until_when_a_pod_can_be_adopted() -> None:
    """Each countdown runs from when its taint was set."""
    pod = build.pod(build.tolerates(300, "k1"), build.tolerates(60, "k2"))
    taints = [build.seen(build.taint("k1"), 10.0), build.seen(build.taint("k2"), 20.0)]
    assert adoptable_until(pod, build.since(0.0), taints, earliest=30.0) == 80.0


@pytest.mark.parametrize(("earliest", "until"), [(60.0, 60.0), (60.1, None)])
def test_a_countdown_is_worth_adopting_if_it_ends_late_enough(earliest: float, until: float | None) -> None:
    """The instant itself is late enough."""
    pod = build.pod(build.tolerates(60))
    assert adoptable_until(pod, build.since(0.0), [build.seen(build.taint())], earliest) == until
