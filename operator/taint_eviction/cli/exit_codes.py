"""The exit codes of all verbs, and how a verb ends with one of them."""

import sys
from enum import IntEnum
from typing import NoReturn

from taint_eviction.cli.visible import complain


class ExitCode(IntEnum):
    """The meaning of the exit codes, as documented in ``--help`` of the command and of each verb."""

    OK = 0
    # A check failed: a gate, an expectation, a breaker that opened again. For run: a bug of the controller.
    FAILED = 1
    USAGE = 2
    # The API server or the controller does not answer, or does not allow what is needed.
    UNREACHABLE = 3


def give_up(code: ExitCode, *messages: str) -> NoReturn:
    """Print to stderr why the command ends, one message per line, and end it."""
    for message in messages:
        complain(message)
    sys.exit(code)
