"""The laboratory: scenarios and their replay on a virtual clock, the demo, and journals made into scenarios.

The controller (``taint_eviction``) never imports the laboratory; its command finds the laboratory's verbs by entry
points. ``replay`` is for tests of your own: of a policy file, or of what happens to your pods.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taint_eviction_lab.simulation.replay import ReplayResult

__all__ = ["replay"]


def replay(scenario: Path | str) -> ReplayResult:
    """Play a scenario through the controller, on a virtual clock; a ``Path`` is read, a text is the scenario itself.

    The result says when each pod was ``evicted``, and which of the scenario's expectations are ``broken``. Raises
    ``Malformed`` with the lines of all mistakes, and ``OSError``. Not to be called while an event loop runs.
    """
    # A verb imports this package, and need not load the player.
    from taint_eviction_lab.simulation.scenario import read_scenario  # noqa: PLC0415
    from taint_eviction_lab.wiring import replay_scenario  # noqa: PLC0415

    if isinstance(scenario, Path):
        return replay_scenario(read_scenario(scenario.read_text(encoding="utf-8"), str(scenario)))
    return replay_scenario(read_scenario(scenario, "scenario"))
