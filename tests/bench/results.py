"""The results of a figure: the measured value, the goal, and the floor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table. ``goal`` and ``floor`` may be None; smaller is better unless ``at_least``."""

    figure: str
    name: str
    measured: float
    unit: str
    goal: float | None = None
    floor: float | None = None
    floor_name: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Return whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal

    @property
    def ratio(self) -> float | None:
        """The measured value as a multiple of the floor."""
        return self.measured / self.floor if self.floor else None

    def as_json(self) -> dict[str, object]:
        """Return all values by name."""
        names = ("figure", "name", "measured", "unit", "goal", "floor", "floor_name", "ratio", "met")
        return {name: getattr(self, name) for name in names}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(results: Sequence[Result]) -> str:
    """Return the results as a table for people."""
    rows = [("figure", "what", "measured", "goal", "floor", "ratio", "")]
    for result in results:
        sign = "≥" if result.at_least else "≤"
        rows.append(
            (
                result.figure,
                result.name,
                f"{_number(result.measured)} {result.unit}",
                "" if result.goal is None else f"{sign} {_number(result.goal)}",
                "" if result.floor is None else f"{_number(result.floor)} ({result.floor_name})",
                "" if result.ratio is None else f"{result.ratio:.2f}",
                {True: "ok", False: "MISSED", None: ""}[result.met],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
