"""Plays moves of the models' environments for the code, and lets the models judge what the code did."""

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.models import control_state_scenarios
from tests.models.accepting import Acceptor, Judgement, move_numbers
from tests.models.bounds import SMALLEST
from tests.models.checking import Bounds, Move, walk
from tests.models.control_state_scenarios import play_control_state, scenario_of_control_state, thinned_control_state
from tests.models.countdown_scenarios import (
    ENTRY,
    HAND_BACK,
    TIMERS,
    Play,
    play_countdowns,
    scenario_of_countdowns,
    thinned_countdowns,
)
from tests.models.lease_scenarios import JsonObject, play_lease, scenario_of, thinned

Shift = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a model as it is played: moves become a scenario, and that a trace.

    ``judges``: the models that judge the trace, each its own moves, and their bounds. ``walks``: the part of the model
    that walks are made of. ``plays`` returns the trace, and what is wrong with what no trace shows, "" if nothing is.
    ``shift_seconds``: how much earlier or later a move comes, at most.
    """

    model: str
    judges: Mapping[str, Bounds]
    walks: str
    thinned: Callable[[Sequence[Move], random.Random], list[Move]]
    scenario: Callable[[Sequence[Move], Shift, str], JsonObject]
    plays: Callable[[JsonObject], tuple[list[Move], str]]
    shift_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model says about one play; ``told``: what was played, for people."""

    judgement: Judgement
    trace: Sequence[Move]
    told: str

    @property
    def accepted(self) -> bool:
        """Return whether the model accepts what the code did, and the properties hold."""
        return self.judgement.accepted


def _countdowns(model: str, play: Play, walks: str) -> Part:
    return Part(
        model,
        play.judges,
        walks,
        thinned_countdowns,
        lambda moves, shift, name: scenario_of_countdowns(moves, play, shift, name),
        lambda document: (play_countdowns(document, play), ""),
    )


def _lease(document: JsonObject) -> tuple[list[Move], str]:
    played = play_lease(document)
    return played.trace, "" if played.leads else "nobody leads in the end"


PARTS: Mapping[str, Part] = {
    "hand-back": _countdowns("hand_back", HAND_BACK, "hand-back"),
    "entry": _countdowns("entry", ENTRY, "entry"),
    "timers": _countdowns("timers", TIMERS, "timers"),
    "two taints": _countdowns("timers", TIMERS, "two taints"),
    "deadlines": _countdowns("deadlines", TIMERS, "timers"),
    "elections": Part(
        "elections", {"elections": SMALLEST["elections"]["elections"]}, "elections", thinned, scenario_of, _lease, 0.3
    ),
    "control state": Part(
        "control_state",
        {"control_state": control_state_scenarios.BOUNDS},
        "control state",
        thinned_control_state,
        scenario_of_control_state,
        lambda document: (play_control_state(document), ""),
        0.3,
    ),
}
# The parts of which walks are played.
WALKED = tuple(name for name, part in PARTS.items() if part.walks == name)


@functools.cache
def _acceptor(model: str, bounds: tuple[tuple[str, int], ...]) -> Acceptor:
    return Acceptor(model, dict(bounds))


def play(part: Part, moves: Sequence[Move], name: str, shift: int) -> Judged:
    """Play the environment of a walk with one shift of time."""
    rng = random.Random(f"{name}/{shift}")
    seconds = part.shift_seconds
    document = part.scenario(moves, functools.partial(rng.uniform, -seconds, seconds), f"{name}/{shift}")
    trace, wrong = part.plays(document)
    judgement = _judge(part, trace)
    judgement = replace(judgement, accepted=judgement.accepted and not wrong)
    told = f"{wrong or judgement}\nshift {shift}: {document['timeline']}\n{[(move.name, move.of) for move in trace]}"
    return Judged(judgement, trace, told)


def _judge(part: Part, trace: Sequence[Move]) -> Judgement:
    """Let each model judge those moves of a trace that it has; return the first judgement that refuses it."""
    if strange := {move.name for move in trace}.difference(*map(move_numbers, part.judges)):
        raise ValueError(f"no model has these moves: {strange}")
    for model, bounds in part.judges.items():
        own = [move for move in trace if move.name in move_numbers(model)]
        judgement = _acceptor(model, tuple(sorted(bounds.items()))).judge(own)
        if not judgement.accepted:
            return judgement
    return Judgement(True)


def play_shifted(part: Part, moves: Sequence[Move], name: str, shifts: int) -> Iterator[Judged]:
    """Play the environment of a walk with several shifts of time."""
    return (play(part, moves, name, shift) for shift in range(shifts))


def walked(part: Part, seed: int) -> list[Move]:
    """Return a random walk through the model, without most of the environment's moves."""
    return part.thinned(walk(part.model, SMALLEST[part.model][part.walks], seed), random.Random(seed))
