"""Logging on stderr: text for people, or JSON for collectors."""

import logging
import sys
import time
from typing import Literal

from pythonjsonlogger.json import JsonFormatter

from taint_eviction.cli.visible import visible

LogFormat = Literal["text", "json"]


class _VisibleFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def set_up_logging(log_format: LogFormat, level: str) -> None:
    """Send all logs of this level and above to stderr, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        names = {"levelname": "level", "name": "logger", "asctime": "time"}
        formatter: logging.Formatter = JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%SZ", rename_fields=names
        )
    else:
        formatter = _VisibleFormatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S UTC")
    formatter.converter = time.gmtime  # noqa: TID251 - it converts the time of a record
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
