"""Replays: what expectations check, which faults show without an expectation, and that runs are repeatable."""

from collections.abc import Callable

import pytest
from tests.around import around
from tests.simulation.known_bugs import stale_key
from tests.simulation.scenario_texts import ONE_POD, played

from taint_eviction.core.attempts import Attempts
from taint_eviction.core.decision import Evict
from taint_eviction.core.events import Event
from taint_eviction.core.pods import UNDECIDED, PodRecord
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.timeline import What

STALE_KEY = """
about: A StatefulSet pod, tainted, untainted, recreated, and tainted again within a minute.
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1}]
timeline:
  - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 20, untaint: node-1 maintenance}
  - {at: 30, recreate: web-0}
  - {at: 40, taint: "node-1 maintenance=now:NoExecute"}
expect:
  web-0: {evicted: [10, 40]}
"""


def seen_and_expected(result: ReplayResult) -> list[tuple[str, str]]:
    """Return what each broken expectation expected and saw."""
    return [(verdict.expected, verdict.seen) for verdict in result.broken]


def test_W1_the_stale_key_scenario_holds() -> None:
    """The recreated pod is evicted, too."""
    assert not played(STALE_KEY).broken


def test_W1_the_stale_key_scenario_fails_on_a_queue_that_keeps_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """With upstream's queue of before 1.33 the second pod is never evicted, and the same scenario says so."""
    stale_key(monkeypatch)
    # Else the replay would wait for an hour for what the queue keeps.
    assert seen_and_expected(played(f"{STALE_KEY}until: 120\n")) == [("evicted at 10, 40", "evicted at 10.040")]


def test_two_runs_give_the_identical_timeline() -> None:
    """Random values, as the jitter of retries, come from a seed that is the scenario's name."""
    text = """
        about: Much that is left to chance.
        given:
          nodes: [node-1, node-2]
          pods: [{name: "web-{1..20}", nodeName: node-1, tolerations: [maintenance for 5]}]
        timeline:
          - {at: 5, refuse: {call: [delete, mark, readNode], status: 500, times: 40}}
          - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
          - {at: 17, cut: {watch: all, for: 3}}
          - {at: 18, restart: }
        expect:
          web-*: {evicted: {at: 15, within: 100}}
        """
    first, second = played(text), played(text)
    assert first.timeline == second.timeline
    assert len(first.timeline) > 100


def test_an_eviction_that_is_early_or_late_breaks_its_expectation() -> None:
    """``evicted: 40`` means an eviction from 40 on, never earlier, and less than a second later."""
    assert not played(ONE_POD).broken
    for second in ("41", "39", "40.1"):
        broken = played(ONE_POD.replace("evicted: 40", f"evicted: {second}")).broken
        assert [(verdict.expected, verdict.seen) for verdict in broken] == [
            (f"evicted at {second}", "evicted at 40.030")
        ]


@pytest.mark.parametrize(
    ("claim", "expected", "seen"),
    [
        ("notEvicted: true", "not evicted", "evicted at 40.030"),
        ("notEvicted: {from: 40}", "not evicted from 40 on", "evicted at 40.030"),
        ("evicted: [40, 80]", "evicted at 40, 80", "evicted at 40.030"),
        ("evicted: {at: 35, within: 3}", "evicted at 35 (within 3 s)", "evicted at 40.030"),
        ("evicted: 40, scheduled: {at: 10, for: 41}", "scheduled at 10 for 41", "scheduled at 10.015 for 40.005"),
        ("evicted: 40, scheduled: []", "never scheduled", "scheduled at 10.015 for 40.005"),
        ("evicted: 40, cancelled: 12", "cancelled at 12", "never cancelled"),
        ("evicted: 40, marked: []", "never marked", "marked at 40.020"),
        ("evicted: 40, gone: 45", "gone at 45", "gone at 40.030"),
        ("evicted: 40, deletes: 2", "2 DELETE calls", "1 DELETE call"),
        ("evicted: 40, lateAtMost: 0.001", "at most 0.001 s late", "0.030 s late"),
        ("evicted: 40, ends: on node-1", "ends: on node-1", "ends: gone"),
        ("evicted: 40, condition: none, ends: terminating", "ends: terminating", "ends: gone"),
        ("evicted: 40, events: []", "events: none", "events: Normal TaintManagerEviction: Marking for deletion"),
        ("pods: 0", "at least 0 and at most 0 pods evicted", "1 pod evicted"),
    ],
)
def test_every_kind_of_expectation_can_be_broken(claim: str, expected: str, seen: str) -> None:
    """Each broken expectation says what it expected and what it saw."""
    broken = seen_and_expected(played(ONE_POD.replace("evicted: 40", claim)))
    assert len(broken) == 1
    assert broken[0][0] == expected
    assert broken[0][1].startswith(seen)


def test_an_eviction_that_is_not_expected_breaks_a_scenario() -> None:
    """A pod must stay if no expectation mentions it, or none says that it is evicted."""
    unmentioned = ONE_POD.replace("expect:\n  web-0: {evicted: 40}", "expect: {}")
    assert seen_and_expected(played(unmentioned)) == [("not evicted", "evicted at 40.030")]
    other = ONE_POD.replace("evicted: 40", "ends: gone")
    assert seen_and_expected(played(other)) == [("not evicted", "evicted at 40.030")]


def test_a_pattern_that_matches_no_pod_breaks_a_scenario() -> None:
    """An expectation about no pod would always hold, so it counts as broken."""
    assert seen_and_expected(played(ONE_POD.replace("web-0: {", "web-0: {evicted: 40}\n  db-*: {"))) == [
        ("a pod", "no such pod, ever")
    ]


def test_a_pod_that_is_deleted_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DELETE of a terminating pod breaks a scenario without an expectation, unless DELETE calls are counted."""

    @around(monkeypatch, Attempts, "_done")
    def forget_deletion(done: Callable[..., list[Event]], self: Attempts, record: PodRecord, *about: object) -> object:
        effects = done(self, record, *about)
        record.state = UNDECIDED
        return effects

    monkeypatch.setattr("taint_eviction.core.decision._left_alone", lambda pod, policy: None)
    text = """
        about: A pod whose kubelet is silent.
        given:
          nodes: [{name: node-1}]
          pods: [{name: web-0, nodeName: node-1}]
        timeline:
          - {at: 5, freezeKubelet: node-1}
          - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
          - {at: 20, taint: "node-1 broken=disk:NoExecute"}
        until: 30
        expect:
          web-0: {evicted: 10}
        """
    assert [expected for expected, _ in seen_and_expected(played(text))] == ["never deleted while terminating"]


def test_a_bug_that_ends_the_controller_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay raises the exception that ended the controller, as a dead controller must not seem an idle one."""

    def fail(*_: object) -> list[Evict]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Attempts, "take_due", fail)
    with pytest.raises(ExceptionGroup) as raised:
        played(ONE_POD)
    assert raised.group_contains(ZeroDivisionError, match="a bug")


def test_a_step_that_cannot_be_done_is_named_with_its_line() -> None:
    """A step may be impossible only when its time comes; the error then names its line and time."""
    text = ONE_POD.replace("expect:", "  - at: 50\n    bind: web-0 node-1\nexpect:")
    with pytest.raises(Malformed, match=r'^test\.yaml:9: at 50: pods "web-0" not found$'):
        played(text)


def test_the_run_goes_on_until_nothing_is_planned() -> None:
    """A replay waits for a deadline long after the last step, and ends soon after the last eviction."""
    result = played(ONE_POD.replace("for 30", "for 300").replace("evicted: 40", "evicted: 310"))
    assert not result.broken
    assert 310 < result.ended_at < 400
    forgotten = played(ONE_POD.replace("for 30", "for 300").replace("web-0: {evicted: 40}", "web-0: {ends: on node-1}"))
    assert seen_and_expected(forgotten)[-1] == ("not evicted", "evicted at 310.030")


def test_until_ends_the_run() -> None:
    """A replay plays nothing after the second that ``until`` names."""
    result = played(ONE_POD.replace("evicted: 40", "notEvicted: true") + "until: 39\n")
    assert not result.broken
    assert result.ended_at == 39.0


def test_a_restart_is_a_new_process_with_a_clock_of_its_own() -> None:
    """The timeline shows seconds of the scenario, whatever the monotonic clock of each process shows."""
    text = ONE_POD.replace("expect:", "  - at: 20.25\n    restart: {after: 3}\nexpect:")
    text = text.replace("evicted: 40", "evicted: {at: 40, within: 1.5}")
    result = played(text)
    assert not result.broken
    started = [(entry.at, entry.subject) for entry in result.timeline if entry.what is What.STARTED]
    assert started == [(0.0, "controller 1"), (23.25, "controller 2")]
    due = [entry.due_at for entry in result.timeline if entry.what is What.SCHEDULED]
    assert due == [pytest.approx(40, abs=1), pytest.approx(40, abs=1.5)]


def test_a_killed_controller_sends_nothing_more() -> None:
    """It is killed while it opens the connection for its DELETE, and between two tries of another one."""
    text = """
        about: Killed before its DELETE is sent.
        given:
          nodes: [node-1]
          pods: [{name: web-0, nodeName: node-1}, {name: db-0, nodeName: node-1}]
        timeline:
          - {at: 5, delay: {call: delete, pod: web-0, connect: 5}}
          - {at: 5, refuse: {call: delete, pod: db-0, status: 503, retryAfter: 5}}
          - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
          - {at: 10.2, restart: {after: 1h}}
        until: 30
        expect:
          web-0: {marked: 10, notEvicted: true, deletes: 0}
          db-0: {marked: 10, notEvicted: true, deletes: 1}
        """
    assert not played(text).broken


def test_a_call_that_was_sent_outlives_its_sender() -> None:
    """One DELETE arrives after its process was killed, another one after its process has stopped waiting for it."""
    text = """
        about: DELETEs that travel for 40 s.
        settings: {callTimeout: 10}
        given:
          nodes: [node-1, node-2]
          pods: [{name: web-0, nodeName: node-1}, {name: db-0, nodeName: node-2}]
        timeline:
          - {at: 5, delay: {call: delete, by: 40}}
          - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
          - {at: 12, restart: {after: 8}}
          - {at: 15, untaint: node-1}
          - {at: 30, taint: "node-2 maintenance=now:NoExecute"}
          - {at: 45, untaint: node-2}
        until: 100
        expect:
          web-0: {evicted: {at: 50, within: 0.1}, deletes: 1}
          db-0: {evicted: {at: 70, within: 0.1}, deletes: 2}
        """
    assert not played(text).broken


def test_a_replay_goes_on_until_the_last_deadline() -> None:
    """Here that is almost an hour of virtual time after the last step."""
    result = played(ONE_POD.replace("for 30", "for 3500").replace("evicted: 40", "evicted: 3510"))
    assert result.ended_at > 3510
    assert not result.broken


@pytest.mark.parametrize("part", ["7", "text", "[]", "[7, null]", "null", "{a: 1}", "true"])
@pytest.mark.parametrize(
    "body",
    [
        "spec: {part}",
        "status: {part}, spec: {{nodeName: node-1, tolerations: [7]}}",
        "spec: {{nodeName: {part}, terminationGracePeriodSeconds: {part}}}",
        "spec: {{nodeName: node-1, tolerations: {part}}}",
        "status: {{conditions: {part}, startTime: {part}, phase: {part}}}, spec: {{nodeName: node-1}}",
    ],
)
def test_malformed_verbatim_objects_never_stop_a_replay(body: str, part: str) -> None:
    """The replay goes on with malformed nodes and pods, and the other pods are evicted as always."""
    text = f"""
        about: Malformed.
        given:
          nodes:
            - node-1
            - verbatim: {{metadata: {{name: node-2, managedFields: {part}}}, spec: {{taints: {part}}}, status: {part}}}
          pods:
            - verbatim: {{metadata: {{name: broken-0, annotations: {part}}}, {body.format(part=part)}}}
            - {{name: web-0, nodeName: node-1}}
        timeline:
          - {{at: 10, taint: "node-1 maintenance=now:NoExecute"}}
          - {{at: 10, taint: "node-2 maintenance=now:NoExecute"}}
          - {{at: 20, recreate: broken-0}}
          - {{at: 30, untaint: node-2}}
          - {{at: 40, recreateNode: node-2}}
        until: 50
        expect:
          web-0: {{evicted: 10}}
          broken-0: {{pods: {{atMost: 1}}}}
        """
    assert not played(text).broken
