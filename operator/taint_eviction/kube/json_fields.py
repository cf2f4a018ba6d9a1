"""Fields of decoded JSON: returned with the right type, or refused with their path.

null and absent are equivalent. This module knows no kinds of objects (``kubernetes_objects``).
"""

from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

from taint_eviction.files.kubernetes_times import parse_rfc3339

NOTHING: Mapping[str, Any] = {}


class Unreadable(Exception):
    """A required field that cannot be read; the message has its path."""


def refuse(what: str) -> NoReturn:
    """Raise ``Unreadable``. This is a function so that it can be used after an ``or``."""
    raise Unreadable(what)


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a JSON object."""
    # It is nearly always a dict, and the check against an abstract class costs ten times as much.
    return type(value) is dict or isinstance(value, Mapping)


def as_object(value: object, path: str) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for null."""
    if value is None:
        return NOTHING
    return value if is_object(value) else refuse(f"{path} is not an object")


def as_list(value: object, path: str) -> list[Any]:
    """Return a list; an empty one for null."""
    if value is None:
        return []
    return value if isinstance(value, list) else refuse(f"{path} is not a list")


def as_text(value: object, path: str) -> str:
    """Return a string; "" for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else refuse(f"{path} is not a string")


def needed_text(metadata: Mapping[str, Any], field: str) -> str:
    """Return a string of ``metadata`` that must not be absent or empty."""
    value = metadata.get(field)
    if type(value) is str and value:
        return value
    return as_text(value, f"metadata.{field}") or refuse(f"metadata.{field} is missing")


def time_or_complaint(value: object, path: str, complaints: list[str]) -> float | None:
    """Return a time as seconds since the epoch; None for null, and with a complaint for anything else."""
    if value is None:
        return None
    epoch = parse_rfc3339(value)
    if epoch is None:
        # Only of text: the text of a value that is nested deeply takes more stack than there is.
        excerpt = f": {value[:40]!r}" if isinstance(value, str) else ""
        complaints.append(f"{path} is not a usable time{excerpt}")
    return epoch


def version_number(metadata: Mapping[str, Any]) -> int | None:
    """Return the resourceVersion; None if it is not a number: then no order is known."""
    return parse_version(metadata.get("resourceVersion"))


def parse_version(version: object) -> int | None:
    """Return a resourceVersion as a number; None if it is not one."""
    if isinstance(version, str) and version.isdecimal() and version.isascii() and len(version) <= 20:
        return int(version)
    return None
