"""What an answer of the API server means: the one table from HTTP status to outcome, and the text of a refusal.

Makes no requests. A 404 or a conflict counts as an answer about the requested object only if the API server says so:
the 404 of a load balancer or of a wrong path must not look like an evicted pod or a deleted node.

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

from taint_eviction.core.text import one_line
from taint_eviction.runtime.ports import FailureReason


class Outcome(Enum):
    """What an answer means for the caller."""

    DONE = "done"
    ABSENT = "there is no such object"
    ANOTHER_UID = "the name belongs to another UID"
    EXPIRED = "the list's continue token is too old"
    REFUSED = "refused"


# By HTTP status. ABSENT and ANOTHER_UID hold only if the Status object confirms them. All others: REFUSED.
_OUTCOMES: Mapping[int, Outcome] = {
    200: Outcome.DONE,
    201: Outcome.DONE,
    202: Outcome.DONE,
    404: Outcome.ABSENT,
    409: Outcome.ANOTHER_UID,
    410: Outcome.EXPIRED,
    422: Outcome.ANOTHER_UID,
}

_REASONS: Mapping[int, FailureReason] = {
    401: FailureReason.UNAUTHORIZED,
    403: FailureReason.FORBIDDEN,
    404: FailureReason.NOT_FOUND,
    409: FailureReason.CONFLICT,
}

# The longest form of an HTTP date has 33 characters.
_MAX_DATE = 64
_TOO_LARGE = "etcdserver: request is too large"

# The answer to a DELETE whose precondition has another UID is 409: "Precondition failed: UID in precondition: …".
# In capitals: the message has the pod's name, too, which its owner chooses.
_UID_PRECONDITION = re.compile(r"\bUID\b.*\bprecondition|\b[Pp]recondition.*\bUID\b", re.DOTALL)


# What admission says when it denies a request. The API server writes the words up to "request"; the rest is theirs.
_WEBHOOK = re.compile(r'admission webhook "[^"]*" denied the request')
# Nothing in the pattern may reach over the next name: a webhook chooses the text, and it must be read in linear time.
_POLICY = re.compile(
    r"ValidatingAdmissionPolicy '([^']{0,253})'(?: with binding '[^']{0,253}')? denied request: "
    r"(taint-eviction-controller: )?"
)
# KubeVirt's webhook refuses a pod while it moves the virtual machine in it to another node.
_EVACUATION = re.compile(r"Eviction triggered evacuation|Evacuation in progress")
_OWN_POLICY = "taint-eviction-controller"
_MAX_DENIAL = 10_000
_MAX_POLICY_NAME = 100
_MAX_CAUSES = 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """The ``Status`` object of a refusal, as far as it can be read; otherwise empty.
    ``is_status``: the body is a ``Status``, so the API server itself refused. ``denied``: see ``is_denial``;
    ``evacuates``: see ``is_evacuation``.
    """

    reason: str
    message: str
    details: Mapping[str, Any]
    is_status: bool = False
    denied: bool = False
    evacuates: bool = False

    @property
    def causes(self) -> list[Mapping[str, Any]]:
        """The causes, each with a ``reason``, a ``message`` or a ``field``."""
        causes = self.details.get("causes")
        return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []

    @property
    def fields(self) -> frozenset[str]:
        """The paths of the invalid fields."""
        found = (cause.get("field") for cause in self.causes)
        return frozenset(field for field in found if isinstance(field, str))


def read_refusal(body: bytes) -> Refusal:
    """Read the body of an unsuccessful answer; a body that is not a ``Status`` becomes the message."""
    try:
        status = orjson.loads(body)
    except ValueError:
        return Refusal("", one_line(body.decode("utf-8", "replace")), {})
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return Refusal("", "", {})
    reason, message, details = status.get("reason"), status.get("message"), status.get("details")
    return Refusal(
        reason if isinstance(reason, str) else "",
        _bounded(message) if isinstance(message, str) else "",
        details if isinstance(details, dict) else {},
        is_status=True,
        denied=isinstance(message, str) and is_denial(message),
        evacuates=isinstance(message, str) and is_evacuation(message),
    )


def _bounded(message: str) -> str:
    """Return a message in one line. What a policy says comes after names that may be long, and must not be lost."""
    found = _POLICY.search(message[:_MAX_DENIAL])
    if found is None:
        return one_line(message)
    name, words = one_line(found[1], _MAX_POLICY_NAME), message[found.end() - len(found[2] or "") :]
    return one_line(f"ValidatingAdmissionPolicy '{name}' denied request: {words}")


def is_denial(message: str) -> bool:
    """Return whether by its message a refusal comes from an admission webhook or policy that denies the request.

    This controller's own policy does not count: what it refuses is a mistake of this controller. Nor does a webhook
    that cannot be called.
    """
    message = message[:_MAX_DENIAL]
    if _WEBHOOK.search(message):
        return True
    return any(own == "" and _OWN_POLICY not in name for name, own in _POLICY.findall(message))


def is_evacuation(message: str) -> bool:
    """Return whether a webhook denies an eviction because it moves the virtual machine in the pod away."""
    message = message[:_MAX_DENIAL]
    return _WEBHOOK.search(message) is not None and _EVACUATION.search(message) is not None


def outcome_of(status: int, refusal: Refusal, plural: str, name: str) -> Outcome:
    """Return what an answer with this HTTP status means for the object of this kind and name ("" for a list)."""
    outcome = _OUTCOMES.get(status, Outcome.REFUSED)
    if outcome not in (Outcome.ABSENT, Outcome.ANOTHER_UID):
        return outcome
    if refusal.denied:  # By any code that its author likes.
        return Outcome.REFUSED
    confirmed = refusal.reason == "NotFound" if outcome is Outcome.ABSENT else _is_another_uid(status, refusal)
    return outcome if confirmed and _is_about(refusal, plural, name) else Outcome.REFUSED


def failure_reason(status: int) -> FailureReason:
    """Return the reason that callers get for a refusal with this HTTP status."""
    return _REASONS.get(status, FailureReason.OTHER)


def is_certain(status: int) -> bool:
    """Return whether the API server did nothing if it answers with this HTTP status; after a 5xx nobody knows."""
    return 400 <= status < 500


def may_pass(status: int) -> bool:
    """Return whether a refusal with this HTTP status is about the state of the server, and not about the request."""
    return status == 429 or status >= 500


def _is_about(refusal: Refusal, plural: str, name: str) -> bool:
    """Return whether a refusal is about the requested object: an eviction can fail for a budget or namespace of that
    name.

    Some refusals have the plural (pods) as the kind, others the kind (Pod).
    """
    kind = refusal.details.get("kind")
    is_kind = isinstance(kind, str) and kind.lower() in (plural, plural.removesuffix("s"))
    return is_kind and refusal.details.get("name") == name


def _is_another_uid(status: int, refusal: Refusal) -> bool:
    if status == 409:
        return refusal.reason in ("", "Conflict") and _UID_PRECONDITION.search(refusal.message) is not None
    return "metadata.uid" in refusal.fields or "metadata.uid: " in refusal.message


def retry_after_seconds(headers: Mapping[str, str], refusal: Refusal) -> float | None:
    """Return how long the server asks to wait; None if it does not, or asks for 0; infinity for as long as may be.

    An object that is too large for etcd stays refused until somebody makes it smaller, so it is retried rarely.
    A Retry-After that is a date counts from the ``Date`` of the answer.
    """
    if _TOO_LARGE in refusal.message:
        return math.inf
    header = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", header, re.ASCII):
        return float(header) or None
    until, sent = read_date(header), read_date(headers.get("Date", ""))
    if until is not None and sent is not None:
        return max(0.0, until - sent) or None
    seconds = refusal.details.get("retryAfterSeconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0 and math.isfinite(seconds):
        return float(seconds)
    return None


@lru_cache(4)
def read_date(text: str) -> float | None:
    """Read an HTTP date as seconds since the epoch; None for anything else."""
    if not text or len(text) > _MAX_DATE:
        return None
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def refusal_text(status: int, refusal: Refusal) -> str:
    """Return the server's message in one line, with those of the first causes that it does not contain."""
    message = refusal.message or refusal.reason or "without a reason"
    # A webhook may send as many as it likes.
    told = [cause.get("message") for cause in refusal.causes[:_MAX_CAUSES] if "field" not in cause]
    causes = [_bounded(each) for each in told if isinstance(each, str)]
    return f"{one_line(' '.join([message, *(cause for cause in causes if cause not in message)]))} (HTTP {status})"
