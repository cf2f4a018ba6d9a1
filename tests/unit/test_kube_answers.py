"""What an answer of the API server means."""

import json
import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taint_eviction.kube.answers import (
    Outcome,
    Refusal,
    may_pass,
    outcome_of,
    read_date,
    read_refusal,
    refusal_text,
    retry_after_seconds,
)
from taint_eviction.kube.own_policy import REFUSAL
from taint_eviction.runtime.backoff import backoff_seconds
from taint_eviction.settings import RetrySettings


def status(reason: str = "", message: str = "", **details: Any) -> Refusal:
    return Refusal(reason, message, details)


UID_FAILED = (
    'Operation cannot be fulfilled on Pod "web": the UID in the precondition (x) does not match the UID in record (y).'
    " The object might have been deleted and then recreated"
)
OLDER_UID_FAILED = "Precondition failed: UID in precondition: x, UID in object meta: y"


def about(reason: str, message: str = "", kind: str = "pods", **details: Any) -> Refusal:
    return status(reason, message, name="web", kind=kind, **details)


@pytest.mark.parametrize(
    ("code", "refusal", "outcome"),
    [
        (200, status(), Outcome.DONE),
        (201, status(), Outcome.DONE),
        (202, status(), Outcome.DONE),
        (404, about("NotFound", 'pods "web" not found'), Outcome.ABSENT),
        (404, about("NotFound", 'namespaces "web" not found', kind="namespaces"), Outcome.REFUSED),
        (404, about("NotFound", 'budgets "web" not found', kind="poddisruptionbudgets"), Outcome.REFUSED),
        (404, status("NotFound", 'pods "db" not found', name="db", kind="pods"), Outcome.REFUSED),
        (404, status("NotFound", "the server could not find the requested resource"), Outcome.REFUSED),
        (404, status("", "404 page not found"), Outcome.REFUSED),
        (409, about("Conflict", UID_FAILED, "Pod"), Outcome.ANOTHER_UID),
        (409, about("Conflict", OLDER_UID_FAILED), Outcome.ANOTHER_UID),
        (409, about("Conflict", OLDER_UID_FAILED, "poddisruptionbudgets"), Outcome.REFUSED),
        (409, status("Conflict", UID_FAILED), Outcome.REFUSED),
        (409, about("Conflict", "the object has been modified"), Outcome.REFUSED),
        (409, about("Conflict", 'pods "uid-precondition" has been modified'), Outcome.REFUSED),
        (409, about("AlreadyExists", "pods web with this UID precondition"), Outcome.REFUSED),
        (410, status("Expired", "too old"), Outcome.EXPIRED),
        (422, about("Invalid", "", "Pod", causes=[{"field": "metadata.uid"}]), Outcome.ANOTHER_UID),
        (422, about("Invalid", 'Pod "web" is invalid: metadata.uid: Invalid value: "x"', "Pod"), Outcome.ANOTHER_UID),
        (422, about("Invalid", "", "Pod", causes=[{"field": "status.conditions"}, None]), Outcome.REFUSED),
        (422, about("Invalid", "", "Pod", causes="metadata.uid"), Outcome.REFUSED),
        *((code, status(), Outcome.REFUSED) for code in (100, 301, 400, 401, 403, 418, 429, 500, 503, 504)),
    ],
)  # fmt: skip
def test_each_status_has_one_outcome(code: int, refusal: Refusal, outcome: Outcome) -> None:
    """A 404, 409 or 422 says that the pod is gone or replaced only if its Status is about that pod."""
    assert outcome_of(code, refusal, "pods", "web") is outcome


DATE = "Wed, 01 May 2024 10:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"Retry-After": "5"}, {}, 5.0),
        ({"Retry-After": "0"}, {}, None),
        ({"Retry-After": "1.5"}, {"retryAfterSeconds": 9}, 1.5),
        ({"Retry-After": "Wed, 01 May 2024 10:00:30 GMT", "Date": DATE}, {}, 30.0),
        ({"Retry-After": "Wed, 01 May 2024 09:00:00 GMT", "Date": DATE}, {}, None),
        ({"Retry-After": "Wed, 01 May 2024 10:00:30 GMT"}, {}, None),
        ({"Retry-After": "soon"}, {"retryAfterSeconds": 9}, 9.0),
        ({"Retry-After": "-5"}, {}, None),
        ({"Retry-After": "٥"}, {}, None),
        ({}, {"retryAfterSeconds": 0}, None),
        ({}, {"retryAfterSeconds": True}, None),
        ({}, {"retryAfterSeconds": "9"}, None),
        ({}, {}, None),
    ],
)
def test_advice_to_wait_is_read_from_header_or_details(
    headers: dict[str, str], details: dict[str, Any], seconds: float | None
) -> None:
    """The header has seconds, or a date that counts from the answer's own date; 0 is no advice."""
    assert retry_after_seconds(headers, Refusal("", "", details)) == seconds


def test_what_is_too_large_for_etcd_is_tried_as_rarely_as_possible() -> None:
    """A pod at etcd's limit can neither be patched nor deleted, and a tenant may have many of them."""
    refusal = Refusal("", "etcdserver: request is too large", {})
    assert retry_after_seconds({"Retry-After": "1"}, refusal) == math.inf
    assert backoff_seconds(0, math.inf, RetrySettings(), random.Random(1)) >= RetrySettings().max_seconds


def test_only_refusals_by_a_busy_or_broken_server_may_pass() -> None:
    """429 and 5xx may pass; the others are about the request, and are the same a moment later."""
    passing = [code for code in (400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504) if may_pass(code)]
    assert passing == [429, 500, 502, 503, 504]


def test_http_dates_are_read() -> None:
    """A date is read as seconds since the epoch, and any other text as None."""
    assert read_date(DATE) == 1714557600.0
    assert [read_date(text) for text in ("", "x", "Wed, 99 May 2024 10:00:00 GMT")] == [None] * 3


def test_the_servers_own_words_become_one_line() -> None:
    """The line is bounded and has no line breaks; the status stands for a server that said nothing."""
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": "no\n  " + "x" * 999})
    refusal = read_refusal(body.encode())
    assert refusal.message.startswith("no xxx")
    assert len(refusal.message) == 300
    assert read_refusal(b"<html>\n<b>bad gateway") == Refusal("", "<html> <b>bad gateway", {})
    assert refusal_text(502, read_refusal(b"")) == "without a reason (HTTP 502)"


def test_causes_that_the_message_leaves_out_are_added() -> None:
    """The message contains the causes with a field already."""
    told = status(
        "Invalid", "no: a b", causes=[{"message": "a b"}, {"field": "x", "message": "c"}, {"message": "d\ne"}]
    )
    assert refusal_text(422, told) == "no: a b d e (HTTP 422)"


def test_of_many_causes_the_first_are_read() -> None:
    """A webhook may send a hundred thousand."""
    told = status("Invalid", "no", causes=[{"message": f"{number}"} for number in range(100_000)])
    assert refusal_text(422, told).endswith(" 18 19 (HTTP 422)")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary() | st.recursive(st.none() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)).map(
    lambda value: json.dumps({"kind": "Status", "reason": value, "message": value, "details": value}).encode()
))  # fmt: skip
def test_any_body_is_read(body: bytes) -> None:
    """Whatever body comes with a refusal, it is read as a refusal and raises no error."""
    refusal = read_refusal(body)
    for code in (404, 409, 422, 500):
        assert outcome_of(code, refusal, "pods", "web") in Outcome
    assert "\n" not in refusal_text(500, refusal)


@pytest.mark.parametrize(
    ("message", "denied"),
    [
        ('admission webhook "guard.example.com" denied the request: not today', True),
        ('admission webhook "guard.example.com" denied the request without explanation', True),
        ("pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no: never", True),
        (
            "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'x-taint-eviction-controller' with binding 'b'"
            " denied request: expression resulted in error",
            False,
        ),
        (
            "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'renamed' with binding 'b' denied request:"
            " taint-eviction-controller: a pod is evicted only with its UID as a precondition",
            False,
        ),
        ('Internal error occurred: failed calling webhook "guard.example.com": timeout', False),
        ('pods "web-0" is forbidden: User "tec" cannot create resource "pods/eviction"', False),
        ("too many requests", False),
    ],
)
def test_admission_is_known_by_its_words(message: str, denied: bool) -> None:
    """The HTTP status is its author's choice. What this controller's own policy refuses does not count."""
    body = json.dumps({"kind": "Status", "code": 418, "message": message}).encode()
    assert read_refusal(body).denied is denied


def test_what_a_policy_says_is_not_lost_behind_long_names() -> None:
    """Kustomize's prefixes make the names of policies and bindings long, and the policy is known by its words."""
    name = "p" * 253
    by = f"ValidatingAdmissionPolicy '{name}' with binding '{name}'"
    said = f'pods "{name}" is forbidden: {by} denied request: {REFUSAL}'
    body = {"kind": "Status", "code": 422, "message": said, "details": {"causes": [{"message": said}]}}
    text = refusal_text(422, read_refusal(json.dumps(body).encode()))
    assert text.endswith(f"…' denied request: {REFUSAL} (HTTP 422)")


def test_a_denial_by_404_does_not_look_like_a_pod_that_is_gone() -> None:
    """A webhook may choose the status, the reason and the details."""
    details = {"kind": "pods", "name": "web-0"}
    assert outcome_of(404, Refusal("NotFound", "", details), "pods", "web-0") is Outcome.ABSENT
    assert outcome_of(404, Refusal("NotFound", "", details, denied=True), "pods", "web-0") is Outcome.REFUSED


@pytest.mark.parametrize(
    ("message", "evacuates"),
    [
        ('admission webhook "virt" denied the request: Eviction triggered evacuation of VMI "shop/vm"', True),
        ('admission webhook "virt" denied the request: Evacuation in progress: Evicting', True),
        ('admission webhook "virt" denied the request: not today', False),
        ("Evacuation in progress", False),
    ],
)
def test_a_virtual_machine_that_moves_away_is_known_by_the_words_of_its_webhook(message: str, evacuates: bool) -> None:
    """KubeVirt's; the words alone, without a webhook, are somebody else's."""
    body = json.dumps({"kind": "Status", "code": 429, "message": message}).encode()
    assert read_refusal(body).evacuates is evacuates
