"""Known mistakes about adopting countdowns and giving them back; see ``known_bugs``."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.around import around

from taint_eviction.core.adoption import Note, has_countdown, may_be_marked
from taint_eviction.core.countdowns import Countdowns
from taint_eviction.core.facts import Fact, NodeSeen, NodesSwept, PodSeen
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import MARK_SECONDS, Toleration
from taint_eviction.kube.adoption_patches import JsonPatch, change_patch
from taint_eviction.runtime.adopter import Adopter


def marks_are_never_given_back(patch: pytest.MonkeyPatch) -> None:
    """The controller never gives a countdown back, whatever happens to the node's taints."""
    patch.setattr(Adopter, "_returns", lambda self, pod: None)


def given_back_by_hints_alone(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not look for notes: a pod whose reason for its mark ended before is never given back."""

    async def unseeing(self: Adopter) -> bool:
        return False

    patch.setattr(Adopter, "_look", unseeing)


def adopted_by_name(patch: pytest.MonkeyPatch) -> None:
    """The patch tests neither the UID nor the version of the pod, so it changes any pod of that name."""

    def untested(*args: Any) -> JsonPatch:
        return [each for each in change_patch(*args) if each["op"] != "test"]

    patch.setattr("taint_eviction.kube.adoptions.change_patch", untested)


def notes_name_places(patch: pytest.MonkeyPatch) -> None:
    """A note names positions in the list of tolerations, whatever toleration stands there now."""

    def by_place(tolerations: Sequence[Toleration], note: Note, **_: bool) -> dict[int, int]:
        marks = enumerate(each.toleration_seconds == MARK_SECONDS for each in tolerations)
        return {place: seconds for (place, mark), seconds in zip(marks, note.values(), strict=False) if mark}

    patch.setattr("taint_eviction.kube.kubernetes_objects.noted_places", by_place)


def notes_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """A marked pod tolerates its taint indefinitely, because only the spec counts and the note does not."""

    def as_in_the_spec(tolerations: Sequence[Toleration], _: Mapping[int, int]) -> tuple[Toleration, ...]:
        return tuple(tolerations)

    patch.setattr("taint_eviction.kube.kubernetes_objects.with_seconds", as_in_the_spec)


def orders_do_not_stop_adoption(patch: pytest.MonkeyPatch) -> None:
    """The controller takes countdowns over and gives them back although somebody ordered ``hand-back``."""
    patch.setattr(Adopter, "stopped_by", None)


def adopted_without_leading(patch: pytest.MonkeyPatch) -> None:
    """All replicas take countdowns over."""
    patch.setattr(
        Adopter, "_may_change", lambda self: self._guards.control_state is not None and self.stopped_by is None
    )


def adopted_by_our_deadline(patch: pytest.MonkeyPatch) -> None:
    """The controller takes a countdown over a moment before its timer, and leaves no time for a write."""
    patch.setattr("taint_eviction.core.countdowns._LEAST_BEFORE_SECONDS", -1.0)
    patch.setattr("taint_eviction.core.countdowns._SHARE", -0.1)


def the_finished_are_adopted(patch: pytest.MonkeyPatch) -> None:
    """The countdowns of finished pods are taken over like any other pod's."""
    places = {"runtime.adopter.may_be_marked": may_be_marked, "core.countdowns.has_countdown": has_countdown}
    for place, asked in places.items():
        patch.setattr(
            f"taint_eviction.{place}", lambda pod, asked=asked: asked(dataclasses.replace(pod, finished=False))
        )


def a_start_sees_every_beginning(patch: pytest.MonkeyPatch) -> None:
    """A countdown that begins right after a start has no earlier timer: that the built-in controller may have missed
    that its node was clean before is not considered.
    """

    @around(patch, Countdowns, "_node_seen")
    def without_a_gap(node_seen: Callable[..., bool], self: Countdowns, fact: NodeSeen, now: Moment) -> bool:
        gap_at = self._gap_at
        if not fact.after_gap:
            self._gap_at = -math.inf
        news = node_seen(self, fact, now)
        self._gap_at = max(gap_at, self._gap_at)
        return news


def standbys_never_forget(patch: pytest.MonkeyPatch) -> None:
    """Only a leader forgets countdowns that are over: a standby takes one that begins again for the one it knows."""
    observed = Countdowns.observed

    @around(patch, Countdowns, "_pod_seen")
    def unless_known(pod_seen: Callable[..., bool], self: Countdowns, fact: PodSeen, now: Moment) -> bool:
        before = self._of(fact.pod.ref)
        known = before is not None and before.tolerations == fact.pod.spec_tolerations
        return not known and pod_seen(self, fact, now)

    def forgetting_nothing(self: Countdowns, fact: Fact, now: Moment) -> bool:
        kept = dict(self._countdowns)
        news = observed(self, fact, now)
        if isinstance(fact, NodesSwept):
            self._countdowns = kept
        return news

    patch.setattr(Countdowns, "observed", forgetting_nothing)
