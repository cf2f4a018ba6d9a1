"""The environment of the model ``lease``, played for the code: the model accepts what the code does, and no mistake."""

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tests.models.accepting import Acceptor, Judgement
from tests.models.bounds import SMALLEST, part_of, plays
from tests.models.checking import Move, mistakes, spin_is_missing, visit_all, walk
from tests.models.lease_bugs import LEASE_BUGS, never_taken_over
from tests.models.lease_scenarios import play_lease, scenario_of, thinned

pytestmark = pytest.mark.skipif(bool(spin_is_missing()), reason=f"the model checker is missing: {spin_is_missing()}")

_BOUNDS = SMALLEST["lease"]["elections"]
# Counterexamples in which nobody releases the Lease are the better ones, but for the mistake about that.
_WITHOUT_RELEASES = {"RELEASES": 0}


@functools.cache
def _acceptor() -> Acceptor:
    return Acceptor("lease", _BOUNDS)


def _played(moves: Sequence[Move], name: str) -> Iterator[tuple[Judgement, str]]:
    """Play the environment of a walk with small shifts of time; yield what the model says about each."""
    for shift in range(plays().shifts):
        rng = random.Random(f"{name}/{shift}")
        document = scenario_of(moves, functools.partial(rng.uniform, -0.3, 0.3), f"{name}/{shift}")
        played, told = play_lease(document), f"shift {shift}: {document['timeline']}"
        judgement = _acceptor().judge(played.trace)
        yield (
            replace(judgement, accepted=judgement.accepted and played.leads),
            f"{told}, in the end led: {played.leads}",
        )


@pytest.mark.parametrize("mistake", mistakes("lease"))
def test_each_mistake_is_found_in_the_model_and_in_the_code(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a counterexample; played, the model accepts what the code does, and refuses it with the mistake."""
    bounds = SMALLEST["lease"][part_of("lease", mistake)]
    fewer = {} if mistake == "RELEASED_AT_WORK" else _WITHOUT_RELEASES
    moves = visit_all("lease", {**bounds, **fewer, "MISTAKE": mistakes("lease")[mistake]}).moves
    assert moves
    if mistake not in LEASE_BUGS:
        return
    for judgement, scenario in _played(moves, mistake):
        assert judgement.accepted, f"{judgement}\n{scenario}"
    LEASE_BUGS[mistake](monkeypatch)
    assert any(not judgement.accepted for judgement, _ in _played(moves, mistake))


@pytest.mark.parametrize("seed", range(1, 1 + plays().walks))
def test_walks_played_for_the_code_are_accepted(seed: int) -> None:
    """In the environment of a random walk through the model, the code does what the model can do."""
    moves = thinned(walk("lease", _BOUNDS, seed), random.Random(seed))
    for judgement, scenario in _played(moves, f"walk {seed}"):
        assert judgement.accepted, f"{judgement}\n{scenario}"


def test_a_lease_that_nobody_takes_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """That nobody leads in the end is no move that the model could refuse, so it is judged by itself."""
    never_taken_over(monkeypatch)
    assert any(
        not judgement.accepted for judgement, _ in _played([Move("lease_stored", 0), Move("crashes", 0)], "dead")
    )
