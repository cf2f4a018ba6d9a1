"""A sample of the hostile fields and answers; ``python -m tests.fuzz`` plays all of them."""

import random

import pytest
from tests.fuzz.answers import AnswerCase, answer_cases
from tests.fuzz.fields import FieldCase, field_cases
from tests.fuzz.playing import batches, play_answers, play_fields

FIELDS = random.Random(1).sample(field_cases(), 270)
ANSWERS = random.Random(1).sample(answer_cases(), 30)


@pytest.mark.parametrize("cases", list(batches(FIELDS)), ids=lambda cases: f"{len(cases)} {cases[0].plural}")
async def test_hostile_fields_crash_nothing_and_move_no_other_pod(cases: list[FieldCase]) -> None:
    """In lists, watches, live reads and the answers to patches."""
    await play_fields(cases)


@pytest.mark.parametrize("cases", [ANSWERS[:15], ANSWERS[15:]], ids=["some", "others"])
async def test_hostile_answers_crash_nothing_and_delay_no_other_pod(cases: list[AnswerCase]) -> None:
    """Whichever request gets them."""
    await play_answers(cases)
