"""Tells of objects that could not be read, or not wholly: once for each version of each object, and counts them.

A list names the same malformed object again every few minutes, and every eviction on its node reads it; people need
to hear it once.
"""

import logging
from collections.abc import Callable, Hashable

from taint_eviction.adapters.kubernetes_objects import MalformedObject
from taint_eviction.core.objects import Node, Pod

logger = logging.getLogger(__name__)

# Versions that were told of already; the oldest is forgotten, and then perhaps told of once more.
_REMEMBERED = 4096


class MalformedObjects:
    """``counted`` is given the kind (Node, Pod) of each malformed version, once."""

    def __init__(self, counted: Callable[[str], None]) -> None:
        self._counted = counted
        self._told: dict[Hashable, None] = {}

    def malformed(self, error: MalformedObject) -> None:
        """Tell of an object that cannot be decided on: the last known state stays."""
        key = (error.uid or error.name, error.resource_version, error.what)
        if self._is_news(key):
            self._counted(error.kind)
            logger.warning("malformed, so what was last known of it stays: %s", error)

    def complained(self, value: Node | Pod, complaints: tuple[str, ...]) -> None:
        """Tell what was left out of an object that could be read."""
        match value:
            case Node():
                uid, name = value.uid, f"Node {value.name}"
            case Pod():
                uid, name = value.ref.uid, f"Pod {value.ref}"
        if self._is_news((uid, value.resource_version, complaints)):
            logger.warning("%s: %s", name, "; ".join(complaints))

    def _is_news(self, key: Hashable) -> bool:
        if key in self._told:
            return False
        self._told[key] = None
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        return True
