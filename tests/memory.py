"""What an object keeps alive, by class: so tests see that nothing is left, and need no name of a private field."""

import gc
from collections.abc import Mapping
from types import FunctionType, MethodType, ModuleType
from typing import TypeVar

Kept = TypeVar("Kept")


def kept(whole: object, kind: type[Kept]) -> list[Kept]:
    """Find all objects of a class that an object refers to, over any number of steps; each of them once.

    What only functions and methods refer to does not count: they refer to whoever made them.
    """
    found: list[Kept] = []
    seen: dict[int, object] = {}  # With the objects: while they live, no other has their number.
    waiting: list[object] = [whole]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType | MethodType):
            continue
        seen[id(one)] = one
        if isinstance(one, kind):
            found.append(one)
        if isinstance(one, Mapping):
            waiting += one.keys()  # The collector does not visit keys that are strings.
        waiting += gc.get_referents(one)
    return found
