"""Kinds of values that flags take."""

import re
from typing import Any

import click

_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Seconds(click.ParamType[float]):
    """A span of time in seconds, written as Kubernetes' own flags have it (``1m30s``, ``500ms``) or as a number."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the span; fail with an example of a right one."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        try:
            return float(text)
        except ValueError:
            parts = _PARTS.findall(text)
            if not parts or "".join(number + unit for number, unit in parts) != text:
                self.fail(f"{text!r} is no span of time; write seconds (90) or a duration (1m30s, 500ms)", param, ctx)
            return sum(float(number) * _UNITS[unit] for number, unit in parts)


class HostPort(click.ParamType[tuple[str, int]]):
    """Where to listen: ``HOST:PORT``, or ``:PORT`` for every address; IPv6 hosts in brackets."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Split into host ("" for every address) and port."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, as in 127.0.0.1:8080 or :8080", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)
