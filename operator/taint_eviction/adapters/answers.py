"""What an answer of the API server means: the one table from HTTP status to outcome, and the words of a refusal.

Knows no request and makes none. A 404 or a conflict only counts as an answer about the object asked for if the API
server itself says so: a load balancer's or a wrong path's 404 must not look like an evicted pod or a deleted node.

Reference: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

import email.utils
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import orjson

_LONGEST_MESSAGE = 300


class Outcome(Enum):
    """What an answer means for the one who asked."""

    DONE = "done"
    ABSENT = "there is no such object"
    ANOTHER_UID = "the name belongs to another UID"
    EXPIRED = "the list's continue token is too old"
    REFUSED = "refused"


# By HTTP status, what it can mean; the doubtful ones are confirmed by what the server says. The rest: REFUSED.
_OUTCOMES: Mapping[int, Outcome] = {
    200: Outcome.DONE,
    201: Outcome.DONE,
    202: Outcome.DONE,
    404: Outcome.ABSENT,
    409: Outcome.ANOTHER_UID,
    410: Outcome.EXPIRED,
    422: Outcome.ANOTHER_UID,
}

# A DELETE with another UID as its precondition answers 409: "Precondition failed: UID in precondition: …".
_UID_PRECONDITION = re.compile(r"\bUID\b.*\bprecondition|\bprecondition.*\bUID\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The ``Status`` that comes with a refusal, as far as it could be read; empty where it could not."""

    reason: str
    message: str
    details: Mapping[str, Any]

    @property
    def causes(self) -> list[Mapping[str, Any]]:
        """What it gives as its causes, each with a ``reason``, a ``message`` or a ``field``."""
        causes = self.details.get("causes")
        return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []

    @property
    def fields(self) -> frozenset[str]:
        """The paths of the fields it finds fault with."""
        found = (cause.get("field") for cause in self.causes)
        return frozenset(field for field in found if isinstance(field, str))


def read_refusal(body: bytes) -> Refusal:
    """Read the body of an answer that is no success; what is no ``Status`` becomes a message."""
    try:
        status = orjson.loads(body)
    except ValueError:
        return Refusal("", _one_line(body.decode("utf-8", "replace")), {})
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return Refusal("", "", {})
    reason, message, details = status.get("reason"), status.get("message"), status.get("details")
    return Refusal(
        reason if isinstance(reason, str) else "",
        _one_line(message) if isinstance(message, str) else "",
        details if isinstance(details, dict) else {},
    )


def outcome_of(status: int, refusal: Refusal, plural: str, name: str) -> Outcome:
    """Say what an answer with this HTTP status means for the object of this kind and name ("" for a list)."""
    outcome = _OUTCOMES.get(status, Outcome.REFUSED)
    if outcome not in (Outcome.ABSENT, Outcome.ANOTHER_UID):
        return outcome
    says_so = refusal.reason == "NotFound" if outcome is Outcome.ABSENT else _tells_another_uid(status, refusal)
    return outcome if says_so and _is_about(refusal, plural, name) else Outcome.REFUSED


def _is_about(refusal: Refusal, plural: str, name: str) -> bool:
    """Tell whether it speaks of the object asked for: an eviction may also fail by a budget or namespace so called.

    Some refusals name the plural (pods), others the kind (Pod).
    """
    kind = refusal.details.get("kind")
    is_kind = isinstance(kind, str) and kind.lower() in (plural, plural.removesuffix("s"))
    return is_kind and refusal.details.get("name") == name


def _tells_another_uid(status: int, refusal: Refusal) -> bool:
    if status == 409:
        return refusal.reason in ("", "Conflict") and _UID_PRECONDITION.search(refusal.message) is not None
    return "metadata.uid" in refusal.fields or "metadata.uid: " in refusal.message


def retry_after_seconds(headers: Mapping[str, str], refusal: Refusal) -> float | None:
    """Return for how long the server asks to be left alone; None if it does not say, or says 0.

    A Retry-After that is a date counts from the answer's own ``Date``.
    """
    told = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", told, re.ASCII):
        return float(told) or None
    until, sent = read_date(told), read_date(headers.get("Date", ""))
    if until is not None and sent is not None:
        return max(0.0, until - sent) or None
    seconds = refusal.details.get("retryAfterSeconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0 and math.isfinite(seconds):
        return float(seconds)
    return None


@lru_cache(4)
def read_date(text: str) -> float | None:
    """Read an HTTP date as seconds since the epoch; None for anything else."""
    if not text:
        return None
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def refusal_text(status: int, refusal: Refusal) -> str:
    """Say in one line what the server said, and its causes where the message leaves them out."""
    said = refusal.message or refusal.reason or "without a reason"
    whys = [str(cause.get("message", "")) for cause in refusal.causes if "field" not in cause]
    return f"{_one_line(' '.join([said, *(why for why in whys if why not in said)]))} (HTTP {status})"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_MESSAGE else line[: _LONGEST_MESSAGE - 1] + "…"
