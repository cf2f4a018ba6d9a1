"""The two protocols in all of their states: every property holds. (``test_played_…``: every known mistake is found.)"""

import pytest
from tests.models.bounds import SMALLEST
from tests.models.checking import spin_is_missing, visit_all

pytestmark = pytest.mark.skipif(bool(spin_is_missing()), reason=f"the model checker is missing: {spin_is_missing()}")

PARTS = [(model, part) for model, parts in SMALLEST.items() for part in parts]


@pytest.mark.parametrize(("model", "part"), PARTS)
def test_every_property_holds_in_all_states(model: str, part: str) -> None:
    """No state of the model within its smallest bounds violates a property."""
    visit = visit_all(model, SMALLEST[model][part])
    assert not visit.moves, f"{visit.violated}: {visit.moves}"
    assert visit.states > 1000
