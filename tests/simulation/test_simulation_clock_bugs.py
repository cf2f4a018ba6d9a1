"""Scenarios about wrong clocks and answers ahead of the watch: the mistake that each is about breaks it."""

import pytest
from tests.simulation import world_bugs
from tests.simulation.known_bugs import Patch
from tests.stage.catalogue import scenario_file

from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario


@pytest.mark.parametrize(
    ("scenario", "bug"),
    [
        ("clock-misdated-answers-at-the-start", world_bugs.largest_date_wins),
        ("clock-one-api-server-of-three-ahead", world_bugs.largest_date_wins),
        ("clock-quartz-that-runs-fast", world_bugs.largest_date_wins),
        ("clock-first-connection-an-hour-ahead", world_bugs.highest_vote_wins),
        ("clock-two-api-servers-replaced", world_bugs.answers_vote),
        ("clock-two-api-servers-replaced", world_bugs.wrong_votes_are_followed_at_once),
        ("clock-one-kept-alive-connection", world_bugs.answers_vote),
        ("clock-balanced-by-request", world_bugs.highest_vote_wins),
        ("clock-of-kube-controller-manager-behind", world_bugs.dated_beats_seen),
        ("clock-of-the-api-server-that-binds-behind", world_bugs.dated_beats_seen),
        ("clock-all-api-servers-are-stepped", world_bugs.dated_beats_seen),
        ("clock-all-api-servers-are-stepped", world_bugs.nobody_asks_again),
        ("evict-though-the-node-is-written-ahead-of-the-watch", world_bugs.answers_move_starts),
        ("stay-set-again-while-a-list-is-ahead-of-the-watch", world_bugs.answers_overtake_the_watch),
    ],
)
def test_a_mistake_breaks_the_scenario_about_it(scenario: str, bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake in the controller, its scenario fails, so the scenario would find the mistake."""
    bug(monkeypatch)
    path = scenario_file(scenario)
    assert replay_scenario(read_scenario(path.read_text(encoding="utf-8"), str(path))).broken


def test_one_misdated_answer_breaks_a_scenario_only_by_two_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong Date ends a tolerance early if the clock ignores the median and dates count against sightings."""
    world_bugs.dates_are_believed(monkeypatch)
    path = scenario_file("clock-one-misdated-answer")
    broken = replay_scenario(read_scenario(path.read_text(encoding="utf-8"), str(path))).broken
    assert [verdict.seen.split(".")[0] for verdict in broken] == ["evicted at 12", "scheduled at 12"]
