"""One line of a record."""

import math
from dataclasses import dataclass
from typing import Any

from taint_eviction.adapters.kubernetes_times import parse_rfc3339


def finite_number(value: object) -> float | None:
    """Return a number, None for anything else, as infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True, slots=True)
class Happening:
    """One line: ``at`` in seconds since the epoch, ``what`` as the journal has it, and its fields."""

    at: float
    what: str
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """Return a field as text, "" where it is absent."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """Return a field as a number, None where it is none."""
        return finite_number(self.fields.get(name))

    def objects(self, name: str) -> list[dict[str, Any]]:
        """Return the objects in a field that is a list of them, [] where it is none."""
        value = self.fields.get(name)
        return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

    @property
    def due(self) -> float | None:
        """The deadline that it tells of, in seconds since the epoch."""
        return self.number("due") or parse_rfc3339(self.fields.get("deadline"))
