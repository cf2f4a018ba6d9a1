"""What no longer exists, and whether a fact is older than what is known: the order among facts that come late."""

from collections import OrderedDict

from taint_eviction.core.facts import NodesSwept, PodsSwept
from taint_eviction.core.instants import Moment

# The UIDs of so many objects that are gone are remembered, so that a late fact does not bring them back.
_MAX_REMEMBERED = 20_000


class GoneObjects:
    """A bounded memory of the UIDs of nodes and pods that no longer exist, and since when that is known."""

    def __init__(self) -> None:
        # Removing the oldest of a plain dict takes the longer, the more were removed before.
        self._gone: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        """Tell whether the object of this UID is known to be gone."""
        return uid in self._gone

    def remember(self, uid: str, now: Moment) -> None:
        """Note that the object of this UID no longer exists."""
        self._gone[uid] = now.at
        if len(self._gone) > _MAX_REMEMBERED:
            self._gone.popitem(last=False)

    def is_old(
        self, uid: str, version: int | None, last: tuple[int | None, float] | None, asked_at: float | None
    ) -> bool:
        """Tell whether a fact about ``uid`` at ``version`` is older than the ``last`` of its name (version, seen at).

        Versions grow with time across UIDs, too, so a late fact about the previous object of a name is old as well. An
        answer with a lower version than what was seen before the question means that the API server's storage went
        back (was restored): then the answer is right.
        """
        gone_at = self._gone.get(uid)
        if gone_at is not None:
            if asked_at is None or asked_at <= gone_at:
                return True
            del self._gone[uid]
        if last is None:
            return False
        last_version, seen_at = last
        if version is None or last_version is None or version >= last_version:
            return False
        return asked_at is None or seen_at >= asked_at


def list_is_newer(fact: NodesSwept | PodsSwept, version: int | None, seen_at: float) -> bool:
    """Tell whether a list that lacks an object proves it gone, and is not merely older than the object's last sight."""
    if seen_at < fact.asked_at:
        return True
    if version is None or fact.resource_version is None:
        return False
    return version <= fact.resource_version
