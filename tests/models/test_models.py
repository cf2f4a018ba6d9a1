"""The two protocols in all of their states: every property holds, and every known mistake is found."""

import pytest
from tests.models.bounds import SMALLEST, part_of
from tests.models.checking import mistakes, spin_is_missing, visit_all

pytestmark = pytest.mark.skipif(bool(spin_is_missing()), reason=f"the model checker is missing: {spin_is_missing()}")

PARTS = [(model, part) for model, parts in SMALLEST.items() for part in parts]
MISTAKES = [(model, mistake) for model in SMALLEST for mistake in mistakes(model)]


@pytest.mark.parametrize(("model", "part"), PARTS)
def test_every_property_holds_in_all_states(model: str, part: str) -> None:
    """No state of the model within its smallest bounds violates a property."""
    visit = visit_all(model, SMALLEST[model][part])
    assert not visit.moves, f"{visit.violated}: {visit.moves}"
    assert visit.states > 1000


@pytest.mark.parametrize(("model", "mistake"), MISTAKES)
def test_every_mistake_has_a_counterexample(model: str, mistake: str) -> None:
    """A model into which the mistake is put violates a property."""
    bounds = SMALLEST[model][part_of(model, mistake)]
    visit = visit_all(model, {**bounds, "MISTAKE": mistakes(model)[mistake]})
    assert visit.moves
