"""Kinds of values that only ``plan`` takes."""

import re
from typing import Any

import click

from taint_eviction.adapters.kubernetes_times import parse_rfc3339
from taint_eviction.cli.values import Seconds

_FORMS = "a time (2030-01-31T14:00:00Z) or a span from now (30m, 1h30m)"


class When(click.ParamType[tuple[bool, float]]):
    """An instant: (True, seconds from now) or (False, seconds since the epoch)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[bool, float]:
        """Read a time or a span."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        epoch = parse_rfc3339(text)
        if epoch is not None:
            return False, epoch
        if not re.match(r"\+?\d", text, re.ASCII) or "T" in text:
            self.fail(f"{text!r} is not {_FORMS}", param, ctx)
        return True, Seconds().convert(text.removeprefix("+"), param, ctx)
