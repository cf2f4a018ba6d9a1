"""Which tolerations lose their seconds on a tainted node, and until when that matters."""

from typing import Any

from taint_eviction.adapters.kubernetes_objects import read_pod
from taint_eviction.core.adopting import adoption_matters, places_to_adopt
from taint_eviction.core.objects import NO_EXECUTE, Pod, Taint, Toleration
from taint_eviction.kopf_shell.kept_fields import pod_fields

DOWN = Taint("down", NO_EXECUTE)
OTHER = Taint("other", NO_EXECUTE)
NOTE = '{"by":"controller","tolerations":[{"key":"down","operator":"Exists","occurrence":0,"seconds":300}]}'


def _pod(annotation: str, **seconds: int) -> tuple[Pod, tuple[str, ...]]:
    toleration: dict[str, Any] = {"key": "down", "operator": "Exists", **seconds}
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
    assert pod.spec_tolerations == (Toleration("down", "Exists"),)


def test_seconds_in_the_spec_win() -> None:
    """Where somebody sets seconds again, the note does not count, so no countdown of it matters."""
    pod, _ = _pod(NOTE, tolerationSeconds=20)
    assert pod.tolerations[0].toleration_seconds == 20
    assert not adoption_matters(pod, [DOWN])


def test_a_note_that_is_nonsense_is_told_and_ignored() -> None:
    """The pod is read as if it had no note."""
    pod, complaints = _pod("[" * 10_000)
    assert pod.adoption is None
    assert pod.tolerations == (Toleration("down", "Exists"),)
    assert complaints == ("the annotation taint-eviction/adopted is ignored: it is not JSON",)


def test_an_adoption_matters_while_a_noted_toleration_matches_a_taint() -> None:
    """Once no taint of its node matches, the pod may have its seconds back."""
    pod, _ = _pod(NOTE)
    assert adoption_matters(pod, [OTHER, DOWN])
    assert not adoption_matters(pod, [OTHER, Taint("down", "NoSchedule")])


def test_what_admission_took_always_matters() -> None:
    """The leader never gives it back, with or without taints."""
    pod, _ = _pod(NOTE.replace("controller", "admission"))
    assert adoption_matters(pod, [])
