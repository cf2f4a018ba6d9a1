"""Adoption in replays: what the simulated API server does, and how its calls fail."""

from collections.abc import Callable

import pytest
from tests.around import around
from tests.simulation.scenario_texts import played

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.countdowns import Countdowns
from taint_eviction.core.objects import PodRef
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.settings import AdoptionSettings
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.control_state import SimulatedControlState
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.simulation.timeline import ADOPTION, Timeline, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

ONE = """
about: One pod.
settings: {{adopt: true, builtIn: "1.36", defaultTolerationSeconds: null}}
given:
  nodes: [node-1]
  pods: [{{name: web-0, nodeName: node-1, tolerations: ["{toleration}"]}}]
timeline:
  - {{at: 15, pause: {{}}}}
  - {{at: 15, {fault}}}
  - {{at: 20, taint: "node-1 a=1:NoExecute"}}
  - {{at: 72, untaint: node-1}}
expect: {{web-0: {expected}}}
"""


def play(
    fault: str = "handBack: undo", expected: str = "{notEvicted: true}", toleration: str = "a:NoExecute for 60"
) -> ReplayResult:
    """Play a scenario in which a pod is adopted and given back."""
    return played(ONE.format(fault=fault, expected=expected, toleration=toleration))


def calls_failed(result: ReplayResult) -> list[str]:
    """Return why calls failed, one text for each."""
    return [entry.why for entry in result.timeline if entry.what is What.CALL_FAILED]


def test_the_timeline_shows_each_adoption_and_return() -> None:
    """The timeline has the change of a pod's seconds when it is adopted and when it is given back."""
    result = play("annotate: {pod: web-0, annotations: {a: b}}", "{adopted: 59.9, givenBack: 72}")
    assert not result.broken
    whys = {entry.what: entry.why for entry in result.timeline if entry.subject == "default/web-0"}
    assert whys[What.ADOPTED] == "seconds mark, not 60"
    assert whys[What.GIVEN_BACK] == "seconds 60"
    assert whys[What.SAID_ADOPTED] == "1 of its tolerations"
    assert What.SAID_GIVEN_BACK in whys


@pytest.mark.parametrize("status", [403, 422, 429, 500])
def test_a_refused_patch_is_tried_again(status: int) -> None:
    """A patch that is refused with any of these statuses counts as a refusal, and the next try adopts the pod."""
    fault = f"refuse: {{call: adopt, status: {status}, times: 1, message: not now}}"
    result = play(fault, "{adoptionRefused: [], adopted: 60.9, givenBack: 72}")
    assert not result.broken
    assert calls_failed(result) == [f"adopt: {status}"]


def test_a_conflict_is_no_refusal() -> None:
    """After a conflict, the controller reads the pod again and patches it again at once."""
    result = play("refuse: {call: adopt, status: 409, times: 3}", "{adoptionRefused: [], adopted: 59.9}")
    assert not result.broken
    assert calls_failed(result) == ["adopt: 409"] * 3


def test_seconds_without_the_effect_no_execute_cannot_be_marked() -> None:
    """A toleration with seconds must have the effect NoExecute: the simulated API server refuses to change others."""
    result = play("annotate: {pod: web-0, annotations: {a: b}}", "{adopted: [], notEvicted: true}", "a for 60")
    assert not result.broken


def test_seconds_at_the_end_are_compared() -> None:
    """``tolerationSeconds`` expects the seconds of all tolerations at the end, in their order."""
    given_back = "{tolerationSeconds: [60]}"
    result = play("annotate: {pod: web-0, annotations: {a: b}}", given_back)
    assert not result.broken
    (wrong,) = play("annotate: {pod: web-0, annotations: {a: b}}", "{tolerationSeconds: [none, 5]}").broken
    assert (wrong.expected, wrong.seen) == ("tolerationSeconds: none, 5", "tolerationSeconds: 60")


def test_adoption_can_be_switched_on_and_off() -> None:
    """A scenario can switch adoption on and off, and set how long a countdown must at least be to be adopted."""
    text = ONE.format(fault="handBack: null", expected="{notEvicted: true}", toleration="a")
    assert read_scenario(text, "s.yaml").settings.adoption == AdoptionSettings(enabled=True)
    own = text.replace("adopt: true", "adopt: false, adoptFrom: 3s")
    assert read_scenario(own, "s.yaml").settings.adoption == AdoptionSettings(enabled=False, from_seconds=3.0)


def test_a_hand_back_is_confirmed_by_the_leader() -> None:
    """The order and its confirmation are on the timeline; undoing an order that nobody gave is an error."""
    result = play("handBack: null", "{adopted: [], notEvicted: true}")
    about = [(entry.what, entry.why) for entry in result.timeline if entry.subject == ADOPTION]
    assert about == [
        (What.ADOPTS, ""),
        (What.ADOPTION_ENDED, ""),
        (What.ADOPTION_CONFIRMED, "by controller 1"),
    ]
    with pytest.raises(Malformed, match="countdowns may be adopted at this moment"):
        play("handBack: undo")


def test_a_confirmation_counts_only_for_a_current_order() -> None:
    """A confirmation without an order has no effect, and undoing an order removes its confirmation."""

    async def main() -> None:
        timeline, order = Timeline(), Pause(1893456000.5)
        control_state = SimulatedControlState(timeline, production_parsing().control_state)
        control_state.confirm_no_adoption("a", order)
        assert control_state.control_state is None
        control_state.hand_back(undo=False)
        control_state.confirm_no_adoption("a", order)
        assert control_state.control_state == ControlState(no_adoption=order, no_adoption_confirmed_by="a")
        with pytest.raises(Impossible, match="nothing is adopted already"):
            control_state.hand_back(undo=False)
        control_state.hand_back(undo=True)
        assert control_state.control_state == ControlState()
        assert timeline.about(ADOPTION, What.ADOPTION_ALLOWED)

    run_virtually(main())


MANY = """
about: Many pods.
settings: {{adopt: true, builtIn: "1.36", defaultTolerationSeconds: null}}
given:
  nodes: [node-1]
  pods: [{pods}]
timeline:
  - {{at: 5, taint: "node-1 a=1:NoExecute"}}
  - {{at: 300, untaint: node-1}}
expect: {{p0: {{notEvicted: true}}}}
"""


def test_marks_that_may_be_unseen_are_not_checked_in_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mark causes a pass, and the marks of the last ten seconds wait in each pass, so checking all of them every
    time would take longer than marking.
    """
    checks: list[PodRef] = []

    @around(monkeypatch, Countdowns, "returns_at")
    def returns_at(right: Callable[..., float], self: Countdowns, ref: PodRef, now: float, marked_at: float) -> float:
        checks.append(ref)
        return right(self, ref, now, marked_at)

    pods = 300
    named = (f'{{name: p{i}, nodeName: node-1, tolerations: ["a:NoExecute for 300"]}}' for i in range(pods))
    result = played(MANY.format(pods=", ".join(named)))
    assert not result.broken
    assert len(checks) < 60 * pods
