"""``python -m tests.docs.demo_picture``: runs the demo, and draws all that it has shown into docs/images/demo.svg.

It takes half a minute. The picture is that of a real run: seconds differ by some hundredths from run to run, so that
no test compares them.
"""

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from taint_eviction_lab.built_in.version import MEASURED
from taint_eviction_lab.cli.demo_views import DemoTable, LiveTable
from taint_eviction_lab.simulation.demo import API, CACHE, DB, SHOPS, WEB, DemoFact, Side

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"
_COLUMNS = 80
_INK = (232, 234, 237)
_COLOURS = [_INK, (255, 138, 128), (111, 208, 140), (243, 201, 105), *[_INK] * 4]
# With a background of its own the picture can be read on a light page and on a dark page.
_THEME = TerminalTheme((21, 23, 26), _INK, _COLOURS)


def drawn(lines: Iterable[str]) -> str:
    """Draw what ``taint-eviction demo -o json`` has printed, as its view for terminals leaves it behind."""
    *facts, verdict = map(json.loads, lines)
    last = facts[-1]["at"]
    table = DemoTable(f"built-in {MEASURED} (model)", (WEB, CACHE, DB, API, *SHOPS), lambda: last)
    console = Console(file=io.StringIO(), width=_COLUMNS, record=True)
    with LiveTable(table, console) as view:
        for fact in facts:
            view.show(DemoFact(**{**fact, "side": Side(fact["side"])}))
        view.conclude(verdict["lines"], verdict["as_told"])
    svg = console.export_svg(title="taint-eviction demo", theme=_THEME, unique_id="demo")
    # A picture does not load fonts from other sites, and should load nothing else.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, ", "")


def main() -> None:
    """Run the demo and write the picture."""
    command = (sys.executable, "-m", "taint_eviction", "demo", "-o", "json")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    PICTURE.write_text(drawn(done.stdout.splitlines()))


if __name__ == "__main__":
    main()
