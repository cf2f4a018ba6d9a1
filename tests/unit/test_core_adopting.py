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
    """A toleration without seconds has no deadline, and only NoExecute taints count."""
    tolerations = (
        Toleration("down", "Exists", toleration_seconds=300),
        Toleration("down", "Exists"),
        Toleration("elsewhere", "Exists", toleration_seconds=300),
        Toleration(operator="Exists", toleration_seconds=60),
    )
    assert places_to_adopt(tolerations, [DOWN]) == (0, 3)
    assert places_to_adopt(tolerations, [Taint("down", "NoSchedule")]) == ()


def test_noted_seconds_count_and_the_spec_stays_known() -> None:
    """The watch keeps a pod's note, from which its tolerations get their seconds."""
    pod, complaints = _pod(NOTE)
    assert (pod.tolerations[0].toleration_seconds, complaints) == (300, ())
    assert pod.spec_tolerations == (Toleration("down", "Exists", "", "NoExecute"),)


def test_seconds_in_the_spec_have_priority_over_the_note() -> None:
    """Somebody has set seconds again, so the note does not count and may be removed."""
    pod, _ = _pod(NOTE, tolerationSeconds=20)
    assert pod.tolerations[0].toleration_seconds == 20
    assert may_have_back(pod, [DOWN])


@pytest.mark.parametrize("note", ["[" * 8000, "[" * 100_000])
def test_an_unreadable_note_is_reported_and_ignored(note: str) -> None:
    """The pod is read as if it had no note."""
    pod, [complaint] = _pod(note)
    assert pod.adoption is None
    assert pod.tolerations == (Toleration("down", "Exists", "", "NoExecute"),)
    assert complaint.startswith("the annotation taint-eviction/adopted is ignored: it is ")


def test_a_pod_may_get_back_seconds_of_tolerations_that_match_no_taint() -> None:
    """Only taints with the effect NoExecute count."""
    pod, _ = _pod(NOTE)
    assert not may_have_back(pod, [OTHER, DOWN])
    assert may_have_back(pod, [OTHER, Taint("down", "NoSchedule")])


def test_seconds_that_admission_took_are_never_given_back() -> None:
    """The leader leaves such a note even on a pod without matching taints."""
    pod, _ = _pod(NOTE.replace("controller", "admission"))
    assert not may_have_back(pod, [])


def test_a_pod_without_a_note_has_nothing_to_get_back() -> None:
    """The pod keeps the seconds in its spec."""
    assert not may_have_back(build.pod(build.tolerates(300)), [])


def test_the_countdown_that_ends_first_says_until_when_a_pod_can_be_adopted() -> None:
    """Each countdown runs from the time at which its taint was set."""
    pod = build.pod(build.tolerates(300, "k1"), build.tolerates(60, "k2"))
    taints = [build.seen(build.taint("k1"), 10.0), build.seen(build.taint("k2"), 20.0)]
    assert adoptable_until(pod, build.since(0.0), taints, earliest=30.0) == 80.0


@pytest.mark.parametrize(("earliest", "until"), [(60.0, 60.0), (60.1, None)])
def test_a_countdown_is_worth_adopting_if_it_ends_late_enough(earliest: float, until: float | None) -> None:
    """A countdown that ends at exactly the earliest instant is late enough."""
    pod = build.pod(build.tolerates(60))
    assert adoptable_until(pod, build.since(0.0), [build.seen(build.taint())], earliest) == until
