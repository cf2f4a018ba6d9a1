"""Gives a trace of the code to a model: the model must be able to make these moves in this order, properties included.

Between them it may make moves that a trace does not show: ticks, answers that nobody waits for, decisions.
"""

import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.models.checking import FOLDER, Bounds, Move, copy_model, run, sources

_MOVES = re.compile(r"^mtype = \{(.+?)\};", re.MULTILINE | re.DOTALL)
_MAX_DEPTH = 100_000
_MAX_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a model accepts a trace; if not, ``refused`` is the first move that it cannot make, or the last of all.

    ``violated``: it can make all moves up to there, but only by violating a property.
    """

    accepted: bool
    refused: Move | None = None
    before: tuple[Move, ...] = ()
    violated: bool = False


class Acceptor:
    """A model, compiled once, that reads traces."""

    def __init__(self, model: str, bounds: Bounds) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._numbers = move_numbers(model)
        copy_model(model, self._folder.name)
        defines = [f"-D{name}={value}" for name, value in {**bounds, "TRACE": 1}.items()]
        run(self._folder.name, "spin", "-a", *defines, f"{model}.pml")
        run(self._folder.name, "gcc", "-O0", "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c")

    def judge(self, trace: Sequence[Move]) -> Judgement:
        """Say whether the model accepts a trace."""
        file = Path(self._folder.name, "trace")
        file.write_text("".join(f"{self._numbers[move.name]} {move.of}\n" for move in trace))
        done = subprocess.run(
            ["./pan", "-E", f"-m{_MAX_DEPTH}", "-w18"],
            cwd=self._folder.name,
            env={**os.environ, "TRACE": str(file)},
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAX_SECONDS,
        )
        if f"accepted {len(trace)} moves" in done.stdout:
            return Judgement(True)
        found = re.findall(r"furthest (\d+) violated (\d)", done.stdout)
        if not found or "errors: 0" not in done.stdout or "max search depth" in done.stdout:
            raise RuntimeError(f"the acceptor failed:\n{done.stdout}{done.stderr}")
        at, violated = min(int(found[-1][0]), len(trace) - 1), found[-1][1]
        return Judgement(False, trace[at], tuple(trace[max(0, at - 12) : at]), violated == "1")


@functools.cache
def move_numbers(model: str) -> dict[str, int]:
    """Return how Spin numbers the moves: list after list, each from its end."""
    numbers: dict[str, int] = {}
    for group in chain.from_iterable(_MOVES.findall((FOLDER / file).read_text()) for file in sources(f"{model}.pml")):
        for name in reversed(group.split(",")):
            numbers[name.strip()] = len(numbers) + 1
    return numbers
