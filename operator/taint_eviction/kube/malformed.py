"""Reports objects that cannot be read, or not in full: each version of each object once, in the log and as a count.

Every list contains the same malformed object again, and every eviction on a malformed node reads it again. A tenant may
write its pod a hundred times a second: the log names few versions of a pod.
"""

import logging
from collections.abc import Callable, Hashable

from taint_eviction.core.objects import Node, Pod
from taint_eviction.kube.bounded import BoundedDict
from taint_eviction.kube.kubernetes_objects import MalformedObject, ObjectT, Parsed
from taint_eviction.runtime.ports import CallFailed

logger = logging.getLogger(__name__)

# Versions that were reported. A version that is forgotten may be reported again.
_REMEMBERED = 4096
# How many versions of one pod are logged.
_LOGGED = 3


class MalformedObjects:
    """``counted`` is called with the kind (Node, Pod) of each malformed version, once."""

    def __init__(self, counted: Callable[[str], None]) -> None:
        self._counted = counted
        self._reported: BoundedDict[int, None] = BoundedDict(_REMEMBERED)
        self._logged: BoundedDict[int, int] = BoundedDict(_REMEMBERED)

    def read(self, read: Callable[[object], Parsed[ObjectT]], body: object) -> ObjectT:
        """Read an object and report what is wrong with it; raise ``MalformedObject`` as ``read`` does."""
        try:
            value, complaints = read(body)
        except MalformedObject as error:
            self.malformed(error)
            raise
        if complaints:
            self.complained(value, complaints)
        return value

    def read_answer(self, read: Callable[[object], Parsed[ObjectT]], body: object) -> ObjectT:
        """Read an object that the API server answered with; raise ``CallFailed`` if it cannot be read."""
        try:
            return self.read(read, body)
        except MalformedObject as error:
            raise CallFailed(f"the API server's answer cannot be used: {error}") from error

    def malformed(self, error: MalformedObject) -> None:
        """Report an object that cannot be used: its last known state stays in force."""
        if self._is_news((error.uid or error.name, error.resource_version, error.what)):
            self._counted(error.kind)
            self._log(error.kind, error.uid or error.name, "malformed, its last known state stays in force: %s", error)

    def complained(self, value: Node | Pod, complaints: tuple[str, ...]) -> None:
        """Report what was left out of an object that could be read."""
        match value:
            case Node():
                kind, uid, name = "Node", value.uid, value.name
            case Pod():
                kind, uid, name = "Pod", value.ref.uid, str(value.ref)
        if self._is_news((uid, value.resource_version, complaints)):
            self._log(kind, uid, "%s %s: %s", kind, name, "; ".join(complaints))

    def _log(self, kind: str, who: str, text: str, *args: object) -> None:
        logged = self._logged.get(hash(who), 0) + 1
        if kind == "Pod":
            self._logged[hash(who)] = logged
        if logged <= _LOGGED:
            logger.warning(text, *args)

    def _is_news(self, key: Hashable) -> bool:
        # Its hash alone: strangers write the texts in it.
        if hash(key) in self._reported:
            return False
        self._reported[hash(key)] = None
        return True
