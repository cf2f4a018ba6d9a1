"""Puts a mistake, or a listener, around a function of the code for the time of a test."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

Around = TypeVar("Around", bound=Callable[..., Any])


def around(patch: pytest.MonkeyPatch, owner: object, name: str) -> Callable[[Around], Around]:
    """Have the decorated function called instead of this one of a class or module, which it gets as its first argument.
    Of a method, the object is the second.
    """
    right = getattr(owner, name)

    def put(function: Around) -> Around:
        def instead(*about: Any, **options: Any) -> Any:
            return function(right, *about, **options)

        patch.setattr(owner, name, instead)
        return function

    return put
