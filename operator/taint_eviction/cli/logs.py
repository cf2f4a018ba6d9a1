"""Logging as a person (text) or a collector (json) reads it; always on stderr."""

import logging
import sys
import time
from typing import Literal

from pythonjsonlogger.json import JsonFormatter

LogFormat = Literal["text", "json"]


def set_up_logging(log_format: LogFormat, level: str) -> None:
    """Send all logs to stderr, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        names = {"levelname": "level", "name": "logger", "asctime": "time"}
        formatter = JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%SZ", rename_fields=names
        )
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
