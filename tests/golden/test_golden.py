"""What people and machines read of chosen moments; ``python -m tests.golden`` writes it anew after a wanted change."""

import pytest
from tests.golden import gone_pod
from tests.golden.capturing import captured
from tests.golden.dead_node import NAME, dead_node
from tests.golden.files import TEXTS, file_named, file_of
from tests.golden.moments import MOMENTS, SecondOfScenario


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: file_of(moment).stem)
def test_texts_are_as_they_were(moment: SecondOfScenario) -> None:
    """The status, explanations, history, metrics and log of the moment equal its file."""
    assert captured(moment) == file_of(moment).read_text(encoding="utf-8")


def test_the_steps_on_a_dead_node_are_as_they_were() -> None:
    """The page on a dead node quotes them."""
    assert dead_node() == file_named(NAME).read_text(encoding="utf-8")


def test_the_explanation_of_a_pod_that_is_gone_is_as_it_was() -> None:
    """The page on what the controller does quotes it."""
    assert gone_pod.gone_pod() == file_named(gone_pod.NAME).read_text(encoding="utf-8")


def test_each_file_belongs_to_a_moment() -> None:
    """No golden file is left behind."""
    others = {file_named(NAME), file_named(gone_pod.NAME)}
    assert set(TEXTS.glob("*.txt")) == {file_of(moment) for moment in MOMENTS} | others
