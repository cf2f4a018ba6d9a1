"""Where the golden file of a moment is."""

from pathlib import Path

from tests.golden.moments import SecondOfScenario

TEXTS = Path(__file__).parent / "texts"


def file_named(name: str) -> Path:
    """Return the file of what is no moment of a scenario."""
    return TEXTS / f"{name}.txt"


def file_of(moment: SecondOfScenario) -> Path:
    """Return the file with what is read at the moment."""
    return TEXTS / f"{moment.scenario}-at-{moment.at:g}.txt"
