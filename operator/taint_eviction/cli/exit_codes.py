"""The exit codes of all verbs, and how a verb ends with one of them."""

import sys
from enum import IntEnum
from typing import NoReturn

from taint_eviction.cli.visible import complain


class ExitCode(IntEnum):
    """What a caller can tell from the exit code; ``--help`` of the command and of each verb promise them."""

    OK = 0
    # What was checked does not hold: a gate, an expectation, a breaker that opened again. Of run: a bug of its own.
    FAILED = 1
    USAGE = 2
    # The API server or the controller does not answer, or does not allow what is needed.
    UNREACHABLE = 3


def give_up(code: ExitCode, *messages: str) -> NoReturn:
    """Say on stderr why the command ends, a message a line, and end it."""
    for message in messages:
        complain(message)
    sys.exit(code)
