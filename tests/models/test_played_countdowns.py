"""The environment of the model ``countdowns``, played: the model accepts what the code does, and no mistake."""

import functools
import random
from collections.abc import Iterator, Sequence

import pytest
from tests.models.accepting import Acceptor, Judgement
from tests.models.bounds import SMALLEST, part_of, plays
from tests.models.checking import Move, mistakes, spin_is_missing, visit_all, walk
from tests.models.countdown_bugs import COUNTDOWN_BUGS
from tests.models.countdown_scenarios import (
    HAND_BACK,
    TIMERS,
    play_countdowns,
    scenario_of_countdowns,
    thinned_countdowns,
)

pytestmark = pytest.mark.skipif(bool(spin_is_missing()), reason=f"the model checker is missing: {spin_is_missing()}")

_PLAYS = {"hand-back": HAND_BACK, "timers": TIMERS, "two taints": TIMERS}


@functools.cache
def _acceptor(part: str) -> Acceptor:
    return Acceptor("countdowns", _PLAYS[part].bounds)


def _played(moves: Sequence[Move], part: str, name: str) -> Iterator[tuple[Judgement, str]]:
    """Play the environment of a walk with small shifts of time; yield what the model says about each."""
    play = _PLAYS[part]
    for shift in range(plays().shifts):
        rng = random.Random(f"{name}/{shift}")
        document = scenario_of_countdowns(moves, play, functools.partial(rng.uniform, -0.5, 0.5), f"{name}/{shift}")
        trace = play_countdowns(document, play)
        judgement = _acceptor("timers" if play is TIMERS else part).judge(trace)
        yield judgement, f"shift {shift}: {document['timeline']}\n{[move.name for move in trace]}"


@pytest.mark.parametrize("mistake", mistakes("countdowns"))
def test_each_mistake_is_found_in_the_model_and_in_the_code(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a counterexample; played, the model accepts what the code does, and refuses it with the mistake."""
    part = part_of("countdowns", mistake)
    moves = visit_all("countdowns", {**SMALLEST["countdowns"][part], "MISTAKE": mistakes("countdowns")[mistake]}).moves
    assert moves
    for judgement, scenario in _played(moves, part, mistake):
        assert judgement.accepted, f"{judgement}\n{scenario}"
    COUNTDOWN_BUGS[mistake](monkeypatch)
    assert any(not judgement.accepted for judgement, _ in _played(moves, part, mistake))


@pytest.mark.parametrize("part", ["hand-back", "timers"])
@pytest.mark.parametrize("seed", range(1, 1 + plays().walks))
def test_walks_played_for_the_code_are_accepted(part: str, seed: int) -> None:
    """In the environment of a random walk through the model, the code does what the model can do."""
    moves = thinned_countdowns(walk("countdowns", SMALLEST["countdowns"][part], seed), random.Random(seed))
    for judgement, scenario in _played(moves, part, f"walk {seed}"):
        assert judgement.accepted, f"{judgement}\n{scenario}"
