"""``python -m tests.docs.outputs``: puts into pages what commands print, from the golden texts.

A page says which, before the block: ``<!-- output of SCENARIO-at-SECOND: COMMAND -->``. So what readers see is what the
command printed in a scenario, and a change of its words changes the page.
"""

import re
from pathlib import Path

from tests.golden.files import TEXTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

_BLOCK = re.compile(r"(<!-- output of (\S+): (.*?) -->\n\n```\n).*?(^```$)", re.MULTILINE | re.DOTALL)


def with_outputs(page: str) -> str:
    """Return a page with its outputs as they are now."""
    return _BLOCK.sub(lambda found: f"{found[1]}{printed(found[2], found[3])}{found[4]}", page)


def printed(moment: str, command: str) -> str:
    """Return what a command prints at a moment of a scenario."""
    text = (TEXTS / f"{moment}.txt").read_text(encoding="utf-8")
    said = text.split(f"== {command}\n")[1].partition("\n== ")[0].rstrip("\n") + "\n"
    return said.replace(", version VERSION", "")


def write() -> None:
    """Put the outputs into all pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (changed := with_outputs(text)) != text:
            page.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    write()
