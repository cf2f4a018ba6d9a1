"""Tables for people: columns as wide as their widest cell; and the colours of words."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import click

from taint_eviction.cli.visible import visible

Row = Sequence[str]
_LEAST_WIDTH = 40
_LABEL_WIDTH = 9
# A row that is too long goes on with this indent; its last column is not narrower than that, nor its label.
_FOLD, _LEAST_LAST, _LEAST_LABEL = " " * 6, 24, 8

bold = partial(click.style, bold=True)
good = partial(click.style, fg="green")
bad = partial(click.style, fg="red", bold=True)
doubtful = partial(click.style, fg="yellow")


def table_lines(
    header: Row, rows: Sequence[Row], styles: Mapping[int, Callable[[str], str]] | None = None, *, folds: bool = True
) -> list[str]:
    """Return the lines of a table with a dimmed header, unless the command has --no-headers.

    ``styles``: by column, the colour of its padded cells. ``folds``: a row that is too long for a terminal goes on in
    its last column, or, where that has no room, in further lines.
    """
    headers = [] if _without_headers() else [header]
    if not headers and not rows:
        return []
    shown = [[_in_one_line(cell) for cell in row] for row in (*headers, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    # The last column is not padded: it may be much longer than a line.
    widths[-1] = 0
    lines = []
    for number, row in enumerate(shown, 1 - len(headers)):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        for parts in (
            _folded(padded, _LEAST_LAST if number else _LEAST_LABEL)
            if folds and sys.stdout.isatty()
            else [("  ", dict(enumerate(padded)))]
        ):
            indent, cells = parts
            styled = [
                (styles or {}).get(column, str)(cell) if number else click.style(cell, dim=True)
                for column, cell in cells.items()
            ]
            lines.append(f"{indent}{'  '.join(styled)}".rstrip())
    return lines


def _folded(cells: Sequence[str], least: int) -> list[tuple[str, dict[int, str]]]:
    """Return the lines of a row, each with its indent and the cells or parts of the last cell in it, by column.
    ``least``: the last column is not narrower than that.
    """
    width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns)
    last, lines, used = len(cells) - 1, [("  ", dict[int, str]())], 2
    for column, cell in enumerate(cells[:-1]):
        if lines[-1][1] and used + len(cell) > width:
            lines.append((_FOLD, {}))
            used = len(_FOLD)
        lines[-1][1][column] = cell
        used += len(cell) + 2
    if width - used < min(least, len(cells[last])):
        lines.append((_FOLD, {}))
        used = len(_FOLD)
    first, *more = textwrap.wrap(cells[last], width - used, break_long_words=False, break_on_hyphens=False) or [""]
    lines[-1][1][last] = first
    return [*lines, *((" " * used, {last: part}) for part in more)]


def wrapped(text: str, head: str, indent: str) -> list[str]:
    """Wrap a text after ``head`` on a terminal; otherwise it is one line, for grep."""
    if not sys.stdout.isatty():
        return [head + text]
    width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns)
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def about_lines(subject: str, sentence: str) -> list[str]:
    """Return a sentence behind its subject in bold."""
    first, *more = wrapped(sentence, f"{subject} ", "  ")
    return [bold(subject) + first.removeprefix(subject), *more]


def fact_lines(label: str, fact: str) -> list[str]:
    """Return a fact behind its label, which is dimmed."""
    label = label.ljust(_LABEL_WIDTH)
    first, *more = wrapped(fact, f"  {label} ", " " * (len(label) + 3))
    return [f"  {click.style(label, dim=True)}{first.removeprefix(f'  {label}')}", *more]


def _without_headers() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("no_headers"))


def _in_one_line(cell: str) -> str:
    return visible(cell).replace("\n", "\\n").replace("\t", "\\t")
