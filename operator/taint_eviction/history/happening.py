"""One line of a record."""

from dataclasses import dataclass
from typing import Any

from taint_eviction.adapters.kubernetes_times import parse_rfc3339


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
        value = self.fields.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def due(self) -> float | None:
        """The deadline that it tells of, in seconds since the epoch."""
        return self.number("due") or parse_rfc3339(self.fields.get("deadline"))
