"""Kopf's storages of handled changes, replaced by storages that store and compute nothing.

For every event Kopf deep-copies the object, to find out what changed since a handler last succeeded and which handlers
are still to run. That was 61 % of the CPU of an event, and ``on.event`` handlers use neither. These storages are safe
only while there are no create, update, delete, resume, daemon or timer handlers: those would take every event for a new
object.
"""

from collections.abc import Iterable
from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no last handled state, and computes no state to compare with it."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        """Return an empty essence: nothing of the object is copied."""
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return None: nothing was ever stored."""
        del body
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Leave the object as it is."""


class NoProgress(kopf.ProgressStorage):
    """Stores no progress of handlers."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        """Return None: no handler has any progress."""

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Leave the object as it is."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Leave the object as it is."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Leave the object as it is."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence itself: this storage has put nothing into it that would have to be removed."""
        return essence
