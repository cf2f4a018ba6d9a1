"""The environment of the model ``countdowns``, played: the model accepts what the code does, and no mistake."""

import functools
import random
from collections.abc import Iterator, Sequence

import pytest
from tests.models.accepting import Acceptor, Judgement
from tests.models.bounds import SMALLEST, plays
from tests.models.checking import Move, mistakes, spin_is_missing, visit_all, walk
from tests.models.countdown_bugs import COUNTDOWN_BUGS
from tests.models.countdown_scenarios import play_countdowns, scenario_of_countdowns, thinned_countdowns

pytestmark = pytest.mark.skipif(bool(spin_is_missing()), reason=f"the model checker is missing: {spin_is_missing()}")

_BOUNDS = SMALLEST["countdowns"]["hand-back"]


@functools.cache
def _acceptor() -> Acceptor:
    return Acceptor("countdowns", _BOUNDS)


def _played(moves: Sequence[Move], name: str) -> Iterator[tuple[Judgement, str]]:
    """Play the environment of a walk with small shifts of time; yield what the model says about each."""
    for shift in range(plays().shifts):
        rng = random.Random(f"{name}/{shift}")
        document = scenario_of_countdowns(moves, functools.partial(rng.uniform, -0.5, 0.5), f"{name}/{shift}")
        trace = play_countdowns(document)
        yield _acceptor().judge(trace), f"shift {shift}: {document['timeline']}\n{[move.name for move in trace]}"


@pytest.mark.parametrize(
    "mistake", [name for name in mistakes("countdowns") if name not in ("BACK_AT_ONCE", "DUE_ONLY")]
)
def test_counterexamples_played_for_the_code_are_accepted(mistake: str) -> None:
    """In the environment of each counterexample, the code does what the model can do."""
    for judgement, scenario in _played(_counterexample(mistake), mistake):
        assert judgement.accepted, f"{judgement}\n{scenario}"


@pytest.mark.parametrize("seed", range(1, 1 + plays().walks))
def test_walks_played_for_the_code_are_accepted(seed: int) -> None:
    """In the environment of a random walk through the model, the code does what the model can do."""
    moves = thinned_countdowns(walk("countdowns", _BOUNDS, seed), random.Random(seed))
    for judgement, scenario in _played(moves, f"walk {seed}"):
        assert judgement.accepted, f"{judgement}\n{scenario}"


@pytest.mark.parametrize("mistake", COUNTDOWN_BUGS)
def test_each_mistake_of_the_code_is_refused(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake in the code, the model refuses what the code does in the environment of the counterexample."""
    moves = _counterexample(mistake)
    COUNTDOWN_BUGS[mistake](monkeypatch)
    assert any(not judgement.accepted for judgement, _ in _played(moves, mistake))


def _counterexample(mistake: str) -> tuple[Move, ...]:
    return visit_all("countdowns", {**_BOUNDS, "MISTAKE": mistakes("countdowns")[mistake]}).moves
