"""The environment of the model ``lease``, played for the code: the model accepts what the code does, and no mistake."""

import functools
import random
from collections.abc import Iterator, Sequence

import pytest
from tests.models.accepting import Acceptor, Judgement
from tests.models.bounds import plays
from tests.models.checking import Move, mistakes, spin_is_missing, visit_all, walk
from tests.models.lease_bugs import LEASE_BUGS
from tests.models.lease_scenarios import play_lease, scenario_of, thinned

pytestmark = pytest.mark.skipif(bool(spin_is_missing()), reason=f"the model checker is missing: {spin_is_missing()}")

# The laboratory's processes are killed, and never release the Lease.
_BOUNDS = {"RELEASES": 0}


@functools.cache
def _acceptor() -> Acceptor:
    return Acceptor("lease", _BOUNDS)


def _played(moves: Sequence[Move], name: str) -> Iterator[tuple[Judgement, str]]:
    """Play the environment of a walk with small shifts of time; yield what the model says about each."""
    for shift in range(plays().shifts):
        rng = random.Random(f"{name}/{shift}")
        document = scenario_of(moves, functools.partial(rng.uniform, -0.3, 0.3), f"{name}/{shift}")
        yield _acceptor().judge(play_lease(document)), f"shift {shift}: {document['timeline']}"


@pytest.mark.parametrize("mistake", LEASE_BUGS)
def test_counterexamples_played_for_the_code_are_accepted(mistake: str) -> None:
    """In the environment of each counterexample, the code does what the model can do."""
    for verdict, scenario in _played(_counterexample(mistake), mistake):
        assert verdict.accepted, f"{verdict}\n{scenario}"


@pytest.mark.parametrize("seed", range(1, 1 + plays().walks))
def test_walks_played_for_the_code_are_accepted(seed: int) -> None:
    """In the environment of a random walk through the model, the code does what the model can do."""
    moves = thinned(walk("lease", _BOUNDS, seed), random.Random(seed))
    for verdict, scenario in _played(moves, f"walk {seed}"):
        assert verdict.accepted, f"{verdict}\n{scenario}"


@pytest.mark.parametrize("mistake", LEASE_BUGS)
def test_each_mistake_of_the_code_is_refused(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake in the code, the model refuses what the code does in the environment of the counterexample."""
    moves = _counterexample(mistake)
    LEASE_BUGS[mistake](monkeypatch)
    assert any(not verdict.accepted for verdict, _ in _played(moves, mistake))


def _counterexample(mistake: str) -> tuple[Move, ...]:
    return visit_all("lease", {**_BOUNDS, "MISTAKE": mistakes("lease")[mistake]}).moves
