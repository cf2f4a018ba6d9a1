"""All of the models, and many walks through them played for the code; prints what was visited, and what was accepted.

Usage: python -m tests.models.night states [smallest]   every part and mistake, within all bounds, or the smallest
       python -m tests.models.night plays [MINUTES]     100 walks of each part, each with 20 shifts of time

Walks are played with one shift each first, then with the next, until all are played or the minutes (60) are over.
"""

import contextlib
import io
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from tests.models.bounds import LARGER, SMALLEST, part_of
from tests.models.checking import Visit, mistakes, spin_is_missing, visit_all
from tests.models.plays import PARTS, WALKED, play, walked

from taint_eviction.runtime.clock import read_monotonic

WALKS, SHIFTS = 100, 20
_PROCESSES = 2
_STATES_ROW = "{:12} {:30} {:>12} {:>6} {:>8}  {}"
_PLAYS_ROW = "{:15} {:>6} {:>8} {:>8}  {}"


def visit_states(smallest: bool) -> bool:
    """Visit every part of every model; return whether no property is violated, and every mistake is found."""
    wrong = 0
    print(_STATES_ROW.format("model", "part or mistake", "states", "depth", "seconds", "violated"))
    for model, parts in SMALLEST.items():
        for part, bounds in [*parts.items(), *({} if smallest else LARGER[model]).items()]:
            try:
                visit = visit_all(model, bounds)
            except RuntimeError as error:
                wrong += 1
                print(_STATES_ROW.format(model, part, "", "", "", str(error).splitlines()[0]), flush=True)
                continue
            wrong += bool(visit.moves)
            _print(model, part, visit, "")
        for mistake, number in mistakes(model).items():
            visit = visit_all(model, {**parts[part_of(model, mistake)], "MISTAKE": number})
            wrong += not visit.moves
            _print(model, mistake, visit, "NOT FOUND")
    return not wrong


def _print(model: str, what: str, visit: Visit, nothing: str) -> None:
    found = visit.violated or nothing
    print(_STATES_ROW.format(model, what, visit.states, visit.depth, f"{visit.seconds:.1f}", found), flush=True)


def play_walks(minutes: float) -> bool:
    """Play walks until the time is over; return whether all was accepted."""
    until = read_monotonic() + 60 * minutes
    made, moves, refused = Counter[str](), Counter[str](), list[str]()
    done: dict[str, set[int]] = {part: set() for part in WALKED}
    plays = ((part, seed, shift, until) for shift, seed, part in product(range(SHIFTS), range(1, WALKS + 1), WALKED))
    with ProcessPoolExecutor(_PROCESSES) as pool:
        for part, seed, trace, told in pool.map(_play, *zip(*plays, strict=True), chunksize=4):
            if trace is None:
                continue
            made[part] += 1
            moves[part] += trace
            done[part].add(seed)
            if told:
                refused.append(part)
                print(f"REFUSED: {part}, walk {seed}\n{told}", flush=True)
    print(_PLAYS_ROW.format("part", "walks", "traces", "moves", "refused"))
    for part in WALKED:
        print(_PLAYS_ROW.format(part, len(done[part]), made[part], moves[part], refused.count(part)))
    return not refused


def _play(part: str, seed: int, shift: int, until: float) -> tuple[str, int, int | None, str]:
    """Play a walk, if there is time; return the length of its trace, and what was played if it is refused."""
    if read_monotonic() > until:
        return part, seed, None, ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            played = play(PARTS[part], walked(PARTS[part], seed), f"walk {seed}", shift)
        except Exception:  # One play that goes wrong must not end the others, and what was played is told in the end.
            return part, seed, 0, f"shift {shift}: {traceback.format_exc()}"
    return part, seed, len(played.trace), "" if played.accepted else played.told


def main() -> None:
    """Do what the arguments say; end with 1 if anything was found."""
    if missing := spin_is_missing():
        sys.exit(f"missing: {missing}")
    match sys.argv[1:]:
        case ["states", *smallest]:
            well = visit_states(smallest == ["smallest"])
        case ["plays", *minutes]:
            well = play_walks(float(minutes[0]) if minutes else 60.0)
        case _:
            sys.exit(__doc__)
    sys.exit(not well)


if __name__ == "__main__":
    main()
