"""The page about the format of scenario files: its example works, and every word of the format is on the page."""

import re
from pathlib import Path

import pytest

from taint_eviction_lab.simulation.actions import ACTIONS
from taint_eviction_lab.simulation.expectations import BREAKER_CLAIMS, CLAIMS, HOW_MANY
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.scenario import GIVEN, read_scenario
from taint_eviction_lab.simulation.settings_file import BREAKER_SETTINGS, LIFECYCLE_SETTINGS, SETTINGS
from taint_eviction_lab.wiring import replay_scenario

PAGE = (Path(__file__).parent.parent / "scenarios" / "README.md").read_text(encoding="utf-8")


def test_the_example_on_the_page_holds() -> None:
    """A replay of the page's example meets at least four expectations, and breaks none."""
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    result = replay_scenario(read_scenario(example, "README.md"))
    assert len(result.verdicts) >= 4
    assert not result.broken


@pytest.mark.parametrize(
    "word",
    sorted(
        {
            *(*ACTIONS, *CLAIMS, HOW_MANY, *SETTINGS, *BREAKER_SETTINGS, *LIFECYCLE_SETTINGS, *GIVEN),
            *(call.value for call in CallKind),
        }
    ),
)
def test_every_word_of_the_format_is_on_the_page(word: str) -> None:
    """The page names all actions, expectations, settings, given objects and calls."""
    assert f"`{word}`" in PAGE


def test_every_expectation_about_the_breaker_is_on_the_page() -> None:
    """The page shows each expectation about the breaker under the key ``breaker``."""
    for word in BREAKER_CLAIMS:
        assert re.search(rf"`breaker: {{.*\b{word}:.*}}`", PAGE)
