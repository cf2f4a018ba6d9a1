"""Visits the models within larger bounds, and prints what was visited: ``python -m tests.models.night``."""

import sys

from tests.models.bounds import LARGER, SMALLEST, part_of
from tests.models.checking import mistakes, spin_is_missing, visit_all

ROW = "{:12} {:30} {:>12} {:>6} {:>8}  {}"


def main() -> None:
    """Visit every part of every model; end with 1 if a property is violated, or a mistake is not found."""
    if missing := spin_is_missing():
        sys.exit(f"missing: {missing}")
    wrong = 0
    print(ROW.format("model", "part or mistake", "states", "depth", "seconds", "violated"))
    for model, parts in SMALLEST.items():
        for part, bounds in [*parts.items(), *LARGER[model].items()]:
            try:
                visit = visit_all(model, bounds)
            except RuntimeError as error:
                wrong += 1
                print(ROW.format(model, part, "", "", "", str(error).splitlines()[0]), flush=True)
                continue
            wrong += bool(visit.moves)
            seconds = f"{visit.seconds:.1f}"
            print(ROW.format(model, part, visit.states, visit.depth, seconds, visit.violated), flush=True)
        for mistake, number in mistakes(model).items():
            visit = visit_all(model, {**parts[part_of(model, mistake)], "MISTAKE": number})
            wrong += not visit.moves
            seconds = f"{visit.seconds:.1f}"
            violated = visit.violated or "NOT FOUND"
            print(ROW.format(model, mistake, visit.states, visit.depth, seconds, violated), flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
