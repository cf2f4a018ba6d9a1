"""The environments of the models, played: each model accepts what the code does, and no mistake."""

from collections.abc import Callable, Mapping

import pytest
from tests.amount import NIGHT
from tests.models.bounds import SMALLEST, part_of
from tests.models.checking import Move, mistakes, spin_is_missing, visit_all
from tests.models.countdown_bugs import COUNTDOWN_BUGS
from tests.models.lease_bugs import LEASE_BUGS, never_taken_over
from tests.models.plays import PARTS, WALKED, play_shifted, walked

pytestmark = pytest.mark.skipif(bool(spin_is_missing()), reason=f"the model checker is missing: {spin_is_missing()}")

# By day what the code rightly does is played with one shift of time; a mistake is looked for with all of them.
SHIFTS = 3
ACCEPTED_SHIFTS = SHIFTS if NIGHT else 1
BUGS: Mapping[str, Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "hand_back": COUNTDOWN_BUGS,
    "entry": COUNTDOWN_BUGS,
    "deadlines": COUNTDOWN_BUGS,
    "timers": COUNTDOWN_BUGS,
    "elections": LEASE_BUGS,
    "control_state": LEASE_BUGS,
}
# Counterexamples in which nobody releases the Lease are the better ones, but for the mistake about that.
_WITHOUT_RELEASES = {"RELEASES": 0}


@pytest.mark.parametrize(("model", "mistake"), [(model, mistake) for model in BUGS for mistake in mistakes(model)])
def test_each_mistake_is_found_in_the_model_and_in_the_code(
    model: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a counterexample; played, the model accepts what the code does, and refuses it with the mistake."""
    name = part_of(model, mistake)
    part, bounds = PARTS[name], SMALLEST[model][name]
    if name == "elections" and mistake != "RELEASED_AT_WORK":
        bounds = {**bounds, **_WITHOUT_RELEASES}
    moves = visit_all(model, {**bounds, "MISTAKE": mistakes(model)[mistake]}).moves
    assert moves
    for played in play_shifted(part, moves, mistake, ACCEPTED_SHIFTS):
        assert played.accepted, played.told
    BUGS[model][mistake](monkeypatch)
    assert not all(played.accepted for played in play_shifted(part, moves, mistake, SHIFTS))


@pytest.mark.parametrize("part", WALKED)
def test_what_the_code_does_in_a_walk_is_accepted(part: str) -> None:
    """In the environment of a random walk through the model, the code does what the model can do."""
    for played in play_shifted(PARTS[part], walked(PARTS[part], 1), "walk 1", ACCEPTED_SHIFTS):
        assert played.accepted, played.told


def test_a_lease_that_nobody_takes_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """That nobody leads in the end is no move that the model could refuse, so it is judged by itself."""
    never_taken_over(monkeypatch)
    moves = [Move("lease_stored", 0), Move("crashes", 0)]
    (played,) = play_shifted(PARTS["elections"], moves, "a leader that crashes", 1)
    assert not played.accepted
