"""How explorations judge changes of countdowns, and what the built-in controller evicts: only what could be adopted."""

import json
from typing import Any

import pytest
from tests.simulation.exploring.adopting import AdoptionJudge
from tests.simulation.exploring.playing import play_scenario
from tests.simulation.exploring.truth import MARK, Truth

from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.scenario import read_scenario

# The built-in controller's timer ends at 15.3, and its watch shows the new seconds no earlier.
CHANGED_LATE = """
about: A pod's seconds are prolonged a moment before the built-in controller's timer ends.
settings: {adopt: true, builtIn: "1.36", defaultTolerationSeconds: null}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, tolerations: ["maintenance:NoExecute for 2"]}]
timeline:
  - {at: 13.31, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 15.311, tolerate: {pod: web-0, tolerations: ["maintenance:NoExecute for 20"]}}
expect: {}
"""

# The controller begins to mark at 40, 10 s before the timer; from then on every mark is refused.
REFUSED_WHEN_LATE = """
about: Marks are refused from the moment when the countdown is to be taken over.
settings: {adopt: ADOPT, builtIn: "1.36", defaultTolerationSeconds: null}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, tolerations: ["maintenance:NoExecute for 30"]}]
timeline:
  - {at: 20, taint: "node-1 maintenance=now:NoExecute"}
  - {at: REFUSED_AT, refuse: {call: adopt, for: 40, status: 500}}
  - {at: 80, untaint: node-1}
expect: {}
"""

# The pod is marked at 59.9.
NOTE_REMOVED = """
about: Somebody removes the note of a marked pod, and the leader writes it again.
settings: {adopt: true, builtIn: "1.36", defaultTolerationSeconds: null}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, tolerations: ["maintenance:NoExecute for 60"]}]
timeline:
  - {at: 20, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 65, annotate: {pod: web-0, annotations: {taint-eviction/seconds: REMOVED}}}
expect: {}
"""

# The pod is marked at 59.9.
TOLERATES_ALL = """
about: A pod tolerates everything for 60 s. Its node, whose Ready is STATUS, is clean again after the pod is marked.
settings: {adopt: true, builtIn: "1.36", defaultTolerationSeconds: null}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, tolerations: ["*:NoExecute for 60"]}]
timeline:
  - {at: 1, setReady: node-1 STATUS}
  - {at: 20, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 65, untaint: node-1}
expect: {}
"""


def test_seconds_that_change_right_before_the_built_in_controller_acts_cannot_be_adopted() -> None:
    """The controller has three seconds to adopt what it could know."""
    result = play_scenario(read_scenario(CHANGED_LATE, "late"))
    assert "by the built-in controller" in " ".join(entry.why for entry in result.timeline)
    assert result.violations == ()


def test_a_countdown_cannot_be_adopted_if_marks_are_refused_when_it_is_late() -> None:
    """It is taken over 10 s before its timer, however long it was known."""
    text = REFUSED_WHEN_LATE.replace("ADOPT", "true").replace("REFUSED_AT", "35")
    result = play_scenario(read_scenario(text, "refused"))
    assert "by the built-in controller" in " ".join(entry.why for entry in result.timeline)
    assert result.violations == ()


def test_nothing_is_adopted_in_time_where_nothing_is_to_be_adopted() -> None:
    """Without the setting, the built-in controller evicts by its own countdowns."""
    text = REFUSED_WHEN_LATE.replace("ADOPT", "false").replace("REFUSED_AT", "70")
    result = play_scenario(read_scenario(text, "off"))
    assert "by the built-in controller" in " ".join(entry.why for entry in result.timeline)
    assert result.violations == ()


@pytest.mark.parametrize(("status", "given_back"), [("True", True), ("Unknown", False)])
def test_a_mark_may_stay_while_a_taint_that_nobody_saw_may_come_back(status: str, given_back: bool) -> None:
    """A lifecycle taint of a node that is not ready may have been removed before the leader began."""
    result = play_scenario(read_scenario(TOLERATES_ALL.replace("STATUS", status), "unready"))
    assert ("says given back" in [entry.what.value for entry in result.timeline]) is given_back
    assert result.violations == ()


@pytest.mark.parametrize("removed", ["null", '"[]"', "nonsense"])
def test_a_note_that_others_remove_may_be_written_again(removed: str) -> None:
    """The mark counts as "for ever" until the leader, who knows the note, has written it again."""
    result = play_scenario(read_scenario(NOTE_REMOVED.replace("REMOVED", removed), "removed"))
    assert "noted" in [entry.what.value for entry in result.timeline]
    assert result.violations == ()


@pytest.mark.parametrize(("seconds", "rules"), [(60, []), (59, ["effective tolerations changed"])])
def test_a_note_that_is_written_again_says_what_it_said(seconds: int, rules: list[str]) -> None:
    """A mark that has lost its note does not get other seconds."""
    assert _rules_broken_by([_marked(60), _marked(None)], _marked(seconds)) == rules


def test_a_note_is_not_written_again_for_a_mark_of_somebody_else() -> None:
    """Where other seconds were set in between, a mark is the owner's word."""
    written = [_marked(60), _marked(None, 30), _marked(None)]
    assert _rules_broken_by(written, _marked(60)) == ["effective tolerations changed"]


def _rules_broken_by(written: list[dict[str, Any]], after: dict[str, Any]) -> list[str]:
    """Return the rules that the controller breaks if, after these writes, it makes the pod ``after``."""
    found: list[str] = []
    judge = AdoptionJudge(Truth(), lambda: None, lambda rule, *_: found.append(rule))
    for body in written:
        judge.notice(body)
    change = Trace("replica 1", 1, Phase.CARRIED_OUT, CallKind.GIVE_BACK, "default/web-0", "uid-1", 1.0)
    judge.check_change(change, written[-1], after, None)
    return found


def _marked(noted: int | None, written: int = MARK) -> dict[str, Any]:
    """Return a pod with one toleration; ``noted``: the seconds in its note, None: it has none."""
    toleration = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    note = {"taint-eviction/seconds": json.dumps([{**toleration, "seconds": noted}])}
    metadata = {"namespace": "default", "name": "web-0", "uid": "uid-1", "annotations": {} if noted is None else note}
    return {"metadata": metadata, "spec": {"tolerations": [{**toleration, "tolerationSeconds": written}]}}
