"""What the server says when it refuses: errors that are Kubernetes `Status` objects.

Every refusal inside the server is a `StatusError`; only the HTTP edge turns it into an answer.
Texts follow k8s.io/apimachinery/pkg/api/errors, because clients (and people) compare them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]

REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

MODIFIED_MEANWHILE = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One refused field: `type` is the machine's word (FieldValueInvalid), `message` the sentence without the field."""

    type: str
    field: str
    message: str


class StatusError(Exception):
    """A refusal: `code` is the HTTP status, `reason` Kubernetes' word for it ("" where real servers give none)."""

    def __init__(
        self, code: int, message: str, *, reason: str | None = None, details: JsonObject | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.details = details

    def body(self) -> JsonObject:
        """The `Status` object that goes over the wire."""
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @property
    def retry_after_seconds(self) -> int:
        """Seconds for the Retry-After header; 0 means that the header is left out."""
        return int((self.details or {}).get("retryAfterSeconds", 0))


def success(details: JsonObject | None = None, code: int | None = None) -> JsonObject:
    """A `Status` that says that it went well, as deletes of most kinds and evictions answer."""
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return status


def bad_request(message: str) -> StatusError:
    return StatusError(400, message)


def _named_details(group: str, kind: str, name: str) -> JsonObject:
    details: JsonObject = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def qualified(group: str, word: str) -> str:
    """`pods`, `leases.coordination.k8s.io`: how messages spell a resource or a kind."""
    return f"{word}.{group}" if group else word


def not_found(group: str, plural: str, name: str) -> StatusError:
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, message, details=_named_details(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> StatusError:
    message = f'{qualified(group, plural)} "{name}" already exists'
    return StatusError(409, message, reason="AlreadyExists", details=_named_details(group, plural, name))


def conflict(group: str, word: str, name: str, why: str) -> StatusError:
    """`word` is the plural for updates and, as in the real server, the kind for preconditions of deletes."""
    message = f'Operation cannot be fulfilled on {qualified(group, word)} "{name}": {why}'
    return StatusError(409, message, details=_named_details(group, word, name))


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    subject = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return StatusError(403, f"{subject} is forbidden: {why}", details=_named_details(group, plural, name))


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422 with a cause per field; what was found twice is two causes, but stands in the message once."""
    sentences = list(dict.fromkeys(f"{error.field}: {error.message}" for error in errors))
    listed = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    details = _named_details(group, kind, name)
    details["causes"] = [{"reason": e.type, "message": e.message, "field": e.field} for e in errors]
    return StatusError(422, f'{qualified(group, kind)} "{name}" is invalid: {listed}', details=details)


def expired(message: str) -> StatusError:
    return StatusError(410, message)


def too_many_requests(message: str, retry_after_seconds: int, causes: Sequence[JsonObject] = ()) -> StatusError:
    """A 429; zero seconds means without Retry-After, as an exhausted disruption budget answers."""
    details: JsonObject = {}
    if causes:
        details["causes"] = list(causes)
    if retry_after_seconds:
        details["retryAfterSeconds"] = retry_after_seconds
    return StatusError(429, message, details=details)


def method_not_allowed() -> StatusError:
    return StatusError(405, "the server does not allow this method on the requested resource", details={})


def no_such_path() -> StatusError:
    return StatusError(404, "the server could not find the requested resource", details={})


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    types = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {types}"
    return StatusError(415, message)


def too_large_resource_version(wanted: int, current: int) -> StatusError:
    details: JsonObject = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(504, f"Timeout: Too large resource version: {wanted}, current: {current}", details=details)
