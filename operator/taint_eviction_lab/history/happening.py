"""One line of a record."""

import math
from dataclasses import dataclass
from typing import Any

from taint_eviction.core.control_state import EVERYTHING, PauseScope, selector_scope
from taint_eviction.files.kubernetes_times import parse_rfc3339


def finite_number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True, slots=True)
class Happening:
    """One line: ``at`` as Unix time, ``what`` as the journal calls it, and its fields."""

    at: float
    what: str
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """Return a field that is text, "" if there is none."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """Return a field that is a number, None if there is none."""
        return finite_number(self.fields.get(name))

    def objects(self, name: str) -> list[dict[str, Any]]:
        """Return the objects in a field that is a list, [] if there is none."""
        value = self.fields.get(name)
        return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

    @property
    def scope(self) -> PauseScope | None:
        """The scope of a pause that began or ended; None if the line does not say."""
        match self.fields.get("scope_kind"):
            case "all":
                return EVERYTHING
            case "node" if name := self.text("node"):
                return PauseScope("node", name)
            case "namespace" if name := self.text("namespace"):
                return PauseScope("namespace", name)
            case "selector":
                try:
                    return selector_scope(self.text("selector"))
                except ValueError:
                    return None
            case _:
                return None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of a node, {} if there are none."""
        value = self.fields.get("labels")
        labels = value.items() if isinstance(value, dict) else ()
        return {key: text for key, text in labels if isinstance(text, str)}

    @property
    def due(self) -> float | None:
        """The deadline in the line, as Unix time; None: there is none."""
        return self.number("due") or parse_rfc3339(self.fields.get("deadline"))
