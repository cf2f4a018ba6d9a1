"""Values that a scenario writes as mappings: each field of a class says by which key, and what reads its value."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from taint_eviction.files.marked_yaml import Marked
from taint_eviction_lab.simulation.object_file import ObjectReading

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a field, in its annotation; ``read`` takes the key's value and its name.

    A field without a default needs its key; ``needed``: one with a default does so, too.
    """

    name: str
    read: Callable[[ObjectReading, Marked, str], Any]
    needed: bool = False


@cache
def _keys_of(cls: Callable[..., Any]) -> dict[str, tuple[Key, bool]]:
    """Return the keys of a class by the names of their fields, and whether each is needed."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: (key, key.needed or field.default is dataclasses.MISSING)
        for field in dataclasses.fields(cast(Any, cls))
        for key in getattr(hints[field.name], "__metadata__", ())
    }


def first_key(cls: Callable[..., Any]) -> Key:
    """Return the key of the first field."""
    return next(iter(_keys_of(cls).values()))[0]


def read_mapping(cls: Callable[..., ValueT], reading: ObjectReading, at: Marked, what: str) -> ValueT | None:
    """Read a mapping as a value of the class; None if a problem leaves nothing. ``what`` names it for people."""
    keys = _keys_of(cls)
    needed = [key.name for key, is_needed in keys.values() if is_needed]
    fields = reading.needed(at, [key.name for key, _ in keys.values()], needed, what)
    if fields is None:
        return None
    return cls(
        **{
            field: key.read(reading, fields[key.name], key.name)
            for field, (key, _) in keys.items()
            if key.name in fields
        }
    )
