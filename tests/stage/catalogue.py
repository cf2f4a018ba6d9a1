"""The catalogue of scenarios: one folder a kind, and no file name twice."""

from pathlib import Path

CATALOGUE = Path(__file__).parent.parent / "scenarios"


def scenario_files() -> list[Path]:
    """Return the files of the catalogue, by folder and name."""
    return sorted(CATALOGUE.rglob("*.yaml"))


def scenario_file(name: str) -> Path:
    """Return the file with the name, without its suffix; raise ``ValueError`` unless there is exactly one."""
    (file,) = CATALOGUE.rglob(f"{name}.yaml")
    return file
