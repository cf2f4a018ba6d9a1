"""Known mistakes about adopting countdowns and giving them back; see ``known_bugs``."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from taint_eviction.adapters.adoption_patches import ADOPTED, JsonPatch, adopt_patch, return_patch
from taint_eviction.core.adopting import adoptable_until, places_to_adopt
from taint_eviction.core.adoption import TolerationKey
from taint_eviction.core.objects import Pod, Taint, Toleration
from taint_eviction.runtime.adopter import Adopter, AdoptionHints


def adopted_are_never_given_back(patch: pytest.MonkeyPatch) -> None:
    """The controller never gives back an adopted pod, whatever happens to its node's taints."""
    patch.setattr(Adopter, "_may_have_back", lambda self, pod: False)


def given_back_by_hints_alone(patch: pytest.MonkeyPatch) -> None:
    """A new leader lists no adopted pods: a pod whose reason for adoption ended before is never given back."""
    give_back = Adopter._give_back_what_may
    begun = set[Adopter]()

    async def unless_at_the_start(self: Adopter) -> float:
        if self not in begun:
            begun.add(self)
            return math.inf
        return await give_back(self)

    patch.setattr(Adopter, "_give_back_what_may", unless_at_the_start)
    patch.setattr("taint_eviction.runtime.adopter._LIST_SECONDS", 10**9)


def adopted_by_name(patch: pytest.MonkeyPatch) -> None:
    """The patches test neither the UID nor the version of the pod, so they change any pod of that name."""
    for made in (adopt_patch, return_patch):

        def untested(*args: Any, made: Any = made) -> JsonPatch:
            return [each for each in made(*args) if each["op"] != "test"]

        patch.setattr(f"taint_eviction.adapters.adoptions.{made.__name__}", untested)


def notes_name_places(patch: pytest.MonkeyPatch) -> None:
    """A note names positions in the list of tolerations, whatever toleration stands there now."""

    def by_place(tolerations: Sequence[Toleration]) -> Iterator[TolerationKey]:
        yield from (TolerationKey(Toleration(), place) for place, _ in enumerate(tolerations))

    patch.setattr("taint_eviction.core.adoption.toleration_keys", by_place)


def notes_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """An adopted pod tolerates its taint indefinitely, because only the spec counts and the note does not."""

    def as_in_the_spec(tolerations: Sequence[Toleration], _: Mapping[TolerationKey, int]) -> tuple[Toleration, ...]:
        return tuple(tolerations)

    patch.setattr("taint_eviction.adapters.kubernetes_objects.with_seconds", as_in_the_spec)


def orders_do_not_stop_adoption(patch: pytest.MonkeyPatch) -> None:
    """The controller adopts pods and gives them back although somebody ordered ``hand-back``."""
    patch.setattr(Adopter, "stopped_by", None)


def adopted_before_the_control_state_is_read(patch: pytest.MonkeyPatch) -> None:
    """A new leader adopts at once, before it has read the control state."""
    patch.setattr(Adopter, "_may_change", lambda self: self._gate.may_act() and self.stopped_by is None)


def adopted_without_leading(patch: pytest.MonkeyPatch) -> None:
    """All replicas adopt."""
    patch.setattr(
        Adopter, "_may_change", lambda self: self._suspension.control_state is not None and self.stopped_by is None
    )


def adopted_by_the_minute(patch: pytest.MonkeyPatch) -> None:
    """The controller checks once a minute which pods to adopt, and no hint makes it check sooner."""
    patch.setattr("taint_eviction.runtime.adopter._LOOK_SECONDS", 60.0)
    patch.setattr(Adopter, "_look_where_taints_changed", lambda self: None)
    patch.setattr(AdoptionHints, "heard", lambda self, fact: None)


def adopted_once(patch: pytest.MonkeyPatch) -> None:
    """The controller does not adopt further countdowns of a pod that is already adopted."""

    def unless_adopted(pod: Pod, *rest: Any) -> float | None:
        return None if pod.adoption is not None else adoptable_until(pod, *rest)

    patch.setattr("taint_eviction.runtime.adopter.adoptable_until", unless_adopted)


def one_toleration_is_adopted(patch: pytest.MonkeyPatch) -> None:
    """If several tolerations of a pod run countdowns, the controller takes the seconds of only one."""

    def first(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[int, ...]:
        return places_to_adopt(tolerations, taints)[:1]

    patch.setattr("taint_eviction.runtime.adopter.places_to_adopt", first)


def the_finished_are_adopted(patch: pytest.MonkeyPatch) -> None:
    """Finished pods are adopted like any other pod."""

    def as_if_running(pod: Pod, *rest: Any) -> float | None:
        return adoptable_until(dataclasses.replace(pod, finished=False), *rest)

    patch.setattr("taint_eviction.runtime.adopter.adoptable_until", as_if_running)


def labels_stay(patch: pytest.MonkeyPatch) -> None:
    """A pod that is given back keeps the label."""
    label = f"/metadata/labels/{ADOPTED.replace('/', '~1')}"

    def without_the_label(*args: Any) -> JsonPatch:
        return [each for each in return_patch(*args) if each["path"] != label]

    patch.setattr("taint_eviction.adapters.adoptions.return_patch", without_the_label)
