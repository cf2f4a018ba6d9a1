"""What Kopf is set to, what it logs, and in which words it ends."""

from __future__ import annotations

import logging

import kopf
import pytest

from taint_eviction.kopf_shell.endings import error_line, refusal
from taint_eviction.kopf_shell.kopf_log import KopfLogRelay
from taint_eviction.kopf_shell.tuning import JitteredWaits, WatchTuning, operator_settings
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchScope

SCOPES: list[WatchScope] = [NodesScope(), PodsScope("n1"), PodsScope(None)]


@pytest.mark.parametrize("scope", SCOPES)
def test_the_settings_that_protect_process_and_objects_hold_for_every_scope(scope: WatchScope) -> None:
    """No SIGKILL, no foreign finalizers, no events, no watch of CRDs and namespaces."""
    settings = operator_settings(scope, WatchTuning())
    assert settings.process.ultimate_exiting_timeout is None
    assert settings.persistence.finalizer != kopf.OperatorSettings().persistence.finalizer
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    assert not settings.watching.initial_streaming


def test_pods_of_a_single_node_are_listed_in_one_answer() -> None:
    """A limit would make older API servers read all pods of the cluster from etcd."""
    sizes = [operator_settings(scope, WatchTuning()).watching.chunk_size for scope in SCOPES]
    assert sizes == [500, None, 500]


def test_a_silent_stream_is_opened_anew_before_the_watch_is_given_up() -> None:
    """Bookmarks come every 60 s, so the defaults have to lie beyond, in this order."""
    tuning = WatchTuning()
    assert 60 < tuning.inactivity_seconds < tuning.silence_seconds


def test_waits_between_attempts_vary_and_are_never_none_at_all() -> None:
    """Around what was set; without any, a refused connection would make Kopf spin."""
    waits = JitteredWaits((1.0, 2.0))
    first, second = list(waits), list(waits)
    assert first != second
    assert all(0.5 <= short <= 1.5 and 1.0 <= long <= 3.0 for short, long in (first, second))
    assert len(list(JitteredWaits(()))) == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 400), "ValueError: " + "x" * 287 + "…"),
    ],
)
def test_an_error_is_one_line_of_bounded_length(error: BaseException, line: str) -> None:
    """Its type comes first, whatever its message contains."""
    assert error_line(error) == line


def test_a_refusal_is_told_in_the_servers_words_where_there_are_any() -> None:
    """Not every answer is a Status."""
    assert refusal(403, {"message": "pods is forbidden"}) == "403: pods is forbidden"
    assert refusal(502, {}) == refusal(502, ["odd"]) == "502"


def test_of_the_same_warning_one_in_half_a_minute_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    """The same is: from the same line of code."""
    relay = KopfLogRelay()
    caplog.set_level(logging.WARNING)
    for second, place in ((0, 1), (10, 1), (20, 2), (31, 1)):
        record = logging.LogRecord("kopf.x", logging.ERROR, "x.py", place, "at %s\nand so on", (second,), None)
        record.created = 1_000_000.0 + second
        relay.handle(record)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["at 0 and so on", "at 20 and so on", "at 31 and so on"]
