"""Runs Spin over the models of this folder: compiles a model, visits all of its states, and reads what was found."""

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

FOLDER = Path(__file__).parent
_INCLUDED = re.compile(r'^#include "(.+)"$', re.MULTILINE)

_MISTAKE = re.compile(r"^#define (\w+) \(MISTAKE == (\d+)\) */\* (.+) \*/$", re.MULTILINE)
_MOVE = re.compile(r"^\s*@ (\w+) (\d+)$", re.MULTILINE)
_MAX_MEGABYTES = 4000
_MAX_DEPTH = 10_000_000
_WALK_STEPS = 3000

Bounds = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a counterexample: what happens, and to which process or toleration."""

    name: str
    of: int = 0


@dataclass(frozen=True, slots=True)
class Visit:
    """What a search visited; ``moves``: a counterexample, empty if every property holds in all states."""

    states: int
    depth: int
    seconds: float
    violated: str
    moves: tuple[Move, ...]


def spin_is_missing() -> str:
    """Return what is missing for a check, "" if nothing is."""
    return " and ".join(each for each in ("spin", "gcc") if shutil.which(each) is None)


def mistakes(model: str) -> dict[str, int]:
    """Return the mistakes that a model has a switch for, and the number of each."""
    return {name: int(number) for name, number, _ in _MISTAKE.findall((FOLDER / f"{model}.pml").read_text())}


def visit_all(model: str, bounds: Bounds) -> Visit:
    """Visit all states of a model within bounds, those with a mistake until one violates a property."""
    return _visit(model, tuple(sorted(bounds.items())))


@functools.cache
def _visit(model: str, bounds: tuple[tuple[str, int], ...]) -> Visit:
    defines = [f"-D{name}={value}" for name, value in bounds]
    with tempfile.TemporaryDirectory() as folder:
        copy_model(model, folder)
        run(folder, "spin", "-a", *defines, f"{model}.pml")
        # Without partial-order reduction: the properties are about every state. Where a counterexample is expected, the
        # shallowest states come first, and it is found in less time than it takes to compile well; else the deepest
        # states do, in half the time.
        how = ["-O0", "-DBFS"] if "MISTAKE" in dict(bounds) else ["-O1"]
        limit = f"-DMEMLIM={_MAX_MEGABYTES}"
        run(folder, "gcc", *how, "-w", "-DSAFETY", "-DNOREDUCE", limit, "-o", "pan", "pan.c")
        # So is the table of states small: it costs more to clear a large one than to search.
        how = ["-w18"] if "-DBFS" in how else ["-w24", f"-m{_MAX_DEPTH}"]
        said = run(folder, "./pan", *how)
        found = re.search(r"assertion violated (.+) \(at depth", said)
        if found is None and re.search("Search not completed|search depth too small|errors: [^0]", said):
            raise RuntimeError(f"the search was not completed:\n{said}")
        moves: tuple[Move, ...] = ()
        if found is not None:
            trail = run(folder, "spin", "-t", *defines, f"{model}.pml")
            moves = tuple(Move(name, int(of)) for name, of in _MOVE.findall(trail))
        return Visit(
            states=int(float(_one(r"([\d.e+]+) states, stored", said))),
            depth=int(_one(r"depth reached (\d+)", said)),
            seconds=float(_one(r"elapsed time ([\d.]+)", said)),
            violated="" if found is None else found[1].strip(),
            moves=moves,
        )


def copy_model(model: str, folder: str) -> None:
    """Copy a model, and what it includes, into a folder."""
    for name in sources(f"{model}.pml"):
        shutil.copy(FOLDER / name, folder)


def sources(name: str) -> list[str]:
    """Return the files that a file includes, in the order in which Spin reads them, and then the file itself."""
    return [*chain.from_iterable(map(sources, _INCLUDED.findall((FOLDER / name).read_text()))), name]


def _one(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"not as expected from Spin:\n{text}")
    return found[1]


def run(folder: str, *command: str) -> str:
    """Run a command in a folder and return what it printed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def walk(model: str, bounds: Bounds, seed: int) -> tuple[Move, ...]:
    """Walk through a model at random, and return the moves."""
    defines = [f"-D{name}={value}" for name, value in bounds.items()]
    with tempfile.TemporaryDirectory() as folder:
        copy_model(model, folder)
        said = run(folder, "spin", f"-n{seed}", f"-u{_WALK_STEPS}", *defines, f"{model}.pml")
    return tuple(Move(name, int(of)) for name, of in _MOVE.findall(said))
