"""``replay --against built-in`` shows for each pod what the built-in controller would have done."""

import json

import pytest
from click.testing import CliRunner, Result
from tests.simulation.scenario_texts import ONE_POD
from tests.stage.catalogue import scenario_file

from taint_eviction_lab.built_in.version import MEASURED
from taint_eviction_lab.cli.replay import replay
from taint_eviction_lab.simulation.against import Difference
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_against


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(replay, list(arguments), input=stdin, catch_exceptions=False)


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("evict-taint-added", Difference.SAME),
        ("stay-tolerated-without-seconds", Difference.NEITHER),
        ("restart-countdown-goes-on", Difference.LATER),
        ("reschedule-seconds-shortened", Difference.LATER),
        ("reschedule-seconds-lengthened", Difference.EARLIER),
        ("evict-condition-refused", Difference.NEVER),
        ("cancel-node-deleted", Difference.ALONE),
        ("pause-of-all", Difference.EARLIER),
    ],
)
def test_each_kind_of_difference_is_found(name: str, difference: Difference) -> None:
    """Scenarios of the catalogue differ with the model of the built-in controller in the ways that are expected."""
    file = scenario_file(name)
    _, comparison = replay_against(read_scenario(file.read_text(encoding="utf-8"), file.name), MEASURED)
    assert {pod.difference for pod in comparison.pods} >= {difference}


def test_people_read_both_times_and_the_difference() -> None:
    """A table below the expectations shows both times; a difference does not break an expectation."""
    text = ONE_POD.replace("expect:", "  - {at: 20, restart: {}}\nexpect:").replace("evicted: 40", "evicted: 40.5")
    result = run("-", "--against", "built-in=1.33", stdin=text)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-3:] == [
        "  against a model of the built-in controller 1.33: 1 later",
        "    POD            THIS CONTROLLER  BUILT-IN      BUILT-IN ONE",
        "    default/web-0  evicted 40.5     evicted 50.0  9.5 s later",
    ]


def test_json_has_the_same_comparison() -> None:
    """The JSON of a replay has the comparison beside its timeline."""
    replays = json.loads(run("-", "-o", "json", "--against", "built-in", stdin=ONE_POD).stdout)["replays"]
    assert replays[0]["against"] == {
        "builtIn": "1.36",
        "pods": [
            {
                "pod": "default/web-0",
                "uid": "default-web-0-1",
                "evictedAt": 40.03,
                "builtInEvictedAt": 40.03,
                "difference": "same",
                "why": None,
            }
        ],
        "stepsLeftOut": [],
    }


def test_several_files_are_summed_up() -> None:
    """The last line of a replay of several files says how many scenarios end differently with the model."""
    files = [str(scenario_file(name)) for name in ("evict-taint-added", "restart-countdown-goes-on")]
    lines = run(*files, "--against", "built-in").stdout.splitlines()
    assert lines[-1] == "1 of them end otherwise with the model of the built-in controller"


def test_a_step_that_is_impossible_with_the_model_is_left_out_and_reported() -> None:
    """The model evicts a pod that stays with this controller, so a later step about that pod is no error."""
    text = """
about: A hold keeps a pod that the built-in controller evicts.
settings: {honourHolds: forever}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, hold: forever}]
timeline:
  - {at: 1, taint: "node-1 a:NoExecute"}
  - {at: 5, tolerate: {pod: web-0, tolerations: ["*"]}}
expect: {}
"""
    result = run("-", "--against", "built-in", stdin=text)
    assert result.exit_code == 0
    assert "    left out there at 5: tolerate {pod: web-0, tolerations: [*]}: " in result.stdout


@pytest.mark.parametrize("value", ["upstream", "built-in=1.31", "built-in="])
def test_any_other_controller_or_version_is_refused(value: str) -> None:
    """A replay compares only with the model of the built-in controller, in the versions that it covers."""
    result = run("-", "--against", value, stdin=ONE_POD)
    assert result.exit_code == 2
    assert "is not built-in" in result.stderr or "from 1.32 to 1.38" in result.stderr
