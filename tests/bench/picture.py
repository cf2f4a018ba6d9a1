"""Draw the results of ``side-by-side``: ``python -m tests.bench.picture RESULTS.json… > scale.svg``.

The picture has a panel per figure, a group per size of cluster and a bar per controller: the bar is the mean of the
rounds, and each dot is one round.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from tests.bench.population import Json

PANELS = (
    ("from the start to the first one gone", "From the start to the first eviction"),
    ("peak RSS", "Peak memory"),
    ("first one gone", "First pod of the storm deleted after"),
    ("half of them gone", "Half of the pods deleted after"),
    ("99 of 100 gone", "99 of 100 pods deleted after"),
    ("last one gone", "Last pod deleted after"),
)
_OWN = "this controller"
_COLORS = ("#2563eb", "#94a3b8", "#cbd5e1")
_TEXT = _DOT = "#0f172a"
_WIDTH, _ROW, _LEFT, _BAR, _SPAN = 900, 20, 190, 16, 560
_TOP = 44


def picture(results: Sequence[Json]) -> str:
    """Return an SVG of all rounds of all sizes."""
    figures = list(dict.fromkeys(result["figure"] for result in results))
    units = {result["name"]: result["unit"] for result in results}
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if result["floor"] is not None:
            values[result["name"], result["figure"]][_OWN].append(result["measured"])
            values[result["name"], result["figure"]][result["floor_name"]].append(result["floor"])
    whose = list(dict.fromkeys(name for of_one in values.values() for name in of_one))
    colors = dict(zip(whose, _COLORS, strict=False))
    lines, y = [], _TOP
    for name, title in PANELS:
        lines.append(f'<text x="20" y="{y + 14}" font-weight="bold" fill="{_TEXT}">{title}</text>')
        y += 24
        most = max(max(rounds) for figure in figures for rounds in values[name, figure].values())
        for figure in figures:
            lines.append(f'<text x="20" y="{y + 13}" fill="#475569" font-size="12">{escape(figure)}</text>')
            for who in values[name, figure]:
                lines += _bar(values[name, figure][who], most, units[name], y, colors[who])
                y += _ROW
            y += 6
        y += 10
    return "\n".join([*_frame(y, colors), *lines, "</svg>"]) + "\n"


def _bar(rounds: list[float], most: float, unit: str, y: int, color: str) -> Iterator[str]:
    mean = sum(rounds) / len(rounds)
    width = _SPAN * mean / most
    yield f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{color}"/>'
    yield from (f'<circle cx="{_LEFT + _SPAN * at / most:.1f}" cy="{y + 8}" r="2.5" fill="{_DOT}"/>' for at in rounds)
    end = _LEFT + _SPAN * max(mean, *rounds) / most
    said = f"{mean:,.0f}" if mean >= 100 else f"{mean:.2f}" if mean < 1 else f"{mean:.1f}"
    yield f'<text x="{end + 8:.1f}" y="{y + 13}" fill="{_TEXT}" font-size="12">{said} {unit}</text>'


def _frame(height: int, colors: dict[str, str]) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'role="img" aria-label="This controller beside the built-in one" font-family="system-ui, sans-serif" '
        'font-size="13">'
    )
    yield f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#f8fafc" stroke="#cbd5e1"/>'
    for index, (name, color) in enumerate(colors.items()):
        x = 20 + 200 * index
        yield f'<rect x="{x}" y="14" width="14" height="14" rx="2" fill="{color}"/>'
        yield f'<text x="{x + 20}" y="26" fill="{_TEXT}">{escape(name)}</text>'
    yield '<text x="640" y="26" fill="#475569" font-size="12">bar: mean of the rounds; dot: one round</text>'


if __name__ == "__main__":
    files = [json.loads(Path(name).read_text("utf-8")) for name in sys.argv[1:]]
    sys.stdout.write(picture([result for file in files for result in file["results"]]))
