"""What an object keeps alive, by class: so tests see that nothing is left, and need no name of a private field."""

import gc
from collections.abc import Mapping
from types import FunctionType, MethodType, ModuleType, NoneType
from typing import TypeVar

Kept = TypeVar("Kept")

# Objects of these classes are neither found nor followed.
_NOT_FOLLOWED = (type, ModuleType, FunctionType, MethodType, int, float, NoneType)


def kept(whole: object, *kinds: type[Kept]) -> list[Kept]:
    """Find all objects of these classes that an object refers to, over any number of steps; each of them once.

    What only functions and methods refer to does not count: they refer to whoever made them.
    """
    found: list[Kept] = []
    seen: dict[int, object] = {}  # With the objects: while they live, no other has their number.
    waiting: list[object] = [whole]
    skipped, wanted, mapping = _IsSubclass(_NOT_FOLLOWED), _IsSubclass(kinds), _IsSubclass((Mapping,))
    while waiting:
        one = waiting.pop()
        number, of = id(one), type(one)
        if number in seen or skipped[of]:
            continue
        seen[number] = one
        if wanted[of]:
            found.append(one)  # type: ignore[arg-type]
        if mapping[of]:
            waiting += one.keys()  # type: ignore[attr-defined]  # The collector does not visit keys that are strings.
        waiting += gc.get_referents(one)
    return found


class _IsSubclass(dict[type, bool]):
    """Whether each class is a subclass of one of ``kinds``. It is checked once, since ABCs are slow to check."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        super().__init__()
        self.kinds = kinds

    def __missing__(self, of: type) -> bool:
        self[of] = found = issubclass(of, self.kinds)
        return found
