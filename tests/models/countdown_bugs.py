"""The mistakes of the model ``countdowns`` that the controller can make, put into the code one at a time.

Those of ``hand-back`` itself need the command, which the laboratory does not play. The built-in controller's timer is
not played either.
"""

from collections.abc import Callable, Mapping

import pytest
from tests.simulation import adoption_bugs

from taint_eviction.adapters.adoptions import Adoptions
from taint_eviction.runtime.adopter import Adopter

Patch = Callable[[pytest.MonkeyPatch], None]


def old_orders(patch: pytest.MonkeyPatch) -> None:
    """A new leader acts as if the control state were still what it knew before: that it may take countdowns over."""

    def may_mark(self: Adopter) -> bool:
        return self.enabled and self._gate.may_act() and self.stopped_by is None and self._policy.in_force is True

    patch.setattr(Adopter, "_may_mark", may_mark)
    patch.setattr(Adopter, "_may_return", may_mark)


def marked_first(patch: pytest.MonkeyPatch) -> None:
    """Marks are written before the state ConfigMap says that this process takes countdowns over."""
    patch.setattr(
        Adopter, "_may_mark", lambda self: self.enabled and self._may_change() and self._policy.in_force is True
    )


def entry_found(patch: pytest.MonkeyPatch) -> None:
    """A leader that finds the entry of another one does not write its own."""
    patch.setattr(Adoptions, "adopter", lambda self, term: "somebody")


def left_early(patch: pytest.MonkeyPatch) -> None:
    """A leader without the flag removes the entry after its first look."""
    patch.setattr("taint_eviction.runtime.adopter.LATE_WRITE_SECONDS", 0.0)


COUNTDOWN_BUGS: Mapping[str, Patch] = {
    "OLD_ORDERS": old_orders,
    "UNTESTED": adoption_bugs.adopted_by_name,
    "MARKED_FIRST": marked_first,
    "ENTRY_FOUND": entry_found,
    "LEFT_EARLY": left_early,
}
