"""Plays hostile fields and answers: all of them, or a sample. Ends with 1 if a case went wrong."""

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any

import click
from tests.fuzz.answers import answer_cases
from tests.fuzz.fields import field_cases
from tests.fuzz.playing import batches, play_answers, play_fields

_ANSWERS_TOGETHER = 20


@click.command()
@click.option("--seed", default=0, help="Of the order, and of a sample.")
@click.option("--fields", type=int, default=None, help="How many of the hostile fields; all by default.")
@click.option("--answers", type=int, default=None, help="How many of the hostile answers; all by default.")
@click.option("--share", type=(int, int), default=(1, 1), help="The first of four shares of them: 1 4.")
def main(seed: int, fields: int | None, answers: int | None, share: tuple[int, int]) -> None:
    """Play hostile fields and answers in a running controller."""
    logging.disable(logging.CRITICAL)
    rng = random.Random(seed)
    field_sample, answer_sample = field_cases(), answer_cases()
    rng.shuffle(field_sample)
    rng.shuffle(answer_sample)
    wrong, (number, of) = 0, share
    for batch in batches(field_sample[:fields][number - 1 :: of]):
        wrong += _played(f"{len(batch)} hostile {batch[0].plural}", play_fields(batch))
    chosen = answer_sample[:answers][number - 1 :: of]
    for at in range(0, len(chosen), _ANSWERS_TOGETHER):
        some = chosen[at : at + _ANSWERS_TOGETHER]
        wrong += _played(f"{len(some)} hostile answers, from {at}", play_answers(some))
    raise SystemExit(1 if wrong else 0)


def _played(what: str, work: Coroutine[Any, Any, None]) -> bool:
    """Play, print what came of it, and return whether it went wrong."""
    try:
        asyncio.run(work)
    except Exception as error:  # Any other failure of the controller is what is looked for, too.
        click.echo(f"{what}: {type(error).__name__}: {error}")
        return True
    click.echo(f"{what}: all right")
    return False


if __name__ == "__main__":
    main()
