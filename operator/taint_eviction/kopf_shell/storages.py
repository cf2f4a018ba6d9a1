"""Kopf's memory of handled changes, replaced by nothing.

Safe only while there are no create, update, delete, resume, daemon or timer handlers: those would take every event
for a new object. ``on.event`` handlers use neither; Kopf computes both for them all the same.
"""

from collections.abc import Iterable
from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Knows no last handled state and sees no state to compare with it."""

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
    """Knows of no handler that has begun and not ended."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        """Return None: no handler has any progress."""

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Leave the object as it is."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Leave the object as it is."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Leave the object as it is."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence itself: there is nothing of ours in it, so there is nothing to copy."""
        return essence
